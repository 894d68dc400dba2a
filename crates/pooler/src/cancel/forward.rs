//! Forwards cancel requests to the peers that gave out their keys ([`crate::peer`]).
//!
//! Worker 0 forwards for all workers, so that a peer's limit is one number. The control thread
//! sends each request on its own connection, until the peer has closed the connection.

use howdah_wire::write;

use crate::config::nanos;
use crate::event::{Action, ClientId, Out, Question, Time, WorkerId};
use crate::fault::Fault;
use crate::limits;
use crate::mail::Mail;
use crate::note::{Level, Note};
use crate::peering::{Forward, PeerKey};
use crate::pooler::{Asker, Pooler};

impl Pooler {
    /// Worker 0 gets a request for a peer.
    pub(crate) fn forward(
        &mut self,
        peer: u16,
        packet: Vec<u8>,
        from: (WorkerId, ClientId),
        out: &mut Out,
    ) {
        let limit = match nanos(self.config.globals.cancel_wait_timeout) {
            0 => u64::MAX,
            limit => limit,
        };
        let until = Time(self.now.0.saturating_add(limit));
        let pool = self.peering.pools.entry(peer).or_default();
        if pool.waiting.len() >= limits::FORWARDS_WAITING {
            let (worker, client) = from;
            return out.push(Action::Post(worker, Mail::Forwarded(client, false)));
        }
        pool.waiting.push_back(Forward {
            packet,
            from,
            until,
        });
        self.forward_next(peer, out);
    }

    /// Sends requests, as many as the peer may get at once.
    fn forward_next(&mut self, peer: u16, out: &mut Out) {
        loop {
            let target = self.config.peers.get(&peer).cloned();
            let now = self.now;
            let Some(pool) = self.peering.pools.get_mut(&peer) else {
                return;
            };
            // Time is up for these requests; their clients know.
            while pool.waiting.front().is_some_and(|next| next.until < now) {
                pool.waiting.pop_front();
            }
            let Some(target) = target else {
                // A reload removed the peer.
                for request in std::mem::take(&mut pool.waiting) {
                    let (worker, client) = request.from;
                    out.push(Action::Post(worker, Mail::Forwarded(client, false)));
                }
                return;
            };
            let size = self.config.peer_pool_size(&target) as usize;
            if size > 0 && pool.active.len() >= size {
                return;
            }
            let Some(request) = pool.waiting.pop_front() else {
                return;
            };
            let mut number = 0;
            let question = |ticket| {
                number = ticket;
                Question::Forward {
                    ticket,
                    hosts: target.hosts.clone(),
                    port: target.port,
                    packet: request.packet,
                }
            };
            self.ask(Asker::Forward(peer), question, out);
            if let Some(pool) = self.peering.pools.get_mut(&peer) {
                pool.active.insert(number, (request.from, false));
            }
        }
    }

    /// The peer has received the request.
    pub(crate) fn forwarding(&mut self, ticket: u64) {
        for pool in self.peering.pools.values_mut() {
            if let Some((_, sent)) = pool.active.get_mut(&ticket) {
                *sent = true;
            }
        }
    }

    /// The peer has finished a request, or could not be reached.
    pub(crate) fn forwarded(
        &mut self,
        peer: u16,
        ticket: u64,
        result: Result<(), String>,
        out: &mut Out,
    ) {
        let pool = self.peering.pools.get_mut(&peer);
        if let Some((from, _)) = pool.and_then(|pool| pool.active.remove(&ticket)) {
            let (worker, client) = from;
            out.push(Action::Post(
                worker,
                Mail::Forwarded(client, result.is_ok()),
            ));
        }
        if let Err(why) = result {
            let text = format!("peer-{peer}: could not forward a cancel request: {why}");
            out.note(Note::new(Level::Warning, text));
        }
        self.forward_next(peer, out);
    }

    /// A request to a peer is done; false if it could not be.
    pub(crate) fn forward_done(&mut self, id: ClientId, done: bool, out: &mut Out) {
        let fault = if done {
            Fault::Cancelled
        } else {
            Fault::CancelUnknown
        };
        self.end_canceller(id, fault, out);
    }

    /// No client of this process has the key of a request. The request goes to the peer that the key
    /// names, if there is one.
    pub(crate) fn key_unknown(
        &mut self,
        id: ClientId,
        pid: u32,
        mut secret: Box<[u8]>,
        out: &mut Out,
    ) {
        let own = self.config.globals.peer_id;
        let key = PeerKey::read(pid, &secret);
        let fault = match key.filter(|key| own != 0 && u32::from(key.peer()) != own) {
            None => Fault::CancelUnknown,
            Some(key) if !self.config.peers.contains_key(&key.peer()) => Fault::CancelNoPeer,
            Some(key) if key.ttl() == 0 => Fault::CancelTtl,
            Some(key) => {
                let key = key.forwarded();
                secret[..4].copy_from_slice(&key.0[4..]);
                let mut packet = Vec::new();
                write::cancel_request(&mut packet, key.pid(), &secret);
                let mail = Mail::Forward {
                    peer: key.peer(),
                    packet,
                    from: (self.worker, id),
                };
                // The peer examines the key.
                self.guesses.examined(id);
                return out.push(Action::Post(Self::FIRST, mail));
            }
        };
        self.key_examined(id, false);
        self.end_canceller(id, fault, out);
    }
}
