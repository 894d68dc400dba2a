//! What is read, but hardly as its author means it.

use std::net::IpAddr;

use howdah_auth::Secret;

use super::host::{Host, HostPort};
use super::value::{AuthType, Kind};
use super::{Globals, Setting};

/// A comment behind a value.
pub(super) const COMMENT: &str =
    "what follows the blank is a part of the value: a comment needs a line of its own";
/// Quotes around a value or a word.
pub(super) const QUOTES: &str = "the quotes are a part of it: leave them out";

/// What is odd about a value of `[pgbouncer]`.
pub(super) fn of_value(setting: &Setting, value: &str) -> Option<&'static str> {
    // A rule may have a comment, and words in quotes.
    if setting.is_secret() || setting.kind == Kind::Lines {
        return None;
    }
    let is_sql = setting.name.ends_with("_query");
    if !is_sql && is_commented(value) {
        return Some(COMMENT);
    }
    let quoted = match setting.kind {
        Kind::List => value
            .split(|c: char| c == ',' || c.is_whitespace())
            .any(|word| word.starts_with(['"', '\'']) || word.ends_with(['"', '\''])),
        _ => is_quoted(value),
    };
    quoted.then_some(QUOTES)
}

/// What is odd about a value in an entry.
pub(super) fn of_pair(setting: &Setting, value: &str) -> Option<&'static str> {
    match setting.name {
        _ if setting.is_secret() => None,
        "host" if value.contains("://") => Some("write the host alone, without `...://`"),
        _ => is_quoted(value).then_some(QUOTES),
    }
}

/// A blank and the sign of a comment.
fn is_commented(value: &str) -> bool {
    let mut before = ' ';
    value.chars().any(|c| {
        let begins = matches!(c, ';' | '#') && matches!(before, ' ' | '\t');
        before = c;
        begins
    })
}

fn is_quoted(value: &str) -> bool {
    let between = |quote| {
        let inside = value.strip_prefix(quote);
        inside.is_some_and(|rest| rest.ends_with(quote))
    };
    between('"') || between('\'')
}

/// The pairs to write in an entry instead of a URL.
pub(super) fn instead_of_url(text: &str) -> Option<String> {
    let url = text.trim_matches(['"', '\'']);
    let url = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))?;
    // A password may have any character, so all before the last @ is left out.
    let place = url.rsplit_once('@').map_or(url, |(_, place)| place);
    let place = place.split('?').next().unwrap_or_default();
    let (place, name) = place.split_once('/').unwrap_or((place, ""));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (place, ""),
    };
    let host = host.trim_matches(['[', ']']);
    let mut pairs = format!("host={}", if host.is_empty() { "HOST" } else { host });
    for (key, value) in [("port", port), ("dbname", name)] {
        if !value.is_empty() {
            pairs.push_str(&format!(" {key}={value}"));
        }
    }
    Some(format!(
        "an entry has pairs, not a URL: write {pairs}, and the user's secret into auth_file"
    ))
}

/// The format of a text without a section of ours, if it is none of ours.
pub(super) fn other_format(text: &str) -> Option<&'static str> {
    let lines = || {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
    };
    let first = lines().next()?;
    let is_key = |key: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        !key.is_empty() && key.chars().all(plain)
    };
    let yaml = |line: &str| {
        let (key, rest) = line.split_once(':').unwrap_or_default();
        is_key(key) && (rest.is_empty() || rest.starts_with(' '))
    };
    if first.starts_with('{') {
        Some("JSON")
    } else if first == "---" || yaml(first) {
        Some("YAML")
    } else if lines().any(|line| line.starts_with("[[") || line.contains("= \"")) {
        Some("TOML")
    } else if lines().any(|line| line.ends_with('{')) {
        Some("Odyssey's")
    } else {
        None
    }
}

/// Where Howdah's own pages for other formats are.
pub(super) const OTHER_FORMAT: &str = "Howdah reads an ini file, with the sections [databases] and \
     [pgbouncer] and lines `key = value`, or TOML if the file's name ends with .toml; howdah import reads the files of PgCat, PgDog, Odyssey and PgDoorman";

