//! Cancel keys, and cancel requests.
//!
//! A key names the worker and the slot of its client. Only this process can compute the key's
//! secret. So there is no table of keys, except for clients that have moved to other workers
//! (`moving.rs`).
//!
//! The client's worker finds the link and starts the cancel in one step. A connection of its own,
//! the *carrier*, takes the request to PostgreSQL. PostgreSQL closes the carrier after it has
//! signalled the backend. Until then no other client gets the server, so the cancel can't hit
//! another client's query. If the carrier ends in any other way, it is unknown whether the signal
//! was sent. Then the server is closed when its client's transaction is over.
//!
//! PostgreSQL ignores a cancel that arrives before the statement. The same can happen through
//! Howdah: a client that cancels right after its statement must cancel again, as with PostgreSQL
//! alone.

pub mod carrier;
pub mod errand;
pub mod guesses;
pub mod keys;
pub mod told;

pub use errand::Errand;
pub use keys::{Keys, OldKey};

use std::net::IpAddr;

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use crate::cancel::guesses::HeldRequest;
use crate::client;
use crate::client::ClientState;
use crate::config::Host;
use crate::event::{Action, Address, ClientId, Out, Peer, ServerId, WorkerId};
use crate::fault::Fault;
use crate::mail::Mail;
use crate::pooler::Pooler;

impl Pooler {
    /// A cancel request that may be for a client of this worker.
    ///
    /// A statement and its cancel request come on two sockets, and mail may overtake bytes that the
    /// driver has not collected yet. So if no statement runs, Howdah looks again in the next turn
    /// (`again`). By then everything that came before the request has been handled.
    pub(crate) fn cancel_wanted(
        &mut self,
        pid: u32,
        secret: Box<[u8]>,
        from: (WorkerId, ClientId),
        again: bool,
        out: &mut Out,
    ) {
        let Some(id) = self.key_holder(pid, &secret) else {
            let Some(to) = self.gone_where(pid, &secret) else {
                return out.push(Action::Post(from.0, Mail::Cancelled(from.1, false)));
            };
            let forwarded = Mail::Cancel {
                pid,
                secret,
                from,
                again: false,
                forwarded: true,
            };
            return out.push(Action::Post(to, forwarded));
        };
        let state = self.clients.get(id).map(|client| client.state());
        if let Some(ClientState::Leaving { .. }) = state {
            return self.moves.hold_cancel(id, pid, secret, from);
        }
        let state = self.clients.get(id).map(|client| match *client.state() {
            ClientState::Waiting | ClientState::Aligning(_) => (true, None),
            ClientState::Linked(server) => (false, Some(server)),
            _ => (false, None),
        });
        match state {
            Some((true, _)) => self.cancel_waiting(id, out),
            Some((_, Some(server))) if self.runs(server) => {
                return self.send_cancel(server, Some(from), out);
            }
            _ if !again => {
                let second_look = Mail::Cancel {
                    pid,
                    secret,
                    from,
                    again: true,
                    forwarded: true,
                };
                return out.push(Action::Post(self.worker, second_look));
            }
            // No statement runs. Nothing is sent, so no later statement can be hit.
            _ => self.console_cancelled(id, out),
        }
        out.push(Action::Post(from.0, Mail::Cancelled(from.1, true)));
    }

    fn runs(&self, id: ServerId) -> bool {
        self.servers
            .get(id)
            .is_some_and(|server| server.link.is_owed())
    }

    /// A cancel request is done, or there was nothing to cancel.
    pub(crate) fn cancel_done(&mut self, id: ClientId, known: bool, out: &mut Out) {
        if self.search_goes_on(id, known, out) {
            return;
        }
        self.key_examined(id, known);
        if self.signal_answered(id, known, out) {
            return;
        }
        let fault = if known {
            Fault::Cancelled
        } else {
            Fault::CancelUnknown
        };
        self.end_canceller(id, fault, out);
    }

    /// A cancel request has come. It may have to wait for its turn, if many wrong keys have come from
    /// the same place.
    pub(crate) fn cancel_came(&mut self, id: ClientId, pid: u32, secret: &[u8], out: &mut Out) {
        self.clients.at_mut(id).wants_to_cancel(self.now);
        let turn = match self.guesser(id) {
            Some(place) => self.guesses.turn(place, self.now),
            None => Some(self.now),
        };
        if turn.is_some_and(|turn| turn <= self.now) {
            self.watch_client(id);
            return self.examine(id, pid, secret, out);
        }
        let secret = secret.into();
        let held = |turn| self.guesses.hold(id, HeldRequest { turn, pid, secret });
        if turn.is_some_and(held) {
            return self.watch_client(id);
        }
        self.end_canceller(id, Fault::CancelUnknown, out);
    }

