//! Cancel keys, and requests to cancel.
//!
//! A key names the worker and the slot of its client; its secret is a hash that only we can make,
//! so no table of keys is kept. The client's worker decides link and cancel in one step. A cancel
//! is carried by a connection of its own. PostgreSQL closes that once it has signalled the backend:
//! until then the server is given to nobody, so the cancel can't reach anybody else's query. If the
//! carrier ends in any other way, what became of the signal is unknown, and the server is closed as
//! soon as its client's transaction is over.
//!
//! PostgreSQL ignores a cancel that comes before it has read the statement; on a busy machine that
//! happens to a few in a hundred of those sent right behind it. So such a cancel is repeated while
//! its statement goes on ([`Repeat`]), as long as nothing else of the client was sent; what the
//! client sends while a repetition is out waits until that is through.

use std::collections::BTreeMap;

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::client;
use crate::event::{Action, Address, ClientId, Close, Ends, Out, Peer, ServerId, Time, WorkerId};
use crate::fault::Fault;
use crate::mail::Mail;
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server::{self, Server};

/// How many bits of the key's process id name the slot; the rest names the worker.
const SLOT_BITS: u32 = 22;

/// How long a carrier may take, in nanoseconds.
pub(crate) const CARRIER_NS: u64 = 15_000_000_000;

/// A statement that was under way for longer was surely read by PostgreSQL: a cancel of it can't
/// be missed, and one that the statement catches is not to come twice. In nanoseconds.
const YOUNG_NS: u64 = 250_000_000;

/// How long PostgreSQL has to obey before the first repetition, in nanoseconds; before each further
/// one it is four times as long.
const REPEAT_NS: u64 = 30_000_000;

/// How often a cancel is repeated at most.
const REPEATS_MAX: u8 = 3;

/// A cancel that PostgreSQL may have missed.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    /// The number of the group that comes next: as long as it is, no later one can be hit.
    group: u32,
    /// When it is repeated, if the statement goes on.
    at: Time,
    /// How often it was.
    times: u8,
    /// A carrier is out for it.
    out: bool,
}

impl Server {
    /// When a cancel is to be repeated.
    pub(crate) fn repeat_due(&self) -> Option<Time> {
        let due = self.repeat.as_ref().filter(|repeat| !repeat.out);
        due.map(|repeat| repeat.at)
    }

    /// A repeated cancel is out: what the client sends must not reach the server.
    pub(crate) fn repeats(&self) -> bool {
        self.repeat.is_some_and(|repeat| repeat.out)
    }

    /// All that the server owes is one group, and it is whole: a cancel can hit nothing else.
    fn one_group(&self) -> bool {
        let ledger = &self.ledger;
        let linked = matches!(self.state, server::State::Linked(_));
        linked && ledger.readies() == 1 && !ledger.group_open() && !self.copy_in
    }
}

/// Makes keys.
#[derive(Debug)]
pub struct Keys {
    worker: WorkerId,
    secret: [u8; 32],
    /// What must not change while connections live, from one process to its successor.
    lasting: [u8; 32],
    /// Keys that clients were given by processes before this one, by their first halves.
    old: BTreeMap<u32, Vec<Inherited>>,
}

/// The second half of a key that another process gave, and whose it is.
type Inherited = (Box<[u8]>, ClientId);

/// A cancel key that was given by another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldKey {
    /// Its first half.
    pub pid: u32,
    /// Its second half.
    pub secret: Box<[u8]>,
}

impl Keys {
    /// For one worker; the secret is the same for all.
    pub fn new(worker: WorkerId, secret: [u8; 32]) -> Self {
        Keys {
            worker,
            secret,
            lasting: secret,
            old: BTreeMap::new(),
        }
    }

    /// What a successor must know, so that statements and small pools are where they were.
    pub fn lasting(&self) -> [u8; 32] {
        self.lasting
    }

    /// This process goes on with another's connections.
    pub fn inherit(&mut self, lasting: [u8; 32]) {
        self.lasting = lasting;
    }

    /// A client has a key of another process.
    pub fn remember(&mut self, key: OldKey, id: ClientId) {
        self.old.entry(key.pid).or_default().push((key.secret, id));
    }

    /// A client that may have had a key of another process is gone.
    pub fn forget(&mut self, key: Option<Box<OldKey>>, id: ClientId) {
        let Some(key) = key else { return };
        if let Some(keys) = self.old.get_mut(&key.pid) {
            keys.retain(|(_, of)| *of != id);
            if keys.is_empty() {
                self.old.remove(&key.pid);
            }
        }
    }

