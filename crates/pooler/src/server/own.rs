//! The bytes of servers that work for Howdah itself: logins, look-ups, checks. A listening connection,
//! which may get floods, reads for itself ([`crate::listen`]).

use crate::event::{Close, Out, ServerId};
use crate::limits;
use crate::next::Next;
use crate::pooler::Pooler;
use crate::server::ServerState;

impl Pooler {
    /// Handles bytes of a server that works for Howdah itself.
    pub(crate) fn own_bytes(&mut self, id: ServerId, bytes: &[u8], out: &mut Out) {
        self.servers.at_mut(id).inbox.hold(bytes);
        while let Some(server) = self.servers.get_mut(id) {
            let longest = match server.state() {
                ServerState::Login(_) => limits::LOGIN_MESSAGE,
                ServerState::Lookup(_)
                | ServerState::Examining(_)
                | ServerState::Maturing(_)
                | ServerState::Naming(_)
                | ServerState::Cataloguing(_) => limits::LOOKUP_MESSAGE,
                // Bytes after the work are held and handled in a separate step: `Relay` can only
                // refer to bytes of the current event.
                _ if !server.inbox.held().is_empty() => return self.next.note(Next::Hear(id)),
                _ => return,
            };
            let (message, body) = match server.inbox.take_message(longest) {
                Ok(None) => return,
                Ok(Some(message)) => message,
                Err(_) if matches!(server.state(), ServerState::Login(_)) => {
                    return self.not_postgres(id, out);
                }
                Err(_) if matches!(server.state(), ServerState::Examining(_)) => {
                    return self.check_broken(id, out);
                }
                Err(_) => return self.close_server(id, "bad pkt header", Close::Await, out),
            };
            match server.state() {
                ServerState::Login(_) => self.login_message(id, message, &body, out),
                ServerState::Lookup(_) => self.lookup_message(id, message, &body, out),
                ServerState::Maturing(_) => self.maturing_message(id, message, &body, out),
                ServerState::Naming(_) => self.naming_message(id, message, &body, out),
                ServerState::Cataloguing(_) => self.catalogue_message(id, message, &body, out),
                _ => self.check_message(id, message, &body, out),
            }
        }
    }
}
