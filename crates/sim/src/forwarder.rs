//! A byte forwarder: the smallest decisions that use every part of the layers below.

use howdah_daemon::worker::Decide;
use howdah_pooler::event::{Action, Address, ClientId, Close, Event, Out, Peer, ServerId, Time};

/// Connects each client to `upstream`, and relays in both directions. If one side is congested, the
/// other side is paused. If one side ends, its bytes are still delivered.
pub struct Forwarder {
    upstream: Address,
    pairs: Vec<Pair>,
    free: Vec<u32>,
    /// The counters.
    pub seen: Seen,
}

/// Counters of events.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Accepted clients.
    pub accepted: u64,
    /// Pairs of which both sides are closed.
    pub closed: u64,
    /// Received bytes.
    pub received: u64,
    /// Congested events.
    pub congested: u64,
    /// Drained events.
    pub drained: u64,
    /// Connects that failed.
    pub refused: u64,
}

#[derive(Default)]
struct Pair {
    generation: u32,
    /// The number of sides that are still open.
    open: u8,
    ending: bool,
}

impl Forwarder {
    /// A forwarder to this address.
    pub fn new(upstream: Address) -> Forwarder {
        Forwarder {
            upstream,
            pairs: Vec::new(),
            free: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn accept(&mut self, out: &mut Out) {
        self.seen.accepted += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(Pair::default());
            self.pairs.len() as u32 - 1
        });
        let pair = &mut self.pairs[index as usize];
        let generation = pair.generation + 1;
        *pair = Pair {
            generation,
            open: 2,
            ending: false,
        };
        out.push(Action::Adopt(ClientId { index, generation }));
        out.push(Action::Connect(
            ServerId { index, generation },
            self.upstream.clone(),
        ));
    }

    fn end(&mut self, first: Peer, out: &mut Out) {
        let pair = &mut self.pairs[index(first)];
        if !std::mem::replace(&mut pair.ending, true) {
            out.push(Action::Close {
                peer: first,
                how: Close::Abort,
            });
            out.push(Action::Close {
                peer: other(first),
                how: Close::Flush,
            });
        }
    }
}

fn index(peer: Peer) -> usize {
    match peer {
        Peer::Client(id) => id.index as usize,
        Peer::Server(id) => id.index as usize,
    }
}

/// The other side of the pair.
fn other(peer: Peer) -> Peer {
    match peer {
        Peer::Client(ClientId { index, generation }) => {
            Peer::Server(ServerId { index, generation })
        }
        Peer::Server(ServerId { index, generation }) => {
            Peer::Client(ClientId { index, generation })
        }
    }
}

impl Decide for Forwarder {
    fn handle(&mut self, _now: Time, event: Event<'_>, out: &mut Out) {
        match event {
            Event::Accepted(_) => self.accept(out),
            Event::Received(peer, bytes) => {
                self.seen.received += bytes.len() as u64;
                out.relay(other(peer), 0..bytes.len());
            }
            Event::Connected(server, Err(_)) => {
                self.seen.refused += 1;
                self.end(Peer::Server(server), out);
            }
            Event::Lost(peer, _) => self.end(peer, out),
            Event::Congested(peer) => {
                self.seen.congested += 1;
                out.push(Action::Receive {
                    peer: other(peer),
                    on: false,
                });
            }
            Event::Drained(peer) => {
                self.seen.drained += 1;
                out.push(Action::Receive {
                    peer: other(peer),
                    on: true,
                });
            }
            Event::Closed { peer, .. } => {
                let pair = &mut self.pairs[index(peer)];
                assert!(pair.open > 0, "{peer:?} closed twice");
                pair.open -= 1;
                if pair.open == 0 {
                    self.seen.closed += 1;
                    self.free.push(index(peer) as u32);
                }
            }
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}
