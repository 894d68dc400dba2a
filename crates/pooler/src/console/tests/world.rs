//! Several workers in one thread, a PostgreSQL that answers at once, and clients as text.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use howdah_wire::backend::{Fields, Status};
use howdah_wire::frame::{HEADER, cstr, header};
use howdah_wire::write;

use crate::broker::Broker;
use crate::config::Config;
use crate::event::*;
use crate::mail::Mail;
use crate::{Pooler, PoolerSetup, seeded};

const INI: &str = "
[databases]
d = host=127.0.0.1 port=5432 pool_size=4
e = host=10.0.0.1,10.0.0.2 dbname=real user=u pool_mode=session max_db_connections=9
[users]
u = pool_size=5 pool_mode=transaction
[pgbouncer]
listen_addr = *
pool_mode = transaction
admin_users = root
stats_users = stat
auth_file = list
";

/// A client, by its socket.
pub type Socket = i64;

pub struct World {
    poolers: Vec<Pooler>,
    broker: Broker,
    pub now: Time,
    events: VecDeque<(usize, Happening)>,
    sockets: BTreeMap<Socket, (usize, Peer)>,
    told: BTreeMap<Socket, Vec<u8>>,
    pub closed: Vec<Socket>,
    pub asked: Vec<String>,
    pub ticket: Option<(usize, u64)>,
    next: Socket,
}

enum Happening {
    Names(u64),
    Mail(Mail),
    Connected(ServerId),
    Closed(Peer),
    Detached(Peer),
    Flushed(Peer),
    ToServer(Peer, Vec<u8>),
}

impl World {
    /// So many workers, and lines added to the configuration.
    pub fn new(workers: u16, more: &str) -> World {
        let list = "\"root\" \"\"\n\"stat\" \"\"\n\"u\" \"\"\n";
        let (config, _) =
            Config::load("x.ini", &format!("{INI}{more}"), &mut |_| Ok(list.into())).unwrap();
        let config = Arc::new(config);
        let pooler = |setup| {
            Pooler::new(PoolerSetup {
                started: 1_000_000_000.0,
                driver: "epoll (io_uring is not allowed here)".into(),
                ..setup
            })
        };
        let mut world = World {
            broker: Broker::new(seeded(0)),
            poolers: PoolerSetup::repeatable(workers, &config)
                .map(pooler)
                .collect(),
            now: Time(1_000_000_000),
            events: VecDeque::new(),
            sockets: BTreeMap::new(),
            told: BTreeMap::new(),
            closed: Vec::new(),
            asked: Vec::new(),
            ticket: None,
            next: 100,
        };
        world.pass(0);
        world
    }

    /// A client that sends its start-up packet to a worker, and what it is told.
    pub fn log_in(&mut self, worker: usize, user: &str, database: &str) -> (Socket, String) {
        self.log_in_from(worker, user, database, None)
    }

    pub fn log_in_from(
        &mut self,
        worker: usize,
        user: &str,
        database: &str,
        unix_peer: Option<UnixPeer>,
    ) -> (Socket, String) {
        let remote = Address::Tcp([127, 0, 0, 1].into(), 4000);
        let local = Address::Tcp([127, 0, 0, 1].into(), 6432);
        self.handle(
            worker,
            Event::Accepted(Ends {
                remote,
                local,
                unix_peer,
            }),
            &[],
        );
        let socket = self.next;
        let mut bytes = Vec::new();
        let parameters = [
            ("user", user),
            ("database", database),
            ("application_name", "app"),
        ];
        write::startup(&mut bytes, 0, parameters);
        let told = self.send(socket, &bytes);
        (socket, told)
    }

    /// An administrator, logged in.
    pub fn console(&mut self, worker: usize, user: &str) -> Socket {
        let (socket, told) = self.log_in(worker, user, "pgbouncer");
        assert!(told.ends_with("Z Idle"), "{told}");
        socket
    }

    /// Sends a Query.
    pub fn query(&mut self, socket: Socket, text: &str) -> String {
        let mut bytes = Vec::new();
        write::query(&mut bytes, text.as_bytes());
        self.send(socket, &bytes)
    }

    /// Sends bytes; gives what the client was told since it was last looked at.
    pub fn send(&mut self, socket: Socket, bytes: &[u8]) -> String {
        let (worker, peer) = self.sockets[&socket];
        self.handle(worker, Event::Received(peer, bytes), bytes);
        self.run();
        self.told(socket)
    }

    pub fn told(&mut self, socket: Socket) -> String {
        text(&std::mem::take(self.told.entry(socket).or_default()))
    }

