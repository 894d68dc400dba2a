//! Sockets and their far ends: clients that send one statement after the other, and sessions of PostgreSQL
//! that answer after some time. Nothing is lost, split or delayed.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use howdah_daemon::driver::Key;
use howdah_pooler::event::{Address, Ends};
use howdah_wire::backend::Status;
use howdah_wire::frame::header;
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use super::costs::Costs;
use crate::chance::Chance;

/// Names a socket.
pub type SocketId = usize;

/// Shared by the drivers and the machine.
pub type Shared = Rc<RefCell<Net>>;

/// The most that a driver finds in one turn: io_uring's driver has buffers for this many receives,
/// epoll's collects twice as many events. A worker with more work handles its mail and its timers
/// in between.
const FOUND: usize = 128;
/// ReadyForQuery, idle.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// The network.
pub struct Net {
    /// The durations of operations.
    pub costs: Costs,
    /// How long a client rests between two transactions, in nanoseconds.
    pub think: u64,
    /// Before this time, clients that have logged in send nothing.
    pub begins: u64,
    /// The results of transactions.
    pub tally: Tally,
    sockets: Vec<Socket>,
    clients: Vec<Client>,
    /// The arrivals by time. The second number distinguishes arrivals of the same time.
    arrivals: BTreeMap<(u64, u64), Arrival>,
    serial: u64,
    /// By worker: what its driver finds next.
    due: Vec<VecDeque<Due>>,
    chance: Chance,
    reply: Rc<[u8]>,
    welcome: Rc<[u8]>,
    query: Rc<[u8]>,
}

/// Something that a driver finds.
pub enum Due {
    /// A client has connected.
    Accepted(SocketId),
    /// A connect has succeeded.
    Connected(Key, SocketId),
    /// There may be bytes.
    Bytes(SocketId),
}

enum Arrival {
    Accepted(usize, SocketId),
    Connected(usize, Key, SocketId),
    Bytes(SocketId, Rc<[u8]>),
}

struct Socket {
    far: Far,
    /// The socket's worker, and its key there.
    owner: Option<(usize, Key)>,
    wanted: bool,
    inbound: Vec<u8>,
}

enum Far {
    Client(usize),
    Server { begun: bool, free: u64 },
}

struct Client {
    socket: SocketId,
    pool: usize,
    /// The client sends nothing after its login.
    idle: bool,
    /// When the client sent the statement whose answer it awaits.
    sent: Option<u64>,
    /// The client has moved to another worker meanwhile.
    moved: bool,
}

/// The results of transactions since the tally was last emptied. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of transactions.
    pub transactions: u64,
    /// The longest transaction of a client that stayed.
    pub longest_still: u64,
    /// The longest transaction of a client that moved meanwhile.
    pub longest_moved: u64,
    /// The number of transactions whose client moved.
    pub moved: u64,
    /// The duration of each transaction, of clients that stayed and of those that moved, if wanted.
    pub each: Option<[Vec<u64>; 2]>,
    /// By worker of the client: the number of transactions, and the longest.
    pub by_worker: Vec<(u64, u64)>,
}

impl Tally {
    fn count(&mut self, nanos: u64, moved: bool) {
        self.transactions += 1;
        if let Some(each) = &mut self.each {
            each[usize::from(moved)].push(nanos);
        }
        if moved {
            self.moved += 1;
            self.longest_moved = self.longest_moved.max(nanos);
        } else {
            self.longest_still = self.longest_still.max(nanos);
        }
    }
}

