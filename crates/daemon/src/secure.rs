//! TLS of a worker's connections, between the driver's bytes and the connection layer's.
//!
//! All that arrives is decrypted at once, so a session holds back at most part of a record. Output is
//! encrypted a block at a time, when the block is handed to the driver, so many relays share a record.
//! Only handshakes take long (up to milliseconds, for a private key). They wait in a queue: each takes one
//! step when it is its turn, and a turn of the loop has time for only a few steps. So connections that
//! have finished their handshakes do not wait for a storm of new ones. A step that takes milliseconds is
//! done by another thread ([`crate::helper`]).

use std::collections::VecDeque;
use std::sync::Arc;

use howdah_pooler::event::{Peer, Time};
use howdah_pooler::limits;
use howdah_pooler::tls::TlsStart;

use crate::driver::Key;
use crate::helper::{Helper, Shaken};
use crate::tls::session::{HandshakeStep, Opened};
use crate::tls::{Contexts, TlsLibrary, TlsSession};

/// At most so many steps of handshakes in one turn.
const STEPS: usize = 16;
/// Or as many steps as begin within so many nanoseconds: one with an RSA key, several with elliptic
/// curves. (Each transaction needs at least two turns, so turns must be short.)
const STEPS_TIME: u64 = 250_000;

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

/// How many bytes of a handshake are kept until its turn comes. A chain of certificates has at most
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
    /// Clients that have not answered in their handshakes, and since when, oldest first. Some
    /// entries may be out of date.
    awaited: VecDeque<(Time, Key)>,
    /// Clients that have sent something, and whose handshake has to wait until another has ended.
    waiting: VecDeque<Key>,
    /// A free block for plain bytes.
    spare: Vec<u8>,
    /// Takes the slow steps of handshakes.
    helper: Option<Helper>,
}

/// A connection's TLS.
struct Held {
    /// The key of its connection. The generation changes when the socket goes to another driver.
    key: Key,
    stands: Standing,
    /// Its handshake stands in the line of those that can go on.
    in_line: bool,
    /// It is a client's handshake that is under way.
    counted: bool,
    /// It is in the queue of handshakes that wait to begin.
    waits: bool,
    /// The time of the last step of its handshake, while the other side has not answered.
    stepped: Option<Time>,
    /// Howdah has sent something in its handshake.
    answered: bool,
}

impl Held {
    /// Its handshake has not begun, and is a client's.
    fn is_clients(&self) -> bool {
        matches!(&self.stands, Standing::Begins(start) if matches!(**start, TlsStart::Accept { .. }))
    }
}

enum Standing {
    /// Its handshake has not begun: what the client has sent.
    Begins(Box<TlsStart>),
    Session(Box<dyn TlsSession>),
    /// The helper thread takes a step of its handshake: the bytes that have come meanwhile.
    Away(Vec<u8>),
}

/// What came of received bytes.
pub(crate) enum Taken {
    /// Plain bytes, if any, and how opening ended.
    Opened(Option<Plain>, Opened),
    /// The handshake can go on when it is its turn.
    Handshake,
    /// The handshake has to wait until another has ended: nothing need be received before.
    Waits,
    /// The handshake can't begin: why.
    Refused(String),
}

impl Default for Sessions {
    /// No sessions, and no library to begin any.
    fn default() -> Sessions {
        Sessions {
            library: Arc::new(Contexts::default()),
            sessions: Vec::new(),
            line: VecDeque::new(),
            most: limits::HANDSHAKES,
            under_way: 0,
            awaited: VecDeque::new(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
            helper: None,
        }
    }
}

impl Sessions {
    /// What new sessions begin with.
    pub(crate) fn set_library(&mut self, library: Arc<dyn TlsLibrary>) {
        self.library = library;
    }

    /// Slow steps are taken by this helper thread.
    pub(crate) fn help_by(&mut self, helper: Helper) {
        self.helper = Some(helper);
    }

    /// At most so many handshakes of clients are under way.
    pub(crate) fn bound_handshakes(&mut self, most: usize) {
        self.most = most;
    }

    /// Begins a handshake if there is a library and room for it, otherwise later. A client that has
    /// sent nothing yet takes no memory, and no place among the handshakes under way.
    pub(crate) fn start(&mut self, key: Key, start: TlsStart) -> Taken {
        let silent = matches!(&start, TlsStart::Accept { received, .. } if received.is_empty());
        self.hold(key, Standing::Begins(Box::new(start)));
        match silent {
            true => Taken::Handshake,
            false => self.admit(key),
        }
    }

