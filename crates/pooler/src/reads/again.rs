//! Single reads at standbys: guarded until the first row, and run again at the primary if the standby
//! refuses them.

use howdah_wire::frame::header;
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use crate::client::Client;
use crate::event::{ClientId, Out, Peer, ServerId};
use crate::link::ends::Farewell;
use crate::next::Next;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::reads::guard::{FirstAnswer, Guard, Sqlstate, is_beyond_standbys};
use crate::reads::lore::text_number;
use crate::reads::mark::Again;
use crate::reads::tally::ReadPlace;
use crate::reads::wish::first_text;
use crate::server::ServerState;

impl Pooler {
    /// A server gets the request of a client whose reads are routed.
    pub(crate) fn read_begins(&mut self, client: ClientId, server: ServerId, out: &mut Out) {
        let place = gone!(self.clients.get_mut(client)).takes_read_place();
        let Some(place) = place else {
            return;
        };
        let login = self.servers.at(server).login;
        self.logins.at_mut(login).reads.counts.count(place);
        if self.config.globals.read_routing_notice {
            self.tell_place(client, server, place, out);
        }
    }

    fn tell_place(&self, client: ClientId, server: ServerId, place: ReadPlace, out: &mut Out) {
        let target = &self.pools.at(self.servers.at(server).pool).key.target;
        let host = match target {
            TargetName::Host(host) => host.to_string(),
            _ => return,
        };
        let text = format!("this read goes to {host}: {}", place.told());
        out.send_with(Peer::Client(client), |buf| {
            write::notice(buf, "NOTICE", "00000", &text, None);
        });
    }

    /// A client's messages are about to be sent. If they are one read, and the server is a
    /// standby's, the read is guarded.
    pub(crate) fn guard_read(&mut self, id: ClientId, messages: &[u8]) {
        let client = gone!(self.clients.get(id));
        let Some(server) = client.linked_server().filter(|_| client.is_guarded()) else {
            return;
        };
        let is_at_standby = self.is_at_standby(server);
        let server = self.servers.at_mut(server);
        let is_first = !server.link.is_owed() && !server.link.is_guarded();
        if let Some(length) = request_length(messages)
            && is_at_standby
            && is_first
            && client.inbox.at_boundary()
            && server.inbox.at_boundary()
        {
            server.link.guards(Guard::new(&messages[..length]));
        }
    }

    /// True for a server of a host that is no primary.
    fn is_at_standby(&self, id: ServerId) -> bool {
        let server = self.servers.at(id);
        match &self.pools.at(server.pool).key.target {
            TargetName::Host(host) => !self.is_primary(server.login, host),
            TargetName::Entry | TargetName::NoHost => false,
        }
    }

    /// A standby has sent a part of the answer to a guarded read, which is held by now. True if the
    /// held bytes can be handled.
    #[cold]
    pub(crate) fn guard_hears(&mut self, id: ServerId, out: &mut Out) -> bool {
        let server = self.servers.at_mut(id);
        let ServerState::Linked(client) = *server.state() else {
            return true;
        };
        match server.link.hears_first(server.inbox.held()) {
            FirstAnswer::Awaited => return false,
            // It would not see the second answer.
            FirstAnswer::Refused(_) if self.clients.get(client).is_none_or(Client::is_leaving) => {}
            FirstAnswer::Refused(sqlstate) => {
                self.run_again(client, id, sqlstate, out);
                return false;
            }
            FirstAnswer::Shown => {}
        }
        self.servers.at_mut(id).link.take_guard();
        true
    }

    /// A standby has refused a client's read: the client leaves the server, as if it had gone, and
    /// sends its request once more, now to the primary.
    fn run_again(&mut self, id: ClientId, server_id: ServerId, sqlstate: Sqlstate, out: &mut Out) {
        let server = self.servers.at_mut(server_id);
        let request = gone!(server.link.take_guard()).into_request();
        let login = self.logins.at_mut(server.login);
        login.reads.counts.count_again(sqlstate);
        let text = first_text(self.clients.at(id), &request);
        let again = Again {
            text: text
                .filter(|_| is_beyond_standbys(sqlstate))
                .map(text_number),
        };
        let began = self.clients.at(id).times.request;
        self.leave_server(id, Farewell::Orderly, out);
        // The rest of the answer is nobody's.
        self.next.note(Next::Hear(server_id));
        let client = self.clients.at_mut(id);
        client.reads_again(again);
        client.times.begin_request(began);
        client.inbox.hold_first(&request);
        self.next.note(Next::Resume(id));
    }
}

/// The length of the request that begins these messages, if all of it is there: a Query, or a group
/// up to its Sync.
fn request_length(messages: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        let header = header(messages.get(length..)?)?.ok()?;
        length += header.total();
        if matches!(header.tag, tag::QUERY | tag::SYNC) {
            return (length <= messages.len()).then_some(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_query_or_sync() {
        const QUERY: &[u8] = b"Q\0\0\0\x05\0";
        const BIND: &[u8] = b"B\0\0\0\x06ab";
        const SYNC: &[u8] = b"S\0\0\0\x04";
        assert_eq!(request_length(&[QUERY, SYNC].concat()), Some(QUERY.len()));
        let group = [BIND, BIND, SYNC, QUERY].concat();
        assert_eq!(request_length(&group), Some(group.len() - QUERY.len()));
        for there in 0..group.len() - QUERY.len() {
            assert_eq!(request_length(&group[..there]), None);
        }
    }
}
