//! Collects one worker's state, for its answer to a console.

use crate::limits;
use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::lines::state_of;
use super::rows::{Row, date_time};
use crate::account::KeptFor;
use crate::client::{Client, ClientState, Replication};
use crate::config::nanos;
use crate::console::holdings::{
    ClientRow, Holder, HolderState, Holdings, PoolShare, SLOW_NS, ServerWait, States,
};
use crate::event::{Ends, Time};
use crate::login::key::LoginId;
use crate::params::Params;
use crate::pool::Reason;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::queries::tally::TopQueries;
use crate::server::{Server, ServerState};
use crate::times::Histogram;
use crate::tls::{TlsFacts, TlsTold};
use crate::{Seeded, place};

/// The addresses of a client's database and user names. Equal names mostly have equal addresses.
type LoginNames = (*const u8, *const u8);

/// Counts clients by the names they logged in with.
struct LoginTally<'a> {
    /// For each pair of addresses, a place in `counts`.
    places: HashMap<LoginNames, usize, Seeded>,
    /// A client with these names, and how many have them.
    counts: Vec<(&'a Client, u32)>,
    /// The names of the last client: those of the next one, mostly.
    last: (LoginNames, usize),
}

impl<'a> LoginTally<'a> {
    fn new(seeded: Seeded) -> Self {
        LoginTally {
            places: HashMap::with_hasher(seeded),
            counts: Vec::new(),
            last: ((std::ptr::null(), std::ptr::null()), 0),
        }
    }

    fn count(&mut self, client: &'a Client) {
        let names = (client.who.database.as_ptr(), client.who.user.as_ptr());
        if self.last.0 != names {
            let place = *self.places.entry(names).or_insert_with(|| {
                self.counts.push((client, 0));
                self.counts.len() - 1
            });
            self.last = (names, place);
        }
        self.counts[self.last.1].1 += 1;
    }
}

/// A server's state in the console.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Active,
    Listening,
    ActiveCancel,
    BeingCanceled,
    Idle,
    Used,
    Tested,
    New,
}

impl Seen {
    fn word(self) -> &'static str {
        match self {
            Seen::Active => "active",
            Seen::Listening => "listening",
            Seen::ActiveCancel => "active_cancel",
            Seen::BeingCanceled => "being_canceled",
            Seen::Idle => "idle",
            Seen::Used => "used",
            Seen::Tested => "tested",
            Seen::New => "new",
        }
    }
}

impl Pooler {
    /// The worker's pools and counts.
    pub(super) fn holdings(&mut self) -> Holdings {
        for id in self.pools.ids() {
            self.trim_waiting(id);
        }
        // By a login's id: this is looked up for each of perhaps a million clients.
        let mut shares: Vec<Option<PoolShare>> = Vec::new();
        let serves = |id: &LoginId| {
            let mut pools = self.logins.at(*id).pools().iter();
            pools.any(|pool| self.pools.at(*pool).key.purpose != Purpose::Checks)
        };
        for id in self.logins.ids().into_iter().filter(serves) {
            let at = id.0 as usize;
            shares.resize_with(shares.len().max(at + 1), || None);
            shares[at] = Some(self.share(id));
        }
        let mut logins = LoginTally::new(self.seeded);
        let (mut login_clients, mut consoles) = (0, 0);
        for (_, client) in self.clients.iter() {
            if client.admitted {
                logins.count(client);
            }
            let share = client
                .login
                .and_then(|id| shares.get_mut(id.0 as usize)?.as_mut());
            match (client.state(), share) {
                (ClientState::Console(_), _) => consoles += 1,
                (ClientState::Canceller | ClientState::Closing, _) => {}
                (state, Some(share)) if client.is_waiting() => {
                    let waited = self.now.0.saturating_sub(client.times.request.0);
                    if matches!(state, ClientState::Lookup(_)) {
                        login_clients += 1;
                        share.states.cl_lookups += 1;
                        // Some are in no queue: their query runs.
                        share.states.max_wait = share.states.max_wait.max(waited);
                    }
                    share.states.cl_waiting += 1;
                    share.states.waits += waited;
                    share.waits.count(waited);
                }
                (_, Some(share)) => share.states.cl_active += 1,
                (_, None) => login_clients += 1,
            }
        }
        let mut admitted = BTreeMap::new();
        for (client, count) in logins.counts {
            let login = (client.who.database.clone(), client.who.user.clone());
            *admitted.entry(login).or_default() += count;
        }
        for (_, server) in self.servers.iter() {
            let share = shares.get_mut(server.login.0 as usize);
            let Some(share) = share.and_then(Option::as_mut) else {
                continue;
            };
            if self.pools.at(server.pool).key.purpose == Purpose::Checks {
                continue;
            }
            share.connections += u32::from(server.permitted);
            self.count_server(server, &mut share.states);
        }
        Holdings {
            hosts: self.host_servers(),
            view: self.hosts.clone(),
            lags: self.lags(),
            reads: self.read_sights(),
            worker: self.worker,
            sharded: self.sharded_shares(),
            pools: shares.into_iter().flatten().collect(),
            admitted,
            clients: self.clients.len() as u32,
            login_clients,
            consoles,
            free_clients: self.clients.free() as u32,
            servers: self.servers.len() as u32,
            free_servers: self.servers.free() as u32,
            statements: self.shared.statements.size(),
            kept: KeptFor::ALL.map(|kind| (kind, self.shared.account.kept(kind))),
            moves: (self.moves.arrived, self.moves.departed),
            signals: self.spread.signals(),
            mails: self.spread.posted(),
            peers: self.peering.counts(),
            console_stats: self.consoles.stats,
            console_older: self.consoles.older_stats,
            queries: TopQueries::default(),
            unlogged: self.queries.quota.unlogged,
            paused: self.janitor.is_paused_all(),
            suspended: self.janitor.holds(),
            not_let_in: self.not_let_in,
            tls: TlsTold {
                handshakes: self.handshakes,
                ends: self.config.tls.ends,
            },
            secrets: self.config.fetched.told(self.now.0),
            window: self.now.0.saturating_sub(self.janitor.older_stats_at().0),
        }
    }

