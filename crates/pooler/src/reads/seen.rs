//! What a client has seen, noted when it gives its server back.

use std::sync::atomic::Ordering;

use crate::event::{ClientId, ServerId};
use crate::pooler::Pooler;

impl Pooler {
    /// A client has got its last answer from a server.
    pub(crate) fn client_has_seen(&mut self, client: ClientId, server: ServerId) {
        let begun = self.begun.load(Ordering::SeqCst);
        let instance = self.servers.get(server).and_then(|server| server.instance);
        let client = gone!(self.clients.get_mut(client));
        client.sees(begun, instance);
    }
}
