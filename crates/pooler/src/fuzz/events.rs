//! Any sequence of events that the contract allows, for two poolers and a PostgreSQL that answers
//! or sends garbage. Each byte chooses the next event; `world.rs` carries it out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use howdah_wire::write;

use super::client::Client;
use super::world::{End, Socket, Stage, World};
use crate::broker::Broker;
use crate::config::Config;
use crate::event::{Event, Order, WorkerId};
use crate::login::LoginKey;
use crate::mail::Mail;
use crate::{Pooler, PoolerSetup, seeded};

/// Texts for Query and Parse.
const TEXTS: [&[u8]; 16] = [
    b"select 1",
    b"begin",
    b"commit",
    b"rollback",
    b"copy in",
    b"",
    b"deallocate all",
    b"deallocate a",
    b"discard all",
    b"reset all",
    b"set timezone to 'Y'",
    b"create",
    b"prepare x as select 1",
    b"select 2",
    b"reset timezone",
    b"set local timezone to default",
];

/// Texts for the console.
const COMMANDS: [&[u8]; 24] = [
    b"show pools",
    b"show clients",
    b"show servers",
    b"show databases; show users",
    b"show lists; show mem; show stats; show config",
    b"show active_sockets",
    b"pause",
    b"resume",
    b"pause d",
    b"resume d",
    b"reconnect",
    b"kill d",
    b"wait_close",
    b"disable d",
    b"enable d",
    b"reload",
    b"set default_pool_size = 2",
    b"set query_timeout = 1",
    b"set server_idle_timeout = 1",
    b"kill_client 1",
    b"suspend",
    b"show nothing",
    b"shutdown wait_for_clients",
    b"set idle_transaction_timeout = '1'; set query_wait_timeout = 2",
];

/// Plays the events of the input, closes all clients, and verifies that nothing is left.
pub fn events(input: &[u8]) {
    let Some((&kind, input)) = input.split_first() else {
        return;
    };
    let mut world = World::new(kind, input);
    while let (Some(what), false) = (world.byte(), world.ended) {
        world.happen(what);
    }
    if !world.ended {
        world.end();
    }
}