    /// The same, with the waiting clients, and the holders of servers in pools with waiting
    /// clients.
    pub(super) fn holdings_and_lines(&mut self) -> Holdings {
        let mut holdings = self.holdings();
        holdings.queries = self.queries.tally.tell(limits::QUERIES_TOLD);
        let mut waited_for: HashMap<LoginId, Vec<Holder>, Seeded> =
            HashMap::with_hasher(self.seeded);
        for share in &holdings.pools {
            if share.reason.is_some()
                && let Some(id) = self.logins.find(&share.key)
            {
                waited_for.insert(id, Vec::new());
            }
        }
        if waited_for.is_empty() {
            return holdings;
        }
        for (_, server) in self.servers.iter() {
            if let Some(of_login) = waited_for.get_mut(&server.login) {
                of_login.extend(self.holder(server));
            }
        }
        for share in &mut holdings.pools {
            let Some(id) = self.logins.find(&share.key) else {
                continue;
            };
            if let Some(mut holders) = waited_for.remove(&id) {
                holders.sort_by_key(|holder| std::cmp::Reverse(holder.held));
                holders.truncate(limits::WAITERS_TOLD);
                share.holders = holders;
                share.waiters = self.first_waiters(id, limits::WAITERS_TOLD);
            }
        }
        holdings
    }

    fn share(&self, id: LoginId) -> PoolShare {
        let login = self.logins.at(id);
        let for_clients = self.pool_if_any(id, Purpose::Clients);
        // A login has a pool: it goes with its last one.
        let sized = for_clients.unwrap_or(login.pools()[0]);
        let mut share = PoolShare {
            key: login.key.clone(),
            database: login.terms.database.clone(),
            mode: login.terms.mode,
            states: States {
                sv_pinned: login.pinned(),
                pins: login.stats().pins,
                unseen: login.stats().unseen,
                waits_in_vain: login.stats().waits_in_vain,
                ..States::default()
            },
            connections: 0,
            clients: login.clients(),
            pinned: login.pinned(),
            stats: *login.stats(),
            older: login.older_stats(),
            times: *login.times(),
            waits: Histogram::default(),
            errors: *login.errors(),
            reads: login.reads.counts,
            size: self.pools.at(sized).supply.bounds.size,
            paused: false,
            failure: None,
            reason: None,
            waiters: Vec::new(),
            holders: Vec::new(),
        };
        for id in login.pools() {
            let pool = self.pools.at(*id);
            let leave = pool.pin_line.longest_wait(self.now);
            let waited_for = pool.is_waited_for() || leave.is_some();
            let wait = self.oldest_wait(*id).max(leave.unwrap_or(0));
            let reason = waited_for.then(|| self.reason(*id));
            share.add_pool(pool, wait, reason);
        }
        share
    }

