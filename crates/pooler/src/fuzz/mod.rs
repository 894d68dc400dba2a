//! Fuzz bodies of the decisions. Each takes any bytes and panics if an invariant breaks. The
//! targets in `fuzz/` are one line each; the unit tests below run the same functions over the same
//! seeds. Those of logins are in `howdah_auth::fuzz`, those of
//! SQL texts in `howdah_sql::fuzz`.

mod client;
mod events;
mod postgres;
mod world;

pub use events::events;

use crate::config::Config;
use crate::console::sentence::{Sentence, Unread, read, split};

/// Any text is a configuration or has errors, each at an existing line. The text after a zero byte
/// stands for every included file and the auth_file. SET with a shown value succeeds, and shows the
/// same value.
pub fn settings(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (text, other) = text.split_once('\0').unwrap_or((&text, ""));
    let mut files = 0;
    let mut read_file = |_: &str| {
        files += 1;
        // A file that includes itself twice would be read a thousand times.
        if files > 20 {
            return Err("too many".to_string());
        }
        Ok(other.to_string())
    };
    let loaded = Config::load("howdah.ini", text, &mut read_file);
    let (mut config, _) = match loaded {
        Ok(loaded) => loaded,
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "refused without a reason");
            for mistake in mistakes {
                assert!(!mistake.text.is_empty());
                if let Some(place) = mistake.place {
                    let lines = text.lines().count().max(other.lines().count());
                    assert!(place.line >= 1 && place.line as usize <= lines + 1);
                }
            }
            return;
        }
    };
    // One setting is enough; the input's length chooses it.
    let changeable: Vec<_> = config.show().filter(|shown| shown.changeable).collect();
    let shown = &changeable[input.len() % changeable.len()];
    if let Some(value) = &shown.value {
        let Ok(again) = config.with(shown.key, value) else {
            panic!("{} can't be set to {value:?}, which it is", shown.key);
        };
        let same = again.show().find(|s| s.key == shown.key).unwrap();
        assert_eq!(same.value.as_ref(), Some(value), "{}", shown.key);
    }
    let in_force = config.clone();
    config.keep_fixed(&in_force);
    assert!(
        config
            .show()
            .map(|s| s.value)
            .eq(in_force.show().map(|s| s.value))
    );
}

/// Any text is a list of users, up to the named line. Written and read again, the list is the same.
pub fn users(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let seen = crate::config::userlist::parse(&text);
    let (users, broken) = (seen.users, seen.broken);
    if let Some((line, why)) = broken {
        assert!(line as usize <= text.lines().count() + 1 && !why.is_empty());
    }
    let quote = |text: &str| text.replace('"', "\"\"");
    let lines = users.iter().map(|(user, secret)| {
        assert!(user.len() < 128);
        format!("\"{}\" \"{}\"\n", quote(user), quote(secret))
    });
    let again: String = lines.collect();
    let again = crate::config::userlist::parse(&again);
    assert_eq!((again.users, again.broken), (users, None));
    assert!(again.skipped.is_empty());
}

/// Any text is split into statements. Each is read or refused. A statement that was read is the
/// same after writing and reading it again.
pub fn sentences(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let statements = split(&text);
    assert!(!statements.is_empty());
    for statement in statements {
        let again = match read(&statement) {
            Ok(Sentence::Command(name, None)) => format!("\"{}\"", name.replace('"', "\"\"")),
            Ok(Sentence::Command(name, Some(argument))) => {
                assert!(name.len() < 16 && argument.len() < 64);
                let quote = |text: &str| text.replace('"', "\"\"");
                format!("\"{}\" \"{}\";", quote(&name), quote(&argument))
            }
            Ok(Sentence::Set(key, value)) => {
                assert!(!key.is_empty() && key.len() < 64 && value.len() < 256);
                let (key, value) = (key.replace('"', "\"\""), value.replace('\'', "''"));
                format!("SET \"{key}\" TO '{value}'")
            }
            Ok(Sentence::Route(question)) => {
                let quote = |text: &str| format!("'{}'", text.replace('\'', "''"));
                let database = question.database.replace('"', "\"\"");
                let mut again = format!("ROUTE \"{database}\" {}", quote(&question.sql));
                for value in question.values {
                    again += " ";
                    again += &value.as_deref().map_or("NULL".into(), quote);
                }
                again
            }
            Err(Unread::Syntax | Unread::Arguments) => continue,
        };
        assert_eq!(read(&again), read(&statement), "{again:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: &[&[u8]] = &[
        b"[databases]\nd = host=127.0.0.1 port=5432 pool_size=3\n* = auth_user=x\n[pgbouncer]\n\
          auth_type = trust\nauth_file = f\npool_mode = transaction\n\0\"u\" \"p\"\n",
        b"%include x\n[users]\nu = pool_mode=session max_user_connections=3\n\0[pgbouncer]\n\
          listen_port = 6432\nquery_timeout = 1.5\nserver_lifetime = 3600\nlisten_addr = *\n",
        b"[databases]\n\"a b\" = host='x y' dbname='it''s' connect_query='select 1' ; no\n\
          [pgbouncer]\nignore_startup_parameters = extra_float_digits, options\n\
          log_connections = 0\nunix_socket_mode = 0777\nadmin_users = a, b\n",
        b"[peers]\n1 = host=/tmp\n[pgbouncer]\ntrack_extra_parameters = search_path\n",
    ];
    const USERS: &[&[u8]] =
        &[b"\"u\" \"p\"\n; c\n\"q\"\"q\" \"md5c1add164b782f19e776b4181b75d298e\" x\n\"e\" \"\""];
    const SENTENCES: &[&[u8]] = &[
        b"show pools; set query_timeout = '1''0'; pause \"d b\";",
        b"SET a TO b",
        b"\"show\" version",
        b"kill_client 12; ;",
    ];
    fn each(run: impl Fn(fn(&[u8]), &[&[u8]])) {
        run(settings, SETTINGS);
        run(users, USERS);
        run(sentences, SENTENCES);
    }

    #[test]
    fn seeds_and_their_prefixes() {
        each(|body, seeds| {
            for seed in seeds {
                (0..=seed.len()).for_each(|end| body(&seed[..end]));
            }
        });
    }

    proptest! {
        #[test]
        fn any_text(text: String) {
            each(|body, _| body(text.as_bytes()));
        }

        /// Seeds with their own bytes, or other significant bytes, in wrong places.
        #[test]
        fn seeds_with_changes(
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4u8),
                1..6,
            ),
        ) {
            const MARKS: &[u8] = b"\0\n;='\"[]%\\ -/*$.,0";
            each(|body, seeds| {
                for seed in seeds {
                    let mut text = seed.to_vec();
                    for (at, from, how) in &changes {
                        let (at, mark) = (at.index(text.len()), MARKS[from.index(MARKS.len())]);
                        match how {
                            0 => text[at] = mark,
                            1 => text.insert(at, mark),
                            2 => text[at] = seed[from.index(seed.len())],
                            _ => drop(text.remove(at)),
                        }
                        text.push(b' ');
                    }
                    body(&text);
                }
            });
        }

        #[test]
        fn any_events(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            events(&bytes);
        }
    }
}
