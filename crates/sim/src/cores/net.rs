//! Sockets, and who is at their far ends: clients that send one statement after the other, and
//! sessions of PostgreSQL that answer each after their time. Nothing is lost, split or held up.

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

/// Shared by drivers and the machine.
pub type Shared = Rc<RefCell<Net>>;

/// What a driver finds in a turn, at most: io_uring's has buffers for so much, epoll's asks for twice
/// as many events. A worker with more to do than that looks at its mail and its timers in between.
const FOUND: usize = 128;
/// ReadyForQuery, idle.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// See the module.
pub struct Net {
    /// What things take.
    pub costs: Costs,
    /// How long a client rests between two transactions, in nanoseconds.
    pub think: u64,
    /// Clients that have logged in send nothing before that.
    pub begins: u64,
    /// What became of transactions.
    pub tally: Tally,
    sockets: Vec<Socket>,
    clients: Vec<Client>,
    /// What arrives when; the second number tells apart what arrives at the same time.
    arrivals: BTreeMap<(u64, u64), Arrival>,
    serial: u64,
    /// By worker: what its driver finds next.
    due: Vec<VecDeque<Due>>,
    chance: Chance,
    reply: Rc<[u8]>,
    welcome: Rc<[u8]>,
    query: Rc<[u8]>,
}

/// What a driver finds.
pub enum Due {
    /// Somebody has connected.
    Accepted(SocketId),
    /// A connect has succeeded.
    Connected(Key, SocketId),
    /// Perhaps there are bytes.
    Bytes(SocketId),
}

enum Arrival {
    Accepted(usize, SocketId),
    Connected(usize, Key, SocketId),
    Bytes(SocketId, Rc<[u8]>),
}

struct Socket {
    far: Far,
    /// Its worker, and its name there.
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
    /// It sends nothing once it has logged in.
    idle: bool,
    /// When it sent what it awaits the answer to.
    sent: Option<u64>,
    /// Another worker took it meanwhile.
    moved: bool,
}

/// What became of transactions, since it was last emptied. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many there were.
    pub transactions: u64,
    /// The longest of a client that stayed where it was.
    pub longest_still: u64,
    /// The longest of a client that another worker took meanwhile.
    pub longest_moved: u64,
    /// So many of those.
    pub moved: u64,
    /// Each transaction's time, of clients that stayed and of those that moved, where that is asked for.
    pub each: Option<[Vec<u64>; 2]>,
    /// How many there were, and the longest, by the worker that has the client.
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
    /// For so many workers.
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

    /// A client of a pool connects at this time, and is accepted by that worker.
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

    /// When something arrives next.
    pub fn next(&self) -> Option<u64> {
        self.arrivals.first_key_value().map(|((at, _), _)| *at)
    }

    /// It arrives: the worker that is to look, if one is.
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

/// What drivers ask for.
impl Net {
    /// What a worker finds in a turn. What is more waits for the next one.
    pub fn collect(&mut self, worker: usize) -> Vec<Due> {
        let due = &mut self.due[worker];
        due.drain(..due.len().min(FOUND)).collect()
    }

    /// Whether there is anything.
    pub fn has_due(&self, worker: usize) -> bool {
        !self.due[worker].is_empty()
    }

    /// Bytes of a socket, for the worker that has it and wants them.
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

    /// A socket is a worker's now.
    pub fn attach(&mut self, worker: usize, key: Key, id: SocketId) {
        self.sockets[id].owner = Some((worker, key));
        self.sockets[id].wanted = false;
        if let Far::Client(client) = self.sockets[id].far {
            self.clients[client].moved = true;
        }
    }

    /// It is nobody's.
    pub fn detach(&mut self, id: SocketId) {
        self.sockets[id].owner = None;
        self.sockets[id].wanted = false;
    }

    /// Its worker wants what comes, or not.
    pub fn receive(&mut self, worker: usize, id: SocketId, on: bool) {
        let socket = &mut self.sockets[id];
        socket.wanted = on;
        if on && !socket.inbound.is_empty() {
            self.due[worker].push_back(Due::Bytes(id));
        }
    }

    /// Its ends.
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

    /// A worker sends.
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
                        // From half to one and a half times of it: where each took the same, all would
                        // keep step with each other, as nothing does.
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

    /// A client has its answer, and sends its next statement in time.
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

    /// By worker, how many clients of a pool it has.
    pub fn clients_by_worker(&self, pool: usize) -> Vec<u32> {
        let mut counts = vec![0; self.due.len()];
        for client in self.clients.iter().filter(|client| client.pool == pool) {
            if let Some((worker, _)) = self.sockets[client.socket].owner {
                counts[worker] += 1;
            }
        }
        counts
    }

    /// By worker, how many servers it has.
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

/// What of the protocol this takes for granted.
const _: () = assert!(backend::READY == b'Z');
