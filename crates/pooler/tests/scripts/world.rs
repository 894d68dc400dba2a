//! Plays scripts. The events:
//!
//! - `setup workers=2 key=value ...`: comes first. Sets settings of PgBouncer, and settings of the
//!   database `d` by `d.key=value`. `~` is a blank. `d.users.u=x`: servers of `u` log in as `x`. A second database `e` has no settings.
//!   `sharded`: there is a database `prod` with two shards; `rehearsal`: with one; `tenant=...`: with
//!   this distribution.
//! - `a login name=value ...`, `a@1 login`: a client connects (to a worker) and logs in as `u`.
//! - `a Q(select 1) S`: a client sends messages. `a [7] Q(...)`: the client sends only 7 bytes; `a
//!   rest` sends the others.
//! - `s1 up`: PostgreSQL accepts a connection and the login. `s1 connected`, `s1 refused`, `s1 1 2
//!   C(SELECT 1) ZI`: PostgreSQL sends messages, or `[7]` bytes of them. `s1 connected to a
//!   stranger`: another system user is behind the socket.
//! - `a lost`, `s1 lost`, `s1 reset`, `s1 detached`, `a congested`, `a drained`.
//! - `settings(SELECT ...)` sets a client's settings on a server, together with the client's first
//!   messages; `s1 settings` is the answer.
//! - In PostgreSQL's messages `#1` stands for the server's name of a statement.
//! - `a connect from 10.0.0.5`: a client connects from this address; `a header TCP4 ...`: it, or its
//!   balancer, sends this header of the PROXY protocol; `a header [12] ...`: only 12 bytes of it.
//! - `a connect`: a client connects and sends nothing yet; `a login` logs it in. `a ssl request`,
//!   `a ssl request, more` (with one byte more), `a client hello`: the client asks for TLS. `a
//!   tls`, `a tls fails`: the result of the handshake. `s1 raw S`: PostgreSQL sends this byte.
//! - `cancel a`: a client `x1`, `x2`, ... cancels `a`; `cancel a bit 24`: with this bit of the
//!   secret flipped.
//! - `a many names 5000`: a client prepares 5000 statements on `s1`. The messages are not shown.
//! - `mail`: delivers the workers' mail, until no mail is left.
//! - `turn`: from now on a worker's second look at a cancel request waits for the next `turn`.
//! - `shed 0 1 2`: the control thread orders worker 0 to hand two clients of `d` to worker 1.
//! - `seat 1 2`, `seat new 1`: the control thread sends new clients of `d` to workers 1 and 2 in
//!   turn, and new clients of pools without seats to worker 1.
//! - `settings key=value ...`: reloads the configuration with these changes. `d.key=value` replaces
//!   all settings of `d`.
//! - `wait 5s`, `wait 10ms`; `order pause`, `order pause prod`, `order resume`, `order resume prod`,
//!   `order disable prod_1`, `order reconnect`, `order shutdown clients`, `order shutdown servers`, `order end clients in 8s`, `order hand over`, `order pack`: to all
//!   workers.
//! - `successor`: a process with the same settings adopts the packed connections. `back`: they
//!   return to this process.
//! - `answer 1 yes`, `answer 1 yes for 5s` (a token that lasts so long), `answer 2 no`, `answer 3
//!   127.0.0.1`: the control thread answers a question, numbered in order. `moved name 127.0.0.1`: the name does not lead there any more.
//!
//! Servers, and the carriers of cancels, are `s1`, `s2`, ... in the order of their connects.
//! Sockets close at once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Weak};

use howdah_pooler::auth::Secret;
use howdah_pooler::broker::Broker;
use howdah_pooler::config::{Config, User};
use howdah_pooler::event::{
    Address, Answer, Ends, Event, LooseSocket, Order, Out, Peer, Time, UnixPeer, Verified, WorkerId,
};
use howdah_pooler::login::LoginKey;
use howdah_pooler::mail::{Mail, ToBroker};
use howdah_pooler::parcel::{Estate, Parcel};
use howdah_pooler::tls::{TlsFacts, TlsInForce};
use howdah_pooler::{Pooler, PoolerSetup, seeded};
use howdah_wire::write;

mod told;

use told::mail_word;

