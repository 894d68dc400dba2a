//! Texts and their verdicts: `verdicts.txt`, over the catalogue of `schema.sql`.
#![cfg(feature = "grammar")]

use std::collections::HashSet;
use std::sync::Arc;

use howdah_shard::{
    Catalogue, CatalogueReader, Given, Map, Names, NoKey, Part, Planner, Shard, ShardCatalogue,
    Values, Verdict, oid,
};

fn map() -> Map {
    let mut map = Map::builder(["s0", "s1"]).expect("shards");
    for (name, text) in [
        ("tenant", "list bigint 1,2,3=s0 4,5,6=s1"),
        ("region", "list text eu=s0 us,'x '=s1"),
        (
            "doc",
            "list uuid 00000000-0000-0000-0000-000000000000=s0 *=s1",
        ),
        ("other", "list bigint 5=s0 *=s1"),
    ] {
        map.distribution(name, text).expect("a distribution");
    }
    for (pattern, place) in [
        ("public.countries", "replicated(s0)"),
        ("public.rates", "replicated(s1)"),
        ("public.visits", "region(region)"),
        ("public.foreign_words", "region(region)"),
        ("public.docs", "doc(doc)"),
        ("public.account_view", "tenant(account_id)"),
        ("public.orders", "tenant(account_id)"),
        ("public.*", "tenant(account_id)"),
        ("customer_a.*", "s1"),
        ("other.*", "other(account_id)"),
    ] {
        map.table(pattern, place).expect("a table");
    }
    map.finish()
}

/// The catalogue of the fixture, without the lines that `is_there` denies.
fn catalogue(is_there: impl Fn(&str) -> bool) -> Arc<ShardCatalogue> {
    let mut reader = CatalogueReader::default();
    let lines = include_str!("catalogue.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#') && is_there(line)) {
        let mut fields = line.split('\t');
        let name = fields.next().expect("a part");
        let part = Part::ALL
            .into_iter()
            .find(|part| format!("{part:?}") == name);
        let fields = fields.map(|field| (field != "\\N").then_some(field.as_bytes()));
        let fields: Vec<_> = fields.collect();
        reader.row(part.expect("a part"), &fields).expect("a row");
    }
    Arc::new(reader.finish())
}

fn planner(shards: [Option<Arc<ShardCatalogue>>; 2]) -> Planner {
    let catalogue = Catalogue::new(1, shards.to_vec());
    let functions = HashSet::from(["public.listed".to_owned()]);
    Planner::new(Arc::new(map()), Arc::new(catalogue), functions, 1 << 20)
}

/// A parameter: `5`, `int4:5` (declared), `int4b:5` (declared, binary), `b:5` (binary), `null`.
fn parameter(text: &str) -> (u32, bool, Option<Vec<u8>>) {
    let (of, value) = text.split_once(':').unwrap_or(("", text));
    let bytes = |oid: u32| match oid {
        oid::INT2 => value
            .parse::<i16>()
            .expect("a number")
            .to_be_bytes()
            .to_vec(),
        oid::INT4 => value
            .parse::<i32>()
            .expect("a number")
            .to_be_bytes()
            .to_vec(),
        _ => value
            .parse::<i64>()
            .expect("a number")
            .to_be_bytes()
            .to_vec(),
    };
    let of_name = |name: &str| match name {
        "" => oid::NONE,
        "int2" => oid::INT2,
        "int4" => oid::INT4,
        "int8" => oid::INT8,
        "text" => oid::TEXT,
        "numeric" => 1700,
        "int8[]" => 1016,
        name => panic!("type {name}"),
    };
    if value == "null" {
        return (of_name(of), false, None);
    }
    match of.strip_suffix('b') {
        Some(of) => (of_name(of), true, Some(bytes(of_name(of)))),
        None => (of_name(of), false, Some(value.as_bytes().to_vec())),
    }
}

