//! The driver for Linux 6.0 and later: one io_uring per worker, multishot receive, a ring of
//! provided buffers.

mod buffers;
mod polling;
mod receiving;
mod sending;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use howdah_pooler::event::{Address, LooseSocket, Time};
use io_uring::squeue::Flags;
use io_uring::types::{CancelBuilder, Fd, TimeoutFlags, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};

use buffers::Buffers;
use polling::Polling;
use sending::Sending;

use super::socket::{self, Listener, SocketOptions};
use super::{Completion, Driver, Key, ReceivedChunk, Tag};

/// Entries of the submission queue. If the queue is full, it is submitted early.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue.
const COMPLETIONS: u32 = 4096;

/// Kinds of [`Tag`]s.
const BELL: u8 = 0;
const ACCEPT: u8 = 1;
const CONNECT: u8 = 2;
const RECEIVE: u8 = 3;
const SEND: u8 = 4;
const CANCEL: u8 = 5;
const ALARM: u8 = 6;

/// The driver over io_uring: see the module's comment.
pub struct Uring {
    // Fields are dropped in their order: the ring must go first.
    ring: IoUring,
    buffers: Buffers,
    sends: Vec<Sending>,
    /// Connections with a quiet send whose success is not known yet.
    quiet: Vec<Key>,
    /// Some quiet sends were submitted before the next `wait`.
    quiet_early: bool,
    free_sends: Vec<u32>,
    listeners: Vec<Listening>,
    options: SocketOptions,
    connections: Vec<Connection>,
    /// Connections that close while a receive is under way. Entries may be out of date.
    closing: Vec<Key>,
    /// Connections whose receive ended because no buffer was free, oldest first. Entries may be out
    /// of date.
    starved: VecDeque<Key>,
    /// The kernel's completions that have not been handled yet.
    arrived: Vec<Arrived>,
    cursor: usize,
    /// Completions that are ready to be returned.
    ready: VecDeque<Completion>,
    bell: Option<Arc<OwnedFd>>,
    alarm: Alarm,
    polling: Polling,
}

/// The one timeout that ends a wait. A deadline seldom becomes earlier. So one timeout stays in the
/// kernel, which is cheaper than setting and removing a timer for every wait.
struct Alarm {
    /// When the timeout in the kernel is due.
    at: Option<Time>,
    /// The same time for the kernel, which reads it when the entry is submitted.
    when: Box<Timespec>,
}

struct Arrived {
    tag: Tag,
    result: i32,
    flags: u32,
}

struct Listening {
    address: Address,
    /// `None` after [`Driver::unlisten`], when no accept is armed any more.
    socket: Option<Arc<OwnedFd>>,
    shared: Arc<AtomicBool>,
    armed: bool,
    wanted: bool,
    leaving: bool,
}

struct Connection {
    generation: u32,
    socket: Option<OwnedFd>,
    purpose: Purpose,
    receive: Receive,
    /// Receiving is switched on.
    wanted: bool,
    /// The peer has ended its direction of the stream, or the whole stream.
    ended: bool,
    /// Index into `sends`, or `NONE`.
    sending: u32,
    connecting: Option<Box<Address>>,
}

// Ten thousand idle clients must need little memory.
const _: () = assert!(size_of::<Connection>() <= 32);

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Unused,
    InUse,
    /// No new operation begins; the socket is detached when none is under way.
    Detaching,
    /// No new operation begins; the socket is closed when none is under way.
    Closing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receive {
    Off,
    Armed,
    /// The receive is cancelled; its last completion is awaited.
    Stopping,
    /// Off, and in the queue to be armed.
    Starved,
}

