//! The `Pooler` under test: all invariants are checked after every event, and the story is recorded.

use std::collections::{BTreeSet, HashSet};

use howdah_daemon::worker::Decide;
use howdah_pooler::Pooler;
use howdah_pooler::census::{Linked, PlacedServer, Waiter};
use howdah_pooler::config::SessionAttrs;
use howdah_pooler::event::{Action, ClientId, Event, Out, Peer, Time};
use howdah_pooler::mail::Mail;
use howdah_pooler::roster::view::{Role, State};

use crate::story::{Who, words};
use crate::world::Shared;

/// A watched `Pooler`.
pub struct Watched {
    /// The `Pooler`.
    pub pooler: Pooler,
    /// The number of servers given to other workers.
    pub lends: u64,
    /// The number of clients sent to other workers.
    pub moves: u64,
    /// The number of servers that the driver must detach for that.
    pub parting: u64,
    /// The waiting clients, and the clients with a server, after the last event.
    waiters: Vec<Waiter>,
    links: Vec<Linked>,
    /// The time of the last RECONNECT of all servers.
    called_in: Time,
    /// Clients that got a server with the last event, except for their first server: their first
    /// wait includes the login.
    pub served: Vec<Waiter>,
    known: HashSet<ClientId>,
    /// The peers with too much unsent output, and the peers that are not received from.
    congested: HashSet<Peer>,
    silent: HashSet<Peer>,
    /// The servers of placed databases that the last view of the hosts has judged.
    placed: Vec<PlacedServer>,
    /// The databases whose reads go to standbys.
    pub readers: BTreeSet<String>,
    /// The databases are shards of one.
    pub sharded: bool,
    /// The worker's number in the story.
    name: u16,
    world: Shared,
}

impl Watched {
    /// Watches the `Pooler` of a worker.
    pub fn new(pooler: Pooler, name: u16, world: Shared) -> Watched {
        Watched {
            pooler,
            lends: 0,
            moves: 0,
            parting: 0,
            waiters: Vec::new(),
            links: Vec::new(),
            called_in: Time(0),
            served: Vec::new(),
            known: HashSet::new(),
            congested: HashSet::new(),
            silent: HashSet::new(),
            placed: Vec::new(),
            readers: BTreeSet::new(),
            sharded: false,
            name,
            world,
        }
    }

    /// The clients that wait for a server.
    pub fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    /// Checks that no client gets a server while another client of the same pool and worker has
    /// waited longer.
    fn check_order(&mut self) {
        let before = std::mem::replace(&mut self.links, self.pooler.linked());
        let waited = std::mem::replace(&mut self.waiters, self.pooler.waiters());
        let is_new = |now: &&Linked| {
            let same = |then: &Linked| then.waiter.client == now.waiter.client;
            !before.iter().any(same)
        };
        for link in self.links.iter().filter(is_new) {
            let served = &link.waiter;
            if link.connected < self.called_in {
                let text = format!("on worker {}: {link:?} after RECONNECT", self.name);
                self.violate("orders", text);
            }
            // Clients that wait to be placed are placed one after the other in one event.
            let is_late = |w: &Waiter| self.sharded && !waited.contains(w);
            let overtaken = |w: &&Waiter| {
                let same = w.login == served.login && w.target == served.target;
                same && w.since < served.since && !is_late(w)
            };
            if let Some(text) = self.misplaced(link) {
                self.violate("roles", text);
            }
            if let Some(waiter) = self.waiters.iter().find(overtaken) {
                let text = format!("on worker {}: {served:?} overtakes {waiter:?}", self.name);
                self.violate("order", text);
            }
            if !self.known.insert(served.client) {
                self.served.push(served.clone());
            }
        }
    }

