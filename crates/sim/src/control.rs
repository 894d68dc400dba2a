//! The actors beside clients and PostgreSQL: the control thread, the administrator, and the senders of cancel
//! requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use howdah_daemon::mailbox::{Instruction, Letter, PostBox};
use howdah_pooler::balance::Balancer;
use howdah_pooler::config::{Config, HostPort, PoolSpread};
use howdah_pooler::event::{Address, Answer, LooseSocket, Order, Question, Time, WorkerId};
use howdah_pooler::load::{Load, ThreadLoad};
use howdah_pooler::parcel::{Estate, Freight, Parcel};
use howdah_pooler::roster::fact::{Fact, HostFact};
use howdah_pooler::roster::lore::RosterLore;
use howdah_pooler::roster::view::View;
use howdah_pooler::roster::{Outcome, Roster};
use howdah_wire::frame::header;
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use crate::postgres::{Paused, Postgres};
use crate::sharding::{MapInForce, NAME};
use crate::story::{Who, words};
use crate::verdict;
use crate::world::{Read, SocketId, World};

/// The channel for questions to the control thread.
pub type Ear = Sender<(WorkerId, Question)>;

/// The control thread: answers each question after a while.
pub struct Control {
    ear: Ear,
    heard: Receiver<(WorkerId, Question)>,
    due: VecDeque<(Time, WorkerId, Question)>,
    posts: Vec<PostBox>,
    config: Arc<Config>,
    idle: BTreeSet<u16>,
    handover: HandOver,
    balancer: Balancer,
    roster: Roster,
    /// When each host last answered a check.
    reported: BTreeMap<HostPort, Time>,
}

/// Everything that is on its way to a successor.
#[derive(Default)]
struct HandOver {
    /// The socket of the successor's console.
    successor: Option<LooseSocket>,
    parcels: Vec<(WorkerId, Parcel)>,
    /// Workers that have not given everything yet.
    left: usize,
    estate: Estate,
    /// All parcels, when they are complete.
    freight: Option<Freight>,
}

impl Control {
    /// Without questions. Workers learn which hosts there are.
    pub fn new(posts: Vec<PostBox>, config: Arc<Config>, now: Time) -> Control {
        let (ear, heard) = channel();
        let due = VecDeque::new();
        let mut control = Control {
            balancer: Balancer::new(posts.len() as u16),
            roster: Roster::new(posts.len() as u16),
            reported: BTreeMap::new(),
            ear,
            heard,
            due,
            posts,
            config,
            idle: BTreeSet::new(),
            handover: HandOver::default(),
        };
        let outcome = control
            .roster
            .set_lists(now, &control.config, &|_| Vec::new());
        control.tell_hosts(&outcome);
        control
    }

    /// The predecessor's knowledge of hosts comes before all facts.
    pub fn inherit_hosts(&mut self, now: Time, lore: RosterLore) {
        self.roster.inherit(lore);
        let outcome = self.roster.set_lists(now, &self.config, &|_| Vec::new());
        self.roster.check();
        self.tell_hosts(&outcome);
    }

    /// What the roster says of all hosts.
    pub fn view(&self) -> Arc<View> {
        self.roster.view()
    }

    /// An administrator takes all hosts in again.
    pub fn resume_hosts(&self) {
        let view = self.roster.view();
        for (host, _) in view.lists.values().flat_map(|list| &list.hosts) {
            let fact = Box::new(HostFact {
                host: host.clone(),
                fact: Fact::Resume,
            });
            // The receiver is this value's own.
            let _ = self.ear.send((WorkerId(0), Question::Host(fact)));
        }
    }

    /// No worker waits for an answer.
    pub fn is_at_rest(&self) -> bool {
        self.due.is_empty()
    }

    /// Everything that a successor receives, when it is complete.
    pub fn freight(&mut self, world: &mut World) -> Option<Freight> {
        let freight = self.handover.freight.take()?;
        if let Some(socket) = self.handover.successor.take() {
            world.close(socket.into_inner::<SocketId>());
        }
        Some(freight)
    }

