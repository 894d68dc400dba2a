//! TLS of the connections of a worker: sessions between the driver's bytes and the layer's.
//!
//! What arrives is opened at once, all of it, so nothing of a session waits here but half a record.
//! What leaves is sealed a block at a time, when the block is handed to the driver: relays cost no
//! record each. Handshakes are the one thing that takes long (a private key's work, up to milliseconds):
//! they stand in a line, each takes one step when it is its turn, and a turn of the loop has time for few
//! of them only, so that nobody who is through waits for a storm of them.

use std::collections::VecDeque;
use std::sync::Arc;

use howdah_pooler::event::{Peer, Time};
use howdah_pooler::limits;
use howdah_pooler::tls::TlsStart;

use crate::driver::Key;
use crate::tls::session::{Opened, Step};
use crate::tls::{Contexts, TlsLibrary, TlsSession};

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
pub(crate) struct Sessions {
    library: Arc<dyn TlsLibrary>,
    sessions: Vec<Option<Held>>,
    /// Handshakes that can go on.
    line: VecDeque<Key>,
    /// At most so many handshakes of clients are under way.
    most: usize,
    /// So many are.
    under_way: usize,
    /// When each of those began, and some that have ended.
    begun: VecDeque<(Time, Key)>,
    /// Clients whose handshake has to wait until another has ended.
    waiting: VecDeque<Key>,
    /// A block for plain bytes that nobody uses.
    spare: Vec<u8>,
}

/// A connection's TLS.
struct Held {
    /// Whose it was at first. Its generation changes when the socket goes to another driver.
    key: Key,
    stands: Standing,
    /// Its handshake stands in the line of those that can go on.
    in_line: bool,
    /// It is a client's handshake that is under way.
    counted: bool,
}

enum Standing {
    /// Its handshake must wait: what the client has sent.
    Waits(Box<TlsStart>),
    Session(Box<dyn TlsSession>),
}

/// How a handshake begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begins {
    Now,
    /// When another has ended: nothing need be received before.
    Later,
}

/// What came of received bytes.
pub(crate) enum Taken {
    /// Perhaps plain bytes, and how it ended.
    Opened(Option<Plain>, Opened),
    /// The handshake can go on, when it is its turn.
    Handshake,
}

