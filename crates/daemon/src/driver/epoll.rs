//! The driver for kernels and containers without io_uring: level-triggered epoll.
//!
//! Bytes are received inside [`Driver::next`], into one buffer per worker. Each connection may deliver a
//! quota of bytes in each turn. When the driver no longer waits for an event, it tells epoll so only if the
//! event arrives after all. A send is tried at once; only if the kernel refuses, the driver waits until the
//! socket is writable.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use howdah_pooler::event::{Address, LooseSocket, Time};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags};

use super::socket::{self, Listener, SocketOptions};
use super::{Completion, Driver, Key, ReceivedChunk, Tag};

/// Bytes of the receive buffer.
const BUFFER: usize = 32 * 1024;
/// Bytes a connection may deliver in one turn.
const QUOTA: usize = 64 * 1024;
/// Events collected in one turn.
const EVENTS: usize = 256;
/// Connections accepted from one listener in one turn.
const ACCEPTS: usize = 16;

/// Kinds of [`Tag`]s.
const BELL: u8 = 0;
const LISTENER: u8 = 1;
const CONNECTION: u8 = 2;

/// The driver over epoll: see the module's comment.
pub struct Epoll {
    epoll: OwnedFd,
    listeners: Vec<Listening>,
    options: SocketOptions,
    connections: Vec<Connection>,
    events: Vec<epoll::Event>,
    /// The index of the next event in `events`.
    cursor: usize,
    /// The connection that is being read, and the rest of its quota.
    reading: Option<(Key, usize)>,
    /// Completions that are ready to be returned.
    ready: VecDeque<Completion>,
    buffer: Box<[u8]>,
    /// Kept open, because `epoll` watches it.
    _bell: Option<Arc<OwnedFd>>,
}

struct Listening {
    address: Address,
    /// `None` after [`Driver::unlisten`].
    socket: Option<Arc<OwnedFd>>,
    shared: Arc<AtomicBool>,
    armed: bool,
}

#[derive(Default)]
struct Connection {
    generation: u32,
    socket: Option<OwnedFd>,
    /// In use from attach or connect until the last completion.
    in_use: bool,
    receiving: bool,
    /// The events that epoll watches; `None` if the socket is not registered.
    interest: Option<EventFlags>,
    connecting: Option<Box<Address>>,
    unsent: Option<Box<Unsent>>,
}

/// A block that the kernel has not taken completely.
struct Unsent {
    block: Vec<u8>,
    sent: usize,
}

