//! The invariants of links.

use crate::pooler::Pooler;

impl Pooler {
    /// Verifies each link. Panics with the invariant's name if one does not hold.
    pub(crate) fn check_links(&self) {
        for (id, server) in self.servers.iter() {
            server.link.check();
            if let Some(client) = server.linked_client() {
                let client = self.clients.get(client).expect("a linked client exists");
                assert_eq!(
                    client.linked_server(),
                    Some(id),
                    "a link is seen from both sides"
                );
            }
        }
        for (id, client) in self.clients.iter() {
            if let Some(server) = client.linked_server() {
                let server = self.servers.get(server).expect("a linked server exists");
                assert_eq!(
                    server.linked_client(),
                    Some(id),
                    "a link is seen from both sides"
                );
            }
        }
    }
}
