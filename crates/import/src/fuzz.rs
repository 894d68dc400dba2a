//! The fuzz body of imports: takes any bytes, and panics if a promise is broken.

use crate::{ForeignFile, Format, import};

/// Any text is imported as each pooler's, or is refused with a reason. The same text gives the same
/// output. The text after a zero byte stands for every file that is included.
pub fn imports(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (text, other) = text.split_once('\0').unwrap_or((&text, ""));
    for (path, format) in [
        ("a.toml", Format::PgCat),
        ("a.toml", Format::PgDog),
        ("a.conf", Format::Odyssey),
        ("a.toml", Format::PgDoorman),
        ("a.yaml", Format::PgDoorman),
    ] {
        let run = || {
            let files = [ForeignFile {
                path: path.into(),
                text: text.into(),
            }];
            let mut included = 0;
            import(&files, Some(format), &mut |_| {
                included += 1;
                // A file that includes itself twice would be read thousands of times.
                if included > 20 {
                    return Err("too many".into());
                }
                Ok(other.into())
            })
        };
        match (run(), run()) {
            (Ok(first), Ok(second)) => {
                assert_eq!(first.written, second.written);
                assert_eq!(first.report.text(), second.report.text());
                assert!(first.report.markdown().starts_with("# Import from "));
            }
            (Err(first), Err(second)) => {
                assert_eq!(first, second);
                assert!(!first.why.is_empty());
            }
            _ => panic!("the same text gives two answers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes(input: Vec<u8>) {
            imports(&input);
        }

        #[test]
        fn near_odyssey(input in r#"((listen|storage "a"|database default|database "b"|user "c"|user default) \{ ?|(host|type|storage|pool|authentication|pool_size|password) ("[a-z:,]{0,8}"|[0-9a-z-]{1,5}) ?|\} ?){0,20}"#) {
            imports(input.as_bytes());
        }

        #[test]
        fn near_toml(input in r#"((\[general\]|\[pools\.a\]|\[pools\.a\.(users|shards)\.0\]|\[\[databases\]\]|\[\[users\]\])\n|(host|port|username|name|database|password|servers|pool_size|role) = ("[a-z]{0,5}"|[0-9]{1,4}|\[\["h", 1, "primary"\]\])\n){0,15}"#) {
            imports(input.as_bytes());
        }
    }
}
