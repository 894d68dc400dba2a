//! The simulated network and clock.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;

use howdah_pooler::event::{Address, Ends, Time, UnixPeer};

use crate::chance::Chance;
use crate::story::Story;
use crate::{board, schema, wal};

/// The number of a socket.
pub type SocketId = usize;

/// The bytes that may be unread in one direction; a sender waits for room.
pub const ROOM: usize = 64 * 1024;

/// Shared by the drivers and the test.
pub type Shared = Rc<RefCell<World>>;

/// The world.
pub struct World {
    /// The virtual time.
    pub now: Time,
    /// The source of all randomness.
    pub chance: Chance,
    /// What the network does to bytes on their way.
    pub weather: Weather,
    /// The events, and the violation.
    pub story: Story,
    /// The reasons for which clients may lose their connections.
    pub excuses: Excuses,
    /// Nothing delays a cancel request.
    pub prompt_cancels: bool,
    /// What a balancer says before a client does: nothing without a balancer.
    pub header: &'static [u8],
    /// By order: when a worker first obeyed it.
    pub orders: HashMap<String, Time>,
    /// By database: when the administrator sent the last KILL that was answered.
    pub killed: HashMap<String, Time>,
    /// PostgreSQL's tables, by database.
    pub catalogs: BTreeMap<String, schema::Shared>,
    /// The notifications, by database.
    pub boards: BTreeMap<String, board::Shared>,
    /// The WAL of hosts with roles.
    pub wal: wal::Shared,
    /// Counts all movements.
    pub activity: u64,
    sockets: Vec<Socket>,
    /// The times of future events.
    alarms: BinaryHeap<Reverse<Time>>,
    /// By listening address: sockets that are connected and not yet accepted.
    backlogs: HashMap<Address, VecDeque<SocketId>>,
    next_port: u16,
}

/// What the network does with bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Once in this many writes, the bytes are delayed; 0 for never.
    pub delay_once_in: usize,
    /// The longest of those delays, in microseconds.
    pub delay_most: u64,
}

/// The reasons for which clients may lose their connections.
#[derive(Clone, Debug, Default)]
pub struct Excuses {
    /// The beginnings of errors that clients may get.
    pub texts: Vec<&'static str>,
    /// Connections may end without an error.
    pub closes: bool,
    /// Sessions that a busy PostgreSQL did not end in time. Howdah counts them as free.
    pub late_sessions: usize,
}

/// One end of a connection.
struct Socket {
    other: SocketId,
    ends: Ends,
    /// Bytes from the other end that are unread.
    inbound: VecDeque<u8>,
    /// The other end sends no more.
    ended: bool,
    reset: bool,
    closed: bool,
    /// Bytes on their way arrive at this time or later.
    held_until: Time,
}

/// The result of a read.
#[derive(PartialEq, Eq, Debug)]
pub enum Read {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// End of file.
    End,
    /// The other end has reset the connection.
    Reset,
}

impl World {
    /// The tables of a database.
    pub fn catalog(&mut self, database: &str) -> schema::Shared {
        self.catalogs.entry(database.into()).or_default().clone()
    }

    /// The notifications of a database.
    pub fn board(&mut self, database: &str) -> board::Shared {
        self.boards.entry(database.into()).or_default().clone()
    }

    /// An empty world.
    pub fn new(seed: u64) -> Shared {
        Rc::new(RefCell::new(World {
            now: Time(1_000_000_000),
            chance: Chance::new(seed),
            weather: Weather::default(),
            story: Story::default(),
            excuses: Excuses::default(),
            prompt_cancels: false,
            header: b"",
            orders: HashMap::new(),
            killed: HashMap::new(),
            catalogs: BTreeMap::new(),
            boards: BTreeMap::new(),
            wal: wal::Shared::default(),
            activity: 0,
            sockets: Vec::new(),
            alarms: BinaryHeap::new(),
            backlogs: HashMap::new(),
            next_port: 40_000,
        }))
    }

    /// Listens on an address; for actors outside of Howdah.
    pub fn listen(&mut self, address: Address) {
        self.backlogs.entry(address).or_default();
    }

    /// Stops listening. Connections that were not accepted are reset.
    pub fn stop_listening(&mut self, address: &Address) {
        for waiting in self.backlogs.remove(address).into_iter().flatten() {
            self.reset(waiting);
        }
    }

    /// Connects to an address; `None` if nobody listens there.
    pub fn connect(&mut self, to: &Address) -> Option<SocketId> {
        let backlog = self.backlogs.get_mut(to)?;
        self.activity += 1;
        let (ours, theirs) = (self.sockets.len(), self.sockets.len() + 1);
        backlog.push_back(theirs);
        self.next_port = self.next_port.wrapping_add(1);
        let from = match to {
            Address::Tcp(ip, _) => Address::Tcp(*ip, self.next_port),
            unix => unix.clone(),
        };
        for (other, remote, local) in [(theirs, to, &from), (ours, &from, to)] {
            let ends = Ends {
                remote: remote.clone(),
                local: local.clone(),
                // All processes belong to Howdah's own user.
                unix_peer: matches!(to, Address::Unix(..)).then_some(UnixPeer { pid: 7, uid: 70 }),
            };
            let inbound = VecDeque::new();
            self.sockets.push(Socket {
                other,
                ends,
                inbound,
                ended: false,
                reset: false,
                closed: false,
                held_until: Time(0),
            });
        }
        Some(ours)
    }