impl Epoll {
    /// Makes a driver that accepts from `listeners` (once switched on) and wakes when `bell`
    /// becomes readable.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(listeners: Vec<Listener>, bell: Option<Arc<OwnedFd>>) -> Result<Epoll, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(bell) = &bell {
            let tag = Tag::of(BELL, 0);
            let data = EventData::new_u64(tag.pack());
            epoll::add(&epoll, bell, data, EventFlags::IN | EventFlags::ET)?;
        }
        let mut driver = Epoll {
            epoll,
            listeners: Vec::new(),
            options: SocketOptions::default(),
            connections: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            cursor: 0,
            reading: None,
            ready: VecDeque::new(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            _bell: bell,
        };
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
            rustix::io::ioctl_fionbio(&listener.socket, true)?;
            self.listeners.push(Listening {
                address: listener.address,
                socket: Some(listener.socket),
                shared: listener.shared,
                armed: false,
            });
        }
        Ok(())
    }

    fn get(&mut self, key: Key) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(key.slot as usize)?;
        (connection.in_use && connection.generation == key.generation).then_some(connection)
    }

    fn insert(&mut self, key: Key, socket: Option<OwnedFd>) -> &mut Connection {
        let slot = key.slot as usize;
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, Connection::default);
        }
        let connection = &mut self.connections[slot];
        debug_assert!(!connection.in_use, "a key is used for one connection");
        *connection = Connection {
            generation: key.generation,
            socket,
            in_use: true,
            ..Default::default()
        };
        connection
    }

    /// Tells epoll which events this connection waits for. Unless `exact`, epoll may watch more
    /// events.
    fn watch(&mut self, key: Key, exact: bool) {
        let Some(connection) = self.connections.get_mut(key.slot as usize) else {
            return;
        };
        let Some(socket) = &connection.socket else {
            return;
        };
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, connection.receiving);
        let write = connection.unsent.is_some() || connection.connecting.is_some();
        wanted.set(EventFlags::OUT, write);
        let data = EventData::new_u64(Tag::new(CONNECTION, key).pack());
        let result = match connection.interest {
            None if wanted.is_empty() => return,
            None => epoll::add(&self.epoll, socket, data, wanted),
            Some(_) if wanted.is_empty() && exact => epoll::delete(&self.epoll, socket),
            Some(had) if had == wanted || (!exact && had.contains(wanted)) => return,
            Some(_) => epoll::modify(&self.epoll, socket, data, wanted),
        };
        connection.interest = if wanted.is_empty() {
            None
        } else {
            Some(wanted)
        };
        if let Err(error) = result {
            // Out of memory or of watches: this connection can't go on.
            connection.interest = None;
            connection.receiving = false;
            self.ready.push_back(Completion::Ended {
                key,
                error: Some(error),
            });
        }
    }

    fn look_at(&mut self, event: epoll::Event) {
        let tag = Tag::unpack(event.data.u64());
        match tag.kind {
            LISTENER => self.accept_some(tag.key.slot as usize),
            CONNECTION => self.look_at_connection(tag.key, event.flags),
            _ => {}
        }
    }

    fn look_at_connection(&mut self, key: Key, flags: EventFlags) {
        let Some(connection) = self.get(key) else {
            return;
        };
        if connection.connecting.is_some() {
            return self.finish_connect(key);
        }
        let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let readable = broken || flags.contains(EventFlags::IN);
        let (receiving, unsent) = (connection.receiving, connection.unsent.is_some());
        if unsent && (broken || flags.contains(EventFlags::OUT)) {
            self.send_rest(key);
        }
        if receiving && readable {
            self.reading = Some((key, QUOTA));
        }
        if (readable && !receiving) || (flags.contains(EventFlags::OUT) && !unsent) {
            self.watch(key, true);
        }
    }

    fn accept_some(&mut self, index: usize) {
        for _ in 0..ACCEPTS {
            let listener = &self.listeners[index];
            let (true, Some(socket)) = (listener.armed, &listener.socket) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC;
            match rustix::net::accept_with(socket, flags) {
                Ok(socket) => {
                    let ends = socket::finish_accept(&socket, &listener.address, &self.options);
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
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // The socket was shut down: it never accepts again.
                Err(Errno::INVAL) => return self.accept(index, false),
                Err(error) => {
                    self.accept(index, false);
                    self.ready.push_back(Completion::AcceptFailed {
                        listener: index,
                        error,
                    });
                    return;
                }
            }
        }
    }

    fn finish_connect(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        let (Some(address), Some(socket)) = (connection.connecting.take(), &connection.socket)
        else {
            return;
        };
        let result = socket::finish_connect(socket, &address);
        self.ready.push_back(Completion::Connected { key, result });
    }

    /// Reads from the socket once.
    fn read(&mut self, key: Key, quota: usize) -> Option<Completion> {
        let slot = key.slot as usize;
        let connection = self.connections.get_mut(slot)?;
        let current = connection.in_use && connection.generation == key.generation;
        if !current || !connection.receiving {
            return None;
        }
        let socket = connection.socket.as_ref()?;
        let result = loop {
            match rustix::net::recv(socket, &mut *self.buffer, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                other => break other.map(|(_, len)| len),
            }
        };
        let error = match result {
            Err(Errno::AGAIN) => return None,
            Ok(0) => None,
            Ok(len) => {
                if len == self.buffer.len() && quota > len {
                    self.reading = Some((key, quota - len));
                }
                let chunk = ReceivedChunk::new(0, len as u32);
                return Some(Completion::Received { key, chunk });
            }
            Err(error) => Some(error),
        };
        connection.receiving = false;
        self.watch(key, true);
        Some(Completion::Ended { key, error })
    }

    fn send_rest(&mut self, key: Key) {
        let piece = self.options.piece();
        let Some(connection) = self.get(key) else {
            return;
        };
        let (Some(unsent), Some(socket)) = (&mut connection.unsent, &connection.socket) else {
            return;
        };
        let result = send_from(socket, &unsent.block, &mut unsent.sent, piece);
        if result == Err(Errno::AGAIN) {
            return;
        }
        if let Some(unsent) = connection.unsent.take() {
            self.ready.push_back(Completion::Sent {
                key,
                block: unsent.block,
                result,
            });
        }
        self.watch(key, true);
    }

    /// Removes a connection from the table, and its socket from epoll.
    fn take(&mut self, key: Key) -> Option<Option<OwnedFd>> {
        let connection = self.get(key)?;
        let registered = connection.interest.is_some();
        let unsent = connection.unsent.take();
        let socket = connection.socket.take();
        *connection = Connection::default();
        if let Some(unsent) = unsent {
            let result = Err(Errno::CANCELED);
            self.ready.push_back(Completion::Sent {
                key,
                block: unsent.block,
                result,
            });
        }
        if let (true, Some(socket)) = (registered, &socket) {
            let _ = epoll::delete(&self.epoll, socket);
        }
        Some(socket)
    }
}

