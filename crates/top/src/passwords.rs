//! Passwords that a person need not write into a command: libpq's password file, and a prompt.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// What a line of the password file must match.
pub(crate) struct Wanted<'a> {
    pub host: &'a str,
    pub port: u16,
    pub database: &'a str,
    pub user: &'a str,
}

/// The password file: `PGPASSFILE`, else `.pgpass` in the home folder.
pub(crate) fn file(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let named = variable("PGPASSFILE").filter(|name| !name.is_empty());
    let home = || Some(PathBuf::from(variable("HOME")?).join(".pgpass"));
    named.map(PathBuf::from).or_else(home)
}

/// The password in this file, if a line matches. As in libpq, a file that others may read is not
/// used, and a warning on standard error says so.
pub(crate) fn find(path: &Path, wanted: &Wanted<'_>) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let facts = file.metadata().ok()?;
    if !facts.is_file() {
        return None;
    }
    if facts.mode() & 0o077 != 0 {
        let path = path.display();
        eprintln!("warning: {path} is not used, because others may read it (chmod 0600 {path})");
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| matching(line, wanted))
}

/// The password of a line `host:port:database:user:password` that matches.
fn matching(line: &str, wanted: &Wanted<'_>) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let fields = fields(line);
    let [host, port, database, user, password] = &fields[..] else {
        return None;
    };
    let is = |field: &str, value: &str| field == "*" || field == value;
    let all = is(host, wanted.host)
        && is(port, &wanted.port.to_string())
        && is(database, wanted.database)
        && is(user, wanted.user);
    all.then(|| password.clone())
}

/// The five fields of a line; `\:` is a colon in a field, `\\` a backslash.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        let last = fields.len() - 1;
        match c {
            ':' if last < 4 => fields.push(String::new()),
            '\\' => fields[last].extend(characters.next()),
            c => fields[last].push(c),
        }
    }
    fields
}

/// Asks for a password on the terminal, which does not show it. `None` without a terminal.
pub(crate) fn ask(prompt: &str) -> Option<String> {
    let mut terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    let before = tcgetattr(&terminal).ok()?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    // First, because this drops what was typed before: whoever answers the prompt must be heard.
    tcsetattr(&terminal, OptionalActions::Flush, &silent).ok()?;
    let _ = terminal.write_all(prompt.as_bytes());
    let mut line = String::new();
    let read = BufReader::new(&terminal).read_line(&mut line);
    // Whatever was read, the terminal shows again what is typed.
    let _ = tcsetattr(&terminal, OptionalActions::Flush, &before);
    match read {
        Ok(bytes) if bytes > 0 => Some(line.trim_end_matches(['\r', '\n']).to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted<'_> = Wanted {
        host: "db1",
        port: 6432,
        database: "pgbouncer",
        user: "admin",
    };

    #[test]
    fn a_line_matches_by_its_four_fields() {
        for (line, password) in [
            ("db1:6432:pgbouncer:admin:secret", Some("secret")),
            ("*:*:*:admin:with:colon", Some("with:colon")),
            (r"*:*:*:admin:a\:b\\c", Some(r"a:b\c")),
            ("db1:5432:pgbouncer:admin:secret", None),
            ("#db1:6432:pgbouncer:admin:secret", None),
            ("db1:6432:pgbouncer", None),
            ("", None),
        ] {
            assert_eq!(matching(line, &WANTED).as_deref(), password, "{line}");
        }
    }

    #[test]
    fn the_file_is_named_or_in_the_home_folder() {
        let both = |name: &str| match name {
            "PGPASSFILE" => Some("/named".to_string()),
            _ => Some("/home/me".to_string()),
        };
        assert_eq!(file(both), Some("/named".into()));
        let home = |name: &str| (name == "HOME").then(|| "/home/me".to_string());
        assert_eq!(file(home), Some("/home/me/.pgpass".into()));
        assert_eq!(file(|_| None), None);
    }
}
