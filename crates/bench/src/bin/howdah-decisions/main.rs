//! `howdah-decisions ROW TIMES [SETTING=VALUE]...`: plays transactions on the decision ring alone,
//! in one thread, without a kernel. `./bench decisions` counts the instructions with callgrind. The
//! count is the same in every run of the same binary, however busy the machine is. At the end a line
//! says how many bytes the actions handed to sockets: `relayed 720 written 0`.
//!
//! `howdah-decisions grow INPUT SIZE`: plays an input of this size, for `./bench growth`.
//! `howdah-decisions --growing` names the inputs and their sizes.
//!
//! `howdah-decisions scrape TIMES`: asks a worker with 10,000 clients in 1,000 pools for metrics.

mod growing;
mod sharded;

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;

use howdah_bench::session::message;
use howdah_pooler::broker::Broker;
use howdah_pooler::config::Config;
use howdah_pooler::console::Survey;
use howdah_pooler::effect::VolatileNames;
use howdah_pooler::event::{
    Action, Address, ClientId, Ends, Event, Out, Peer, Question, ServerId, Time,
};
use howdah_pooler::mail::Mail;
use howdah_pooler::roster::round::Cover;
use howdah_pooler::roster::view::{HostList, HostStanding, Instance, ListView, Role, State, View};
use howdah_pooler::{Pooler, PoolerSetup, seeded};

/// A transaction: the client's messages, and PostgreSQL's answers.
struct Row {
    name: &'static str,
    request: fn() -> Vec<u8>,
    /// PostgreSQL's answer.
    reply: fn() -> Vec<u8>,
}

/// The row with a new client for each transaction.
const LOGIN: &str = "login";

/// The rows, as `./bench decisions` shows them.
const ROWS: [Row; 7] = [
    Row {
        name: "simple",
        request: || query("select 1"),
        reply: || [rows(1), ready()].concat(),
    },
    Row {
        name: "simple-480-bytes",
        request: || query(&format!("select 1 where '{}' <> ''", "x".repeat(456))),
        reply: || [rows(1), ready()].concat(),
    },
    Row {
        name: "simple-101-rows",
        request: || query("select 1"),
        reply: || [rows(101), ready()].concat(),
    },
    Row {
        name: "transaction-block",
        request: || query("begin"),
        reply: || [complete("BEGIN"), message(b'Z', b"T")].concat(),
    },
    Row {
        name: "extended",
        request: || [message(b'P', b"\0select 1\0\0\0"), execute("")].concat(),
        reply: || [message(b'1', b""), bound(), ready()].concat(),
    },
    Row {
        name: "prepared",
        request: || execute("s"),
        reply: || [bound(), ready()].concat(),
    },
    // A transaction, with the login and Terminate of its client.
    Row {
        name: LOGIN,
        request: || query("select 1"),
        reply: || [rows(1), ready()].concat(),
    },
];

/// What a standby says of itself: its system identifier, and when it was started.
const SYSTEM: u64 = 7;
const STARTED: &str = "1";

/// A client's value of `work_mem`, by the client's number.
type WorkMem = fn(usize) -> Option<String>;

/// Rows with two clients that use one server in turn. First each client sets `work_mem` to its
/// value, if any. The cost of a setting is the difference between the first row and the others.
const TURNS: [(&str, WorkMem); 3] = [
    ("turns", |_| None),
    ("turns-one-setting", |_| Some("8MB".into())),
    ("turns-two-settings", |client| {
        Some(format!("{}MB", 8 + client))
    }),
];

/// Single reads at a standby (`read_routing = statements`): a row of [`ROWS`] as it is with routing.
const READS: [(&str, usize); 2] = [("read-simple", 0), ("read-prepared", 5)];

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// Bind, Describe, Execute and Sync.
fn execute(statement: &str) -> Vec<u8> {
    let bind = format!("\0{statement}\0\0\0\0\0\0\0");
    [
        message(b'B', bind.as_bytes()),
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ]
    .concat()
}

fn bound() -> Vec<u8> {
    [message(b'2', b""), rows(1)].concat()
}

fn row_description() -> Vec<u8> {
    let column = b"\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
    message(b'T', column)
}

fn rows(number: usize) -> Vec<u8> {
    let mut bytes = row_description();
    for _ in 0..number {
        bytes.extend(message(b'D', b"\0\x01\0\0\0\x011"));
    }
    bytes.extend(complete(&format!("SELECT {number}")));
    bytes
}

fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
    names.extend(TURNS.map(|(name, _)| name));
    names.extend(READS.map(|(name, _)| name));
    names.extend(sharded::ROWS.map(|row| row.name));
    if arguments.first().is_some_and(|name| name == "scrape") {
        return match scrape(
            arguments
                .get(1)
                .and_then(|times| times.parse().ok())
                .unwrap_or(1),
        ) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("howdah-decisions: scrape: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if arguments == ["--growing"] {
        for input in growing::ALL {
            println!("{} {}", input.name, input.size);
        }
        return ExitCode::SUCCESS;
    }
    if let [grow, name, size] = &arguments[..]
        && grow == "grow"
    {
        let size = size.parse().map_err(|_| "no such size".to_string());
        return match size.and_then(|size| growing::play(name, size)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("howdah-decisions: {name}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if arguments == ["--rows"] {
        println!("{}", names.join("\n"));
        return ExitCode::SUCCESS;
    }
    let name = arguments.first().map_or("", String::as_str);
    let times = arguments.get(1).and_then(|times| times.parse().ok());
    let (Some(times), true) = (times, names.contains(&name)) else {
        eprintln!(
            "howdah-decisions: say ROW TIMES [SETTING=VALUE]...; ROW is one of {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    match play_named(name, times, &arguments[2..].join("\n")) {
        Ok(world) => {
            println!("relayed {} written {}", world.relayed, world.written);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("howdah-decisions: {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn play_named(name: &str, times: usize, settings: &str) -> Result<World, String> {
    if let Some((_, work_mem)) = TURNS.iter().find(|turns| turns.0 == name) {
        return play_turns(*work_mem, times, settings);
    }
    if let Some((_, row)) = READS.iter().find(|reads| reads.0 == name) {
        return play_reads(&ROWS[*row], times, settings);
    }
    if let Some(row) = sharded::ROWS.iter().find(|row| row.name == name) {
        return sharded::play(row, times, settings);
    }
    let row = ROWS.iter().find(|row| row.name == name);
    play(row.ok_or("there is no such row")?, times, settings)
}

/// Asks a worker with 10,000 clients in 1,000 pools for metrics.
fn scrape(times: u64) -> Result<(), String> {
    let mut world = World::new("max_client_conn = 20000\nserver_idle_timeout = 0")?;
    for pool in 0..1000 {
        let database = format!("d{pool}");
        world.log_in(&database)?;
        for _ in 1..10 {
            world.let_in(&database)?;
        }
    }
    for serial in 0..times {
        let survey = Survey::for_metrics(serial);
        world.happen(Event::Mail(Mail::Survey(survey)));
    }
    if world.surveyed == times {
        Ok(())
    } else {
        Err("a survey has no answer".into())
    }
}

fn play(row: &Row, times: usize, settings: &str) -> Result<World, String> {
    let mut world = World::new(settings)?;
    world.log_in("d")?;
    world.transaction(&query("select 1"), &[rows(1), ready()].concat())?;
    world.prepare()?;
    let (request, reply) = ((row.request)(), (row.reply)());
    let (commit, committed) = (query("commit"), [complete("COMMIT"), ready()].concat());
    let in_block = reply.ends_with(b"T");
    let logs_in = row.name == LOGIN;
    for _ in 0..times {
        if logs_in {
            world.let_in("d")?;
        }
        world.transaction(&request, &reply)?;
        if logs_in {
            world.leave()?;
        }
        if in_block {
            world.transaction(&commit, &committed)?;
        }
    }
    Ok(world)
}

fn play_reads(row: &Row, times: usize, settings: &str) -> Result<World, String> {
    const HOSTS: &str = "r = host=127.0.0.1,127.0.0.2 port=5432 target_session_attrs=primary";
    let routing = format!("read_routing = statements\n{settings}");
    let mut world = World::with(HOSTS, &routing)?;
    world.knows_hosts("r")?;
    world.log_in("r")?;
    let nothing = Arc::new(VolatileNames::default());
    world.happen(Event::Mail(Mail::VolatileNames("r".into(), 0, nothing)));
    let client = Peer::Client(world.client.ok_or("no client")?);
    world.happen(Event::Received(client, &query("select 1")));
    world.standby_logs_in()?;
    world.prepare()?;
    let (request, reply) = ((row.request)(), (row.reply)());
    for _ in 0..times {
        world.transaction(&request, &reply)?;
    }
    Ok(world)
}

fn play_turns(
    work_mem: fn(usize) -> Option<String>,
    times: usize,
    settings: &str,
) -> Result<World, String> {
    let mut world = World::new(&format!("default_pool_size = 1\n{settings}"))?;
    world.log_in("d")?;
    let one = world.client.ok_or("no client")?;
    world.let_in("d")?;
    let clients = [one, world.client.ok_or("no other client")?];
    for (number, client) in clients.into_iter().enumerate() {
        world.client = Some(client);
        if let Some(value) = work_mem(number) {
            world.turn(&query(&format!("set work_mem = '{value}'")), &value)?;
        }
    }
    let select = query("select 1");
    for turn in 0..times {
        world.client = Some(clients[turn % 2]);
        world.turn(&select, "")?;
    }
    Ok(world)
}

/// PostgreSQL's answers to these messages, with this value of `work_mem`.
fn answers(mut asked: &[u8], work_mem: &str) -> Vec<u8> {
    let (mut answers, mut parsed): (Vec<u8>, &[u8]) = (Vec::new(), b"");
    while let [_, l0, l1, l2, l3, ..] = *asked {
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let (whole, rest) = asked.split_at(1 + length as usize);
        match whole[0] {
            b'Q' if whole[5..].starts_with(b"select 1") => {
                answers.extend([rows(1), ready()].concat())
            }
            // Howdah asks for the value of a setting, in hexadecimal digits.
            b'Q' if whole[5..].starts_with(b"SELECT pg_catalog.encode(") => {
                let digits: String = work_mem.bytes().map(|byte| format!("{byte:02x}")).collect();
                let mut row = vec![0, 1, 0, 0, 0, digits.len() as u8];
                row.extend(digits.as_bytes());
                let row = message(b'D', &row);
                answers.extend([row_description(), row, complete("SELECT 1"), ready()].concat());
            }
            b'Q' => answers.extend([complete("SET"), ready()].concat()),
            b'P' => {
                parsed = &whole[6..];
                answers.extend(message(b'1', b""));
            }
            b'E' if parsed.starts_with(b"BEGIN") => answers.extend(complete("BEGIN")),
            b'E' if parsed.starts_with(b"COMMIT") => answers.extend(complete("COMMIT")),
            b'E' => {
                let row = message(b'D', b"\0\x01\0\0\0\x038MB");
                answers.extend([row, complete("SELECT 1")].concat());
            }
            b'B' => answers.extend(message(b'2', b"")),
            b'C' => answers.extend(message(b'3', b"")),
            b'D' => answers.extend(message(b'n', b"")),
            b'S' => answers.extend(ready()),
            _ => {}
        }
        asked = rest;
    }
    answers
}

/// One worker and the Broker, with clients and servers.
struct World {
    pooler: Pooler,
    config: Arc<Config>,
    broker: Broker,
    now: u64,
    out: Out,
    client: Option<ClientId>,
    server: Option<ServerId>,
    /// The connection that was closed last.
    closing: Option<Peer>,
    /// Bytes sent to the client and to the server by the current event.
    sent: [usize; 2],
    /// Bytes that went from socket to socket as they came.
    relayed: usize,
    /// Bytes that Howdah wrote itself, or had kept until then.
    written: usize,
    /// The number of answers for metrics.
    surveyed: u64,
    /// Bytes that the server has got and not answered.
    unanswered: Vec<u8>,
    /// The server is in a transaction.
    inside: bool,
}

impl World {
    fn new(settings: &str) -> Result<World, String> {
        World::with("* = host=127.0.0.1 port=5432", settings)
    }

    fn with(databases: &str, settings: &str) -> Result<World, String> {
        let text = &format!(
            "[databases]\n{databases}\n[pgbouncer]\nauth_type = trust\nauth_file = list\n\
             pool_mode = transaction\n{settings}\n"
        );
        let list = |_: &str| Ok("\"u\" \"\"\n".to_string());
        let (config, _) = Config::load("bench.ini", text, &mut { list })
            .map_err(|mistakes| format!("{mistakes:?}"))?;
        let config = Arc::new(config);
        let setup = PoolerSetup::repeatable(1, &config).next();
        Ok(World {
            pooler: Pooler::new(setup.ok_or("no worker")?),
            config,
            broker: Broker::new(seeded(0)),
            now: 1_000_000_000,
            out: Out::default(),
            client: None,
            server: None,
            closing: None,
            sent: [0; 2],
            relayed: 0,
            written: 0,
            surveyed: 0,
            unanswered: Vec::new(),
            inside: false,
        })
    }

    /// A client connects and sends its start-up packet.
    fn let_in(&mut self, database: &str) -> Result<(), String> {
        self.happen(Event::Accepted(ends(1)));
        let client = self.client.ok_or("the client is not adopted")?;
        let names = format!("\0\x03\0\0user\0u\0database\0{database}\0\0");
        let length = (names.len() as u32 + 4).to_be_bytes();
        // With proxy_protocol=127.0.0.1, a balancer's header comes first.
        let balancers = &self.config.globals.proxy_protocol;
        let header: &[u8] = match balancers.has(IpAddr::V4(Ipv4Addr::LOCALHOST)) {
            true => b"PROXY TCP4 192.0.2.7 127.0.0.1 5000 6432\r\n",
            false => b"",
        };
        let startup = [header, &length[..], names.as_bytes()].concat();
        self.happen(Event::Received(Peer::Client(client), &startup));
        Ok(())
    }

    /// The first client of a pool logs in, and its server is opened.
    fn log_in(&mut self, database: &str) -> Result<(), String> {
        self.let_in(database)?;
        self.settle();
        self.server_logs_in()?;
        match self.sent[0] {
            0 => Err("the client is not let in".into()),
            _ => Ok(()),
        }
    }

    /// A server that was opened logs in.
    fn server_logs_in(&mut self) -> Result<(), String> {
        let server = self.server.ok_or("no server is opened")?;
        self.happen(Event::Connected(server, Ok(ends(2))));
        let mut welcome = message(b'R', &[0; 4]);
        for (name, value) in [
            ("server_version", "17.0"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, MDY"),
            ("TimeZone", "GMT"),
            ("standard_conforming_strings", "on"),
        ] {
            welcome.extend(message(b'S', format!("{name}\0{value}\0").as_bytes()));
        }
        welcome.extend(message(b'K', &[0, 0, 0, 9, 1, 2, 3, 4]));
        welcome.extend(ready());
        self.happen(Event::Received(Peer::Server(server), &welcome));
        self.settle();
        Ok(())
    }

    /// The first host of a database is the primary; the other one is a standby that has replayed all.
    fn knows_hosts(&mut self, database: &str) -> Result<(), String> {
        let hosts = &self
            .config
            .databases
            .get(database)
            .ok_or("no database")?
            .hosts;
        let list: HostList = hosts.as_slice().into();
        let standing = |role| HostStanding {
            role: Some(role),
            state: State::Up,
            behind: false,
            lag_over: 0,
            read_only: false,
            hidden: false,
            why: "".into(),
            since: Time(0),
            timeline: Some(1),
            lsn: None,
        };
        let standings = [Role::Primary, Role::Standby].map(standing);
        let view = ListView {
            hosts: list.iter().cloned().zip(standings).collect(),
        };
        let view = View {
            lists: [(list.clone(), view)].into(),
        };
        let cover = Cover {
            instance: Instance::of(SYSTEM, STARTED),
            round: u64::MAX,
            lag: 0,
        };
        let covers = Arc::new([(list[1].clone(), cover)].into());
        self.happen(Event::Mail(Mail::Hosts(Arc::new(view))));
        self.happen(Event::Mail(Mail::Covers(list, covers)));
        Ok(())
    }

    /// The server that was opened at the standby logs in, tells its instance, and answers the client
    /// that waits for it.
    fn standby_logs_in(&mut self) -> Result<(), String> {
        self.settle();
        self.server_logs_in()?;
        let mut row = vec![0, 3];
        for value in [&SYSTEM.to_string(), STARTED, "read committed"] {
            row.extend((value.len() as u32).to_be_bytes());
            row.extend(value.as_bytes());
        }
        let told = [message(b'D', &row), complete("SELECT 1"), ready()].concat();
        let server = Peer::Server(self.server.ok_or("no server")?);
        self.sent = [0; 2];
        self.happen(Event::Received(server, &told));
        self.settle();
        if self.sent[1] == 0 {
            return Err("the read has not reached the standby".into());
        }
        self.happen(Event::Received(server, &[rows(1), ready()].concat()));
        Ok(())
    }

    /// Like a driver: prepares a statement and has it described before using it.
    fn prepare(&mut self) -> Result<(), String> {
        self.prepare_text("select 1")
    }

    fn prepare_text(&mut self, text: &str) -> Result<(), String> {
        let parse = [
            message(b'P', format!("s\0{text}\0\0\0").as_bytes()),
            message(b'D', b"Ss\0"),
            message(b'S', b""),
        ];
        let described = [
            message(b'1', b""),
            message(b't', b"\0\0"),
            row_description(),
            ready(),
        ];
        self.transaction(&parse.concat(), &described.concat())
    }

    /// The client sends Terminate.
    fn leave(&mut self) -> Result<(), String> {
        let client = Peer::Client(self.client.ok_or("the client is gone")?);
        self.closing = None;
        self.happen(Event::Received(client, &message(b'X', b"")));
        if self.closing != Some(client) {
            return Err("a client that says goodbye is not closed".into());
        }
        self.happen(Event::Closed {
            peer: client,
            gone: true,
        });
        Ok(())
    }

    fn transaction(&mut self, request: &[u8], reply: &[u8]) -> Result<(), String> {
        let client = self.client.ok_or("the client is gone")?;
        self.sent = [0; 2];
        self.happen(Event::Received(Peer::Client(client), request));
        if self.sent[1] == 0 {
            return Err("nothing reached the server".into());
        }
        let server = self.server.ok_or("the server is gone")?;
        self.happen(Event::Received(Peer::Server(server), reply));
        match self.sent[0] {
            0 => Err("nothing reached the client".into()),
            _ => Ok(()),
        }
    }

    /// Sends a client's request, and PostgreSQL's answers to all resulting messages, until the
    /// client has its answer.
    fn turn(&mut self, request: &[u8], work_mem: &str) -> Result<(), String> {
        let client = Peer::Client(self.client.ok_or("the client is gone")?);
        let server = Peer::Server(self.server.ok_or("the server is gone")?);
        self.sent = [0; 2];
        let mut asked = self.happen_overheard(client, request);
        while !asked.is_empty() {
            asked = self.happen_overheard(server, &answers(&asked, work_mem));
        }
        match self.sent[0] {
            0 => Err("nothing reached the client".into()),
            _ => Ok(()),
        }
    }

    /// Ticks a few times, so that the worker handles its own mail.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.happen(Event::Tick);
        }
    }

    /// Handles bytes from a client or server. Returns the bytes sent to servers.
    fn happen_overheard(&mut self, from: Peer, received: &[u8]) -> Vec<u8> {
        self.now += 1_000;
        let event = Event::Received(from, received);
        self.pooler.handle(Time(self.now), event, &mut self.out);
        let mut asked = Vec::new();
        for action in &self.out.actions {
            let (peer, bytes) = match action {
                Action::Send(peer, range) => (peer, &self.out.bytes[range.clone()]),
                Action::Relay(peer, range) => (peer, &received[range.clone()]),
                _ => continue,
            };
            if matches!(peer, Peer::Server(_)) {
                asked.extend_from_slice(bytes);
            }
        }
        self.act();
        asked
    }

    fn happen(&mut self, event: Event<'_>) {
        self.now += 1_000;
        self.pooler.handle(Time(self.now), event, &mut self.out);
        self.act();
    }

    fn act(&mut self) {
        let mut mail = Vec::new();
        for action in self.out.actions.drain(..) {
            match action {
                Action::Adopt(id) => self.client = Some(id),
                Action::Connect(id, ..) => self.server = Some(id),
                Action::Close { peer, .. } => self.closing = Some(peer),
                Action::Send(peer, range) => {
                    self.sent[side(peer)] += range.len();
                    self.written += range.len();
                }
                Action::Relay(peer, range) => {
                    self.sent[side(peer)] += range.len();
                    self.relayed += range.len();
                }
                Action::Post(_, letter) => mail.push(letter),
                Action::Broker(said) => {
                    let post = &mut |_, letter| mail.push(letter);
                    self.broker.handle(Time(self.now), said, post);
                }
                Action::Ask(Question::Surveyed { .. }) => self.surveyed += 1,
                _ => {}
            }
        }
        self.out.clear();
        for letter in mail {
            self.happen(Event::Mail(letter));
        }
    }
}

/// The place of a peer in [`World::sent`].
fn side(peer: Peer) -> usize {
    usize::from(matches!(peer, Peer::Server(_)))
}

fn ends(port: u16) -> Ends {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Ends {
        remote: Address::Tcp(here, 40_000 + port),
        local: Address::Tcp(here, 6432),
        unix_peer: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_reaches_the_server_and_comes_back() {
        for row in &ROWS {
            play(row, 3, "top_queries=9").unwrap_or_else(|error| panic!("{}: {error}", row.name));
        }
        for (name, row) in READS {
            play_reads(&ROWS[row], 3, "").unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for row in &sharded::ROWS {
            sharded::play(row, 3, "").unwrap_or_else(|error| panic!("{}: {error}", row.name));
        }
        for (name, work_mem) in TURNS {
            play_turns(work_mem, 6, "").unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn a_simple_transaction_relays_its_request_and_its_reply_and_writes_nothing() {
        let row = &ROWS[0];
        let [one, two] = [1, 2].map(|times| play(row, times, "").unwrap());
        let both = (row.request)().len() + (row.reply)().len();
        assert_eq!(two.relayed - one.relayed, both);
        assert_eq!(two.written, one.written);
    }
}