impl Net {
    /// A network for this many workers.
    pub fn new(costs: Costs, workers: usize) -> Shared {
        let (mut reply, mut welcome, mut query) = (Vec::new(), Vec::new(), Vec::new());
        write::message(&mut reply, b'T', |body| body.extend([0, 0]));
        write::message(&mut reply, b'D', |body| body.extend([0, 0]));
        write::command_complete(&mut reply, "SELECT 1");
        write::ready(&mut reply, Status::Idle);
        write::authentication(&mut welcome, 0, b"");
        write::parameter_status(&mut welcome, b"server_version", b"17.0");
        write::key_data(&mut welcome, 1, &[0; 4]);
        write::ready(&mut welcome, Status::Idle);
        write::query(
            &mut query,
            b"select abalance from pgbench_accounts where aid = 1",
        );
        Rc::new(RefCell::new(Net {
            costs,
            think: 0,
            begins: 0,
            tally: Tally::default(),
            sockets: Vec::new(),
            clients: Vec::new(),
            arrivals: BTreeMap::new(),
            serial: 0,
            due: (0..workers).map(|_| VecDeque::new()).collect(),
            chance: Chance::new(1),
            reply: reply.into(),
            welcome: welcome.into(),
            query: query.into(),
        }))
    }

    /// A client of a pool connects at this time; this worker accepts it.
    pub fn client(&mut self, at: u64, worker: usize, pool: usize, idle: bool) {
        let far = Far::Client(self.clients.len());
        let socket = self.socket(far);
        self.clients.push(Client {
            socket,
            pool,
            idle,
            sent: None,
            moved: false,
        });
        self.arrive(at, Arrival::Accepted(worker, socket));
        let mut startup = Vec::new();
        let database = format!("p{pool}");
        write::startup(&mut startup, 0, [("user", "u"), ("database", &*database)]);
        self.arrive(at, Arrival::Bytes(socket, startup.into()));
    }

    /// The time of the next arrival.
    pub fn next(&self) -> Option<u64> {
        self.arrivals.first_key_value().map(|((at, _), _)| *at)
    }

    /// Handles the next arrival. Returns the worker that must look, if any.
    pub fn deliver(&mut self) -> Option<usize> {
        let (_, arrival) = self.arrivals.pop_first()?;
        let (worker, due) = match arrival {
            Arrival::Accepted(worker, socket) => (worker, Due::Accepted(socket)),
            Arrival::Connected(worker, key, socket) => (worker, Due::Connected(key, socket)),
            Arrival::Bytes(id, bytes) => {
                let socket = &mut self.sockets[id];
                socket.inbound.extend_from_slice(&bytes);
                let (worker, _) = socket.owner.filter(|_| socket.wanted)?;
                (worker, Due::Bytes(id))
            }
        };
        self.due[worker].push_back(due);
        Some(worker)
    }

    fn arrive(&mut self, at: u64, arrival: Arrival) {
        self.serial += 1;
        self.arrivals.insert((at, self.serial), arrival);
    }

    fn socket(&mut self, far: Far) -> SocketId {
        self.sockets.push(Socket {
            far,
            owner: None,
            wanted: false,
            inbound: Vec::new(),
        });
        self.sockets.len() - 1
    }
}

/// The drivers' requests.
impl Net {
    /// What a worker finds in a turn. The rest waits for the next turn.
    pub fn collect(&mut self, worker: usize) -> Vec<Due> {
        let due = &mut self.due[worker];
        due.drain(..due.len().min(FOUND)).collect()
    }

    /// True if the worker would find something.
    pub fn has_due(&self, worker: usize) -> bool {
        !self.due[worker].is_empty()
    }

    /// The bytes of a socket, if this worker has it and wants them.
    pub fn read(&mut self, worker: usize, id: SocketId) -> Option<(Key, Vec<u8>)> {
        let socket = &mut self.sockets[id];
        let (_, key) = socket.owner.filter(|(at, _)| *at == worker)?;
        let wanted = socket.wanted && !socket.inbound.is_empty();
        wanted.then(|| (key, std::mem::take(&mut socket.inbound)))
    }

    /// A worker connects to PostgreSQL.
    pub fn connect(&mut self, now: u64, worker: usize, key: Key) -> SocketId {
        let far = Far::Server {
            begun: false,
            free: 0,
        };
        let socket = self.socket(far);
        self.sockets[socket].owner = Some((worker, key));
        let at = now + 2 * self.costs.hop;
        self.arrive(at, Arrival::Connected(worker, key, socket));
        socket
    }