impl Uring {
    /// Makes a driver that accepts from `listeners` (once switched on) and wakes when `bell`
    /// becomes readable. To be called on the thread that will use the driver.
    ///
    /// # Errors
    /// The system's error: io_uring is missing or too old, or a limit is reached.
    pub fn new(listeners: Vec<Listener>, bell: Option<Arc<OwnedFd>>) -> std::io::Result<Uring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        // Nothing fails between here and the driver: if it did, the buffers would be freed before the
        // ring.
        let buffers = Buffers::register(&ring.submitter())?;
        let mut driver = Uring {
            ring,
            buffers,
            sends: Vec::new(),
            quiet: Vec::new(),
            quiet_early: false,
            free_sends: Vec::new(),
            listeners: Vec::new(),
            options: SocketOptions::default(),
            connections: Vec::new(),
            closing: Vec::new(),
            starved: VecDeque::new(),
            arrived: Vec::new(),
            cursor: 0,
            ready: VecDeque::new(),
            bell,
            alarm: Alarm {
                at: None,
                when: Box::default(),
            },
            polling: Polling::new(Duration::ZERO),
        };
        driver.watch_bell();
        driver.add_listeners(listeners)?;
        Ok(driver)
    }

    /// The driver also accepts on these sockets. Sets a flag that all processes with such a socket
    /// share.
    ///
    /// # Errors
    /// The system's error.
    pub fn add_listeners(&mut self, listeners: Vec<Listener>) -> Result<(), Errno> {
        for listener in listeners {
            // On a non-blocking listener an accept would end at once instead of waiting.
            rustix::io::ioctl_fionbio(&listener.socket, false)?;
            self.listeners.push(Listening {
                address: listener.address,
                socket: Some(listener.socket),
                shared: listener.shared,
                armed: false,
                wanted: false,
                leaving: false,
            });
        }
        Ok(())
    }

    /// Before a wait sleeps, polls for up to `limit` if that is likely to help: see the setting
    /// `busy_poll`. Zero, the value at first, means never.
    pub fn busy_poll(&mut self, limit: Duration) {
        self.polling = Polling::new(limit);
    }

    fn get(&mut self, key: Key) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(key.slot as usize)?;
        let current = connection.generation == key.generation;
        (current && connection.purpose != Purpose::Unused).then_some(connection)
    }

    fn insert(&mut self, key: Key, socket: Option<OwnedFd>) -> &mut Connection {
        let slot = key.slot as usize;
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, Connection::unused);
        }
        let connection = &mut self.connections[slot];
        debug_assert_eq!(
            connection.purpose,
            Purpose::Unused,
            "a key is used for one connection"
        );
        *connection = Connection {
            generation: key.generation,
            socket,
            purpose: Purpose::InUse,
            ..Connection::unused()
        };
        connection
    }

    /// Queues an operation. If the queue is full, passes it to the kernel first.
    ///
    /// All memory that an operation points to is owned by `sends`, `buffers` or `alarm` until the
    /// operation's last completion has been handled. Descriptors are closed only afterwards.
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: as the comment above says, the entry's pointers stay valid.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.enter(0);
            self.quiet_early = !self.quiet.is_empty();
            // The kernel may have stopped because the completion queue is full.
            self.collect();
        }
    }

    /// Submits the queue, and waits for `want` completions.
    fn enter(&mut self, want: u32) {
        let queued = self.ring.submission().len() as u32;
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: the flags announce no argument. Errors (a signal, or a full completion queue) are
        // harmless: the loop comes back.
        let _ = unsafe { self.ring.submitter().enter::<()>(queued, want, flags, None) };
    }

    /// Submits the queue, and waits for a completion. The first moments of the wait are spent
    /// polling.
    fn enter_polling(&mut self) {
        let from = socket::clock();
        if let Some(turn) = self.polling.begin(from) {
            if !self.ring.submission().is_empty() {
                self.enter(0);
            }
            // The kernel raises a flag in the ring when it has completions to post.
            while !self.ring.submission().taskrun()
                && self.ring.completion().is_empty()
                && socket::clock() < turn.until
            {
                std::hint::spin_loop();
            }
        }
        self.enter(1);
        self.polling.waited(from, socket::clock());
    }

    /// Makes sure that a wait ends at `deadline` or earlier.
    fn set_alarm(&mut self, deadline: Time) {
        let was = self.alarm.at;
        if was.is_some_and(|at| at <= deadline) {
            return;
        }
        const SECOND: u64 = 1_000_000_000;
        *self.alarm.when = Timespec::new()
            .sec(deadline.0 / SECOND)
            .nsec((deadline.0 % SECOND) as u32);
        let (tag, when) = (Tag::of(ALARM, 0).pack(), &raw const *self.alarm.when);
        let entry = match was {
            None => opcode::Timeout::new(when)
                .flags(TimeoutFlags::ABS)
                .build()
                .user_data(tag),
            // If the timeout has just fired, this fails, and the timeout's completion sets it
            // again.
            Some(_) => opcode::TimeoutUpdate::new(tag, when)
                .flags(TimeoutFlags::ABS)
                .build()
                .flags(Flags::SKIP_SUCCESS)
                .user_data(Tag::of(CANCEL, 0).pack()),
        };
        self.alarm.at = Some(deadline);
        self.push(entry);
    }

    /// Collects the completion entries.
    fn collect(&mut self) {
        let completions = self.ring.completion();
        self.arrived.extend(completions.map(|entry| Arrived {
            tag: Tag::unpack(entry.user_data()),
            result: entry.result(),
            flags: entry.flags(),
        }));
    }

    fn cancel(&mut self, tag: Tag) {
        let entry = opcode::AsyncCancel::new(tag.pack()).build();
        self.push(entry.user_data(Tag::new(CANCEL, tag.key).pack()));
    }

    fn watch_bell(&mut self) {
        if let Some(bell) = &self.bell {
            let tag = Tag::of(BELL, 0);
            let poll = opcode::PollAdd::new(Fd(bell.as_raw_fd()), PollFlags::IN.bits().into());
            self.push(poll.multi(true).build().user_data(tag.pack()));
        }
    }

    fn look_at(&mut self, arrived: Arrived) -> Option<Completion> {
        let Arrived { tag, result, flags } = arrived;
        let result = match result {
            0.. => Ok(result as usize),
            _ => Err(Errno::from_raw_os_error(-result)),
        };
        let more = cqueue::more(flags);
        match tag.kind {
            RECEIVE => {
                let buffer = cqueue::buffer_select(flags);
                return self.received(tag.key, result, buffer, more);
            }
            SEND => self.sent(tag.key, result),
            ACCEPT => self.accepted(tag.key.slot as usize, result),
            CONNECT => self.connected(tag.key),
            BELL if !more => self.watch_bell(),
            ALARM => self.alarm.at = None,
            _ => {}
        }
        None
    }

    fn accepted(&mut self, index: usize, result: Result<usize, Errno>) {
        let listening = &mut self.listeners[index];
        listening.armed = false;
        match result {
            Ok(raw) => {
                // SAFETY: an accept's result is a new descriptor without another owner.
                let socket = unsafe { OwnedFd::from_raw_fd(raw as i32) };
                let ends = socket::finish_accept(&socket, &listening.address, &self.options);
                // On an error the peer is already gone: nothing to report.
                if let Ok(ends) = ends {
                    let socket = LooseSocket::new(socket);
                    let listener = index;
                    self.ready.push_back(Completion::Accepted {
                        listener,
                        socket,
                        ends,
                    });
                }
            }
            Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::CONNABORTED) => {}
            // The socket was shut down: it never accepts again.
            Err(Errno::INVAL) => listening.wanted = false,
            Err(error) => {
                listening.wanted = false;
                self.ready.push_back(Completion::AcceptFailed {
                    listener: index,
                    error,
                });
            }
        }
        self.arm_accept(index);
    }

    /// Does the next step for a listener without an armed accept. Each accept takes one connection.
    /// The kernel offers a connection to one ring only. A multishot accept would stay first in the
    /// kernel's queue, even while its thread hangs. With single accepts, the workers take turns.
    fn arm_accept(&mut self, index: usize) {
        let listening = &mut self.listeners[index];
        if listening.armed {
            return;
        }
        if listening.leaving {
            listening.socket = None;
        }
        if let (true, Some(socket)) = (listening.wanted, &listening.socket) {
            listening.armed = true;
            let flags = SocketFlags::CLOEXEC.bits();
            let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            let entry = opcode::Accept::new(Fd(socket.as_raw_fd()), address, length)
                .flags(flags as i32)
                .build();
            self.push(entry.user_data(Tag::of(ACCEPT, index).pack()));
        }
    }

    fn connected(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        let (Some(address), Some(socket)) = (connection.connecting.take(), &connection.socket)
        else {
            return;
        };
        if connection.purpose == Purpose::InUse {
            let result = socket::finish_connect(socket, &address);
            // On a non-blocking socket a receive would end at once instead of waiting.
            let result = result.and_then(|ends| {
                rustix::io::ioctl_fionbio(socket, false)?;
                Ok(ends)
            });
            self.ready.push_back(Completion::Connected { key, result });
        }
        self.settle(key);
    }

    /// Ends the receives of connections that close. If the peer has ended the stream meanwhile, the
    /// receive has ended, too, and nothing is left to do.
    fn end_closing(&mut self) {
        let mut closing = std::mem::take(&mut self.closing);
        for key in closing.drain(..) {
            if let Some(connection) = self.get(key) {
                connection.shut_down();
            }
        }
        self.closing = closing;
    }

    /// Completes a detach or a close if no operation is under way any more.
    fn settle(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        if connection.receive != Receive::Off
            || connection.sending != NONE
            || connection.connecting.is_some()
        {
            return;
        }
        match connection.purpose {
            Purpose::Unused | Purpose::InUse => {}
            Purpose::Closing => {
                connection.socket = None;
                connection.purpose = Purpose::Unused;
                self.ready.push_back(Completion::Closed { key });
            }
            Purpose::Detaching => {
                connection.purpose = Purpose::Unused;
                if let Some(socket) = connection.socket.take() {
                    let socket = LooseSocket::new(socket);
                    self.ready.push_back(Completion::Detached { key, socket });
                }
            }
        }
    }
}

