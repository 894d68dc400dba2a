//! Clients move to other workers between two transactions.
//!
//! A client may move while it has no server: it is idle, or waits for one. It travels as a parcel,
//! as in a takeover ([`Passenger`]), and keeps the same state as there. Below, *B* is the worker
//! that the client leaves, *C* the worker it goes to.
//!
//! ```text
//!  control --Shed{login, to: C}---> B       B picks clients at rest, a few each turn
//!                                   B       Detach: the driver stops receiving, delivers received
//!                                           bytes, sends queued bytes
//!                                   B       Detached: the client is in no table any more; it is
//!                                           under way
//!  B ---------Move(parcel)--------> C       C adopts it: place in the queue, key, statements
//!  C ---------Landed--------------> B       it is no longer under way
//! ```
//!
//! What may happen during a move:
//! - **Bytes** that arrive while the driver detaches are held, and travel. Later bytes wait in the
//!   socket. A client that waited for a server, or has sent something since, enters C's queue with
//!   its old time.
//! - **A cancel request** asks all workers, again while clients depart ([`crate::cancel::seek`]). If
//!   the client is just leaving B, B answers when the client has left.
//! - **The client ends** while it leaves: B closes it like any other client, and it does not move.
//! - **KILL** is numbered for each database. The parcel says how many KILLs its worker had obeyed;
//!   if C has obeyed more, C drops the client. **KILL_CLIENT** asks as a cancel request does.
//! - **PAUSE, RESUME, RECONNECT** concern servers, which do not move with a client.
//! - **SUSPEND**: no client starts to move, and clients that arrive are not read from.
//! - **A takeover**: no client starts to move, and B is not at rest while clients are under way. So
//!   no client is in the mail when parcels are packed. A client that is in the mail all the same
//!   stays with this process.
//! - **The end of the process**: no client starts to move. If C had no client to wait for, C
//!   reports that it has one again ([`crate::event::Question::Busy`]) before B learns that the
//!   client has landed.

use howdah_wire::backend::Status;

use std::collections::BTreeMap;
use std::sync::Arc;

use chacha20::rand_core::Rng;

use crate::client::{Client, ClientState};
use crate::event::{Action, ClientId, LooseSocket, Out, Peer, Time, WorkerId};
use crate::fault::Fault;
use crate::login::key::{LoginId, LoginKey};
use crate::login::secrets::Secrets;
use crate::mail::{Mail, Traveller};
use crate::moves::{SHED_NS, Shed};
use crate::parcel::{PoolLore, Standing};
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;

/// After this many attempts in vain, the interval doubles.
const VAIN_TRIES: u32 = 16;
/// How long a worker hands over clients before the balancer sees the result, in nanoseconds.
const SHED_FOR_NS: u64 = 1_000_000_000;
/// The budget of each turn: names of statements, and a fixed weight for each client. The other
/// worker looks up every name while its own clients wait.
const SHED_WEIGHT: usize = 4096;
const CLIENT_WEIGHT: usize = 64;

impl Pooler {
    /// Begins to move clients of a pool to another worker; with `idle`, also idle ones. An order
    /// replaces earlier orders for the same pool.
    pub(crate) fn shed(
        &mut self,
        login: Arc<LoginKey>,
        to: WorkerId,
        (clients, idle): (u32, bool),
        out: &mut Out,
    ) {
        let until = Time(self.now.0 + SHED_FOR_NS);
        let same = |shed: &Shed| shed.login == login && shed.to == to;
        let earlier = self.moves.sheds.iter().find(|shed| same(shed));
        // All orders of a moment are carried out in one search.
        let soon = self.now.max(self.moves.looks_next());
        let (next, vain) = earlier.map_or((soon, 0), |shed| (shed.next, shed.vain));
        self.moves.sheds.retain(|shed| shed.login != login);
        if to == self.worker || to.0 >= self.workers || clients == 0 {
            return;
        }
        self.moves.sheds.push(Shed {
            login,
            to,
            left: clients,
            idle,
            until: until.max(Time(next.0 + 1)),
            next,
            gone: 0,
            vain,
        });
        if next <= self.now {
            self.shed_some(out)
        } else {
            self.moves.plan()
        }
    }

