//! A driver of simulated sockets: it splits, delays and reorders everything that its contract allows.

use std::collections::VecDeque;

use howdah_daemon::driver::socket::SocketOptions;
use howdah_daemon::driver::{Completion, Driver, Errno, Key, ReceivedChunk};
use howdah_pooler::event::{Address, LooseSocket, Time};

use crate::world::{Read, Shared, SocketId};

/// The most bytes of one receive.
const BUFFER: usize = 8 * 1024;

/// The driver of one worker.
pub struct SimDriver {
    world: Shared,
    listeners: Vec<Listening>,
    connections: Vec<Option<Connection>>,
    ready: VecDeque<Completion>,
    /// The received bytes of each buffer; `None` if the buffer is free.
    buffers: Vec<Option<Vec<u8>>>,
    /// The greatest number of buffers in use.
    pub most_buffers: usize,
    /// Accepting fails once in this many times; 0 for never.
    pub accept_fails_once_in: usize,
}

struct Listening {
    address: Address,
    accepting: bool,
    open: bool,
}

struct Connection {
    key: Key,
    socket: Option<SocketId>,
    connecting: Option<Address>,
    wanted: bool,
    /// Bytes may be delivered. Stays on for a while after `wanted` is off.
    armed: bool,
    sending: Option<(Vec<u8>, usize)>,
    leaving: Option<Leaving>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Detaching,
    Closing,
}

impl SimDriver {
    /// A driver that accepts on these addresses.
    pub fn new(world: Shared, addresses: Vec<Address>) -> SimDriver {
        for address in &addresses {
            world.borrow_mut().listen(address.clone());
        }
        let listening = |address| Listening {
            address,
            accepting: false,
            open: true,
        };
        SimDriver {
            world,
            listeners: addresses.into_iter().map(listening).collect(),
            connections: Vec::new(),
            ready: VecDeque::new(),
            buffers: Vec::new(),
            most_buffers: usize::from(u16::MAX),
            accept_fails_once_in: 0,
        }
    }

    /// The process ends: the kernel closes all of its sockets.
    pub fn end(&mut self) {
        let mut world = self.world.borrow_mut();
        for connection in self.connections.drain(..).flatten() {
            if let Some(socket) = connection.socket {
                world.close(socket);
            }
        }
        for completion in self.ready.drain(..) {
            if let Completion::Accepted { socket, .. } | Completion::Detached { socket, .. } =
                completion
            {
                world.close(socket.into_inner::<SocketId>());
            }
        }
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    fn get(&mut self, key: Key) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(key.slot as usize)?.as_mut()?;
        (connection.key == key).then_some(connection)
    }

    fn insert(&mut self, key: Key, socket: Option<SocketId>, connecting: Option<Address>) {
        let slot = key.slot as usize;
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, || None);
        }
        assert!(self.connections[slot].is_none(), "slot {slot} is in use");
        self.connections[slot] = Some(Connection {
            key,
            socket,
            connecting,
            wanted: false,
            armed: false,
            sending: None,
            leaving: None,
        });
    }

    fn accept_some(&mut self) {
        for (listener, listening) in self.listeners.iter_mut().enumerate() {
            let mut world = self.world.borrow_mut();
            let fails = self.accept_fails_once_in;
            if listening.accepting && fails > 0 && world.chance.once_in(fails * 50) {
                listening.accepting = false;
                let error = Errno::MFILE;
                self.ready
                    .push_back(Completion::AcceptFailed { listener, error });
                continue;
            }
            if listening.accepting
                && world.chance.once_in(2)
                && let Some(socket) = world.accept(&listening.address)
            {
                let ends = Box::new(world.ends(socket));
                let socket = LooseSocket::new(socket);
                self.ready.push_back(Completion::Accepted {
                    listener,
                    socket,
                    ends,
                });
            }
        }
    }

    /// Takes a step of a connection, or none.
    fn step(&mut self, slot: usize) {
        let Some(mut connection) = self.connections[slot].take() else {
            return;
        };
        if !self.world.borrow_mut().chance.once_in(3) {
            self.step_connect(&mut connection);
            self.step_send(&mut connection);
            self.step_receive(&mut connection);
            if self.step_leave(&mut connection) {
                return;
            }
        }
        self.connections[slot] = Some(connection);
    }

    fn step_connect(&mut self, connection: &mut Connection) {
        let Some(address) = connection.connecting.take() else {
            return;
        };
        let mut world = self.world.borrow_mut();
        connection.socket = world.connect(&address);
        if connection.leaving.is_none() {
            let ends = connection.socket.map(|socket| Box::new(world.ends(socket)));
            let result = ends.ok_or(Errno::CONNREFUSED);
            self.ready.push_back(Completion::Connected {
                key: connection.key,
                result,
            });
        }
    }

    fn step_send(&mut self, connection: &mut Connection) {
        let (Some((block, mut sent)), Some(socket)) =
            (connection.sending.take(), connection.socket)
        else {
            return;
        };
        let mut world = self.world.borrow_mut();
        let len = world.chance.part(block.len() - sent);
        let result = match world.write(socket, &block[sent..sent + len]) {
            _ if connection.leaving == Some(Leaving::Closing) => Err(Errno::CANCELED),
            None => Err(Errno::PIPE),
            Some(len) => {
                sent += len;
                if sent < block.len() {
                    connection.sending = Some((block, sent));
                    return;
                }
                Ok(())
            }
        };
        self.ready.push_back(Completion::Sent {
            key: connection.key,
            block,
            result,
        });
    }

    fn step_receive(&mut self, connection: &mut Connection) {
        let Some(socket) = connection.socket else {
            return;
        };
        let mut world = self.world.borrow_mut();
        if !connection.wanted && world.chance.once_in(3) {
            // The last completion of a stopped receive.
            connection.armed = false;
        }
        let out = self.buffers.iter().flatten().count();
        if !connection.armed
            || connection.leaving == Some(Leaving::Closing)
            || out >= self.most_buffers
        {
            return;
        }
        let most = world.chance.part(BUFFER);
        let key = connection.key;
        let error = match world.read(socket, most) {
            Read::Nothing => return,
            Read::Bytes(bytes) => {
                let free = self.buffers.iter().position(Option::is_none);
                let buffer = free.unwrap_or(self.buffers.len());
                self.buffers
                    .resize(self.buffers.len().max(buffer + 1), None);
                let chunk = ReceivedChunk::new(buffer as u16, bytes.len() as u32);
                self.buffers[buffer] = Some(bytes);
                return self.ready.push_back(Completion::Received { key, chunk });
            }
            Read::End => None,
            Read::Reset => Some(Errno::CONNRESET),
        };
        connection.wanted = false;
        connection.armed = false;
        connection.leaving = None;
        self.ready.push_back(Completion::Ended { key, error });
    }

    /// True if the connection is gone.
    fn step_leave(&mut self, connection: &mut Connection) -> bool {
        let key = connection.key;
        match connection.leaving {
            None => return false,
            Some(Leaving::Closing) => {
                if let Some(socket) = connection.socket {
                    self.world.borrow_mut().close(socket);
                }
                self.ready.push_back(Completion::Closed { key });
            }
            Some(Leaving::Detaching) => {
                let (false, Some(socket)) = (connection.armed, connection.socket) else {
                    return false;
                };
                let socket = LooseSocket::new(socket);
                self.ready.push_back(Completion::Detached { key, socket });
            }
        }
        true
    }

    /// The number of buffers that were not given back. Zero between turns.
    pub fn buffers_out(&self) -> usize {
        self.buffers.iter().flatten().count()
    }
}