    /// Gives the balancer a worker's load. How busy the worker is, is random.
    fn balance(&mut self, from: WorkerId, mut load: Load, world: &mut World) {
        if self.config.globals.pool_spread != PoolSpread::Load {
            return;
        }
        let working = [0, 30, 95, 100][world.chance.within(0..=3)];
        load.signals = ThreadLoad {
            window: 100,
            working,
            ..ThreadLoad::default()
        };
        let now = world.now;
        self.balancer.hear(now, from, &load);
        let workers = self.posts.len() as u16;
        for step in self.balancer.decide(now, workers, false) {
            for (worker, mail) in step.mails(workers) {
                self.posts[usize::from(worker.0)].post(Letter::Mail(mail));
            }
        }
    }

    /// The roster hears a fact: its verdict must hold.
    fn hear(&mut self, fact: HostFact, world: &mut World) {
        let before = self.roster.view();
        let now = world.now;
        world
            .story
            .tell(now, Who::World, || format!("the roster hears {fact:?}"));
        let is_old = self.is_old(&fact, now);
        let is_resumed = fact.fact == Fact::Resume;
        let outcome = self.roster.hear(now, fact);
        self.roster.check();
        if is_old && outcome.view.is_some() {
            let text = "old news of a host changes the view".into();
            world.story.violate("verdict", &[], text);
        }
        for note in &outcome.notes {
            world.story.tell(now, Who::World, || note.text.clone());
        }
        let view = self.roster.view();
        let objection = verdict::objection(&before, &view);
        let forgotten = || verdict::fence_forgotten(&before, &view);
        if let Some(text) = objection.or_else(|| forgotten().filter(|_| !is_resumed)) {
            world.story.violate("verdict", &[], text);
        }
        self.tell_hosts(&outcome);
    }

    /// A login that began before the last answer to a check says nothing new.
    fn is_old(&mut self, fact: &HostFact, now: Time) -> bool {
        match fact.fact {
            Fact::Report(_) => drop(self.reported.insert(fact.host.clone(), now)),
            Fact::Role { since, .. } => return self.reported.get(&fact.host) > Some(&since),
            _ => {}
        }
        false
    }

    fn tell_hosts(&self, outcome: &Outcome) {
        for post in &self.posts {
            outcome
                .mails()
                .for_each(|mail| post.post(Letter::Mail(mail)));
        }
    }

    fn all_packed(&mut self, estate: Estate, world: &mut World) {
        let handover = &mut self.handover;
        let last_number = handover.estate.last_number.max(estate.last_number);
        handover.estate = Estate {
            last_number,
            roster: self.roster.lore(),
            ..estate
        };
        handover.left -= 1;
        if handover.left == 0 {
            world.activity += 1;
            handover.freight = Some(Freight {
                estate: std::mem::take(&mut handover.estate),
                listeners: Vec::new(),
                parcels: std::mem::take(&mut handover.parcels),
            });
        }
    }

    /// How many workers have said that they may end.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// The channel for questions.
    pub fn ear(&self) -> Ear {
        self.ear.clone()
    }

