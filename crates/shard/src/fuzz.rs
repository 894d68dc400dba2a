//! Fuzz bodies of what reads statements. Each takes any bytes and panics if an invariant breaks.

use crate::hint::Hint;
use crate::scan::{scan, scan_as};

/// The comments that have hints are comments at the ends of the text, and with blanks in their place
/// there is no hint.
pub fn hints(input: &[u8]) {
    for escapes in [false, true] {
        let Ok(Some(found)) = Hint::read(input, escapes) else {
            continue;
        };
        let mut blank = input.to_vec();
        for comment in found.comments {
            assert!(input[comment.clone()].starts_with(b"/*"));
            assert!(input[comment.clone()].ends_with(b"*/"));
            blank[comment].fill(b' ');
        }
        let again = Hint::read(&blank, escapes);
        assert!(!matches!(again, Ok(Some(again)) if again.hint == found.hint));
    }
}

/// A text and its shape have one tree, constants apart; and a shape is its own shape.
pub fn shapes(input: &[u8]) {
    let end = memchr::memchr(0, input).unwrap_or(input.len());
    let Ok(text) = std::str::from_utf8(&input[..end]) else {
        return;
    };
    if let Ok((shape, constants)) = scan(input, false) {
        assert!(
            constants
                .ranges()
                .all(|range| range.start < range.end && range.end <= end)
        );
        let (again, _) = scan(shape.text().as_bytes(), false).expect("a shape is a text");
        assert_eq!(again.text(), shape.text());
    }
    let Ok((shape, _)) = scan_as(input, false, false) else {
        return;
    };
    // Of texts with constants that are no constants, the server tells.
    if let Ok(tree) = tree(text) {
        assert_eq!(
            self::tree(shape.text()).as_ref(),
            Ok(&tree),
            "{text}\n{}",
            shape.text()
        );
    }
}

/// The tree of a text, without places and the values of constants.
fn tree(text: &str) -> Result<String, ()> {
    #[expect(clippy::disallowed_types, reason = "as the grammar's own lock")]
    static READING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let parsed = {
        let _guard = READING.lock();
        pg_query::parse(text, 0)
    };
    let tree = format!("{:?}", parsed.map_err(|_| ())?.protobuf);
    Ok(without_values(&tree))
}

/// The numbers behind `location` and its kin, and the values of constants, become a star.
fn without_values(tree: &str) -> String {
    const PLACES: [&str; 8] = [
        "location: ",
        "stmt_len: ",
        "list_start: ",
        "list_end: ",
        "ival: ",
        "fval: ",
        "Sval(String { sval: ",
        "Bsval(BitString { bsval: ",
    ];
    let mut shown = String::with_capacity(tree.len());
    let mut rest = tree;
    while !rest.is_empty() {
        let found = PLACES
            .iter()
            .filter_map(|place| Some((rest.find(place)?, place)));
        let Some((at, place)) = found.min_by_key(|(at, _)| *at) else {
            shown.push_str(rest);
            break;
        };
        let value = at + place.len();
        shown.push_str(&rest[..value]);
        shown.push('*');
        rest = behind_value(&rest[value..]);
    }
    shown
}

/// The text behind a number or a quoted string.
fn behind_value(text: &str) -> &str {
    let Some(inside) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '}']).unwrap_or(text.len());
        return &text[end..];
    };
    let mut escaped = false;
    let end = inside.find(|character| {
        let ends = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        ends
    });
    &inside[end.map_or(inside.len(), |end| end + 1)..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parts of texts, between which anything may go wrong.
    const PARTS: [&str; 62] = [
        "select",
        "from",
        "where",
        "in",
        "values",
        "insert into t",
        "as",
        "a",
        "t",
        "\"A\"",
        "e",
        "u",
        "n",
        "x",
        "b",
        "u&",
        "$1",
        "$2",
        "1",
        "17",
        "2147483648",
        "1.5",
        ".5",
        "5.",
        "1e5",
        "'a'",
        "'it''s'",
        "e'\\''",
        "N'a'",
        "U&'a'",
        "b'1'",
        "x'f'",
        "$$a$$",
        "$x$ $$ $x$",
        "(",
        ")",
        ",",
        ";",
        ".",
        "::",
        "int",
        "varchar(2)",
        "=",
        "-",
        "+",
        "*",
        "@",
        "<",
        "[",
        "]",
        " ",
        "\n",
        "--\n",
        "/*a*/",
        "/* /* */ */",
        "and",
        "null",
        "interval '1' day",
        "(1, 2)",
        "(1, 'a'),(2, 'b')",
        "group by 1",
        "limit 3",
    ];

    #[test]
    fn texts_with_constants() {
        for text in [
            "select a from t where k = 5 and b in (1, -2, 'c', 3.5) order by 1 limit 10",
            "insert into t values (1, 'a'), (2, 'b'), (-3, e'\\n')",
            "select - 5, - -5, -(-5), a-5, -5::int, '5'::varchar(3), interval '1' day, date '2020-01-01'",
            "select x'f', b'0', n'a', u&'a', $$a$$, 'a'\n'b', cast('a' as text)",
            "update t set a = 'x' where b = any('{1,2}') and c = any(array[1, 2])",
            "select * from t where a like '%a' escape '!' and b between 1 and 2",
            "select $1::int, a[1], a[1:2], extract(year from b), position('a' in c)",
            "select/**/1from t",
        ] {
            shapes(text.as_bytes());
        }
    }

    #[test]
    fn values_are_left_out() {
        let tree = tree("select 1, 'a\"b', 2.5 from t").expect("a tree");
        assert!(
            !tree.contains("a\\\"b") && tree.contains("relname: \"t\""),
            "{tree}"
        );
        assert_eq!(Ok(tree), self::tree("select 7,  'c', 3.5   from t"));
        assert_ne!(self::tree("select a"), self::tree("select b"));
    }

    proptest! {
        #[test]
        fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..100)) {
            shapes(&text);
            hints(&text);
        }

        #[test]
        fn parts_of_texts(parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..20)) {
            shapes(parts.concat().as_bytes());
            shapes(parts.join(" ").as_bytes());
            shapes(format!("select {}", parts.concat()).as_bytes());
        }

        #[test]
        fn parts_of_hints(parts in prop::collection::vec(
            prop::sample::select(vec!["/*", "*/", "howdah.shard", "howdah.key", "=", "'", "a", ",", " ", "select", "--", "\n", "$$", "\\", ";", "%41", "\""]),
            0..16,
        )) {
            hints(parts.concat().as_bytes());
            hints(format!("/*howdah.shard=a*/{}", parts.concat()).as_bytes());
        }
    }
}