    /// A socket now belongs to a worker.
    pub fn attach(&mut self, worker: usize, key: Key, id: SocketId) {
        self.sockets[id].owner = Some((worker, key));
        self.sockets[id].wanted = false;
        if let Far::Client(client) = self.sockets[id].far {
            self.clients[client].moved = true;
        }
    }

    /// A socket belongs to no worker.
    pub fn detach(&mut self, id: SocketId) {
        self.sockets[id].owner = None;
        self.sockets[id].wanted = false;
    }

    /// Switches receiving on or off.
    pub fn receive(&mut self, worker: usize, id: SocketId, on: bool) {
        let socket = &mut self.sockets[id];
        socket.wanted = on;
        if on && !socket.inbound.is_empty() {
            self.due[worker].push_back(Due::Bytes(id));
        }
    }

    /// The addresses of both ends.
    pub fn ends(&self, id: SocketId) -> Ends {
        let address = |port| Address::Tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let far = match self.sockets[id].far {
            Far::Client(_) => address(40_000),
            Far::Server { .. } => address(5432),
        };
        Ends {
            remote: far,
            local: address(6432),
            unix_peer: None,
        }
    }

    /// A worker sends bytes.
    pub fn send(&mut self, now: u64, id: SocketId, bytes: &[u8]) {
        match self.sockets[id].far {
            Far::Client(client) => {
                if bytes.ends_with(READY) {
                    self.answered(now + self.costs.hop, client);
                }
            }
            Far::Server { begun: false, .. } => {
                self.sockets[id].far = Far::Server {
                    begun: true,
                    free: now,
                };
                let at = now + 2 * self.costs.hop + self.costs.login;
                let welcome = self.welcome.clone();
                self.arrive(at, Arrival::Bytes(id, welcome));
            }
            Far::Server { mut free, .. } => {
                let mut rest = bytes;
                while let Some(Ok(message)) = header(rest) {
                    if message.tag == frontend::QUERY {
                        // From half to one and a half times the average. If all took the same time,
                        // all sessions would run in step, which does not happen in reality.
                        let part = self.chance.within(500..=1500) as u64;
                        let takes = self.costs.postgres * part / 1000;
                        free = free.max(now + self.costs.hop) + takes;
                        let reply = self.reply.clone();
                        self.arrive(free + self.costs.hop, Arrival::Bytes(id, reply));
                    }
                    rest = &rest[message.total()..];
                }
                assert!(rest.is_empty(), "a server is sent whole messages");
                self.sockets[id].far = Far::Server { begun: true, free };
            }
        }
    }

    /// A client has its answer, and sends its next statement later.
    fn answered(&mut self, now: u64, client: usize) {
        let who = &mut self.clients[client];
        if who.idle {
            return;
        }
        if let Some(sent) = who.sent {
            self.tally.count(now - sent, who.moved);
            if let Some((worker, _)) = self.sockets[who.socket].owner {
                let all = &mut self.tally.by_worker;
                all.resize(self.due.len(), (0, 0));
                all[worker].0 += 1;
                all[worker].1 = all[worker].1.max(now - sent);
            }
        }
        let sends = (now + self.think).max(self.begins);
        who.sent = Some(sends);
        who.moved = false;
        let (socket, query) = (who.socket, self.query.clone());
        self.arrive(sends + self.costs.hop, Arrival::Bytes(socket, query));
    }

    /// By worker: the number of clients of a pool.
    pub fn clients_by_worker(&self, pool: usize) -> Vec<u32> {
        let mut counts = vec![0; self.due.len()];
        for client in self.clients.iter().filter(|client| client.pool == pool) {
            if let Some((worker, _)) = self.sockets[client.socket].owner {
                counts[worker] += 1;
            }
        }
        counts
    }

    /// By worker: the number of servers.
    pub fn servers_by_worker(&self) -> Vec<u32> {
        let mut counts = vec![0; self.due.len()];
        let servers = self
            .sockets
            .iter()
            .filter(|s| matches!(s.far, Far::Server { .. }));
        for (worker, _) in servers.filter_map(|socket| socket.owner) {
            counts[worker] += 1;
        }
        counts
    }
}

/// An assumption of this file about the protocol.
const _: () = assert!(backend::READY == b'Z');
