//! `in_hot_standby`: the one reported parameter that belongs to the whole PostgreSQL server, not to
//! a session. A promotion changes it everywhere. Each PostgreSQL session reports this once, to its
//! current client. Howdah reports it to all clients that know the old value: to new clients in
//! their greeting, to others when they next get a server that has reported the change.

use howdah_wire::write;

use crate::client::Client;
use crate::event::{ClientId, Out, Peer};
use crate::login::key::Parameter;
use crate::server::Server;

/// The parameter's name.
pub const NAME: &[u8] = b"in_hot_standby";

/// True if the value means a standby.
pub fn read(value: &[u8]) -> bool {
    value == b"on"
}

/// The value in a greeting; `None` before PostgreSQL 14.
pub fn among(parameters: &[Parameter]) -> Option<bool> {
    let (_, value) = parameters.iter().find(|(name, _)| **name == *NAME)?;
    Some(read(value))
}

pub(crate) fn word(standby: bool) -> &'static [u8] {
    if standby { b"on" } else { b"off" }
}

/// Reports the value to a client that gets a server, if the client knows another value.
#[inline]
pub fn tell(id: ClientId, client: &mut Client, server: &Server, out: &mut Out) {
    if let (Some(told), Some(said)) = (client.standby, server.standby)
        && told != said
        // Whose reads go to standbys is told of its own target only.
        && client.read_mark.is_none()
    {
        client.set_told_standby(Some(said));
        out.send_with(Peer::Client(id), |buf| {
            write::parameter_status(buf, NAME, word(said));
        });
    }
}