impl World<'_> {
    fn new(kind: u8, input: &[u8]) -> World<'_> {
        let (mode, spread) = [
            ("transaction", "load"),
            ("session", "load"),
            ("statement", "load"),
            ("transaction", "always"),
        ][usize::from(kind & 3)];
        let workers = 1 + usize::from(kind >> 2 & 1);
        let statements = [100, 1, 0, 2][usize::from(kind >> 3 & 3)];
        let size = 1 + (kind >> 5 & 1);
        let limits = [
            "",
            "query_timeout = 2\nidle_transaction_timeout = 3\nmax_user_connections = 1",
        ][usize::from(kind >> 6 & 1)];
        let more = [
            "",
            "server_round_robin = 1\nserver_check_delay = 0\nreserve_pool_size = 1\ntop_queries = 3\n\
             slow_query_time = 0.001\nslow_query_values = 1\ntrace_endpoint = http://127.0.0.1:1\n\
             trace_ratio = 0.5",
        ][usize::from(kind >> 7)];
        let text = format!(
            "[databases]\nd = host=127.0.0.1\ne = host=127.0.0.2 pool_mode=session\n[pgbouncer]\n\
             auth_type = trust\nauth_file = f\nadmin_users = admin\npool_mode = {mode}\n\
             pool_spread = {spread}\ndefault_pool_size = {size}\n\
             max_prepared_statements = {statements}\n{limits}\n{more}\n"
        );
        let users = "\"u\" \"\"\n\"v\" \"\"\n\"admin\" \"\"\n";
        let loaded = Config::load("x.ini", &text, &mut |_| Ok(users.to_string()));
        let config = Arc::new(loaded.expect("this is right").0);
        World {
            input,
            now: 1_000_000_000,
            poolers: PoolerSetup::repeatable(workers as u16, &config)
                .map(Pooler::new)
                .collect(),
            config: config.clone(),
            sockets: Vec::new(),
            loose: BTreeMap::new(),
            next_loose: 0,
            accepted: None,
            broker: Broker::new(seeded(0)),
            mail: (0..workers)
                .map(|_| (0..=workers).map(|_| VecDeque::new()).collect())
                .collect(),
            answers: VecDeque::new(),
            flushed: VecDeque::new(),
            ended: false,
        }
    }

    /// The next byte, if there is one.
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.input.split_first()?;
        self.input = rest;
        Some(byte)
    }

    /// A choice; 0 at the end of the input.
    fn choice(&mut self, of: usize) -> usize {
        usize::from(self.byte().unwrap_or(0)) % of.max(1)
    }

    fn happen(&mut self, what: u8) {
        match what % 32 {
            0..=3 => self.log_in(),
            4..=12 => self.client_says(),
            13..=17 => self.server_does(),
            18..=21 => drop(self.settle(40)),
            22 => self.move_mail(),
            23 => self.answer(),
            24 | 25 => self.pass_time(),
            26 => self.close_one(),
            27 => self.lose(),
            28 => self.congest(),
            29 => self.nonsense(),
            30 => self.order(),
            _ => self.cancel(),
        }
    }

    /// A client connects, mostly with a user name.
    fn log_in(&mut self) {
        let worker = self.choice(self.poolers.len());
        let who = self.choice(16);
        let mut bytes = Vec::new();
        let (user, database) = match who {
            0..=8 => ("u", "d"),
            9 => ("v", "d"),
            10 => ("u", "e"),
            11..=13 => ("admin", "pgbouncer"),
            14 => ("u", "none"),
            _ => ("", ""),
        };
        let mut parameters = vec![("user", user), ("database", database)];
        if who % 4 == 1 {
            parameters.push(("TimeZone", "Y"));
        }
        write::startup(&mut bytes, 0, parameters);
        let client = Client {
            sane: !user.is_empty(),
            admin: user == "admin",
            asked: 1,
            ..Client::default()
        };
        self.accept(worker, client, &bytes);
    }

    /// An open socket of a server or of a client.
    pub(super) fn pick(&mut self, servers: bool) -> Option<usize> {
        let fit = |socket: &Socket| {
            let alive = matches!(socket.stage, Stage::Open | Stage::Detaching);
            alive && servers == matches!(socket.end, End::Server(_))
        };
        let fits: Vec<usize> = (0..self.sockets.len())
            .filter(|at| fit(&self.sockets[*at]))
            .collect();
        (!fits.is_empty()).then(|| fits[self.choice(fits.len())])
    }

    fn client_says(&mut self) {
        let Some(at) = self.pick(false) else { return };
        let mut bytes = Vec::new();
        let console = matches!(&self.sockets[at].end, End::Client(c) if c.admin);
        for _ in 0..=self.choice(4) {
            let ready = self.message(&mut bytes, console);
            if let End::Client(client) = &mut self.sockets[at].end {
                client.asked += usize::from(ready);
            }
        }
        let cut = match self.choice(4) {
            0 => self.choice(bytes.len() + 1),
            _ => bytes.len(),
        };
        if self.sockets[at].receiving {
            self.receive(at, &bytes[..cut]);
            // The event may have moved or closed the socket.
            if cut < bytes.len()
                && let Some(socket) = self.sockets.get(at)
                && socket.stage == Stage::Open
                && matches!(socket.end, End::Client(_))
            {
                self.receive(at, &bytes[cut..]);
            }
        }
    }

    /// Appends a client's message. True if its answer ends in a ReadyForQuery.
    fn message(&mut self, buf: &mut Vec<u8>, console: bool) -> bool {
        let names: [&[u8]; 3] = [b"", b"a", b"b"];
        let what = self.choice(32);
        let (first, text) = (names[self.choice(3)], TEXTS[self.choice(16)]);
        let with = |buf: &mut Vec<u8>, tag: u8, body: &[u8]| {
            write::message(buf, tag, |buf| buf.extend_from_slice(body));
        };
        match what {
            0..=5 if console => {
                write::query(buf, COMMANDS[self.choice(COMMANDS.len())]);
                return true;
            }
            0..=7 => {
                // Few COPYs in a row.
                write::query(buf, text);
                return true;
            }
            8..=12 => write::parse(buf, first, &[text, b"\0\0\0"].concat()),
            13..=15 => {
                write::bind_head(buf, names[self.choice(2)], first, 6);
                buf.extend_from_slice(&[0; 6]);
            }
            16 => write::of_statement(buf, b'D', first),
            17 => with(buf, b'D', b"P\0"),
            18 | 19 => write::of_statement(buf, b'C', first),
            20 => with(buf, b'C', b"P\0"),
            21..=23 => with(buf, b'E', &[first, &[0; 5]].concat()),
            24 => with(buf, b'H', b""),
            25 => with(buf, b'd', b"row\n"),
            26 => with(buf, b'c', b""),
            27 => with(buf, b'f', b"no\0"),
            28 => {
                with(buf, b'F', &[0; 10]);
                return true;
            }
            _ => {
                with(buf, b'S', b"");
                return true;
            }
        }
        false
    }

    /// A connection opens, or PostgreSQL answers.
    fn server_does(&mut self) {
        let connecting = self.sockets.iter();
        let connecting = connecting
            .enumerate()
            .find(|(_, s)| s.stage == Stage::Connecting);
        if let Some((at, _)) = connecting {
            let refused = self.choice(8) == 7;
            return self.connect(at, refused);
        }
        let how = self.byte().unwrap_or(0);
        if let Some(at) = self.pick(true) {
            self.server_answers(at, how);
        }
    }

    fn move_mail(&mut self) {
        let (to, from) = (
            self.choice(self.poolers.len()),
            self.choice(self.poolers.len()),
        );
        if let Some(mail) = self.mail[to][from].pop_front() {
            self.handle(to, Event::Mail(mail), &[]);
        }
    }

    fn answer(&mut self) {
        if let Some((worker, peer)) = self.flushed.pop_front() {
            self.handle(worker, Event::Flushed(peer), &[]);
        }
        if let Some((worker, answer)) = self.answers.pop_front() {
            self.handle(worker, Event::Answer(answer), &[]);
        }
    }

    fn pass_time(&mut self) {
        const STEPS: [u64; 8] = [0, 1, 10, 100, 334, 1_000, 5_000, 60_000];
        self.now += STEPS[self.choice(8)] * 1_000_000;
        self.tick();
    }

    fn close_one(&mut self) {
        let mut sockets = self.sockets.iter().enumerate();
        if let Some((at, _)) = sockets.find(|(_, s)| s.stage == Stage::Closing) {
            self.closed(at);
        } else if let Some((at, _)) =
            { self.sockets.iter().enumerate() }.find(|(_, s)| s.stage == Stage::Detaching)
        {
            self.detached(at);
        }
    }

    fn lose(&mut self) {
        let servers = self.choice(2) == 1;
        if let Some(at) = self.pick(servers) {
            self.lose_at(at);
        }
    }

    fn congest(&mut self) {
        let servers = self.choice(2) == 1;
        let Some(at) = self.pick(servers) else { return };
        self.turn_congestion(at);
    }

    /// Sends bytes of the input, from a client or a server.
    fn nonsense(&mut self) {
        let servers = self.choice(2) == 1;
        let Some(at) = self.pick(servers) else { return };
        let count = self.choice(32).min(self.input.len());
        let (bytes, rest) = self.input.split_at(count);
        self.input = rest;
        match &mut self.sockets[at].end {
            End::Server(postgres) => postgres.honest = false,
            End::Client(client) => client.sane = false,
        }
        if self.sockets[at].receiving {
            self.receive(at, bytes);
        }
    }

    fn order(&mut self) {
        let d = || Some("d".to_string());
        let order = match self.choice(16) {
            0 | 1 => Order::Pause(None),
            2 | 3 => Order::Resume(None),
            4 => Order::Pause(d()),
            5 => Order::Resume(d()),
            6 => Order::Reconnect(None),
            7 => Order::Kill(d()),
            8 => return self.reload(),
            9 => Order::ShutdownWaitForClients,
            10 => Order::ShutdownWaitForServers,
            11 | 12 => return self.shed(),
            13 => Order::Shuffle,
            14 => Order::EndClients { over: 1_000_000 },
            _ => Order::Reconnect(d()),
        };
        for worker in 0..self.poolers.len() {
            self.handle(worker, Event::Order(order.clone()), &[]);
        }
    }

    /// The control thread orders a worker to hand clients to another one.
    fn shed(&mut self) {
        let from = self.choice(self.poolers.len());
        let mail = Mail::Shed {
            login: LoginKey::new("d", "u"),
            to: WorkerId(self.choice(self.poolers.len()) as u16),
            clients: 1 + self.choice(3) as u32,
            idle: self.choice(2) == 1,
        };
        self.handle(from, Event::Mail(mail), &[]);
    }

    /// Changes a setting.
    fn reload(&mut self) {
        const CHANGES: [(&str, &str); 10] = [
            ("default_pool_size", "1"),
            ("default_pool_size", "3"),
            ("max_prepared_statements", "0"),
            ("max_prepared_statements", "5"),
            ("pool_mode", "session"),
            ("pool_mode", "transaction"),
            ("server_fast_close", "1"),
            ("min_pool_size", "1"),
            ("top_queries", "0"),
            ("top_queries", "2"),
        ];
        let (key, value) = CHANGES[self.choice(10)];
        self.set(key, value);
    }

    fn cancel(&mut self) {
        let Some(at) = self.pick(false) else { return };
        let End::Client(Client {
            key: Some((pid, secret)),
            ..
        }) = &self.sockets[at].end
        else {
            return;
        };
        let mut bytes = Vec::new();
        write::cancel_request(&mut bytes, *pid, secret);
        let worker = self.choice(self.poolers.len());
        self.accept(worker, Client::default(), &bytes);
    }
}
