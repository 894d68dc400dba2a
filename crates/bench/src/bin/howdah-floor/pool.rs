//! One thread's clients and servers, and the links between them.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::Receiver;

use rustix::net::{Shutdown, shutdown};

use crate::framing::Framing;
use crate::ring::{Event, Ring};

/// The longest startup packet that PostgreSQL accepts, in bytes.
const LONGEST_STARTUP: usize = 10_000;

/// A pool's supplies: new clients, new servers, and the greeting of clients.
pub struct Supply {
    /// Accepted clients; the doorbell rings after each.
    pub clients: Receiver<TcpStream>,
    /// Opens and logs in a server. Blocks.
    pub open_server: Box<dyn FnMut() -> io::Result<TcpStream> + Send>,
    /// AuthenticationOk up to ReadyForQuery.
    pub greeting: Vec<u8>,
}

/// One thread's pool.
pub struct Pool {
    ring: Ring,
    links: Links,
    supply: Supply,
}

/// All connections and their links. Separate from the ring, so that its buffers can be borrowed.
#[derive(Default)]
struct Links {
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Servers without a client, the newest last.
    idle: Vec<usize>,
    /// Clients without a server, the oldest first.
    waiting: VecDeque<usize>,
    /// Connections to send to, receive from or close at the end of the turn.
    touched: Vec<usize>,
    /// The number of closed servers to replace.
    missing: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Doorbell,
    /// A client before its startup packet.
    Stranger,
    Client,
    Server,
}

struct Connection {
    fd: OwnedFd,
    role: Role,
    peer: Option<usize>,
    framing: Framing,
    /// An incomplete header or startup packet.
    piece: Vec<u8>,
    /// A client's request while it waits for a server.
    held: Vec<u8>,
    out: Vec<u8>,
    /// The allocation that alternates with `out`.
    spare: Vec<u8>,
    /// The number of ReadyForQuery that this client's requests will cause.
    owed: usize,
    /// The client has sent messages since the last one that causes a ReadyForQuery.
    unsynced: bool,
    /// For a server: the last ReadyForQuery said that no transaction is open.
    outside: bool,
    waiting: bool,
    sending: bool,
    armed: bool,
    touched: bool,
    closing: bool,
}

impl Connection {
    fn new(fd: OwnedFd, role: Role) -> Self {
        Self {
            fd,
            role,
            peer: None,
            framing: Framing::default(),
            piece: Vec::new(),
            held: Vec::new(),
            out: Vec::new(),
            spare: Vec::new(),
            owed: 0,
            unsynced: false,
            outside: true,
            waiting: false,
            sending: false,
            armed: false,
            touched: false,
            closing: false,
        }
    }
}

impl Pool {
    /// A pool with its servers. `doorbell` gets one byte for each client in `supply`.
    ///
    /// # Errors
    /// io_uring is not available.
    pub fn new(doorbell: OwnedFd, servers: Vec<TcpStream>, supply: Supply) -> io::Result<Self> {
        let mut links = Links::default();
        links.add(doorbell, Role::Doorbell);
        for server in servers {
            let index = links.add(server.into(), Role::Server);
            links.idle.push(index);
        }
        Ok(Self {
            ring: Ring::new()?,
            links,
            supply,
        })
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// The kernel refuses an operation.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            self.settle();
            self.ring.wait()?;
            while let Some(event) = self.ring.next_event() {
                match event {
                    Event::Received {
                        index,
                        buffer,
                        armed,
                        ended,
                    } => {
                        if let Some(buffer) = buffer {
                            let bytes = self.ring.bytes(&buffer);
                            self.links.deliver(index, bytes, &self.supply.greeting);
                            self.ring.recycle(buffer);
                        }
                        if !armed {
                            self.links.receive_ended(index, ended);
                        }
                    }
                    Event::Sent {
                        index,
                        bytes,
                        broken,
                    } => self.links.sent(index, bytes, broken),
                }
            }
            self.admit();
            self.replace();
        }
    }

    /// Starts the operations of this turn: one send for each connection, receives, closes.
    fn settle(&mut self) {
        let mut turn = std::mem::take(&mut self.links.touched);
        let connections = &self.links.connections;
        turn.sort_by_key(|index| {
            let role = connections[*index]
                .as_ref()
                .map(|connection| connection.role);
            role != Some(Role::Server)
        });
        for index in turn.drain(..) {
            let Some(connection) = &mut self.links.connections[index] else {
                continue;
            };
            connection.touched = false;
            if connection.closing {
                self.links.try_free(index);
                continue;
            }
            let fd = connection.fd.as_raw_fd();
            if !connection.armed {
                connection.armed = true;
                self.ring.receive(index, fd);
            }
            if !connection.sending && !connection.out.is_empty() {
                connection.sending = true;
                let spare = std::mem::take(&mut connection.spare);
                let bytes = std::mem::replace(&mut connection.out, spare);
                self.ring.send(index, fd, bytes);
            }
        }
        if self.links.touched.is_empty() {
            self.links.touched = turn;
        }
    }

    fn admit(&mut self) {
        for client in self.supply.clients.try_iter() {
            self.links.add(client.into(), Role::Stranger);
        }
    }

    /// Replaces closed servers. Meanwhile the pool serves nobody.
    fn replace(&mut self) {
        for _ in 0..std::mem::take(&mut self.links.missing) {
            match (self.supply.open_server)() {
                Ok(server) => {
                    let index = self.links.add(server.into(), Role::Server);
                    self.links.server_is_free(index);
                }
                Err(error) => eprintln!("howdah-floor: one server less: {error}"),
            }
        }
    }
}

