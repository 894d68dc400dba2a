//! The connection layer: clients and servers over a [`Driver`].
//!
//! This layer knows which connection of the driver belongs to which peer. It queues output, ends connections
//! in the ways of [`Close`], and reports [`Event`]s.
//!
//! **Sending.** Bytes are copied into the peer's output: a queue of blocks from this worker's supply.
//! [`Sockets::flush`], called once a turn, hands each peer's first block to the driver. The other blocks
//! follow as blocks come back. So one send is under way per peer, and the output of one turn leaves
//! together. A peer with nothing to send owns no block; an idle connection costs a slot of a few dozen
//! bytes here.
//!
//! **Ending.** After [`Sockets::close`] the only event of a peer is `Closed`. Bytes that the peer still
//! sends are dropped.

mod records;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use howdah_pooler::event::{Address, Close, Ends, Event, LooseSocket, Peer, Time};
use howdah_pooler::note::{Level, Note};
use howdah_pooler::tls::TlsStart;

use crate::connections::{Connection, Connections, Stage};
use crate::driver::socket::SocketOptions;
use crate::driver::{Completion, Driver, Errno, Key, ReceivedChunk, error_text, unreached};
use crate::helper::{Helper, Shaken};
use crate::output::FreeBuffers;
use crate::reserve;
use crate::secure::{Plain, Sessions, Taken, broken};
use crate::tls::TlsLibrary;
use crate::tls::session::{HandshakeStep, Opened};

/// Unsent bytes above which a peer is congested.
pub const HIGH_WATER: usize = 256 * 1024;
/// Unsent bytes below which the peer is no longer congested.
pub const LOW_WATER: usize = 64 * 1024;
/// How long a close may take to send what is queued, and await the end of the stream.
const CLOSE_LIMIT: u64 = 5_000_000_000;
/// After everything is sent, [`Close::Flush`] drops input for this long. Closing with unread input
/// would reset the connection, and could destroy the last bytes on their way.
const LINGER_LIMIT: u64 = 1_000_000_000;
/// How long accepting pauses when no descriptor is left, unless one is closed before.
const ACCEPT_PAUSE: u64 = 1_000_000_000;
/// The least time between two log lines about this, in nanoseconds.
const ACCEPT_NOTE: u64 = 5_000_000_000;

/// An event for `Pooler`, or a note for the log.
#[derive(Debug)]
pub enum Happening {
    /// [`Event::Accepted`]. Answer with [`Sockets::adopt`] or [`Sockets::discard`].
    Accepted(LooseSocket, Box<Ends>),
    /// [`Event::Received`]; [`Sockets::bytes`] has the bytes until [`Sockets::release`].
    Received(Peer, ReceivedChunk),
    /// [`Event::Received`] with decrypted bytes; to be given back by [`Sockets::give`].
    Opened(Peer, Plain),
    /// Any other event.
    Event(Event<'static>),
    /// A log record.
    Note(Note),
}

/// The connection layer: see the module's comment.
pub struct Sockets<D> {
    driver: D,
    table: Connections,
    memory: FreeBuffers,
    sessions: Sessions,
    /// Connections with a block for the driver: servers, then clients.
    dirty: [Vec<Key>; 2],
    /// The time limits of ending connections. Entries may be out of date.
    limits: BinaryHeap<Reverse<(Time, Key)>>,
    happened: VecDeque<Happening>,
    accepting: Accepting,
    /// The peers whose `Flushed` must be reported.
    awaited: Vec<Peer>,
    now: Time,
    /// The handshake steps taken in this turn.
    steps: usize,
}

#[derive(Default)]
struct Accepting {
    on: bool,
    paused_until: Option<Time>,
    noted: Option<Time>,
}

impl<D: Driver> Sockets<D> {
    /// A layer with no connections. Accepting is off.
    pub fn new(driver: D) -> Sockets<D> {
        let now = driver.now();
        Sockets {
            driver,
            table: Connections::default(),
            memory: FreeBuffers::default(),
            sessions: Sessions::default(),
            dirty: [Vec::new(), Vec::new()],
            limits: BinaryHeap::new(),
            happened: VecDeque::new(),
            accepting: Accepting::default(),
            awaited: Vec::new(),
            now,
            steps: 0,
        }
    }

