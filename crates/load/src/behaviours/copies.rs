//! COPY in and out, successful and failing, by the simple and the extended protocol.

use crate::client::Client;
use crate::expect::{Want, error};
use crate::failure::Outcome;
use crate::messages::{self, Arguments, bare, copy_data, put};
use crate::session::{Block, Part};

/// The body of a CopyInResponse or CopyOutResponse for `columns` text columns.
fn copy_response(columns: u16) -> Vec<u8> {
    let mut body = vec![0];
    body.extend_from_slice(&columns.to_be_bytes());
    body.extend((0..columns).flat_map(|_| [0, 0]));
    body
}

/// Lines for the table `copied`, their number, and their unique mark.
fn lines(client: &mut Client) -> (Vec<u8>, usize, String) {
    let count = match client.random.below(20) {
        0 => 0,
        1 => client.random.between(2_000, 20_000),
        _ => client.random.between(1, 60),
    };
    let mark = client.mark();
    let mut data = Vec::new();
    for n in 0..count {
        let line = format!("{}\t{}\t{n}\t{mark}\n", client.run.name, client.id);
        data.extend_from_slice(line.as_bytes());
    }
    (data, count, mark)
}

/// CopyData messages of `data`, split at random.
fn put_data(client: &mut Client, data: &[u8]) {
    let most = if data.len() > 20_000 { 30_000 } else { 300 };
    let mut rest = data;
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(rest.len().min(client.random.between(1, most)));
        copy_data(&mut client.session.out, piece);
        rest = tail;
    }
}

const INTO: &str = "copy howdah_load.copied (run, client, n, payload) from stdin";

/// Starts a COPY FROM STDIN. True for the extended protocol (a Sync must follow).
fn start(client: &mut Client) -> Outcome<bool> {
    let extended = client.random.one_in(2);
    if extended {
        client.session.parse_text(INTO, &[]);
        client.session.bind_text(&Arguments::default());
        client.session.execute_text();
        // libpq sends its Sync here. A server in copy mode ignores it.
        let tag = if client.random.one_in(2) { b'S' } else { b'H' };
        bare(&mut client.session.out, tag);
    } else {
        messages::query(&mut client.session.out, INTO);
        client.session.unnamed = None;
        client.session.opaque = false;
    }
    client.session.exact(b'G', copy_response(4));
    if client.random.one_in(2) {
        client.go()?;
    }
    Ok(extended)
}

/// ReadyForQuery after a COPY: after a Sync in the extended protocol.
fn finish(client: &mut Client, extended: bool) {
    if extended {
        client.session.sync();
    } else {
        client.session.ready_after_simple();
    }
}

pub(super) fn into(client: &mut Client) -> Outcome {
    let block = !client.random.one_in(4);
    if block {
        client.query("begin", &[Part::Begin])?;
    }
    let (data, count, mark) = lines(client);
    let extended = start(client)?;
    put_data(client, &data);
    bare(&mut client.session.out, b'c');
    client.session.complete(&format!("COPY {count}"));
    finish(client, extended);
    client.go()?;
    // Selected by mark: after a broken connection, rows of an earlier COPY may remain.
    let here = format!(
        "where run = '{}' and client = {} and payload = '{mark}'",
        client.run.name, client.id
    );
    let sql = format!("delete from howdah_load.copied {here}");
    client.query(&sql, &[Part::Tag(format!("DELETE {count}"))])?;
    if block {
        client.query("rollback", &[Part::Rollback])
    } else {
        Ok(())
    }
}

pub(super) fn into_failing(client: &mut Client) -> Outcome {
    let block = client.random.one_in(2);
    if block {
        client.query("begin", &[Part::Begin])?;
    }
    if client.random.one_in(6) {
        // No COPY is running: PostgreSQL ignores these messages.
        put_data(client, b"stray\tdata\n");
        let tag = *client.random.pick(b"cf");
        put(&mut client.session.out, tag, |out| {
            if tag == b'f' {
                messages::put_text(out, "stray");
            }
        });
        if block {
            client.query("rollback", &[Part::Rollback])?;
        }
        return client.prove();
    }
    let (data, _, _) = lines(client);
    let extended = start(client)?;
    put_data(client, &data);
    let late = fail(client);
    client.session.fail_with(late.0);
    if !late.1 {
        bare(&mut client.session.out, b'c');
        finish(client, extended);
        client.go()?;
    } else if extended {
        // The error comes before the end of the data. The rest is skipped up to the Sync.
        client.go()?;
        put_data(client, b"late\tdata\nand\tmore\n");
        bare(&mut client.session.out, b'c');
        client.session.sync();
        client.go()?;
    } else {
        finish(client, extended);
        client.go()?;
        put_data(client, b"late\tdata\nand\tmore\n");
        bare(&mut client.session.out, b'c');
        if client.random.one_in(2) {
            client.send()?;
        }
    }
    if block {
        debug_assert_eq!(client.session.block(), Block::Failed);
        client.query("rollback", &[Part::Rollback])?;
    }
    client.prove()
}

/// Makes the COPY fail. Returns the error, and whether it comes before the end of the data.
fn fail(client: &mut Client) -> (Want, bool) {
    let out = &mut client.session.out;
    match client.random.below(4) {
        0 => {
            put(out, b'f', |out| messages::put_text(out, "enough of it"));
            (error("57014", "COPY from stdin failed: enough of it"), true)
        }
        1 => {
            copy_data(out, b"run\t1\n");
            (error("22P04", "missing data for column \"n\""), false)
        }
        _ => {
            copy_data(out, b"run\tnot a number\t1\tx\n");
            // Enough data follows that the server must have read the bad line.
            let rest = b"run\t1\t1\tx\n".repeat(client.random.between(10_000, 60_000));
            let early = client.random.one_in(2);
            let wait = client.random.between(1, rest.len());
            let length = if early { rest.len() } else { wait };
            put_data(client, &rest[..length]);
            let text = "invalid input syntax for type integer: \"not a number\"";
            (error("22P02", text), early)
        }
    }
}

pub(super) fn out(client: &mut Client) -> Outcome {
    let mark = client.mark();
    let count = match client.random.below(20) {
        0 => 30_000,
        1 => 0,
        _ => client.random.between(1, 200),
    };
    let failing = client.random.one_in(3) && count > 0;
    let at = if failing {
        client.random.between(1, count)
    } else {
        count + 1
    };
    let sql = format!(
        "copy (select i, '{mark}'::text, 10 / (i - {at}) from generate_series(1, {count}) i) to stdout"
    );
    let extended = client.random.one_in(2);
    if extended {
        client.session.parse_text(&sql, &[]);
        client.session.bind_text(&Arguments::default());
        client.session.execute_text();
    } else {
        messages::query(&mut client.session.out, &sql);
        client.session.unnamed = None;
        client.session.opaque = false;
    }
    client.session.exact(b'H', copy_response(3));
    for i in 1..at.min(count + 1) {
        let value = 10 / (i as i64 - at as i64);
        client
            .session
            .exact(b'd', format!("{i}\t{mark}\t{value}\n").into_bytes());
    }
    if failing {
        client.session.fail_with(error("22012", "division by zero"));
    } else {
        client.session.exact(b'c', vec![]);
        client.session.complete(&format!("COPY {count}"));
    }
    finish(client, extended);
    client.go()
}
