//! Cancel keys, and cancel requests.
//!
//! A key names the slot of its client. Only this process can compute the key's secret. So there is
//! no table of keys, except for clients that came from other workers or processes. A request is a
//! search ([`seek`]): all workers are asked, because clients move.
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
mod forward;
pub mod guesses;
mod held;
pub mod keys;
pub mod seek;
mod send;
pub mod told;

pub use errand::Errand;
pub use keys::{Keys, OldKey};

use std::net::IpAddr;

use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use crate::cancel::guesses::HeldRequest;
use crate::cancel::seek::{Finding, Rounds, Search, Seek, Whom};
use crate::client;
use crate::client::ClientState;
use crate::config::Host;
use crate::event::{Action, Address, ClientId, Out, Peer, WorkerId};
use crate::fault::Fault;
use crate::mail::Mail;
use crate::pooler::Pooler;

impl Pooler {
    /// Asks all workers for a client. `asker` waits for the result.
    pub(crate) fn begin_search(&mut self, asker: ClientId, whom: Whom, out: &mut Out) {
        self.searches.last += 1;
        let search = Search {
            asker,
            whom,
            owed: 0,
            departed: 0,
            rounds: Rounds::default(),
        };
        self.searches.open.insert(self.searches.last, search);
        self.ask_all(self.searches.last, out);
    }

    /// Begins a round of a search.
    fn ask_all(&mut self, number: u64, out: &mut Out) {
        let search = gone!(self.searches.open.get_mut(&number));
        search.owed = self.workers;
        for worker in 0..self.workers {
            let seek = Seek {
                whom: search.whom.clone(),
                from: (self.worker, number),
                again: false,
            };
            out.push(Action::Post(WorkerId(worker), Mail::Seek(Box::new(seek))));
        }
    }

    /// A worker has answered a search. (After one has the client, the others' answers still come.)
    pub(crate) fn sought(&mut self, number: u64, finding: Finding, out: &mut Out) {
        let search = gone!(self.searches.open.get_mut(&number));
        if let Finding::NotHere { departed } = finding {
            search.owed -= 1;
            search.departed += departed;
            if search.owed > 0 {
                return;
            }
            if search.rounds.missed(std::mem::take(&mut search.departed)) {
                return self.ask_all(number, out);
            }
        }
        let found = finding == Finding::Done;
        let Search { asker, whom, .. } = gone!(self.searches.open.remove(&number));
        match whom {
            Whom::Told(_) => self.signal_answered(asker, found, out),
            Whom::Key { pid, secret } if !found => self.key_unknown(asker, pid, secret, out),
            Whom::Key { .. } => {
                self.key_examined(asker, true);
                self.end_canceller(asker, Fault::Cancelled, out);
            }
        }
    }

    /// Another worker's search, or one of this worker, for a client that may be here.
    ///
    /// A statement and its cancel request come on two sockets, and mail may overtake bytes that the
    /// driver has not collected yet. So if no statement runs, Howdah looks again in the next turn
    /// (`again`). By then everything that came before the request has been handled.
    pub(crate) fn seek(&mut self, seek: Seek, out: &mut Out) {
        let (found, ends) = match &seek.whom {
            Whom::Key { pid, secret } => (self.key_holder(*pid, secret), false),
            Whom::Told(signal) => (self.told_holder(signal), signal.ends),
        };
        let Some(id) = found else {
            return self.answer_not_here(seek.from, out);
        };
        if ends {
            self.disconnect(id, Fault::Forced, out);
            return answer_done(seek.from, out);
        }
        if self.cancel_what_runs(id, seek.from, out) {
            return;
        }
        match *self.clients.at(id).state() {
            ClientState::Leaving { .. } => return self.moves.held.push((id, seek)),
            ClientState::Waiting(_) | ClientState::Aligning(_) => self.cancel_waiting(id, out),
            _ if !seek.again => {
                let second_look = Box::new(Seek {
                    again: true,
                    ..seek
                });
                return out.push(Action::Post(self.worker, Mail::Seek(second_look)));
            }
            // No statement runs. Nothing is sent, so no later statement can be hit.
            _ => self.console_cancelled(id, out),
        }
        answer_done(seek.from, out);
    }

    /// Tells a search that its client is not here.
    pub(crate) fn answer_not_here(&self, (worker, number): (WorkerId, u64), out: &mut Out) {
        let departed = self.moves.departed;
        let finding = Finding::NotHere { departed };
        out.push(Action::Post(worker, Mail::Sought(number, finding)));
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
        let secret = secret.into();
        self.begin_search(id, Whom::Key { pid, secret }, out);
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
                let status = client.status_ahead();
                out.send_with(Peer::Client(id), |buf| write::ready(buf, status));
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
        let waits_in = match *client.state() {
            ClientState::Waiting(pool) => Some(pool),
            _ => None,
        };
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
        if waits_in.is_some() {
            client.becomes_idle(self.now);
        }
        if let Some(login) = client.login {
            self.logins.at_mut(login).count_error(sqlstate);
        }
        if let Some(pool) = waits_in {
            let pool = self.pools.at_mut(pool);
            pool.waiting.leave(id);
            pool.pin_line.leave(id);
            self.give_permission_back(id, out);
        }
        let client = self.clients.at_mut(id);
        client.forgets_signal(None);
        client.read_fails();
        if let Some(sharded) = client.sharded_mut() {
            sharded.transaction.fails();
            sharded.settles_message();
        }
        let status = client.status_ahead();
        let peer = Peer::Client(id);
        out.send_with(peer, error);
        // A Query or a FunctionCall ends with its ReadyForQuery. Extended messages are skipped up
        // to a Sync.
        match client.inbox.held().first() {
            Some(b'Q' | b'F') => {
                client.inbox.skip_first();
                out.send_with(peer, |buf| write::ready(buf, status));
            }
            _ => client.end.group_fails(),
        }
        if waits_in.is_some() {
            // It may have had to end behind the request.
            self.watch_client(id);
            self.resume(id, out);
        }
        true
    }
}

/// Tells a search that its request is carried out, or that there was nothing to cancel.
pub(crate) fn answer_done((worker, number): (WorkerId, u64), out: &mut Out) {
    out.push(Action::Post(worker, Mail::Sought(number, Finding::Done)));
}
