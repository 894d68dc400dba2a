//! A new configuration is put in force: pools get new terms, or end.

use std::net::IpAddr;
use std::sync::Arc;

use crate::client::Client;
use crate::config::{Config, Host, PoolMode};
use crate::event::{Action, Address, Close, Out};
use crate::fault::Fault;
use crate::mail::ToBroker;
use crate::pool::Terms;
use crate::pool::key::{PoolId, PoolKey};
use crate::pool::route::is_forsaken;
use crate::pooler::Pooler;
use crate::server::{Ending, Server, ServerState};
use crate::session::Tracking;

impl Pooler {
    /// The configuration was read anew.
    pub(crate) fn new_settings(&mut self, config: Arc<Config>, out: &mut Out) {
        let resecure = self.config.tls.generation != config.tls.generation;
        self.config = config;
        self.known.clear();
        self.queries.set(&self.config.globals);
        self.peers_changed();
        // Every worker counts alike, whatever pools it has, or their counts could not be compared.
        self.janitor.epoch += 1;
        for id in self.pools.ids() {
            let pool = self.pools.at(id);
            let key = (*pool.key).clone();
            match self.config.database(&key.database) {
                Some(database) => self.new_terms(id, &key, database, out),
                // As in PgBouncer, who came by the `*` that is gone may stay.
                None if pool.terms.database.auto => {
                    let database = pool.terms.database.clone();
                    self.new_terms(id, &key, database, out);
                }
                None => self.kill_pool(id, out),
            }
        }
        if resecure {
            let over_network = |server: &Server| {
                let remote = server.ends.as_ref().map(|ends| &ends.remote);
                !matches!(remote, Some(Address::Unix(..)))
            };
            self.call_in_those(over_network, "database configuration changed", out);
        }
        self.watch_all();
        self.found_forced_pools();
        self.janitor.hurry(self.now);
    }

    /// Deadlines may have come nearer: connections have to come up for the new ones.
    fn watch_all(&mut self) {
        let clients: Vec<_> = self.clients.iter().map(|(id, _)| id).collect();
        for id in clients {
            self.watch_client(id);
            let linked = self.clients.get(id).filter(|c| c.link().is_some());
            let pool = linked.and_then(|client| client.pool);
            if pool.is_some_and(|pool| self.pools.at(pool).terms.watched) {
                self.watch_link(id);
            }
        }
        let servers: Vec<_> = self.servers.iter().map(|(id, _)| id).collect();
        for id in servers {
            self.watch_server(id);
        }
    }

    fn new_terms(
        &mut self,
        id: PoolId,
        key: &PoolKey,
        database: Arc<crate::config::Database>,
        out: &mut Out,
    ) {
        let schema = self.shared.statements.schema_of(database.target());
        let terms = Terms::of(&self.config, key, database);
        let pool = self.pools.at_mut(id);
        let moved = !pool.terms.database.same_servers(&terms.database);
        let session = |terms: &Terms| terms.mode == PoolMode::Session;
        let sessions_end = session(&pool.terms) && !session(&terms);
        let follows = |terms: &Terms| terms.tracking != Tracking::Nothing;
        let unfollowed = !follows(&pool.terms) && follows(&terms);
        let old = &pool.terms.database;
        let forsaken = is_forsaken(key, pool.forsaken(), old, &terms.database);
        pool.set_forsaken(forsaken);
        let secret = |terms: &Terms| terms.user.as_ref().and_then(|user| user.secret.clone());
        if secret(&pool.terms) != secret(&terms) {
            // The user list has news: what a login told before is not better than that.
            pool.forgets_secret();
        }
        if pool.terms.bounds != terms.bounds {
            let bounds = ToBroker::Bounds {
                worker: self.worker,
                pool: pool.key.clone(),
                bounds: terms.bounds,
            };
            out.push(Action::Broker(bounds));
        }
        pool.set_terms(terms, schema);
        if moved {
            pool.forgets_welcome();
            self.call_in(id, "database configuration changed", out);
        } else if sessions_end {
            // Sessions leave locks and the like, and between transactions nothing is reset.
            self.call_in_shared(id, "pool mode changed", out);
        } else if unfollowed {
            // What clients have left there nobody knows.
            self.call_in_shared(id, "session_state changed", out);
        }
        if forsaken {
            self.move_waiting(id, out);
        }
        self.need(id, out);
    }

    /// Closes a pool's servers: idle ones now, others when they are given back.
    pub(crate) fn call_in(&mut self, id: PoolId, why: &'static str, out: &mut Out) {
        self.call_in_those(|server| server.pool == id, why, out);
    }

    /// Likewise, but for those that replication clients have for themselves: they stay.
    fn call_in_shared(&mut self, id: PoolId, why: &'static str, out: &mut Out) {
        let shared = |server: &Server| server.pool == id && !server.replication;
        self.call_in_those(shared, why, out);
    }

    /// A host name leads elsewhere now: servers at its old addresses are called in.
    pub(crate) fn host_moved(&mut self, host: &str, gone: &[IpAddr], out: &mut Out) {
        let named = |known: &Host| matches!(known, Host::Name(name) if name == host);
        let mut pools = self.pools_of(None);
        pools.retain(|id| {
            let database = &self.pools.at(*id).terms.database;
            database.hosts.iter().any(named)
        });
        // Servers in the mail are called in on their arrival; every worker counts alike.
        self.janitor.epoch += 1;
        let there = |server: &Server| {
            pools.contains(&server.pool)
                && match server.ends.as_ref().map(|ends| &ends.remote) {
                    Some(Address::Tcp(ip, _)) => gone.contains(ip),
                    Some(Address::Unix(..)) => false,
                    // Where to is not known here any more.
                    None => matches!(server.state(), ServerState::Connecting),
                }
        };
        self.call_in_those(there, "database configuration changed", out);
    }

    fn call_in_those(&mut self, which: impl Fn(&Server) -> bool, why: &'static str, out: &mut Out) {
        let all: Vec<_> = self
            .servers
            .iter()
            .filter(|(_, server)| which(server))
            .map(|(id, _)| id)
            .collect();
        for server_id in all {
            // One that was not connected yet may have gone with one before it.
            let Some(server) = self.servers.get_mut(server_id) else {
                continue;
            };
            match *server.state() {
                ServerState::Idle => {
                    self.close_server(server_id, why, Close::Await, out);
                }
                ServerState::Listening { .. } => self.replace_listener(server_id, why, out),
                // A successor looks for itself.
                ServerState::Cancel(_) | ServerState::Closing | ServerState::Packed => {}
                // Its client may stream for ever: as with PgBouncer, both end at once.
                _ if server.replication && server.client().is_some() => {
                    self.drop_linked(server_id, Fault::DatabaseChanged, out);
                    self.close_server(server_id, why, Close::Await, out);
                }
                _ => {
                    server.must_close_too(Ending::Ordered(why));
                    let linked = server.client();
                    if linked.is_some() {
                        self.settle(server_id, out);
                    }
                }
            }
        }
    }

    /// The database is gone: so are its clients and servers.
    pub(crate) fn kill_pool(&mut self, id: PoolId, out: &mut Out) {
        let of_pool = |client: &Client| client.pool == Some(id);
        let clients: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, c)| of_pool(c))
            .map(|(id, _)| id)
            .collect();
        for client in clients {
            self.disconnect(client, Fault::DatabaseRemoved, out);
        }
        self.call_in(id, "database removed", out);
    }
}