    /// The driver, for its tests and the simulator.
    pub fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The number of connections, including those that are ending.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory for sending in bytes, used or free.
    pub fn output_memory(&self) -> usize {
        self.table.output_memory() + self.memory.held()
    }

    /// When [`Sockets::wait`] must return because of this layer.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let limit = self.limits.peek().map(|Reverse((at, _))| *at);
        let others = earliest(self.accepting.paused_until, self.sessions.deadline());
        earliest(limit, others)
    }

    /// Flushes, then waits until something happens or `deadline` has passed. Returns the time.
    pub fn wait(&mut self, deadline: Option<Time>) -> Time {
        self.flush();
        self.forget_limits();
        let deadline = if self.happened.is_empty() && !self.sessions.are_waiting() {
            earliest(deadline, self.deadline())
        } else {
            Some(Time(0))
        };
        self.driver.wait(deadline);
        self.now = self.driver.now();
        self.steps = 0;
        self.pass_limits();
        self.now
    }

    /// The next event of this turn.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Happening> {
        loop {
            if let Some(happening) = self.happened.pop_front() {
                return Some(happening);
            }
            match self.driver.next() {
                Some(done) => {
                    if let Some(happening) = self.complete(done) {
                        return Some(happening);
                    }
                }
                None => self.shake_hands()?,
            }
        }
    }

    /// The bytes of a [`Happening::Received`].
    pub fn bytes(&self, chunk: &ReceivedChunk) -> &[u8] {
        self.driver.bytes(chunk)
    }

    /// Gives the buffer of a [`Happening::Received`] back.
    pub fn release(&mut self, chunk: ReceivedChunk) {
        self.driver.release(chunk);
    }
}

/// The requests of `Pooler`.
impl<D: Driver> Sockets<D> {
    /// Switches accepting on or off, on all listeners.
    pub fn accept(&mut self, on: bool) {
        self.accepting.on = on;
        self.accepting.paused_until = None;
        reserve::refill();
        self.arm_accepts(on);
    }

    /// Closes the listeners; with `keep_unix`, except those of unix sockets.
    pub fn stop_listening(&mut self, keep_unix: bool) {
        for (index, address) in self.driver.listeners().into_iter().enumerate() {
            if !(keep_unix && matches!(address, Address::Unix(..))) {
                self.driver.unlisten(index);
            }
        }
    }

    /// Options for new connections.
    pub fn set_options(&mut self, options: SocketOptions) {
        self.driver.set_options(options);
    }

    /// Adds a socket as this peer, and receives from it.
    pub fn adopt(&mut self, peer: Peer, mut socket: LooseSocket) {
        let key = self.insert(peer, Stage::Open);
        let session = match socket.take_packed_session() {
            Some(packed) => Some(self.sessions.unpack(key, &packed)),
            None => socket.take_session().map(|session| {
                self.sessions.put(key, session);
                Ok(())
            }),
        };
        if let Some(connection) = self.table.get(key) {
            // Also if the session can't go on: nothing may be sent in clear text.
            connection.flags.secure = session.is_some();
        }
        self.driver.attach(key, socket);
        self.driver.receive(key, true);
        if let Some(Err(why)) = session {
            self.lose_sealed(key, Some(broken(peer, &why)));
        }
    }

    /// Closes a socket that no peer needs.
    pub fn discard(&mut self, socket: LooseSocket) {
        self.driver.discard(socket);
        self.descriptor_came_free();
    }

    /// Opens a connection; `Connected` answers. Then receiving is on.
    pub fn connect(&mut self, peer: Peer, address: &Address) {
        let key = self.insert(peer, Stage::Connecting);
        self.driver.connect(key, address);
    }

    /// Starts or stops receiving.
    pub fn receive(&mut self, peer: Peer, on: bool) {
        let Some((key, connection)) = self.table.find(peer) else {
            return;
        };
        connection.flags.receiving = on;
        if connection.stage == Stage::Open && !connection.flags.ended {
            self.driver.receive(key, on);
        }
    }

