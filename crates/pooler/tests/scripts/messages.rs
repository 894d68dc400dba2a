//! Messages as words, in both directions.

use howdah_pooler::cancel::Keys;
use howdah_wire::backend::{Fields, Status, command_tag, key_data, parameter_status};
use howdah_wire::frame::{HEADER, cstr, header, u32_be};
use howdah_wire::frontend::{BindNames, Parse, Subject};
use howdah_wire::write;

/// The words of a line: `name` or `name(argument,argument)`.
pub fn words(line: &str) -> Vec<(&str, Vec<&str>)> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = rest.find([' ', '(']).unwrap_or(rest.len());
        let name = &rest[..end];
        rest = &rest[end..];
        let mut arguments = Vec::new();
        if rest.starts_with('(') {
            let end = rest.find(") ").unwrap_or(rest.len() - 1);
            arguments = rest[1..end].splitn(2, ',').collect();
            rest = &rest[end + 1..];
        }
        words.push((name, arguments));
        rest = rest.trim_start();
    }
    words
}

/// A text. `x*1000` repeats `x` a thousand times.
fn long(text: &str) -> String {
    match text
        .split_once('*')
        .map(|(part, times)| (part, times.parse()))
    {
        Some((part, Ok(times))) => part.repeat(times),
        _ => text.to_string(),
    }
}

/// Appends a client's message, given as a word.
pub fn client_message(buf: &mut Vec<u8>, word: &str, arguments: &[&str]) {
    let first = arguments.first().copied().unwrap_or("").as_bytes();
    let second = arguments.get(1).copied().unwrap_or("");
    let with = |buf: &mut Vec<u8>, tag: u8, body: &[u8]| {
        write::message(buf, tag, |buf| buf.extend_from_slice(body));
    };
    match word {
        "Q" => write::query(buf, long(&arguments.join(",")).as_bytes()),
        "P" => write::parse(buf, first, format!("{}\0\0\0", long(second)).as_bytes()),
        "B" => write::bind_head(buf, second.as_bytes(), first, 6),
        "Ds" => write::of_statement(buf, b'D', first),
        "Dp" => with(buf, b'D', &[b"P", first, b"\0"].concat()),
        "Cs" => write::of_statement(buf, b'C', first),
        "Cp" => with(buf, b'C', &[b"P", first, b"\0"].concat()),
        "E" => with(buf, b'E', &[first, b"\0\0\0\0\0"].concat()),
        "F" => with(buf, b'F', &[0; 12]),
        "p" => with(buf, b'p', &[first, b"\0"].concat()),
        "f" => with(buf, b'f', b"no\0"),
        "S" | "H" | "d" | "c" | "X" => with(buf, word.as_bytes()[0], first),
        // The first bytes of a message, and the rest: cut(3,S) rest(3,S)
        "cut" | "rest" => {
            let mut whole = Vec::new();
            for (word, arguments) in words(second) {
                client_message(&mut whole, word, &arguments);
            }
            let rest = whole.split_off(arguments[0].parse().unwrap());
            buf.extend(if word == "cut" { whole } else { rest });
        }
        // A message repeated: many(1000,S)
        "many" => {
            for _ in 0..arguments[0].parse().unwrap() {
                for (word, arguments) in words(second) {
                    client_message(buf, word, &arguments);
                }
            }
        }
        "x00" => buf.extend_from_slice(&[0; 8]),
        "Q3" => buf.extend_from_slice(b"Q\0\0\0\x03"),
        _ => panic!("no word of a client: {word}"),
    }
    if word == "B" {
        buf.extend_from_slice(&[0; 6]);
    }
}

/// How the question for a shard's catalogue begins.
const CATALOGUE: &[u8] = b"SELECT pg_catalog.pg_encoding_to_char(";