impl Connection {
    fn unused() -> Connection {
        Connection {
            generation: 0,
            socket: None,
            purpose: Purpose::Unused,
            receive: Receive::Off,
            wanted: false,
            ended: false,
            sending: NONE,
            connecting: None,
        }
    }

    /// Ends both directions of the stream, and so a receive. The peer notices this even if another
    /// process also has the socket, as in a takeover.
    fn shut_down(&self) {
        if let (Some(socket), false) = (&self.socket, self.ended) {
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }
}

impl Driver for Uring {
    fn now(&self) -> Time {
        socket::clock()
    }

    fn wait(&mut self, deadline: Option<Time>) {
        self.arrived.drain(..self.cursor);
        self.cursor = 0;
        self.buffers.refill();
        self.feed_starved();
        self.end_closing();
        let busy = !self.ready.is_empty()
            || !self.arrived.is_empty()
            || !self.starved.is_empty()
            || std::mem::take(&mut self.quiet_early)
            || deadline == Some(Time(0));
        if let (Some(deadline), false) = (deadline, busy) {
            self.set_alarm(deadline);
        }
        if !busy && self.polling.talk() {
            self.enter_polling();
        } else {
            self.enter(u32::from(!busy));
        }
        self.collect();
        if !self.quiet.is_empty() {
            let queue = self.ring.submission();
            let all = queue.is_empty() && !queue.cq_overflow();
            drop(queue);
            if all {
                self.hear_quiet_sends()
            } else {
                self.quiet_early = true
            }
        }
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.ready.pop_front() {
                return Some(completion);
            }
            let arrived = self.arrived.get(self.cursor)?;
            let arrived = Arrived { ..*arrived };
            self.cursor += 1;
            if let Some(completion) = self.look_at(arrived) {
                return Some(completion);
            }
        }
    }