    /// The client that was given this key by another process.
    pub(crate) fn inherited(&self, pid: u32, secret: &[u8]) -> Option<ClientId> {
        let mut keys = self.old.get(&pid)?.iter();
        let found = keys.find(|(of, _)| bool::from(secret.ct_eq(of)));
        found.map(|(_, id)| *id)
    }

    /// A client's key: process id, and secret (4 bytes, or 32 from protocol 3.2).
    pub fn of(&self, id: ClientId, long: bool) -> (u32, [u8; 32], usize) {
        // Some drivers take a process id of 0 for none.
        let pid = u32::from(self.worker.0) << SLOT_BITS | (id.index + 1);
        let mut hash = Sha256::new();
        hash.update(self.secret);
        hash.update(b"cancel");
        hash.update(pid.to_be_bytes());
        hash.update(id.generation.to_be_bytes());
        (pid, hash.finalize().into(), if long { 32 } else { 4 })
    }

    /// The key that the salts of unknown users come from: the same for the process and its life.
    pub fn salts(&self) -> &[u8; 32] {
        &self.lasting
    }

    /// The hasher of settings' meanings, the same on all workers.
    pub fn meaning(&self) -> crate::Seeded {
        let (front, _) = self.lasting.split_first_chunk::<8>().expect("32 bytes");
        crate::seeded(u64::from_be_bytes(*front))
    }

    /// The worker that a key names.
    pub fn worker(pid: u32) -> WorkerId {
        WorkerId((pid >> SLOT_BITS) as u16)
    }

    /// The slot that a key names; one that never exists if it names none.
    pub fn slot(pid: u32) -> u32 {
        (pid & ((1 << SLOT_BITS) - 1)).wrapping_sub(1)
    }

    /// The worker where a small pool lives: all workers find the same.
    pub fn home(&self, database: &str, user: &str, workers: u16) -> WorkerId {
        let mut hash = Sha256::new();
        hash.update(self.lasting);
        hash.update(b"home");
        hash.update(database.as_bytes());
        hash.update([0]);
        hash.update(user.as_bytes());
        let digest = hash.finalize();
        WorkerId(u16::from_be_bytes([digest[0], digest[1]]) % workers)
    }
}

/// What a carrier is for.
#[derive(Debug)]
pub struct Errand {
    /// The server to cancel.
    target: ServerId,
    /// Who wants to know when it is done.
    askers: Vec<(WorkerId, ClientId)>,
    /// The request was handed to the driver.
    sent: bool,
}

impl Errand {
    /// How many clients' cancel requests it carries.
    pub fn requests(&self) -> u32 {
        self.askers.len() as u32
    }
}

impl Pooler {
    /// A client sent a CancelRequest: it goes to the worker that the key names.
    pub(crate) fn route_cancel(&mut self, id: ClientId, pid: u32, secret: &[u8], out: &mut Out) {
        // A process before us may have had more workers: its clients were spread like that.
        let worker = WorkerId(Keys::worker(pid).0 % self.workers);
        let from = (self.worker, id);
        out.push(Action::Post(
            worker,
            Mail::Cancel {
                pid,
                secret: secret.into(),
                from,
                again: false,
            },
        ));
    }

    /// A cancel request for a client of this worker, perhaps.
    ///
    /// A statement and the cancel request for it come on two sockets, and mail may overtake what
    /// the driver has not collected yet. So if nothing runs, that is looked at again in the next
    /// turn, when all that came before the request has been handled (`again`).
    pub(crate) fn cancel_wanted(
        &mut self,
        pid: u32,
        secret: Box<[u8]>,
        from: (WorkerId, ClientId),
        again: bool,
        out: &mut Out,
    ) {
        let Some(id) = self.key_holder(pid, &secret) else {
            out.push(Action::Post(from.0, Mail::Cancelled(from.1, false)));
            return;
        };
        let state = self.clients.get(id).map(|client| match client.state {
            client::State::Waiting | client::State::Preparing(_) => (true, None),
            client::State::Linked(server) => (false, Some(server)),
            _ => (false, None),
        });
        match state {
            Some((true, _)) => self.cancel_waiting(id, out),
            Some((_, Some(server))) if self.runs(server) => {
                self.mind_missed(server);
                return self.send_cancel(server, Some(from), out);
            }
            _ if !again => {
                let second_look = Mail::Cancel {
                    pid,
                    secret,
                    from,
                    again: true,
                };
                return out.push(Action::Post(self.worker, second_look));
            }
            // Nothing runs. Nothing is sent, so nothing later can be hit.
            _ => self.console_cancelled(id, out),
        }
        out.push(Action::Post(from.0, Mail::Cancelled(from.1, true)));
    }

    fn runs(&self, id: ServerId) -> bool {
        self.servers
            .get(id)
            .is_some_and(|server| !server.ledger.is_empty())
    }

