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

/// Reads the file. Like PgBouncer, stops at the first malformed line and returns its number and the
/// reason. The users before that line are good.
pub fn parse(text: &str) -> (Vec<Line>, Option<Broken>) {
    let mut users = Vec::new();
    let mut rest = text;
    let mut line = 1;
    loop {
        let trimmed = rest.trim_start();
        line += newlines(&rest[..rest.len() - trimmed.len()]);
        rest = trimmed;
        if rest.is_empty() {
            return (users, None);
        }
        if !rest.starts_with(';') {
            match take_user(rest) {
                Ok((user, secret, after)) => {
                    line += newlines(&rest[..rest.len() - after.len()]);
                    users.push((user, secret));
                    rest = after;
                }
                Err(why) => return (users, Some((line, why))),
            }
        }
        rest = rest.split_once('\n').map_or("", |(_, after)| after);
        line += 1;
    }
}

fn newlines(text: &str) -> u32 {
    text.bytes().filter(|&b| b == b'\n').count() as u32
}

fn take_user(text: &str) -> Result<(String, String, &str), &'static str> {
    let (user, rest) = quoted(text, '"').ok_or("a line must begin with a user name in quotes")?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let (secret, rest) = quoted(rest, '"').ok_or("a password in quotes must follow the user")?;
    if user.len() >= MAX_USER {
        return Err("the user name is too long (at most 127 bytes)");
    }
    if secret.len() > MAX_PASSWORD {
        return Err("the password is too long (at most 65531 bytes)");
    }
    Ok((user, secret, rest))
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
        assert_eq!(parse(text), (expected, None));
        assert_eq!(parse(""), (vec![], None));
        assert_eq!(parse("; only a comment"), (vec![], None));
    }

    #[test]
    fn broken_lines_stop_it_and_are_named() {
        for (text, line) in [
            ("\"a\" \"b\"\n\nc \"d\"\n\"e\" \"f\"", 3),
            ("\"a\" \"b\n\"\n\"c", 3),
            ("\"a\" \"b\"\n\"c\"\n\"d\" \"e\"", 2),
            ("\"a\" \"b\"\n\"c\" d", 2),
        ] {
            let (users, wrong) = parse(text);
            assert_eq!((users.len(), wrong.unwrap().0), (1, line), "{text:?}");
        }
        let long = format!("\"{}\" \"x\"", "u".repeat(128));
        assert!(
            parse(&long)
                .1
                .is_some_and(|(_, why)| why.contains("too long"))
        );
        let long = format!("\"u\" \"{}\"", "x".repeat(65532));
        assert!(
            parse(&long)
                .1
                .is_some_and(|(_, why)| why.contains("too long"))
        );
        let fits = format!("\"{}\" \"{}\"", "u".repeat(127), "x".repeat(65531));
        assert_eq!(parse(&fits).1, None);
    }
}