use crate::messages::{client_message, server_message, words};

/// Plays each case of a script and compares the results.
pub fn play(script: &str) {
    let mut failed = false;
    let mut whole = String::new();
    for case in script.split("\n= ") {
        let mut world = World::default();
        let mut played = String::new();
        for line in case.lines() {
            let comment = !line.starts_with("> ") && played.lines().all(|l| !l.starts_with("> "));
            if line.starts_with('#') || line.is_empty() || comment {
                writeln!(played, "{line}").unwrap();
            } else if let Some(happening) = line.strip_prefix("> ") {
                writeln!(played, "{line}").unwrap();
                // Shown only if the test fails, up to the failure.
                println!("{line}");
                world.happen(happening);
                let log = world.take_log();
                print!("{log}");
                played.push_str(&log);
            }
        }
        failed |= played.trim_end() != case.trim_end();
        if !whole.is_empty() {
            whole.push_str("\n= ");
        }
        whole.push_str(played.trim_end());
        whole.push('\n');
    }
    if failed {
        for (line, (is, was)) in whole.lines().zip(script.lines()).enumerate() {
            if is != was {
                println!("first difference in line {}:\n- {was}\n+ {is}", line + 1);
                break;
            }
        }
        println!("-----8<-----\n{whole}-----8<-----");
        panic!("something else came of it");
    }
}

/// Its shards are two more databases.
const SHARDS: &str = "prod_0 = host=127.0.0.1 port=5440\nprod_1 = host=127.0.0.1 port=5441\n\
                      prod = shards=prod_0,prod_1\n";
const TENANTS: &str = "range bigint 0-99=prod_0 100-199=prod_1";
const REHEARSAL: &str = "hash bigint slots=64 0-63=prod_0";
const TABLES: &str =
    "[tables:prod]\npublic.countries = replicated(prod_0)\npublic.* = tenant(account_id)\n";

/// A time such as `5s`, in nanoseconds.
fn nanos(time: &str) -> u64 {
    let units = [("ms", 1_000_000), ("us", 1_000), ("s", 1_000_000_000)];
    let found = units
        .iter()
        .find_map(|(name, unit)| Some((time.strip_suffix(name)?, unit)));
    let (number, unit) = found.unwrap();
    number.parse::<u64>().unwrap() * unit
}

#[derive(Default)]
struct World {
    poolers: Vec<Pooler>,
    broker: Option<Broker>,
    now: u64,
    /// Worker and id of each connection, by name.
    peers: BTreeMap<String, (usize, Peer)>,
    /// Bytes sent to each connection that are not yet a whole message.
    streams: BTreeMap<String, Vec<u8>>,
    /// Bytes left over by a `[7]`.
    rests: BTreeMap<String, Vec<u8>>,
    keys: BTreeMap<String, (u32, Vec<u8>)>,
    own_mail: VecDeque<(usize, Mail)>,
    /// Second looks that wait for the next `turn`, once a script uses turns.
    next_turn: Option<VecDeque<(usize, Mail)>>,
    mail: VecDeque<(usize, Mail)>,
    closed: VecDeque<(usize, Peer)>,
    adopting: String,
    /// The distribution of the sharded database; empty if there is none.
    tenants: String,
    /// The connection whose current event reveals a bug.
    mistake: Option<Peer>,
    /// The configuration of `d`, and the settings, a line each.
    database: String,
    /// Users with an entry in `d`, and their servers' users.
    members: Vec<(String, String)>,
    settings: String,
    servers: usize,
    cancels: usize,
    /// Names of statements on servers, in order of appearance.
    statements: Vec<String>,
    /// Names of loose sockets.
    loose: Vec<String>,
    config: Arc<Config>,
    /// Connections that workers have packed for a successor, and the other state for it.
    packed: Vec<(usize, Parcel)>,
    estate: Estate,
    /// Questions to the control thread, and who asked.
    questions: Vec<(usize, Asked)>,
    log: String,
}

/// A question, by its ticket.
enum Asked {
    Password(u64, Weak<Secret>),
    Name(u64),
    Reload(u64),
}

impl World {
    fn take_log(&mut self) -> String {
        std::mem::take(&mut self.log)
    }