    fn count_server(&self, server: &Server, states: &mut States) {
        if let ServerState::Cancel(errand) = server.state() {
            states.cl_active_cancel += errand.requests();
        }
        let Some(seen) = self.seen(server) else {
            return;
        };
        let age = |since: Time| self.now.0.saturating_sub(since.0);
        let slow = u32::from(age(server.times.request) >= SLOW_NS);
        if matches!(server.state(), ServerState::Lookup(_)) {
            states.sv_working += 1;
            states.sv_slow += slow;
        } else if !server.is_linked() {
            states.sv_working += u32::from(server.is_at_work());
        } else {
            let (state, age) = (state_of(server), age(server.times.transaction));
            match state {
                HolderState::Active => {
                    states.sv_working += 1;
                    states.sv_slow += slow;
                }
                HolderState::InTransaction | HolderState::InFailedTransaction => {
                    states.sv_in_transaction += 1;
                }
                HolderState::Idle => states.sv_kept += 1,
            }
            // Replication is no transaction, and lasts for days.
            if state != HolderState::Idle && !server.is_reserved() {
                states.oldest_transaction = states.oldest_transaction.max(age);
            }
        }
        *match seen {
            Seen::Active => &mut states.sv_active,
            Seen::Listening => &mut states.sv_listening,
            Seen::ActiveCancel => &mut states.sv_active_cancel,
            Seen::BeingCanceled => &mut states.sv_being_canceled,
            Seen::Idle => &mut states.sv_idle,
            Seen::Used => &mut states.sv_used,
            Seen::Tested => &mut states.sv_tested,
            Seen::New => &mut states.sv_login,
        } += 1;
    }

    /// The state that SHOW SERVERS prints. `None` for a server that is being closed, which
    /// PgBouncer does not show.
    fn seen(&self, server: &Server) -> Option<Seen> {
        Some(match server.state() {
            ServerState::Aligning(_) | ServerState::Linked(_) | ServerState::Lookup(_) => {
                Seen::Active
            }
            ServerState::Listening { .. } => Seen::Listening,
            ServerState::Cancel(_) => Seen::ActiveCancel,
            ServerState::BeingCancelled => Seen::BeingCanceled,
            ServerState::Idle if self.is_stale(server) => Seen::Used,
            ServerState::Idle | ServerState::Lent(_) | ServerState::Packed => Seen::Idle,
            ServerState::Checking
            | ServerState::Resetting
            | ServerState::Naming(_)
            | ServerState::Cataloguing(_)
            | ServerState::Draining
            | ServerState::Examining(_) => Seen::Tested,
            ServerState::Resolving
            | ServerState::Connecting
            | ServerState::Securing(_)
            | ServerState::Login(_)
            | ServerState::ConnectQuery
            | ServerState::Maturing(_) => Seen::New,
            ServerState::Closing => return None,
        })
    }

    /// True if the server would be tested before its next use.
    fn is_stale(&self, server: &Server) -> bool {
        let globals = &self.config.globals;
        let rested = self.now.0.saturating_sub(server.times.used.0);
        !globals.server_check_query.is_empty() && rested > nanos(globals.server_check_delay)
    }

    /// Rows of SHOW CLIENTS_EXTENDED.
    pub(super) fn client_rows(&self) -> Vec<ClientRow> {
        self.clients
            .iter()
            .filter_map(|(_, client)| self.client_row(client))
            .collect()
    }

    fn client_row(&self, client: &Client) -> Option<ClientRow> {
        let state = match client.state() {
            ClientState::Linked(_) | ClientState::Aligning(_) => "active",
            ClientState::Idle | ClientState::Console(_) | ClientState::Leaving { .. } => "idle",
            ClientState::Waiting(_) | ClientState::Welcome(_) => "waiting",
            ClientState::Canceller => "active_cancel_req",
            _ => return None,
        };
        let named = |name: &str, none: &str| {
            if name.is_empty() {
                none.to_string()
            } else {
                name.to_string()
            }
        };
        let link = self.partner_of_client(client);
        let waits = state == "waiting";
        let row = self.socket_row(&Socket {
            kind: "C",
            user: named(&client.who.user, "(nouser)"),
            database: named(&client.who.database, "(nodb)"),
            replication: client.protocol.replication,
            state,
            ends: Some(&client.ends),
            tls: client.tls.as_deref(),
            connected: client.times.connected,
            request: client.times.request,
            wait: if waits {
                self.now.0.saturating_sub(client.times.request.0)
            } else {
                0
            },
            close_needed: false,
            number: client.number,
            link,
            pid: client.ends.unix_peer.map_or(0, |peer| peer.pid),
            params: client.params.as_deref(),
            statements: client.statements.len(),
        });
        let wait = client.waits_in().filter(|_| waits).map(|id| ServerWait {
            login: self.pools.at(id).key.login.clone(),
            since: client.times.request,
            reason: if client.awaits_permission() {
                Reason::PinLimit.word()
            } else {
                self.reason(id).word()
            },
        });
        let pin = self.pin_cells(client);
        Some(ClientRow { row, wait, pin })
    }

    /// Why and since when a client keeps a server between transactions.
    fn pin_cells(&self, client: &Client) -> [Option<String>; 2] {
        let session = client.session.as_deref();
        match session.filter(|session| !session.pinned.is_empty()) {
            Some(session) => [
                Some(crate::session::reasons(session.pinned)),
                Some(date_time(self.started, session.since)),
            ],
            None => [None, None],
        }
    }

