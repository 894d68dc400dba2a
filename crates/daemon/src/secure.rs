//! TLS of a worker's connections, between the driver's bytes and the connection layer's.
//!
//! Received bytes are decrypted at once, so a session keeps at most part of a record. Output is encrypted one
//! block at a time, when the block is handed to the driver, so many relays share a record. Only handshakes
//! take long (up to milliseconds, for a private key). They wait in a queue, and each takes one step in its
//! turn. A turn of the loop has time for only a few steps. So connections that have finished their handshakes
//! do not wait for a storm of new ones. Another thread ([`crate::helper`]) takes the steps that need
//! milliseconds.

use std::collections::VecDeque;
use std::sync::Arc;

use howdah_pooler::event::{Peer, Time};
use howdah_pooler::limits;
use howdah_pooler::tls::TlsStart;

use crate::driver::Key;
use crate::helper::{Helper, Shaken};
use crate::tls::session::{HandshakeStep, Opened};
use crate::tls::{Contexts, TlsLibrary, TlsSession};

/// The most handshake steps in one turn.
const STEPS: usize = 16;
/// No step begins after this many nanoseconds of steps in one turn: one step with an RSA key,
/// several with elliptic curves. (Each transaction needs at least two turns, so turns must be
/// short.)
const STEPS_TIME: u64 = 250_000;

/// Plain bytes: the first `len` bytes of the block.
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

/// How many bytes of a handshake are kept until its turn. A chain of certificates has at most 100
/// KB.
const HANDSHAKE_MAX: usize = 128 * 1024;

/// All sessions of a worker, by slot, and the state that they share.
pub(crate) struct Sessions {
    library: Arc<dyn TlsLibrary>,
    sessions: Vec<Option<Held>>,
    /// Handshakes that can take a step.
    line: VecDeque<Key>,
    /// The greatest number of clients' handshakes under way.
    most: usize,
    /// The number of clients' handshakes under way.
    under_way: usize,
    /// Clients' handshakes under way, and when each began, oldest first. Some entries may be out of
    /// date.
    begun: VecDeque<(Time, Key)>,
    /// Clients that have sent the first message of a handshake, which waits until another handshake
    /// has ended.
    waiting: VecDeque<Key>,
    /// A free block for plain bytes.
    spare: Vec<u8>,
    /// The helper for slow steps of handshakes.
    helper: Option<Helper>,
}

/// The TLS of one connection.
struct Held {
    /// The connection's key. The generation changes when the socket moves to another driver.
    key: Key,
    stands: Standing,
    /// The handshake is in the queue of those that can take a step.
    in_line: bool,
    /// The handshake counts as under way: it is a client's, and has begun.
    counted: bool,
    /// The handshake is in the queue of those that wait to begin.
    waits: bool,
    /// When the handshake of a client began.
    begun: Time,
    /// The handshake has taken a step.
    stepped: bool,
    /// Howdah has sent something in the handshake.
    answered: bool,
}

impl Held {
    /// True for a client's handshake that has not begun.
    fn is_clients(&self) -> bool {
        matches!(&self.stands, Standing::Begins(start) if matches!(**start, TlsStart::Accept { .. }))
    }
}

enum Standing {
    /// The handshake has not begun. Contains the bytes that the client has sent.
    Begins(Box<TlsStart>),
    Session(Box<dyn TlsSession>),
    /// The helper thread takes a step of the handshake. Contains the bytes that have arrived
    /// meanwhile.
    Away(Vec<u8>),
}

/// The result of received bytes.
pub(crate) enum Taken {
    /// Plain bytes, if any, and how the decryption ended.
    Opened(Option<Plain>, Opened),
    /// The handshake can go on in its turn.
    Handshake,
    /// The handshake waits until another one has ended. Nothing needs to be received before.
    Waits,
    /// The handshake can't begin or go on; the reason.
    Refused(String),
}

impl Default for Sessions {
    /// No sessions, and no TLS library.
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
            helper: None,
        }
    }
}

impl Sessions {
    /// Sets the TLS library of new sessions.
    pub(crate) fn set_library(&mut self, library: Arc<dyn TlsLibrary>) {
        self.library = library;
    }

