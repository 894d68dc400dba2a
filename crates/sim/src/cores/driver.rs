//! A driver whose clock advances by its worker's work and by waiting.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use howdah_daemon::driver::socket::SocketOptions;
use howdah_daemon::driver::{Completion, Driver, Key, ReceivedChunk};
use howdah_pooler::event::{Address, LooseSocket, Time};

use super::net::{Due, Shared, SocketId};

/// A core with one worker. Times are in nanoseconds.
#[derive(Default)]
pub struct Core {
    /// The worker's present time.
    pub clock: Cell<u64>,
    /// When the worker wakes, if it sleeps.
    pub wakes: Cell<u64>,
    /// The worker had nothing to do at its last look.
    pub slept: Cell<bool>,
    /// The worker has done something since then.
    pub worked: Cell<bool>,
}

impl Core {
    /// An operation takes this time.
    pub fn takes(&self, nanos: u64) {
        self.clock.set(self.clock.get() + nanos);
        self.worked.set(true);
    }
}

/// The driver of one worker.
pub struct CoreDriver {
    worker: usize,
    core: Rc<Core>,
    net: Shared,
    /// The connections by slot.
    keys: Vec<Option<(Key, SocketId)>>,
    ready: VecDeque<Completion>,
    buffers: Vec<Vec<u8>>,
    free: Vec<u16>,
    /// The duration of the turn itself, which counts if the turn finds something.
    owed: u64,
    /// The turn has found something.
    found: bool,
}

impl CoreDriver {
    /// The driver of this worker.
    pub fn new(worker: usize, core: Rc<Core>, net: Shared) -> CoreDriver {
        CoreDriver {
            worker,
            core,
            net,
            keys: Vec::new(),
            ready: VecDeque::new(),
            buffers: Vec::new(),
            free: Vec::new(),
            owed: 0,
            found: false,
        }
    }

    fn get(&self, key: Key) -> Option<SocketId> {
        let (of, socket) = (*self.keys.get(key.slot as usize)?)?;
        (of == key).then_some(socket)
    }

    fn put(&mut self, key: Key, socket: SocketId) {
        let slot = key.slot as usize;
        if self.keys.len() <= slot {
            self.keys.resize(slot + 1, None);
        }
        self.keys[slot] = Some((key, socket));
    }

    fn take(&mut self, key: Key) -> Option<SocketId> {
        let socket = self.get(key)?;
        self.keys[key.slot as usize] = None;
        Some(socket)
    }

    fn chunk(&mut self, bytes: Vec<u8>) -> ReceivedChunk {
        let buffer = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            (self.buffers.len() - 1) as u16
        });
        let chunk = ReceivedChunk::new(buffer, bytes.len() as u32);
        self.buffers[usize::from(buffer)] = bytes;
        chunk
    }

    fn find(&mut self) {
        let due = self.net.borrow_mut().collect(self.worker);
        for due in due {
            let completion = match due {
                Due::Accepted(id) => Completion::Accepted {
                    listener: 0,
                    socket: LooseSocket::new(id),
                    ends: Box::new(self.net.borrow().ends(id)),
                },
                Due::Connected(key, id) => Completion::Connected {
                    key,
                    result: Ok(Box::new(self.net.borrow().ends(id))),
                },
                Due::Bytes(id) => {
                    let read = self.net.borrow_mut().read(self.worker, id);
                    let Some((key, bytes)) = read else { continue };
                    let chunk = self.chunk(bytes);
                    Completion::Received { key, chunk }
                }
            };
            self.ready.push_back(completion);
        }
    }
}

impl Driver for CoreDriver {
    fn now(&self) -> Time {
        Time(self.core.clock.get())
    }

    fn wait(&mut self, _deadline: Option<Time>) {
        let core = &self.core;
        core.clock.set(core.clock.get().max(core.wakes.get()));
        let costs = self.net.borrow().costs;
        self.owed = if core.slept.get() {
            costs.wake
        } else {
            costs.turn
        };
        core.worked.set(false);
        self.find();
        self.found = !self.ready.is_empty();
    }

    fn next(&mut self) -> Option<Completion> {
        if std::mem::take(&mut self.found) {
            self.core.takes(std::mem::take(&mut self.owed));
        }
        self.ready.pop_front()
    }

    fn submit(&mut self) {}

    fn bytes(&self, chunk: &ReceivedChunk) -> &[u8] {
        &self.buffers[usize::from(chunk.buffer())]
    }

    fn release(&mut self, chunk: ReceivedChunk) {
        self.free.push(chunk.buffer());
    }

    fn listeners(&self) -> Vec<Address> {
        vec![Address::Tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), 6432)]
    }

    fn accept(&mut self, _listener: usize, _on: bool) {}

    fn unlisten(&mut self, _listener: usize) {}

    fn set_options(&mut self, _options: SocketOptions) {}

    fn connect(&mut self, key: Key, _address: &Address) {
        let now = self.core.clock.get();
        let socket = self.net.borrow_mut().connect(now, self.worker, key);
        self.put(key, socket);
    }

    fn attach(&mut self, key: Key, socket: LooseSocket) {
        let socket = socket.into_inner::<SocketId>();
        self.net.borrow_mut().attach(self.worker, key, socket);
        self.put(key, socket);
    }

    fn discard(&mut self, _socket: LooseSocket) {
        panic!("nobody is turned away");
    }

    fn receive(&mut self, key: Key, on: bool) {
        if let Some(socket) = self.get(key) {
            self.net.borrow_mut().receive(self.worker, socket, on);
        }
    }

    fn hung_up(&mut self, _key: Key) -> bool {
        false
    }

    fn send(&mut self, key: Key, block: Vec<u8>, _prompt: bool) -> Option<Vec<u8>> {
        if let Some(socket) = self.get(key) {
            let now = self.core.clock.get();
            self.net.borrow_mut().send(now, socket, &block);
        }
        Some(block)
    }

    fn shutdown(&mut self, _key: Key) {}

    fn detach(&mut self, key: Key) {
        if let Some(socket) = self.take(key) {
            self.net.borrow_mut().detach(socket);
            let socket = LooseSocket::new(socket);
            self.ready.push_back(Completion::Detached { key, socket });
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(socket) = self.take(key) {
            self.net.borrow_mut().detach(socket);
            self.ready.push_back(Completion::Closed { key });
        }
    }
}
