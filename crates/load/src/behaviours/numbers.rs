//! Sequences: `lastval()` and `currval()` return the session's own number or, in a later
//! transaction, PostgreSQL's error; never another session's number (`--state`).

use super::cancels::whole_or;
use super::states::{asks, meanwhile};
use crate::client::Client;
use crate::expect::error;
use crate::failure::Outcome;
use crate::messages::{column, oid};
use crate::session::{Part, text};

/// All clients use this sequence.
const SEQUENCE: &str = "howdah_load.numbers";

/// The queries for the last number, and PostgreSQL's error if there is none.
const QUESTIONS: [(&str, &str); 2] = [
    ("lastval()", "lastval is not yet defined in this session"),
    (
        "currval('howdah_load.numbers')",
        "currval of sequence \"numbers\" is not yet defined in this session",
    ),
];

/// Takes the next number.
fn take(client: &mut Client) -> Outcome<String> {
    client.session.unnamed = None;
    client.session.opaque = false;
    let rows = client.rows(&format!("select nextval('{SEQUENCE}')"))?;
    Ok(rows[0][0].clone().expect("a number is not null"))
}

/// Expects this number, or an error: another transaction has taken it.
fn asks_later(client: &mut Client, number: &str) -> Outcome {
    let (question, unknown) = *client.random.pick(&QUESTIONS);
    let rows = Part::Rows(vec![column("m", oid::TEXT)], vec![vec![text(number)]]);
    let sql = format!("select {question}::text as m");
    client.session.query(&sql, &[rows]);
    client.send()?;
    whole_or(client, error("55000", unknown))
}

/// Releases the server that a client keeps after asking for numbers.
fn let_go(client: &mut Client) -> Outcome {
    client.session.forget_statements();
    let values = client.session.initial_settings();
    let tag = "DISCARD ALL";
    client.query("discard all", &[Part::Set { tag, values }])
}

/// Takes numbers and asks for them, in one transaction and in several.
pub(super) fn numbers(client: &mut Client) -> Outcome {
    // A client that has asked once never gets a server with another session's numbers.
    asks(
        client,
        &format!("nextval('{SEQUENCE}') = lastval()"),
        "true",
    )?;
    if client.random.one_in(2) {
        let_go(client)?;
    }
    for _ in 0..client.random.between(1, 3) {
        if client.random.one_in(2) {
            let number = take(client)?;
            asks_later(client, &number)?;
            meanwhile(client)?;
            asks_later(client, &number)?;
        } else {
            client.query("begin", &[Part::Begin])?;
            let number = take(client)?;
            for (question, _) in QUESTIONS {
                asks(client, question, &number)?;
            }
            if client.random.one_in(2) {
                client.query("commit", &[Part::Commit])?;
            } else {
                client.query("rollback", &[Part::Rollback])?;
            }
            asks_later(client, &number)?;
        }
        if client.random.one_in(2) {
            let_go(client)?;
        }
    }
    let_go(client)
}
