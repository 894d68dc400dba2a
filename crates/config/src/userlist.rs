//! The `auth_file`: a line `"user" "secret"` for each user.

use crate::quotes::quoted;

/// The greatest length of a user name in bytes, with its terminating zero.
pub(super) const MAX_USER: usize = 128;
/// The greatest length of a secret in bytes.
pub(super) const MAX_PASSWORD: usize = 65531;

/// User and secret.
type Line = (String, String);
/// The number of a malformed line, and the reason.
type Broken = (u32, &'static str);

/// The contents of the file.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Users {
    /// User and secret of each line.
    pub users: Vec<Line>,
    /// The number of each of these lines.
    pub lines: Vec<u32>,
    /// Nothing from this line on was read.
    pub broken: Option<Broken>,
    /// The numbers of lines with more than blanks between user and secret, such as `"a":"b"`.
    pub skipped: Vec<u32>,
}

/// Reads the file. Like PgBouncer, stops at the first malformed line and returns its number and the
/// reason. The users before that line are good.
pub fn parse(text: &str) -> Users {
    let mut all = Users::default();
    let mut rest = text;
    let mut line = 1;
    loop {
        let trimmed = rest.trim_start();
        line += newlines(&rest[..rest.len() - trimmed.len()]);
        rest = trimmed;
        if rest.is_empty() {
            return all;
        }
        if !rest.starts_with(';') {
            match take_user(rest) {
                Ok((user, between, secret, after)) => {
                    if !between.chars().all(|c| matches!(c, ' ' | '\t')) {
                        all.skipped.push(line);
                    }
                    all.lines.push(line);
                    line += newlines(&rest[..rest.len() - after.len()]);
                    all.users.push((user, secret));
                    rest = after;
                }
                Err(why) => {
                    all.broken = Some((line, why));
                    return all;
                }
            }
        }
        rest = rest.split_once('\n').map_or("", |(_, after)| after);
        line += 1;
    }
}

fn newlines(text: &str) -> u32 {
    text.bytes().filter(|&b| b == b'\n').count() as u32
}

/// The user, what stands between user and secret, the secret, and the text after it.
fn take_user(text: &str) -> Result<(String, &str, String, &str), &'static str> {
    const NO_SECRET: &str = "a password in quotes must follow the user";
    let (user, rest) = quoted(text, '"').ok_or("a line must begin with a user name in quotes")?;
    let quote = rest.find(['"', '\n']).ok_or(NO_SECRET)?;
    let (between, rest) = rest.split_at(quote);
    let (secret, rest) = quoted(rest, '"').ok_or(NO_SECRET)?;
    if user.len() >= MAX_USER {
        return Err("the user name is too long (at most 127 bytes)");
    }
    if secret.len() > MAX_PASSWORD {
        return Err("the password is too long (at most 65531 bytes)");
    }
    Ok((user, between, secret, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(user: &str, secret: &str) -> (String, String) {
        (user.into(), secret.into())
    }

    #[test]
    fn users() {
        let text = "\n; a comment\n\"a\" \"b\"\n  \"c\"\t\"d\" and more \"x\"\n\"q\"\"q\" \"p\"\"\"\n\"e\" \"\"";
        let expected = vec![
            pair("a", "b"),
            pair("c", "d"),
            pair("q\"q", "p\""),
            pair("e", ""),
        ];
        let seen = parse(text);
        assert_eq!((seen.users, seen.broken), (expected, None));
        assert_eq!(seen.lines, [3, 4, 5, 6]);
        assert_eq!(parse(""), Users::default());
        assert_eq!(parse("; only a comment"), Users::default());
    }

    #[test]
    fn what_stands_between_is_skipped() {
        let seen = parse("\"a\" \"b\"\n\"c\":\"d\"\n\"e\" = \"f\"\n\"g\"\t \"h\"");
        let expected = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")];
        assert_eq!(
            seen.users,
            expected.map(|(user, secret)| pair(user, secret))
        );
        assert_eq!((seen.broken, seen.skipped), (None, vec![2, 3]));
    }

    #[test]
    fn broken_lines_stop_it_and_are_named() {
        for (text, line) in [
            ("\"a\" \"b\"\n\nc \"d\"\n\"e\" \"f\"", 3),
            ("\"a\" \"b\n\"\n\"c", 3),
            ("\"a\" \"b\"\n\"c\"\n\"d\" \"e\"", 2),
            ("\"a\" \"b\"\n\"c\" d", 2),
        ] {
            let seen = parse(text);
            assert_eq!(
                (seen.users.len(), seen.broken.unwrap().0),
                (1, line),
                "{text:?}"
            );
        }
        let long = format!("\"{}\" \"x\"", "u".repeat(128));
        assert!(
            parse(&long)
                .broken
                .is_some_and(|(_, why)| why.contains("too long"))
        );
        let long = format!("\"u\" \"{}\"", "x".repeat(65532));
        assert!(
            parse(&long)
                .broken
                .is_some_and(|(_, why)| why.contains("too long"))
        );
        let fits = format!("\"{}\" \"{}\"", "u".repeat(127), "x".repeat(65531));
        assert_eq!(parse(&fits).broken, None);
    }
}