    /// Appends to the peer's output. For a peer that is gone or ending, the bytes are dropped.
    pub fn send(&mut self, peer: Peer, bytes: &[u8]) {
        if let Some((key, connection)) = self.table.find(peer)
            && connection.append(bytes, &mut self.memory)
        {
            self.appended(key);
        }
    }

    /// Appends a part of the current chunk to the peer's output.
    pub fn relay(&mut self, peer: Peer, chunk: &ReceivedChunk, range: Range<usize>) {
        if let Some((key, connection)) = self.table.find(peer)
            && connection.append(&self.driver.bytes(chunk)[range], &mut self.memory)
        {
            self.appended(key);
        }
    }

    /// Appends plain bytes, or a part of them, to the peer's output.
    pub fn relay_opened(&mut self, peer: Peer, plain: &Plain, range: Range<usize>) {
        self.send(peer, &plain.bytes()[range]);
    }

    /// Ends a connection; `Closed` answers. No other event of this peer follows.
    pub fn close(&mut self, peer: Peer, how: Close) {
        let Some((key, connection)) = self.table.find(peer) else {
            return;
        };
        let connecting = connection.stage == Stage::Connecting;
        let how = match how {
            Close::Abort if connection.flags.alerts => Close::Flush,
            how => how,
        };
        match how {
            Close::Flush | Close::Await | Close::Part
                if !connection.flags.broken && !connecting =>
            {
                connection.stage = Stage::Flushing(how);
                self.progress(key);
                self.limit_ending(key, CLOSE_LIMIT);
            }
            _ => self.begin_close(key),
        }
    }

    /// Sets the TLS library of new sessions.
    pub fn set_library(&mut self, library: Arc<dyn TlsLibrary>) {
        self.sessions.set_library(library);
    }

    /// Begins TLS; `TlsDone` answers.
    pub fn start_tls(&mut self, peer: Peer, start: TlsStart) {
        let Some((key, connection)) = self.table.find(peer) else {
            return;
        };
        connection.flags.secure = true;
        connection.flags.handshake = true;
        if let Some(output) = &mut connection.output {
            output.mark_ready();
        }
        let taken = self.sessions.start(key, start, self.now);
        self.taken(key, taken);
    }

    /// Sets the helper thread for slow handshake steps.
    pub(crate) fn help_by(&mut self, helper: Helper) {
        self.sessions.help_by(helper);
    }

    /// Sets the greatest number of clients' handshakes under way: further ones wait.
    pub fn bound_handshakes(&mut self, most: usize) {
        self.sessions.bound_handshakes(most);
    }

    /// Takes the memory of a [`Happening::Opened`] back.
    pub fn give(&mut self, plain: Plain) {
        self.sessions.give(plain);
    }

    /// Reports `Flushed` when nothing is queued for a peer; at once if the peer is gone.
    pub fn tell_flushed(&mut self, peer: Peer) {
        match self.table.find(peer) {
            Some((_, connection)) if connection.output.is_some() => self.awaited.push(peer),
            _ => self.tell(Event::Flushed(peer)),
        }
    }

    /// Finds out whether a peer that is not received from has ended its stream, and reports the
    /// end. The bytes that the peer has sent before are no longer needed.
    pub fn look_for_end(&mut self, peer: Peer) {
        let Some((key, connection)) = self.table.find(peer) else {
            return;
        };
        let receives = connection.flags.receiving && !self.sessions.waits(key);
        let off = connection.stage == Stage::Open && !receives;
        if off && !connection.flags.ended && self.driver.hung_up(key) {
            self.ended(key, None);
        }
    }

    /// The driver's time.
    pub fn now(&self) -> Time {
        self.driver.now()
    }

    /// Sends the queued bytes and removes the socket; `Detached` or `Lost` answers.
    pub fn detach(&mut self, peer: Peer) {
        let Some((key, connection)) = self.table.find(peer) else {
            return;
        };
        if connection.stage == Stage::Open && !connection.flags.ended && !connection.flags.broken {
            connection.stage = Stage::Detaching;
            self.driver.receive(key, false);
            self.progress(key);
        }
    }

