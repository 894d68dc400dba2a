//! Texts and their verdicts: `verdicts.txt`, over the catalogue of `schema.sql`.
#![cfg(feature = "grammar")]

use std::collections::HashSet;
use std::sync::Arc;

use howdah_shard::{
    Catalogue, CatalogueReader, Given, Map, Names, NoKey, Part, Planner, ShardCatalogue, Values,
    Verdict, oid,
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
        search_path: None,
        has_temporary: false,
        escapes: false,
        utf8: true,
    };
    for setting in settings.split(' ').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("role", role)) => names.role = role,
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
