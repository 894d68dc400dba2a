//! What differs between shards, what holds within a shard only, and the SQL that guards the map.

use std::sync::Arc;

use howdah_shard::{Catalogue, CatalogueReader, Map, Part, ShardCatalogue};

fn map(shards: &[&str]) -> Map {
    let mut map = Map::builder(shards.iter().copied()).expect("shards");
    let last = shards.last().expect("a shard");
    let slots = format!("hash bigint slots=4 0-1=s0 2-3={last}");
    map.distribution("tenant", &slots).expect("a distribution");
    for (pattern, place) in [
        ("public.countries", "replicated(s0)"),
        ("public.settings", "s0"),
        ("public.*", "tenant(account_id)"),
    ] {
        map.table(pattern, place).expect("a table");
    }
    map.finish()
}

/// Part and fields of each row, separated by bars.
const ROWS: &str = "
Database|UTF8|public
Schemas|public|true
Tables|1|public|accounts|r|false|
Tables|2|public|orders|r|false|
Tables|3|public|countries|r|false|
Tables|4|public|settings|r|false|
Tables|5|public|orders_id_seq|S|false|
Tables|6|public|settings_id_seq|S|false|
Columns|1|account_id|20|false|true|true|false|
Columns|1|name|25|false|true|true|false|
Columns|2|account_id|20|false|true|true|false|
Columns|2|id|20|false|true|true|false|
Columns|3|code|25|false|true|true|false|C
Columns|4|id|20|false|true|true|false|
Keys|1|unique|accounts_pkey|account_id
Keys|2|unique|orders_pkey|id
Keys|2|foreign|orders_of|account_id|1|account_id
Keys|2|foreign|orders_by|id|1|account_id
Keys|2|foreign|orders_in|id|3|code
Keys|2|foreign|orders_as|id|4|id
Sequences|5|1|1|1|1000|2
Sequences|6|1|1|1|1000|4
Settings|TimeZone|UTC
";

fn catalogue(rows: &str) -> Option<Arc<ShardCatalogue>> {
    let mut reader = CatalogueReader::default();
    for row in rows.lines().filter(|row| !row.is_empty()) {
        let (name, fields) = row.split_once('|').expect("fields");
        let mut parts = Part::ALL.into_iter();
        let part = parts.find(|part| format!("{part:?}") == name);
        let fields: Vec<_> = fields.split('|').map(|of| Some(of.as_bytes())).collect();
        reader.row(part.expect("a part"), &fields).expect("a row");
    }
    Some(Arc::new(reader.finish()))
}

/// The checks of two shards, the second of which has other words.
fn checks(from: &str, to: &str) -> Vec<String> {
    assert!(ROWS.contains(from), "{from}");
    let shards = vec![catalogue(ROWS), catalogue(&ROWS.replace(from, to))];
    let found = Catalogue::new(1, shards).checks(&map(&["s0", "s1"]));
    let line = |check: howdah_shard::Check| {
        let closed = if check.closes { "closed: " } else { "" };
        format!("{closed}{}: {}", check.what, check.found)
    };
    found.into_iter().map(line).collect()
}

#[test]
fn what_holds_within_a_shard_only_is_told() {
    assert_eq!(
        checks("", ""),
        [
            "public.orders: unique index \"orders_pkey\" is without the key, and holds within a shard only",
            "public.orders: foreign key \"orders_as\" is not by the key: the row of \"public.settings\" \
             may be on another shard",
            "public.orders: foreign key \"orders_by\" is not by the key: the row of \"public.accounts\" \
             may be on another shard",
            "public.orders_id_seq: several shards give the same numbers: SHARD_SQL shows a remedy",
        ]
    );
}