    /// A test's order: every client that can move goes to a random worker.
    pub(crate) fn shuffle(&mut self, out: &mut Out) {
        for id in self.clients.keys() {
            let to = WorkerId((self.random.next_u32() % u32::from(self.workers)) as u16);
            if to != self.worker {
                self.depart(id, to, out);
            }
        }
    }

    /// Hands over clients that can move now, within the budget of a turn.
    pub(crate) fn shed_some(&mut self, out: &mut Out) {
        let now = self.now;
        let mut sheds = std::mem::take(&mut self.moves.sheds);
        let spent = self.shed_of(&mut sheds, out);
        for shed in sheds.iter_mut().filter(|shed| shed.next <= now) {
            // Sessions that keep their servers may stay for hours, so the worker checks less and
            // less often.
            shed.vain = match std::mem::take(&mut shed.gone) {
                0 if !spent => shed.vain.saturating_add(1),
                _ => 0,
            };
            shed.next = Time(now.0 + (SHED_NS << (shed.vain / VAIN_TRIES).min(7)));
        }
        sheds.retain(|shed| shed.left > 0 && shed.until > now);
        self.moves.looked = now;
        self.moves.sheds = sheds;
        self.moves.plan();
    }

    /// Moves clients of pools that are due. Recently active clients go first, because the work
    /// moves with them. True if the budget is spent.
    fn shed_of(&mut self, sheds: &mut [Shed], out: &mut Out) -> bool {
        let mut due: BTreeMap<LoginId, &mut Shed> = BTreeMap::new();
        for shed in sheds.iter_mut().filter(|shed| shed.next <= self.now) {
            if let Some(login) = self.logins.find(&shed.login) {
                due.insert(login, shed);
            }
        }
        let (mut weight, mut quiet) = (0, Vec::new());
        let lately = self.lately();
        for id in self.clients.keys() {
            let client = self.clients.at(id);
            let login = client.login.filter(|login| due.contains_key(login));
            let Some(login) = login else { continue };
            if !client.is_active(lately) {
                quiet.push((id, login));
            } else if let Some(shed) = due.get_mut(&login) {
                weight += self.send_off(id, shed, out);
            }
            if weight >= SHED_WEIGHT {
                return true;
            }
        }
        for (id, login) in quiet {
            if let Some(shed) = due.get_mut(&login).filter(|shed| shed.idle) {
                weight += self.send_off(id, shed, out);
            }
            if weight >= SHED_WEIGHT {
                return true;
            }
        }
        false
    }

    /// Moves a client, if possible and still ordered. Returns the client's weight.
    fn send_off(&mut self, id: ClientId, shed: &mut Shed, out: &mut Out) -> usize {
        if shed.left == 0 {
            return 0;
        }
        let client = self.clients.get(id);
        let names = client.map_or(0, |client| client.statements.len());
        if !self.depart(id, shed.to, out) {
            return 0;
        }
        shed.left -= 1;
        shed.gone += 1;
        CLIENT_WEIGHT + names
    }

    /// Has the driver detach a client, which then moves to another worker. False if it can't.
    fn depart(&mut self, id: ClientId, to: WorkerId, out: &mut Out) -> bool {
        if self.janitor.holds() || self.janitor.is_shutting_down() {
            return false;
        }
        let client = gone!(self.clients.get_mut(id).filter(|c| may_leave(c)));
        // A reload removed the client's database: clients may stay, but not enter another worker.
        if self.config.entry(&client.who.database).is_none() {
            return false;
        }
        let waits = client.waits();
        client.leaves_for(to, waits);
        out.push(Action::Detach(Peer::Client(id)));
        true
    }

