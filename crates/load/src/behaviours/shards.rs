//! Rows of a sharded table. Each client has keys of its own, and knows all of their rows.

use super::lists::{Request, ask};
use crate::client::Client;
use crate::failure::{Failure, Kind, Outcome};
use crate::messages::{column, oid};
use crate::session::{Part, text};

/// How many keys each client has.
const KEYS: usize = 6;
/// A key with this many rows gets no more.
const MOST: usize = 12;

// Columns of no table: their descriptions are the same everywhere.
const LOOK: &str =
    "select key + 0 as key, n + 0 as n from howdah_load.kept where key = $1 order by 2";
const ADD: &str = "insert into howdah_load.kept (key, n) values ($1, $2)";
const DROP: &str = "delete from howdah_load.kept where key = $1 and n = $2";

/// A text with its values in it.
fn with(sql: &str, values: &[i64]) -> String {
    let named = (1..).zip(values);
    named.fold(sql.to_owned(), |sql, (number, value)| {
        sql.replace(&format!("${number}"), &value.to_string())
    })
}

/// One of the client's keys whose rows are known.
fn any_key(client: &mut Client) -> i64 {
    let first = client.id * KEYS;
    let known = |client: &Client, key| !client.books.unsure.contains(&key);
    let key = (first + client.random.below(KEYS)) as i64;
    // After a failure, a key is left alone. A client that has none left uses keys of nobody.
    match known(client, key) {
        true => key,
        false => -i64::from(client.serial()) * 10_000 - first as i64,
    }
}

/// Looks at all rows of a key, by either protocol.
fn look(client: &mut Client, key: i64) -> Outcome {
    let rows = client.books.kept.get(&key).into_iter().flatten();
    let rows: Vec<[String; 2]> = rows.map(|n| [key.to_string(), n.to_string()]).collect();
    if client.random.one_in(2) {
        let columns = vec![column("key", oid::INT8), column("n", oid::INT4)];
        let rows = rows.into_iter().map(|row| row.map(text).to_vec()).collect();
        return client.query(&with(LOOK, &[key]), &[Part::Rows(columns, rows)]);
    }
    let mut request = Request::default();
    request.run(&mut client.books.lists, "kept_look", LOOK, &[key]);
    request.sync();
    let found = ask(client, &request, None)?;
    let wanted: Vec<Vec<_>> = rows.into_iter().map(|row| row.map(Some).to_vec()).collect();
    match found == wanted {
        true => Ok(()),
        false => Err(Failure::new(
            Kind::Wrong,
            format!("key {key} has {found:?}, not {wanted:?}"),
        )),
    }
}

/// Runs a statement that changes one row, by either protocol.
fn change(
    client: &mut Client,
    name: &'static str,
    sql: &str,
    tag: &str,
    values: &[i64],
) -> Outcome {
    if client.random.one_in(2) {
        return client.query(&with(sql, values), &[Part::Tag(tag.to_owned())]);
    }
    let mut request = Request::default();
    request.run(&mut client.books.lists, name, sql, values);
    request.sync();
    ask(client, &request, None).map(drop)
}

/// Adds a row to a key, or takes one away.
fn write(client: &mut Client, key: i64) -> Outcome {
    let rows = client.books.kept.entry(key).or_default();
    let last = rows.last().copied().filter(|_| rows.len() >= MOST);
    if let Some(n) = last {
        rows.remove(&n);
        return change(client, "kept_drop", DROP, "DELETE 1", &[key, n.into()]);
    }
    let n = client.serial();
    client.books.kept.entry(key).or_default().insert(n);
    change(client, "kept_add", ADD, "INSERT 0 1", &[key, n.into()])
}

/// Until its end, the rows of a key are not known.
fn surely(client: &mut Client, key: i64, run: fn(&mut Client, i64) -> Outcome) -> Outcome {
    client.books.unsure.insert(key);
    run(client, key)?;
    client.books.unsure.remove(&key);
    Ok(())
}

pub(super) fn single(client: &mut Client) -> Outcome {
    let key = any_key(client);
    surely(client, key, |client, key| {
        if client.random.one_in(2) {
            write(client, key)?;
        }
        look(client, key)
    })
}

pub(super) fn transaction(client: &mut Client) -> Outcome {
    let key = any_key(client);
    surely(client, key, |client, key| {
        let before = client.books.kept.get(&key).cloned().unwrap_or_default();
        client.query("begin", &[Part::Begin])?;
        // These show no shard.
        if client.random.one_in(3) {
            let set = "set local statement_timeout = '60s'";
            client.query(set, &[Part::Tag("SET".to_owned())])?;
        }
        if client.random.one_in(3) {
            client.query("savepoint s", &[Part::Tag("SAVEPOINT".to_owned())])?;
        }
        for _ in 0..client.random.between(1, 3) {
            write(client, key)?;
            look(client, key)?;
        }
        if client.random.one_in(3) {
            client.query("rollback", &[Part::Rollback])?;
            client.books.kept.insert(key, before);
        } else {
            client.query("commit", &[Part::Commit])?;
        }
        look(client, key)
    })
}
