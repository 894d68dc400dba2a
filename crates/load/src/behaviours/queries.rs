//! The simple query protocol, and function calls.

use crate::client::Client;
use crate::expect::error;
use crate::failure::Outcome;
use crate::messages::{Row, column, function_call, oid};
use crate::session::{Part, text};

fn one_row(client: &mut Client) -> (String, Part) {
    let mark = client.mark();
    let n = client.serial();
    let columns = vec![column("m", oid::TEXT), column("n", oid::INT4)];
    let row = vec![text(mark.clone()), text(n.to_string())];
    (
        format!("select '{mark}'::text as m, {n}::int4 as n"),
        Part::Rows(columns, vec![row]),
    )
}

fn series(client: &mut Client) -> (String, Part) {
    let mark = client.mark();
    let count = client.random.below(40);
    let columns = vec![column("i", oid::INT4), column("m", oid::TEXT)];
    let row = |i: usize| -> Row { vec![text(i.to_string()), text(mark.clone())] };
    let rows = (1..=count).map(row).collect();
    let sql =
        format!("select i::int4 as i, '{mark}'::text as m from generate_series(1, {count}) i");
    (sql, Part::Rows(columns, rows))
}

fn odd_values(client: &mut Client) -> (String, Part) {
    let mark = client.mark();
    let columns = vec![
        column("nothing", oid::TEXT),
        column("empty", oid::TEXT),
        column("truth", oid::BOOL),
        column("m", oid::TEXT),
    ];
    let row = vec![None, text(""), text("t"), text(mark.clone())];
    let sql = format!("select null::text as nothing, '' as empty, true as truth, '{mark}' as m");
    (sql, Part::Rows(columns, vec![row]))
}

pub(super) fn any_select(client: &mut Client) -> (String, Part) {
    match client.random.below(6) {
        0 => series(client),
        1 => odd_values(client),
        2 => ("select".to_owned(), Part::Rows(vec![], vec![vec![]])),
        _ => one_row(client),
    }
}

pub(super) fn simple(client: &mut Client) -> Outcome {
    match client.random.below(12) {
        0 => client.query("", &[]),
        1 => client.query("-- only a comment", &[]),
        2 => {
            // Two simple queries in flight: legal, but rare among drivers.
            let (first, part) = any_select(client);
            client.session.query(&first, &[part]);
            let (second, part) = any_select(client);
            client.session.query(&second, &[part]);
            client.go()
        }
        _ => {
            let (sql, part) = any_select(client);
            client.query(&sql, &[part])
        }
    }
}

pub(super) fn multi(client: &mut Client) -> Outcome {
    let count = client.random.between(2, 6);
    let failing = client.random.one_in(3).then(|| client.random.below(count));
    let block = client.random.one_in(4);
    let mut texts = Vec::new();
    let mut parts = Vec::new();
    if block {
        texts.push("begin".to_owned());
        parts.push(Part::Begin);
    }
    for index in 0..count {
        if failing == Some(index) {
            texts.push("select 1 / (i - 1) from generate_series(1, 1) i".to_owned());
            let columns = vec![column("?column?", oid::INT4)];
            let body = crate::messages::row_description(&columns, &[]);
            let message = crate::messages::Message { tag: b'T', body };
            parts.push(Part::Raw(vec![crate::expect::Want::Exact(message)]));
            parts.push(Part::Error(error("22012", "division by zero")));
        } else if client.random.one_in(5) {
            texts.push("set local work_mem = '4MB'; reset work_mem".to_owned());
            parts.push(Part::Tag("SET".to_owned()));
            parts.push(Part::Tag("RESET".to_owned()));
        } else {
            let (sql, part) = any_select(client);
            texts.push(sql);
            parts.push(part);
        }
    }
    if block {
        texts.push("commit".to_owned());
        parts.push(Part::Commit);
    }
    client.query(&texts.join("; "), &parts)?;
    if block && failing.is_some() {
        client.query("rollback", &[Part::Rollback])?;
    }
    Ok(())
}

/// `int4pl(int4, int4)` and `int4div(int4, int4)`, by their oids.
const ADD: u32 = 177;
const DIVIDE: u32 = 154;

pub(super) fn function(client: &mut Client) -> Outcome {
    let n = client.serial();
    let zero = client.random.one_in(5);
    let (function, with) = if zero { (DIVIDE, 0i32) } else { (ADD, 5) };
    let arguments = [n.to_be_bytes().to_vec(), with.to_be_bytes().to_vec()];
    function_call(&mut client.session.out, function, &arguments);
    if zero {
        client.session.want.push(error("22012", "division by zero"));
    } else {
        let mut body = 4u32.to_be_bytes().to_vec();
        body.extend_from_slice(&(n + 5).to_be_bytes());
        client.session.exact(b'V', body);
    }
    client.session.exact(b'Z', b"I".to_vec());
    client.go()
}
