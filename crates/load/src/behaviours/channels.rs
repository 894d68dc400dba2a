//! LISTEN and NOTIFY: each notification comes once, in order, and before the ReadyForQuery of any
//! request after its commit (`--state`).

use super::states::tag;
use crate::client::Client;
use crate::connection::Leave;
use crate::expect::Want;
use crate::failure::Outcome;
use crate::messages::{Message, column, data_row, oid, row_description, text_body};
use crate::notification::Notification;
use crate::session::{Part, text};

/// The notifications that `client` gets, by itself (`own`) or by another client.
fn hears(client: &Client, own: bool, channel: &str, payloads: &[String]) -> Want {
    let one = |payload: &String| Notification::new(&client.key, own, channel, payload);
    Want::Heard(payloads.iter().map(one).collect())
}

/// Unique payloads.
fn payloads(client: &mut Client) -> Vec<String> {
    (0..client.random.between(1, 4))
        .map(|_| client.mark())
        .collect()
}

/// One text that sends all of these notifications.
fn notify(channel: &str, payloads: &[String]) -> String {
    let one = |payload: &String| format!("notify {channel}, '{payload}'");
    payloads.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The replies to this text.
fn notified(payloads: &[String]) -> Vec<Part> {
    payloads.iter().map(|_| tag("NOTIFY")).collect()
}

/// Sends each notification in its own statement, and expects them if the client `listens`.
fn notify_alone(client: &mut Client, channel: &str, listens: bool) -> Outcome<Vec<String>> {
    let said = payloads(client);
    for payload in &said {
        let heard = hears(client, true, channel, std::slice::from_ref(payload));
        let heard = listens.then_some(heard);
        if client.random.one_in(2) {
            let sql = format!("notify {channel}, '{payload}'");
            let parts = [tag("NOTIFY"), Part::Raw(heard.into_iter().collect())];
            client.query(&sql, &parts)?;
        } else {
            let sql = format!("select pg_notify('{channel}', '{payload}') as m");
            let row = vec![text("")];
            let exact = |tag, body| Want::Exact(Message { tag, body });
            let mut wants = vec![
                exact(b'T', row_description(&[column("m", oid::VOID)], &[])),
                exact(b'D', data_row(&row)),
                exact(b'C', text_body("SELECT 1")),
            ];
            wants.extend(heard);
            client.query(&sql, &[Part::Raw(wants)])?;
        }
    }
    Ok(said)
}

/// Notifies in a block, and expects this after the commit if the client `listens`.
fn notify_in_a_block(client: &mut Client, channel: &str, listens: bool) -> Outcome<Vec<String>> {
    let said = payloads(client);
    client.query("begin", &[Part::Begin])?;
    client.query(&notify(channel, &said), &notified(&said))?;
    client.prove()?;
    if client.random.one_in(3) {
        client.query("rollback", &[Part::Rollback])?;
        return Ok(Vec::new());
    }
    let heard = listens.then(|| hears(client, true, channel, &said));
    let parts = [Part::Commit, Part::Raw(heard.into_iter().collect())];
    client.query("commit", &parts)?;
    Ok(said)
}

/// Sends notifications in one of these ways.
fn say(client: &mut Client, channel: &str, listens: bool) -> Outcome<Vec<String>> {
    if client.random.one_in(2) {
        notify_alone(client, channel, listens)
    } else {
        notify_in_a_block(client, channel, listens)
    }
}

/// Any request, before whose end all of these notifications must come.
fn hear(client: &mut Client, channel: &str, said: &[String]) -> Outcome {
    let heard = hears(client, false, channel, said);
    client.session.want.push(heard);
    client.prove()
}

/// Sends LISTEN in one of several ways.
fn listen(client: &mut Client, channel: &str) -> Outcome {
    let sql = format!("listen {channel}");
    match client.random.below(3) {
        0 => {
            client.session.command(&sql, &tag("LISTEN"));
            client.session.sync();
            client.go()
        }
        1 => {
            client.query("begin", &[Part::Begin])?;
            client.query(&sql, &[tag("LISTEN")])?;
            client.query("commit", &[Part::Commit])
        }
        _ => client.query(&sql, &[tag("LISTEN")]),
    }
}

/// Two clients: one or both listen, and each sends notifications.
pub(super) fn notifications(client: &mut Client) -> Outcome {
    let channel = format!("channel_{}", client.id);
    let mut other = Client::new(client.run, client.id, client.serial() as u64);
    other.connect(&[])?;
    listen(client, &channel)?;
    let both = client.random.one_in(2);
    if both {
        listen(&mut other, &channel)?;
    }
    for _ in 0..client.random.between(1, 4) {
        match client.random.below(3) {
            0 => {
                let said = say(client, &channel, true)?;
                if both {
                    hear(&mut other, &channel, &said)?;
                }
            }
            1 => {
                let said = say(&mut other, &channel, both)?;
                hear(client, &channel, &said)?;
            }
            _ => {
                // Inside a transaction no notification comes.
                client.query("begin", &[Part::Begin])?;
                client.prove()?;
                let said = say(&mut other, &channel, both)?;
                client.prove()?;
                let heard = hears(client, false, &channel, &said);
                client.query("commit", &[Part::Commit, Part::Raw(vec![heard])])?;
            }
        }
    }
    client.query("unlisten *", &[tag("UNLISTEN")])?;
    say(&mut other, &channel, both)?;
    client.prove()?;
    other.leave(if client.random.one_in(2) {
        Leave::Fin
    } else {
        Leave::Reset
    });
    Ok(())
}
