//! Adopts parcels: of a predecessor, or of this process after a failed takeover.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cancel::OldKey;
use crate::console::ConsoleSession;
use crate::event::{Action, Address, ClientId, Out, Peer};
use crate::fault::Fault;
use crate::link;
use crate::login::Terms;
use crate::mail::ToBroker;
use crate::parcel::{Estate, Parcel, Passenger, PoolLore, Standing};
use crate::pool::Purpose;
use crate::pool::{PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::server::ServerParcel;
use crate::session::Tracking;

impl Pooler {
    /// Takes over the state of the predecessor.
    pub(crate) fn inherit(&mut self, estate: &Estate) {
        self.keys.inherit(estate.lasting);
        for (database, changes) in &estate.schemas {
            let statements = &mut self.shared.statements;
            statements.schema_changed_elsewhere(database, *changes);
        }
        self.numbers
            .fetch_max(estate.last_number, Ordering::Relaxed);
        let disabled = estate.disabled.iter().cloned();
        self.janitor.disabled.extend(disabled);
    }

    /// Adopts a connection of the predecessor, or one that comes back after a failed takeover.
    pub(crate) fn adopt(&mut self, parcel: Parcel, out: &mut Out) {
        match parcel {
            Parcel::Pool(lore) => self.adopt_pool(*lore, out),
            Parcel::Server { parcel, database } => {
                let fits = self.leads_there(&parcel.pool, database) && !self.is_too_open(&parcel);
                if !fits || self.is_unfollowed(&parcel) {
                    return out.push(Action::Discard(parcel.socket));
                }
                let database = self.config.database(&parcel.pool.login.database);
                let pool = self.pool_for(&parcel.pool, &gone!(database));
                self.server_enters(pool, out);
                self.server_arrived(*parcel, out);
            }
            Parcel::Client(passenger) => {
                // This worker may have reported that it waits for no client.
                self.tell_busy(out);
                self.adopt_client(*passenger, true, out);
            }
        }
    }

    /// The Broker counts a server of the predecessor.
    fn server_enters(&self, pool: PoolId, out: &mut Out) {
        let pool = self.pools.at(pool);
        let entered = ToBroker::ServerEntered {
            worker: self.worker,
            pool: pool.key.clone(),
            bounds: pool.supply.bounds.clone(),
        };
        out.push(Action::Broker(entered));
    }

    /// True if our settings connect the pool's servers to the same place.
    fn leads_there(&self, key: &PoolKey, fingerprint: [u8; 32]) -> bool {
        let Some(database) = self.config.database(&key.login.database) else {
            return false;
        };
        let login = self.logins.find(&key.login).map(|id| self.logins.at(id));
        let terms = login.map(|login| &login.terms);
        let known = terms.filter(|terms| Arc::ptr_eq(&terms.database, &database));
        let own = known.map_or_else(
            || database.fingerprint(&key.login.user),
            |terms| terms.fingerprint,
        );
        own == fingerprint
    }

    /// True if the connection is in clear text, and our settings demand TLS.
    fn is_too_open(&self, parcel: &ServerParcel) -> bool {
        let over_network = matches!(parcel.ends.remote, Address::Tcp(..));
        let entry = self.config.entry(&parcel.pool.login.database);
        let mode = entry.and_then(|entry| entry.sslmode);
        let mode = mode.unwrap_or(self.config.tls.servers);
        parcel.tls.is_none() && over_network && mode.is_required()
    }

    /// True if the predecessor did not track this server's session state, and we do.
    fn is_unfollowed(&self, parcel: &ServerParcel) -> bool {
        let follows = |database| {
            Terms::of(&self.config, &parcel.pool.login, database).tracking != Tracking::Nothing
        };
        let database = self.config.database(&parcel.pool.login.database);
        !parcel.followed && database.is_some_and(follows)
    }

    pub(crate) fn adopt_pool(&mut self, lore: PoolLore, out: &mut Out) {
        let Some(database) = self.config.database(&lore.key.login.database) else {
            return;
        };
        let same = self.leads_there(&lore.key, lore.database);
        let id = self.pool_for(&lore.key, &database);
        let pool = self.pools.at(id);
        let login = pool.login;
        if pool.key.purpose == Purpose::Clients {
            // If logins of this pool fail, the arriving keys and secret may be newer.
            let keeps = pool.failure.is_none();
            let login = self.logins.at_mut(login);
            login.secrets.inherit(lore.secrets, keeps);
        }
        if let Some(welcome) = lore.welcome.filter(|_| same) {
            self.learn_welcome(login, welcome, out);
        }
        if same {
            self.replace_left_behind(id, lore.left_behind, out);
        }
    }

    /// Opens a server for each one that could not travel. After a failed takeover these servers are
    /// still here.
    fn replace_left_behind(&mut self, id: PoolId, left_behind: u32, out: &mut Out) {
        let pool = self.pools.at(id);
        for _ in pool.servers()..left_behind {
            out.push(Action::Broker(ToBroker::Warm {
                worker: self.worker,
                pool: pool.key.clone(),
                wanted: u32::MAX,
                bounds: pool.supply.bounds.clone(),
            }));
        }
    }

    /// A client continues here. `enters`: the Broker counts it (false if from another worker).
    pub(crate) fn adopt_client(
        &mut self,
        mut passenger: Passenger,
        enters: bool,
        out: &mut Out,
    ) -> ClientId {
        let ends = passenger.ends.clone();
        let id = self.new_client(ends, passenger.number, passenger.connected);
        let names = &mut self.shared.names;
        let login = names.login(&passenger.database, &passenger.user);
        let client = self.clients.at_mut(id);
        client.unpack(&mut passenger, login.clone());
        if passenger.standing.is_of_a_pool() {
            let front = self.config.database(self.front(&login.database));
            let schema = front.as_ref().map_or(&*login.database, |d| d.schema());
            let schema = self.shared.statements.schema_of(schema);
            let client = self.clients.at_mut(id);
            client.session_goes_on(&mut passenger, &mut self.shared, schema);
            self.enter_map(id);
        }
        let client = self.clients.at_mut(id);
        out.push(Action::Attach(Peer::Client(id), passenger.socket));
        if passenger.admitted && enters {
            let entered = ToBroker::ClientEntered { login };
            out.push(Action::Broker(entered));
        }
        match passenger.standing {
            Standing::Startup => {
                self.watch_client(id);
                self.startup_bytes(id, b"", out);
                return id;
            }
            Standing::Console { admin } => {
                client.opens_console(ConsoleSession::of(admin));
                self.watch_client(id);
                self.keep_key(id, passenger.key);
                self.console_run(id, out);
                return id;
            }
            Standing::Newcomer | Standing::Ready | Standing::Bound => {}
        }
        match passenger.server {
            Some(server) => self.seat_session(id, server, passenger.key, out),
            None => self.seat(id, passenger.standing, passenger.key, out),
        }
        id
    }

    /// Puts a client into its pool, together with the server of its session.
    fn seat_session(
        &mut self,
        id: ClientId,
        (parcel, fingerprint): (Box<ServerParcel>, [u8; 32]),
        key: OldKey,
        out: &mut Out,
    ) {
        let same = self.leads_there(&parcel.pool, fingerprint)
            && !self.is_too_open(&parcel)
            && !self.is_unfollowed(&parcel);
        let Some(home) = self.join_pool(id, out) else {
            return out.push(Action::Discard(parcel.socket));
        };
        // The server may be at another host than the one that the client would get now.
        let (of_home, of_server) = (self.pools.at(home).login, parcel.pool.target.clone());
        let is_own = self.logins.at(of_home).key == parcel.pool.login;
        let is_placed = self.logins.at(of_home).terms.database.is_placed();
        let pool_id = if is_own && is_placed {
            self.pool_at(of_home, Purpose::Clients, of_server)
        } else {
            home
        };
        self.server_enters(pool_id, out);
        // A server that leads elsewhere, has logged in for another pool, or predates a RECONNECT, lasts
        // as long as its session.
        let stale = !same || !is_own || parcel.epoch < self.janitor.epoch();
        let server_id = self.insert_server(pool_id, *parcel, stale, out);
        let (client, server) = (self.clients.at_mut(id), self.servers.at_mut(server_id));
        link::bind((id, client), (server_id, server));
        client.mark_welcome();
        // This process has not seen which statements SQL has prepared.
        server.serves_from_before();
        self.keeps_lifetime(id);
        self.keep_key(id, key);
        self.resume(id, out);
        self.watch_client(id);
        self.watch_link_again(id);
    }

    /// The client keeps the key that another process gave it.
    fn keep_key(&mut self, id: ClientId, key: OldKey) {
        if let Some(client) = self.clients.get_mut(id) {
            client.keeps_key(key.clone());
            self.keys.remember(key, id);
        }
    }

    /// Puts a client into its pool.
    fn seat(&mut self, id: ClientId, standing: Standing, key: OldKey, out: &mut Out) {
        let client = self.clients.at_mut(id);
        if standing == Standing::Ready {
            client.mark_welcome();
            self.keep_key(id, key);
        }
        let Some(pool_id) = self.join_pool(id, out) else {
            return;
        };
        let login = self.pools.at(pool_id).login;
        let welcomed = self.logins.at(login).welcome.is_some();
        let client = self.clients.at_mut(id);
        if standing == Standing::Ready {
            let quiet = client.times.quiet;
            client.becomes_idle(quiet);
            self.keeps_lifetime(id);
            self.resume(id, out);
            return self.watch_client(id);
        }
        client.awaits_welcome(pool_id);
        if welcomed {
            return self.welcome(id, out);
        }
        self.pools.at_mut(pool_id).awaits_welcome(id);
        self.watch_client(id);
        self.need(pool_id, out);
    }

    /// Puts a client into its pool, or disconnects it if the database is gone.
    fn join_pool(&mut self, id: ClientId, out: &mut Out) -> Option<PoolId> {
        let client = self.clients.get(id)?;
        let who = client.who.clone();
        let front = self.front(&who.database).to_owned();
        let Some(database) = self.config.database(&front) else {
            self.disconnect(id, Fault::NoDatabase(who.database.to_string()), out);
            return None;
        };
        let (login_id, pool_id) = self.home_for(&front, &who.user, &database);
        self.join(id, login_id);
        Some(pool_id)
    }
}
