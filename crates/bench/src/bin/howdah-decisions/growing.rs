//! Inputs that grow: `./bench growth` counts the instructions of each at one size and at twice that
//! size. What takes more than its share is a way to stop a worker.

use howdah_auth::{ClientLogin, ClientLoginSetup, LoginStep, Method, Secret};
use howdah_bench::session::message;
use howdah_pooler::config::{Config, userlist};
use howdah_pooler::console::sentence::{read, split};
use howdah_pooler::effect::{LongText, effects, first};
use howdah_pooler::event::Peer;
use howdah_wire::backend::Fields;
use howdah_wire::frame::header;
use howdah_wire::frontend::{Bind, BindNames, Parse, Subject};

use crate::{World, complete, execute, query, rows};

/// An input that grows.
pub struct Growing {
    /// Its name: the crate, then what grows.
    pub name: &'static str,
    /// The smaller size.
    pub size: usize,
    play: fn(usize) -> Result<(), String>,
}

const fn growing(
    name: &'static str,
    size: usize,
    play: fn(usize) -> Result<(), String>,
) -> Growing {
    Growing { name, size, play }
}

/// All of them.
pub const ALL: &[Growing] = &[
    growing("wire-messages", 2000, messages),
    growing("wire-bind-values", 2000, bind_values),
    growing("wire-parse-types", 20_000, |size| {
        let types = [0, 0, 0, 23].repeat(size);
        let body = [b"s\0select 1\0", &(size as u16).to_be_bytes()[..], &types].concat();
        Parse::read(&body)
            .map(drop)
            .map_err(|error| error.to_string())
    }),
    growing("wire-error-fields", 2000, |size| {
        let body = b"Mtext\0".repeat(size);
        let fields = Fields::new(&body);
        match (fields.iter().count() >= size, fields.sqlstate()) {
            (true, None) => Ok(()),
            _ => Err("fields are missing".into()),
        }
    }),
    growing("auth-password", 20_000, |size| {
        password(Method::Plain, &"pass ".repeat(size))
    }),
    growing("auth-password-letters", 10_000, |size| {
        password(Method::Plain, &"\u{fb01}\u{e4}".repeat(size))
    }),
    growing("auth-scram", 10_000, |size| {
        let first = format!("n,,n=,r={}", "r".repeat(size));
        let length = (first.len() as u32).to_be_bytes();
        let body = [b"SCRAM-SHA-256\0", &length[..], first.as_bytes()].concat();
        answer(Method::Scram, &body)
    }),
    growing("auth-scram-attributes", 10_000, |size| {
        let first = format!("n,,n=,r=x{}", ",a=b".repeat(size));
        let length = (first.len() as u32).to_be_bytes();
        let body = [b"SCRAM-SHA-256\0", &length[..], first.as_bytes()].concat();
        answer(Method::Scram, &body)
    }),
    growing("config-databases", 200, |size| {
        config(
            size,
            |n| format!("d{n} = host=127.0.0.1 port=5432"),
            |_| String::new(),
        )
    }),
    growing("config-users", 200, |size| {
        config(
            size,
            |_| String::new(),
            |n| format!("[users]\nu{n} = pool_size=3"),
        )
    }),
    growing("config-settings", 200, |size| {
        config(size, |_| String::new(), |_| "query_timeout = 5".into())
    }),
    growing("config-mistakes", 200, |size| {
        config(size, |_| String::new(), |n| format!("no_setting_{n} = 5"))
    }),
    growing("config-list", 200, |size| {
        let names: Vec<_> = (0..size).map(|n| format!("name_{n}")).collect();
        let list = format!("ignore_startup_parameters = {}", names.join(", "));
        config(1, |_| String::new(), move |_| list.clone())
    }),
    growing("config-hosts", 200, |size| {
        let hosts: Vec<_> = (0..size)
            .map(|n| format!("10.0.{}.{}", n / 200, n % 200))
            .collect();
        let line = format!("d = host={}", hosts.join(","));
        config(1, move |_| line.clone(), |_| String::new())
    }),
    growing("config-user-list", 1000, |size| {
        let lines: String = (0..size).map(|n| format!("\"u{n}\" \"p\"\n")).collect();
        if userlist::parse(&lines).users.len() == size {
            Ok(())
        } else {
            Err("users are missing".into())
        }
    }),
    growing("config-hba", 200, |size| {
        let rules: String = (0..size)
            .map(|n| format!("host d{n} u{n} 10.0.0.0/8 trust\n"))
            .collect();
        let text = "[databases]\n* = host=h\n[pgbouncer]\nauth_type = hba\nauth_hba_file = hba\n\
                    auth_file = list\n";
        let file = |name: &str| {
            Ok(if name == "hba" {
                rules.clone()
            } else {
                String::new()
            })
        };
        Config::load("growing.ini", text, &mut { file })
            .map(drop)
            .map_err(|mistakes| format!("{mistakes:?}"))
    }),
    growing("effects-plain", 20_000, |size| {
        text("select ", "1,", "1", size)
    }),
    growing("effects-string", 20_000, |size| {
        text("select '", "x", "'", size)
    }),
    growing("effects-readings", 5000, |size| {
        text(
            "with x as (select 1) select '\u{e4}\\', ",
            "a(1),",
            "1",
            size,
        )
    }),
    growing("effects-set", 2000, |size| text("", "set a = 1;", "", size)),
    growing("effects-set-local", 2000, |size| {
        text("do $$", "set local search_path to a ", "$$", size)
    }),
    growing("effects-set-role", 2000, |size| {
        text("", "set role a;", "", size)
    }),
    growing("effects-do", 5000, |size| text("do $$", "'a'", "$$", size)),
    growing("effects-deep-do", 2000, |size| {
        text("do '", "''set role a '' ", "'", size)
    }),
    growing("effects-set-config", 1000, |size| {
        text("select ", "set_config('a.b',", "", size)
    }),
    growing("effects-set-config-quoted", 1000, |size| {
        text("select ", "\"set_config\"(", "", size)
    }),
    growing("effects-slots", 500, |size| {
        text("select ", "pg_create_physical_replication_slot(", "", size)
    }),
    growing("effects-comments", 5000, |size| text("", "/*", "", size)),
    growing("effects-dollars", 5000, |size| {
        text("select ", "$a$ ", "", size)
    }),
    growing("effects-listen", 2000, |size| {
        text("", "listen a;", "", size)
    }),
    growing("console-sentences", 2000, |size| {
        for sentence in split(&"show 'pools';".repeat(size)) {
            drop(read(&sentence));
        }
        Ok(())
    }),
    growing("queries", 500, |size| {
        played(&[], &query("select 1").repeat(size))
    }),
    growing("groups", 500, |size| {
        let group = [message(b'P', b"\0select 1\0\0\0"), execute("")].concat();
        played(&[], &group.repeat(size))
    }),
    growing("names", 1000, |size| {
        let parses: Vec<u8> = (0..size).flat_map(parse).collect();
        played(&[], &[parses, message(b'S', b"")].concat())
    }),
    growing("names-and-closes", 1000, |size| {
        let pair = |n: usize| [parse(n), message(b'C', format!("Ss{n}\0").as_bytes())].concat();
        let pairs: Vec<u8> = (0..size).flat_map(pair).collect();
        played(&[], &[pairs, message(b'S', b"")].concat())
    }),
    growing("names-behind-ddl", 500, |size| {
        let parses: Vec<u8> = (0..size).flat_map(parse).collect();
        let end = [message(b'S', b""), query("commit"), query("select 1")].concat();
        played(
            &["begin", "alter table t add a int"],
            &[parses, end].concat(),
        )
    }),
    growing("portals", 1000, |size| {
        played(
            &["begin"],
            &[setter(), (0..size).flat_map(portal).collect()].concat(),
        )
    }),
    growing("portals-and-closes", 1000, |size| {
        let pair = |n: usize| [portal(n), message(b'C', format!("Pp{n}\0").as_bytes())].concat();
        played(
            &["begin"],
            &[setter(), (0..size).flat_map(pair).collect()].concat(),
        )
    }),
    growing("portals-of-groups", 500, |size| {
        let one = |n: usize| [portal(n), message(b'S', b"")].concat();
        played(&[], &[setter(), (0..size).flat_map(one).collect()].concat())
    }),
    growing("temporary-tables", 300, |size| {
        let one = |n: usize| query(&format!("create temp table t{n} (a int) on commit drop"));
        played(&["begin"], &(0..size).flat_map(one).collect::<Vec<u8>>())
    }),
    growing("rollbacks-to", 300, |size| {
        let parses: Vec<u8> = (0..100).flat_map(parse).collect();
        let undone = query("rollback to a").repeat(size);
        let begun = ["begin", "alter table t add a int"];
        played(&begun, &[parses, message(b'S', b""), undone].concat())
    }),
    growing("settings", 300, |size| {
        let one = |n: usize| query(&format!("set local a.b{n} = 1"));
        played(&["begin"], &(0..size).flat_map(one).collect::<Vec<u8>>())
    }),
    growing("long-query", 50_000, |size| {
        played(&[], &query(&format!("select '{}'", "x".repeat(size))))
    }),
    growing("long-parse", 50_000, |size| {
        let text = format!("s\0select '{}'\0\0\0", "x".repeat(size));
        played(
            &[],
            &[message(b'P', text.as_bytes()), message(b'S', b"")].concat(),
        )
    }),
    growing("parse-in-pieces", 100_000, |size| {
        let text = format!("s\0select '{}'\0\0\0", "x".repeat(size));
        let bytes = [message(b'P', text.as_bytes()), message(b'S', b"")].concat();
        let mut world = begun(&[])?;
        let pieces = bytes.chunks(100);
        pieces.into_iter().try_for_each(|piece| world.say(piece))
    }),
    growing("query-in-pieces", 100_000, |size| {
        let bytes = query(&format!("select '{}'", "x".repeat(size)));
        let mut world = begun(&[])?;
        let pieces = bytes.chunks(100);
        pieces.into_iter().try_for_each(|piece| world.say(piece))
    }),
    growing("rows", 5000, |size| {
        let mut world = begun(&[])?;
        world.transaction(&query("select 1"), &rows(size))
    }),
    growing("parameters-reported", 2000, |size| {
        let mut world = begun(&[])?;
        let one = |n: usize| message(b'S', format!("TimeZone\0zone {n}\0").as_bytes());
        let told: Vec<u8> = (0..size).flat_map(one).collect();
        world.transaction(&query("select 1"), &[told, rows(1)].concat())
    }),
    growing("clients", 100, |size| {
        let mut world = begun(&[])?;
        (0..size).try_for_each(|_| world.let_in("d"))
    }),
    growing("pools", 100, |size| {
        let mut world = World::new("")?;
        (0..size).try_for_each(|n| world.log_in(&format!("d{n}")))
    }),
];