    /// Sets the helper thread for slow steps.
    pub(crate) fn help_by(&mut self, helper: Helper) {
        self.helper = Some(helper);
    }

    /// Sets the greatest number of clients' handshakes under way.
    pub(crate) fn bound_handshakes(&mut self, most: usize) {
        self.most = most;
    }

    /// Begins a handshake if there is a library and room for it, otherwise later. A client that has
    /// not sent all of its first message takes no place among the handshakes under way.
    pub(crate) fn start(&mut self, key: Key, start: TlsStart, now: Time) -> Taken {
        let short = match &start {
            TlsStart::Accept { received, .. } => !self.library.is_hello(received),
            TlsStart::Connect(_) => false,
        };
        self.hold(key, Standing::Begins(Box::new(start)));
        if short {
            Taken::Handshake
        } else {
            self.admit(key, now)
        }
    }

    /// Lets a handshake begin, or wait.
    fn admit(&mut self, key: Key, now: Time) -> Taken {
        let full = self.under_way >= self.most || !self.waiting.is_empty();
        match self.held(key) {
            // The pools bound the number of servers' handshakes.
            Some(held) if full && held.is_clients() => {
                held.waits = true;
                self.waiting.push_back(key);
                Taken::Waits
            }
            _ => self.begin(key, now),
        }
    }

