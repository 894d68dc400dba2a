//! Any sequence of events that the contract allows, to two poolers and a PostgreSQL that answers or
//! talks nonsense. Each byte chooses what happens next.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use howdah_wire::frame::header;
use howdah_wire::{tag, write};

use super::postgres::Postgres;
use crate::census::Census;
use crate::config::Config;
use crate::event::{
    Action, Address, Answer, Close, Ends, Event, LooseSocket, Order, Out, Peer, Question, Time,
    WorkerId,
};
use crate::mail::Mail;
use crate::{Pooler, PoolerSetup};

/// What clients say in a Query, or parse.
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

/// What an administrator says.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    Open,
    /// Its end was told of; only a close is expected.
    Lost,
    Detaching,
    /// `Closed` comes.
    Closing,
}

struct Socket {
    worker: usize,
    peer: Peer,
    stage: Stage,
    receiving: bool,
    congested: bool,
    end: End,
}

/// The other side.
enum End {
    Server(Postgres),
    Client(Client),
}

#[derive(Default)]
struct Client {
    /// What was sent to it and is no whole message.
    stream: Vec<u8>,
    /// It says only what makes sense, so what it is told must, too.
    sane: bool,
    /// It talks to the console.
    admin: bool,
    /// How many of its messages want a ReadyForQuery, its login included, and how many came.
    asked: usize,
    ready: usize,
    key: Option<(u32, Vec<u8>)>,
}

struct World<'a> {
    input: &'a [u8],
    now: u64,
    poolers: Vec<Pooler>,
    config: Arc<Config>,
    sockets: Vec<Socket>,
    loose: BTreeMap<i64, End>,
    next_loose: i64,
    accepted: Option<End>,
    /// By receiver and sender.
    mail: Vec<Vec<VecDeque<Mail>>>,
    answers: VecDeque<(usize, Answer)>,
    /// To whom all was sent, and whose worker wants to know.
    flushed: VecDeque<(usize, Peer)>,
    /// The process was told to end.
    ended: bool,
}