    fn happen(&mut self, line: &str) {
        let (who, what) = line.split_once(' ').unwrap_or((line, ""));
        if self.poolers.is_empty() {
            self.setup(if who == "setup" { what } else { "" });
            if who == "setup" {
                return;
            }
        }
        match who {
            "wait" => self.wait(what),
            "mail" => self.deliver(what),
            "turn" => self.turn(),
            "order" => self.order(what),
            "cancel" => self.cancel(what),
            "shed" => self.shed(what),
            "seat" => self.seat(what),
            "settings" => self.reload(what),
            "successor" => self.succeed(what),
            "back" => self.adopt_packed(),
            "answer" => self.answer(what),
            "moved" => self.moved(what),
            _ => self.peer(who, what),
        }
    }

    fn setup(&mut self, words: &str) {
        let mut workers = 1;
        let mut others = Vec::new();
        for word in words.split_whitespace() {
            match word.strip_prefix("workers=") {
                Some(number) => workers = number.parse().unwrap(),
                None => others.push(word),
            }
        }
        self.config = self.config(&others.join(" "));
        self.now = 1_000_000_000;
        self.start(workers);
    }

    /// The changed configuration.
    fn config(&mut self, words: &str) -> Arc<Config> {
        let mut database = None::<String>;
        if words.contains("d.") {
            self.members.clear();
        }
        for word in words.split_whitespace() {
            if word == "sharded" {
                self.tenants = TENANTS.into();
                continue;
            }
            if word == "rehearsal" {
                self.tenants = REHEARSAL.into();
                continue;
            }
            let (key, value) = word.split_once('=').unwrap();
            let value = value.replace('~', " ");
            if key == "tenant" {
                self.tenants = value;
                continue;
            }
            match key.strip_prefix("d.") {
                Some(key) if key.starts_with("users.") => {
                    let member = key["users.".len()..].to_string();
                    self.members.push((member, value));
                    database.get_or_insert_default();
                }
                Some(key) => {
                    write!(database.get_or_insert_default(), " {key}={value}").unwrap();
                }
                None => writeln!(self.settings, "{key} = {value}").unwrap(),
            }
        }
        self.database = database.unwrap_or(std::mem::take(&mut self.database));
        let (database, settings) = (&self.database, &self.settings);
        let (shards, map) = match &*self.tenants {
            "" => (String::new(), String::new()),
            tenants => (
                // The map of a rehearsal has one shard.
                match tenants.contains("prod_1") {
                    true => SHARDS.into(),
                    false => SHARDS.replace("prod_0,prod_1", "prod_0"),
                },
                format!("[distributions:prod]\ntenant = {tenants}\n{TABLES}"),
            ),
        };
        let text = format!(
            "[databases]\nd = host=127.0.0.1 port=5432{database}\n\
             e = host=127.0.0.1 port=5432\n{shards}[pgbouncer]\nauth_type = trust\n\
             auth_file = list\npool_mode = transaction\nquery_wait_notify = 0\n\
             pool_spread = always\n{settings}{map}"
        );
        let list = |_: &str| Ok("\"u\" \"\"\n\"v\" \"\"\n".to_string());
        let (mut config, _) = Config::load("x.ini", &text, &mut { list }).unwrap();
        let entry = Arc::make_mut(config.databases.get_mut("d").unwrap());
        for (name, login) in &self.members {
            let user = User {
                name: name.clone(),
                forced_user: Some(login.clone()),
                ..User::default()
            };
            entry.users.insert(name.clone(), Arc::new(user));
        }
        // The daemon reports what is in force. Here the written settings, if any, are in force.
        if text.contains("tls") {
            config.tls = TlsInForce::asked(&config, 0);
        }
        Arc::new(config)
    }

    fn reload(&mut self, words: &str) {
        self.config = self.config(words);
        for worker in 0..self.poolers.len() {
            self.handle(worker, Event::Settings(self.config.clone()), &[]);
        }
    }

    fn start(&mut self, workers: u16) {
        self.poolers = PoolerSetup::repeatable(workers, &self.config)
            .map(Pooler::new)
            .collect();
        self.broker = Some(Broker::new(seeded(0)));
    }

