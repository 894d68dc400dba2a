//! Prepared statements: named, unnamed, closed, duplicate, unknown, and a great many.

use crate::client::Client;
use crate::failure::Outcome;
use crate::statement::{Shape, Statement};

/// Names that all clients use, each client for other statements.
pub(super) const NAMES: &[&str] = &[
    "s0",
    "s1",
    "s2",
    "S_1",
    "__asyncpg_stmt_1__",
    "a name with \"quotes\"",
    "a_name_as_long_as_a_name_can_be_without_being_cut_0123456789_63",
];

pub(super) fn any_name(client: &mut Client) -> &'static str {
    NAMES[client.random.below(NAMES.len())]
}

/// Makes sure that `name` is prepared, by a separate group. Returns the statement.
pub(super) fn ensure(client: &mut Client, name: &str) -> Outcome<Statement> {
    if let Some(statement) = client.session.statement(name) {
        return Ok(statement);
    }
    let statement = Statement::any(&mut client.random);
    client.session.parse(name, &statement);
    if client.random.one_in(3) {
        client.session.describe_statement(name);
    }
    client.session.sync();
    client.go()?;
    Ok(statement)
}

/// Binds and executes the statement of `name` in one group.
pub(super) fn call(client: &mut Client, name: &str, statement: &Statement) -> Outcome {
    put_call(client, name, statement);
    client.session.sync();
    client.go()
}

/// As [`call`], without the Sync, and without sending.
pub(super) fn put_call(client: &mut Client, name: &str, statement: &Statement) {
    let call = client.call(statement);
    client.session.bind("", name, &call);
    if client.random.one_in(2) {
        client.session.describe_portal("");
    }
    client.session.execute("", 0);
}

pub(super) fn named(client: &mut Client) -> Outcome {
    let name = any_name(client);
    if client.session.statement(name).is_some() && client.random.one_in(4) {
        client.session.close_statement(name);
        if client.random.one_in(2) {
            client.session.sync();
            client.go()?;
        }
    }
    match client.session.statement(name) {
        Some(statement) => {
            for _ in 0..client.random.between(1, 3) {
                call(client, name, &statement)?;
            }
            if client.random.one_in(6) {
                client.session.describe_statement(name);
                client.session.sync();
                client.go()?;
            }
            Ok(())
        }
        None if client.random.one_in(2) => {
            let statement = ensure(client, name)?;
            call(client, name, &statement)
        }
        None => {
            let statement = Statement::any(&mut client.random);
            client.session.parse(name, &statement);
            if client.random.one_in(3) {
                client.session.describe_statement(name);
            }
            call(client, name, &statement)
        }
    }
}

pub(super) fn close(client: &mut Client) -> Outcome {
    let name = any_name(client);
    let old = ensure(client, name)?;
    let new = Statement::any(&mut client.random);
    match client.random.below(5) {
        0 => {
            // Everything in one group.
            client.session.close_statement(name);
            client.session.parse(name, &new);
            put_call(client, name, &new);
            client.session.close_statement(name);
            client.session.parse(name, &old);
            put_call(client, name, &old);
        }
        1 => {
            // A portal outlives its statement.
            let call = client.call(&old);
            client.session.bind("", name, &call);
            client.session.close_statement(name);
            client.session.execute("", 0);
            client.session.close_statement(name);
        }
        2 => {
            client.session.close_statement("never prepared by anyone");
            client.session.close_portal("never bound by anyone");
            client.session.close_statement("");
            client.session.close_portal("");
            put_call(client, name, &old);
        }
        3 => {
            client.session.close_statement(name);
            client.session.sync();
            client.session.parse(name, &new);
            client.session.sync();
            put_call(client, name, &new);
        }
        _ => {
            client.session.close_statement(name);
            client.session.sync();
            client.go()?;
            client.session.describe_statement(name);
            client.session.sync();
            client.go()?;
            client.session.parse(name, &new);
            client.session.describe_statement(name);
        }
    }
    client.session.sync();
    client.go()
}