    fn submit(&mut self) {
        self.buffers.refill();
        if !self.ring.submission().is_empty() {
            // The next `wait` meets the same error again.
            let _ = self.ring.submit();
            self.quiet_early = !self.quiet.is_empty();
        }
    }

    fn bytes(&self, chunk: &ReceivedChunk) -> &[u8] {
        self.buffers.bytes(chunk)
    }

    fn release(&mut self, chunk: ReceivedChunk) {
        self.buffers.release(chunk.buffer());
    }

    fn listeners(&self) -> Vec<Address> {
        self.listeners
            .iter()
            .map(|listening| listening.address.clone())
            .collect()
    }

    fn accept(&mut self, index: usize, on: bool) {
        let listening = &mut self.listeners[index];
        let was = std::mem::replace(&mut listening.wanted, on);
        if on {
            // If an accept is still armed, and its cancel under way, its last completion arms it
            // again.
            self.arm_accept(index);
        } else if was && listening.armed {
            self.cancel(Tag::of(ACCEPT, index));
        }
    }

    fn unlisten(&mut self, index: usize) {
        if let Some(socket) = &self.listeners[index].socket {
            socket::stop_listening(socket, &self.listeners[index].shared);
        }
        self.listeners[index].leaving = true;
        self.accept(index, false);
        self.arm_accept(index);
    }