    /// Passes a worker's mail to the Broker, which answers by mail. Mail of the first worker, and
    /// answers to the sender, are not shown.
    fn tell_broker(&mut self, worker: usize, mail: ToBroker) {
        if worker > 0 {
            self.tell(&format!("{worker} to broker: {}", broker_word(&mail)));
        }
        let mut answers = Vec::new();
        let post = &mut |to: WorkerId, mail| answers.push((usize::from(to.0), mail));
        let broker = self.broker.as_mut().expect("a process has begun");
        broker.handle(Time(self.now), mail, post);
        broker.check();
        for (to, mail) in answers {
            if to == worker {
                self.own_mail.push_back((to, mail));
            } else {
                self.tell(&format!("broker to {to}: {}", mail_word(&mail)));
                self.mail.push_back((to, mail));
            }
        }
    }

    /// Another process adopts the packed connections. `ending`: it already shuts down.
    fn succeed(&mut self, what: &str) {
        let workers = self.poolers.len();
        self.start(workers as u16);
        let estate = Arc::new(std::mem::take(&mut self.estate));
        for worker in 0..workers {
            self.handle(worker, Event::Mail(Mail::Inherit(estate.clone())), &[]);
        }
        if what == "ending" {
            self.order("shutdown clients");
        }
        self.adopt_packed();
    }

    fn adopt_packed(&mut self) {
        let workers = self.poolers.len();
        let parcels = std::mem::take(&mut self.packed).into_iter();
        let parcels = parcels.map(|(worker, parcel)| (WorkerId(worker as u16), parcel));
        let arrivals = ToBroker::Arrivals {
            workers: workers as u16,
        };
        self.tell_broker(0, arrivals);
        for (worker, mail) in howdah_pooler::mail::deal(parcels.collect(), workers as u16) {
            self.handle(usize::from(worker.0), Event::Mail(mail), &[]);
        }
    }

    fn answer(&mut self, what: &str) {
        let (number, answer) = what.split_once(' ').unwrap();
        let index = number.parse::<usize>().unwrap() - 1;
        let (worker, asked) = &self.questions[index];
        let answer = match (asked, answer) {
            (Asked::Password(ticket, password), verdict) => {
                if password.upgrade().is_none() {
                    writeln!(self.log, "nobody waits for that").unwrap();
                }
                let lasts = verdict.strip_prefix("yes for ").map(nanos);
                let verdict = Verified {
                    names: vec!["u".into()],
                    lasts,
                    ..Verified::default()
                };
                let is_right = answer.starts_with("yes");
                Answer::PasswordChecked(*ticket, is_right.then_some(verdict).ok_or("no".into()))
            }
            (Asked::Reload(ticket), _) => Answer::Reloaded(*ticket, Ok(())),
            (Asked::Name(ticket), ip) => Answer::Resolved(*ticket, Ok(vec![ip.parse().unwrap()])),
        };
        let worker = *worker;
        self.handle(worker, Event::Answer(answer), &[]);
    }

    fn moved(&mut self, what: &str) {
        let (host, ip) = what.split_once(' ').unwrap();
        for worker in 0..self.poolers.len() {
            let (host, gone) = (host.to_string(), vec![ip.parse().unwrap()]);
            let answer = Answer::Moved { host, gone };
            self.handle(worker, Event::Answer(answer), &[]);
        }
    }

    /// Lets time pass, from deadline to deadline.
    fn wait(&mut self, how_long: &str) {
        let until = self.now + nanos(how_long);
        loop {
            let deadlines = self.poolers.iter().filter_map(Pooler::next_deadline);
            let next = deadlines.min().map_or(u64::MAX, |at| at.0);
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            for worker in 0..self.poolers.len() {
                if self.poolers[worker]
                    .next_deadline()
                    .is_some_and(|at| at.0 <= self.now)
                {
                    self.handle(worker, Event::Tick, &[]);
                }
            }
        }
        self.now = until;
    }

    fn turn(&mut self) {
        for (worker, mail) in self
            .next_turn
            .replace(VecDeque::new())
            .into_iter()
            .flatten()
        {
            self.handle(worker, Event::Mail(mail), &[]);
        }
    }

