//! Rows, parameters and texts of megabytes, read at different speeds.

use std::time::Duration;

use md5::{Digest as _, Md5};

use crate::client::Client;
use crate::connection::Pace;
use crate::failure::Outcome;
use crate::login::hex;
use crate::messages::{Arguments, column, data_row, oid, row_description};
use crate::session::{Part, text};

/// Sets the client's reading speed for one operation.
fn slow_down(client: &mut Client) {
    let bytes = client.random.between(8, 128) * 1024;
    let pause = Duration::from_micros(client.random.between(200, 3000) as u64);
    let slow = client.random.one_in(2);
    client.connection().pace = slow.then_some(Pace { bytes, pause });
}

/// A size in bytes: up to two megabytes, sometimes up to eight.
fn size(client: &mut Client) -> usize {
    match client.random.below(10) {
        0 => client.random.between(4 << 20, 8 << 20),
        1..=5 => client.random.between(512 << 10, 2 << 20),
        _ => client.random.between(10 << 10, 200 << 10),
    }
}

/// A mark, its count, and the mark repeated to about `size` bytes.
fn repeated(client: &mut Client, size: usize) -> (String, usize, String) {
    let mark = client.mark() + ".";
    let times = size / mark.len() + 1;
    let whole = mark.repeat(times);
    (mark, times, whole)
}

pub(super) fn rows(client: &mut Client) -> Outcome {
    slow_down(client);
    let result = rows_at_speed(client);
    if result.is_ok() {
        client.connection().pace = None;
    }
    result
}

fn rows_at_speed(client: &mut Client) -> Outcome {
    let size = size(client);
    let (mark, times, whole) = repeated(client, size);
    match client.random.below(3) {
        0 => {
            // Many rows of medium size.
            let count = 64;
            let times = times / count + 1;
            let columns = vec![column("i", oid::INT4), column("m", oid::TEXT)];
            let each = mark.repeat(times);
            let rows = (1..=count)
                .map(|i| vec![text(i.to_string()), text(each.clone())])
                .collect();
            let sql = format!(
                "select i::int4 as i, repeat('{mark}', {times}) as m from generate_series(1, {count}) i"
            );
            client.query(&sql, &[Part::Rows(columns, rows)])
        }
        1 => {
            let columns = vec![column("m", oid::TEXT)];
            let rows = vec![vec![text(whole)]];
            let sql = format!("select repeat('{mark}', {times}) as m");
            client.query(&sql, &[Part::Rows(columns, rows)])
        }
        _ => {
            // A pipeline behind a large row.
            let values = vec![text(mark), text(times.to_string())];
            let arguments = Arguments {
                values,
                ..Arguments::default()
            };
            client
                .session
                .parse_text("select repeat($1, $2) as m", &[oid::TEXT, oid::INT4]);
            client.session.bind_text(&arguments);
            client.session.execute_text();
            client.session.exact(b'D', data_row(&[text(whole)]));
            client.session.complete("SELECT 1");
            client.session.sync();
            let (sql, part) = super::queries::any_select(client);
            client.session.query(&sql, &[part]);
            client.go()
        }
    }
}

pub(super) fn parameters(client: &mut Client) -> Outcome {
    slow_down(client);
    let result = parameters_at_speed(client);
    if result.is_ok() {
        client.connection().pace = None;
    }
    result
}

fn parameters_at_speed(client: &mut Client) -> Outcome {
    let size = size(client);
    let (_, _, whole) = repeated(client, size);
    match client.random.below(4) {
        0 => {
            let digest = hex(&Md5::digest(whole.as_bytes()));
            let sql = "select length($1)::int4 as l, md5($1) as h";
            client.session.parse_text(sql, &[oid::BYTEA]);
            let length = whole.len().to_string();
            let values = vec![text(whole)];
            let arguments = Arguments {
                formats: vec![1],
                values,
                results: vec![],
            };
            client.session.bind_text(&arguments);
            client.session.execute_text();
            client
                .session
                .exact(b'D', data_row(&[text(length), text(digest)]));
            client.session.complete("SELECT 1");
            client.session.sync();
        }
        1 => {
            client.session.parse_text("select $1 as m", &[oid::TEXT]);
            client.session.flush();
            let arguments = Arguments {
                values: vec![text(whole.clone())],
                ..Arguments::default()
            };
            client.session.bind_text(&arguments);
            client.session.execute_text();
            client.session.exact(b'D', data_row(&[text(whole)]));
            client.session.complete("SELECT 1");
            client.session.sync();
        }
        2 => {
            let columns = vec![column("m", oid::TEXT)];
            let rows = vec![vec![text(whole.clone())]];
            let sql = format!("select '{whole}'::text as m");
            client.session.query(&sql, &[Part::Rows(columns, rows)]);
        }
        _ => {
            // A long text in a Parse.
            let whole = &whole[..whole.len().min(300_000)];
            let sql = format!("select length('{whole}')::int4 as l");
            client.session.parse_text(&sql, &[]);
            crate::messages::describe(&mut client.session.out, b'S', "");
            client.session.exact(b't', vec![0, 0]);
            let columns = [column("l", oid::INT4)];
            client.session.exact(b'T', row_description(&columns, &[]));
            client.session.sync();
            client.go()?;
            client.session.bind_text(&Arguments::default());
            client.session.execute_text();
            client
                .session
                .exact(b'D', data_row(&[text(whole.len().to_string())]));
            client.session.complete("SELECT 1");
            client.session.sync();
        }
    }
    client.go()
}