    pub fn lose(&mut self, socket: Socket) {
        let (worker, peer) = self.sockets[&socket];
        self.handle(worker, Event::Lost(peer, None), &[]);
        self.run();
    }

    pub fn answer(&mut self, result: Result<(), String>) {
        let (worker, ticket) = self.ticket.take().expect("something was asked");
        self.handle(worker, Event::Answer(Answer::Reloaded(ticket, result)), &[]);
        self.run();
    }

    /// Lets time pass.
    pub fn pass(&mut self, seconds: u64) {
        self.pass_ms(seconds * 1000);
    }

    pub fn pass_ms(&mut self, milliseconds: u64) {
        self.now.0 += milliseconds * 1_000_000;
        for worker in 0..self.poolers.len() {
            self.handle(worker, Event::Tick, &[]);
        }
        self.run();
    }

    /// Sends a cancel request with a client's key.
    pub fn cancel(&mut self, socket: Socket) {
        let (worker, Peer::Client(id)) = self.sockets[&socket] else {
            panic!()
        };
        let (pid, secret, length) = self.poolers[worker].keys.of(id, false);
        let mut bytes = Vec::new();
        write::cancel_request(&mut bytes, pid, &secret[..length]);
        let ends = Ends {
            remote: Address::Tcp([127, 0, 0, 1].into(), 4001),
            local: Address::Tcp([127, 0, 0, 1].into(), 6432),
            unix_peer: None,
        };
        self.handle(0, Event::Accepted(ends), &[]);
        self.send(self.next, &bytes);
    }

    fn run(&mut self) {
        while let Some((worker, happening)) = self.events.pop_front() {
            match happening {
                Happening::Names(ticket) => {
                    let names = Box::default();
                    self.handle(worker, Event::Answer(Answer::Names(ticket, names)), &[]);
                }
                Happening::Mail(mail) => self.handle(worker, Event::Mail(mail), &[]),
                Happening::Connected(id) => {
                    let remote = Address::Tcp([127, 0, 0, 1].into(), 5432);
                    let local = Address::Tcp([127, 0, 0, 1].into(), 5000);
                    let ends = Ends {
                        remote,
                        local,
                        unix_peer: None,
                    };
                    self.handle(worker, Event::Connected(id, Ok(ends)), &[]);
                }
                Happening::Closed(peer) => {
                    self.handle(worker, Event::Closed { peer, gone: true }, &[]);
                    self.sockets.retain(|_, known| *known != (worker, peer));
                }
                Happening::Detached(peer) => {
                    let socket = self.socket(worker, peer);
                    self.handle(worker, Event::Detached(peer, LooseSocket::new(socket)), &[]);
                }
                Happening::Flushed(peer) => self.handle(worker, Event::Flushed(peer), &[]),
                Happening::ToServer(peer, bytes) => {
                    let reply = postgres(&bytes);
                    self.handle(worker, Event::Received(peer, &reply), &reply);
                }
            }
        }
    }

    fn socket(&self, worker: usize, peer: Peer) -> Socket {
        let found = self
            .sockets
            .iter()
            .find(|(_, known)| **known == (worker, peer));
        *found.expect("a known socket").0
    }

    fn handle(&mut self, worker: usize, event: Event<'_>, bytes: &[u8]) {
        let mut out = Out::default();
        self.poolers[worker].handle(self.now, event, &mut out);
        self.poolers[worker].check();
        for action in out.actions {
            match action {
                Action::Adopt(id) => self.meet(worker, Peer::Client(id)),
                Action::Attach(peer, socket) => {
                    self.sockets.insert(socket.into_inner(), (worker, peer));
                }
                Action::Connect(id, _) => {
                    self.meet(worker, Peer::Server(id));
                    self.events.push_back((worker, Happening::Connected(id)));
                }
                Action::Send(peer, range) => self.pass_on(worker, peer, &out.bytes[range]),
                Action::Relay(peer, range) => self.pass_on(worker, peer, &bytes[range]),
                Action::StartTls(..) => panic!("TLS was never switched on"),
                Action::Close { peer, .. } => {
                    self.closed.push(self.socket(worker, peer));
                    self.events.push_back((worker, Happening::Closed(peer)));
                }
                Action::Detach(peer) => {
                    self.events.push_back((worker, Happening::Detached(peer)));
                }
                Action::Post(to, mail) => {
                    self.events
                        .push_back((usize::from(to.0), Happening::Mail(mail)));
                }
                Action::Broker(mail) => {
                    let events = &mut self.events;
                    self.broker.handle(self.now, mail, &mut |to, mail| {
                        events.push_back((usize::from(to.0), Happening::Mail(mail)));
                    });
                }
                Action::Ask(Question::Names { ticket }) => {
                    self.events.push_back((worker, Happening::Names(ticket)));
                }
                Action::Ask(question) => {
                    if let Question::Reload { ticket } | Question::Set { ticket, .. } = question {
                        self.ticket = Some((worker, ticket));
                    }
                    self.asked.push(format!("{question:?}"));
                }
                Action::TellFlushed(peer) => {
                    self.events.push_back((worker, Happening::Flushed(peer)));
                }
                Action::Receive { .. }
                | Action::LookForEnd(_)
                | Action::Discard(_)
                | Action::Note(_)
                | Action::Tell(_) => {}
            }
        }
    }