    /// Hands each output to the driver, unless the driver still has a block of it: servers first.
    ///
    /// So PostgreSQL begins early, and answers to clients leave in a row. An application that
    /// awaits many answers sleeps less often between them: pgbench with 40 clients on two cores
    /// slept 13 times in 100 transactions instead of 19.
    pub fn flush(&mut self) {
        for side in 0..self.dirty.len() {
            let mut next = 0;
            // A block that is sent at once may make room for further output.
            while let Some(key) = self.dirty[side].get(next).copied() {
                next += 1;
                self.hand_over(key);
            }
            self.dirty[side].clear();
        }
    }

    fn hand_over(&mut self, key: Key) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        connection.flags.dirty = false;
        if connection.flags.sending
            || matches!(connection.stage, Stage::Connecting | Stage::Leaving)
        {
            return;
        }
        let Some(output) = connection.output.as_mut() else {
            return;
        };
        let Some((mut block, plain)) = output.take_first() else {
            return;
        };
        if plain && connection.flags.secure {
            let sealed = self.memory.take(block.len());
            let session = self.sessions.get(key);
            match session.map(|session| session.seal(&block, sealed)) {
                Some(Ok(sealed)) => {
                    output.queued = output.queued - block.len() + sealed.len();
                    self.memory.give(std::mem::replace(&mut block, sealed));
                }
                why => {
                    let why = why.and_then(Result::err).unwrap_or_default();
                    return self.seal_failed(key, &why);
                }
            }
        }
        connection.flags.sending = true;
        // Something waits for it: the next block, or the end of the connection.
        let prompt = connection.stage != Stage::Open
            || connection.flags.congested
            || connection
                .output
                .as_ref()
                .is_some_and(|output| !output.blocks.is_empty());
        if let Some(block) = self.driver.send(key, block, prompt) {
            self.sent(key, block, Ok(()));
        }
    }

    /// Flushes, and starts the kernel's work.
    pub fn submit(&mut self) {
        self.flush();
        self.driver.submit();
    }
}

/// The driver's completions.
impl<D: Driver> Sockets<D> {
    fn complete(&mut self, done: Completion) -> Option<Happening> {
        match done {
            Completion::Received { key, chunk } => match self.table.get(key) {
                Some(Connection {
                    stage, flags, peer, ..
                }) if !flags.lost
                    && matches!(stage, Stage::Open | Stage::Detaching | Stage::Leaving) =>
                {
                    if !flags.secure {
                        return Some(Happening::Received(*peer, chunk));
                    }
                    self.receive_sealed(key, &chunk);
                    self.driver.release(chunk);
                }
                _ => self.driver.release(chunk),
            },
            Completion::Sent { key, block, result } => self.sent(key, block, result),
            Completion::Accepted { socket, ends, .. } => {
                return Some(Happening::Accepted(socket, ends));
            }
            Completion::AcceptFailed { error, .. } => self.pause_accepting(error),
            Completion::Connected { key, result } => self.connected(key, result),
            Completion::Ended { key, error } => self.ended(key, error),
            Completion::Detached { key, socket } => self.detached(key, socket),
            Completion::Closed { key } => self.closed(key),
        }
        None
    }