fn verdict(planner: &mut Planner, text: &str, parameters: &[&str], names: &Names<'_>) -> String {
    let parameters: Vec<_> = parameters.iter().map(|text| parameter(text)).collect();
    let given = parameters.iter().map(|(oid, binary, bytes)| Given {
        oid: *oid,
        binary: *binary,
        bytes: bytes.as_deref(),
    });
    let given: Vec<Given<'_>> = given.collect();
    let (verdict, guess) = match planner.plan(text.as_bytes(), names) {
        Err(refusal) => (Verdict::Refused(refusal), false),
        Ok(planned) => {
            let values = Values {
                text: text.as_bytes(),
                constants: &planned.constants,
                parameters: &given,
                same_encoding: names.utf8,
            };
            (planned.plan.place(&map(), &values), planned.plan.guess)
        }
    };
    let shown = match verdict {
        Verdict::Shard(shard) => format!("s{}", shard.0),
        Verdict::NoKey(NoKey::Replicated { home, write }) => {
            format!(
                "replicated s{}{}",
                home.0,
                if write { " write" } else { "" }
            )
        }
        Verdict::NoKey(kind) => format!("{kind:?}").to_lowercase(),
        Verdict::Refused(refusal) => return format!("refused {refusal}"),
    };
    format!("{shown}{}", if guess { ", guess" } else { "" })
}

/// What the names of a line's head mean: `temporary`, `role=..`, `path=..`.
fn names_of(settings: &str) -> Names<'_> {
    let mut names = Names {
        role: "bob",
        login: "bob",
        search_path: None,
        has_temporary: false,
        escapes: false,
        utf8: true,
    };
    for setting in settings.split(' ').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("role", role)) => names.role = role,
            Some(("login", login)) => names.login = login,
            Some(("path", path)) => names.search_path = Some(path),
            None if setting == "temporary" => names.has_temporary = true,
            None if setting == "escapes" => names.escapes = true,
            None if setting == "latin1" => names.utf8 = false,
            _ => panic!("setting {setting}"),
        }
    }
    names
}

/// Each entry is a text, perhaps over several lines, then `|` with parameters or `!` with settings,
/// then `=` and the beginning of the verdict, behind which `...` stands for any part.
#[test]
fn texts_have_their_verdicts() {
    let fixture = catalogue(|_| true);
    let mut planner = planner([Some(fixture.clone()), Some(fixture)]);
    let (mut text, mut parameters, mut settings) = (String::new(), "", "");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for line in include_str!("verdicts.txt").lines() {
        match line.split_at_checked(2) {
            Some(("| ", rest)) => parameters = rest,
            Some(("! ", rest)) => settings = rest,
            Some(("= ", expected)) => {
                let given: Vec<&str> = parameters.split(',').collect();
                let given = if parameters.is_empty() {
                    &[]
                } else {
                    &given[..]
                };
                let found = verdict(&mut planner, text.trim(), given, &names_of(settings));
                let mut parts = expected.split("...");
                let mut at = parts.next().and_then(|first| found.strip_prefix(first));
                for part in parts {
                    at = at.and_then(|rest| rest.split_once(part).map(|(_, rest)| rest));
                }
                let whole = expected.ends_with("...") || at.is_some_and(str::is_empty);
                if at.is_none() || !whole {
                    wrong.push(format!(
                        "{}\n  {parameters}\n= {expected}\n+ {found}",
                        text.trim()
                    ));
                }
                count += 1;
                (text, parameters, settings) = (String::new(), "", "");
            }
            _ if line.starts_with('#') => {}
            _ => text.extend([line, "\n"]),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong\n\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    assert!(count > 150, "{count} texts");
    assert!(text.trim().is_empty(), "no verdict: {text}");
}

/// The verdict of a text if the second shard has another catalogue than the first.
fn verdict_with(second: Option<Arc<ShardCatalogue>>, text: &str) -> String {
    let mut planner = planner([Some(catalogue(|_| true)), second]);
    verdict(&mut planner, text, &[], &names_of(""))
}

/// The catalogue of the fixture, where a line has other words.
fn changed(line: &str, from: &str, to: &str) -> Option<Arc<ShardCatalogue>> {
    let text = include_str!("catalogue.txt");
    let start = text.find(line).expect("the line");
    let end = start + text[start..].find('\n').expect("its end");
    let with = text[start..end].replace(from, to);
    assert_ne!(with, text[start..end]);
    let mut reader = CatalogueReader::default();
    let whole = format!("{}{with}{}", &text[..start], &text[end..]);
    for line in whole.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('\t');
        let name = fields.next();
        let part = Part::ALL
            .into_iter()
            .find(|part| Some(&*format!("{part:?}")) == name);
        let fields = fields.map(|field| (field != "\\N").then_some(field.as_bytes()));
        reader
            .row(part.expect("a part"), &fields.collect::<Vec<_>>())
            .expect("a row");
    }
    Some(Arc::new(reader.finish()))
}

/// The OID of a table in the fixture.
fn oid_of(table: &str) -> &'static str {
    let name = format!("\t{table}\t");
    let mut tables = include_str!("catalogue.txt")
        .lines()
        .filter(|line| line.starts_with("Tables"));
    let line = tables.find(|line| line.contains(&name)).expect("a table");
    line.split('\t').nth(1).expect("an OID")
}