    fn meet(&mut self, worker: usize, peer: Peer) {
        self.next += 1;
        self.sockets.insert(self.next, (worker, peer));
    }

    fn pass_on(&mut self, worker: usize, peer: Peer, bytes: &[u8]) {
        match peer {
            Peer::Client(_) => {
                let socket = self.socket(worker, peer);
                self.told
                    .entry(socket)
                    .or_default()
                    .extend_from_slice(bytes);
            }
            Peer::Server(_) => {
                self.events
                    .push_back((worker, Happening::ToServer(peer, bytes.to_vec())));
            }
        }
    }
}

/// What PostgreSQL says to a start-up packet, or to queries. It grants every SET of a name.
fn postgres(mut bytes: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    if bytes.first() == Some(&0) {
        write::authentication(&mut reply, 0, b"");
        write::parameter_status(&mut reply, b"application_name", b"");
        write::parameter_status(&mut reply, b"server_version", b"15");
        write::key_data(&mut reply, 77, &[0; 4]);
        write::ready(&mut reply, Status::Idle);
        return reply;
    }
    while let Some(Ok(header)) = header(bytes) {
        let body = &bytes[HEADER..header.total()];
        if header.tag == b'Q' {
            if body.starts_with(b"SET") {
                write::parameter_status(&mut reply, b"application_name", b"app");
            }
            write::command_complete(&mut reply, "OK");
            let status = if body == b"begin\0" {
                Status::Transaction
            } else {
                Status::Idle
            };
            write::ready(&mut reply, status);
        }
        bytes = &bytes[header.total()..];
    }
    reply
}

/// Messages to a client, a line each.
fn text(mut bytes: &[u8]) -> String {
    let mut lines = Vec::new();
    while let Some(Ok(header)) = header(bytes) {
        let body = &bytes[HEADER..header.total()];
        bytes = &bytes[header.total()..];
        lines.push(match header.tag {
            b'T' => format!("T {}", columns(body)),
            b'D' => format!("D {}", values(body)),
            b'C' => format!("C {}", String::from_utf8_lossy(&body[..body.len() - 1])),
            b'E' | b'N' => {
                let fields = Fields::new(body);
                let words = [
                    fields.severity(),
                    fields.sqlstate().unwrap(),
                    fields.message(),
                ];
                String::from_utf8_lossy(&words.join(&b' ')).into_owned()
            }
            b'S' => {
                let (name, value) = howdah_wire::backend::parameter_status(body).unwrap();
                let pair = [name, value].join(&b'=');
                format!("S {}", String::from_utf8_lossy(&pair))
            }
            b'Z' => format!("Z {:?}", Status::read(body).unwrap()),
            tag => format!("{} {}", tag as char, body.len()),
        });
    }
    lines.join("\n")
}

/// Names of columns, and their types if those are not text.
fn columns(body: &[u8]) -> String {
    let mut rest = &body[2..];
    let mut columns = Vec::new();
    while let Some((name, after)) = cstr(rest) {
        let name = String::from_utf8_lossy(name).into_owned();
        let of_type = u32::from_be_bytes(after[6..10].try_into().unwrap());
        columns.push(match of_type {
            25 => name,
            20 => format!("{name}:int8"),
            23 => format!("{name}:int4"),
            1700 => format!("{name}:numeric"),
            other => format!("{name}:{other}"),
        });
        rest = &after[18..];
    }
    columns.join(" ")
}

fn values(body: &[u8]) -> String {
    let mut rest = &body[2..];
    let mut values = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        let (value, after) = after.split_at(length.max(0) as usize);
        values.push(if length < 0 {
            "NULL".into()
        } else {
            String::from_utf8_lossy(value)
        });
        rest = after;
    }
    values.join("|")
}