    /// Delivers all mail and its consequences; or all but that of one worker, in a long turn.
    fn deliver(&mut self, what: &str) {
        let but = what.strip_prefix("but ");
        let but = but.map(|number| number.parse::<usize>().unwrap());
        let mut kept = VecDeque::new();
        while let Some((worker, mail)) = self.mail.pop_front() {
            match but == Some(worker) {
                true => kept.push_back((worker, mail)),
                false => self.handle(worker, Event::Mail(mail), &[]),
            }
        }
        self.mail = kept;
    }

    fn order(&mut self, what: &str) {
        let order = match what {
            "pause" => Order::Pause(None),
            "pause prod" => Order::Pause(Some("prod".into())),
            "resume" => Order::Resume(None),
            "resume prod" => Order::Resume(Some("prod".into())),
            "reconnect" => Order::Reconnect(None),
            "suspend" => Order::Suspend,
            "kill d" => Order::Kill(Some("d".into())),
            "disable prod_1" => Order::Disable("prod_1".into()),
            "end clients in 8s" => Order::EndClients {
                over: 8_000_000_000,
            },
            "shutdown clients" => Order::ShutdownWaitForClients,
            "shutdown servers" => Order::ShutdownWaitForServers,
            "hand over" => Order::HandOver { tls: false },
            "hand over with tls" => Order::HandOver { tls: true },
            "pack" => Order::Pack,
            "drain" => Order::Drain,
            _ => panic!("no order: {what}"),
        };
        for worker in 0..self.poolers.len() {
            self.handle(worker, Event::Order(order.clone()), &[]);
        }
    }

    fn shed(&mut self, what: &str) {
        let (what, idle) = match what.strip_suffix(" active") {
            Some(what) => (what, false),
            None => (what, true),
        };
        let mut numbers = what.split(' ').map(|word| word.parse::<u16>().unwrap());
        let mut next = || numbers.next().unwrap();
        let (from, to, clients) = (next(), WorkerId(next()), next().into());
        let mail = Mail::Shed {
            login: LoginKey::new("d", "u"),
            to,
            clients,
            idle,
        };
        self.handle(usize::from(from), Event::Mail(mail), &[]);
    }

    fn seat(&mut self, what: &str) {
        let (new, workers) = match what.strip_prefix("new ") {
            Some(worker) => (true, worker),
            None => (false, what),
        };
        let numbers = workers.split(' ');
        let seats: Arc<[WorkerId]> = numbers.map(|n| WorkerId(n.parse().unwrap())).collect();
        let login = LoginKey::new("d", "u");
        for worker in 0..self.poolers.len() {
            let mail = match new {
                true => Mail::NewPools(seats[0]),
                false => Mail::Seats(login.clone(), seats.clone()),
            };
            self.handle(worker, Event::Mail(mail), &[]);
        }
    }

    fn cancel(&mut self, whom: &str) {
        let (whom, bit) = match whom.split_once(" bit ") {
            Some((whom, bit)) => (whom, bit.parse::<usize>().ok()),
            None => (whom, None),
        };
        let (pid, mut secret) = self.keys[whom].clone();
        if let Some(bit) = bit {
            secret[bit / 8] ^= 1 << (bit % 8);
        }
        self.cancels += 1;
        let name = format!("x{}", self.cancels);
        self.accept(&name, 0);
        let mut bytes = Vec::new();
        write::cancel_request(&mut bytes, pid, &secret);
        self.receive(&name, &bytes);
    }

    fn accept(&mut self, name: &str, worker: usize) {
        self.adopting = name.to_string();
        self.handle(worker, Event::Accepted(ends(4000)), &[]);
    }

