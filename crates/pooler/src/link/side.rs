//! Who gets what a server sends.

use crate::client::Client;
use crate::event::{ClientId, Out, Peer};
use crate::inbox::Chunk;

/// Who gets what a server sends.
#[derive(Debug)]
pub enum Side<'a> {
    /// The server's client.
    Client(ClientId, &'a mut Client),
    /// The server has no client: all answers are dropped.
    Nobody,
}

impl Side<'_> {
    /// Relays a part of a message, or drops it if nobody gets it.
    #[inline(always)] // Every message passes here. A call would cost as much as the work.
    pub fn pass(&self, chunk: &mut Chunk<'_>, count: usize, out: &mut Out) {
        match self {
            Side::Client(id, _) => chunk.pass(count, Peer::Client(*id), out),
            Side::Nobody => chunk.at += count,
        }
    }

    /// Sends a message of Howdah's, if somebody gets it.
    #[inline]
    pub fn tell(&self, out: &mut Out, write: impl FnOnce(&mut Vec<u8>)) {
        if let Side::Client(id, _) = self {
            out.send_with(Peer::Client(*id), write);
        }
    }

    /// The client.
    #[inline]
    pub fn client(&self) -> Option<&Client> {
        match self {
            Side::Client(_, client) => Some(client),
            Side::Nobody => None,
        }
    }

    /// The client, to change it.
    #[inline]
    pub fn client_mut(&mut self) -> Option<&mut Client> {
        match self {
            Side::Client(_, client) => Some(client),
            Side::Nobody => None,
        }
    }

    /// True if a client gets the answers.
    #[inline]
    pub fn is_client(&self) -> bool {
        matches!(self, Side::Client(..))
    }
}