/// Plays what the bytes say, then lets all clients go, and looks at what is left.
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
        let mode = ["transaction", "session", "statement", "transaction"][usize::from(kind & 3)];
        let workers = 1 + usize::from(kind >> 2 & 1);
        let statements = [100, 1, 0, 2][usize::from(kind >> 3 & 3)];
        let size = 1 + (kind >> 5 & 1);
        let limits = [
            "",
            "query_timeout = 2\nidle_transaction_timeout = 3\nmax_user_connections = 1",
        ][usize::from(kind >> 6 & 1)];
        let more = [
            "",
            "server_round_robin = 1\nserver_check_delay = 0\nreserve_pool_size = 1",
        ][usize::from(kind >> 7)];
        let text = format!(
            "[databases]\nd = host=127.0.0.1\ne = host=127.0.0.2 pool_mode=session\n[pgbouncer]\n\
             auth_type = trust\nauth_file = f\nadmin_users = admin\npool_mode = {mode}\n\
             default_pool_size = {size}\nmax_prepared_statements = {statements}\n{limits}\n{more}\n"
        );
        let users = "\"u\" \"\"\n\"v\" \"\"\n\"admin\" \"\"\n";
        let loaded = Config::load("x.ini", &text, &mut |_| Ok(users.to_string()));
        let config = Arc::new(loaded.expect("this is right").0);
        let numbers = Arc::default();
        let setup = |worker: usize| PoolerSetup {
            worker: WorkerId(worker as u16),
            workers: workers as u16,
            config: config.clone(),
            seed: [worker as u8; 32],
            shared_seed: [7; 32],
            started: 0.0,
            driver: "none".into(),
            uid: 70,
            numbers: Arc::clone(&numbers),
        };
        World {
            input,
            now: 1_000_000_000,
            poolers: (0..workers)
                .map(|worker| Pooler::new(setup(worker)))
                .collect(),
            config: config.clone(),
            sockets: Vec::new(),
            loose: BTreeMap::new(),
            next_loose: 0,
            accepted: None,
            mail: (0..workers)
                .map(|_| (0..workers).map(|_| VecDeque::new()).collect())
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

    /// A choice; 0 when there is nothing left.
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

    /// A client connects, and mostly says who it is.
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

    fn accept(&mut self, worker: usize, client: Client, bytes: &[u8]) {
        let before = self.sockets.len();
        self.accepted = Some(End::Client(client));
        self.handle(worker, Event::Accepted(ends()), &[]);
        if self.accepted.take().is_none() && self.sockets.len() > before {
            self.receive(self.sockets.len() - 1, bytes);
        }
    }

    /// One of the sockets that something can be told of; servers or clients.
    fn pick(&mut self, servers: bool) -> Option<usize> {
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
            // The event may have moved or closed it.
            if cut < bytes.len()
                && let Some(socket) = self.sockets.get(at)
                && socket.stage == Stage::Open
                && matches!(socket.end, End::Client(_))
            {
                self.receive(at, &bytes[cut..]);
            }
        }
    }

    /// A message of a client; true if a ReadyForQuery ends its answer.
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
                // Few COPYs are wanted in a row.
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

    /// A connection comes to be, or PostgreSQL answers.
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

    fn connect(&mut self, at: usize, refused: bool) {
        let socket = &mut self.sockets[at];
        let (worker, Peer::Server(id)) = (socket.worker, socket.peer) else {
            unreachable!("only servers connect");
        };
        if refused {
            socket.stage = Stage::Closing;
            return self.handle(worker, Event::Connected(id, Err("refused".into())), &[]);
        }
        socket.stage = Stage::Open;
        self.handle(worker, Event::Connected(id, Ok(ends())), &[]);
    }

    fn server_answers(&mut self, at: usize, how: u8) {
        let socket = &mut self.sockets[at];
        let End::Server(postgres) = &mut socket.end else {
            return;
        };
        if !socket.receiving || socket.stage != Stage::Open {
            return;
        }
        if postgres.over {
            let (worker, peer) = (socket.worker, socket.peer);
            socket.stage = Stage::Lost;
            return self.handle(worker, Event::Lost(peer, None), &[]);
        }
        let mut bytes = postgres.answer(how);
        if how & 64 != 0 {
            bytes.extend(postgres.answer(how & 0x3f));
        }
        self.receive(at, &bytes);
    }

    /// Mail, answers and ends of connections arrive, and PostgreSQL answers well, until all is quiet
    /// or so many things have happened.
    fn settle(&mut self, steps: usize) -> bool {
        for _ in 0..steps {
            if self.deliver() {
                continue;
            }
            let mut answers = self.sockets.iter().enumerate();
            let busy = answers.find(|(_, s)| match (&s.end, s.stage) {
                (_, Stage::Connecting | Stage::Closing) => true,
                (_, Stage::Detaching) => true,
                (End::Server(p), Stage::Open) => s.receiving && (p.owes() || p.over),
                _ => false,
            });
            let Some((at, socket)) = busy else {
                return true;
            };
            match socket.stage {
                Stage::Connecting => self.connect(at, false),
                Stage::Closing => self.closed(at),
                Stage::Detaching => self.detached(at),
                _ => self.server_answers(at, 0),
            }
        }
        false
    }

    fn deliver(&mut self) -> bool {
        if let Some((worker, peer)) = self.flushed.pop_front() {
            self.handle(worker, Event::Flushed(peer), &[]);
            return true;
        }
        if let Some((worker, answer)) = self.answers.pop_front() {
            self.handle(worker, Event::Answer(answer), &[]);
            return true;
        }
        for to in 0..self.poolers.len() {
            for from in 0..self.poolers.len() {
                if let Some(mail) = self.mail[to][from].pop_front() {
                    self.handle(to, Event::Mail(mail), &[]);
                    return true;
                }
            }
        }
        false
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

    fn tick(&mut self) {
        for worker in 0..self.poolers.len() {
            let due = |pooler: &Pooler, now| pooler.next_deadline().is_some_and(|at| at.0 <= now);
            if due(&self.poolers[worker], self.now) {
                self.handle(worker, Event::Tick, &[]);
                assert!(
                    !due(&self.poolers[worker], self.now),
                    "a tick is due at once again"
                );
            }
        }
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

    fn closed(&mut self, at: usize) {
        let Socket { worker, peer, .. } = self.sockets.remove(at);
        self.handle(worker, Event::Closed { peer, gone: true }, &[]);
    }

    fn detached(&mut self, at: usize) {
        let Socket {
            worker, peer, end, ..
        } = self.sockets.remove(at);
        self.next_loose += 1;
        self.loose.insert(self.next_loose, end);
        self.handle(
            worker,
            Event::Detached(peer, LooseSocket(self.next_loose)),
            &[],
        );
    }

    fn lose(&mut self) {
        let servers = self.choice(2) == 1;
        if let Some(at) = self.pick(servers) {
            self.lose_at(at);
        }
    }

    fn lose_at(&mut self, at: usize) {
        let socket = &mut self.sockets[at];
        socket.stage = Stage::Lost;
        let (worker, peer) = (socket.worker, socket.peer);
        let why = (at % 2 == 1).then(|| "reset".to_string());
        self.handle(worker, Event::Lost(peer, why), &[]);
    }

    fn congest(&mut self) {
        let servers = self.choice(2) == 1;
        let Some(at) = self.pick(servers) else { return };
        self.turn_congestion(at);
    }

    fn turn_congestion(&mut self, at: usize) {
        let socket = &mut self.sockets[at];
        socket.congested = !socket.congested;
        let (worker, peer) = (socket.worker, socket.peer);
        let event = match socket.congested {
            true => Event::Congested(peer),
            false => Event::Drained(peer),
        };
        self.handle(worker, event, &[]);
    }

    /// Bytes of the input, from a client or a server.
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
        let order = match self.choice(12) {
            0 | 1 => Order::Pause(None),
            2 | 3 => Order::Resume(None),
            4 => Order::Pause(d()),
            5 => Order::Resume(d()),
            6 => Order::Reconnect(None),
            7 => Order::Kill(d()),
            8 => return self.reload(),
            9 => Order::ShutdownWaitForClients,
            10 => Order::ShutdownWaitForServers,
            _ => Order::Reconnect(d()),
        };
        for worker in 0..self.poolers.len() {
            self.handle(worker, Event::Order(order.clone()), &[]);
        }
    }

    /// Other settings.
    fn reload(&mut self) {
        const CHANGES: [(&str, &str); 8] = [
            ("default_pool_size", "1"),
            ("default_pool_size", "3"),
            ("max_prepared_statements", "0"),
            ("max_prepared_statements", "5"),
            ("pool_mode", "session"),
            ("pool_mode", "transaction"),
            ("server_fast_close", "1"),
            ("min_pool_size", "1"),
        ];
        let (key, value) = CHANGES[self.choice(8)];
        self.set(key, value);
    }

    fn set(&mut self, key: &str, value: &str) -> bool {
        let Ok(config) = self.config.with(key, value) else {
            return false;
        };
        self.config = Arc::new(config);
        for worker in 0..self.poolers.len() {
            self.handle(worker, Event::Settings(self.config.clone()), &[]);
        }
        true
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

    fn receive(&mut self, at: usize, bytes: &[u8]) {
        let Socket { worker, peer, .. } = self.sockets[at];
        if !bytes.is_empty() {
            self.handle(worker, Event::Received(peer, bytes), bytes);
        }
    }

    fn handle(&mut self, worker: usize, event: Event<'_>, bytes: &[u8]) {
        let mut out = Out::default();
        self.poolers[worker].handle(Time(self.now), event, &mut out);
        let made = std::mem::take(&mut out.bytes);
        let mut questions = Vec::new();
        for action in out.actions {
            self.act(worker, action, bytes, &made, &mut questions);
        }
        self.poolers[worker].check();
        for question in questions {
            self.question(worker, question);
        }
    }

    fn find(&self, worker: usize, peer: Peer) -> Option<usize> {
        self.sockets
            .iter()
            .position(|s| s.worker == worker && s.peer == peer)
    }

    fn act(
        &mut self,
        worker: usize,
        action: Action,
        event: &[u8],
        made: &[u8],
        questions: &mut Vec<Question>,
    ) {
        match action {
            Action::Send(peer, range) => self.sent(worker, peer, made, range),
            Action::Relay(peer, range) => self.sent(worker, peer, event, range),
            Action::Receive { peer, on } => {
                let at = self
                    .find(worker, peer)
                    .expect("who is there is received from");
                self.sockets[at].receiving = on;
            }
            Action::Adopt(id) => {
                let end = self
                    .accepted
                    .take()
                    .expect("only what was accepted is adopted");
                self.open(worker, Peer::Client(id), Stage::Open, end);
            }
            Action::Connect(id, _) => {
                let end = End::Server(Postgres::new());
                self.open(worker, Peer::Server(id), Stage::Connecting, end);
            }
            Action::Close { peer, how } => {
                let at = self.find(worker, peer).expect("who is there is closed");
                let _: Close = how;
                self.sockets[at].stage = Stage::Closing;
            }
            Action::Detach(peer) => {
                let at = self.find(worker, peer).expect("who is there is detached");
                if self.sockets[at].stage == Stage::Open {
                    self.sockets[at].stage = Stage::Detaching;
                }
            }
            Action::Attach(peer, LooseSocket(number)) => {
                let end = self
                    .loose
                    .remove(&number)
                    .expect("a loose socket is attached once");
                self.open(worker, peer, Stage::Open, end);
            }
            Action::Discard(LooseSocket(number)) => {
                assert!(
                    self.loose.remove(&number).is_some(),
                    "a loose socket is discarded once"
                );
            }
            Action::Post(to, mail) => self.mail[usize::from(to.0)][worker].push_back(mail),
            Action::TellFlushed(peer) => self.flushed.push_back((worker, peer)),
            Action::Ask(question) => questions.push(question),
            Action::Note(note) => assert!(!note.text.contains(char::is_control)),
        }
    }

    fn open(&mut self, worker: usize, peer: Peer, stage: Stage, end: End) {
        assert!(self.find(worker, peer).is_none(), "no peer is there twice");
        self.sockets.push(Socket {
            worker,
            peer,
            stage,
            receiving: true,
            congested: false,
            end,
        });
    }

    fn sent(&mut self, worker: usize, peer: Peer, bytes: &[u8], range: Range<usize>) {
        let Some(at) = self.find(worker, peer) else {
            panic!("{peer:?} is sent to, and is not there");
        };
        let socket = &mut self.sockets[at];
        if socket.stage == Stage::Connecting {
            // A goodbye that is lost with the connection.
            assert_eq!(
                bytes[range], *b"X\0\0\0\x04",
                "sent to before it is connected"
            );
            return;
        }
        if socket.stage == Stage::Closing {
            return;
        }
        match &mut socket.end {
            End::Server(postgres) => postgres.receive(&bytes[range]),
            End::Client(client) => client.receive(&bytes[range]),
        }
    }

    fn question(&mut self, worker: usize, question: Question) {
        match question {
            Question::Resolve { ticket, .. } => {
                let found = Ok(vec![[127, 0, 0, 1].into()]);
                self.answers
                    .push_back((worker, Answer::Resolved(ticket, found)));
            }
            Question::Names { ticket } => {
                self.answers
                    .push_back((worker, Answer::Names(ticket, Box::default())));
            }
            Question::Derive { ticket, .. } => {
                self.answers
                    .push_back((worker, Answer::Derived(ticket, [0; 32])));
            }
            Question::Reload { ticket } => {
                self.answers
                    .push_back((worker, Answer::Reloaded(ticket, Ok(()))));
            }
            Question::Set { ticket, key, value } => {
                let result = match self.set(&key, &value) {
                    true => Ok(()),
                    false => Err("no".to_string()),
                };
                self.answers
                    .push_back((worker, Answer::Reloaded(ticket, result)));
            }
            Question::Exit(_) => self.ended = true,
            Question::NameUser { ticket, uid } => {
                let named = Err(format!("nobody has number {uid}"));
                self.answers
                    .push_back((worker, Answer::UserNamed(ticket, named)));
            }
            Question::Forward { ticket, .. } => {
                let reached = Err("there are no peers".to_string());
                self.answers
                    .push_back((worker, Answer::Forwarded(ticket, reached)));
            }
            Question::HandOver(_) | Question::Packed(_) | Question::AllPacked(_) => {
                panic!("nobody here may take over");
            }
            Question::LogStats { .. }
            | Question::Idle(_)
            | Question::Accept(_)
            | Question::StopListening { .. } => {}
        }
    }

    /// All clients leave: nothing may be left of them, and no more servers than permits.
    fn end(&mut self) {
        self.input = &[];
        while let Some(at) = self.pick(false) {
            self.lose_at(at);
        }
        for round in 0..60 {
            self.settle(1_000);
            if let Some(at) = self.sockets.iter().position(|s| s.congested) {
                self.turn_congestion(at);
            }
            // Whoever came from another worker meanwhile leaves, too.
            while let Some(at) = self.pick(false) {
                self.lose_at(at);
            }
            self.now += 1_000_000_000 * (1 + round);
            self.tick();
        }
        assert!(self.settle(10_000), "it never comes to rest");
        let mut left = Census::default();
        for pooler in &self.poolers {
            left += pooler.census();
        }
        assert_eq!(left.clients, 0, "{left:?}");
        assert_eq!(left.waiting + left.newcomers + left.asks, 0, "{left:?}");
        // What talks nonsense may have stopped in the middle of it.
        let honest = |s: &Socket| matches!(&s.end, End::Server(postgres) if postgres.honest);
        assert!(
            left.held == 0 || !self.sockets.iter().all(honest),
            "{left:?}"
        );
        assert_eq!((left.admitted, left.names), (0, 0), "{left:?}");
        assert_eq!(left.permits, left.servers, "{left:?}");
        assert!(self.loose.is_empty(), "a socket was lost");
        let clients = self
            .sockets
            .iter()
            .filter(|s| matches!(s.end, End::Client(_)));
        assert_eq!(clients.count(), 0, "a client was never closed");
        assert_eq!(
            self.sockets.len(),
            left.servers,
            "a server was never closed"
        );
    }
}

impl Client {
    fn receive(&mut self, bytes: &[u8]) {
        if !self.sane {
            return;
        }
        self.stream.extend_from_slice(bytes);
        while let Some(read) = header(&self.stream) {
            let header = read.expect("a client is told what is framed");
            assert!(
                tag::is_backend(header.tag),
                "a client is told {}",
                header.tag
            );
            if self.stream.len() < header.total() {
                return;
            }
            match header.tag {
                tag::backend::READY => self.ready += 1,
                tag::backend::BACKEND_KEY_DATA => {
                    let body = &self.stream[5..header.total()];
                    let pid = u32::from_be_bytes(body[..4].try_into().unwrap());
                    self.key = Some((pid, body[4..].to_vec()));
                }
                _ => {}
            }
            assert!(
                self.ready <= self.asked,
                "a ReadyForQuery that nobody asked for"
            );
            self.stream.drain(..header.total());
        }
    }
}

fn ends() -> Ends {
    Ends {
        remote: Address::Tcp([127, 0, 0, 1].into(), 5432),
        local: Address::Tcp([127, 0, 0, 1].into(), 6432),
        unix_peer: None,
    }
}