    /// A client connects to Howdah. If a balancer is between, the balancer's header comes first.
    pub fn connect_to_front(&mut self, front: &Address) -> Option<SocketId> {
        let socket = self.connect(front)?;
        let header = self.header;
        self.write(socket, header);
        Some(socket)
    }

    /// The oldest connection to this address that was not accepted.
    pub fn accept(&mut self, on: &Address) -> Option<SocketId> {
        let socket = self.backlogs.get_mut(on)?.pop_front();
        self.activity += u64::from(socket.is_some());
        socket
    }

    /// An event will happen at this time: the clock must not jump over it.
    pub fn alarm(&mut self, at: Time) {
        self.alarms.push(Reverse(at));
    }

    /// The next event's time.
    pub fn next_alarm(&mut self) -> Option<Time> {
        while let Some(Reverse(at)) = self.alarms.peek() {
            if *at > self.now {
                return Some(*at);
            }
            self.alarms.pop();
        }
        None
    }

    /// The addresses of both ends of a socket.
    pub fn ends(&self, socket: SocketId) -> Ends {
        self.sockets[socket].ends.clone()
    }

    /// Writes as much as there is room for; `None` if the other end is gone.
    pub fn write(&mut self, socket: SocketId, bytes: &[u8]) -> Option<usize> {
        let other = self.sockets[socket].other;
        if self.sockets[socket].reset || self.sockets[other].closed {
            return None;
        }
        let inbound = &mut self.sockets[other].inbound;
        let len = bytes.len().min(ROOM - inbound.len());
        inbound.extend(&bytes[..len]);
        self.activity += u64::from(len > 0);
        let weather = self.weather;
        if len > 0 && weather.delay_once_in > 0 && self.chance.once_in(weather.delay_once_in) {
            let delay = self.chance.number() % (weather.delay_most * 1000).max(1);
            self.hold_up(other, delay);
        }
        Some(len)
    }

    /// Bytes on their way to a socket arrive only after this many nanoseconds.
    pub fn hold_up(&mut self, socket: SocketId, nanos: u64) {
        let until = Time(self.now.0 + nanos);
        let socket = &mut self.sockets[socket];
        socket.held_until = socket.held_until.max(until);
        self.alarm(until);
    }

    /// Reads at most `most` bytes.
    pub fn read(&mut self, socket: SocketId, most: usize) -> Read {
        let now = self.now;
        let socket = &mut self.sockets[socket];
        if socket.held_until > now && !socket.reset {
            return Read::Nothing;
        }
        let len = socket.inbound.len().min(most);
        if len > 0 {
            self.activity += 1;
            return Read::Bytes(socket.inbound.drain(..len).collect());
        }
        match (socket.reset, socket.ended) {
            (true, _) => Read::Reset,
            (false, true) => Read::End,
            (false, false) => Read::Nothing,
        }
    }

    /// True if the other side has ended its direction.
    pub fn hung_up(&self, socket: SocketId) -> bool {
        let socket = &self.sockets[socket];
        socket.held_until <= self.now && (socket.ended || socket.reset)
    }

    /// Ends the sending direction of this socket.
    pub fn shutdown(&mut self, socket: SocketId) {
        let other = self.sockets[socket].other;
        self.activity += 1;
        self.sockets[other].ended = true;
    }

    /// Closes a socket. Unread bytes make this a reset, as in TCP.
    pub fn close(&mut self, socket: SocketId) {
        let closing = &mut self.sockets[socket];
        assert!(!closing.closed, "a socket is closed twice");
        closing.closed = true;
        self.activity += 1;
        let unread = !closing.inbound.is_empty();
        let other = closing.other;
        self.sockets[other].ended = true;
        self.sockets[other].reset |= unread;
    }

    /// Breaks the connection for both ends. Unread bytes may be lost.
    pub fn reset(&mut self, socket: SocketId) {
        let other = self.sockets[socket].other;
        self.activity += 1;
        for end in [socket, other] {
            self.sockets[end].reset = true;
            if self.chance.once_in(2) {
                self.sockets[end].inbound.clear();
            }
        }
    }

    /// True if this end was closed.
    pub fn is_closed(&self, socket: SocketId) -> bool {
        self.sockets[socket].closed
    }

    /// The other end of a connection.
    pub fn other(&self, socket: SocketId) -> SocketId {
        self.sockets[socket].other
    }

    /// True if the connection was broken.
    pub fn is_reset(&self, socket: SocketId) -> bool {
        self.sockets[socket].reset
    }
}