/// What is odd about a secret of the auth_file, and what helps.
pub(super) fn of_secret(secret: &Secret, auth: AuthType) -> Option<(&'static str, &'static str)> {
    match secret {
        Secret::Plain(text) if looks_cut_off(text) => Some((
            "begins like a secret of PostgreSQL, but is cut off or changed, and so counts as a password",
            "copy the whole of rolpassword in pg_authid",
        )),
        Secret::Md5(_) if auth == AuthType::ScramSha256 => Some((
            "is an md5 secret, with which nobody can log in under auth_type = scram-sha-256",
            "set the password again in PostgreSQL (password_encryption = scram-sha-256) and copy the new \
             secret, or write auth_type = md5, which takes both kinds",
        )),
        _ => None,
    }
}

fn looks_cut_off(text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let md5 = text.strip_prefix("md5");
    text.starts_with("SCRAM-SHA-256$") || md5.is_some_and(|rest| rest.len() >= 16 && hex(rest))
}

/// True if a host and port lead to Howdah's own listening sockets.
pub(super) fn leads_here(to: &HostPort, globals: &Globals) -> bool {
    if to.port != globals.listen_port {
        return false;
    }
    let listens = |name: &str| {
        let mut addresses = globals.listen_addr.iter();
        addresses.any(|address| address == name)
    };
    let everywhere = listens("*") || listens("0.0.0.0") || listens("::");
    let local = !globals.listen_addr.is_empty();
    match &to.host {
        Host::Ip(address) | Host::Address { ip: address, .. } => {
            listens(&address.to_string()) || (everywhere && address.is_loopback())
        }
        Host::Name(name) => listens(name) || (local && name == "localhost"),
        Host::Unix(folder) => *folder == globals.unix_socket_dir,
    }
}

/// True if the HTTP endpoint and clients of PostgreSQL would have the same port of an address.
pub(super) fn shares_port(globals: &Globals) -> bool {
    let http = globals.http_listen_addr.parse::<IpAddr>();
    let meets = |address: &String| {
        let other = address.parse::<IpAddr>();
        let whole =
            |address: &Result<IpAddr, _>| address.as_ref().is_ok_and(|a| a.is_unspecified());
        address == "*" || whole(&http) || whole(&other) || http.is_ok() && http == other
    };
    globals.http_listen_port != 0
        && globals.http_listen_port == globals.listen_port
        && globals.listen_addr.iter().any(meets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scope, table::find};

    #[test]
    fn values() {
        for (name, value, doubt) in [
            ("logfile", "/var/log/h ; here", Some(COMMENT)),
            ("logfile", "; nowhere", Some(COMMENT)),
            ("logfile", "/var/log/a;b#c", None),
            ("default_pool_size", "20 # enough", Some(COMMENT)),
            ("server_reset_query", "DISCARD ALL ; select 1", None),
            ("auth_file", "\"/etc/users\"", Some(QUOTES)),
            ("admin_users", "\"ann\", bob", Some(QUOTES)),
            ("admin_users", "o'neill", None),
            ("server_check_query", "'select 1'", Some(QUOTES)),
        ] {
            let setting = find(Scope::Global, name).unwrap();
            assert_eq!(of_value(setting, value), doubt, "{name} = {value}");
        }
    }

    #[test]
    fn urls() {
        for (url, pairs) in [
            (
                "postgres://u:p@ss/w@h:6000/shop?a=b",
                "host=h port=6000 dbname=shop,",
            ),
            ("postgresql://h", "host=h,"),
            ("'postgres://u@[::1]:1'", "host=::1 port=1,"),
            ("postgres:///shop", "host=HOST dbname=shop,"),
        ] {
            let said = instead_of_url(url).unwrap();
            assert!(
                said.contains(pairs) && !said.contains("p@ss"),
                "{url}: {said}"
            );
        }
        assert_eq!(instead_of_url("host=h"), None);
    }

    #[test]
    fn other_formats() {
        for (text, format) in [
            ("# pools\npools:\n  shop: {}", Some("YAML")),
            ("---\na", Some("YAML")),
            ("[general]\nhost = \"0.0.0.0\"", Some("TOML")),
            ("{\"a\": 1}", Some("JSON")),
            ("daemonize no\nstorage \"x\" {", Some("Odyssey's")),
            ("[databases]\n* = host=h", None),
            ("pool_mode = x", None),
            ("", None),
        ] {
            assert_eq!(other_format(text), format, "{text}");
        }
    }
}