impl Links {
    fn add(&mut self, fd: OwnedFd, role: Role) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.connections[index] = Some(Connection::new(fd, role));
        self.touch(index);
        index
    }

    /// The connection. Every index in use belongs to a connection that is not freed.
    fn at(&mut self, index: usize) -> &mut Connection {
        self.connections[index].as_mut().expect("not freed")
    }

    fn touch(&mut self, index: usize) {
        let connection = self.at(index);
        if !connection.touched {
            connection.touched = true;
            self.touched.push(index);
        }
    }

    fn deliver(&mut self, index: usize, bytes: &[u8], greeting: &[u8]) {
        let connection = self.at(index);
        if connection.closing || bytes.is_empty() {
            return;
        }
        let joined;
        let bytes = if connection.piece.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut connection.piece), bytes.to_vec()].concat();
            &joined
        };
        match connection.role {
            Role::Doorbell => {}
            Role::Stranger => self.stranger_sent(index, bytes, greeting),
            Role::Client => self.client_sent(index, bytes),
            Role::Server => self.server_sent(index, bytes),
        }
    }

    /// Handles startup packets: refuses encryption, and admits every client.
    fn stranger_sent(&mut self, index: usize, bytes: &[u8], greeting: &[u8]) {
        let packet = bytes
            .first_chunk()
            .map(|length| u32::from_be_bytes(*length) as usize);
        let connection = self.at(index);
        match packet {
            Some(length) if !(8..=LONGEST_STARTUP).contains(&length) => self.lose(index),
            Some(length) if bytes.len() >= length => {
                match u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) {
                    // SSLRequest and GSSENCRequest.
                    80_877_103 | 80_877_104 => connection.out.push(b'N'),
                    196_608..=196_610 => {
                        connection.out.extend_from_slice(greeting);
                        connection.role = Role::Client;
                    }
                    // CancelRequest, or an unknown protocol.
                    _ => return self.lose(index),
                }
                self.touch(index);
                self.deliver(index, &bytes[length..], greeting);
            }
            _ => connection.piece = bytes.to_vec(),
        }
    }

    fn client_sent(&mut self, index: usize, bytes: &[u8]) {
        let Connection {
            framing,
            owed,
            unsynced,
            ..
        } = self.at(index);
        let mut leaves = false;
        let done = framing.scan(bytes, |tag, _, _| {
            match tag {
                b'Q' | b'S' | b'F' => {
                    *owed += 1;
                    *unsynced = false;
                }
                b'd' | b'c' | b'f' => {}
                b'X' => leaves = true,
                _ => *unsynced = true,
            }
            !leaves
        });
        let Ok(done) = done else {
            return self.lose(index);
        };
        let connection = self.at(index);
        if !leaves && done < bytes.len() {
            connection.piece = bytes[done..].to_vec();
        }
        let request = &bytes[..done];
        if let Some(server) = connection.peer {
            self.at(server).out.extend_from_slice(request);
            self.touch(server);
        } else if connection.waiting {
            connection.held.extend_from_slice(request);
        } else if !request.is_empty() {
            if let Some(server) = self.idle.pop() {
                self.link(index, server);
                self.at(server).out.extend_from_slice(request);
                self.touch(server);
            } else {
                let connection = self.at(index);
                connection.held.extend_from_slice(request);
                connection.waiting = true;
                self.waiting.push_back(index);
            }
        }
        if leaves {
            self.lose(index);
        }
    }

    fn link(&mut self, client: usize, server: usize) {
        self.at(client).peer = Some(server);
        self.at(server).peer = Some(client);
    }

    fn server_sent(&mut self, index: usize, bytes: &[u8]) {
        let Connection {
            framing, outside, ..
        } = self.at(index);
        let mut ready = 0;
        let done = framing.scan(bytes, |tag, status, _| {
            if tag == b'Z' {
                ready += 1;
                *outside = status == b'I';
            }
            true
        });
        let Ok(done) = done else {
            return self.lose(index);
        };
        let connection = self.at(index);
        if done < bytes.len() {
            connection.piece = bytes[done..].to_vec();
        }
        let reply_ended =
            connection.outside && connection.framing.at_boundary() && done == bytes.len();
        // Without a client only notices can come, and they are dropped.
        let Some(client) = connection.peer else {
            return;
        };
        let reply = &bytes[..done];
        let asker = self.at(client);
        asker.out.extend_from_slice(reply);
        asker.owed = asker.owed.saturating_sub(ready);
        let asker_done = asker.owed == 0
            && !asker.unsynced
            && asker.piece.is_empty()
            && asker.framing.at_boundary();
        self.touch(client);
        if reply_ended && asker_done {
            self.at(client).peer = None;
            self.at(index).peer = None;
            self.server_is_free(index);
        }
    }

    fn server_is_free(&mut self, server: usize) {
        let Some(client) = self.waiting.pop_front() else {
            return self.idle.push(server);
        };
        let connection = self.at(client);
        connection.waiting = false;
        let held = std::mem::take(&mut connection.held);
        self.link(client, server);
        self.at(server).out.extend_from_slice(&held);
        self.touch(server);
        // Reuses the allocation.
        let connection = self.at(client);
        connection.held = held;
        connection.held.clear();
    }

    fn sent(&mut self, index: usize, bytes: Vec<u8>, broken: bool) {
        let connection = self.at(index);
        connection.sending = false;
        connection.spare = bytes;
        if connection.closing {
            self.touch(index);
        } else if broken {
            self.lose(index);
        } else if !connection.out.is_empty() {
            self.touch(index);
        }
    }

    fn receive_ended(&mut self, index: usize, for_good: bool) {
        self.at(index).armed = false;
        if for_good {
            self.lose(index);
        } else {
            // The buffers ran out. At the end of the turn all are free, and the receive restarts.
            self.touch(index);
        }
    }

    /// Closes a connection. A server in the middle of a transaction closes with its client, and a
    /// client with its server.
    fn lose(&mut self, index: usize) {
        self.touch(index);
        let connection = self.at(index);
        if std::mem::replace(&mut connection.closing, true) {
            return;
        }
        let (role, peer) = (connection.role, connection.peer.take());
        if connection.armed {
            // This ends the receive. The descriptor is closed afterwards.
            let _ = shutdown(&connection.fd, Shutdown::Both);
        }
        self.waiting.retain(|client| *client != index);
        if role == Role::Server {
            self.idle.retain(|server| *server != index);
            self.missing += 1;
        }
        if let Some(peer) = peer {
            self.at(peer).peer = None;
            self.lose(peer);
        }
    }

    /// Closes the descriptor once the kernel has no operation of it left.
    fn try_free(&mut self, index: usize) {
        let connection = self.at(index);
        if !connection.armed && !connection.sending {
            self.connections[index] = None;
            self.free.push(index);
        }
    }
}
