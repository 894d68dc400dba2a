//! The kind of a run, chosen from its seed: runs differ in kind and not only in detail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use howdah_pooler::config::{Config, HostPort, SessionAttrs, SslMode};
use howdah_pooler::event::{Address, Time};

use crate::chance::Chance;
use crate::client::LIFETIME;
use crate::control::address_of;
use crate::grammar::{Tongue, Weights};
use crate::hearing::LISTENER_LOST;
use crate::host::Host;
use crate::line::Secrecy;
use crate::postgres::{Limits, Manners};
use crate::session::Keeping;
use crate::sharding::Sharding;
use crate::tls;
use crate::world::Weather;

/// A database in the configuration.
#[derive(Clone, Debug)]
pub struct Database {
    /// Its name.
    pub name: String,
    /// `pool_size`.
    pub size: usize,
    /// `reserve_pool_size`.
    pub reserve: usize,
    /// `max_db_connections`; 0 for no limit.
    pub most: usize,
    /// The settings of its servers.
    pub settings: Vec<(String, String)>,
    /// `min_pool_size`.
    pub least: usize,
    /// The host: an address or a name.
    pub host: &'static str,
    /// The database has a `connect_query`.
    pub connects_with: bool,
    /// Which hosts it wants; `Any` if there is only one.
    pub wish: SessionAttrs,
    /// Its standbys share the work.
    pub shares_load: bool,
    /// How its reads go to standbys, if they do.
    pub reads: Option<Reads>,
}

/// How the reads of a database go to standbys.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// `read_consistency` is `session`.
    pub is_session: bool,
    /// `read_target`
    pub target: &'static str,
    /// `read_wait`, in seconds.
    pub wait: &'static str,
    /// `max_standby_lag`, in seconds.
    pub lag: &'static str,
    /// `read_routing` is `statements`.
    pub has_single: bool,
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reads {
            is_session,
            target,
            wait,
            lag,
            has_single,
        } = self;
        let routing = if *has_single {
            "statements"
        } else {
            "transactions"
        };
        let consistency = if *is_session { "session" } else { "eventual" };
        write!(
            f,
            " read_routing={routing} read_consistency={consistency} read_target={target} \
             read_wait={wait} max_standby_lag={lag}"
        )
    }
}

/// The hosts of a run whose databases want a role.
#[derive(Clone, Copy, Debug)]
pub struct Roles {
    /// How many there are.
    pub hosts: usize,
    /// The names of hosts are looked up.
    pub have_names: bool,
    /// The user of checks sees the roles and nothing else.
    pub hidden: bool,
    /// There is no user of checks: logins tell the roles.
    pub unchecked: bool,
    /// `default_transaction_read_only` is on at the first host.
    pub read_only: bool,
}

/// The faults, besides vanishing clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// How often PostgreSQL restarts.
    pub restarts: usize,
    /// How many connections to PostgreSQL are cut.
    pub cuts: usize,
    /// How many commands the administrator sends.
    pub orders: usize,
    /// KILL is among the commands.
    pub kills: bool,
    /// How many cancel requests are sent.
    pub cancels: usize,
    /// How many processes try to take over.
    pub takeovers: usize,
    /// Workers hang for some time.
    pub workers_stall: bool,
    /// How often a table is changed past Howdah.
    pub outside: usize,
    /// How much happens to hosts with roles.
    pub mishaps: usize,
}