    /// Why a client must not get this server: the view of the hosts that has come since the server
    /// logged in says that its host has another role, or is to be empty.
    fn misplaced(&self, link: &Linked) -> Option<String> {
        let mut placed = self.placed.iter();
        let server = placed.find(|server| server.id == link.server)?;
        let standing = &server.standing;
        let is_primary = match standing.role {
            Some(Role::Primary) => true,
            Some(Role::Standby) => false,
            Some(Role::Rival) | None => return None,
        };
        let is_writable = is_primary && !standing.read_only;
        let fits = match server.wish {
            SessionAttrs::Any | SessionAttrs::PreferStandby => true,
            SessionAttrs::Primary => is_primary,
            SessionAttrs::Standby => !is_primary,
            SessionAttrs::ReadWrite => is_writable,
            SessionAttrs::ReadOnly => !is_writable,
        };
        // PostgreSQL checks that only reads run there.
        let reads = self.readers.contains(&*link.waiter.login.database);
        let fits = fits || !is_primary && reads;
        let wrong = !fits || standing.state >= State::Drained;
        wrong.then(|| format!("on worker {}: {link:?} at {server:?}", self.name))
    }

    /// The servers as they were before an event that may change where they belong.
    fn before_judging(&self, event: &Event<'_>) -> Option<Vec<PlacedServer>> {
        match event {
            Event::Mail(Mail::Hosts(_)) => Some(Vec::new()),
            Event::Mail(Mail::Server(_)) => Some(self.pooler.placed_servers()),
            _ => None,
        }
    }

    /// A view of the hosts has come: it judges the servers that are here, and those that come from
    /// other workers until the next one. What logs in meanwhile knows more.
    fn judge_places(&mut self, before: &[PlacedServer], is_view: bool) {
        if is_view {
            self.placed.clear();
        }
        let known = |server: &PlacedServer| before.iter().any(|of| of.id == server.id);
        let servers = self.pooler.placed_servers().into_iter();
        self.placed.extend(servers.filter(|server| !known(server)));
    }

    /// SUSPEND drops connections that do not come to rest in time, such as slow readers.
    fn excuse_late(&self, out: &Out) {
        let drops = |action: &Action| match action {
            Action::Note(note) => note.text.contains("closing because: suspend_timeout"),
            _ => false,
        };
        if out.actions.iter().any(drops) {
            let excuses = &mut self.world.borrow_mut().excuses;
            excuses.closes = true;
            excuses.texts.push("suspend_timeout");
        }
    }

    /// Checks that a server from before a RECONNECT is closed if it arrives after the RECONNECT.
    fn check_arrival(&self, connected: Time, out: &Out) {
        if connected >= self.called_in {
            return;
        }
        let mut actions = out.actions.iter();
        let peer = actions.find_map(|action| match action {
            Action::Attach(peer, _) => Some(*peer),
            _ => None,
        });
        let closes =
            |action: &Action| matches!(action, Action::Close { peer: p, .. } if Some(*p) == peer);
        if peer.is_some() && !out.actions.iter().any(closes) {
            let text = format!("on worker {}: {peer:?} is kept after RECONNECT", self.name);
            self.violate("orders", text);
        }
    }

    fn notice_congestion(&mut self, event: &Event<'_>) {
        match event {
            Event::Congested(peer) => drop(self.congested.insert(*peer)),
            Event::Drained(peer) => drop(self.congested.remove(peer)),
            Event::Closed { peer, .. } | Event::Detached(peer, _) => {
                self.congested.remove(peer);
                self.silent.remove(peer);
            }
            _ => {}
        }
    }

    /// Checks that a peer with full output makes the other side of its link wait.
    fn check_congestion(&mut self, out: &Out) {
        for action in &out.actions {
            match action {
                Action::Receive { peer, on: false } => drop(self.silent.insert(*peer)),
                Action::Receive { peer, on: true } => drop(self.silent.remove(peer)),
                _ => {}
            }
        }
        for link in &self.links {
            let (client, server) = (Peer::Client(link.waiter.client), Peer::Server(link.server));
            for (full, other) in [(client, server), (server, client)] {
                if self.congested.contains(&full) && !self.silent.contains(&other) {
                    let (full, other) = (name(full), name(other));
                    let text = format!("on worker {}: {full} is full, {other} goes on", self.name);
                    self.violate("congestion", text);
                }
            }
        }
    }

