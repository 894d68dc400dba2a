//! Groups, Flush, and several groups in flight.

use super::statements::{any_name, ensure, put_call};
use crate::client::Client;
use crate::connection::Leave;
use crate::failure::Outcome;
use crate::session::Block;
use crate::statement::{Shape, Statement};

pub(super) fn flush(client: &mut Client) -> Outcome {
    if client.random.one_in(6) {
        client.session.flush();
        client.go()?;
    }
    for _ in 0..client.random.between(1, 4) {
        let statement = Statement::any(&mut client.random);
        match client.random.below(3) {
            0 => {
                client.session.parse("", &statement);
                put_call(client, "", &statement);
            }
            1 => {
                client.session.parse("", &statement);
                client.session.describe_statement("");
                client.session.flush();
                client.go()?;
                put_call(client, "", &statement);
            }
            _ => {
                let name = any_name(client);
                if client.session.statement(name).is_none() {
                    client.session.parse(name, &statement);
                }
                let statement = client.session.statement(name).expect("parsed above");
                put_call(client, name, &statement);
            }
        }
        client.session.flush();
        client.go()?;
    }
    if client.random.one_in(4) {
        // A flushed error. The server skips the rest up to the Sync.
        client.session.execute("nobody has this one", 0);
        client.go()?;
        client
            .session
            .parse("skipped", &Statement::of(Shape::Plain));
        client.session.flush();
        client.send()?;
    } else if client.random.one_in(6) && query_may_end_a_group(client) {
        return client.prove();
    }
    client.session.sync();
    client.go()
}

/// True if a simple query may end a group as a Sync does. PostgreSQL 17 and later leave a
/// pipeline's transaction half open there, and 18.6 then fails the next statement with XX000.
fn query_may_end_a_group(client: &Client) -> bool {
    let version = client.session.initial.get("server_version");
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major < 17)
}

pub(super) fn flush_leave(client: &mut Client) -> Outcome {
    if client.random.one_in(3) {
        client.query("begin", &[crate::session::Part::Begin])?;
    }
    let name = if client.random.one_in(2) {
        ""
    } else {
        any_name(client)
    };
    if name.is_empty() || client.session.statement(name).is_none() {
        let statement = Statement::any(&mut client.random);
        client.session.parse(name, &statement);
    }
    client.session.describe_statement(name);
    if client.random.one_in(2) {
        let statement = client.session.statement(name).expect("parsed above");
        put_call(client, name, &statement);
    }
    client.session.flush();
    if client.random.one_in(4) {
        client.send()?;
    } else {
        client.go()?;
    }
    match client.random.below(3) {
        0 => client.quit(),
        1 => client.leave(Leave::Fin),
        _ => client.leave(Leave::Reset),
    }
    client.connect(&[])?;
    client.prove()
}

/// One group of a pipeline, ended by its Sync.
fn put_group(client: &mut Client) {
    let name = any_name(client);
    match client.random.below(9) {
        0 => {
            // An unknown statement. A separate group closes it, so that only this client lacks it.
            client.session.close_statement(name);
            client.session.sync();
            let call = client.call(&Statement::of(Shape::Plain));
            client.session.bind("", name, &call);
            client.session.execute("", 0);
        }
        1 => {
            let statement = Statement::of(Shape::Fails);
            client.session.parse("", &statement);
            put_call(client, "", &statement);
            client
                .session
                .parse("after the error", &Statement::of(Shape::Plain));
        }
        2 => {
            client.session.parse("", &Statement::of(Shape::Broken));
            client.session.describe_statement("");
        }
        3 => {
            let (sql, part) = super::queries::any_select(client);
            client.session.query(&sql, &[part]);
            return;
        }
        4 => {
            let statement = Statement::any(&mut client.random);
            client.session.close_statement(name);
            client.session.parse(name, &statement);
            put_call(client, name, &statement);
        }
        5 => {
            let statement = Statement::any(&mut client.random);
            client.session.parse("", &statement);
            client.session.sync();
            put_call(client, "", &statement);
        }
        6 => client.session.close_statement(name),
        _ => {
            if client.session.statement(name).is_none() {
                let statement = Statement::any(&mut client.random);
                client.session.parse(name, &statement);
            }
            // In a failed transaction the Parse failed, and the name is still unknown.
            let known = client.session.statement(name);
            let statement = known.unwrap_or(Statement::of(Shape::Plain));
            put_call(client, name, &statement);
        }
    }
    client.session.sync();
}