/// Plays one of them at a size.
pub fn play(name: &str, size: usize) -> Result<(), String> {
    let found = ALL.iter().find(|growing| growing.name == name);
    (found.ok_or("there is no such input")?.play)(size)
}

fn messages(size: usize) -> Result<(), String> {
    let stream = [
        parse(1),
        portal(1),
        message(b'D', b"Ss\0"),
        message(b'S', b""),
    ]
    .concat();
    let stream = stream.repeat(size);
    let (mut rest, mut read) = (&stream[..], 0);
    while let Some(Ok(header)) = header(rest) {
        let (whole, after) = rest.split_at(header.total());
        let body = &whole[5..];
        read += usize::from(Parse::read(body).is_ok());
        read += usize::from(BindNames::read(body).is_some());
        read += usize::from(Subject::read(header.tag, body).is_ok());
        rest = after;
    }
    if read >= size {
        Ok(())
    } else {
        Err("messages are missing".into())
    }
}

fn bind_values(size: usize) -> Result<(), String> {
    let values = [0, 0, 0, 1, b'x'].repeat(size);
    let count = (size as u16).to_be_bytes();
    let body = [b"\0s\0\0\0", &count[..], &values, b"\0\0"].concat();
    match Bind::read(&body) {
        Ok(bind) if bind.values.len() == size => Ok(()),
        _ => Err("values are missing".into()),
    }
}

