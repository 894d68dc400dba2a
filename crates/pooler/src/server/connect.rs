//! From a permit to a connected server, and the end of a server.

use std::net::IpAddr;

use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::{Ending, Reservation, Server, ServerConnection};
use crate::client;
use crate::client::ClientState;
use crate::config::{Host, nanos};
use crate::event::{
    Action, Address, ClientId, Close, Ends, Out, Peer, Question, ServerId, Unreached,
};
use crate::fault::Fault;
use crate::mail::ToBroker;
use crate::next::Next;
use crate::note::Level;
use crate::pool::Failure;
use crate::pool::key::PoolId;
use crate::pool::target::HostPort;
use crate::pooler::{Asker, Pooler};
use crate::server::ServerState;

impl Pooler {
    /// Opens a server. The Broker has granted a permit.
    pub(crate) fn open_server(&mut self, pool_id: PoolId, out: &mut Out) {
        let (number, now, seeded) = (self.number(), self.now, self.seeded);
        let reserved = self.reserved_for(pool_id);
        let pool = self.pools.at_mut(pool_id);
        pool.server_opens();
        let (login, connection) = (pool.login, ServerConnection::new(pool.target.clone()));
        let host = pool.takes_host();
        let id = self.servers.insert(|_| Server {
            number,
            permitted: true,
            reserved: reserved.map(Reservation::of),
            ..Server::blank((login, pool_id), connection, seeded, now)
        });
        self.watch_server(id);
        let Some(HostPort { host, port }) = host else {
            self.never_connected(id, "connect failed", "no host, no unix_socket_dir", out);
            return self.nobody_is_there(pool_id);
        };
        match host {
            Host::Unix(directory) => {
                let path = format!("{directory}/.s.PGSQL.{port}");
                self.connect(id, Address::Unix(path, port), out);
            }
            Host::Ip(ip) => self.connect(id, Address::Tcp(ip, port), out),
            Host::Name(host) => {
                self.servers.at_mut(id).connection.look_for(&host, port);
                let question = |ticket| Question::Resolve { ticket, host };
                self.ask(Asker::Server(id), question, out);
            }
        }
    }

    /// Reserves a new server for the oldest waiting client, if that client wants replication.
    fn reserved_for(&mut self, pool_id: PoolId) -> Option<ClientId> {
        self.trim_waiting(pool_id);
        let (client, _) = self.pools.at(pool_id).waiting.first()?;
        if !self.clients.get(client)?.waits_for_its_own() {
            return None;
        }
        self.pools.at_mut(pool_id).waiting.leave(client);
        Some(client)
    }

    fn connect(&mut self, id: ServerId, to: Address, out: &mut Out) {
        let server = self.servers.at_mut(id);
        server.connects_to(&to);
        out.push(Action::Connect(id, to));
    }

    /// The control thread has looked up a host's addresses.
    pub(crate) fn resolved(
        &mut self,
        id: ServerId,
        result: Result<Vec<IpAddr>, String>,
        out: &mut Out,
    ) {
        let server = gone!(self.servers.get(id));
        if !matches!(server.state(), ServerState::Resolving) {
            return;
        }
        let pool = self.pools.at(server.pool);
        let host = server.connection.host.as_deref();
        let port = host.and_then(|host| server.connection.target.named(host));
        let port = port.map_or(0, |to| to.port);
        match result {
            Ok(addresses) if !addresses.is_empty() => {
                let ip = pool.takes_address(&addresses);
                self.connect(id, Address::Tcp(ip, port), out);
            }
            // A name server that is away for a moment is no reason to turn the first clients away.
            Ok(_) => self.never_connected(id, "server DNS lookup failed", "no address", out),
            Err(error) => self.never_connected(id, "server DNS lookup failed", &error, out),
        }
    }

    /// `Connect` has ended.
    pub(crate) fn connected(
        &mut self,
        id: ServerId,
        result: Result<Ends, Unreached>,
        out: &mut Out,
    ) {
        let server = gone!(self.servers.get_mut(id));
        if let ServerState::Cancel(_) = *server.state() {
            return self.carrier_connected(id, result, out);
        }
        if !matches!(server.state(), ServerState::Connecting) {
            return;
        }
        match result {
            Ok(ends) => {
                server.set_connected(ends, self.now);
                self.secure(id, out);
            }
            Err(error) => {
                let (text, pool) = (format!("connect failed: {}", error.text), server.pool);
                self.note_server(Level::Warning, id, &text, out);
                self.login_failed(id, "08006", &text, out);
                if error.nobody {
                    self.nobody_is_there(pool);
                }
                self.close_server(id, "connect failed", Close::Abort, out);
            }
        }
    }

