//! Single reads at standbys, until their first row ([`crate::reads::guard`]): what a standby refuses
//! runs again at the primary.

use howdah_wire::frame::header;
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use crate::event::{ClientId, Out, Peer, ServerId};
use crate::next::Next;
use crate::pool::key::PoolId;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::reads::group::is_bare_begin;
use crate::reads::guard::{FirstAnswer, Guard};
use crate::reads::tally::ReadPlace;
use crate::roster::view::State;

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

    /// The first `sent` bytes of a client's messages, which begin with a read, or with a BEGIN, were
    /// handled. If they are the whole request, and the server is a standby's, the answer is guarded.
    pub(crate) fn guard_read(
        &mut self,
        (id, is_begin): (ClientId, bool),
        messages: &[u8],
        sent: usize,
    ) {
        let client = gone!(self.clients.get_mut(id));
        if sent == 0 {
            // The read waits until something is known of a statement.
            return;
        }
        client.read_is_sent();
        let is_whole = request_length(messages) == Some(sent);
        let most = self.config.globals.max_prepared_statements;
        let login = client.login.map(|login| self.logins.at(login));
        let renames = login.is_some_and(|login| login.renames(most));
        let is_whole = is_whole && (!is_begin || is_bare_begin(client, &messages[..sent]));
        let Some(server_id) = client.linked_server().filter(|_| is_whole) else {
            return;
        };
        let server = self.servers.at_mut(server_id);
        // Howdah may have answered all of it.
        if !server.link.owes_ready() || !server.inbox.at_boundary() {
            return;
        }
        let answered = if renames {
            server.link.answered_of(&messages[..sent])
        } else {
            0
        };
        let request = &messages[answered..sent];
        server.link.guards(if is_begin {
            Guard::of_begin(request)
        } else {
            Guard::new(request)
        });
    }

    /// A standby has sent a part of the answer to a guarded read. Holds the bytes until something
    /// decides; then answers those of them that are not held yet, to be handled behind the held ones.
    pub(crate) fn guard_hears<'a>(&mut self, id: ServerId, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let server = self.servers.at_mut(id);
        let is_first = server.inbox.held().is_empty();
        if !is_first {
            server.inbox.hold(bytes);
        }
        let answer = if is_first { bytes } else { server.inbox.held() };
        let heard = server.link.hears_first(answer);
        let login = server.login;
        let again = match (heard, server.linked_client()) {
            (FirstAnswer::Refused(sqlstate), Some(client)) if self.may_run_again(client, id) => {
                Some((sqlstate, client))
            }
            _ => None,
        };
        let server = self.servers.at_mut(id);
        if again.is_none() && heard != FirstAnswer::Awaited {
            server.link.take_guard();
            return Some(if is_first { bytes } else { b"" });
        }
        if is_first {
            server.inbox.hold(bytes);
        }
        self.logins.at_mut(login).count_sent(bytes.len());
        if let Some((sqlstate, client)) = again {
            self.next.note(Next::ReadAgain(client, id, sqlstate));
        }
        None
    }

    /// True if a refused read can go to the primary: the client is there and between two messages,
    /// nobody cancels the read, and the primary takes clients.
    fn may_run_again(&self, client: ClientId, server: ServerId) -> bool {
        let server = self.servers.at(server);
        let client = gone!(self.clients.get(client));
        let stays = !client.is_leaving() && client.inbox.at_boundary();
        let takes_clients = |pool_id: &PoolId| {
            let pool = self.pools.at(*pool_id);
            let TargetName::Host(host) = &pool.key.target else {
                return false;
            };
            let standing = self.standing(pool.login, host);
            standing.is_some_and(|of| of.state == State::Up) && !self.backs_off(*pool_id)
        };
        let mut pools = self.logins.at(server.login).shares().iter();
        stays && !server.cancels.are_under_way() && pools.any(|(pool, _)| takes_clients(pool))
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
