//! Those beside clients and PostgreSQL: the control thread's part, the administrator, and people
//! who cancel.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use howdah_daemon::mailbox::{Instruction, Letter, PostBox};
use howdah_pooler::balance::Balancer;
use howdah_pooler::config::{Config, PoolSpread};
use howdah_pooler::event::{Address, Answer, LooseSocket, Order, Question, Time, WorkerId};
use howdah_pooler::load::{Load, ThreadLoad};
use howdah_pooler::parcel::{Estate, Freight, Parcel};
use howdah_wire::frame::header;
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use crate::postgres::{Paused, Postgres};
use crate::story::{Who, words};
use crate::world::{Read, SocketId, World};

/// What the control thread hears.
pub type Ear = Sender<(WorkerId, Question)>;

/// The control thread's part: it answers after a while.
pub struct Control {
    ear: Ear,
    heard: Receiver<(WorkerId, Question)>,
    due: VecDeque<(Time, WorkerId, Question)>,
    posts: Vec<PostBox>,
    config: Arc<Config>,
    idle: BTreeSet<u16>,
    handover: HandOver,
    balancer: Balancer,
}

/// What is on its way to a successor.
#[derive(Default)]
struct HandOver {
    /// What the successor's console has become.
    successor: Option<LooseSocket>,
    parcels: Vec<(WorkerId, Parcel)>,
    /// Workers that have not given everything yet.
    left: usize,
    estate: Estate,
    /// It is complete.
    freight: Option<Freight>,
}

impl Control {
    /// With nothing asked.
    pub fn new(posts: Vec<PostBox>, config: Arc<Config>) -> Control {
        let (ear, heard) = channel();
        let due = VecDeque::new();
        Control {
            balancer: Balancer::new(posts.len() as u16),
            ear,
            heard,
            due,
            posts,
            config,
            idle: BTreeSet::new(),
            handover: HandOver::default(),
        }
    }

    /// Nobody awaits an answer.
    pub fn is_at_rest(&self) -> bool {
        self.due.is_empty()
    }

    /// All that a successor gets, once it is complete.
    pub fn freight(&mut self, world: &mut World) -> Option<Freight> {
        let freight = self.handover.freight.take()?;
        if let Some(socket) = self.handover.successor.take() {
            world.close(socket.into_inner::<SocketId>());
        }
        Some(freight)
    }

    /// The balancer hears of loads, and of how busy workers are what chance says.
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

    fn all_packed(&mut self, estate: Estate, world: &mut World) {
        let handover = &mut self.handover;
        let last_number = handover.estate.last_number.max(estate.last_number);
        handover.estate = Estate {
            last_number,
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

    /// How many workers said that they may end.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Where to ask.
    pub fn ear(&self) -> Ear {
        self.ear.clone()
    }

    /// Answers what is due. `edited` gives the configuration as it is in the file now.
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
                Question::Resolve { ticket, .. } => {
                    let found = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
                    post.post(Letter::Answer(Answer::Resolved(ticket, Ok(found))));
                }
                Question::Names { ticket } => {
                    self.answer(worker, Answer::Names(ticket, Box::default()));
                }
                Question::Reload { ticket } => {
                    let config = edited(world);
                    self.put_in_force((*config).clone());
                    self.answer(worker, Answer::Reloaded(ticket, Ok(())));
                }
                Question::Set { ticket, key, value } => {
                    let set = self.config.with(&key, &value);
                    let set = set.map(|config| self.put_in_force(config));
                    self.answer(worker, Answer::Reloaded(ticket, set));
                }
                Question::Idle(worker, _) => {
                    self.idle.insert(worker.0);
                }
                Question::Busy(worker) => {
                    self.idle.remove(&worker.0);
                }
                Question::Load(load) => self.balance(worker, *load, world),
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
                | Question::CheckPassword { .. }
                | Question::Forward { .. }
                | Question::LogStats { .. }
                | Question::Surveyed { .. }
                | Question::Exit(_)
                | Question::StopListening { .. } => {}
            }
        }
    }

    fn put_in_force(&mut self, mut config: Config) {
        config.keep_fixed(&self.config);
        config.tls = self.config.tls;
        self.config = Arc::new(config);
        for post in &self.posts {
            post.post(Letter::Settings(self.config.clone()));
        }
    }

    fn answer(&self, worker: WorkerId, answer: Answer) {
        self.posts[usize::from(worker.0)].post(Letter::Answer(answer));
    }
}

/// An administrator at the console: gives one order after the other.
pub struct Admin {
    orders: VecDeque<(u64, String)>,
    socket: Option<SocketId>,
    out: Vec<u8>,
    inbox: Vec<u8>,
    /// An answer is awaited, to this.
    awaits: Option<String>,
    done: bool,
    stopped: bool,
    rests_until: Time,
    gone: bool,
    /// The console may end without an answer: its process does not last.
    pub may_be_left: bool,
}

impl Admin {
    /// With orders, each so many milliseconds after the answer to the last.
    pub fn new(orders: VecDeque<(u64, String)>, now: Time) -> Admin {
        Admin {
            gone: orders.is_empty(),
            orders,
            socket: None,
            out: Vec::new(),
            inbox: Vec::new(),
            awaits: None,
            done: false,
            stopped: false,
            rests_until: now,
            may_be_left: false,
        }
    }

    /// All orders are given and answered.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// What it awaits the answer to.
    pub fn awaits(&self) -> Option<&str> {
        self.awaits.as_deref()
    }

    /// Gives an order at once, unless it is done or awaits an answer.
    pub fn at_once(&mut self, text: &str) {
        let idle = self.socket.is_some() && self.awaits.is_none();
        if idle && !self.orders.is_empty() && !self.stopped {
            self.orders.push_front((0, text.into()));
            self.rests_until = Time(0);
        }
    }

    /// No further orders.
    pub fn stop(&mut self) {
        self.orders.clear();
        self.stopped = true;
    }

    /// Does something, or not.
    pub fn step(&mut self, front: &Address, postgres: &mut Postgres, world: &mut World) {
        if self.gone || self.rests_until > world.now {
            return;
        }
        let Some(socket) = self.socket else {
            let parameters = [("user", "admin"), ("database", "pgbouncer")];
            write::startup(&mut self.out, 0, parameters);
            self.socket = world.connect(front);
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
                    self.carried_out(&order, postgres);
                }
            }
        }
        if self.awaits.is_none() {
            self.next(socket, postgres, world);
        }
    }

    /// An order was answered as done: from now it must hold.
    fn carried_out(&mut self, order: &str, postgres: &mut Postgres) {
        // Everything is resumed in the end.
        if self.stopped {
            return;
        }
        match order.split_once(' ').unwrap_or((order, "")) {
            ("PAUSE", "") => postgres.paused.all = true,
            ("PAUSE", database) => {
                postgres.paused.databases.insert(database.into());
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
        }
        self.awaits = Some(text);
        world.activity += 1;
    }
}

/// Somebody who asks to cancel.
pub struct Canceller {
    socket: SocketId,
    out: Vec<u8>,
    /// It is done.
    pub gone: bool,
}

impl Canceller {
    /// Asks to cancel what has this key.
    pub fn new(front: &Address, key: &(u32, Vec<u8>), world: &mut World) -> Option<Canceller> {
        let socket = world.connect(front)?;
        let mut out = Vec::new();
        write::cancel_request(&mut out, key.0, &key.1);
        Some(Canceller {
            socket,
            out,
            gone: false,
        })
    }

    /// Does something, or not. libpq waits for the end of file; some do not.
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