#[test]
fn what_differs_between_shards_counts() {
    let orders = "SELECT * FROM orders WHERE account_id = ";
    let column = |name: &str| format!("Columns\t{}\t{name}\t", oid_of("orders"));
    let key = column("account_id");
    // The key's type, NULLs, or name.
    for (from, to) in [
        ("\t20\t", "\t23\t"),
        ("\tfalse\ttrue\t", "\tfalse\tfalse\t"),
        ("account", "acc"),
    ] {
        let found = verdict_with(changed(&key, from, to), &format!("{orders}5"));
        assert!(found.contains("is closed"), "{from}: {found}");
    }
    // A generated key, and another `=`.
    let found = verdict_with(
        changed(&key, "\ttrue\tfalse", "\ttrue\ttrue"),
        &format!("{orders}5"),
    );
    assert!(found.contains("is generated"), "{found}");
    let equals = changed("Operators\t", "~~~\treads", "=\tequals");
    let found = verdict_with(equals, &format!("{orders}5"));
    assert!(found.contains("is not compared"), "{found}");
    let cast = changed("Operators\t", "~~~\treads", "::mood\treads");
    let of_cast = "SELECT 'good'::mood FROM accounts WHERE account_id = 5";
    assert_eq!(verdict_with(None, of_cast), "s1, guess");
    let found = verdict_with(cast, of_cast);
    assert!(found.contains("operator ::mood"), "{found}");
    // Another default path.
    let path = || changed("Database\t", "public", "other, public");
    assert_eq!(verdict_with(path(), &format!("{orders}2")), "s0, guess");
    let found = verdict_with(path(), &format!("{orders}5"));
    assert!(found.contains("is not on its shard"), "{found}");
    let by_schema = "SELECT * FROM public.orders WHERE account_id = 5";
    assert_eq!(verdict_with(path(), by_schema), "s1, guess");
    // Another column's name does not matter, but for places.
    let renamed = || changed(&column("note"), "note", "notes");
    assert_eq!(verdict_with(renamed(), &format!("{orders}5")), "s1, guess");
    let insert = "INSERT INTO orders VALUES (1, 5)";
    assert_eq!(verdict_with(Some(catalogue(|_| true)), insert), "s1");
    assert!(verdict_with(renamed(), insert).contains("is not given"));
    let by_name = "INSERT INTO orders (id, account_id) VALUES (1, 5)";
    assert_eq!(verdict_with(renamed(), by_name), "s1");
    let copied = "INSERT INTO accounts SELECT * FROM (SELECT account_id, note FROM orders WHERE account_id = 5) s";
    assert_eq!(verdict_with(renamed(), copied), "s1");
    // OIDs of types that are not built in.
    let mood = format!("Columns\t{}\tmood\t", oid_of("moods"));
    let other = changed(&mood, "mood\t", "mood\t9");
    let found = verdict_with(other, "SELECT * FROM moods WHERE account_id = 5");
    assert!(found.contains("another OID"), "{found}");
    // A view instead of a table.
    let table = format!("Tables\t{}\t", oid_of("orders"));
    let found = verdict_with(changed(&table, "\tr\t", "\tv\t"), &format!("{orders}5"));
    assert!(found.contains("something else"), "{found}");
    // A table that only the first shard has.
    let without = || Some(catalogue(|line| !line.contains("\tpublic\torders\t")));
    assert_eq!(verdict_with(without(), &format!("{orders}2")), "s0, guess");
    let found = verdict_with(without(), &format!("{orders}5"));
    assert!(found.contains("is not on its shard"), "{found}");
    // Encodings: texts are hashed as bytes.
    let latin = changed("Database\tUTF8", "UTF8", "LATIN1");
    let found = verdict_with(latin.clone(), "SELECT * FROM visits WHERE region = 'eu'");
    assert!(found.contains("several encodings"), "{found}");
    assert_eq!(verdict_with(latin, &format!("{orders}5")), "s1, guess");
    // A shard that was never read is taken to be like the others.
    assert_eq!(verdict_with(None, &format!("{orders}5")), "s1, guess");
}