pub(super) fn unknown(client: &mut Client) -> Outcome {
    let name = any_name(client);
    match client.random.below(6) {
        0 | 1 => {
            // A name that other clients probably have.
            client.session.close_statement(name);
            client.session.sync();
            client.go()?;
            let call = client.call(&Statement::of(Shape::Plain));
            client.session.bind("", name, &call);
            client.session.describe_portal("");
            client.session.execute("", 0);
        }
        2 => client.session.describe_statement("nobody has this one"),
        3 => client.session.describe_portal("nobody has this one"),
        4 => client.session.execute("nobody has this one", 0),
        _ => {
            // A simple query closes the unnamed statement.
            client.prove()?;
            let call = client.call(&Statement::of(Shape::Plain));
            client.session.bind("", "", &call);
            client.session.execute("", 0);
        }
    }
    client.session.sync();
    client.go()?;
    if client.random.one_in(2) {
        return client.prove();
    }
    let statement = ensure(client, name)?;
    call(client, name, &statement)
}

pub(super) fn duplicate(client: &mut Client) -> Outcome {
    let name = any_name(client);
    let old = if client.random.one_in(3) {
        // Twice in one group: the first one stays.
        client.session.close_statement(name);
        let statement = Statement::any(&mut client.random);
        client.session.parse(name, &statement);
        client.session.parse(name, &statement);
        client.session.execute("", 0);
        client.session.sync();
        client.go()?;
        statement
    } else {
        ensure(client, name)?
    };
    let new = if client.random.one_in(2) {
        old
    } else {
        Statement::any(&mut client.random)
    };
    client.session.parse(name, &new);
    client.session.describe_statement(name);
    client.session.sync();
    client.go()?;
    call(client, name, &old)
}

/// The number of names in `many`: more than PgBouncer's default of 200 for each server.
const MANY: usize = 260;

pub(super) fn many(client: &mut Client) -> Outcome {
    for _ in 0..4 {
        let name = format!("many_{}", client.random.below(MANY));
        if client.random.one_in(3) {
            client.session.close_statement(&name);
        }
        if client.session.statement(&name).is_none() {
            // Texts differ between clients and over time, so that caches overflow.
            let k = (client.id * 1000 + client.random.below(500)) as i32;
            let shape = *client.random.pick(&[Shape::Echo, Shape::Sum, Shape::Plain]);
            client.session.parse(
                &name,
                &Statement {
                    shape,
                    k,
                    typed: true,
                },
            );
        }
        let statement = client.session.statement(&name).expect("parsed just now");
        put_call(client, &name, &statement);
        if client.random.one_in(3) {
            client.session.sync();
        }
    }
    client.session.sync();
    client.go()
}

pub(super) fn unnamed_split(client: &mut Client) -> Outcome {
    let statement = Statement::any(&mut client.random);
    client.session.parse("", &statement);
    if client.random.one_in(2) {
        client.session.describe_statement("");
    }
    client.session.sync();
    client.go()?;
    for _ in 0..client.random.between(1, 3) {
        if client.random.one_in(3) {
            // A named statement does not affect the unnamed one.
            let name = any_name(client);
            let other = ensure(client, name)?;
            call(client, name, &other)?;
        }
        if client.random.one_in(4) {
            client.session.describe_statement("");
            client.session.sync();
            client.go()?;
        }
        call(client, "", &statement)?;
    }
    if client.random.one_in(4) {
        // Nor does an error outside of its Parse.
        client.session.execute("nobody has this one", 0);
        client.session.sync();
        client.go()?;
        call(client, "", &statement)?;
    }
    if client.random.one_in(4) {
        client.session.parse("", &Statement::of(Shape::Broken));
        client.session.sync();
        client.go()?;
        let call = client.call(&Statement::of(Shape::Plain));
        client.session.bind("", "", &call);
        client.session.sync();
        client.go()?;
    }
    Ok(())
}

pub(super) fn describe_flush(client: &mut Client) -> Outcome {
    let name = if client.random.one_in(2) {
        ""
    } else {
        any_name(client)
    };
    if client.session.statement(name).is_none() || name.is_empty() {
        let statement = Statement::any(&mut client.random);
        client.session.parse(name, &statement);
    }
    client.session.describe_statement(name);
    client.session.flush();
    client.go()?;
    let statement = client.session.statement(name).expect("parsed above");
    put_call(client, name, &statement);
    if client.random.one_in(2) {
        client.session.flush();
        client.go()?;
    }
    client.session.sync();
    client.go()
}