    fn begin(&mut self, key: Key, now: Time) -> Taken {
        let begins = |held: &mut Held| matches!(held.stands, Standing::Begins(_));
        let Some(Held {
            stands: Standing::Begins(start),
            ..
        }) = self.sessions[key.slot as usize].take_if(begins)
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
            held.begun = now;
            self.under_way += 1;
            self.begun.push_back((now, key));
            if self.begun.len() > 2 * self.under_way + 64 {
                let begun = std::mem::take(&mut self.begun);
                let holds = |(since, key): &(Time, Key)| self.is_under_way(*since, *key);
                self.begun = begun.into_iter().filter(holds).collect();
            }
        }
        self.stand_in_line(key);
        Taken::Handshake
    }

    /// The next client whose handshake waits, if another handshake has ended.
    pub(crate) fn next_waiting(&mut self) -> Option<Key> {
        while self.under_way < self.most {
            let key = self.waiting.pop_front()?;
            // The other clients have left meanwhile.
            let held = self.held(key).filter(|held| held.key == key);
            if held.is_some_and(|held| std::mem::take(&mut held.waits)) {
                return Some(key);
            }
        }
        None
    }

    /// Begins the handshake of a client that had to wait.
    pub(crate) fn begin_waiting(&mut self, key: Key, now: Time) -> Taken {
        self.begin(key, now)
    }

    /// A client whose handshake is given up, because it has taken too long and other clients wait to
    /// begin theirs.
    pub(crate) fn give_up(&mut self, now: Time) -> Option<Key> {
        while !self.waiting.is_empty() {
            let (since, key) = self.begun.front().copied()?;
            let under_way = self.is_under_way(since, key);
            if under_way && now.0 < since.0 + limits::HANDSHAKE_PATIENCE_NS {
                return None;
            }
            self.begun.pop_front();
            let Some(held) = self.held(key).filter(|_| under_way) else {
                continue;
            };
            if held.in_line || matches!(held.stands, Standing::Away(_)) {
                // The handshake waits for this process.
                held.begun = now;
                self.begun.push_back((now, key));
                continue;
            }
            self.ended(key);
            return Some(key);
        }
        None
    }

    /// True if a client's handshake that began then is under way.
    fn is_under_way(&self, since: Time, key: Key) -> bool {
        let held = self
            .sessions
            .get(key.slot as usize)
            .and_then(Option::as_ref);
        held.is_some_and(|held| held.key == key && held.counted && held.begun == since)
    }

    /// When [`Sessions::give_up`] may find a client.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let (since, _) = self.begun.front().filter(|_| !self.waiting.is_empty())?;
        Some(Time(since.0 + limits::HANDSHAKE_PATIENCE_NS))
    }

    /// A handshake is no longer under way.
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
            begun: Time(0),
            stepped: false,
            answered: false,
        });
    }

    /// Gives a connection a session that was packed in another process. `Err`: the reason why it
    /// can't be used.
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

    /// Removes a connection's session, and returns it.
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

    /// True if a handshake can take a step or begin.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.line.is_empty() || self.under_way < self.most && !self.waiting.is_empty()
    }

    /// The connection whose handshake may take a step now. In this turn, `taken` steps have taken
    /// `spent` nanoseconds.
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

    /// Gives the step with the private key to the helper, if that step takes long. Before this step
    /// Howdah has sent nothing, so no answer can arrive meanwhile.
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

    /// A session comes back after its step; `None` if its connection is gone.
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
        let held = self.held(key)?;
        held.answered |= records.is_some();
        match step {
            HandshakeStep::More => {
                let first = !std::mem::replace(&mut held.stepped, true);
                if first && held.counted {
                    // Until now the client has waited for this process.
                    held.begun = now;
                    self.begun.push_back((now, key));
                }
            }
            _ => self.ended(key),
        }
        Some((step, records))
    }

    /// True if Howdah has sent something in the handshake. Then bytes that come with the end of the
    /// stream may be an answer.
    pub(crate) fn was_answered(&mut self, key: Key) -> bool {
        self.held(key).is_some_and(|held| held.stepped)
    }

    /// True for a client that waits to begin its handshake: nothing is received from it.
    pub(crate) fn waits(&mut self, key: Key) -> bool {
        self.held(key).is_some_and(|held| held.waits)
    }

    /// Takes received ciphertext.
    pub(crate) fn receive(&mut self, key: Key, bytes: &[u8], now: Time) -> Taken {
        let held = self.sessions.get_mut(key.slot as usize);
        let Some(held) = held.and_then(Option::as_mut) else {
            return Taken::Handshake;
        };
        let mut short = false;
        let unread = match &mut held.stands {
            Standing::Begins(start) => match &mut **start {
                TlsStart::Accept { received, .. } => {
                    received.extend_from_slice(bytes);
                    short = !self.library.is_hello(received);
                    received.len()
                }
                TlsStart::Connect(_) => 0,
            },
            Standing::Session(session) => {
                session.feed(bytes);
                if !session.is_in_handshake() {
                    return self.open(key).unwrap_or(Taken::Handshake);
                }
                session.unread()
            }
            Standing::Away(received) => {
                received.extend_from_slice(bytes);
                received.len()
            }
        };
        if unread > HANDSHAKE_MAX {
            return Taken::Refused("more than 128 KB came before it was done".to_owned());
        }
        match held.stands {
            Standing::Begins(_) => {}
            Standing::Away(_) => return Taken::Handshake,
            Standing::Session(_) => {
                self.stand_in_line(key);
                return Taken::Handshake;
            }
        }
        // Receiving was just switched off, but these bytes were under way.
        if held.waits {
            Taken::Waits
        } else if short {
            Taken::Handshake
        } else {
            self.admit(key, now)
        }
    }

    /// Decrypts all complete records.
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
        // After a burst, a large block is freed.
        let fits = plain.block.len() <= 256 * 1024;
        if fits && plain.block.len() > self.spare.len() {
            self.spare = plain.block;
        }
    }
}

