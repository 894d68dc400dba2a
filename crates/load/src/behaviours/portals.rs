//! Portals that are read in pieces, and SQL cursors.

use crate::client::Client;
use crate::expect::Want;
use crate::failure::Outcome;
use crate::messages::{Message, Row, column, data_row, oid, row_description, text_body};
use crate::session::{Part, text};
use crate::statement::{Shape, Statement};

pub(super) fn limited(client: &mut Client) -> Outcome {
    let block = client.random.one_in(2);
    if block {
        client.query("begin", &[Part::Begin])?;
    }
    let statement = Statement {
        shape: Shape::Series,
        k: client.random.between(1, 3) as i32,
        typed: true,
    };
    let name = if client.random.one_in(2) {
        ""
    } else {
        super::statements::any_name(client)
    };
    if !name.is_empty() {
        client.session.close_statement(name);
    }
    client.session.parse(name, &statement);
    let portals: &[&str] = match client.random.below(3) {
        0 => &[""],
        1 => &["p1"],
        _ => &["p1", "", "p2"],
    };
    for portal in portals {
        let call = client.call(&statement);
        client.session.bind(portal, name, &call);
        if client.random.one_in(2) {
            client.session.describe_portal(portal);
        }
    }
    for _ in 0..client.random.between(2, 8) {
        let portal = *client.random.pick(portals);
        let limit = client.random.between(1, 3);
        client.session.execute(portal, limit);
        match client.random.below(4) {
            0 if block => {
                client.session.sync();
                client.go()?;
            }
            1 => {
                client.session.flush();
                client.go()?;
            }
            _ => {}
        }
    }
    for portal in portals {
        match client.random.below(3) {
            0 => client.session.close_portal(portal),
            1 => client.session.execute(portal, 0),
            _ => {}
        }
    }
    client.session.sync();
    client.go()?;
    if block {
        client.query("commit", &[Part::Commit])?;
        if client.random.one_in(3) {
            // Portals end with their transaction.
            client.session.execute(portals[0], 1);
            client.session.sync();
            client.go()?;
        }
    }
    Ok(())
}

fn fetched(mark: &str, from: usize, to: usize) -> Part {
    let columns = vec![column("i", oid::INT4), column("m", oid::TEXT)];
    let mut wants = vec![Want::Exact(Message {
        tag: b'T',
        body: row_description(&columns, &[]),
    })];
    for i in from..=to {
        let row: Row = vec![text(i.to_string()), text(mark)];
        wants.push(Want::Exact(Message {
            tag: b'D',
            body: data_row(&row),
        }));
    }
    let tag = format!("FETCH {}", (to + 1).saturating_sub(from));
    wants.push(Want::Exact(Message {
        tag: b'C',
        body: text_body(&tag),
    }));
    Part::Raw(wants)
}

pub(super) fn cursor(client: &mut Client) -> Outcome {
    let mark = client.mark();
    let count = client.random.between(3, 12);
    client.query("begin", &[Part::Begin])?;
    let sql = format!(
        "declare c cursor for select i::int4 as i, '{mark}'::text as m from generate_series(1, {count}) i"
    );
    client.query(&sql, &[Part::Tag("DECLARE CURSOR".to_owned())])?;
    client.query("fetch 2 from c", &[fetched(&mark, 1, 2)])?;
    client.query("move 1 in c", &[Part::Tag("MOVE 1".to_owned())])?;
    client.query("fetch all from c", &[fetched(&mark, 4, count)])?;
    if client.random.one_in(2) {
        client.query("close c", &[Part::Tag("CLOSE CURSOR".to_owned())])?;
    }
    client.query("commit", &[Part::Commit])
}