    fn connected(&mut self, key: Key, result: Result<Box<Ends>, Errno>) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        if connection.stage != Stage::Connecting {
            return;
        }
        let Peer::Server(server) = connection.peer else {
            return;
        };
        let result = match result {
            Ok(ends) => {
                connection.stage = Stage::Open;
                self.mark_dirty(key);
                self.driver.receive(key, true);
                Ok(*ends)
            }
            Err(error) => {
                connection.flags.ended = true;
                self.begin_close(key);
                Err(unreached(error))
            }
        };
        self.tell(Event::Connected(server, result));
    }

    fn ended(&mut self, key: Key, error: Option<Errno>) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        connection.flags.ended = true;
        match connection.stage {
            Stage::Detaching | Stage::Leaving => {
                connection.stage = Stage::Open;
                self.lose(key, error);
            }
            Stage::Open => {
                if connection.flags.handshake && self.sessions.was_answered(key) {
                    // Bytes that came with the end count: a cancel request, or an alert.
                    self.shake(key);
                }
                self.lose(key, error);
            }
            Stage::Lingering => self.begin_close(key),
            _ => {}
        }
    }

    fn lose(&mut self, key: Key, error: Option<Errno>) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        if !std::mem::replace(&mut connection.flags.lost, true) {
            let peer = connection.peer;
            self.tell(Event::Lost(peer, error.map(error_text)));
        }
    }

    fn sent(&mut self, key: Key, block: Vec<u8>, result: Result<(), Errno>) {
        let len = block.len();
        self.memory.give(block);
        let Some(connection) = self.table.get(key) else {
            return;
        };
        connection.flags.sending = false;
        let Some(output) = &mut connection.output else {
            return;
        };
        output.queued -= len;
        if let Err(error) = result {
            return self.send_failed(key, error);
        }
        let (left, peer) = (output.queued, connection.peer);
        if left < LOW_WATER && connection.flags.congested {
            connection.flags.congested = false;
            self.tell(Event::Drained(peer));
        }
        if left > 0 {
            return self.mark_dirty(key);
        }
        self.drop_output(key);
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == peer) {
            self.awaited.swap_remove(at);
            self.tell(Event::Flushed(peer));
        }
        self.progress(key);
    }

    /// Nothing more can be sent to the peer. Bytes that the peer has sent before may still be in
    /// the kernel, and PostgreSQL's last message matters. So while receiving, `Lost` waits for the
    /// end of the stream.
    fn send_failed(&mut self, key: Key, error: Errno) {
        self.drop_output(key);
        let Some(connection) = self.table.get(key) else {
            return;
        };
        connection.flags.broken = true;
        let ends_itself = matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::TIMEDOUT);
        match connection.stage {
            Stage::Open if ends_itself && connection.flags.receiving => {}
            Stage::Detaching | Stage::Open => {
                connection.stage = Stage::Open;
                self.lose(key, Some(error));
            }
            Stage::Flushing(_) => self.begin_close(key),
            _ => {}
        }
    }

    fn detached(&mut self, key: Key, socket: LooseSocket) {
        let Some(connection) = self.table.get(key) else {
            return self.driver.discard(socket);
        };
        let (peer, stage) = (connection.peer, connection.stage);
        if stage == Stage::Leaving && connection.output.is_some() {
            // The last bytes were answered: the answer is sent first.
            connection.stage = Stage::Detaching;
            connection.generation = connection.generation.wrapping_add(1);
            // The list of dirty outputs has this connection under its old key only.
            connection.flags.dirty = false;
            let key = Key {
                generation: connection.generation,
                ..key
            };
            self.driver.attach(key, socket);
            self.mark_dirty(key);
        } else if stage == Stage::Leaving {
            self.drop_output(key);
            let socket = match self.sessions.take(key) {
                Some(session) => socket.with_session(session),
                None => socket,
            };
            self.remove(key, peer);
            self.tell(Event::Detached(peer, socket));
        } else {
            // The connection was closed while it was being detached.
            self.driver.discard(socket);
            self.closed(key);
        }
    }

    fn closed(&mut self, key: Key) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        let peer = connection.peer;
        let gone = connection.flags.ended || connection.flags.broken;
        self.drop_output(key);
        self.remove(key, peer);
        self.awaited.retain(|awaited| *awaited != peer);
        self.descriptor_came_free();
        self.tell(Event::Closed { peer, gone });
    }

    /// Takes the next step of a connection that is ending or being detached, if it can.
    fn progress(&mut self, key: Key) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        if connection.output.is_some() {
            return;
        }
        match connection.stage {
            Stage::Detaching => {
                connection.stage = Stage::Leaving;
                self.driver.detach(key);
            }
            Stage::Flushing(_) if connection.flags.ended => self.begin_close(key),
            Stage::Flushing(Close::Part) if !connection.flags.secure => self.begin_close(key),
            Stage::Flushing(how) => {
                if connection.flags.secure && self.say_close(key) {
                    return;
                }
                let Some(connection) = self.table.get(key) else {
                    return;
                };
                connection.stage = Stage::Lingering;
                if how != Close::Await {
                    self.limit_ending(key, LINGER_LIMIT);
                }
                self.driver.shutdown(key);
                self.driver.receive(key, true);
            }
            _ => {}
        }
    }

    /// Ciphertext has arrived.
    fn receive_sealed(&mut self, key: Key, chunk: &ReceivedChunk) {
        let bytes = self.driver.bytes(chunk);
        let taken = self.sessions.receive(key, bytes, self.now);
        self.taken(key, taken);
    }

    /// A session has taken received bytes.
    fn taken(&mut self, key: Key, taken: Taken) {
        match taken {
            Taken::Opened(plain, opened) => self.opened(key, plain, opened),
            Taken::Handshake => {}
            Taken::Waits => self.driver.receive(key, false),
            Taken::Refused(why) => {
                if let Some(connection) = self.table.get(key) {
                    let peer = connection.peer;
                    self.tell(Event::TlsDone(peer, Err(why)));
                }
            }
        }
    }

    fn opened(&mut self, key: Key, plain: Option<Plain>, opened: Opened) {
        self.say_records(key);
        let Some(connection) = self.table.get(key) else {
            return;
        };
        let peer = connection.peer;
        if let Some(plain) = plain {
            self.happened.push_back(Happening::Opened(peer, plain));
        }
        match opened {
            Opened::More => {}
            Opened::End => self.lose_sealed(key, None),
            Opened::Failed(why) => {
                connection.flags.alerts = connection.output.is_some();
                self.lose_sealed(key, Some(broken(peer, &why)));
            }
        }
    }

    /// The next handshake takes a step. `None` if no handshake may take one in this turn.
    fn shake_hands(&mut self) -> Option<()> {
        self.begin_waiting_handshakes();
        if !self.happened.is_empty() {
            return Some(());
        }
        let spent = self.driver.now().0.saturating_sub(self.now.0);
        let key = self.sessions.next_in_line(self.steps, spent)?;
        self.steps += 1;
        self.shake(key);
        Some(())
    }

    /// A handshake takes a step.
    fn shake(&mut self, key: Key) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        if connection.stage != Stage::Open || connection.flags.lost {
            return;
        }
        if let Some((step, records)) = self.sessions.step(key, self.now) {
            self.stepped(key, step, records);
        }
    }

    /// The helper thread has taken a handshake's step.
    pub(crate) fn shaken(&mut self, shaken: Shaken) {
        let key = shaken.key;
        if let Some((step, records)) = self.sessions.returned(shaken, self.now) {
            self.stepped(key, step, records);
        }
    }

    /// A handshake has taken a step. `records` are the bytes to send.
    fn stepped(&mut self, key: Key, step: HandshakeStep, records: Option<Vec<u8>>) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        // The connection may have been closed while the helper thread took the step.
        if connection.stage != Stage::Open || connection.flags.lost {
            return;
        }
        let peer = connection.peer;
        if let Some(records) = records {
            self.queue_records(key, records);
        }
        match step {
            HandshakeStep::More => {}
            HandshakeStep::Done(facts) => {
                if let Some(connection) = self.table.get(key) {
                    connection.flags.handshake = false;
                }
                self.tell(Event::TlsDone(peer, Ok(facts)));
                // The first message may have come together with the end of the handshake.
                if let Some(Taken::Opened(plain, opened)) = self.sessions.open(key) {
                    self.opened(key, plain, opened);
                }
            }
            HandshakeStep::Failed(why) => self.tell(Event::TlsDone(peer, Err(why))),
        }
    }

    /// Waiting handshakes begin when others end or are given up.
    fn begin_waiting_handshakes(&mut self) {
        while let Some(key) = self.sessions.give_up(self.now) {
            if let Some(connection) = self.table.get(key)
                && connection.stage == Stage::Open
                && !connection.flags.lost
            {
                let peer = connection.peer;
                let why = "abandoned: other handshakes were waiting".to_owned();
                self.tell(Event::TlsDone(peer, Err(why)));
            }
        }
        while let Some(key) = self.sessions.next_waiting() {
            let Some(connection) = self.table.get(key) else {
                continue;
            };
            let (stage, flags) = (connection.stage, connection.flags);
            if stage != Stage::Open || flags.lost {
                continue;
            }
            if !flags.ended && self.driver.hung_up(key) {
                self.ended(key, None);
                continue;
            }
            if flags.receiving && !flags.ended {
                self.driver.receive(key, true);
            }
            let taken = self.sessions.begin_waiting(key, self.now);
            self.taken(key, taken);
        }
    }

    /// A connection that is ending must have ended after this many nanoseconds.
    fn limit_ending(&mut self, key: Key, after: u64) {
        if let Some(connection) = self.table.get(key)
            && matches!(connection.stage, Stage::Flushing(_) | Stage::Lingering)
        {
            let limit = Time(self.now.0 + after);
            self.limits.push(Reverse((limit, key)));
        }
    }

    fn begin_close(&mut self, key: Key) {
        self.drop_output(key);
        if let Some(connection) = self.table.get(key)
            && connection.stage != Stage::Closing
        {
            // The other side has nothing of a connection that was never established.
            connection.flags.ended |= connection.stage == Stage::Connecting;
            connection.stage = Stage::Closing;
            self.driver.close(key);
        }
    }

    fn drop_output(&mut self, key: Key) {
        if let Some(output) = self.table.get(key).and_then(|c| c.output.take()) {
            self.memory.give_output(output);
        }
    }

    /// Forgets the limits of ended connections. Otherwise each limit would wake the worker.
    fn forget_limits(&mut self) {
        while let Some(Reverse((_, key))) = self.limits.peek().copied()
            && self.table.get(key).is_none()
        {
            self.limits.pop();
        }
    }

    fn pass_limits(&mut self) {
        while let Some(Reverse((at, key))) = self.limits.peek().copied()
            && at <= self.now
        {
            self.limits.pop();
            if let Some(connection) = self.table.get(key)
                && matches!(connection.stage, Stage::Flushing(_) | Stage::Lingering)
            {
                self.begin_close(key);
            }
        }
        if self.accepting.paused_until.is_some_and(|at| at <= self.now) {
            self.accepting.paused_until = Some(Time(self.now.0 + ACCEPT_PAUSE));
            self.descriptor_came_free();
        }
    }

    fn pause_accepting(&mut self, error: Errno) {
        self.arm_accepts(false);
        reserve::ease();
        self.accepting.paused_until = Some(Time(self.now.0 + ACCEPT_PAUSE));
        let due = |last: Time| self.now.0 >= last.0 + ACCEPT_NOTE;
        if self.accepting.noted.is_none_or(due) {
            self.accepting.noted = Some(self.now);
            let text = format!("accept() failed: {}; accepting pauses", error_text(error));
            self.happened
                .push_back(Happening::Note(Note::new(Level::Error, text)));
        }
    }

    /// Fills the reserve first. Then accepting resumes, if it paused.
    fn descriptor_came_free(&mut self) {
        if reserve::refill() && self.accepting.paused_until.take().is_some() {
            self.arm_accepts(self.accepting.on);
        }
    }

    fn insert(&mut self, peer: Peer, stage: Stage) -> Key {
        if let Peer::Server(_) = peer {
            reserve::server_comes();
        }
        self.table.insert(peer, stage)
    }

    fn remove(&mut self, key: Key, peer: Peer) {
        self.sessions.take(key);
        self.table.remove(key);
        self.memory.keep_for(self.table.len());
        if let Peer::Server(_) = peer {
            reserve::server_goes();
        }
    }

    fn arm_accepts(&mut self, on: bool) {
        for index in 0..self.driver.listeners().len() {
            self.driver.accept(index, on);
        }
    }

    fn mark_dirty(&mut self, key: Key) {
        if let Some(connection) = self.table.get(key)
            && connection.flag_dirty()
        {
            self.dirty[side(connection.peer)].push(key);
        }
    }

    fn appended(&mut self, key: Key) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        if connection.flag_dirty() {
            self.dirty[side(connection.peer)].push(key);
        }
        let queued = connection.output.as_ref().map_or(0, |output| output.queued);
        if queued > HIGH_WATER && !connection.flags.congested {
            connection.flags.congested = true;
            let peer = connection.peer;
            self.tell(Event::Congested(peer));
        }
    }

    fn tell(&mut self, event: Event<'static>) {
        self.happened.push_back(Happening::Event(event));
    }
}

/// The list of outputs for a peer: 0 for servers, 1 for clients.
fn side(peer: Peer) -> usize {
    usize::from(matches!(peer, Peer::Client(_)))
}

/// The earlier of two times, if there is any.
pub(crate) fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    a.into_iter().chain(b).min()
}