/// All properties of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The number of workers.
    pub workers: u16,
    /// Databases.
    pub databases: Vec<Database>,
    /// Users.
    pub users: Vec<String>,
    /// `max_user_connections`; 0 for no limit.
    pub user_most: usize,
    /// `pool_mode`.
    pub mode: &'static str,
    /// Further lines in `[pgbouncer]`.
    pub settings: Vec<String>,
    /// The seconds after which every idle connection is closed.
    pub idle_seconds: u64,
    /// What clients may use.
    pub tongue: Tongue,
    /// Statements are renamed.
    pub renames: bool,
    /// The weight of each kind of unit.
    pub weights: Weights,
    /// The number of clients.
    pub clients: usize,
    /// The most units in a script.
    pub units: usize,
    /// The milliseconds within which clients connect.
    pub span: u64,
    /// How clients end: the weights of Terminate, Terminate at once, close, vanish.
    pub ends: [usize; 4],
    /// What the network does.
    pub weather: Weather,
    /// What PostgreSQL does.
    pub manners: Manners,
    /// The faults.
    pub faults: Faults,
    /// The buffers of each driver.
    pub buffers: usize,
    /// Accepting fails once in this many times.
    pub accept_fails: usize,
    /// The errors that clients may get when their connections end.
    pub excuses: Vec<&'static str>,
    /// Connections may end without an error.
    pub closes: bool,
    /// The limits on sessions are checked.
    pub strict_limits: bool,
    /// The pools are under two limits at once, and the load does not pause.
    pub contest: bool,
    /// All clients move to random workers again and again.
    pub restless: bool,
    /// LISTEN is shared.
    pub shares_listen: bool,
    /// Clients may use TLS.
    pub tls: bool,
    /// The header of the balancer that clients come through; none without a balancer.
    pub header: &'static [u8],
    /// The greatest number of clients' handshakes under way on a worker.
    pub handshakes: usize,
    /// The databases want roles of these hosts.
    pub roles: Option<Roles>,
    /// The administrator drains hosts.
    pub drains: bool,
    /// The databases are shards of one.
    pub sharding: Option<Sharding>,
}

impl Scenario {
    /// The scenario of this seed.
    pub fn new(seed: u64) -> Scenario {
        let mut chance = Chance::new(seed ^ 0x5ce2_a210);
        let chance = &mut chance;
        let workers = [1, 1, 2, 2, 3, 4][chance.within(0..=5)];
        let mode = [
            "transaction",
            "transaction",
            "transaction",
            "session",
            "statement",
        ][chance.within(0..=4)];
        let prepared = [0, 1, 2, 200, 200, 200][chance.within(0..=5)];
        let renames = prepared > 0 && mode != "session";
        let tongue = Tongue {
            named: renames || mode == "session",
            unnamed: renames || mode == "session",
            blocks: mode != "statement",
            sure: true,
            session: mode != "statement",
            schema: false,
            hides_ddl: false,
            channels: false,
            objects: false,
            discards: false,
            reads: false,
            reads_by_default: false,
            single: false,
            sharded: false,
        };
        let idle_seconds = chance.within(1..=4) as u64;
        let mut scenario = Scenario {
            seed,
            workers,
            databases: Vec::new(),
            users: (0..chance.within(1..=2)).map(|n| format!("u{n}")).collect(),
            user_most: 0,
            mode,
            settings: vec![
                format!("max_prepared_statements = {prepared}"),
                format!("server_idle_timeout = {idle_seconds}"),
                "pool_idle_timeout = 2".into(),
                "query_wait_notify = 0".into(),
                "pool_spread = always".into(),
                "query_wait_timeout = 0".into(),
                "log_connections = 0".into(),
                "log_disconnections = 1".into(),
                "server_login_retry = 1".into(),
                "client_login_timeout = 1000".into(),
            ],
            idle_seconds,
            tongue,
            renames,
            weights: Weights::choose(chance),
            clients: chance.within(1..=14),
            units: chance.within(1..=10),
            span: [1, 20, 500][chance.within(0..=2)],
            ends: [4, 0, 0, 0],
            weather: Weather::default(),
            manners: Manners::default(),
            faults: Faults::default(),
            buffers: usize::from(u16::MAX),
            accept_fails: 0,
            excuses: Vec::new(),
            closes: false,
            strict_limits: true,
            contest: false,
            restless: false,
            shares_listen: false,
            tls: false,
            header: b"",
            handshakes: 0,
            roles: None,
            drains: false,
            sharding: None,
        };
        scenario.choose_pools(chance);
        scenario.choose_manners(chance);
        scenario.choose_settings(chance);
        scenario.choose_faults(chance);
        scenario.choose_ddl(chance);
        // Drawn from a seed of its own, so that the runs of other seeds stay the same.
        let chance = &mut Chance::new(seed ^ 0x3011_1e5e);
        if scenario.workers > 1 && chance.once_in(2) {
            let how = ["always", "always", "load"][chance.within(0..=2)];
            scenario.settings.push(format!("pool_spread = {how}"));
            scenario.restless = how == "always";
        }
        // Not together with DDL that Howdah does not see: an error follows, which the reference does
        // not know.
        let hidden = scenario.tongue.hides_ddl || scenario.faults.outside > 0;
        if !hidden && Chance::new(seed ^ 0x0005_4a4e).once_in(3) {
            scenario.settings.push("unnamed_statements = share".into());
        }
        let apart = &mut Chance::new(seed ^ 0x0071_5b1d);
        // Not together with DDL: clients that stall get answers that the reference does not know.
        scenario.tls = apart.once_in(3);
        scenario.handshakes = [1, 2, 1000][apart.within(0..=2)];
        scenario.choose_balancer(&mut Chance::new(seed ^ 0x0ba1_a5ce));
        scenario.choose_secrecy(&mut Chance::new(seed ^ 0x0073_6c73));
        let chance = &mut Chance::new(seed ^ 0x0b1d_e001);
        let limit = [0, 1, 2, 1000][chance.within(0..=3)];
        scenario.settings.push(format!("pin_limit = {limit}"));
        let chance = &mut Chance::new(seed ^ 0x5ee_0ee5);
        if chance.once_in(2) {
            let looks = "top_queries = 5\nslow_query_time = 0.001\nslow_query_values = 1\n\
                         trace_endpoint = http://127.0.0.1:1\ntrace_ratio = 0.5";
            scenario.settings.push(looks.into());
        }
        let chance = &mut Chance::new(seed ^ 0x0c04_7e57);
        if scenario.mode != "session" && chance.once_in(12) {
            scenario.contend(chance);
        }
        if !scenario.contest {
            scenario.choose_roles();
            scenario.choose_shards();
            scenario.choose_channels();
            scenario.choose_objects();
        }
        scenario
    }

