//! Checks answers that pgbench can't compare: large rows, many rows, pipelines.
//!
//! Before and after a run, several clients ask at once, each for unique answers. During a measured
//! run only errors are noticed: comparing every answer would disturb the measurement.

use std::io;
use std::net::SocketAddr;

use howdah_bench::scram::Credentials;
use howdah_bench::session::{Session, message};

use crate::design::Script;
use crate::postgres::{OPEN_USER, USER};

/// The most clients at once.
const AT_ONCE: usize = 20;
/// How often each client asks.
const TIMES: usize = 3;

/// A client's request, and the expected rows.
struct Asked {
    request: Vec<u8>,
    rows: Vec<Vec<String>>,
}

/// Sends requests like this script's, and compares the answers. Does nothing for scripts with
/// answers that pgbench compares.
///
/// # Errors
/// An answer is wrong, or none comes.
pub fn shape(script: Script, address: SocketAddr, clients: usize) -> io::Result<()> {
    let clients = clients.clamp(1, AT_ONCE);
    let asked: Option<Vec<_>> = (0..clients).map(|client| asked(script, client)).collect();
    let Some(asked) = asked else {
        return Ok(());
    };
    let mut credentials = Credentials::new("");
    let sessions = asked
        .iter()
        .map(|_| Session::connect(address, OPEN_USER, USER, &mut credentials));
    let mut sessions = sessions.collect::<io::Result<Vec<_>>>()?;
    for _ in 0..TIMES {
        for (session, asked) in sessions.iter_mut().zip(&asked) {
            session.send(&asked.request)?;
        }
        for (session, asked) in sessions.iter_mut().zip(&asked) {
            let rows = session.read_rows()?;
            compare(&rows, &asked.rows)?;
        }
    }
    sessions.into_iter().try_for_each(Session::terminate)
}

fn asked(script: Script, client: usize) -> Option<Asked> {
    let letter = char::from(b'a' + client as u8);
    let large = |length: usize| Asked {
        request: query(&format!("select repeat('{letter}', {length})")),
        rows: vec![vec![letter.to_string().repeat(length)]],
    };
    Some(match script {
        Script::LargeRow => large(100_000),
        Script::Row => large(4096),
        Script::Burst => large(262_144),
        Script::ManyRows => Asked {
            request: query(&format!(
                "select n, 'row {client}' from generate_series(1, 1000) n"
            )),
            rows: (1..=1000)
                .map(|n| vec![n.to_string(), format!("row {client}")])
                .collect(),
        },
        Script::Pipeline => {
            let numbers = (0..10).map(|number| client * 100 + number);
            let parts: Vec<_> = numbers.clone().map(extended).collect();
            Asked {
                request: [parts.concat(), message(b'S', b"")].concat(),
                rows: numbers.map(|number| vec![number.to_string()]).collect(),
            }
        }
        _ => return None,
    })
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// Parse, Bind, Describe and Execute, without Sync.
fn extended(number: usize) -> Vec<u8> {
    [
        message(b'P', format!("\0select {number}\0\0\0").as_bytes()),
        message(b'B', b"\0\0\0\0\0\0\0\0"),
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0\0"),
    ]
    .concat()
}

fn compare(told: &[Vec<String>], wanted: &[Vec<String>]) -> io::Result<()> {
    if told == wanted {
        return Ok(());
    }
    let place = told
        .iter()
        .zip(wanted)
        .position(|(told, wanted)| told != wanted);
    let row = |rows: &[Vec<String>]| {
        let row = place.and_then(|place| rows.get(place));
        let text = row.map_or(String::new(), |row| row.join(", "));
        text.chars().take(40).collect::<String>()
    };
    Err(io::Error::other(match place {
        Some(place) => format!(
            "answers are not right: row {} is {:?} instead of {:?}",
            place + 1,
            row(told),
            row(wanted)
        ),
        None => format!(
            "answers are not right: {} rows instead of {}",
            told.len(),
            wanted.len()
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(texts: &[&str]) -> Vec<Vec<String>> {
        texts.iter().map(|text| vec![(*text).to_owned()]).collect()
    }

    #[test]
    fn no_two_clients_ask_for_the_same() {
        for script in [
            Script::LargeRow,
            Script::Burst,
            Script::ManyRows,
            Script::Pipeline,
        ] {
            let [one, two] = [0, AT_ONCE - 1].map(|client| asked(script, client).unwrap());
            assert_ne!(one.rows, two.rows);
            assert_ne!(one.request, two.request);
        }
        assert!(asked(Script::Constant, 0).is_none());
    }

    #[test]
    fn a_wrong_answer_is_told() {
        compare(&rows(&["1"]), &rows(&["1"])).unwrap();
        let error = compare(&rows(&["1", "3"]), &rows(&["1", "2"])).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("row 2 is \"3\" instead of \"2\""),
            "{error}"
        );
        let error = compare(&rows(&["1"]), &rows(&["1", "2"])).unwrap_err();
        assert!(error.to_string().contains("1 rows instead of 2"), "{error}");
    }
}
