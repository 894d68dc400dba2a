//! A read that a standby has refused runs again, at the primary. A BEGIN whose standby is lost goes to
//! another host. Nothing else is ever sent twice.

use crate::event::{ClientId, Out, ServerId};
use crate::link::ends::Farewell;
use crate::next::Next;
use crate::pooler::Pooler;
use crate::reads::guard::{Sqlstate, is_beyond_standbys};
use crate::reads::lore::text_number;
use crate::reads::mark::Again;
use crate::reads::wish::first_text;

impl Pooler {
    /// A server is lost. If all that it owes is the answer to its client's BEGIN, the client leaves it
    /// and sends the BEGIN once more, to whatever host fits now. False if the client can't go on.
    pub(crate) fn begin_again(&mut self, id: ClientId, server_id: ServerId, out: &mut Out) -> bool {
        let server = self.servers.at_mut(server_id);
        let client = self.clients.at(id);
        let goes_on = !client.is_leaving() && client.inbox.at_boundary();
        if !server.link.guards_begin() || !goes_on || server.cancels.are_under_way() {
            return false;
        }
        let request = gone!(server.link.take_guard()).into_request();
        // Its end is no end that anybody sees.
        while server.link.take_watched(self.now).is_some() {}
        let mark = client.read_mark.as_ref();
        let (since, had) = (server.times.request, mark.map(|mark| (mark.floor, mark.at)));
        self.unlink(id, server_id, out);
        let client = self.clients.at_mut(id);
        client.begins_again(since, had);
        client.inbox.hold_first(&request);
        self.next.note(Next::Resume(id));
        true
    }

    /// A standby has refused a client's read: the client leaves the server, as if it had gone, and
    /// sends its request once more, now to the primary.
    pub(crate) fn read_again(
        &mut self,
        id: ClientId,
        server_id: ServerId,
        sqlstate: Sqlstate,
        out: &mut Out,
    ) {
        let server = self.servers.at_mut(server_id);
        let request = gone!(server.link.take_guard()).into_request();
        // Its end is no end that anybody sees.
        while server.link.take_watched(self.now).is_some() {}
        let login = self.logins.at_mut(server.login);
        login.reads.counts.count_again(sqlstate);
        let client = self.clients.at(id);
        let text = first_text(client, &request).filter(|_| is_beyond_standbys(sqlstate));
        let again = Again {
            since: client.times.request,
            text: text.map(text_number),
        };
        self.leave_server(id, Farewell::Orderly, out);
        // The rest of the answer is nobody's.
        self.next.note(Next::Hear(server_id));
        let client = self.clients.at_mut(id);
        client.reads_again(again);
        client.inbox.hold_first(&request);
        self.next.note(Next::Resume(id));
    }
}