fn password(method: Method, text: &str) -> Result<(), String> {
    answer(method, format!("{text}\0").as_bytes())
}

/// A client's answer to the first request of a login.
fn answer(method: Method, body: &[u8]) -> Result<(), String> {
    let secret = Secret::Plain("secret".into());
    let (mut login, _) = ClientLogin::start(&ClientLoginSetup {
        second: None,
        method,
        user: "u",
        secret: Some(&secret),
        iterations: 1,
        salt_key: &[7; 32],
        md5_salt: [1, 2, 3, 4],
        nonce: &[9; 18],
        binding: None,
    });
    match login.answer(body) {
        LoginStep::Done(_) => Err("admitted without a proof".into()),
        _ => Ok(()),
    }
}

/// Reads a configuration with so many lines of databases and of settings. Mistakes are found, too.
fn config(
    size: usize,
    database: impl Fn(usize) -> String,
    setting: impl Fn(usize) -> String,
) -> Result<(), String> {
    let lines = |line: &dyn Fn(usize) -> String| (0..size).map(|n| line(n) + "\n").collect();
    let [databases, settings]: [String; 2] = [lines(&database), lines(&setting)];
    let text = format!(
        "[databases]\n{databases}* = host=h\n[pgbouncer]\nauth_type = trust\nauth_file = list\n\
         {settings}"
    );
    drop(Config::load("growing.ini", &text, &mut |_: &str| {
        Ok(String::new())
    }));
    Ok(())
}