    fn set_options(&mut self, options: SocketOptions) {
        self.options = options;
    }

    fn connect(&mut self, key: Key, address: &Address) {
        let begun = match socket::begin_connect(address, &self.options) {
            Ok(begun) => begun,
            Err(error) => {
                self.insert(key, None);
                let result = Err(error);
                return self.ready.push_back(Completion::Connected { key, result });
            }
        };
        let poll = opcode::PollAdd::new(Fd(begun.socket.as_raw_fd()), PollFlags::OUT.bits().into());
        let connection = self.insert(key, Some(begun.socket));
        connection.connecting = Some(Box::new(address.clone()));
        if begun.done {
            self.connected(key);
        } else {
            self.push(poll.build().user_data(Tag::new(CONNECT, key).pack()));
        }
    }

    fn attach(&mut self, key: Key, socket: LooseSocket) {
        self.insert(key, Some(socket.into_inner()));
    }

    fn discard(&mut self, socket: LooseSocket) {
        drop(socket);
    }

    fn receive(&mut self, key: Key, on: bool) {
        let Some(connection) = self.get(key) else {
            return;
        };
        if connection.purpose != Purpose::InUse {
            return;
        }
        connection.wanted = on;
        match connection.receive {
            Receive::Off if on => self.arm(key),
            _ if on => {}
            _ => self.stop_receive(key),
        }
    }

    fn hung_up(&mut self, key: Key) -> bool {
        let connection = self.get(key);
        let socket = connection.and_then(|connection| connection.socket.as_ref());
        socket.is_some_and(socket::hung_up)
    }

    fn send(&mut self, key: Key, block: Vec<u8>, prompt: bool) -> Option<Vec<u8>> {
        let index = self.free_sends.pop().unwrap_or(self.sends.len() as u32);
        match self.get(key) {
            Some(connection) => {
                debug_assert_eq!(connection.sending, NONE, "one send at a time");
                connection.sending = index;
            }
            None => {
                // An index past the end was never in use, and will be found again.
                if index < self.sends.len() as u32 {
                    self.free_sends.push(index);
                }
                return Some(block);
            }
        }
        // For a block that is sent in pieces, the end of each piece must be reported.
        let prompt = prompt || block.len() > self.options.piece();
        let sending = Sending {
            block,
            sent: 0,
            quiet: !prompt,
        };
        match self.sends.get_mut(index as usize) {
            Some(free) => *free = sending,
            None => self.sends.push(sending),
        }
        if !prompt {
            self.quiet.push(key);
        }
        self.send_rest(key);
        None
    }

    fn shutdown(&mut self, key: Key) {
        if let Some(Connection {
            socket: Some(socket),
            ..
        }) = self.get(key)
        {
            let _ = rustix::net::shutdown(socket, Shutdown::Write);
        }
    }

    fn detach(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        debug_assert!(connection.sending == NONE && connection.connecting.is_none());
        connection.purpose = Purpose::Detaching;
        connection.wanted = false;
        self.stop_receive(key);
        self.settle(key);
    }

    fn close(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        connection.purpose = Purpose::Closing;
        connection.wanted = false;
        let (sending, connecting) = (connection.sending != NONE, connection.connecting.is_some());
        match connection.receive {
            // The end of the stream may be among the completions that have arrived: see
            // `end_closing`.
            Receive::Armed | Receive::Stopping => self.closing.push(key),
            Receive::Off | Receive::Starved => {
                connection.receive = Receive::Off;
                if !connecting {
                    connection.shut_down();
                }
            }
        }
        if sending {
            self.cancel(Tag::new(SEND, key));
        }
        if connecting {
            self.cancel(Tag::new(CONNECT, key));
        }
        self.settle(key);
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Blocks and buffers are freed next, so no operation may use them any more.
        let submitter = self.ring.submitter();
        match submitter.register_sync_cancel(None, CancelBuilder::any()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => {
                std::mem::forget(std::mem::take(&mut self.sends));
                self.buffers.keep();
            }
        }
    }
}