    fn peer(&mut self, who: &str, what: &str) {
        let (name, worker) = match who.split_once('@') {
            Some((name, worker)) => (name, worker.parse().unwrap()),
            None => (who, 0),
        };
        if what == "connect" {
            return self.accept(name, worker);
        }
        if let Some(address) = what.strip_prefix("connect from ") {
            self.adopting = name.to_string();
            let remote = Address::Tcp(address.parse().unwrap(), 4000);
            let ends = Ends {
                remote,
                ..ends(4000)
            };
            return self.handle(worker, Event::Accepted(ends), &[]);
        }
        if let Some(parameters) = what.strip_prefix("login") {
            if self.peers.contains_key(name) {
                return self.start_up(name, parameters);
            }
            return self.log_in(name, worker, parameters);
        }
        let Some(&(at, peer)) = self.peers.get(name) else {
            panic!("there is no {name} yet");
        };
        if let Some(number) = what.strip_prefix("many names ") {
            return self.prepare_many(name, number.parse().unwrap());
        }
        // The event is handled, and then reveals a bug.
        if let Some(what) = what.strip_prefix("mistake ") {
            self.mistake = Some(peer);
            return self.peer(who, what);
        }
        let Peer::Server(id) = peer else {
            return self.lesser(name, what, at, peer);
        };
        match what {
            "up" => {
                self.handle(at, Event::Connected(id, Ok(ends(5432))), &[]);
                self.say(
                    name,
                    "R(0) S(server_version=17.0) S(client_encoding=UTF8) \
                    S(DateStyle=ISO, MDY) S(TimeZone=GMT) S(standard_conforming_strings=on) \
                    S(application_name=) K(77) ZI",
                );
            }
            "connected" => self.handle(at, Event::Connected(id, Ok(ends(5432))), &[]),
            "connected to a stranger" => {
                let unix_peer = Some(UnixPeer { pid: 1, uid: 7 });
                let ends = Ends {
                    unix_peer,
                    ..ends(5432)
                };
                self.handle(at, Event::Connected(id, Ok(ends)), &[]);
            }
            "refused" => self.handle(at, Event::Connected(id, Err(refused())), &[]),
            "reset" => self.handle(at, Event::Lost(peer, Some("reset".into())), &[]),
            _ => self.lesser(name, what, at, peer),
        }
    }

    fn prepare_many(&mut self, name: &str, number: u32) {
        for first in (0..number).step_by(100) {
            let each = (first..number.min(first + 100)).map(|n| format!("P(n{n},select {n}) "));
            let (messages, answers) = (each.clone().collect::<String>(), "1 ".repeat(each.len()));
            self.peer(name, &format!("{messages}S"));
            self.peer("s1", &format!("{answers}ZI"));
        }
        self.log.clear();
    }

    /// Events that clients and servers share.
    fn lesser(&mut self, name: &str, what: &str, at: usize, peer: Peer) {
        match what {
            "lost" => self.handle(at, Event::Lost(peer, None), &[]),
            "detached" => {
                self.peers.remove(name);
                self.loose.push(name.to_string());
                let socket = LooseSocket::new(self.loose.len() - 1);
                self.handle(at, Event::Detached(peer, socket), &[]);
            }
            "congested" => self.handle(at, Event::Congested(peer), &[]),
            "drained" => self.handle(at, Event::Drained(peer), &[]),
            "flushed" => self.handle(at, Event::Flushed(peer), &[]),
            "tls" => self.handle(at, Event::TlsDone(peer, Ok(Box::default())), &[]),
            "tls that travels" => {
                let facts = TlsFacts {
                    travels: true,
                    ..TlsFacts::default()
                };
                self.handle(at, Event::TlsDone(peer, Ok(Box::new(facts))), &[]);
            }
            "tls again" => {
                let why = Err(howdah_pooler::tls::AGAIN.into());
                self.handle(at, Event::TlsDone(peer, why), &[]);
            }
            "tls fails" => self.handle(at, Event::TlsDone(peer, Err("so it is".into())), &[]),
            "ssl request" => self.receive(name, b"\0\0\0\x08\x04\xd2\x16\x2f"),
            "ssl request, more" => self.receive(name, b"\0\0\0\x08\x04\xd2\x16\x2f\x16"),
            "client hello" => self.receive(name, b"\x16\x03\x01\x02"),
            _ if what.starts_with("header ") => {
                let line = what.strip_prefix("header ").unwrap();
                let (cut, line) = match line.strip_prefix("[12] ") {
                    Some(line) => (12, line),
                    None => (usize::MAX, line),
                };
                let mut bytes = format!("PROXY {line}\r\n").into_bytes();
                let rest = bytes.split_off(cut.min(bytes.len()));
                self.rests.insert(name.to_string(), rest);
                self.receive(name, &bytes);
            }
            _ if what.starts_with("raw ") => self.receive(name, &what.as_bytes()[4..]),
            "rest" => {
                let rest = self.rests.remove(name).unwrap();
                self.receive(name, &rest);
            }
            _ => self.say(name, what),
        }
    }