/// Reads a text whole and in pieces.
fn text(before: &str, repeated: &str, behind: &str, size: usize) -> Result<(), String> {
    let text = format!("{before}{}{behind}", repeated.repeat(size));
    drop((effects(text.as_bytes()), first(text.as_bytes())));
    let mut long = LongText::default();
    text.as_bytes()
        .chunks(8192)
        .for_each(|piece| long.read(piece));
    std::hint::black_box(long.is_doubtful());
    Ok(())
}

fn parse(number: usize) -> Vec<u8> {
    message(b'P', format!("s{number}\0select 1\0\0\0").as_bytes())
}

/// A statement that changes settings, so that its portals are remembered.
fn setter() -> Vec<u8> {
    message(b'P', b"set\0set local search_path = a\0\0\0")
}

fn portal(number: usize) -> Vec<u8> {
    message(b'B', format!("p{number}\0set\0\0\0\0\0\0\0").as_bytes())
}

/// A world whose client has sent these queries.
fn begun(queries: &[&str]) -> Result<World, String> {
    let mut world = World::new("")?;
    world.log_in("d")?;
    for text in queries {
        world.say(&query(text))?;
    }
    Ok(world)
}

/// A client sends these queries, and then these bytes at once.
fn played(queries: &[&str], bytes: &[u8]) -> Result<(), String> {
    let mut world = begun(queries)?;
    world.say(&[bytes, &message(b'S', b"")].concat())?;
    match world.pooler.census().held {
        0 => Ok(()),
        left => Err(format!("{left} bytes are left")),
    }
}

impl World {
    /// The client sends bytes, and PostgreSQL answers whatever comes of them.
    fn say(&mut self, bytes: &[u8]) -> Result<(), String> {
        let client = Peer::Client(self.client.ok_or("the client is gone")?);
        let mut asked = self.happen_overheard(client, bytes);
        while !asked.is_empty() {
            let server = Peer::Server(self.server.ok_or("the server is gone")?);
            self.unanswered.extend_from_slice(&asked);
            let answers = self.answers_to_all();
            asked = self.happen_overheard(server, &answers);
            if asked.is_empty() && answers.is_empty() {
                break;
            }
        }
        match self.closing {
            None => Ok(()),
            Some(_) => Err("the client was closed".into()),
        }
    }

    /// PostgreSQL's answers to all messages that have come whole.
    fn answers_to_all(&mut self) -> Vec<u8> {
        let asked = std::mem::take(&mut self.unanswered);
        let (mut rest, mut answers) = (&asked[..], Vec::new());
        while let Some(Ok(header)) = header(rest)
            && header.total() <= rest.len()
        {
            let (whole, after) = rest.split_at(header.total());
            let text = &whole[5..];
            match whole[0] {
                b'Q' => {
                    self.inside |= text.starts_with(b"begin");
                    self.inside &= !text.starts_with(b"commit");
                    let tag = match text.first() {
                        Some(b'c') if text.starts_with(b"create") => "CREATE TABLE",
                        Some(b'r') => "ROLLBACK",
                        Some(b'a') => "ALTER TABLE",
                        Some(b's') if text.starts_with(b"set") => "SET",
                        _ => "SELECT 0",
                    };
                    answers.extend(complete(tag));
                    answers.extend(self.rests());
                }
                b'P' => answers.extend(message(b'1', b"")),
                b'B' => answers.extend(message(b'2', b"")),
                b'C' => answers.extend(message(b'3', b"")),
                b'D' => answers.extend(message(b'n', b"")),
                b'E' => answers.extend(complete("SELECT 0")),
                b'S' => answers.extend(self.rests()),
                _ => {}
            }
            rest = after;
        }
        self.unanswered = rest.to_vec();
        answers
    }

    fn rests(&self) -> Vec<u8> {
        message(b'Z', if self.inside { b"T" } else { b"I" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_can_be_played() {
        for growing in ALL {
            for size in [0, 3, growing.size / 10] {
                play(growing.name, size)
                    .unwrap_or_else(|error| panic!("{} at {size}: {error}", growing.name));
            }
        }
    }
}