#[test]
fn what_differs_is_told_and_closes_a_table_if_answers_could_be_wrong() {
    let before = checks("", "");
    for (from, to, expected) in [
        (
            "1|account_id|20|false|true|true|false|\nColumns|1|name|25",
            "1|name|25|false|true|true|false|\nColumns|1|account_id|20",
            &["closed: public.accounts: its columns are in another order on another shard."][..],
        ),
        (
            "Columns|1|name|25",
            "Columns|1|name|17",
            &["closed: public.accounts: the type of column \"name\" is another on another shard."],
        ),
        // A driver sees no difference.
        (
            "Columns|1|name|25",
            "Columns|1|name|1043",
            &["public.accounts: column \"name\" is not the same on all shards"],
        ),
        // A column on its way through the shards.
        (
            "Columns|1|name|25|false|true|true|false|\n",
            "",
            &["public.accounts: column \"name\" is not the same on all shards"],
        ),
        (
            "Columns|2|account_id|20|false|true",
            "Columns|2|account_id|20|false|false",
            &["closed: public.orders: its key \"account_id\" may be NULL: declare it NOT NULL."],
        ),
        // A table on one shard only may be anything on the others.
        (
            "Tables|4|public|settings|r",
            "Tables|4|public|settings|v",
            &[],
        ),
        (
            "false|C",
            "false|en_US",
            &["public.countries: column \"code\" has another collation on another shard"],
        ),
        (
            "UTC",
            "Europe/Paris",
            &["database: TimeZone is \"UTC\" on shard \"s0\", \"Europe/Paris\" on shard \"s1\""],
        ),
        (
            "UTF8",
            "LATIN1",
            &["database: encoding is \"UTF8\" on shard \"s0\", \"LATIN1\" on shard \"s1\""],
        ),
    ] {
        let mut found = checks(from, to);
        found.retain(|line| !before.contains(line));
        assert_eq!(found, expected, "{from} -> {to}");
    }
    // Columns that the first shard does not have, in the middle of the others' columns.
    let column = |name: &str| format!("Columns|2|{name}|20|false|true|true|false|\n");
    for (last, closes) in [("x y", false), ("y x", true)] {
        let with = |names: &str| {
            let names: String = names.split(' ').map(column).collect();
            catalogue(&ROWS.replace(&column("id"), &format!("{names}{}", column("id"))))
        };
        let shards = vec![catalogue(ROWS), with("x y"), with(last)];
        let found = Catalogue::new(1, shards).checks(&map(&["s0", "s1", "s2"]));
        assert_eq!(found.iter().any(|check| check.closes), closes, "{last}");
    }
    // Numbers that are apart by their ranges, or by their steps.
    for (one, other, repeats) in [
        ("1|1|1|1000", "1|1001|1001|2000", false),
        ("2|1|1|1000", "2|2|1|1000", false),
        ("2|1|1|1000", "2|5|1|1000", true),
        ("2|1|1|1000", "1|2|1|1000", true),
    ] {
        let with = |of: &str| catalogue(&ROWS.replace("5|1|1|1|1000", &format!("5|{of}")));
        let found = Catalogue::new(1, vec![with(one), with(other)]).checks(&map(&["s0", "s1"]));
        let mut found = found.iter();
        let found = found.any(|check| check.found.contains("same numbers"));
        assert_eq!(found, repeats, "{one} {other}");
    }
}

#[test]
fn sql_guards_tables_and_interleaves_sequences() {
    let shards = vec![catalogue(ROWS), catalogue(ROWS)];
    let catalogue = Catalogue::new(1, shards);
    let found = catalogue.guard_sql(&map(&["s0", "s1"]));
    let found: Vec<String> = found
        .iter()
        .map(|of| format!("{} {}", of.shard.0, of.sql))
        .collect();
    assert_eq!(found.len(), 6, "{found:#?}");
    assert!(found[0].starts_with(
        "0 ALTER TABLE \"public\".\"accounts\" ADD CONSTRAINT howdah_shard CHECK (mod(mod(hashint8extended("
    ));
    assert!(
        found[3].ends_with("4) BETWEEN 2 AND 3) NOT VALID"),
        "{}",
        found[3]
    );
    assert_eq!(
        found[5],
        "1 ALTER SEQUENCE \"public\".\"orders_id_seq\" INCREMENT BY 2 START WITH 2; SELECT \
         setval('\"public\".\"orders_id_seq\"', (last_value / 2 + 1) * 2 + 2, false) FROM \
         \"public\".\"orders_id_seq\""
    );
    assert_eq!(catalogue.guard_sql(&map(&["s0"])), []);
}