    /// It is the turn of a request that had to wait.
    pub(crate) fn cancel_turn(&mut self, id: ClientId, out: &mut Out) {
        if let Some(held) = self.guesses.take(id) {
            self.watch_client(id);
            self.examine(id, held.pid, &held.secret, out);
        }
    }

    fn examine(&mut self, id: ClientId, pid: u32, secret: &[u8], out: &mut Out) {
        if let Some(place) = self.guesser(id) {
            self.guesses.examine(id, place);
        }
        self.find_cancelled(id, pid, secret, out);
    }

    /// The place whose wrong keys are counted. `None` for unix sockets, and for peers, which forward
    /// keys that they do not know.
    fn guesser(&self, id: ClientId) -> Option<IpAddr> {
        let place = guesses::place(&self.clients.at(id).ends.remote)?;
        let mut hosts = self.config.peers.values().flat_map(|peer| &peer.hosts);
        let is_it = |host: &Host| match host {
            Host::Ip(ip) => guesses::place(&Address::Tcp(*ip, 0)) == Some(place),
            _ => false,
        };
        (!hosts.any(is_it)).then_some(place)
    }

    /// A key has been examined: a wrong one counts, even if its sender has left.
    pub(crate) fn key_examined(&mut self, id: ClientId, known: bool) {
        if let Some(place) = self.guesses.examined(id)
            && !known
        {
            self.guesses.wrong(place, self.now);
        }
    }

    /// Ends a client that sent a cancel request.
    pub(crate) fn end_canceller(&mut self, id: ClientId, fault: Fault, out: &mut Out) {
        if self
            .clients
            .get(id)
            .is_some_and(|c| matches!(c.state(), ClientState::Canceller))
        {
            self.disconnect(id, fault, out);
        }
    }

    /// A waiting client's statement was cancelled. Removes the client's bytes that belong to the
    /// statement before it: the rest of a COPY, which PostgreSQL would have skipped, and a Sync,
    /// which PostgreSQL would have answered.
    fn pass_over(id: ClientId, client: &mut client::Client, out: &mut Out) {
        while client.inbox.at_boundary()
            && let Some(Ok(header)) = client.inbox.first()
        {
            match header.tag {
                tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => {}
                tag::FLUSH | tag::SYNC if header.body == 0 => {}
                _ => return,
            }
            if header.tag == tag::SYNC {
                out.send_with(Peer::Client(id), |buf| write::ready(buf, Status::Idle));
            }
            client.inbox.skip_first();
        }
    }

    /// A client waits for a server, or for its parameters to be set on the server. The client gets
    /// the error of a cancelled statement, as if PostgreSQL had just begun the statement.
    fn cancel_waiting(&mut self, id: ClientId, out: &mut Out) {
        let error = |buf: &mut Vec<u8>| {
            write::error(
                buf,
                "ERROR",
                "57014",
                "canceling statement due to user request",
            );
        };
        self.fail_waiting(id, b"57014", error, out);
    }

    /// A client waits. Its statement fails with this error, as if PostgreSQL had just begun the
    /// statement. False if no statement waits.
    pub(crate) fn fail_waiting(
        &mut self,
        id: ClientId,
        sqlstate: &[u8],
        error: impl FnOnce(&mut Vec<u8>),
        out: &mut Out,
    ) -> bool {
        let client = self.clients.at_mut(id);
        // Until the client knows the result of its last statement, its next statement does not run.
        if !client.welcomed || client.is_hushed() {
            return false;
        }
        let waiting = matches!(client.state(), ClientState::Waiting);
        if !client.end.skips() {
            Self::pass_over(id, client, out);
        }
        let inbox = &client.inbox;
        let begins = |tag: &u8| matches!(tag, b'Q' | b'F' | b'P' | b'B' | b'D' | b'E' | b'C');
        // Without a complete header, the length to skip is unknown.
        let whole = inbox.first().is_some();
        let begun = whole && inbox.held().first().is_some_and(begins);
        if !begun || client.end.skips() || !inbox.at_boundary() {
            // The statement was cancelled already, and no other statement is there.
            return false;
        }
        if waiting {
            client.becomes_idle(self.now);
        }
        if let Some(pool) = client.pool {
            self.pools.at_mut(pool).count_error(sqlstate);
        }
        if let (true, Some(pool)) = (waiting, client.pool) {
            self.pools.at_mut(pool).waiting.leave(id);
            self.give_permission_back(id, out);
        }
        let client = self.clients.at_mut(id);
        client.forgets_signal(None);
        let peer = Peer::Client(id);
        out.send_with(peer, error);
        // A Query or a FunctionCall ends with its ReadyForQuery. Extended messages are skipped up
        // to a Sync.
        match client.inbox.held().first() {
            Some(b'Q' | b'F') => {
                client.inbox.skip_first();
                out.send_with(peer, |buf| write::ready(buf, Status::Idle));
            }
            _ => client.end.group_fails(),
        }
        if waiting {
            self.resume(id, out);
        }
        true
    }
}