    /// Some runs are about hosts with roles.
    fn choose_roles(&mut self) {
        let chance = &mut Chance::new(self.seed ^ 0x0057_a9db);
        if !chance.once_in(5) {
            return;
        }
        // A primary and a standby have no tables in common here.
        self.tongue.schema = false;
        self.weights.weigh_tables(None);
        self.faults.outside = 0;
        let unchecked = chance.once_in(8);
        let roles = Roles {
            hosts: chance.within(2..=4),
            have_names: chance.once_in(2),
            hidden: unchecked || chance.once_in(6),
            unchecked,
            read_only: !unchecked && chance.once_in(6),
        };
        self.roles = Some(roles);
        for (at, database) in self.databases.iter_mut().enumerate() {
            use SessionAttrs::{PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
            let others = [
                Primary,
                Standby,
                PreferStandby,
                PreferStandby,
                ReadWrite,
                ReadOnly,
            ];
            let kind = if at == 0 { 0 } else { chance.within(0..=5) };
            database.wish = if chance.once_in(4) {
                others[chance.within(0..=5)]
            } else {
                others[kind]
            };
            database.shares_load = chance.once_in(2);
            database.least = 0;
        }
        if self.databases.len() == 1 {
            let first = &self.databases[0];
            self.databases.push(Database {
                name: "d1".into(),
                wish: SessionAttrs::PreferStandby,
                ..first.clone()
            });
        }
        let interval = ["0.05", "0.2", "0.25"][chance.within(0..=2)];
        let timeout = ["0.2", "1"][chance.within(0..=1)];
        self.settings.push(format!(
            "host_check_interval = {interval}\nhost_check_timeout = {timeout}"
        ));
        if !unchecked {
            self.settings.push("host_check_user = howdah".into());
        }
        self.clients += chance.within(0..=6);
        self.choose_reads(roles);
        if chance.once_in(4) {
            return;
        }
        self.faults.mishaps = chance.within(1..=if self.routes_reads() { 9 } else { 5 });
        self.span = [500, 2000, 4000][chance.within(0..=2)];
        self.units += chance.within(0..=10);
        self.drains = self.faults.orders > 0 && chance.once_in(2);
        self.excuse_losses();
    }

    /// In some runs, reads of databases at the primary go to standbys.
    fn choose_reads(&mut self, roles: Roles) {
        let chance = &mut Chance::new(self.seed ^ 0x5ead_7e11);
        if self.mode == "session" || roles.unchecked || chance.once_in(4) {
            return;
        }
        self.roles = Some(Roles {
            read_only: false,
            ..roles
        });
        self.tongue.reads = true;
        self.weights.weigh_reads(chance);
        self.units += chance.within(5..=25);
        let all_read = chance.once_in(2);
        // Drawn from a seed of its own, so that the runs of other seeds stay the same.
        let apart = &mut Chance::new(self.seed ^ 0x0051_9e1e);
        let refuses = [0, 2, 8][apart.within(0..=2)];
        self.manners.others_write_once_in = [0, 3, 30, 300][chance.within(0..=3)];
        self.manners.answers_late_once_in = [0, 1, 3][chance.within(0..=2)];
        for database in &mut self.databases {
            // Of hosts that hide how far they are, no more can be known.
            let is_session = !roles.hidden && !chance.once_in(5);
            let targets = ["prefer-standby", "prefer-standby", "any", "standby"];
            let waits = ["0", "0.02", "0.02", "0.3"];
            let lags = ["10", "10", "0.3", "0"];
            let reads = Reads {
                is_session,
                target: targets[chance.within(0..=3)],
                wait: waits[chance.within(0..=3)],
                lag: if roles.hidden {
                    "0"
                } else {
                    lags[chance.within(0..=3)]
                },
                has_single: apart.once_in(2),
            };
            if all_read {
                database.wish = SessionAttrs::Primary;
            }
            let writes = [SessionAttrs::Primary, SessionAttrs::ReadWrite];
            database.reads = writes.contains(&database.wish).then_some(reads);
        }
        let mut reads = self.databases.iter().filter_map(|of| of.reads);
        if reads.any(|reads| reads.has_single) {
            self.tongue.single = true;
            self.manners.refuses_reads_once_in = refuses;
        }
    }

    /// Some reads go to standbys.
    pub fn routes_reads(&self) -> bool {
        self.databases.iter().any(|of| of.reads.is_some())
    }

    /// The databases whose reads go to standbys.
    pub fn readers(&self) -> BTreeSet<String> {
        let readers = self.databases.iter().filter(|of| of.reads.is_some());
        readers.map(|of| of.name.clone()).collect()
    }

    /// Those of them whose single reads do.
    pub fn single_readers(&self) -> BTreeSet<String> {
        let is_single = |of: &&Database| of.reads.is_some_and(|reads| reads.has_single);
        let readers = self.databases.iter().filter(is_single);
        readers.map(|of| of.name.clone()).collect()
    }

    /// The hosts, all up.
    pub fn hosts(&self, now: Time) -> Vec<Host> {
        let count = self.roles.map_or(1, |roles| roles.hosts);
        let shards = self.sharding.as_ref().map(|of| usize::from(of.shards));
        let count = shards.unwrap_or(count);
        let host = |at: usize| {
            let ip = address_of(&format!("db{}", at + 1));
            let mut host = Host::new(at, Address::Tcp(ip, 5432), now);
            if let Some(roles) = self.roles {
                host.has_role = true;
                host.in_recovery = at > 0;
                host.hides = roles.hidden;
                host.read_only = roles.read_only && at == 0;
            }
            host
        };
        (0..count).map(host).collect()
    }

    /// Which hosts each placed database wants.
    pub fn wishes(&self) -> BTreeMap<String, SessionAttrs> {
        let of = |database: &Database| (database.name.clone(), database.wish);
        let placed = self.databases.iter().map(of);
        placed
            .filter(|(_, wish)| *wish != SessionAttrs::Any)
            .collect()
    }

    /// The number of a host with this name, from 0.
    pub fn number_of(&self, host: &HostPort) -> usize {
        let is_named = |number: &usize| self.host_name(number + 1) == host.host.to_string();
        (0..4).find(is_named).unwrap_or(0)
    }

    /// In some runs, the databases are the shards of one.
    fn choose_shards(&mut self) {
        let chance = &mut Chance::new(self.seed ^ 0x05_4a2d);
        let may = self.mode == "transaction" && self.renames && self.roles.is_none();
        if !may || !chance.once_in(4) {
            return;
        }
        self.tongue.schema = false;
        self.weights.weigh_tables(None);
        self.faults.outside = 0;
        let shards = chance.within(2..=3);
        // A successor reads the map anew, and old processes go on with theirs.
        let changes = self.faults.takeovers == 0 && chance.once_in(2);
        if changes {
            self.faults.orders = self.faults.orders.max(chance.within(1..=4));
        }
        self.sharding = Some(Sharding::choose(shards as u8, changes, chance));
        let first = self.databases[0].clone();
        let of = |at: usize| Database {
            name: format!("d{at}"),
            host: ["127.0.0.1", "127.0.0.2", "127.0.0.3"][at],
            connects_with: false,
            ..first.clone()
        };
        self.databases = (0..shards).map(of).collect();
        // Who holds the last permits may wait for a catalogue, which needs one.
        self.user_most = 0;
        self.clients += chance.within(0..=6);
        self.units += chance.within(0..=12);
        if self.faults.orders > 0 {
            self.excuses.extend([
                "database \"whole\" is disabled",
                "database \"d1\" is disabled",
                "database \"d2\" is disabled",
            ]);
        }
    }

    /// Statements may be refused, because a shard can't be reached or serves nobody.
    pub fn loses_shards(&self) -> bool {
        let is_bounded = self.databases.iter().any(|of| of.most > 0);
        !self.strict_limits || self.faults.orders > 0 || is_bounded
    }

    /// Some runs are about LISTEN and NOTIFY.
    fn choose_channels(&mut self) {
        let chance = &mut Chance::new(self.seed ^ 0x0001_1573);
        let shares = self.mode == "transaction" && self.renames;
        if self.roles.is_some() || self.sharding.is_some() {
            return;
        }
        if !(shares || self.mode == "session" && chance.once_in(3)) || !chance.once_in(3) {
            return;
        }
        self.tongue.channels = true;
        self.shares_listen = shares;
        self.weights.weigh_channels(chance);
        self.units += chance.within(0..=20);
        self.settings.push("listen = share".into());
        // A client that the listener can't serve keeps its server.
        self.settings.push("pin_limit = 1000".into());
        let faults = &self.faults;
        let breaks = faults.restarts + faults.cuts + self.manners.refuses_once_in > 0;
        let ends = breaks || faults.kills || faults.orders > 0 || faults.takeovers > 0;
        if ends {
            self.excuses.push(LISTENER_LOST);
        }
    }

    /// In some runs clients come through a balancer, which is on the same machine.
    fn choose_balancer(&mut self, chance: &mut Chance) {
        let headers: [&[u8]; 3] = [
            b"PROXY TCP4 192.0.2.7 127.0.0.1 5000 6432\r\n",
            b"PROXY UNKNOWN\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f\xc0\0\x02\x07\x7f\0\0\x01\x13\x88\x19\x20\x04\0\0",
        ];
        if chance.once_in(4) {
            self.header = headers[chance.within(0..=2)];
            self.settings.push("proxy_protocol = 127.0.0.0/8".into());
        }
    }

    /// Some runs are about objects that outlive transactions.
    fn choose_objects(&mut self) {
        let chance = &mut Chance::new(self.seed ^ 0x0b1e_c750);
        if self.mode == "statement" || self.sharding.is_some() || !chance.once_in(2) {
            return;
        }
        self.tongue.objects = true;
        self.weights.weigh_objects(chance);
        self.units += chance.within(0..=10);
        if self.mode == "transaction" && !self.tongue.channels && chance.once_in(4) {
            self.settings.push("session_state = discard".into());
            self.tongue.discards = true;
            self.tongue.session = false;
            // Half a notice after the ReadyForQuery keeps the server for a moment. In that moment
            // the client would still see all of its objects.
            self.manners.speaks_once_in = 0;
        }
    }

    /// Two databases and two users with few servers for each. There are always more clients than
    /// servers, and transactions take about the same time. Nothing fails.
    fn contend(&mut self, chance: &mut Chance) {
        self.contest = true;
        self.users = vec!["u0".into(), "u1".into()];
        self.user_most = chance.within(1..=2);
        self.databases.truncate(1);
        self.databases.push(Database {
            name: "d1".into(),
            ..self.databases[0].clone()
        });
        for database in &mut self.databases {
            database.most = chance.within(1..=2);
            database.least = 0;
        }
        self.faults = Faults::default();
        self.manners = Manners::default();
        self.manners.login_millis = [0, 5][chance.within(0..=1)];
        self.ends = [4, 0, 0, 0];
        self.clients = chance.within(8..=14);
        self.units = 40;
        self.span = 1;
        self.weights.favour_slow(40);
        self.strict_limits = true;
    }

    fn choose_pools(&mut self, chance: &mut Chance) {
        for number in 0..chance.within(1..=2) {
            // Only a large pool is spread over workers; the limit then keeps it small.
            let spread = self.workers > 1 && !chance.once_in(3);
            let size = if spread {
                4 * usize::from(self.workers) + chance.within(0..=2)
            } else {
                chance.within(1..=4)
            };
            let most = if spread && !chance.once_in(3) {
                chance.within(1..=5)
            } else if chance.once_in(6) {
                chance.within(1..=3)
            } else {
                0
            };
            let settings = if chance.once_in(5) {
                vec![("timezone".to_string(), "Europe/Rome".to_string())]
            } else {
                Vec::new()
            };
            self.databases.push(Database {
                name: format!("d{number}"),
                size,
                reserve: if chance.once_in(5) {
                    chance.within(1..=2)
                } else {
                    0
                },
                most,
                settings,
                least: if chance.once_in(8) {
                    chance.within(1..=2)
                } else {
                    0
                },
                host: if chance.once_in(6) {
                    "db.example"
                } else {
                    "127.0.0.1"
                },
                connects_with: chance.once_in(8),
                wish: SessionAttrs::Any,
                shares_load: false,
                reads: None,
            });
        }
        if chance.once_in(6) {
            self.user_most = chance.within(1..=4);
        }
    }

    fn choose_manners(&mut self, chance: &mut Chance) {
        if chance.once_in(2) {
            self.weather.delay_once_in = chance.within(1..=10);
            self.weather.delay_most = [100, 2_000, 40_000][chance.within(0..=2)];
        }
        self.manners.login_millis = [0, 0, 5, 100][chance.within(0..=3)];
        self.manners.cancel_millis = [0, 2, 50][chance.within(0..=2)];
        self.manners.cancel_close_millis = [0, 2, 50][chance.within(0..=2)];
        if chance.once_in(3) {
            self.manners.speaks_once_in = [20, 100, 500][chance.within(0..=2)];
        }
        if chance.once_in(3) {
            self.buffers = chance.within(1..=3);
        }
        if chance.once_in(6) {
            self.accept_fails = chance.within(1..=5);
        }
        for end in &mut self.ends[1..] {
            if chance.once_in(3) {
                *end = chance.within(1..=4);
            }
        }
    }

    fn choose_settings(&mut self, chance: &mut Chance) {
        let seed = self.seed;
        let mut set = |line: String| self.settings.push(line);
        if chance.once_in(4) {
            set("server_check_delay = 0".into());
            set("server_check_query = select 1".into());
        }
        if chance.once_in(5) {
            set("server_round_robin = 1".into());
        }
        if chance.once_in(6) {
            set("server_fast_close = 1".into());
            self.excuses.push("database configuration changed");
        }
        if chance.once_in(6) {
            set("server_lifetime = 1".into());
        }
        if chance.once_in(6) {
            set("server_reset_query_always = 1".into());
        }
        if chance.once_in(4) {
            set("reserve_pool_timeout = 1".into());
        }
        if chance.once_in(4) {
            set("track_extra_parameters = IntervalStyle, search_path".into());
        }
        if chance.once_in(10) {
            set("query_wait_timeout = 1".into());
            self.excuses.push("query_wait_timeout");
        }
        if chance.once_in(10) {
            set("idle_transaction_timeout = 1".into());
            self.excuses.push("idle transaction timeout");
        }
        if chance.once_in(12) {
            set("client_idle_timeout = 1".into());
            self.excuses.push("client_idle_timeout");
        }
        // Drawn from a seed of its own, so that the runs of other seeds stay the same.
        if Chance::new(seed ^ 0x0011_fe71).once_in(8) {
            set("client_lifetime = 1".into());
            self.excuses.push(LIFETIME);
        }
        if chance.once_in(12) {
            set("transaction_timeout = 1".into());
            self.excuses.push("transaction timeout");
        }
        if chance.once_in(12) {
            set("query_timeout = 1".into());
            self.excuses.push("query timeout");
            self.excuses.push("query_timeout"); // a client that waits for a server gets this error
        }
        if chance.once_in(12) {
            set(format!("max_client_conn = {}", chance.within(2..=9)));
            self.excuses.push("no more connections allowed");
        }
        // Only a connection that was cut in the middle of a message ends without an error.
        self.closes |= self.excuses.iter().any(|text| text.ends_with("timeout"));
    }

    /// TLS to PostgreSQL. Handshakes fail only if logins may fail anyway.
    fn choose_secrecy(&mut self, chance: &mut Chance) {
        self.manners.secrecy = match chance.within(0..=5) {
            0 => Secrecy::Preferred([0, 1, 2][chance.within(0..=2)]),
            1 => Secrecy::Required,
            _ => return,
        };
        if !self.strict_limits && chance.once_in(2) {
            self.manners.handshake_fails_once_in = chance.within(2..=6);
            self.excuses.push("server_connect_timeout");
        }
    }

    fn choose_faults(&mut self, chance: &mut Chance) {
        let faults = &mut self.faults;
        faults.workers_stall = self.workers > 1 && chance.once_in(3);
        if chance.once_in(3) {
            let most = if chance.once_in(3) { 60 } else { 12 };
            faults.cancels = chance.within(1..=most);
            self.weights.favour_slow(chance.within(0..=20));
            if chance.once_in(3) {
                self.manners.cancel_cut_once_in = chance.within(1..=3);
            }
            if chance.once_in(4) {
                self.manners.cancel_late_once_in = chance.within(1..=4);
            }
            if chance.once_in(2) {
                self.manners.cancel_missed_once_in = chance.within(1..=3);
                // The cancelled statement may end while the cancel request is still under way.
                self.manners.cancel_close_millis = [0, 50, 200][chance.within(0..=2)];
            }
        }
        if chance.once_in(4) {
            faults.orders = chance.within(1..=5);
            faults.kills = chance.once_in(4);
        }
        if chance.once_in(6) {
            faults.restarts = chance.within(0..=2);
            faults.cuts = chance.within(0..=4);
        }
        if chance.once_in(10) {
            self.manners.refuses_once_in = chance.within(2..=6);
        }
        if faults.orders > 0 {
            self.excuses.push("database \"d0\" is disabled");
        }
        if faults.kills {
            self.excuses.push("database removed");
            self.closes = true;
        }
        if faults.restarts + faults.cuts > 0 || self.manners.refuses_once_in > 0 {
            self.excuse_losses();
        }
        if chance.once_in(6) {
            self.faults.takeovers = chance.within(1..=3);
            // Transactions that last longer are left behind.
            let patience = chance.within(1..=3);
            self.settings.push(format!("suspend_timeout = {patience}"));
            // In the middle of a login, and when the kernel accepts no more bytes.
            self.excuses
                .extend(["pooler is shutting down", "suspend_timeout"]);
        }
    }

    /// Sessions may be lost at any moment.
    fn excuse_losses(&mut self) {
        self.excuses.extend([
            "server conn crashed?",
            "terminating connection",
            "server login has been failing",
            "the database system is starting up",
            "sorry, too many clients",
            "connect failed",
            "unexpected bytes from server",
            "client_login_timeout",
        ]);
        self.closes = true;
        self.strict_limits = false;
    }

    /// Some runs are about DDL. In some of these, Howdah sees all of the DDL.
    fn choose_ddl(&mut self, chance: &mut Chance) {
        if !chance.once_in(3) {
            return self.weights.weigh_tables(None);
        }
        self.weights.weigh_tables(Some(chance.within(2..=30)));
        self.units += chance.within(0..=20);
        self.tongue.schema = true;
        self.tongue.hides_ddl = chance.once_in(3);
        if chance.once_in(3) {
            self.faults.outside = chance.within(1..=6);
        }
    }

    /// The name of the host with this number, from 1.
    pub fn host_name(&self, number: usize) -> String {
        let has_name = self.roles.is_some_and(|roles| roles.have_names);
        let prefix = if has_name { "db" } else { "127.0.0." };
        format!("{prefix}{number}")
    }

    fn host_list(&self, database: &Database) -> String {
        let Some(roles) = self.roles else {
            return database.host.into();
        };
        let hosts = (1..=roles.hosts).map(|number| self.host_name(number));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// The configuration. A reload has other limits.
    pub fn config(&self) -> Arc<Config> {
        let mut text = String::from("[databases]\n");
        for database in &self.databases {
            text += &format!(
                "{} = host={} port=5432 pool_size={} reserve_pool_size={} min_pool_size={}",
                database.name,
                self.host_list(database),
                database.size,
                database.reserve,
                database.least
            );
            if database.wish != SessionAttrs::Any {
                text += &format!(" target_session_attrs={}", database.wish);
                if !database.shares_load {
                    text += " load_balance_hosts=disable";
                }
            }
            if let Some(reads) = database.reads {
                text += &reads.to_string();
            }
            if database.connects_with {
                text += " connect_query='select 1'";
            }
            if database.most > 0 {
                text += &format!(" max_db_connections={}", database.most);
            }
            for (name, value) in &database.settings {
                text += &format!(" {name}={value}");
            }
            text.push('\n');
        }
        if let Some(sharding) = &self.sharding {
            text += &sharding.sections();
        }
        text += &format!(
            "[pgbouncer]\nauth_type = trust\nauth_file = list\nadmin_users = admin\n\
             pool_mode = {}\nmax_user_connections = {}\n",
            self.mode, self.user_most
        );
        for line in &self.settings {
            text += line;
            text.push('\n');
        }
        let users = self.users.iter().map(|user| format!("\"{user}\" \"\"\n"));
        let list = format!(
            "\"admin\" \"\"\n\"howdah\" \"\"\n{}",
            users.collect::<String>()
        );
        match Config::load("sim.ini", &text, &mut |_| Ok(list.clone())) {
            Ok((mut config, _)) => {
                if self.tls {
                    config.tls.clients = SslMode::Allow;
                    config.tls.travels_by = Some(tls::NAME);
                }
                config.tls.servers = match self.manners.secrecy {
                    Secrecy::Clear => SslMode::Disable,
                    Secrecy::Preferred(_) => SslMode::Prefer,
                    Secrecy::Required => SslMode::Require,
                };
                Arc::new(config)
            }
            Err(mistakes) => panic!("{mistakes:?} in:\n{text}"),
        }
    }

    /// The limits in the configuration.
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if !self.strict_limits {
            return limits;
        }
        for database in &self.databases {
            for user in &self.users {
                let login = (database.name.clone(), user.clone());
                let listener = usize::from(self.shares_listen || self.sharding.is_some());
                limits
                    .pool
                    .insert(login, database.size + database.reserve + listener);
            }
            if database.most > 0 {
                limits.database.insert(database.name.clone(), database.most);
            }
        }
        if self.user_most > 0 {
            for user in &self.users {
                limits.user.insert(user.clone(), self.user_most);
            }
        }
        limits
    }

    /// True if no client must keep a server to listen.
    pub fn always_shares_listen(&self) -> bool {
        let faults = &self.faults;
        let faults = faults.orders + faults.restarts + faults.cuts + faults.takeovers;
        let bounds = self
            .databases
            .iter()
            .map(|database| database.most)
            .sum::<usize>();
        let refusals = self.manners.refuses_once_in + self.user_most + bounds;
        self.shares_listen && faults + refusals == 0
    }

    /// What a standby can't do always runs again at the primary, unless a cancel request is in the
    /// way: nothing else keeps Howdah from it.
    pub fn heals_reads(&self) -> bool {
        let faults = &self.faults;
        let faults = faults.orders + faults.takeovers + self.manners.speaks_once_in;
        self.strict_limits && faults == 0
    }

    /// How servers are kept for clients that have left something there.
    pub fn keeping(&self) -> Keeping {
        let mut limit = self.settings.iter().rev();
        let limit = limit.find_map(|line| line.strip_prefix("pin_limit = "));
        match (self.mode, limit) {
            ("transaction", _) if self.tongue.discards => Keeping::Never,
            ("transaction", Some("1000")) => Keeping::ForAll,
            ("transaction", _) => Keeping::ForSome,
            _ => Keeping::Always,
        }
    }

    /// Nothing holds up a request to cancel.
    pub fn cancels_are_prompt(&self) -> bool {
        let manners = &self.manners;
        let faults = &self.faults;
        let late = manners.cancel_late_once_in
            + manners.cancel_cut_once_in
            + manners.cancel_missed_once_in;
        let broken = faults.restarts + faults.cuts + faults.orders + manners.refuses_once_in;
        let broken = broken + faults.takeovers + faults.mishaps;
        let held_up = self.weather.delay_once_in + self.accept_fails;
        late + broken + held_up == 0 && !faults.workers_stall
    }

    /// The settings of a process that takes over: the same, or others.
    pub fn succeeded(&self, chance: &mut Chance) -> Scenario {
        let mut succeeded = if chance.once_in(2) {
            self.edited(chance)
        } else {
            self.clone()
        };
        if chance.once_in(3) {
            succeeded.workers = chance.within(1..=4) as u16;
        }
        succeeded
    }

    /// The same with other limits, as after an edit of the file.
    pub fn edited(&self, chance: &mut Chance) -> Scenario {
        let mut edited = self.clone();
        if let Some(sharding) = edited.sharding.as_mut().filter(|of| of.changes) {
            sharding.in_file = chance.within(0..=1);
        }
        for database in &mut edited.databases {
            database.size = (database.size + chance.within(0..=3))
                .saturating_sub(1)
                .max(1);
            if database.most > 0 {
                database.most = chance.within(1..=5);
            }
        }
        edited
    }
}