    fn log_in(&mut self, name: &str, worker: usize, parameters: &str) {
        self.accept(name, worker);
        self.start_up(name, parameters);
    }

    fn start_up(&mut self, name: &str, parameters: &str) {
        let mut all = vec![("user", "u"), ("database", "d")];
        let more = parameters.split_whitespace();
        all.extend(more.map(|word| word.split_once('=').unwrap()));
        for name in ["user", "database"] {
            let is_it = |(key, _): &(&str, &str)| *key == name;
            if all.iter().filter(|pair| is_it(pair)).count() > 1 {
                all.remove(all.iter().position(is_it).unwrap());
            }
        }
        let mut bytes = Vec::new();
        write::startup(&mut bytes, 0, all);
        self.receive(name, &bytes);
    }

    fn say(&mut self, name: &str, what: &str) {
        let is_server = matches!(self.peers[name].1, Peer::Server(_));
        let (cut, what) = match what.strip_prefix('[').and_then(|w| w.split_once("] ")) {
            Some((cut, what)) => (Some(cut.parse().unwrap()), what),
            None => (None, what),
        };
        let mut bytes = Vec::new();
        let mut what = what.to_string();
        for (index, name) in self.statements.iter().enumerate() {
            what = what.replace(&format!("#{}", index + 1), &format!("howdah_{name}"));
        }
        for (word, arguments) in words(&what) {
            if is_server {
                server_message(&mut bytes, word, &arguments);
            } else {
                client_message(&mut bytes, word, &arguments);
            }
        }
        if let Some(cut) = cut {
            self.rests.insert(name.to_string(), bytes.split_off(cut));
        }
        self.receive(name, &bytes);
    }

    fn receive(&mut self, name: &str, bytes: &[u8]) {
        let (at, peer) = self.peers[name];
        self.handle(at, Event::Received(peer, bytes), bytes);
    }

    fn handle(&mut self, worker: usize, event: Event<'_>, bytes: &[u8]) {
        self.decide(worker, event, bytes);
        loop {
            if let Some((worker, mail)) = self.own_mail.pop_front() {
                self.decide(worker, Event::Mail(mail), &[]);
            } else if let Some((worker, peer)) = self.closed.pop_front() {
                self.decide(worker, Event::Closed { peer, gone: true }, &[]);
            } else {
                return;
            }
        }
    }

    fn decide(&mut self, worker: usize, event: Event<'_>, bytes: &[u8]) {
        let mut out = Out::default();
        self.poolers[worker].handle(Time(self.now), event, &mut out);
        if let Some(peer) = self.mistake.take() {
            self.poolers[worker].give_up(peer, &mut out);
        }
        for action in std::mem::take(&mut out.actions) {
            self.act(worker, action, bytes, &out.bytes);
        }
        self.flush();
        self.poolers[worker].check();
    }
}

fn ends(port: u16) -> Ends {
    Ends {
        remote: Address::Tcp([127, 0, 0, 1].into(), port),
        local: Address::Tcp([127, 0, 0, 1].into(), 6432),
        unix_peer: None,
    }
}

fn broker_word(mail: &ToBroker) -> String {
    match mail {
        ToBroker::Need { .. } => "need".into(),
        ToBroker::Sated { .. } => "sated".into(),
        ToBroker::Freed { .. } => "freed".into(),
        ToBroker::Moved { from, to, .. } => format!("moved {} to {}", from.0, to.0),
        ToBroker::Warm { .. } => "warm".into(),
        ToBroker::Admit { .. } => "admit".into(),
        ToBroker::Bounds { .. } => "bounds".into(),
        ToBroker::Left { .. } => "left".into(),
        ToBroker::Pin { .. } => "pin".into(),
        ToBroker::Unpin { .. } => "unpin".into(),
        ToBroker::Pins { works, .. } => format!("pins work: {works}"),
        other => format!("{other:?}"),
    }
}

fn refused() -> howdah_pooler::event::Unreached {
    howdah_pooler::event::Unreached {
        text: "refused".into(),
        nobody: true,
        ours: false,
    }
}
