//! The `auth_file`: one `"user" "secret"` a line.

/// What a user's password is known by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Secret {
    /// The password itself.
    Plain(String),
    /// `md5` and 32 hexadecimal digits, as PostgreSQL stores it.
    Md5(String),
    /// `SCRAM-SHA-256$iterations:salt$stored:server`, as PostgreSQL stores it.
    Scram(String),
}

/// Longest user name, in bytes, its end mark included.
pub(super) const MAX_USER: usize = 128;
/// Longest secret, in bytes.
pub(super) const MAX_PASSWORD: usize = 65531;

impl std::fmt::Debug for Secret {
    /// Says the kind only: secrets do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Secret::Plain(_) => "Plain(..)",
            Secret::Md5(_) => "Md5(..)",
            Secret::Scram(_) => "Scram(..)",
        })
    }
}

impl Secret {
    /// Tells by its form what a stored secret is; `None` if it is empty: nobody can log in by it.
    pub fn from_text(text: &str) -> Option<Secret> {
        if text.is_empty() {
            None
        } else if is_md5(text) {
            Some(Secret::Md5(text.into()))
        } else if is_scram(text) {
            Some(Secret::Scram(text.into()))
        } else {
            Some(Secret::Plain(text.into()))
        }
    }

    /// The secret as written.
    pub fn text(&self) -> &str {
        match self {
            Secret::Plain(text) | Secret::Md5(text) | Secret::Scram(text) => text,
        }
    }
}

fn is_md5(text: &str) -> bool {
    text.strip_prefix("md5")
        .is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_scram(text: &str) -> bool {
    let base64 = |part: &str| {
        let digits = part.trim_end_matches('=');
        !digits.is_empty()
            && part.len().is_multiple_of(4)
            && part.len() - digits.len() <= 2
            && digits
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
    };
    let parts = || {
        let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        Some((iterations, salt, stored, server))
    };
    // A SHA-256 hash is 44 characters of base 64.
    parts().is_some_and(|(iterations, salt, stored, server)| {
        iterations.parse::<u32>().is_ok_and(|n| n > 0)
            && base64(salt)
            && [stored, server]
                .iter()
                .all(|key| key.len() == 44 && base64(key))
    })
}

/// User and secret.
type Line = (String, String);
/// The number of a line and what is wrong with it.
type Broken = (u32, &'static str);

/// Reads the file. Stops at the first line that is broken, as PgBouncer does, and says which it is
/// and why; the users before it are good.
pub(super) fn parse(text: &str) -> (Vec<Line>, Option<Broken>) {
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
    let (user, rest) = take_quoted(text).ok_or("a line must begin with a user name in quotes")?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let (secret, rest) = take_quoted(rest).ok_or("a password in quotes must follow the user")?;
    if user.len() >= MAX_USER {
        return Err("the user name is too long (at most 127 bytes)");
    }
    if secret.len() > MAX_PASSWORD {
        return Err("the password is too long (at most 65531 bytes)");
    }
    Ok((user, secret, rest))
}

/// `"text"`, where `""` stands for a quote, and what follows.
fn take_quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('"')?;
        value.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                value.push('"');
                rest = more;
            }
            None => return Some((value, after)),
        }
    }
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

    #[test]
    fn secrets_are_told_by_their_form() {
        let key = format!("{}=", "A".repeat(43));
        let scram = format!("SCRAM-SHA-256$4096:AAAA${key}:{key}");
        let md5 = format!("md5{}", "0123456789abcdefABCDEF0123456789");
        assert_eq!(Secret::from_text(""), None);
        assert_eq!(Secret::from_text(&md5), Some(Secret::Md5(md5.clone())));
        assert_eq!(
            Secret::from_text(&scram),
            Some(Secret::Scram(scram.clone()))
        );
        for plain in [
            "md5",
            "secret",
            &md5[..34],
            &format!("{md5}0"),
            &md5.replace('0', "g"),
            &scram[..scram.len() - 1],
            &scram.replace("4096", "0"),
            &scram.replace("4096", "x"),
            &scram.replace("AAAA$", "$"),
            &scram.replace("256$", "1$"),
        ] {
            assert_eq!(
                Secret::from_text(plain),
                Some(Secret::Plain(plain.into())),
                "{plain}"
            );
        }
        assert_eq!(
            format!("{:?}", Secret::from_text("geheim")),
            "Some(Plain(..))"
        );
    }
}