    /// The driver has detached a client that moves. The client is in no table any more.
    pub(crate) fn set_out(
        &mut self,
        id: ClientId,
        client: Client,
        (to, waits): (WorkerId, bool),
        socket: LooseSocket,
        out: &mut Out,
    ) {
        let login = client.login;
        let pool = login.and_then(|login| self.pool_if_any(login, Purpose::Clients));
        let Some(pool) = pool else {
            self.settle_held(id, out);
            return out.push(Action::Discard(socket));
        };
        let lore = self.lore(pool);
        let (notified, request) = (client.notified, client.times.request);
        let passenger = self.take_passenger(id, client, Standing::Ready, socket);
        let wants = waits || !passenger.held.is_empty();
        self.moves.under_way += 1;
        self.moves.departed += 1;
        let traveller = Traveller {
            kills: self.kills_of(&passenger.database, &lore),
            passenger,
            lore,
            notified,
            waits: wants.then_some(request),
            left: self.worker,
        };
        out.push(Action::Post(to, Mail::Move(Box::new(traveller))));
        // The client's departure counts by now.
        for seek in self.held_for(id) {
            self.answer_not_here(seek.from, out);
        }
    }

    /// How often KILL has named a client's database, or the shard whose login the client has.
    fn kills_of(&self, database: &str, lore: &PoolLore) -> u64 {
        let shard = Some(&*lore.key.login.database).filter(|shard| *shard != database);
        let kills = |name| self.janitor.kills_of(name);
        kills(database) + shard.map_or(0, kills)
    }

    /// Adopts a client that came from another worker between two transactions.
    pub(crate) fn moved_in(&mut self, traveller: Traveller, out: &mut Out) {
        let Traveller {
            passenger,
            lore,
            notified,
            waits,
            left,
            kills,
        } = traveller;
        self.moves.arrived += 1;
        self.tell_busy(out);
        out.push(Action::Post(left, Mail::Landed));
        let killed = kills < self.kills_of(&passenger.database, &lore);
        self.adopt_pool(lore, out);
        // The client's old place in the queue must count from the start.
        self.moves.arriving = waits;
        let id = self.adopt_client(passenger, false, out);
        let waits = self.moves.arriving.take();
        if killed {
            return self.disconnect(id, Fault::DatabaseRemoved, out);
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.set_notified(notified);
        }
        if let Some(since) = waits {
            self.stand_in_line(id, since);
        }
        self.suspend_client(id, out);
    }

    /// The facts about a pool that the next worker or process needs.
    pub(crate) fn lore(&self, id: PoolId) -> PoolLore {
        let pool = self.pools.at(id);
        let login = self.logins.at(pool.login);
        let greets = pool.key.purpose == Purpose::Clients;
        PoolLore {
            key: pool.key.clone(),
            database: login.terms.fingerprint,
            welcome: login.welcome.clone().filter(|_| greets),
            secrets: if greets {
                login.secrets.clone()
            } else {
                Secrets::default()
            },
            left_behind: 0,
        }
    }
}

/// True if nothing is held for the client, owed to it, or unfinished.
fn may_leave(client: &Client) -> bool {
    let rests = match *client.state() {
        ClientState::Idle => client.inbox.held().is_empty(),
        ClientState::Waiting(_) => true,
        _ => false,
    };
    // Questions to PostgreSQL about the session's state do not travel.
    let settled = client.session.as_ref().is_none_or(|session| {
        let kept = !session.pinned.is_empty() || session.ticket.is_some();
        let kept = kept || session.channels.is_some();
        session.pending.is_empty() && !kept && session.long.is_none()
    });
    rests
        && settled
        && client.welcomed
        && client.login.is_some()
        && client.inbox.at_boundary()
        && !client.is_replicating()
        && !client.is_signalling()
        && client.status_ahead() == Status::Idle
        && !(client.is_leaving() || client.end.is_stalled() || client.parked)
        && !(client.valve.is_paused() || client.valve.is_congested())
}