    /// Ends a server that never had a socket.
    fn never_connected(&mut self, id: ServerId, why: &'static str, detail: &str, out: &mut Out) {
        let text = format!("{why}: {detail}");
        self.note_server(Level::Warning, id, &text, out);
        self.login_failed(id, "08006", &text, out);
        self.note_closing(id, why, out);
        self.server_gone(id, out);
    }

    /// Notes that new servers fail for now, and tells clients that wait for the first server.
    pub(crate) fn login_failed(&mut self, id: ServerId, sqlstate: &str, text: &str, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        let (login_id, pool_id, reserved) = (server.login, server.pool, server.reserved_for());
        let took = self.now.0.saturating_sub(server.times.connected.0);
        if let Some(client) = reserved {
            let fault = Fault::ServerLogin(sqlstate.to_string(), text.to_string());
            return self.disconnect(client, fault, out);
        }
        let pool = self.pools.at_mut(pool_id);
        let login = self.logins.at_mut(login_id);
        login.count_connect_failure();
        pool.host_fails();
        if sqlstate == "08006" && (pool.hosts_failed() as usize) < pool.target.hosts.len() {
            return;
        }
        let retry = nanos(self.config.globals.server_login_retry);
        let last = pool.failure.as_ref();
        let failure = Failure::new((self.now, took), (sqlstate, text), last, retry);
        let (absent, full) = (failure.is_absent(), failure.is_full());
        self.janitor.retry_at(failure.until);
        pool.logins_fail(failure);
        if pool.key.listens() {
            let key = login.key.clone();
            return self.lose_listener(&key, out);
        }
        // A working server, or another try, may still serve the waiting clients.
        if absent || self.has_usable_server(pool_id) {
            return;
        }
        let fault = Fault::ServerLogin(sqlstate.to_string(), text.to_string());
        if !full {
            self.drop_waiters(pool_id, &fault, out);
        } else if self.workers == 1 && !self.pools.at(pool_id).awaits_room() {
            // With several workers, Howdah first asks the Broker whether others have servers.
            self.drop_newcomers(pool_id, &fault, out);
        }
    }

    /// The stream of a server has ended or broken.
    pub(crate) fn server_lost(&mut self, id: ServerId, why: Option<String>, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        let works = matches!(
            server.state(),
            ServerState::Linked(_) | ServerState::Aligning(_)
        );
        if let Some(why) = why.as_ref().filter(|_| works) {
            self.note_server(Level::Log, id, why, out);
        }
        let server = gone!(self.servers.get(id));
        match server.state() {
            ServerState::Closing => {}
            ServerState::Cancel(_) => self.carrier_lost(id, why, out),
            ServerState::Securing(_) | ServerState::Login(_) | ServerState::ConnectQuery => {
                let text = why.unwrap_or_else(|| "server closed the connection".to_string());
                self.login_failed(id, "08006", &format!("server conn crashed? {text}"), out);
                self.close_server(id, "server conn crashed?", Close::Abort, out);
            }
            ServerState::Linked(_) | ServerState::Aligning(_) => {
                match server.ending() {
                    // The client has got the server's FATAL.
                    Some(Ending::Crashed) => self.drop_linked_untold(id, Fault::ServerGone, out),
                    _ => self.drop_linked(id, Fault::ServerGone, out),
                }
                self.close_server(id, "server conn crashed?", Close::Abort, out);
            }
            _ => self.close_server(id, "server conn crashed?", Close::Abort, out),
        }
    }

    /// A server has sent an invalid message, or an answer without a request.
    pub(crate) fn server_broken(&mut self, id: ServerId, fault: Fault, out: &mut Out) {
        self.note_server(Level::Error, id, &fault.to_string(), out);
        self.drop_linked(id, fault, out);
        self.close_server(id, "unknown pkt", Close::Await, out);
    }

