//! URLs of databases, in libpq's grammar:
//! `postgresql://user:password@host:port,host:port/dbname?key=value&key=value`.

/// How the URL of a database begins.
pub(super) const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// Keys and values of a URL, in libpq's names. No text of a mistake has a part of the URL, but a
/// key.
///
/// # Errors
/// What is wrong.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
    let rest = rest.ok_or("it must begin with postgresql://")?;
    let mut pairs = Vec::new();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    // A password may have a slash or a question mark only in its escaped form.
    let (authority, rest) = rest.split_at(end);
    // The value of a key may have an @. Elsewhere it ends a password with a slash or a question mark.
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let keys = query.split('&').filter_map(|pair| pair.split('=').next());
    if !authority.contains('@') && keys.chain([path]).any(|text| text.contains('@')) {
        return Err("an @ stands behind / or ?: write %2F and %3F for these in a password, and %40 for another @".into());
    }
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !login.is_empty() {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        put(&mut pairs, "user", user)?;
        put(&mut pairs, "password", password)?;
    }
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',') {
        let (name, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((name, "")) => (name, ""),
            Some((name, after)) => (name, after.strip_prefix(':').ok_or("write [ADDRESS]:PORT")?),
            None => host.split_once(':').unwrap_or((host, "")),
        };
        names.push(decoded(name)?);
        ports.push(if port.is_empty() { "5432" } else { port });
    }
    if names.iter().any(|name| !name.is_empty()) {
        if names
            .iter()
            .any(|name| name.is_empty() || name.contains(','))
        {
            return Err("there is an empty host in its list".into());
        }
        pairs.push(("host".into(), names.join(",")));
    }
    if ports.iter().any(|port| *port != "5432") {
        pairs.push(("port".into(), ports.join(",")));
    }
    put(&mut pairs, "dbname", path.strip_prefix('/').unwrap_or(path))?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or("a key behind ? has no =")?;
        if key.is_empty() {
            return Err("a value behind ? has no key".into());
        }
        let key = decoded(key)?;
        // JDBC's spelling, which libpq reads, too.
        let (key, value) = match (key.as_str(), value) {
            ("ssl", "true") => ("sslmode", "require"),
            (key, value) => (key, value),
        };
        pairs.retain(|(earlier, _)| earlier != key);
        put(&mut pairs, key, value)?;
    }
    Ok(pairs)
}

/// Adds a value, unless it is empty.
fn put(pairs: &mut Vec<(String, String)>, key: &str, value: &str) -> Result<(), String> {
    if !value.is_empty() {
        pairs.push((key.to_owned(), decoded(value)?));
    }
    Ok(())
}

/// A text whose `%` escapes are read.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = after
            .get(..2)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let byte = byte.filter(|byte| *byte != 0);
        bytes.push(byte.ok_or("behind % there must be two hexadecimal digits, and not 00: write %25 for a percent sign")?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| "its escapes are not UTF-8".into())
}

/// The URLs in a text: commas part them before the next one begins. A URL itself may have commas.
pub(super) fn several(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let next = rest.match_indices(',').find(|(at, _)| {
            let after = rest[at + 1..].trim_start();
            SCHEMES.iter().any(|scheme| after.starts_with(scheme))
        });
        let end = next.map_or(rest.len(), |(at, _)| at);
        all.push(rest[..end].trim_end());
        rest = rest.get(end + 1..).unwrap_or_default().trim_start();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match parse(text) {
            Ok(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| format!("{key}={value}"));
                pairs.collect::<Vec<_>>().join(" ")
            }
            Err(why) => format!("! {why}"),
        }
    }

    #[test]
    fn urls() {
        for (text, pairs) in [
            ("postgresql://", ""),
            (
                "postgres://u:p@h:7/d",
                "user=u password=p host=h port=7 dbname=d",
            ),
            ("postgresql://h", "host=h"),
            ("postgresql:///d?user=a@b", "dbname=d user=a@b"),
            (
                "postgresql://u:pa?ss@h/d",
                "! an @ stands behind / or ?: write %2F and %3F for these in a password, and %40 for another @",
            ),
            (
                "postgresql:///d?host=/tmp&port=7",
                "dbname=d host=/tmp port=7",
            ),
            ("postgresql://%2Ftmp/d", "host=/tmp dbname=d"),
            (
                "postgresql://u:p%40%2F%25@a:1,b/d",
                "user=u password=p@/% host=a,b port=1,5432 dbname=d",
            ),
            (
                "postgresql://u:p@p@h/d",
                "user=u password=p@p host=h dbname=d",
            ),
            ("postgresql://[::1]:7,[::2]/", "host=::1,::2 port=7,5432"),
            (
                "postgresql://h/d?sslmode=require&options=-c%20a%3Db",
                "host=h dbname=d sslmode=require options=-c a=b",
            ),
            (
                "postgresql://h/d?ssl=true",
                "host=h dbname=d sslmode=require",
            ),
        ] {
            assert_eq!(shown(text), pairs, "{text}");
        }
        for text in [
            "mysql://u:hush@h",
            "postgresql://u:hush%@h",
            "postgresql://u:hush%zz@h",
            "postgresql://u:hush%00@h",
            "postgresql://u:hush@a,,b",
            "postgresql://u:hush@[::1]7",
            "postgresql://u:hush@h?x",
            "postgresql://u:%ffhush@h",
            "postgresql://u:hush%é@h",
        ] {
            let said = shown(text);
            assert!(
                said.starts_with("! ") && !said.contains("hush"),
                "{text}: {said}"
            );
        }
    }

    #[test]
    fn several_urls() {
        let urls = several(" postgresql://a:1,b:2/d, postgres://c?x=1,2 ,postgresql://e");
        assert_eq!(
            urls,
            [
                "postgresql://a:1,b:2/d",
                "postgres://c?x=1,2",
                "postgresql://e"
            ]
        );
        assert!(several(" ").is_empty());
    }
}