fn put_block(client: &mut Client, shape: Shape) {
    let statement = Statement::of(shape);
    client.session.parse("", &statement);
    let call = client.call(&statement);
    client.session.bind("", "", &call);
    client.session.execute("", 0);
    client.session.sync();
}

pub(super) fn pipeline(client: &mut Client) -> Outcome {
    let block = client.random.one_in(4);
    if block {
        put_block(client, Shape::Begin);
    }
    for _ in 0..client.random.between(2, 8) {
        put_group(client);
    }
    if block {
        let end = if client.random.one_in(2) {
            Shape::Commit
        } else {
            Shape::Rollback
        };
        put_block(client, end);
    }
    client.go()?;
    if client.random.one_in(3) {
        client.prove()
    } else {
        Ok(())
    }
}

pub(super) fn group_error(client: &mut Client) -> Outcome {
    let before = any_name(client);
    let after = any_name(client);
    client.session.close_statement(before);
    client.session.close_statement(after);
    let kept = Statement::any(&mut client.random);
    client.session.parse(before, &kept);
    put_call(client, before, &kept);
    match client.random.below(6) {
        0 => client.session.parse("", &Statement::of(Shape::Broken)),
        1 => {
            let call = client.call(&Statement::of(Shape::Plain));
            client.session.bind("", "nobody has this one", &call);
        }
        2 => client.session.execute("nobody has this one", 0),
        3 => client.session.parse(before, &kept),
        4 => {
            // A call with the parameters of another statement.
            let other = if kept.parameters().len() == 2 {
                Shape::Sum
            } else {
                Shape::Echo
            };
            let call = client.call(&Statement::of(other));
            client.session.bind("", before, &call);
        }
        _ => {
            let statement = Statement::of(Shape::Fails);
            client.session.parse("", &statement);
            put_call(client, "", &statement);
        }
    }
    client.session.parse(after, &Statement::of(Shape::Plain));
    client.session.close_statement(before);
    client.session.describe_statement(before);
    client.session.sync();
    client.go()?;
    // Statements from before the error exist, those after it do not.
    super::statements::call(client, before, &kept)?;
    if before != after {
        client.session.describe_statement(after);
        client.session.sync();
        client.go()?;
        let statement = ensure(client, after)?;
        super::statements::call(client, after, &statement)?;
    }
    Ok(())
}

fn put_any_message(client: &mut Client) {
    // Failing statements have a reserved name: other behaviours call any statement they find.
    let name = match client.random.below(12) {
        0..=2 => "",
        3 => "failing",
        _ => any_name(client),
    };
    let portal = *client.random.pick(&["", "", "", "p1", "p2"]);
    let known = client.session.statement(name);
    match client.random.below(14) {
        0 | 1 => {
            let statement = match client.random.below(12) {
                0 => Statement::of(Shape::Broken),
                _ if name == "failing" => Statement::of(Shape::Fails),
                _ => Statement::any(&mut client.random),
            };
            client.session.parse(name, &statement);
        }
        2 => client.session.close_statement(name),
        3 => client.session.close_portal(portal),
        4 => client.session.describe_statement(name),
        5 => client.session.describe_portal(portal),
        6 => client.session.flush(),
        7 => client.session.sync(),
        8 => {
            let limit = client.random.below(4);
            client.session.execute(portal, limit);
        }
        _ => {
            let statement = known.unwrap_or(Statement::of(Shape::Plain));
            let call = client.call(&statement);
            client.session.bind(portal, name, &call);
            let limit = client.random.below(3);
            client.session.execute(portal, limit);
        }
    }
}

pub(super) fn walk(client: &mut Client) -> Outcome {
    let block = client.random.one_in(3);
    if block {
        put_block(client, Shape::Begin);
    }
    if client.session.opaque {
        client.session.close_statement("");
    }
    for _ in 0..client.random.between(3, 25) {
        put_any_message(client);
    }
    client.session.sync();
    if client.session.block() != Block::Idle {
        put_block(client, Shape::Rollback);
    }
    client.go()
}