    /// Closes a server without a client.
    pub(crate) fn close_server(&mut self, id: ServerId, why: &str, how: Close, out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        if matches!(server.state(), ServerState::Closing) {
            return;
        }
        debug_assert!(!server.is_linked(), "a linked server is not closed");
        if let ServerState::Lookup(lookup) = server.state() {
            self.next.note(Next::TellLost(lookup.client));
        }
        let pool = self.pools.at_mut(server.pool);
        match *server.state() {
            ServerState::Idle => pool.idle.remove(id),
            ServerState::Resolving => {
                pool.server_is_through();
                server.closes();
                self.note_closing(id, why, out);
                return self.next.note(Next::Forget(id));
            }
            ServerState::Connecting
            | ServerState::Securing(_)
            | ServerState::Login(_)
            | ServerState::ConnectQuery => {
                pool.server_is_through();
            }
            ServerState::Checking => pool.test_ends(),
            ServerState::Listening { .. } => {
                self.listener_closes(id, out);
            }
            _ => {}
        }
        self.note_closing(id, why, out);
        let server = self.servers.at_mut(id);
        // After an SSLRequest, PostgreSQL would log a Terminate in clear text as an attack.
        let answers = !matches!(
            server.state(),
            ServerState::Connecting | ServerState::Securing(_)
        );
        if matches!(how, Close::Await) && answers && !server.cut_off() {
            out.send_with(Peer::Server(id), |buf| {
                write::empty(buf, frontend::TERMINATE)
            });
        }
        server.closes();
        out.push(Action::Close {
            peer: Peer::Server(id),
            how,
        });
    }

    fn note_closing(&mut self, id: ServerId, why: &str, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        if self.config.globals.log_disconnections {
            let age = self.now.0.saturating_sub(server.times.connected.0) / 1_000_000_000;
            self.note_server(
                Level::Log,
                id,
                &format!("closing because: {why} (age={age}s)"),
                out,
            );
        }
    }

    /// PostgreSQL did not end the session in time. The session may still exist.
    pub(crate) fn server_given_up(&mut self, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        if matches!(server.state(), ServerState::Closing) {
            let text = "PostgreSQL did not end the session in time; its slot is counted as free";
            self.note_server(Level::Warning, id, text, out);
        }
        self.server_gone(id, out);
    }

    /// PostgreSQL has closed a server's connection (or the time to wait for this is over).
    pub(crate) fn server_gone(&mut self, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        match *server.state() {
            ServerState::Cancel(_) => return self.carrier_closed(id, out),
            ServerState::Closing => {}
            ServerState::Resolving => self.pools.at_mut(server.pool).server_is_through(),
            // The driver ended the connection without a request from Howdah.
            _ => {
                self.server_lost(id, None, out);
                self.close_server(id, "server conn crashed?", Close::Abort, out);
            }
        }
        let Some(server) = self.servers.remove(id) else {
            return;
        };
        self.keep_no_blocks();
        let pool = self.pools.at_mut(server.pool);
        pool.server_leaves();
        if server.permitted {
            let freed = ToBroker::Freed {
                worker: self.worker,
                pool: pool.key.clone(),
            };
            out.push(Action::Broker(freed));
        }
        if let Some((worker, pool)) = server.makes_room_for {
            self.tell_room(worker, pool, true, out);
        }
        self.need(server.pool, out);
        self.unpacked(Peer::Server(id), out);
    }

    /// A server has logged in. Its pool can use it.
    pub(crate) fn server_ready(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let (pool_id, reserved) = (server.pool, server.reserved_for());
        server.comes_free(self.now);
        let took = self.now.0.saturating_sub(server.times.connected.0);
        let pool = self.pools.at_mut(pool_id);
        self.logins.at_mut(server.login).count_connect(took);
        pool.server_is_through();
        pool.login_succeeds();
        match reserved {
            // The greeting has this client's settings. Newcomers wait for a server of the pool.
            Some(client) => self.serve_replication(client, id, out),
            None => {
                for client in pool.take_newcomers() {
                    self.welcome(client, out);
                }
                self.checkin(id, out);
            }
        }
        self.need(pool_id, out);
    }

    /// Serves the client that a server is reserved for.
    fn serve_replication(&mut self, client: ClientId, id: ServerId, out: &mut Out) {
        let waits = |c: &client::Client| matches!(c.state(), ClientState::Waiting(_));
        if !self.clients.get(client).is_some_and(waits) {
            return self.close_server(id, "replication client was closed", Close::Await, out);
        }
        self.welcome_replication(client, id, out);
        if self.link(client, id, out) {
            self.resume(client, out);
        }
    }
}
