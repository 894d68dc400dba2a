//! From a permit to a server that its pool can use.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Reservation, Server, ServerConnection};
use crate::client;
use crate::client::ClientState;
use crate::config::Host;
use crate::event::{Action, Address, ClientId, Close, Ends, Out, Question, ServerId, Unreached};
use crate::mail::ToBroker;
use crate::note::Level;
use crate::pool::failure::SecretWait;
use crate::pool::key::Purpose;
use crate::pool::key::{PoolId, PoolKey};
use crate::pool::target::HostPort;
use crate::pooler::{Asker, Pooler};
use crate::server::ServerState;
use crate::server::secret::LackedSecret;

impl Pooler {
    /// Opens a server. The Broker has granted a permit, and perhaps counts the login at a host; the
    /// connection of a check needs none.
    pub(crate) fn open_server(
        &mut self,
        pool_id: PoolId,
        login_at: Option<Arc<HostPort>>,
        out: &mut Out,
    ) {
        let (number, now, seeded) = (self.number(), self.now, self.seeded);
        let reserved = self.reserved_for(pool_id);
        let pool = self.pools.at_mut(pool_id);
        pool.server_opens();
        let (login, target) = (pool.login, pool.target.clone());
        let connection = ServerConnection::permitted(target, login_at);
        let permitted = pool.key.purpose != Purpose::Checks;
        let host = pool.takes_host(&mut self.random);
        let id = self.servers.insert(|_| Server {
            number,
            permitted,
            reserved: reserved.map(Reservation::of),
            ..Server::blank((login, pool_id), connection, seeded, now)
        });
        self.watch_server(id);
        if let Some(lacked) = self.lacks_secret(pool_id) {
            return self.no_secret(id, lacked, out);
        }
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
            Host::Address { name, ip } => {
                self.servers.at_mut(id).connection.look_for(&name, port);
                self.connect(id, Address::Tcp(ip, port), out);
            }
            Host::Name(host) => {
                self.servers.at_mut(id).connection.look_for(&host, port);
                let question = |ticket| Question::Resolve { ticket, host };
                self.ask(Asker::Server(id), question, out);
            }
        }
    }

    /// Ends a server whose password is not there. While its source is asked for the first time, that is
    /// no news.
    fn no_secret(&mut self, id: ServerId, lacked: LackedSecret, out: &mut Out) {
        const WHY: &str = "no password for the server";
        let pool = self.servers.at(id).pool;
        let text = format!("{WHY}: {}", lacked.why);
        if let SecretWait::Awaits(_) = lacked.wait {
            self.login_failed(id, self.lack_sqlstate(id), &text, out);
            self.server_gone(id, out);
        } else {
            self.note_server(Level::Warning, id, &text, out);
            self.login_failed(id, self.lack_sqlstate(id), &text, out);
            self.note_closing(id, WHY, out);
            self.server_gone(id, out);
            self.nobody_is_there(pool);
        }
        self.awaits_secret(pool, lacked.wait, None);
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
        let port = server.connection.port;
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
                if !error.ours {
                    self.host_is_down(id, &text, out);
                }
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

    /// A server has logged in.
    pub(crate) fn server_is_born(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let login_at = server.connection.login_ends();
        login_is_over(&self.pools.at(server.pool).key, login_at, out);
        if !self.begins_to_mature(id, out) {
            self.server_ready(id, out);
        }
    }

    /// A server can serve reads, or need not.
    pub(crate) fn server_has_matured(&mut self, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        if server.is_maturing() {
            self.server_ready(id, out);
        }
    }

    /// A server has logged in. Its pool can use it.
    pub(crate) fn server_ready(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let (pool_id, login, reserved) = (server.pool, server.login, server.reserved_for());
        server.comes_free(self.now);
        let took = self.now.0.saturating_sub(server.times.connected.0);
        let pool = self.pools.at_mut(pool_id);
        pool.server_is_through();
        if pool.key.purpose == Purpose::Checks {
            return self.ask_host(id, out);
        }
        let for_clients = pool.key.purpose == Purpose::Clients;
        self.logins.at_mut(login).count_connect(took);
        pool.login_succeeds();
        match reserved {
            // The greeting has this client's settings. Newcomers wait for a server of the pool.
            Some(client) => self.serve_replication(client, id, out),
            None => {
                if for_clients {
                    self.greet_newcomers(login, out);
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

    /// The Broker permits this worker to open a server: from the reserve or not, and for
    /// `min_pool_size` or not. It may count the login at a host.
    pub(crate) fn permitted(
        &mut self,
        key: &Arc<PoolKey>,
        (reserve, warm): (bool, bool),
        login_at: Option<Arc<HostPort>>,
        out: &mut Out,
    ) {
        let found = self.pools.find(key);
        if let Some(pool_id) = found {
            self.trim_waiting(pool_id);
        }
        let wanted = found.filter(|id| {
            let pool = self.pools.at(*id);
            (warm || pool.is_waited_for()) && pool.gives() && !self.backs_off(*id)
        });
        if let Some(pool_id) = found
            && !warm
        {
            self.sated(pool_id, out);
        }
        let Some(pool_id) = wanted else {
            login_is_over(key, login_at, out);
            let (worker, pool) = (self.worker, key.clone());
            let freed = ToBroker::Freed { worker, pool };
            out.push(Action::Broker(freed));
            return;
        };
        if reserve {
            let text = format!(
                "pool {}/{}: taking connection from reserve_pool",
                key.login.database, key.login.user
            );
            out.note(crate::note::Note::new(Level::Log, text));
        }
        self.open_server(pool_id, login_at, out);
    }
}

/// The login of a server is over, or did not begin: where `max_host_logins` counts it, another may
/// begin.
pub(crate) fn login_is_over(pool: &Arc<PoolKey>, login_at: Option<Arc<HostPort>>, out: &mut Out) {
    if let Some(host) = login_at {
        let pool = pool.clone();
        out.push(Action::Broker(ToBroker::LoggedIn { pool, host }));
    }
}
