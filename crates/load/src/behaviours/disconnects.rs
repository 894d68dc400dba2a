//! Clients that disconnect in the middle of any message.

use std::time::Duration;

use crate::client::Client;
use crate::connection::{Connection, Leave};
use crate::failure::Outcome;
use crate::login::{cancel_packet, startup_packet};
use crate::messages::{Arguments, bare, bind, copy_data, execute, parse, query};

fn insert(client: &Client, serial: i32) -> String {
    let (run, id) = (&client.run.name, client.id);
    format!("insert into howdah_load.vanished values ('{run}', {id}, {serial})")
}

/// Messages to be cut, and the insert that may be committed if all of them were sent.
fn script(client: &mut Client) -> (Vec<u8>, Option<i32>) {
    let mut out = Vec::new();
    let serial = client.serial();
    let insert = insert(client, serial);
    let run = |out: &mut Vec<u8>, sql: &str| {
        parse(out, "", sql, &[]);
        bind(out, "", "", &Arguments::default());
        execute(out, "", 0);
    };
    match client.random.below(8) {
        0 => {
            query(&mut out, &insert);
            (out, Some(serial))
        }
        1 => {
            run(&mut out, &insert);
            bare(&mut out, b'S');
            (out, Some(serial))
        }
        2 => {
            run(&mut out, &insert);
            if client.random.one_in(2) {
                bare(&mut out, b'H');
            }
            (out, None)
        }
        3 => {
            query(&mut out, "begin");
            query(&mut out, &insert);
            if client.random.one_in(2) {
                query(&mut out, "select 1 / 0");
            }
            query(&mut out, "select pg_sleep(0.002)");
            (out, None)
        }
        4 => {
            query(&mut out, "copy howdah_load.vanished from stdin");
            let line = format!("{}\t{}\t{serial}\n", client.run.name, client.id);
            for _ in 0..client.random.between(1, 200) {
                copy_data(&mut out, line.as_bytes());
            }
            (out, None)
        }
        5 => {
            let times = client.random.between(1000, 3_000_000);
            query(
                &mut out,
                &format!("select repeat('x', {times}), repeat('y', {times})"),
            );
            (out, None)
        }
        6 => {
            // The messages of the pipelines.
            for _ in 0..client.random.between(1, 4) {
                let statement = crate::statement::Statement::any(&mut client.random);
                let name = super::statements::any_name(client);
                client.session.close_statement(name);
                client.session.parse(name, &statement);
                super::statements::put_call(client, name, &statement);
                client.session.sync();
            }
            client.session.want.clear();
            (std::mem::take(&mut client.session.out), None)
        }
        _ => {
            query(
                &mut out,
                &format!("begin; {insert}; select pg_sleep(0.001)"),
            );
            query(&mut out, "commit");
            // Sent completely, the insert is committed.
            (out, Some(serial))
        }
    }
}

fn any_leave(client: &mut Client) -> Leave {
    if client.random.one_in(2) {
        Leave::Fin
    } else {
        Leave::Reset
    }
}

/// Disconnects in the middle of a startup or cancel packet, on a separate connection.
fn before_login(client: &mut Client) -> Outcome {
    let packet = if client.random.one_in(3) {
        // A complete request must not have our own key, because nothing waits for its end.
        let mut key = client.key.clone();
        key.iter_mut().for_each(|byte| *byte = !*byte);
        cancel_packet(&key)
    } else {
        startup_packet(
            &client.run.url,
            client.run.version,
            &[("application_name", "gone")],
        )
    };
    let mut connection = Connection::open(&client.run.url, client.run.limit)?;
    let cut = client.random.below(packet.len());
    connection.send(&packet[..cut])?;
    if client.random.one_in(3) {
        connection.send(&packet[cut..])?;
    }
    let how = any_leave(client);
    connection.leave(how);
    client.prove()
}

pub(super) fn anywhere(client: &mut Client) -> Outcome {
    if client.random.one_in(8) {
        return before_login(client);
    }
    let (bytes, may_stand) = script(client);
    let whole = client.random.one_in(3);
    let cut = if whole {
        bytes.len()
    } else {
        client.random.below(bytes.len())
    };
    if cut == bytes.len() {
        client.books.vanished_perhaps.extend(may_stand);
    }
    client.connection().send(&bytes[..cut])?;
    match client.random.below(3) {
        0 => {}
        1 => {
            let most = client.random.between(1, 200_000);
            client.connection().skim(most, Duration::from_millis(2));
        }
        _ => std::thread::sleep(Duration::from_micros(client.random.below(3000) as u64)),
    }
    let how = any_leave(client);
    client.leave(how);
    client.connect(&[])?;
    client.prove()
}