#[test]
fn a_plan_says_where_its_names_are() {
    let one = catalogue(|_| true);
    let without = catalogue(|line| !line.contains("\tpublic\tcountries\t"));
    let mut planner = planner([Some(one), Some(without)]);
    let map = map();
    let mut plan = |text: &str, settings| {
        let planned = planner.plan(text.as_bytes(), &names_of(settings));
        planned.expect("a plan").plan
    };
    let plan_of_countries = plan("SELECT * FROM countries", "");
    assert!(!plan_of_countries.has_unknown_name);
    let found: Vec<Shard> = plan_of_countries.shards(&map).iter().collect();
    assert_eq!(found, [Shard(0)]);
    assert!(plan_of_countries.check(&map, Shard(0)).is_ok());
    assert!(plan_of_countries.check(&map, Shard(1)).is_err());
    // Names that are taken for temporary tables'.
    for text in [
        "SELECT * FROM mine",
        "TRUNCATE mine",
        "ALTER TABLE mine ADD a int",
        "DROP TABLE mine",
        "CREATE INDEX ON mine (a)",
        "COPY mine FROM STDIN",
    ] {
        assert!(plan(text, "temporary").has_unknown_name, "{text}");
    }
    for text in ["FETCH a", "SELECT * FROM countries", "SELECT 1"] {
        assert!(!plan(text, "temporary").has_unknown_name, "{text}");
    }
}

#[test]
fn plans_are_shared_and_bounded() {
    let fixture = catalogue(|_| true);
    let mut planner = planner([Some(fixture.clone()), Some(fixture)]);
    let names = names_of("");
    let one = planner
        .plan(b"SELECT * FROM accounts WHERE account_id = 5", &names)
        .expect("a plan");
    let other = planner
        .plan(b"select *  from accounts where account_id = 2", &names)
        .expect("a plan");
    assert!(Arc::ptr_eq(&one.plan, &other.plan));
    assert_eq!(planner.count(), 1);
    let alice = planner.plan(
        b"SELECT * FROM accounts WHERE account_id = 5",
        &names_of("role=alice"),
    );
    assert!(!Arc::ptr_eq(&one.plan, &alice.expect("a plan").plan));
    for number in 0..10_000 {
        let text = format!("SELECT a{number} FROM accounts WHERE account_id = 5");
        planner.plan(text.as_bytes(), &names).expect("a plan");
    }
    assert!(
        (100..5_000).contains(&planner.count()),
        "{} plans",
        planner.count()
    );
}