    fn violate(&self, checker: &'static str, text: String) {
        let mut world = self.world.borrow_mut();
        world
            .story
            .violate(checker, &[Who::Worker(self.name)], text);
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        world.story.tell(now, Who::Worker(self.name), line);
    }
}

impl Decide for Watched {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Out) {
        if let Event::Mail(Mail::Survey(survey)) = &event {
            let order = format!("{survey:?}");
            if order.contains("Order(Reconnect(None))") {
                // Servers may be new on a worker that has already obeyed.
                let mut world = self.world.borrow_mut();
                self.called_in = *world.orders.entry(order).or_insert(now);
            }
        }
        let mut arrived = None;
        if let Event::Mail(Mail::Server(parcel)) = &event {
            arrived = Some(parcel.connected);
        }
        self.notice_congestion(&event);
        if let Event::Closed {
            peer: Peer::Server(_),
            gone: false,
        } = &event
        {
            self.world.borrow_mut().excuses.late_sessions += 1;
        }
        let told = self.world.borrow().story.told;
        let mut received = Vec::new();
        if told {
            let line = match &event {
                Event::Received(peer, bytes) => {
                    received = bytes.to_vec();
                    format!("{} sent {}", name(*peer), words(bytes))
                }
                Event::Tick => String::new(),
                Event::Settings(_) => "Settings".into(),
                // A catalogue has no order.
                Event::Mail(Mail::ShardCatalogue(shard, ..)) => format!("a catalogue of {shard}"),
                other => format!("{other:?}"),
            };
            // This message repeats all the time while a client waits.
            if !line.is_empty() && !line.contains("Broker(Need") {
                self.tell(|| line);
            }
        }
        let is_view = matches!(&event, Event::Mail(Mail::Hosts(_)));
        let before = self.before_judging(&event);
        self.pooler.handle(now, event, out);
        self.pooler.check();
        if let Some(before) = before {
            self.judge_places(&before, is_view);
        }
        let lent = |action: &&Action| matches!(action, Action::Post(_, Mail::Server(_)));
        self.lends += out.actions.iter().filter(lent).count() as u64;
        let sent = |action: &&Action| matches!(action, Action::Post(_, Mail::Move(_)));
        self.moves += out.actions.iter().filter(sent).count() as u64;
        let parts = |action: &&Action| matches!(action, Action::Detach(Peer::Server(_)));
        self.parting += out.actions.iter().filter(parts).count() as u64;
        self.excuse_late(out);
        self.check_order();
        self.check_congestion(out);
        if let Some(connected) = arrived {
            self.check_arrival(connected, out);
        }
        if told {
            for action in &out.actions {
                let line = match action {
                    Action::Send(peer, range) => {
                        format!(
                            "  send {} {}",
                            name(*peer),
                            words(&out.bytes[range.clone()])
                        )
                    }
                    Action::Relay(peer, range) => {
                        format!(
                            "  relay {} {}",
                            name(*peer),
                            words(&received[range.clone()])
                        )
                    }
                    Action::Note(note) => format!("  {}", note.text),
                    Action::Post(to, Mail::ShardCatalogue(shard, ..)) => {
                        format!("  tells {to:?} the catalogue of {shard}")
                    }
                    other => format!("  {other:?}"),
                };
                if !line.contains("Broker(Need") {
                    self.tell(|| line);
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.pooler.next_deadline()
    }
}

fn name(peer: Peer) -> String {
    match peer {
        Peer::Client(id) => format!("C{}.{}", id.index, id.generation),
        Peer::Server(id) => format!("S{}.{}", id.index, id.generation),
    }
}
