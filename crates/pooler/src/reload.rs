//! Applies a new configuration: pools get new terms, or end.

use std::net::IpAddr;
use std::sync::Arc;

use crate::client::Client;
use crate::config::{Config, Host, PoolMode};
use crate::event::{Action, Address, Out, WorkerId};
use crate::fault::Fault;
use crate::mail::{ChangedSecret, Mail, ToBroker};
use crate::pool::Terms;
use crate::pool::key::{PoolId, PoolKey};
use crate::pool::route::is_forsaken;
use crate::pooler::Pooler;
use crate::server::{Server, ServerState};
use crate::session::Tracking;

/// Why servers are replaced when their user has another secret.
const RENEWED: &str = "user has another secret";

impl Pooler {
    /// Applies a new configuration.
    pub(crate) fn new_settings(&mut self, config: Arc<Config>, out: &mut Out) {
        let resecure = self.config.tls.generation != config.tls.generation;
        self.config = config;
        self.known.clear();
        self.queries.set(&self.config.globals);
        self.peers_changed();
        // Every worker counts every reload, whatever pools it has, so that epochs can be compared.
        self.janitor.epoch += 1;
        for id in self.pools.ids() {
            let pool = self.pools.at(id);
            let key = (*pool.key).clone();
            match self.config.database(&key.login.database) {
                Some(database) => self.new_terms(id, &key, database, out),
                // As in PgBouncer, clients that came through a `*` entry that is gone may stay.
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

    /// Sets timers anew: deadlines may have moved nearer.
    fn watch_all(&mut self) {
        let clients: Vec<_> = self.clients.iter().map(|(id, _)| id).collect();
        for id in clients {
            self.watch_client(id);
            self.watch_link_again(id);
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
        let renewed = secret(&pool.terms) != secret(&terms);
        if renewed {
            // The user list has a new secret, which counts more than one learned from a login.
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
        } else if renewed {
            self.call_in_shared(id, RENEWED, out);
        } else if sessions_end {
            // Sessions may leave locks and other state, and nothing is reset between transactions.
            self.call_in_shared(id, "pool mode changed", out);
        } else if unfollowed {
            // The state that clients have left on these servers is unknown.
            self.call_in_shared(id, "session_state changed", out);
        }
        if forsaken {
            self.move_waiting(id, out);
        }
        self.need(id, out);
    }

    /// A login was told another secret of a pool's user. The user may be another role under the same
    /// name: replaces the pool's servers on all workers. The servers' logins use the new secret.
    pub(crate) fn secret_changed(&mut self, changed: &ChangedSecret, out: &mut Out) {
        for to in (0..self.workers).map(WorkerId) {
            if to != self.worker {
                let mail = Mail::SecretChanged(Box::new(changed.clone()));
                out.push(Action::Post(to, mail));
            }
        }
        self.secret_changed_elsewhere(changed.clone(), out);
    }

    /// The same, when another worker has noticed the change.
    pub(crate) fn secret_changed_elsewhere(&mut self, changed: ChangedSecret, out: &mut Out) {
        // Servers in the mail are replaced when they arrive. Every worker counts every change.
        self.janitor.epoch += 1;
        let ChangedSecret {
            login,
            secret,
            keys,
        } = changed;
        let Some(id) = self.pools.for_clients(&login) else {
            return;
        };
        let pool = self.pools.at_mut(id);
        // A login here may have told this worker already.
        let new = !pool.knows_secret(&secret);
        pool.learn_login(keys, Some(secret), false);
        if new {
            self.call_in_shared(id, RENEWED, out);
        }
    }

    /// Closes a pool's servers: idle ones now, others when they are released.
    pub(crate) fn call_in(&mut self, id: PoolId, why: &'static str, out: &mut Out) {
        self.call_in_those(|server| server.pool == id, why, out);
    }

    /// As `call_in`, except for servers of replication clients.
    fn call_in_shared(&mut self, id: PoolId, why: &'static str, out: &mut Out) {
        let shared = |server: &Server| server.pool == id && !server.replication;
        self.call_in_those(shared, why, out);
    }

    /// A host name has new addresses: replaces servers at its old ones.
    pub(crate) fn host_moved(&mut self, host: &str, gone: &[IpAddr], out: &mut Out) {
        let named = |known: &Host| matches!(known, Host::Name(name) if name == host);
        let mut pools = self.pools_of(None);
        pools.retain(|id| {
            let database = &self.pools.at(*id).terms.database;
            database.hosts.iter().any(named)
        });
        // Servers in the mail are replaced when they arrive. Every worker counts every change.
        self.janitor.epoch += 1;
        let there = |server: &Server| {
            pools.contains(&server.pool)
                && match server.ends.as_ref().map(|ends| &ends.remote) {
                    Some(Address::Tcp(ip, _)) => gone.contains(ip),
                    Some(Address::Unix(..)) => false,
                    // The address is not known here yet.
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
            self.replace(server_id, why, out);
        }
    }

    /// KILL, or the database was removed: drops its clients and servers.
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
