//! Applies a new configuration: logins get new terms, or end.

use std::net::IpAddr;
use std::sync::Arc;

use crate::client::Client;
use crate::config::{Config, PoolMode};
use crate::event::{Action, Address, Out};
use crate::fault::Fault;
use crate::login::{LoginId, Terms};
use crate::mail::ToBroker;
use crate::pool::key::{PoolId, Purpose};
use crate::pool::{Supply, Target, TargetName};
use crate::pooler::Pooler;
use crate::renewal::RENEWED;
use crate::server::{Server, ServerState};
use crate::session::Tracking;

/// Why servers are replaced when they would connect to another place or in another way.
const MOVED: &str = "database configuration changed";

impl Pooler {
    /// Applies a new configuration.
    pub(crate) fn new_settings(&mut self, config: Arc<Config>, out: &mut Out) {
        let resecure = self.config.tls.generation != config.tls.generation;
        let before = std::mem::replace(&mut self.config, config);
        self.new_maps(&before, out);
        self.known.clear();
        self.queries.set(&self.config.globals);
        self.peers_changed();
        // Every worker counts every reload, whatever pools it has, so that epochs can be compared.
        self.janitor.epoch += 1;
        for id in self.logins.ids() {
            let login = self.logins.at(id);
            match self.config.database(&login.key.database) {
                Some(database) => self.new_terms(id, database, out),
                // As in PgBouncer, clients that came through a `*` entry that is gone may stay.
                None if login.terms.database.auto => {
                    let database = login.terms.database.clone();
                    self.new_terms(id, database, out);
                }
                None => self.kill_login(id, out),
            }
        }
        self.send_strays_home(out);
        if resecure {
            let over_network =
                |server: &Server| !matches!(server.connection.remote(), Some(Address::Unix(..)));
            self.call_in_those(over_network, MOVED, out);
        }
        if before.globals.client_lifetime != self.config.globals.client_lifetime {
            for id in self.clients.keys() {
                self.begin_lifetime(id);
            }
        }
        self.watch_all();
        self.found_forced_pools();
        self.set_checks();
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

    fn new_terms(&mut self, id: LoginId, database: Arc<crate::config::Database>, out: &mut Out) {
        let schema = self.shared.statements.schema_of(database.schema());
        let home = self.pool_there(id, Purpose::Clients, &TargetName::Entry);
        let home = home.filter(|_| !database.is_placed());
        let login = self.logins.at(id);
        let terms = Terms::of(&self.config, &login.key, database);
        let others = login.is_forsaken() || !login.terms.database.same_pools(&terms.database);
        let forsaken = others && self.has_strays(id, &terms.database);
        let login = self.logins.at_mut(id);
        let moved = !login
            .terms
            .database
            .same_servers(&terms.database, &login.key.user);
        let session = |terms: &Terms| terms.mode == PoolMode::Session;
        let sessions_end = session(&login.terms) && !session(&terms);
        let follows = |terms: &Terms| terms.tracking != Tracking::Nothing;
        let unfollowed = !follows(&login.terms) && follows(&terms);
        if forsaken {
            login.mark_forsaken()
        } else {
            login.mark_kept(home)
        }
        let renewed = login.terms.listed != terms.listed;
        if renewed {
            // The user list has a new secret, which counts more than one learned from a login.
            login.secrets.forget_found();
        }
        let unfollows_reads = login.terms.reads.is_some() && terms.reads.is_none();
        login.set_terms(terms, schema);
        if moved {
            login.forgets_welcome();
            login.reads.forget();
        }
        if unfollows_reads {
            let of_login = self
                .clients
                .iter_mut()
                .filter(|(_, of)| of.login == Some(id));
            of_login.for_each(|(_, client)| client.forgets_reads());
        }
        for pool in self.logins.at(id).pools().to_vec() {
            self.new_supply(pool, out);
            if moved {
                self.pools.at_mut(pool).mark_unproved();
                self.call_in(pool, MOVED, out);
            } else if renewed {
                self.call_in_shared(pool, RENEWED, out);
            } else if sessions_end {
                // Sessions may leave locks and other state, and nothing is reset between
                // transactions.
                self.call_in_shared(pool, "pool mode changed", out);
            } else if unfollowed {
                // The state that clients have left on these servers is unknown.
                self.call_in_shared(pool, "session_state changed", out);
            }
            if !forsaken {
                self.need(pool, out);
            }
        }
        // Whoever waits in a forsaken login goes on when all logins have their new terms.
        if !forsaken {
            self.place_login(id, out);
        }
    }

    /// Gives a pool the target and the settings of its login's new terms.
    fn new_supply(&mut self, id: PoolId, out: &mut Out) {
        let pool = self.pools.at_mut(id);
        let login = self.logins.at(pool.login);
        let database = &login.terms.database;
        let scopes = self.config.scopes(Some(database), Some(&login.key.user));
        let target = self
            .shared
            .targets
            .intern(Target::of(database, pool.key.target.clone()));
        let supply = Supply::of(&self.config, scopes, pool.key.purpose, &target);
        if pool.supply.bounds != supply.bounds {
            let bounds = ToBroker::Bounds {
                worker: self.worker,
                pool: pool.key.clone(),
                bounds: supply.bounds.clone(),
            };
            out.push(Action::Broker(bounds));
        }
        pool.set_supply(target, supply);
    }

    /// A host name has new addresses: replaces servers at its old ones.
    pub(crate) fn host_moved(&mut self, host: &str, gone: &[IpAddr], out: &mut Out) {
        // Servers in the mail are replaced when they arrive. Every worker counts every change.
        self.janitor.epoch += 1;
        let there = |server: &Server| {
            server.connection.target.named(host).is_some()
                && match server.connection.remote() {
                    Some(Address::Tcp(ip, _)) => gone.contains(ip),
                    Some(Address::Unix(..)) => false,
                    // The address is not known here yet.
                    None => matches!(server.state(), ServerState::Connecting),
                }
        };
        self.call_in_those(there, MOVED, out);
    }

    /// KILL, or the database was removed: drops a login's clients and servers.
    pub(crate) fn kill_login(&mut self, id: LoginId, out: &mut Out) {
        let of_login = |client: &Client| client.login == Some(id);
        let clients: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, c)| of_login(c))
            .map(|(id, _)| id)
            .collect();
        for client in clients {
            self.disconnect(client, Fault::DatabaseRemoved, out);
        }
        self.call_in_those(|server| server.login == id, "database removed", out);
    }
}