    /// Rows of SHOW SERVERS_EXTENDED.
    pub(super) fn server_rows(&self) -> Vec<Row> {
        let rows = self.servers.iter().filter_map(|(_, server)| {
            let mut row = self.server_row(server)?;
            let client = self.client_of(server);
            row.extend(client.map_or([None, None], |client| self.pin_cells(client)));
            Some(row)
        });
        rows.collect()
    }

    fn server_row(&self, server: &Server) -> Option<Row> {
        let state = self.seen(server)?.word();
        let key = &self.logins.at(server.login).key;
        let client = self.client_of(server);
        Some(self.socket_row(&Socket {
            kind: "S",
            user: key.user.to_string(),
            database: key.database.to_string(),
            replication: client.map_or(Replication::None, |client| client.protocol.replication),
            state,
            ends: server.connection.ends.as_ref(),
            tls: server.connection.tls.as_deref(),
            connected: server.times.connected,
            request: server.times.request,
            wait: 0,
            close_needed: server.ending().is_some(),
            number: server.number,
            link: client.map(|client| client.number),
            pid: server.cancels.pid().unwrap_or(0),
            params: Some(&server.session.params),
            statements: server.statements.len(),
        }))
    }

    /// Rows of SHOW FDS. PgBouncer's successor gets the sockets with these rows; Howdah's successor
    /// gets them by TAKEOVER. So the rows need no descriptor and no secret.
    pub(super) fn fd_rows(&self) -> Vec<Row> {
        let clients = self.clients.iter().filter_map(|(_, client)| {
            client.login?;
            let link = self.partner_of_client(client);
            Some(self.fd_row(
                "client",
                (&client.who.database, &client.who.user),
                &client.ends,
                link,
                client.params.as_deref(),
            ))
        });
        let servers = self.servers.iter().filter_map(|(_, server)| {
            let key = &self.logins.at(server.login).key;
            let link = self.client_of(server);
            Some(self.fd_row(
                "server",
                (&key.database, &key.user),
                server.connection.ends.as_ref()?,
                link.map(|client| client.number),
                Some(&server.session.params),
            ))
        });
        clients.chain(servers).collect()
    }

    fn fd_row(
        &self,
        task: &str,
        (database, user): (&str, &str),
        ends: &Ends,
        link: Option<u64>,
        params: Option<&Params>,
    ) -> Row {
        let value = |name: &str| {
            let position = self.shared.tracked.position(name.as_bytes())?;
            let value = params?.get(position)?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        vec![
            None,
            Some(task.to_string()),
            Some(user.to_string()),
            Some(database.to_string()),
            Some(place::host(&ends.remote)),
            Some(place::port(&ends.remote).to_string()),
            None,
            Some(link.unwrap_or(0).to_string()),
            value("client_encoding"),
            value("standard_conforming_strings"),
            value("DateStyle"),
            value("TimeZone"),
            None,
            None,
            None,
        ]
    }

    fn socket_row(&self, socket: &Socket<'_>) -> Row {
        let pointer = |number: u64| format!("{number:#x}");
        let replication = match socket.replication {
            Replication::None => "none",
            Replication::Logical => "logical",
            Replication::Physical => "physical",
        };
        let end = |address: Option<&crate::event::Address>| match address {
            Some(address) => (place::host(address), place::port(address)),
            None => (String::new(), 0),
        };
        let (host, port) = end(socket.ends.map(|ends| &ends.remote));
        let (local_host, local_port) = end(socket.ends.map(|ends| &ends.local));
        let application = self.application(socket.params);
        let columns = [
            socket.kind.to_string(),
            socket.user.clone(),
            socket.database.clone(),
            replication.to_string(),
            socket.state.to_string(),
            host,
            port.to_string(),
            local_host,
            local_port.to_string(),
            date_time(self.started, socket.connected),
            date_time(self.started, socket.request),
            (socket.wait / 1_000_000_000).to_string(),
            (socket.wait / 1000 % 1_000_000).to_string(),
            u8::from(socket.close_needed).to_string(),
            pointer(socket.number),
            socket.link.map_or_else(String::new, pointer),
            socket.pid.to_string(),
            socket.tls.map_or_else(String::new, TlsFacts::summary),
            application,
            socket.statements.to_string(),
            socket.number.to_string(),
        ];
        columns.into_iter().map(Some).collect()
    }
}

/// The facts in a row of SHOW CLIENTS and SHOW SERVERS.
struct Socket<'a> {
    kind: &'static str,
    user: String,
    database: String,
    replication: Replication,
    state: &'static str,
    ends: Option<&'a Ends>,
    tls: Option<&'a TlsFacts>,
    connected: Time,
    request: Time,
    wait: u64,
    close_needed: bool,
    number: u64,
    link: Option<u64>,
    pid: u32,
    params: Option<&'a Params>,
    statements: usize,
}