/// Appends a shard's catalogue.
fn catalogue(buf: &mut Vec<u8>) {
    let tables = [("101", "accounts"), ("102", "orders"), ("103", "countries")];
    let columns = [
        ("101", "account_id", "20"),
        ("101", "name", "25"),
        ("102", "account_id", "20"),
    ];
    let columns = columns.into_iter().chain([("103", "name", "25")]);
    let parts: [Vec<Vec<&str>>; 9] = [
        vec![vec!["UTF8", "\"$user\", public"]],
        Vec::new(),
        vec![vec!["public", "true"], vec!["pg_catalog", "true"]],
        Vec::new(),
        tables
            .map(|(oid, name)| vec![oid, "public", name, "r", "false", ""])
            .into(),
        columns
            .map(|(of, name, oid)| vec![of, name, oid, "false", "true", "true", "false"])
            .collect(),
        Vec::new(),
        Vec::new(),
        Vec::new(),
    ];
    for part in parts {
        for row in part {
            write::data_row(buf, row.iter().map(|field| Some(field.as_bytes())));
        }
        write::command_complete(buf, "SELECT");
    }
    write::ready(buf, Status::Idle);
}

/// Appends PostgreSQL's message, given as a word.
pub fn server_message(buf: &mut Vec<u8>, word: &str, arguments: &[&str]) {
    let first = arguments.first().copied().unwrap_or("");
    let second = arguments.get(1).copied().unwrap_or("");
    let tag = word.as_bytes()[0];
    match word {
        "1" | "2" | "3" | "n" | "I" | "s" | "c" => write::empty(buf, tag),
        "C" => write::command_complete(buf, first),
        "D" => write::data_row(buf, [Some(first.as_bytes())].into_iter()),
        "D2" => {
            let values = [Some(first.as_bytes()), Some(second.as_bytes())];
            write::data_row(buf, values.into_iter());
        }
        "E" => write::error(buf, "ERROR", first, second),
        "R0A000" => write::message(buf, b'E', |buf| {
            let text = b"SERROR\0VERROR\0C0A000\0Mcached plan\0RRevalidateCachedQuery\0\0";
            buf.extend_from_slice(text);
        }),
        "R08P01" => write::message(buf, b'E', |buf| {
            let text = b"SERROR\0VERROR\0C08P01\0Mformats\0L9\0RPortalSetResultFormat\0\0";
            buf.extend_from_slice(text);
        }),
        // A notification by a process on a channel: A(7,news), A(7,news,payload)
        "A" if arguments.len() == 2 => write::message(buf, tag, |buf| {
            buf.extend_from_slice(&first.parse::<u32>().unwrap().to_be_bytes());
            let (channel, payload) = second.split_once(',').unwrap_or((second, "said"));
            buf.extend_from_slice(format!("{channel}\0{payload}\0").as_bytes());
        }),
        "FATAL" => write::error(buf, "FATAL", first, second),
        "N" => write::notice(buf, "NOTICE", "00000", first, None),
        "N42P07" => write::notice(buf, "NOTICE", "42P07", "exists, skipping", None),
        "R" => write::authentication(buf, first.parse().unwrap(), b""),
        "K" => write::key_data(buf, first.parse().unwrap(), b"key!"),
        "S" => {
            let all = arguments.join(",");
            let (name, value) = all.split_once('=').unwrap();
            write::parameter_status(buf, name.as_bytes(), value.as_bytes());
        }
        // Columns of these names.
        "T" => write::message(buf, tag, |buf| {
            buf.extend_from_slice(&(arguments.len() as u16).to_be_bytes());
            for name in arguments {
                buf.extend_from_slice(name.as_bytes());
                buf.extend_from_slice(&[0; 19]);
            }
        }),
        "t" | "A" | "d" | "V" => write::message(buf, tag, |buf| {
            buf.extend_from_slice(first.as_bytes());
        }),
        "G" | "W" | "H" => write::message(buf, tag, |buf| buf.extend_from_slice(&[0; 3])),
        // The answer to catalogue: the tables accounts, orders (with keys account_id) and countries.
        "catalogue" => catalogue(buf),
        // The answer to settings(...).
        "settings" => {
            for command in ["BEGIN", "SELECT 1", "COMMIT"] {
                write::empty(buf, b'1');
                write::empty(buf, b'2');
                write::command_complete(buf, command);
            }
        }
        "ZI" => write::ready(buf, Status::Idle),
        "ZT" => write::ready(buf, Status::Transaction),
        "ZE" => write::ready(buf, Status::Failed),
        _ => panic!("no word of a server: {word}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A message as a word; `None` if the message is not complete.
pub fn word(bytes: &[u8], from_server: bool) -> Option<(String, usize)> {
    let header = header(bytes)?.unwrap();
    let body = bytes.get(HEADER..header.total())?;
    let word = if from_server {
        backend(header.tag, body)
    } else {
        frontend(header.tag, body)
    };
    Some((word, header.total()))
}

fn backend(tag: u8, body: &[u8]) -> String {
    match tag {
        b'Z' => format!("Z{}", char::from(body[0])),
        b'C' => format!("C({})", text(command_tag(body).unwrap())),
        b'E' | b'N' => {
            let fields = Fields::new(body);
            let severity = text(fields.severity());
            // For a fatal error, the detail has the reason.
            let detail = fields.get(b'D').filter(|_| severity == "FATAL");
            format!(
                "{severity}({},{}{})",
                text(fields.sqlstate().unwrap_or_default()),
                text(fields.message()),
                detail.map_or_else(String::new, |detail| format!(",{}", text(detail)))
            )
        }
        b'S' => {
            let (name, value) = parameter_status(body).unwrap();
            format!("S({}={})", text(name), text(value))
        }
        b'K' => {
            let (pid, secret) = key_data(body).unwrap();
            let place = u32::from(Keys::worker(pid).0) << 22 | (Keys::slot(pid) + 1);
            format!("K({place},{} bytes)", secret.len())
        }
        b'D' => format!("D({})", text(&body[6..])),
        b'd' => format!("d({})", text(body)),
        b'R' => format!("R({})", body[3]),
        b'A' if body.ends_with(b"\0said\0") => {
            let (pid, rest) = u32_be(body).unwrap();
            let place = u32::from(Keys::worker(pid).0) << 22 | (Keys::slot(pid) + 1);
            let pid = if pid < 1000 { pid } else { place };
            let (channel, _) = cstr(rest).unwrap();
            format!("A({pid},{})", text(channel))
        }
        _ => char::from(tag).to_string(),
    }
}

fn frontend(tag: u8, body: &[u8]) -> String {
    let string = |bytes: &[u8]| cstr(bytes).map_or_else(String::new, |(front, _)| text(front));
    match tag {
        b'Q' if body.starts_with(CATALOGUE) => "catalogue".into(),
        b'Q' if body.len() > 10_000 => format!("Q({} bytes)", body.len() - 1),
        b'Q' => format!("Q({})", string(body)),
        b'P' => {
            let parse = Parse::read(body).unwrap();
            if parse.text().len() > 1000 {
                return format!("P({},{} bytes)", text(parse.name), parse.text().len());
            }
            format!("P({},{})", text(parse.name), text(parse.text()))
        }
        b'B' => {
            let names = BindNames::read(body).unwrap();
            format!("B({})", text(names.statement))
        }
        b'D' | b'C' => match Subject::read(tag, body).unwrap() {
            Subject::Statement(name) => format!("{}s({})", char::from(tag), text(name)),
            Subject::Portal(name) => format!("{}p({})", char::from(tag), text(name)),
        },
        b'E' if body.len() > 5 => format!("E({})", string(body)),
        b'd' => format!("d({})", text(body)),
        b'f' => format!("f({})", string(body)),
        _ => char::from(tag).to_string(),
    }
}
