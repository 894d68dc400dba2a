//! TLS of the connections of a worker: sessions between the driver's bytes and the layer's.
//!
//! What arrives is opened at once, all of it, so nothing of a session waits here but half a record.
//! What leaves is sealed a block at a time, when the block is handed to the driver: relays cost no
//! record each. Handshakes are the one thing that takes long (a private key's work, up to milliseconds):
//! they stand in a line, each takes one step when it is its turn, and a turn of the loop has time for few
//! of them only, so that nobody who is through waits for a storm of them.

use std::collections::VecDeque;
use std::sync::Arc;

use howdah_pooler::event::Peer;
use howdah_pooler::tls::TlsStart;

use crate::driver::Key;
use crate::tls::session::{Opened, Step};
use crate::tls::{Contexts, Session};

/// At most so many steps of handshakes in one turn.
const STEPS: usize = 16;
/// Or as many as begin in so many nanoseconds.
const STEPS_TIME: u64 = 1_000_000;

/// Plain bytes: the first `len` of the block.
#[derive(Debug, Default)]
pub struct Plain {
    block: Vec<u8>,
    len: usize,
}

impl Plain {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.block[..self.len]
    }
}

/// So many bytes of a handshake are kept until its turn comes. A chain of certificates has at most
/// 100 KB.
const HANDSHAKE_MAX: usize = 128 * 1024;

/// All sessions of a worker, by slot, and what they share.
#[derive(Default)]
pub(crate) struct Sessions {
    contexts: Arc<Contexts>,
    sessions: Vec<Option<Box<Session>>>,
    /// Handshakes that can go on.
    line: VecDeque<Key>,
    /// A block for plain bytes that nobody uses.
    spare: Vec<u8>,
}

/// What came of received bytes.
pub(crate) enum Taken {
    /// Perhaps plain bytes, and how it ended.
    Opened(Option<Plain>, Opened),
    /// The handshake can go on, when it is its turn.
    Handshake,
}

impl Sessions {
    /// What new sessions begin with.
    pub(crate) fn set_contexts(&mut self, contexts: Arc<Contexts>) {
        self.contexts = contexts;
    }

    /// Begins a handshake. `Err`: why not.
    pub(crate) fn start(&mut self, key: Key, start: TlsStart) -> Result<(), String> {
        let mut session = match start {
            TlsStart::Accept { direct, received } => {
                let mut session = Session::accept(&self.contexts, direct)?;
                session.feed(&received);
                session
            }
            TlsStart::Connect(to) => Session::connect(&self.contexts, to)?,
        };
        session.in_line = true;
        self.put(key, Box::new(session));
        self.line.push_back(key);
        Ok(())
    }

    /// Gives a connection a session that was made elsewhere.
    pub(crate) fn put(&mut self, key: Key, session: Box<Session>) {
        let slot = key.slot as usize;
        if self.sessions.len() <= slot {
            self.sessions.resize_with(slot + 1, || None);
        }
        self.sessions[slot] = Some(session);
    }

    /// A connection's session.
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Session> {
        self.sessions.get_mut(key.slot as usize)?.as_deref_mut()
    }

    /// Takes a connection's session away.
    pub(crate) fn take(&mut self, key: Key) -> Option<Box<Session>> {
        self.sessions.get_mut(key.slot as usize)?.take()
    }

    /// Handshakes wait for their turn.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whose handshake may take a step now: `taken` have in this turn, which `spent` nanoseconds.
    pub(crate) fn next_in_line(&mut self, taken: usize, spent: u64) -> Option<Key> {
        if taken > 0 && (taken >= STEPS || spent >= STEPS_TIME) {
            return None;
        }
        self.line.pop_front()
    }

    /// One step of a handshake, and what is to be said.
    pub(crate) fn step(&mut self, key: Key) -> Option<(Step, Option<Vec<u8>>)> {
        let session = self.get(key)?;
        session.in_line = false;
        let step = session.handshake();
        Some((step, session.take_output()))
    }

    /// Takes ciphertext in.
    pub(crate) fn receive(&mut self, key: Key, bytes: &[u8]) -> Option<Taken> {
        let session = self.get(key)?;
        session.feed(bytes);
        if !session.is_in_handshake() {
            return self.open(key);
        }
        if session.unread() > HANDSHAKE_MAX {
            let why = "more than 128 KB came before its handshake was done".to_owned();
            return Some(Taken::Opened(None, Opened::Failed(why)));
        }
        if !std::mem::replace(&mut session.in_line, true) {
            self.line.push_back(key);
        }
        Some(Taken::Handshake)
    }

    /// Opens what there is.
    pub(crate) fn open(&mut self, key: Key) -> Option<Taken> {
        let mut block = std::mem::take(&mut self.spare);
        let mut len = 0;
        let session = self.get(key)?;
        let opened = session.open(&mut block, &mut len);
        if len == 0 {
            self.spare = block;
            return Some(Taken::Opened(None, opened));
        }
        Some(Taken::Opened(Some(Plain { block, len }), opened))
    }

    /// Takes the memory of plain bytes back.
    pub(crate) fn give(&mut self, plain: Plain) {
        // A burst is not remembered for ever.
        let fits = plain.block.len() <= 256 * 1024;
        if fits && plain.block.len() > self.spare.len() {
            self.spare = plain.block;
        }
    }
}

/// How a session's end is told of.
pub(crate) fn broken(peer: Peer, why: &str) -> String {
    match peer {
        Peer::Client(_) => format!("TLS error: {why}"),
        Peer::Server(_) => format!("server TLS error: {why}"),
    }
}