/// Sends in pieces until all is sent or the kernel refuses (`AGAIN`).
fn send_from(socket: &OwnedFd, block: &[u8], sent: &mut usize, piece: usize) -> Result<(), Errno> {
    while *sent < block.len() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let rest = &block[*sent..];
        match rustix::net::send(socket, &rest[..rest.len().min(piece)], flags) {
            Ok(len) => *sent += len,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Driver for Epoll {
    fn now(&self) -> Time {
        socket::clock()
    }

    fn wait(&mut self, deadline: Option<Time>) {
        debug_assert!(self.cursor == self.events.len() && self.reading.is_none());
        let deadline = if self.ready.is_empty() {
            deadline
        } else {
            Some(Time(0))
        };
        let timeout = deadline.map(|at| match at {
            Time(0) => socket::timeout(at, at),
            at => socket::timeout(socket::clock(), at),
        });
        self.cursor = 0;
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        // The only possible error is an interruption by a signal; the loop then waits again.
        let _ = epoll::wait(&self.epoll, room, timeout.as_ref());
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.ready.pop_front() {
                return Some(completion);
            }
            if let Some((key, quota)) = self.reading.take() {
                if let Some(completion) = self.read(key, quota) {
                    return Some(completion);
                }
                continue;
            }
            let event = *self.events.get(self.cursor)?;
            self.cursor += 1;
            self.look_at(event);
        }
    }

    fn submit(&mut self) {}

    fn bytes(&self, chunk: &ReceivedChunk) -> &[u8] {
        &self.buffer[..chunk.len()]
    }

    fn release(&mut self, _chunk: ReceivedChunk) {}

    fn listeners(&self) -> Vec<Address> {
        self.listeners.iter().map(|l| l.address.clone()).collect()
    }

    fn accept(&mut self, index: usize, on: bool) {
        let listener = &mut self.listeners[index];
        let Some(socket) = &listener.socket else {
            return;
        };
        if std::mem::replace(&mut listener.armed, on) == on {
            return;
        }
        let tag = Tag::of(LISTENER, index);
        let result = if on {
            // Each new connection wakes one waiting worker, not all of them.
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, socket, EventData::new_u64(tag.pack()), flags)
        } else {
            epoll::delete(&self.epoll, socket)
        };
        if let Err(error) = result {
            listener.armed = false;
            self.ready.push_back(Completion::AcceptFailed {
                listener: index,
                error,
            });
        }
    }

    fn unlisten(&mut self, index: usize) {
        self.accept(index, false);
        if let Some(socket) = self.listeners[index].socket.take() {
            socket::stop_listening(&socket, &self.listeners[index].shared);
        }
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
        let connection = self.insert(key, Some(begun.socket));
        connection.connecting = Some(Box::new(address.clone()));
        if begun.done {
            self.finish_connect(key);
        } else {
            self.watch(key, false);
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
        connection.receiving = on;
        if on {
            self.watch(key, false);
        }
    }

    fn hung_up(&mut self, key: Key) -> bool {
        let connection = self.get(key);
        let socket = connection.and_then(|connection| connection.socket.as_ref());
        socket.is_some_and(socket::hung_up)
    }

    fn send(&mut self, key: Key, block: Vec<u8>, _prompt: bool) -> Option<Vec<u8>> {
        let piece = self.options.piece();
        let Some(connection) = self.get(key) else {
            return Some(block);
        };
        let Some(socket) = &connection.socket else {
            return Some(block);
        };
        let mut sent = 0;
        match send_from(socket, &block, &mut sent, piece) {
            Ok(()) => return Some(block),
            Err(Errno::AGAIN) => {
                connection.unsent = Some(Box::new(Unsent { block, sent }));
                self.watch(key, false);
            }
            Err(error) => {
                self.ready.push_back(Completion::Sent {
                    key,
                    block,
                    result: Err(error),
                });
            }
        }
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
        if let Some(Some(socket)) = self.take(key) {
            let socket = LooseSocket::new(socket);
            self.ready.push_back(Completion::Detached { key, socket });
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(socket) = self.take(key) {
            drop(socket);
            self.ready.push_back(Completion::Closed { key });
        }
    }
}