    /// A statement is cancelled: if PostgreSQL may not have read it yet, the cancel may be repeated.
    fn mind_missed(&mut self, id: ServerId) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let young = now.0.saturating_sub(server.request.0) < YOUNG_NS;
        let group = server.ledger.group();
        let known = server.repeat.is_some_and(|repeat| repeat.group == group);
        if young && !known && server.one_group() {
            server.repeat = Some(Repeat {
                group,
                at: Time(u64::MAX),
                times: 0,
                out: false,
            });
        }
    }

    /// All carriers to a server are through: the client's messages may go on, and if the statement
    /// does, too, it will be cancelled once more.
    fn carriers_through(&mut self, id: ServerId, out: &mut Out) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let Some(mut repeat) = server.repeat.take() else {
            return;
        };
        let goes_on = server.one_group() && server.ledger.group() == repeat.group;
        let held = std::mem::take(&mut repeat.out);
        if goes_on && repeat.times < REPEATS_MAX && server.close_why.is_none() {
            repeat.at = Time(now.0 + (REPEAT_NS << (2 * repeat.times)));
            server.repeat = Some(repeat);
        }
        let link = server.link();
        self.watch_server(id);
        if let (true, Some(client)) = (held, link) {
            self.resume(client, out);
        }
    }

    /// PostgreSQL had time to obey a cancel, and the statement may go on.
    pub(crate) fn repeat_cancel(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let Some(mut repeat) = server.repeat.take() else {
            return;
        };
        if !server.one_group() || server.ledger.group() != repeat.group || server.cancels > 0 {
            return;
        }
        repeat.times += 1;
        repeat.out = true;
        server.repeat = Some(repeat);
        if let Some(client) = server.link().and_then(|id| self.clients.get_mut(id)) {
            client.stalled = true;
        }
        self.send_cancel(id, None, out);
    }

    /// Cancels what a departed client had left running.
    pub(crate) fn cancel_for_us(&mut self, id: ServerId, out: &mut Out) {
        self.send_cancel(id, None, out);
    }

    fn send_cancel(
        &mut self,
        target: ServerId,
        asker: Option<(WorkerId, ClientId)>,
        out: &mut Out,
    ) {
        // One on its way does for both, unless its signal may be out by now.
        if let Some(errand) = self.errand_to(target) {
            errand.askers.extend(asker);
            return;
        }
        let (number, now, seeded) = (self.number(), self.now, self.seeded);
        let Some(server) = self.servers.get_mut(target) else {
            return;
        };
        let (Some(ends), Some(_)) = (&server.ends, &server.key) else {
            if let Some((worker, client)) = asker {
                out.push(Action::Post(worker, Mail::Cancelled(client, true)));
            }
            return;
        };
        server.cancels += 1;
        let (to, pool): (Address, _) = (ends.remote.clone(), server.pool);
        let errand = Errand {
            target,
            askers: asker.into_iter().collect(),
            sent: false,
        };
        let carrier = self.servers.insert(|_| Server {
            number,
            state: server::State::Cancel(Box::new(errand)),
            ..Server::blank(pool, seeded, now)
        });
        self.pools.at_mut(pool).servers += 1;
        out.push(Action::Connect(carrier, to));
        self.watch_server(carrier);
    }

    /// A carrier for this server that has not sent its request yet.
    fn errand_to(&mut self, target: ServerId) -> Option<&mut Errand> {
        if self.servers.get(target)?.cancels == 0 {
            return None;
        }
        self.servers
            .iter_mut()
            .find_map(|(_, server)| match &mut server.state {
                server::State::Cancel(errand) if errand.target == target && !errand.sent => {
                    Some(&mut **errand)
                }
                _ => None,
            })
    }

    pub(crate) fn carrier_connected(
        &mut self,
        id: ServerId,
        result: Result<Ends, String>,
        out: &mut Out,
    ) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let server::State::Cancel(errand) = &mut server.state else {
            return;
        };
        let ends = match result {
            Ok(ends) => ends,
            Err(error) => {
                let text = format!("cancel request failed: {error}");
                self.note_server(Level::Warning, id, &text, out);
                // It has signalled nobody.
                return self.end_errand(id, true, out);
            }
        };
        server.ends = Some(ends);
        errand.sent = true;
        let target = errand.target;
        let key = self
            .servers
            .get(target)
            .and_then(|server| server.key.clone());
        match key {
            Some((pid, secret)) => {
                out.send_with(Peer::Server(id), |buf| {
                    write::cancel_request(buf, pid, &secret)
                });
            }
            None => self.end_errand(id, true, out),
        }
    }

    /// A carrier's stream ended: cleanly, if PostgreSQL has done its part.
    pub(crate) fn carrier_lost(&mut self, id: ServerId, why: Option<String>, out: &mut Out) {
        let sent = matches!(
            self.servers.get(id).map(|server| &server.state),
            Some(server::State::Cancel(errand)) if errand.sent
        );
        self.end_errand(id, sent && why.is_none(), out);
    }

    /// A carrier takes too long.
    pub(crate) fn carrier_timeout(&mut self, id: ServerId, out: &mut Out) {
        self.note_server(Level::Warning, id, "cancel request took too long", out);
        self.end_errand(id, false, out);
    }

    fn end_errand(&mut self, id: ServerId, clean: bool, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let server::State::Cancel(errand) = &mut server.state else {
            return;
        };
        let askers = std::mem::take(&mut errand.askers);
        let target = errand.target;
        server.state = server::State::Closing;
        out.push(Action::Close {
            peer: Peer::Server(id),
            how: Close::Abort,
        });
        for (worker, client) in askers {
            out.push(Action::Post(worker, Mail::Cancelled(client, true)));
        }
        let Some(server) = self.servers.get_mut(target) else {
            return;
        };
        server.cancels -= 1;
        if !clean {
            server.close_why.get_or_insert("cancel request failed");
        }
        if server.cancels > 0 {
            return;
        }
        if matches!(server.state, server::State::BeingCancelled) {
            self.checkin(target, out);
        } else {
            self.carriers_through(target, out);
        }
    }

    /// The driver ended a carrier of itself.
    pub(crate) fn carrier_closed(&mut self, id: ServerId, out: &mut Out) {
        self.end_errand(id, false, out);
        self.server_closed(id, true, out);
    }

    /// What a client asked to cancel is cancelled, or there was nothing to do.
    pub(crate) fn cancel_done(&mut self, id: ClientId, known: bool, out: &mut Out) {
        if self.search_goes_on(id, known, out) {
            return;
        }
        let fault = if known {
            Fault::Cancelled
        } else {
            Fault::CancelUnknown
        };
        self.end_canceller(id, fault, out);
    }

    /// A client that asked to cancel something leaves.
    pub(crate) fn end_canceller(&mut self, id: ClientId, fault: Fault, out: &mut Out) {
        if self
            .clients
            .get(id)
            .is_some_and(|c| matches!(c.state, client::State::Canceller))
        {
            self.disconnect(id, fault, out);
        }
    }

    /// Takes out what stands in front of the first statement that a client waits with, behind one
    /// that was cancelled: the rest of its COPY, which PostgreSQL would have passed over by now,
    /// and a Sync, which it would have answered.
    fn pass_over(id: ClientId, client: &mut client::Client, out: &mut Out) {
        let inbox = &mut client.inbox;
        while inbox.at_boundary()
            && let Some(Ok(header)) = howdah_wire::frame::header(&inbox.held)
        {
            match header.tag {
                tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => {}
                tag::FLUSH | tag::SYNC if header.body == 0 => {}
                _ => return,
            }
            if header.tag == tag::SYNC {
                out.send_with(Peer::Client(id), |buf| write::ready(buf, Status::Idle));
            }
            inbox.skip_first();
        }
    }

    /// A client that waits for a server, or for its server to have its parameters, is told that its
    /// statement was cancelled, as if PostgreSQL had just begun with it.
    fn cancel_waiting(&mut self, id: ClientId, out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if !client.welcomed {
            return;
        }
        let waiting = matches!(client.state, client::State::Waiting);
        if !client.group_failed {
            Self::pass_over(id, client, out);
        }
        let inbox = &client.inbox;
        let begins = |tag: &u8| matches!(tag, b'Q' | b'F' | b'P' | b'B' | b'D' | b'E' | b'C');
        if !inbox.held.first().is_some_and(begins) || client.group_failed || !inbox.at_boundary() {
            // Cancelled already, and nothing else is there to run yet.
            return;
        }
        if waiting {
            client.state = client::State::Idle;
            client.quiet = Time(self.now.0);
        }
        if let (true, Some(pool)) = (waiting, client.pool) {
            let waiting = &mut self.pools.at_mut(pool).waiting;
            waiting.retain(|(waiter, _)| *waiter != id);
        }
        let peer = Peer::Client(id);
        out.send_with(peer, |buf| {
            write::error(
                buf,
                "ERROR",
                "57014",
                "canceling statement due to user request",
            );
        });
        // A Query or a FunctionCall ends with its ReadyForQuery; extended messages are skipped up
        // to a Sync.
        match client.inbox.held.first() {
            Some(b'Q' | b'F') => {
                client.inbox.skip_first();
                out.send_with(peer, |buf| write::ready(buf, Status::Idle));
            }
            _ => client.group_failed = true,
        }
        if waiting {
            self.resume(id, out);
        }
    }
}
