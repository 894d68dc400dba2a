//! Where a link begins and ends, always on both sides at once.

use crate::client::Client;
use crate::ids::{ClientId, ServerId, Time};
use crate::server::Server;

/// A client gets a server: both sides know each other, and the client's messages go.
pub(crate) fn bind(client: (ClientId, &mut Client), server: (ServerId, &mut Server)) {
    client.1.bind_to(server.0);
    server.1.bind_to(client.0);
}

/// The same, but the client's messages are held until a message of Howdah's is answered.
pub(crate) fn bind_held(client: (ClientId, &mut Client), server: (ServerId, &mut Server)) {
    client.1.bind_held_to(server.0);
    server.1.bind_held_to(client.0);
}

/// A link ends: the client rests, and the server is left with what it owes.
#[inline(always)]
pub(crate) fn part(client: &mut Client, server: &mut Server, now: Time) {
    server.end_inquiry();
    // Behind a round, and only there, all is heard that it has notified.
    let over = !client.is_hushed() && !client.leaving && !server.link.is_owed();
    server.serves(client.listens() && over);
    client.rests(now);
    server.comes_free(now);
    server.link.ends();
}