    /// A handshake begins, or has to wait.
    fn admit(&mut self, key: Key) -> Taken {
        let full = self.under_way >= self.most || !self.waiting.is_empty();
        match self.held(key) {
            // The number of servers' handshakes is bounded by pools.
            Some(held) if full && held.is_clients() => {
                held.waits = true;
                self.waiting.push_back(key);
                Taken::Waits
            }
            _ => self.begin(key),
        }
    }

    fn begin(&mut self, key: Key) -> Taken {
        let Some(Held {
            stands: Standing::Begins(start),
            ..
        }) = self.sessions[key.slot as usize].take()
        else {
            return Taken::Handshake;
        };
        let counted = matches!(*start, TlsStart::Accept { .. });
        let session = match *start {
            TlsStart::Accept { direct, received } => {
                self.library.accept(direct).map(|mut session| {
                    session.feed(&received);
                    session
                })
            }
            TlsStart::Connect(to) => self.library.connect(to),
        };
        match session {
            Ok(session) => self.put(key, session),
            Err(why) => return Taken::Refused(why),
        }
        if counted && let Some(held) = self.held(key) {
            held.counted = true;
            self.under_way += 1;
        }
        self.stand_in_line(key);
        Taken::Handshake
    }

    /// The next client whose handshake had to wait, if another has ended.
    pub(crate) fn next_waiting(&mut self) -> Option<Key> {
        while self.under_way < self.most {
            let key = self.waiting.pop_front()?;
            // Others have left meanwhile.
            let held = self.held(key).filter(|held| held.key == key);
            if held.is_some_and(|held| std::mem::take(&mut held.waits)) {
                return Some(key);
            }
        }
        None
    }

    /// A client that had to wait begins its handshake.
    pub(crate) fn begin_waiting(&mut self, key: Key) -> Taken {
        self.begin(key)
    }

    /// A client that has not answered for so long that its handshake is given up, because others
    /// wait to begin theirs.
    pub(crate) fn give_up(&mut self, now: Time) -> Option<Key> {
        while !self.waiting.is_empty() {
            let (since, key) = self.awaited.front().copied()?;
            let awaited = self.is_awaited(since, key);
            if awaited && now.0 < since.0 + limits::HANDSHAKE_PATIENCE_NS {
                return None;
            }
            self.awaited.pop_front();
            if awaited {
                self.ended(key);
                return Some(key);
            }
        }
        None
    }

    /// True if a client's handshake is under way, and it has sent nothing since then.
    fn is_awaited(&self, since: Time, key: Key) -> bool {
        let held = self
            .sessions
            .get(key.slot as usize)
            .and_then(Option::as_ref);
        held.is_some_and(|held| {
            held.key == key && held.counted && !held.in_line && held.stepped == Some(since)
        })
    }