/// The error text for the end of a session.
pub(crate) fn broken(peer: Peer, why: &str) -> String {
    match peer {
        Peer::Client(_) => format!("TLS error: {why}"),
        Peer::Server(_) => format!("server TLS error: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use howdah_pooler::tls::TlsConnect;

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

    /// A session whose other side never answers.
    struct Silent;

    impl TlsSession for Silent {
        fn is_in_handshake(&self) -> bool {
            true
        }
        fn unread(&self) -> usize {
            0
        }
        fn feed(&mut self, _: &[u8]) {}
        fn handshake(&mut self) -> HandshakeStep {
            HandshakeStep::More
        }
        fn open(&mut self, _: &mut Vec<u8>, _: &mut usize) -> Opened {
            Opened::More
        }
        fn seal(&mut self, _: &[u8], _: Vec<u8>) -> Result<Vec<u8>, String> {
            Err("in its handshake".into())
        }
        fn close(&mut self) {}
        fn take_output(&mut self) -> Option<Vec<u8>> {
            None
        }
        fn pack(&mut self) -> Result<Vec<u8>, String> {
            Err("in its handshake".into())
        }
    }

    #[derive(Debug)]
    struct SilentLibrary;

    impl TlsLibrary for SilentLibrary {
        fn accept(&self, _: bool) -> Result<Box<dyn TlsSession>, String> {
            Ok(Box::new(Silent))
        }
        fn connect(&self, _: TlsConnect) -> Result<Box<dyn TlsSession>, String> {
            Ok(Box::new(Silent))
        }
        fn unpack(&self, _: &[u8]) -> Result<Box<dyn TlsSession>, String> {
            Ok(Box::new(Silent))
        }
    }

    #[test]
    fn a_silent_handshake_is_given_up_once_others_wait_and_not_before() {
        let mut sessions = Sessions::default();
        sessions.set_library(Arc::new(SilentLibrary));
        sessions.bound_handshakes(1);
        let key = |slot| Key {
            slot,
            generation: 0,
        };
        let hello = || TlsStart::Accept {
            direct: false,
            received: vec![22, 3, 1, 0, 5, 1, 0, 0, 1, 7],
        };
        let patience = limits::HANDSHAKE_PATIENCE_NS;
        let begun = Time(5);
        let start = |sessions: &mut Sessions, slot| sessions.start(key(slot), hello(), begun);
        assert!(matches!(start(&mut sessions, 0), Taken::Handshake));
        assert_eq!(sessions.next_in_line(0, 0), Some(key(0)));
        assert!(sessions.step(key(0), begun).is_some());
        assert_eq!(sessions.give_up(Time(9 * patience)), None, "nobody waits");
        assert!(matches!(start(&mut sessions, 1), Taken::Waits));
        assert_eq!(sessions.deadline(), Some(Time(5 + patience)));
        // One byte more does not prolong the patience.
        let later = Time(4 + patience);
        sessions.receive(key(0), b"x", later);
        assert_eq!(sessions.next_in_line(0, 0), Some(key(0)));
        assert!(sessions.step(key(0), later).is_some());
        assert_eq!(sessions.give_up(later), None);
        assert_eq!(sessions.next_waiting(), None);
        assert_eq!(sessions.give_up(Time(5 + patience)), Some(key(0)));
        assert_eq!(sessions.next_waiting(), Some(key(1)));
    }

    #[test]
    fn a_handshake_that_waits_for_this_process_is_not_given_up() {
        let mut sessions = Sessions::default();
        sessions.set_library(Arc::new(SilentLibrary));
        sessions.bound_handshakes(1);
        let key = |slot| Key {
            slot,
            generation: 0,
        };
        let start = |sessions: &mut Sessions, slot| {
            let received = vec![22, 3, 1, 0, 5, 1, 0, 0, 1, 7];
            let direct = false;
            sessions.start(key(slot), TlsStart::Accept { direct, received }, Time(0))
        };
        start(&mut sessions, 0);
        start(&mut sessions, 1);
        let patience = limits::HANDSHAKE_PATIENCE_NS;
        assert_eq!(sessions.give_up(Time(patience)), None, "its step is due");
        assert_eq!(sessions.deadline(), Some(Time(2 * patience)));
        assert_eq!(sessions.next_in_line(0, 0), Some(key(0)));
        // The client's time begins with the step.
        assert!(sessions.step(key(0), Time(2 * patience - 1)).is_some());
        assert_eq!(sessions.give_up(Time(2 * patience)), None);
        let late = Time(3 * patience - 1);
        assert_eq!(sessions.give_up(late), Some(key(0)));
    }

    #[test]
    fn a_part_of_a_first_message_takes_no_place() {
        let mut sessions = Sessions::default();
        sessions.set_library(Arc::new(SilentLibrary));
        let key = Key {
            slot: 0,
            generation: 0,
        };
        let (direct, received) = (false, Vec::new());
        sessions.start(key, TlsStart::Accept { direct, received }, Time(0));
        let hello = [22, 3, 1, 0, 4, 1, 0, 0, 4, 22, 3, 1, 0, 4, 7, 7, 7, 7];
        for byte in &hello[..hello.len() - 1] {
            let taken = sessions.receive(key, &[*byte], Time(0));
            assert!(matches!(taken, Taken::Handshake));
            assert_eq!(sessions.under_way, 0);
        }
    }
}
