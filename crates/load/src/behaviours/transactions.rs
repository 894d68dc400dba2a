//! Explicit transactions: successful ones, failed ones, savepoints, and PREPARE in SQL.

use super::queries::any_select;
use super::statements::{any_name, ensure, put_call};
use crate::client::Client;
use crate::expect::error;
use crate::failure::Outcome;
use crate::messages::{column, oid};
use crate::session::{Block, Part, text};

/// Begins a block by the simple or the extended protocol.
fn begin(client: &mut Client) -> Outcome {
    if client.random.one_in(3) {
        client.session.command("begin", &Part::Begin);
        client.session.sync();
        return client.go();
    }
    let texts = ["begin", "begin isolation level repeatable read read only"];
    let sql = texts[client.random.below(2)];
    client.query(sql, &[Part::Begin])
}

fn inside(client: &mut Client) -> Outcome {
    if client.random.one_in(2) {
        let (sql, part) = any_select(client);
        return client.query(&sql, &[part]);
    }
    let name = any_name(client);
    let statement = ensure(client, name)?;
    put_call(client, name, &statement);
    client.session.sync();
    client.go()
}

pub(super) fn succeed(client: &mut Client) -> Outcome {
    begin(client)?;
    for _ in 0..client.random.between(1, 4) {
        inside(client)?;
    }
    match client.random.below(5) {
        0 => client.query("begin", &[Part::Begin])?,
        1 => {
            client.query("savepoint s", &[Part::Tag("SAVEPOINT".to_owned())])?;
            inside(client)?;
            client.query("rollback to s", &[Part::Tag("ROLLBACK".to_owned())])?;
            client.query("release s", &[Part::Tag("RELEASE".to_owned())])?;
        }
        _ => {}
    }
    let commit = client.random.one_in(2);
    let part = if commit { Part::Commit } else { Part::Rollback };
    let sql = if commit { "commit" } else { "rollback" };
    if client.random.one_in(3) {
        client.session.command(sql, &part);
        client.session.sync();
        client.go()?;
    } else {
        client.query(sql, std::slice::from_ref(&part))?;
    }
    if client.random.one_in(10) {
        // A second time: a warning, and the same tag.
        client.query(sql, &[part])?;
    }
    Ok(())
}

/// A failing statement, by either protocol.
fn break_it(client: &mut Client) -> Outcome {
    match client.random.below(4) {
        0 => client.query(
            "select * from howdah_load.no_such_table",
            &[Part::Error(error(
                "42P01",
                "relation \"howdah_load.no_such_table\" does not exist",
            ))],
        ),
        1 => {
            client.session.parse(
                "",
                &crate::statement::Statement::of(crate::statement::Shape::Broken),
            );
            client.session.sync();
            client.go()
        }
        2 => {
            let statement = crate::statement::Statement::of(crate::statement::Shape::Fails);
            client.session.parse("", &statement);
            put_call(client, "", &statement);
            client.session.sync();
            client.go()
        }
        _ => client.query(
            "selekt",
            &[Part::Error(error(
                "42601",
                "syntax error at or near \"selekt\"",
            ))],
        ),
    }
}

pub(super) fn fail(client: &mut Client) -> Outcome {
    // Prepared before, used inside after the failure.
    let name = any_name(client);
    let statement = ensure(client, name)?;
    begin(client)?;
    inside(client)?;
    let savepoint = client.random.one_in(3);
    if savepoint {
        client.query("savepoint s", &[Part::Tag("SAVEPOINT".to_owned())])?;
    }
    break_it(client)?;
    for _ in 0..client.random.below(3) {
        match client.random.below(3) {
            0 => {
                let (sql, part) = any_select(client);
                client.query(&sql, &[part])?;
            }
            1 => {
                let call = client.call(&statement);
                client.session.bind("", name, &call);
                client.session.execute("", 0);
                client.session.sync();
                client.go()?;
            }
            _ => {
                // Poolers may skip a known Parse. In a failed transaction it must be an error.
                client.session.parse("in a failed transaction", &statement);
                client.session.sync();
                client.go()?;
            }
        }
    }
    if savepoint {
        client
            .session
            .recover("rollback to savepoint s", "ROLLBACK");
        client.go()?;
        inside(client)?;
    }
    debug_assert_ne!(client.session.block(), Block::Idle);
    if client.random.one_in(2) {
        client.query("commit", &[Part::Commit])
    } else if client.random.one_in(2) {
        client.query("rollback", &[Part::Rollback])
    } else {
        client.session.command("rollback", &Part::Rollback);
        client.session.sync();
        client.go()
    }
}

pub(super) fn sql_prepare(client: &mut Client) -> Outcome {
    let mark = client.mark();
    let name = format!("sql_{mark}");
    client.query("begin", &[Part::Begin])?;
    let sql = format!("prepare {name}(int) as select '{mark}'::text as m, $1 as n");
    client.query(&sql, &[Part::Tag("PREPARE".to_owned())])?;
    for n in 0..client.random.between(1, 3) {
        let columns = vec![column("m", oid::TEXT), column("n", oid::INT4)];
        let rows = vec![vec![text(mark.clone()), text(n.to_string())]];
        client.query(
            &format!("execute {name}({n})"),
            &[Part::Rows(columns, rows)],
        )?;
    }
    client.query(
        &format!("deallocate {name}"),
        &[Part::Tag("DEALLOCATE".to_owned())],
    )?;
    let gone = crate::session::no_statement(&name);
    client.query(&format!("execute {name}(1)"), &[Part::Error(gone)])?;
    client.query("rollback", &[Part::Rollback])
}