impl Default for Sessions {
    /// None, and nothing to begin any with.
    fn default() -> Sessions {
        Sessions {
            library: Arc::new(Contexts::default()),
            sessions: Vec::new(),
            line: VecDeque::new(),
            most: limits::HANDSHAKES,
            under_way: 0,
            begun: VecDeque::new(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

impl Sessions {
    /// What new sessions begin with.
    pub(crate) fn set_library(&mut self, library: Arc<dyn TlsLibrary>) {
        self.library = library;
    }

    /// At most so many handshakes of clients are under way.
    pub(crate) fn bound_handshakes(&mut self, most: usize) {
        self.most = most;
    }

    /// Begins a handshake, now or later. `Err`: why not.
    pub(crate) fn start(&mut self, key: Key, start: TlsStart, now: Time) -> Result<Begins, String> {
        // Those of servers are bounded by pools.
        if let TlsStart::Accept { .. } = start
            && (self.under_way >= self.most || !self.waiting.is_empty())
        {
            self.hold(key, Standing::Waits(Box::new(start)));
            self.waiting.push_back(key);
            return Ok(Begins::Later);
        }
        self.begin(key, start, now)?;
        Ok(Begins::Now)
    }

    fn begin(&mut self, key: Key, start: TlsStart, now: Time) -> Result<(), String> {
        let counted = matches!(start, TlsStart::Accept { .. });
        let session = match start {
            TlsStart::Accept { direct, received } => {
                let mut session = self.library.accept(direct)?;
                session.feed(&received);
                session
            }
            TlsStart::Connect(to) => self.library.connect(to)?,
        };
        self.put(key, session);
        if counted && let Some(held) = self.held(key) {
            held.counted = true;
            self.under_way += 1;
            self.begun.push_back((now, key));
        }
        self.stand_in_line(key);
        Ok(())
    }

    /// The next client whose handshake had to wait begins it, if another has ended. `Err`: why not.
    pub(crate) fn begin_waiting(&mut self, now: Time) -> Option<(Key, Result<(), String>)> {
        while self.under_way < self.most {
            let key = self.waiting.pop_front()?;
            // Others have left meanwhile.
            if let Some(held) = self.held(key)
                && held.key == key
                && matches!(held.stands, Standing::Waits(_))
                && let Some(Held {
                    stands: Standing::Waits(start),
                    ..
                }) = self.sessions[key.slot as usize].take()
            {
                return Some((key, self.begin(key, *start, now)));
            }
        }
        None
    }

    /// Who has kept us waiting for so long that the handshake is given up, as others wait to begin
    /// theirs.
    pub(crate) fn give_up(&mut self, now: Time) -> Option<Key> {
        while let Some((since, key)) = self.begun.front().copied() {
            let held = self
                .held(key)
                .filter(|held| held.counted && held.key == key);
            match held.map(|held| held.in_line) {
                Some(in_line) => {
                    let late = now.0 >= since.0 + limits::HANDSHAKE_PATIENCE_NS;
                    if in_line || !late || self.waiting.is_empty() {
                        return None;
                    }
                    self.begun.pop_front();
                    self.ended(key);
                    return Some(key);
                }
                None => {
                    self.begun.pop_front();
                }
            }
        }
        None
    }

    /// When [`Sessions::give_up`] may have somebody.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let (since, _) = self.begun.front().filter(|_| !self.waiting.is_empty())?;
        Some(Time(since.0 + limits::HANDSHAKE_PATIENCE_NS))
    }

    /// A handshake is not under way any more.
    fn ended(&mut self, key: Key) {
        if let Some(held) = self.held(key)
            && std::mem::take(&mut held.counted)
        {
            self.under_way -= 1;
        }
    }

    /// Gives a connection a session that was made elsewhere.
    pub(crate) fn put(&mut self, key: Key, session: Box<dyn TlsSession>) {
        self.hold(key, Standing::Session(session));
    }

    fn hold(&mut self, key: Key, stands: Standing) {
        let slot = key.slot as usize;
        if self.sessions.len() <= slot {
            self.sessions.resize_with(slot + 1, || None);
        }
        self.sessions[slot] = Some(Held {
            key,
            stands,
            in_line: false,
            counted: false,
        });
    }

    /// Gives a connection a session that was packed in another process. `Err`: why not.
    pub(crate) fn unpack(&mut self, key: Key, bytes: &[u8]) -> Result<(), String> {
        let session = self.library.unpack(bytes)?;
        self.put(key, session);
        Ok(())
    }

    /// A connection's session.
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut dyn TlsSession> {
        match &mut self.held(key)?.stands {
            Standing::Session(session) => Some(&mut **session),
            Standing::Waits(_) => None,
        }
    }

    /// Takes a connection's session away.
    pub(crate) fn take(&mut self, key: Key) -> Option<Box<dyn TlsSession>> {
        self.ended(key);
        match self.sessions.get_mut(key.slot as usize)?.take()?.stands {
            Standing::Session(session) => Some(session),
            Standing::Waits(_) => None,
        }
    }

    fn held(&mut self, key: Key) -> Option<&mut Held> {
        self.sessions.get_mut(key.slot as usize)?.as_mut()
    }

    fn stand_in_line(&mut self, key: Key) {
        if let Some(held) = self.held(key)
            && !std::mem::replace(&mut held.in_line, true)
        {
            self.line.push_back(key);
        }
    }

    /// Handshakes wait for their turn.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.line.is_empty() || self.under_way < self.most && !self.waiting.is_empty()
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
        self.held(key)?.in_line = false;
        let session = self.get(key)?;
        let (step, records) = (session.handshake(), session.take_output());
        if !matches!(step, Step::More) {
            self.ended(key);
        }
        Some((step, records))
    }

    /// Takes ciphertext in.
    pub(crate) fn receive(&mut self, key: Key, bytes: &[u8]) -> Option<Taken> {
        let unread = match &mut self.held(key)?.stands {
            // Receiving was switched off: this was under way.
            Standing::Waits(start) => match &mut **start {
                TlsStart::Accept { received, .. } => {
                    received.extend_from_slice(bytes);
                    received.len()
                }
                TlsStart::Connect(_) => 0,
            },
            Standing::Session(session) => {
                session.feed(bytes);
                if !session.is_in_handshake() {
                    return self.open(key);
                }
                session.unread()
            }
        };
        if unread > HANDSHAKE_MAX {
            let why = "more than 128 KB came before its handshake was done".to_owned();
            return Some(Taken::Opened(None, Opened::Failed(why)));
        }
        if self.get(key).is_some() {
            self.stand_in_line(key);
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