    /// When [`Sessions::give_up`] may find a client.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let (since, _) = self.awaited.front().filter(|_| !self.waiting.is_empty())?;
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
            waits: false,
            stepped: None,
            answered: false,
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
            Standing::Begins(_) | Standing::Away(_) => None,
        }
    }

    /// Takes a connection's session away.
    pub(crate) fn take(&mut self, key: Key) -> Option<Box<dyn TlsSession>> {
        self.ended(key);
        match self.sessions.get_mut(key.slot as usize)?.take()?.stands {
            Standing::Session(session) => Some(session),
            Standing::Begins(_) | Standing::Away(_) => None,
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

    /// The connection whose handshake may take a step now. In this turn `taken` steps were taken,
    /// in `spent` nanoseconds.
    pub(crate) fn next_in_line(&mut self, taken: usize, spent: u64) -> Option<Key> {
        if taken > 0 && (taken >= STEPS || spent >= STEPS_TIME) {
            return None;
        }
        self.line.pop_front()
    }

    /// Takes one step of a handshake, and returns the bytes to send. `None` also if the helper
    /// thread takes the step.
    pub(crate) fn step(&mut self, key: Key, now: Time) -> Option<(HandshakeStep, Option<Vec<u8>>)> {
        self.held(key)?.in_line = false;
        if self.goes_away(key) {
            return None;
        }
        let step = self.get(key)?.handshake();
        self.stepped(key, step, now)
    }

    /// The step in which the private key is used goes to the helper, if it takes long. Howdah has
    /// sent nothing before that step, so no answer can arrive meanwhile.
    fn goes_away(&mut self, key: Key) -> bool {
        let Sessions {
            helper: Some(helper),
            sessions,
            ..
        } = self
        else {
            return false;
        };
        let Some(held) = sessions.get_mut(key.slot as usize).and_then(Option::as_mut) else {
            return false;
        };
        match std::mem::replace(&mut held.stands, Standing::Away(Vec::new())) {
            Standing::Session(session) if session.is_laborious() && !held.answered => {
                match helper.shake(held.key, session) {
                    Ok(()) => return true,
                    Err(session) => held.stands = Standing::Session(session),
                }
            }
            stands => held.stands = stands,
        }
        false
    }

    /// A session comes back with the step that it has taken; `None` if its connection is gone.
    pub(crate) fn returned(
        &mut self,
        shaken: Shaken,
        now: Time,
    ) -> Option<(HandshakeStep, Option<Vec<u8>>)> {
        let Shaken {
            key,
            mut session,
            step,
        } = shaken;
        let held = self.held(key).filter(|held| held.key == key)?;
        let Standing::Away(received) = &held.stands else {
            return None;
        };
        let more = !received.is_empty();
        session.feed(received);
        held.stands = Standing::Session(session);
        if more {
            self.stand_in_line(key);
        }
        self.stepped(key, step, now)
    }

    /// A session has taken a step of its handshake.
    fn stepped(
        &mut self,
        key: Key,
        step: HandshakeStep,
        now: Time,
    ) -> Option<(HandshakeStep, Option<Vec<u8>>)> {
        let records = self.get(key)?.take_output();
        self.held(key)?.answered |= records.is_some();
        match step {
            HandshakeStep::More => self.awaits(key, now),
            _ => self.ended(key),
        }
        Some((step, records))
    }

    /// It is the other side's turn.
    fn awaits(&mut self, key: Key, now: Time) {
        let Some(held) = self.held(key) else { return };
        held.stepped = Some(now);
        if !held.counted {
            return;
        }
        self.awaited.push_back((now, key));
        if self.awaited.len() > 2 * self.under_way + 64 {
            let awaited = std::mem::take(&mut self.awaited);
            let holds = |(since, key): &(Time, Key)| self.is_awaited(*since, *key);
            self.awaited = awaited.into_iter().filter(holds).collect();
        }
    }

    /// True if Howdah has sent something in its handshake, so that bytes that come with its end may
    /// be an answer.
    pub(crate) fn was_answered(&mut self, key: Key) -> bool {
        self.held(key).is_some_and(|held| held.stepped.is_some())
    }

    /// A client that waits to begin is not received from.
    pub(crate) fn waits(&mut self, key: Key) -> bool {
        self.held(key).is_some_and(|held| held.waits)
    }

    /// Takes ciphertext in.
    pub(crate) fn receive(&mut self, key: Key, bytes: &[u8]) -> Option<Taken> {
        let held = self.held(key)?;
        let unread = match &mut held.stands {
            Standing::Begins(start) => match &mut **start {
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
            Standing::Away(received) => {
                received.extend_from_slice(bytes);
                received.len()
            }
        };
        if unread > HANDSHAKE_MAX {
            let why = "more than 128 KB came before its handshake was done".to_owned();
            return Some(Taken::Opened(None, Opened::Failed(why)));
        }
        match held.stands {
            Standing::Begins(_) => {}
            Standing::Away(_) => return Some(Taken::Handshake),
            Standing::Session(_) => {
                self.stand_in_line(key);
                return Some(Taken::Handshake);
            }
        }
        // Receiving was just switched off: these bytes were under way.
        Some(if held.waits {
            Taken::Waits
        } else {
            self.admit(key)
        })
    }

    /// Decrypts all whole records at hand.
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
        // After a burst, memory is given back.
        let fits = plain.block.len() <= 256 * 1024;
        if fits && plain.block.len() > self.spare.len() {
            self.spare = plain.block;
        }
    }
}

/// The text for the end of a session.
pub(crate) fn broken(peer: Peer, why: &str) -> String {
    match peer {
        Peer::Client(_) => format!("TLS error: {why}"),
        Peer::Server(_) => format!("server TLS error: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_time_for_few_steps_and_the_others_keep_their_place() {
        let mut sessions = Sessions::default();
        let key = |slot| Key {
            slot,
            generation: 0,
        };
        sessions.line.extend((0..40).map(key));
        let long = STEPS_TIME;
        assert_eq!(
            sessions.next_in_line(0, long,),
            Some(key(0)),
            "the first always"
        );
        assert_eq!(sessions.next_in_line(1, long), None);
        for taken in 0..STEPS {
            let next = u32::try_from(taken).unwrap() + 1;
            assert_eq!(sessions.next_in_line(taken, long - 1), Some(key(next)));
        }
        assert_eq!(sessions.next_in_line(STEPS, 0), None);
        assert!(sessions.are_waiting());
        assert_eq!(
            sessions.next_in_line(0, 0),
            Some(key(17)),
            "in the next turn"
        );
    }
}
