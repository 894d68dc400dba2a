//! The decisions under test, with every invariant checked after every event, and the story told.

use howdah_daemon::worker::Decide;
use howdah_pooler::Pooler;
use howdah_pooler::event::{Action, Event, Out, Peer, Time};
use howdah_pooler::mail::Mail;

use crate::story::{Who, words};
use crate::world::Shared;

/// See the module.
pub struct Watched {
    /// What is watched.
    pub pooler: Pooler,
    /// Servers given to other workers.
    pub lends: u64,
    worker: u16,
    world: Shared,
}

impl Watched {
    /// Watches the decisions of a worker.
    pub fn new(pooler: Pooler, worker: u16, world: Shared) -> Watched {
        Watched {
            pooler,
            lends: 0,
            worker,
            world,
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
        let told = self.world.borrow().story.told;
        let mut received = Vec::new();
        if told {
            let line = match &event {
                Event::Received(peer, bytes) => {
                    received = bytes.to_vec();
                    format!("{} sent {}", name(*peer), words(bytes))
                }
                Event::Tick => String::new(),
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