impl Driver for SimDriver {
    fn now(&self) -> Time {
        self.world.borrow().now
    }

    fn wait(&mut self, _deadline: Option<Time>) {
        assert_eq!(
            self.buffers_out(),
            0,
            "buffers are given back within the turn"
        );
        self.accept_some();
        // The order differs from turn to turn.
        let count = self.connections.len();
        let first = self.world.borrow_mut().chance.within(0..=count);
        for slot in (first..count).chain(0..first) {
            self.step(slot);
        }
    }

    fn next(&mut self) -> Option<Completion> {
        self.ready.pop_front()
    }

    fn submit(&mut self) {}

    fn bytes(&self, chunk: &ReceivedChunk) -> &[u8] {
        let bytes = self.buffers[usize::from(chunk.buffer())].as_deref();
        bytes.expect("a chunk's bytes are asked for before its release")
    }

    fn release(&mut self, chunk: ReceivedChunk) {
        let released = self.buffers[usize::from(chunk.buffer())].take();
        assert!(released.is_some(), "a chunk is released twice");
    }

    fn listeners(&self) -> Vec<Address> {
        self.listeners
            .iter()
            .map(|listening| listening.address.clone())
            .collect()
    }

    fn accept(&mut self, listener: usize, on: bool) {
        let listening = &mut self.listeners[listener];
        listening.accepting = on && listening.open;
    }

    fn unlisten(&mut self, listener: usize) {
        self.listeners[listener].open = false;
        self.listeners[listener].accepting = false;
    }

    fn set_options(&mut self, _options: SocketOptions) {}

    fn connect(&mut self, key: Key, address: &Address) {
        self.insert(key, None, Some(address.clone()));
    }

    fn attach(&mut self, key: Key, socket: LooseSocket) {
        self.insert(key, Some(socket.into_inner::<SocketId>()), None);
    }

    fn discard(&mut self, socket: LooseSocket) {
        self.world
            .borrow_mut()
            .close(socket.into_inner::<SocketId>());
    }

    fn receive(&mut self, key: Key, on: bool) {
        let Some(connection) = self.get(key) else {
            return;
        };
        if connection.leaving.is_none() {
            connection.wanted = on;
            connection.armed |= on;
        }
    }

    fn hung_up(&mut self, key: Key) -> bool {
        let socket = self.get(key).and_then(|connection| connection.socket);
        socket.is_some_and(|socket| self.world.borrow().hung_up(socket))
    }

    fn send(&mut self, key: Key, block: Vec<u8>, _prompt: bool) -> Option<Vec<u8>> {
        assert!(!block.is_empty(), "an empty block is sent");
        let world = self.world.clone();
        let Some(connection) = self.get(key) else {
            return Some(block);
        };
        assert!(connection.sending.is_none(), "one send at a time");
        let Some(socket) = connection.socket else {
            return Some(block);
        };
        let mut world = world.borrow_mut();
        // Sometimes at once, as with epoll.
        let whole = block.len();
        let sent = if world.chance.once_in(2) {
            world.write(socket, &block)
        } else {
            Some(0)
        };
        if sent == Some(whole) {
            return Some(block);
        }
        connection.sending = Some((block, sent.unwrap_or(0)));
        None
    }

    fn shutdown(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        assert!(connection.sending.is_none(), "shut down under a send");
        if let Some(socket) = connection.socket {
            self.world.borrow_mut().shutdown(socket);
        }
    }

    fn detach(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        assert!(connection.sending.is_none(), "detached under a send");
        connection.wanted = false;
        connection.leaving = Some(Leaving::Detaching);
    }

    fn close(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        connection.wanted = false;
        connection.leaving = Some(Leaving::Closing);
    }
}