    /// Answers the questions that are due. `edited` returns the configuration that is in the file
    /// now.
    pub fn step(&mut self, world: &mut World, edited: &mut dyn FnMut(&mut World) -> Arc<Config>) {
        while let Ok((worker, question)) = self.heard.try_recv() {
            let at = Time(world.now.0 + world.chance.number() % 3_000_000);
            world.alarm(at);
            world.activity += 1;
            self.due.push_back((at, worker, question));
        }
        while self.due.front().is_some_and(|(at, _, _)| *at <= world.now) {
            let Some((_, worker, question)) = self.due.pop_front() else {
                return;
            };
            world.activity += 1;
            let post = &self.posts[usize::from(worker.0)];
            match question {
                Question::Resolve { ticket, host } => {
                    let found = vec![address_of(&host)];
                    post.post(Letter::Answer(Answer::Resolved(ticket, Ok(found))));
                }
                Question::Names { ticket } => {
                    self.answer(worker, Answer::Names(ticket, Box::default()));
                }
                Question::Reload { ticket } => {
                    let config = edited(world);
                    self.put_in_force(world.now, (*config).clone());
                    self.answer(worker, Answer::Reloaded(ticket, Ok(())));
                }
                Question::Set { ticket, key, value } => {
                    let set = self.config.with(&key, &value);
                    let set = set.map(|config| self.put_in_force(world.now, config));
                    self.answer(worker, Answer::Reloaded(ticket, set));
                }
                Question::Idle(worker, _) => {
                    self.idle.insert(worker.0);
                }
                Question::Busy(worker) => {
                    self.idle.remove(&worker.0);
                }
                Question::Load(load) => self.balance(worker, *load, world),
                Question::Host(fact) => self.hear(*fact, world),
                Question::Accept(on) => {
                    for post in &self.posts {
                        post.post(Letter::Instruction(Instruction::Accept(on)));
                    }
                }
                Question::HandOver(socket) => {
                    self.handover.successor = Some(socket);
                    self.handover.left = self.posts.len();
                    for post in &self.posts {
                        post.post(Letter::Operator(Order::Pack));
                    }
                }
                Question::Packed(parcel) => self.handover.parcels.push((worker, *parcel)),
                Question::AllPacked(estate) => self.all_packed(*estate, world),
                Question::Derive { .. }
                | Question::NameUser { .. }
                | Question::SecretRefused { .. }
                | Question::CheckPassword { .. }
                | Question::Forward { .. }
                | Question::LogStats { .. }
                | Question::LongWaits
                | Question::Surveyed { .. }
                | Question::Exit(_)
                | Question::Drain
                | Question::StopListening { .. } => {}
            }
        }
    }

    fn put_in_force(&mut self, now: Time, mut config: Config) {
        config.keep_fixed(&self.config);
        config.tls = self.config.tls;
        self.config = Arc::new(config);
        for post in &self.posts {
            post.post(Letter::Settings(self.config.clone()));
        }
        let outcome = self.roster.set_lists(now, &self.config, &|_| Vec::new());
        self.tell_hosts(&outcome);
    }

    fn answer(&self, worker: WorkerId, answer: Answer) {
        self.posts[usize::from(worker.0)].post(Letter::Answer(answer));
    }
}

/// The address of a host name: `db3` has the third one.
pub fn address_of(name: &str) -> IpAddr {
    let number = name
        .strip_prefix("db")
        .and_then(|number| number.parse().ok());
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, number.unwrap_or(1)))
}

/// An administrator on the console, who sends one command after the other.
pub struct Admin {
    orders: VecDeque<(u64, String)>,
    socket: Option<SocketId>,
    out: Vec<u8>,
    inbox: Vec<u8>,
    /// The command whose answer is awaited.
    awaits: Option<String>,
    /// When the last command was sent.
    asked: Time,
    done: bool,
    stopped: bool,
    rests_until: Time,
    gone: bool,
    /// The console may end without an answer, because its process ends.
    pub may_be_left: bool,
}

impl Admin {
    /// An administrator with commands. Each is sent some milliseconds after the last answer.
    pub fn new(orders: VecDeque<(u64, String)>, now: Time) -> Admin {
        Admin {
            gone: orders.is_empty(),
            orders,
            socket: None,
            out: Vec::new(),
            inbox: Vec::new(),
            awaits: None,
            asked: now,
            done: false,
            stopped: false,
            rests_until: now,
            may_be_left: false,
        }
    }

    /// All commands are sent and answered.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// The command whose answer is awaited.
    pub fn awaits(&self) -> Option<&str> {
        self.awaits.as_deref()
    }

    /// Sends a command now, unless the administrator has ended or waits for an answer.
    pub fn at_once(&mut self, text: &str) {
        let idle = self.socket.is_some() && self.awaits.is_none();
        if idle && !self.orders.is_empty() && !self.stopped {
            self.orders.push_front((0, text.into()));
            self.rests_until = Time(0);
        }
    }

    /// Sends no further commands.
    pub fn stop(&mut self) {
        self.orders.clear();
        self.stopped = true;
    }

