//! Cancel requests. They may hit statements that run when the requests are sent, and no others.

use std::time::Duration;

use crate::client::Client;
use crate::connection::Connection;
use crate::expect::{Text, Want, all_accept, error};
use crate::failure::{Failure, Kind, Outcome};
use crate::login::send_cancel;
use crate::messages::{Message, column, oid, show_got};
use crate::session::{Block, Part, text};

const CANCELLED: &str = "canceling statement due to user request";

/// Sends a cancel request for `key` and leaves its connection open.
fn request(client: &mut Client, key: &[u8]) -> Outcome<Connection> {
    send_cancel(&client.run.url, key, client.run.limit)
}

fn own(client: &mut Client) -> Outcome<Connection> {
    let key = client.key.clone();
    request(client, &key)
}

/// Waits until the other side closes the connection. From then on the request has no effect.
fn settled(client: &mut Client, mut cancel: Connection) -> Outcome {
    let limit = client.run.limit;
    cancel.wait_for_end(limit).map_err(|failure| Failure {
        what: format!("the cancel connection was not closed: {}", failure.what),
        ..failure
    })
}

fn pause(client: &mut Client, most: usize) {
    let micros = client.random.below(most + 1) as u64;
    std::thread::sleep(Duration::from_micros(micros));
}

/// A statement that takes about `millis`, and its reply.
fn slow(client: &mut Client, millis: usize) -> (String, Part) {
    let mark = client.mark();
    let seconds = millis as f64 / 1000.0;
    let columns = vec![column("m", oid::TEXT)];
    let rows = vec![vec![text(mark.clone())]];
    (
        format!("select '{mark}'::text as m from pg_sleep({seconds})"),
        Part::Rows(columns, rows),
    )
}

/// Reads up to ReadyForQuery. Accepts the whole expected reply, or a beginning of it followed by
/// the error of a cancel.
fn whole_or_cancelled(client: &mut Client) -> Outcome {
    whole_or(client, error("57014", CANCELLED))
}

/// Reads up to ReadyForQuery. Accepts the whole expected reply, or a beginning of it followed by
/// `error`.
pub(super) fn whole_or(client: &mut Client, error: Want) -> Outcome {
    let wants = std::mem::take(&mut client.session.want);
    let mut got: Vec<Message> = Vec::new();
    loop {
        let message = client.connection().next()?;
        let last = message.tag == b'Z';
        got.push(message);
        if last {
            break;
        }
    }
    if all_accept(&wants, &got) {
        return Ok(());
    }
    let count = got.len();
    let cancelled = [error, wants[wants.len() - 1].clone()];
    let is_cancel = count >= 2 && count <= wants.len() && all_accept(&cancelled, &got[count - 2..]);
    if is_cancel && all_accept(&wants[..count - 2], &got[..count - 2]) {
        return Ok(());
    }
    Err(Failure {
        kind: Kind::Wrong,
        what: "neither the whole reply nor one that ends in the error".to_owned(),
        expected: wants.iter().map(Want::shown).collect(),
        got: got
            .iter()
            .map(|m| show_got(m.tag, &m.body, m.body.len()))
            .collect(),
    })
}

pub(super) fn race(client: &mut Client) -> Outcome {
    match client.random.below(8) {
        0 => return idle(client),
        1 => return wrong_key(client),
        2 => return pipelined(client),
        _ => {}
    }
    let millis = client.random.between(0, 4);
    let (sql, part) = slow(client, millis);
    client.session.query(&sql, &[part]);
    client.send()?;
    pause(client, millis * 1300 + 300);
    let cancel = own(client)?;
    match client.random.below(3) {
        0 => {
            whole_or_cancelled(client)?;
            settled(client, cancel)?;
        }
        1 => {
            settled(client, cancel)?;
            whole_or_cancelled(client)?;
        }
        _ => {
            // The request may still hit the next statement, too. (PostgreSQL signals the process
            // and its group, so one request can cancel two statements in flight.)
            whole_or_cancelled(client)?;
            let (sql, part) = slow(client, 1);
            client.session.query(&sql, &[part]);
            client.send()?;
            whole_or_cancelled(client)?;
            settled(client, cancel)?;
        }
    }
    client.prove()?;
    if client.random.one_in(3) {
        let (sql, part) = slow(client, 2);
        client.query(&sql, &[part])?;
    }
    Ok(())
}

/// A statement long enough for another client's cancel to hit it, which must not happen.
pub(super) fn bystander(client: &mut Client) -> Outcome {
    let millis = client.random.between(1, 8);
    let (sql, part) = slow(client, millis);
    client.query(&sql, &[part])
}

/// A cancel request while no statement runs has no effect, inside a block or outside.
fn idle(client: &mut Client) -> Outcome {
    let block = client.random.one_in(2);
    if block {
        client.query("begin", &[Part::Begin])?;
    }
    let cancel = own(client)?;
    settled(client, cancel)?;
    let (sql, part) = slow(client, 1);
    client.query(&sql, &[part])?;
    if block {
        client.query("commit", &[Part::Commit])
    } else {
        client.prove()
    }
}

fn wrong_key(client: &mut Client) -> Outcome {
    let mut key = client.key.clone();
    let at = key.len() - 1;
    key[at] ^= 1 << client.random.below(8);
    let (sql, part) = slow(client, 3);
    client.session.query(&sql, &[part]);
    client.send()?;
    let cancel = request(client, &key)?;
    client.expect()?;
    settled(client, cancel)
}

/// Several groups in flight.
fn pipelined(client: &mut Client) -> Outcome {
    let count = client.random.between(2, 4);
    let mut replies = Vec::new();
    for _ in 0..count {
        let (sql, part) = slow(client, 1);
        client.session.query(&sql, &[part]);
        replies.push(std::mem::take(&mut client.session.want));
    }
    client.send()?;
    pause(client, count * 1500);
    let cancel = own(client)?;
    for wants in replies {
        client.session.want = wants;
        whole_or_cancelled(client)?;
    }
    settled(client, cancel)?;
    client.prove()
}

/// A cancel request that is sent while the statement certainly runs must hit it.
pub(super) fn sure(client: &mut Client) -> Outcome {
    let mark = client.mark();
    let block = client.random.one_in(2);
    if block {
        client.query("begin", &[Part::Begin])?;
    }
    let seconds = client.run.limit.as_secs().max(1) * 2;
    let sql = format!("do $$ begin raise notice '{mark}'; perform pg_sleep({seconds}); end $$");
    let started = Want::Report {
        tag: b'N',
        severity: "NOTICE",
        code: "00000",
        text: Text::Is(mark),
    };
    client.session.query(
        &sql,
        &[
            Part::Raw(vec![started]),
            Part::Error(error("57014", CANCELLED)),
        ],
    );
    let rest = client.session.want.split_off(1);
    client.go()?;
    pause(client, 500);
    let cancel = own(client)?;
    client.session.want = rest;
    client.expect()?;
    settled(client, cancel)?;
    if block {
        debug_assert_eq!(client.session.block(), Block::Failed);
        client.query("rollback", &[Part::Rollback])?;
    }
    client.prove()
}