#[test]
fn a_hint_places_what_is_not_proved() {
    let mut fixture = planner([Some(catalogue(|_| true)), Some(catalogue(|_| true))]);
    let map = map();
    let hint = map.shard_named("s1").expect("a shard");
    for (text, expected) in [
        ("SELECT * FROM accounts", "s1"),
        ("SELECT 1", "s1"),
        ("CREATE TABLE a (b int)", "s1"),
        ("SELECT * FROM accounts WHERE account_id = 5", "s1"),
        ("SELECT * FROM accounts WHERE account_id = 7", "s1"),
        ("SELECT * FROM accounts WHERE account_id = 2", "refused"),
        ("INSERT INTO countries VALUES ('a')", "refused"),
        ("SELECT * FROM countries", "s1"),
        ("LISTEN a", "refused"),
        ("SELECT set_config('howdah.key', 'a', false)", "refused"),
        ("PREPARE a AS SELECT 1", "refused"),
        // What is refused does not hide the proof beside it.
        (
            "UPDATE accounts SET name = 'x' WHERE account_id = 2; SELECT count(*) FROM accounts",
            "refused",
        ),
        (
            "SELECT count(*) FROM accounts; UPDATE accounts SET name = 'x' WHERE account_id = 5",
            "s1",
        ),
        (
            "INSERT INTO accounts (account_id, id) VALUES (2, reads_all())",
            "refused",
        ),
        (
            "INSERT INTO accounts (account_id, id) SELECT 2, id FROM orders",
            "refused",
        ),
        (
            "INSERT INTO accounts (account_id, id) SELECT 5, id FROM orders",
            "s1",
        ),
        (
            "UPDATE accounts SET account_id = id WHERE account_id = 2",
            "refused",
        ),
        (
            "SELECT * FROM accounts a, orders o WHERE a.account_id = 5 AND o.account_id = 2",
            "refused",
        ),
        (
            "SELECT * FROM accounts WHERE account_id = 2; DELETE FROM accounts WHERE account_id = 5",
            "refused",
        ),
        ("SELECT * FROM new WHERE account_id = 2", "s1"),
    ] {
        let verdict = match fixture.plan(text.as_bytes(), &names_of("")) {
            Err(refusal) => Verdict::Refused(refusal),
            Ok(planned) => planned.plan.place(
                &map,
                &Values {
                    text: text.as_bytes(),
                    constants: &planned.constants,
                    parameters: &[],
                    same_encoding: true,
                },
            ),
        };
        let found = match verdict.with_hint(&map, hint) {
            Verdict::Shard(shard) => map.name_of(shard).to_owned(),
            Verdict::NoKey(kind) => format!("{kind:?}"),
            Verdict::Refused(_) => "refused".into(),
        };
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn differences_are_listed() {
    let shown = |second: Option<Arc<ShardCatalogue>>| {
        let catalogue = Catalogue::new(1, vec![Some(catalogue(|_| true)), second]);
        let found = catalogue.checks(&map()).into_iter();
        let lines = found.map(|found| {
            let closes = if found.closes { " (closed)" } else { "" };
            format!("{}: {}{closes}", found.what, found.found)
        });
        lines.collect::<Vec<_>>()
    };
    let closed = shown(Some(catalogue(|_| true)));
    assert!(
        closed.iter().all(|line| line.ends_with("(closed)")),
        "{closed:#?}"
    );
    assert!(
        closed
            .iter()
            .any(|line| line.starts_with("public.nullable: ")),
        "{closed:#?}"
    );
    let column = format!("Columns\t{}\tnote\t", oid_of("orders"));
    let mut more = shown(changed(&column, "note", "notes"));
    more.retain(|line| !closed.contains(line));
    assert_eq!(
        more,
        [
            "public.orders: column \"notes\" is not the same on all shards",
            "public.orders: column \"note\" is not the same on all shards"
        ]
    );
    let mut more = shown(Some(catalogue(|line| !line.contains("\tpublic\torders\t"))));
    more.retain(|line| !closed.contains(line));
    assert_eq!(
        more,
        ["public.orders: shard \"s1\" does not have it: statements for there are refused"]
    );
}
