//! One process of Howdah: its workers, their mail, and its control thread. Another process may take over from
//! it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use howdah_daemon::broker::SharedBroker;
use howdah_daemon::mailbox::{Instruction, Letter, PostBox, silent_mailbox};
use howdah_daemon::worker::{FLUSH_SELDOM, FLUSH_SOON, Outside, Worker};
use howdah_pooler::event::{Address, LooseSocket, Order, Time, WorkerId};
use howdah_pooler::mail::Mail;
use howdah_pooler::note::Note;
use howdah_pooler::params::Tracked;
use howdah_pooler::parcel::{Freight, Parcel, code};
use howdah_pooler::{Pooler, PoolerSetup};

use crate::control::Control;
use crate::driver::SimDriver;
use crate::line::Secrecy;
use crate::scenario::Scenario;
use crate::story::Who;
use crate::tls::Toy;
use crate::watched::Watched;
use crate::world::{Shared, SocketId};

/// The difference between the worker numbers of two successive processes in the story.
const WORKERS_MAX: u16 = 10;

/// One process of Howdah.
pub struct Process {
    /// The workers.
    pub workers: Vec<Worker<Watched, SimDriver>>,
    /// Until when each worker hangs.
    pub stalled_until: Vec<Time>,
    /// The workers' mailboxes.
    pub posts: Vec<PostBox>,
    /// The Broker of the workers.
    pub broker: SharedBroker,
    /// The control thread.
    pub control: Control,
    notes: Receiver<(u16, Note)>,
}

impl Process {
    /// A process that accepts at these addresses. `before`: the number of earlier processes.
    pub fn new(scenario: &Scenario, before: u16, fronts: &[Address], world: &Shared) -> Process {
        let config = scenario.config();
        let (posts, mailboxes): (Vec<_>, Vec<_>) =
            (0..scenario.workers).map(|_| silent_mailbox()).unzip();
        let control = Control::new(posts.clone(), config.clone(), world.borrow().now);
        let broker = SharedBroker::new(scenario.seed);
        let (note, notes) = channel();
        let mut workers = Vec::new();
        let (numbers, begun) = (Arc::default(), Arc::default());
        if scenario.tls || scenario.manners.secrecy != Secrecy::Clear {
            let library = Arc::new(Toy::new(scenario.seed.wrapping_add(before.into())));
            for post in &posts {
                post.post(Letter::Instruction(Instruction::Tls(library.clone())));
            }
        }
        for (id, mailbox) in (0..scenario.workers).zip(mailboxes) {
            let mut driver = SimDriver::new(world.clone(), fronts.to_vec());
            driver.most_buffers = scenario.buffers;
            driver.accept_fails_once_in = scenario.accept_fails;
            let pooler = Pooler::new(PoolerSetup {
                worker: WorkerId(id),
                workers: scenario.workers,
                usable: scenario.workers,
                config: config.clone(),
                seed: [(id + 1 + before * WORKERS_MAX) as u8; 32],
                shared_seed: [(scenario.seed as u8).wrapping_add(before as u8); 32],
                started: 0.0,
                driver: "simulated".into(),
                uid: 70,
                numbers: Arc::clone(&numbers),
                begun: Arc::clone(&begun),
            });
            let name = id + before * WORKERS_MAX;
            let (ear, note) = (control.ear(), note.clone());
            let outside = Outside {
                ask: Box::new(move |worker, question| drop(ear.send((worker, question)))),
                note: Box::new(move |said| drop(note.send((name, said)))),
                tell: Box::new(drop),
                workers: posts.clone(),
                broker: broker.clone(),
            };
            let mut watched = Watched::new(pooler, name, world.clone());
            watched.readers = scenario.readers();
            watched.sharded = scenario.sharding.is_some();
            let events = [FLUSH_SELDOM, FLUSH_SOON, 1][(scenario.seed % 3) as usize];
            let worker = Worker::new(WorkerId(id), watched, driver, mailbox, outside);
            let mut worker = worker.flushing_every(events);
            worker.sockets().bound_handshakes(scenario.handshakes);
            workers.push(worker);
        }
        Process {
            stalled_until: vec![Time(0); workers.len()],
            workers,
            posts,
            broker,
            control,
            notes,
        }
    }

    /// Adds the workers' log lines to the story.
    pub fn tell_notes(&self, world: &Shared) {
        while let Ok((worker, note)) = self.notes.try_recv() {
            let mut world = world.borrow_mut();
            let now = world.now;
            world.story.tell(now, Who::Worker(worker), || note.text);
        }
    }

    /// Sends an order to all workers.
    pub fn order(&self, order: &Order) {
        for post in &self.posts {
            post.post(Letter::Operator(order.clone()));
        }
    }

    /// Gives the workers another process's connections, before anything else happens.
    pub fn inherit(&mut self, now: Time, mut freight: Freight) {
        let hosts = std::mem::take(&mut freight.estate.roster);
        self.control.inherit_hosts(now, hosts);
        let estate = Arc::new(freight.estate);
        for post in &self.posts {
            post.post(Letter::Mail(Mail::Inherit(estate.clone())));
        }
        self.deal(freight.parcels);
    }

    /// The successor has failed: everything comes back to this process.
    pub fn take_back(&self, freight: Freight) {
        self.deal(freight.parcels);
        self.order(&Order::GiveUp);
    }

    fn deal(&self, parcels: Vec<(WorkerId, Parcel)>) {
        let workers = self.posts.len() as u16;
        self.broker.expect_arrivals(workers);
        for (worker, mail) in howdah_pooler::mail::deal(parcels, workers) {
            self.posts[usize::from(worker.0)].post(Letter::Mail(mail));
        }
    }

    /// The successor has everything: clients left behind are served until they leave.
    pub fn drain(&self) {
        for post in &self.posts {
            let stop = Instruction::StopListening { keep_unix: false };
            post.post(Letter::Instruction(stop));
        }
        self.order(&Order::Drain);
    }

    /// True if the process may end and no mail is under way between its workers.
    pub fn may_end(&self) -> bool {
        let idle = self.control.idle() == self.workers.len();
        idle && self.control.is_at_rest() && !self.workers.iter().any(Worker::has_mail)
    }

    /// Ends the process: the kernel closes its sockets.
    pub fn end(mut self) {
        for worker in &mut self.workers {
            worker.sockets().driver().end();
        }
    }
}

/// Freight after its way to another process as bytes and sockets.
///
/// # Panics
/// The bytes can't be read again: a mistake of the format.
pub fn carried(freight: &Freight, scenario: &Scenario) -> Freight {
    let bytes = code::write(freight);
    let handles = code::sockets(freight).into_iter();
    let handles = handles.map(|socket| LooseSocket::new(*socket.inside::<SocketId>()));
    let config = scenario.config();
    let extra = { config.globals.track_extra_parameters.iter() }.map(String::as_str);
    let read = code::read(&bytes, handles.collect(), &Tracked::new(extra));
    read.unwrap_or_else(|_| panic!("freight can't be read"))
}
