//! Begins and ends a link, on both sides at once.

use crate::client::Client;
use crate::ids::{ClientId, ServerId, Time};
use crate::server::Server;

/// A client gets a server. Howdah passes the client's messages on at once.
pub(crate) fn bind(client: (ClientId, &mut Client), server: (ServerId, &mut Server)) {
    client.1.bind_to(server.0);
    server.1.bind_to(client.0);
}

/// A client gets a server. Howdah holds the client's messages until a message of its own is
/// answered.
pub(crate) fn bind_held(client: (ClientId, &mut Client), server: (ServerId, &mut Server)) {
    client.1.bind_held_to(server.0);
    server.1.bind_held_to(client.0);
}

/// A link ends. The client is idle; the server keeps the answers that PostgreSQL still owes.
#[inline(always)]
pub(crate) fn part(client: &mut Client, server: &mut Server, now: Time) {
    server.session.end_inquiry();
    // The listener has heard all the server's notifications only after a round.
    let over = !client.is_hushed() && !client.is_leaving() && !server.link.is_owed();
    server.session.note_user(client.listens() && over);
    client.becomes_idle(now);
    server.comes_free(now);
    server.session.changes.forget_temporary();
    if server.link.ends() {
        server.statements.set_sql_prepared(true);
    }
}