    /// Takes a step, or none.
    pub fn step(&mut self, front: &Address, postgres: &mut Postgres, world: &mut World) {
        if self.gone || self.rests_until > world.now {
            return;
        }
        let Some(socket) = self.socket else {
            let parameters = [("user", "admin"), ("database", "pgbouncer")];
            write::startup(&mut self.out, 0, parameters);
            self.socket = world.connect_to_front(front);
            self.awaits = Some("login".into());
            self.gone = self.socket.is_none();
            return;
        };
        if !self.out.is_empty()
            && let Some(sent) = world.write(socket, &self.out)
        {
            self.out.drain(..sent);
        }
        match world.read(socket, 4096) {
            Read::Bytes(bytes) => self.inbox.extend_from_slice(&bytes),
            Read::Nothing => {}
            Read::End | Read::Reset => {
                if let Some(awaits) = self.awaits.take()
                    && !self.may_be_left
                {
                    let text = format!("the console ends instead of an answer to {awaits}");
                    world.story.violate("console", &[], text);
                }
                world.close(socket);
                self.gone = true;
                return;
            }
        }
        while let Some(Ok(header)) = header(&self.inbox) {
            if self.inbox.len() < header.total() {
                break;
            }
            let message: Vec<u8> = self.inbox.drain(..header.total()).collect();
            let now = world.now;
            world.story.tell(now, Who::World, || {
                format!("console -> {}", words(&message))
            });
            self.done |= header.tag == backend::COMMAND_COMPLETE;
            if header.tag == backend::READY {
                let order = self.awaits.take().unwrap_or_default();
                if std::mem::take(&mut self.done) {
                    self.carried_out(&order, postgres, world);
                }
            }
        }
        if self.awaits.is_none() {
            self.next(socket, postgres, world);
        }
    }

    /// A command was answered: from now on it must be in force.
    fn carried_out(&mut self, order: &str, postgres: &mut Postgres, world: &mut World) {
        // In the end everything is resumed.
        if self.stopped {
            return;
        }
        match order.split_once(' ').unwrap_or((order, "")) {
            ("PAUSE", "") => postgres.paused.all = true,
            ("PAUSE", database) => {
                if let Some(map) = postgres.map.as_mut().filter(|_| database == NAME) {
                    map.pause();
                }
                postgres.paused.databases.insert(database.into());
            }
            ("KILL", database) => {
                world.killed.insert(database.into(), self.asked);
            }
            _ => {}
        }
    }

    fn next(&mut self, socket: SocketId, postgres: &mut Postgres, world: &mut World) {
        let Some((millis, text)) = self.orders.front().cloned() else {
            write::empty(&mut self.out, frontend::TERMINATE);
            world.write(socket, &self.out);
            world.close(socket);
            self.gone = true;
            return;
        };
        if millis > 0 {
            self.orders[0].0 = 0;
            self.rests_until = Time(world.now.0 + millis * 1_000_000);
            return world.alarm(self.rests_until);
        }
        self.orders.pop_front();
        let now = world.now;
        world
            .story
            .tell(now, Who::World, || format!("console <- {text}"));
        write::query(&mut self.out, text.as_bytes());
        if text.starts_with("RESUME") {
            postgres.paused = Paused::default();
            postgres.map.iter_mut().for_each(MapInForce::resume);
        }
        self.awaits = Some(text);
        self.asked = now;
        world.activity += 1;
    }
}

/// The sender of a cancel request.
pub struct Canceller {
    socket: SocketId,
    out: Vec<u8>,
    /// The request is done.
    pub gone: bool,
}

impl Canceller {
    /// Sends a cancel request with this key.
    pub fn new(front: &Address, key: &(u32, Vec<u8>), world: &mut World) -> Option<Canceller> {
        let socket = world.connect_to_front(front)?;
        let mut out = Vec::new();
        write::cancel_request(&mut out, key.0, &key.1);
        Some(Canceller {
            socket,
            out,
            gone: false,
        })
    }

    /// Takes a step, or none. libpq waits for the end of file; some senders do not.
    pub fn step(&mut self, world: &mut World) {
        if self.gone || world.chance.once_in(3) {
            return;
        }
        if !self.out.is_empty() {
            let most = world.chance.part(self.out.len());
            if let Some(sent) = world.write(self.socket, &self.out[..most]) {
                self.out.drain(..sent);
            }
            return;
        }
        let impatient = world.chance.once_in(50);
        let ended = matches!(world.read(self.socket, 100), Read::End | Read::Reset);
        if ended || impatient {
            world.close(self.socket);
            self.gone = true;
        }
    }
}
