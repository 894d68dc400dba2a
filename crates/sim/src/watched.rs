//! The decisions under test, with every invariant checked after every event, and the story told.

use std::collections::HashSet;

use howdah_daemon::worker::Decide;
use howdah_pooler::Pooler;
use howdah_pooler::census::{Link, Waiter};
use howdah_pooler::event::{Action, ClientId, Event, Out, Peer, Time};
use howdah_pooler::mail::Mail;

use crate::story::{Who, words};
use crate::world::Shared;

/// See the module.
pub struct Watched {
    /// What is watched.
    pub pooler: Pooler,
    /// Servers given to other workers.
    pub lends: u64,
    /// Who waited, and who had a server, after the last event.
    waiters: Vec<Waiter>,
    links: Vec<Link>,
    /// When all servers were last called in.
    called_in: Time,
    /// Clients that got a server with the last event, and not their first: with that they had
    /// waited since their login.
    pub served: Vec<Waiter>,
    known: HashSet<ClientId>,
    worker: u16,
    world: Shared,
}

impl Watched {
    /// Watches the decisions of a worker.
    pub fn new(pooler: Pooler, worker: u16, world: Shared) -> Watched {
        Watched {
            pooler,
            lends: 0,
            waiters: Vec::new(),
            links: Vec::new(),
            called_in: Time(0),
            served: Vec::new(),
            known: HashSet::new(),
            worker,
            world,
        }
    }

    /// Who waits for a server.
    pub fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    /// Nobody gets a server while another of the same pool and worker has waited longer.
    fn check_order(&mut self) {
        let before = std::mem::replace(&mut self.links, self.pooler.links());
        self.waiters = self.pooler.waiters();
        let is_new = |now: &&Link| {
            let same = |then: &Link| then.waiter.client == now.waiter.client;
            !before.iter().any(same)
        };
        for link in self.links.iter().filter(is_new) {
            let served = &link.waiter;
            if link.connected < self.called_in {
                let text = format!("on worker {}: {link:?} after RECONNECT", self.worker);
                let mut world = self.world.borrow_mut();
                world
                    .story
                    .violate("orders", &[Who::Worker(self.worker)], text);
            }
            let overtaken = |w: &&Waiter| w.pool == served.pool && w.since < served.since;
            if let Some(waiter) = self.waiters.iter().find(overtaken) {
                let text = format!("on worker {}: {served:?} overtakes {waiter:?}", self.worker);
                let mut world = self.world.borrow_mut();
                world
                    .story
                    .violate("order", &[Who::Worker(self.worker)], text);
            }
            if !self.known.insert(served.client) {
                self.served.push(served.clone());
            }
        }
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        world.story.tell(now, Who::Worker(self.worker), line);
    }
}

impl Decide for Watched {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Out) {
        if let Event::Mail(Mail::Survey(survey)) = &event {
            let order = format!("{survey:?}");
            if order.contains("Order(Reconnect(None))") {
                // Servers may be new on a worker that has obeyed already.
                let mut world = self.world.borrow_mut();
                self.called_in = *world.orders.entry(order).or_insert(now);
            }
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
                other => format!("{other:?}"),
            };
            // Said anew all the time while somebody waits.
            if !line.is_empty() && !line.contains("Broker(Need") {
                self.tell(|| line);
            }
        }
        self.pooler.handle(now, event, out);
        self.pooler.check();
        let lent = |action: &&Action| matches!(action, Action::Post(_, Mail::Server(_)));
        self.lends += out.actions.iter().filter(lent).count() as u64;
        self.check_order();
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
