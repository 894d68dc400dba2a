//! Workers on cores of their own, their mail, and the control thread. A worker's turn begins when its last
//! turn is over and there is something to do.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use howdah_daemon::broker::SharedBroker;
use howdah_daemon::mailbox::{Letter, PostBox, silent_mailbox};
use howdah_daemon::worker::{Decide, Outside, Worker};
use howdah_pooler::balance::{BalanceStep, Balancer, DECIDES};
use howdah_pooler::config::Config;
use howdah_pooler::event::{Action, Event, Out, Question, Time, WorkerId};
use howdah_pooler::load::ThreadLoad;
use howdah_pooler::mail::Mail;
use howdah_pooler::{Pooler, PoolerSetup};

use super::costs::Costs;
use super::driver::{Core, CoreDriver};
use super::net::{Net, Shared};

/// When clients begin to connect.
const START: u64 = 1_000_000_000;

/// The size of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The number of cores, which is also that of workers.
    pub cores: u16,
    /// The number of pools.
    pub pools: usize,
    /// The servers of each pool.
    pub servers: u32,
    /// The clients of each pool that send one statement after the other.
    pub clients: usize,
    /// After how many events of a turn a worker hands its output to the kernel, if not by its load.
    pub flush_every: Option<u32>,
}

impl Default for Layout {
    /// One core, and a pool of one server for one client.
    fn default() -> Layout {
        Layout {
            cores: 1,
            pools: 1,
            servers: 1,
            clients: 1,
            flush_every: None,
        }
    }
}

/// Mails between workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mails {
    /// All mails.
    pub all: u64,
    /// Mails with a lent server.
    pub lends: u64,
    /// Mails with a moved client.
    pub moves: u64,
}

/// A `Pooler` whose work takes time.
pub struct Costed {
    /// The `Pooler`.
    pub pooler: Pooler,
    /// Servers and clients posted to other workers.
    pub mails: Mails,
    worker: WorkerId,
    core: Rc<Core>,
    net: Shared,
    /// The workers that mail was posted to in this turn, and when.
    posted: Vec<(WorkerId, u64)>,
    /// The Broker got a message in this turn, and may have posted mail to any worker.
    told: bool,
}

impl Decide for Costed {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Out) {
        let costs = self.net.borrow().costs;
        self.core.takes(match event {
            Event::Mail(_) | Event::Answer(_) | Event::Settings(_) | Event::Order(_) => costs.mail,
            Event::Tick => costs.tick,
            _ => costs.event,
        });
        self.pooler.handle(now, event, out);
        for action in &out.actions {
            // As much as one mail to the Broker and one from it.
            if let Action::Broker(_) = action {
                self.core.takes(costs.mail + costs.post);
                self.told = true;
            }
            if let Action::Post(to, mail) = action
                && *to != self.worker
            {
                self.core.takes(costs.post);
                self.posted.push((*to, self.core.clock.get()));
                self.mails.lends += u64::from(matches!(mail, Mail::Server(_)));
                self.mails.moves += u64::from(matches!(mail, Mail::Move(_)));
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.pooler.next_deadline()
    }

    fn measured(&mut self, signals: ThreadLoad, posted: u64) {
        self.pooler.measured(signals, posted);
    }
}

/// The workers with their cores.
pub struct Machine {
    /// The sockets, and their far ends.
    pub net: Shared,
    /// The balancer's log lines, with their times.
    pub said: Vec<(u64, String)>,
    workers: Vec<Worker<Costed, CoreDriver>>,
    cores: Vec<Rc<Core>>,
    /// When each worker's next turn begins.
    turns: Vec<u64>,
    /// Until when each worker hangs.
    stalls: Vec<u64>,
    posts: Vec<PostBox>,
    heard: Receiver<(WorkerId, Question)>,
    balancer: Balancer,
    balanced: u64,
}

impl Machine {
    /// A machine whose clients log in, and rest until [`Net::begins`].
    pub fn new(layout: Layout, costs: Costs) -> Machine {
        Machine::beside(0, layout, costs)
    }

    /// The same. Before the others, `idle` clients of each pool log in and send nothing.
    pub fn beside(idle: usize, layout: Layout, costs: Costs) -> Machine {
        let count = usize::from(layout.cores);
        let net = Net::new(costs, count);
        let (posts, mailboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| silent_mailbox()).unzip();
        let (ear, heard) = channel();
        let broker = SharedBroker::new(0);
        let config = config(&layout);
        let setups = PoolerSetup::repeatable(layout.cores, &config);
        let (mut workers, mut cores) = (Vec::new(), Vec::new());
        for ((number, setup), mailbox) in (0..count).zip(setups).zip(mailboxes) {
            let core = Rc::new(Core::default());
            core.clock.set(START);
            let driver = CoreDriver::new(number, core.clone(), net.clone());
            let worker = WorkerId(number as u16);
            let decisions = Costed {
                pooler: Pooler::new(setup),
                mails: Mails::default(),
                worker,
                core: core.clone(),
                net: net.clone(),
                posted: Vec::new(),
                told: false,
            };
            let ear = ear.clone();
            let outside = Outside {
                ask: Box::new(move |worker, question| drop(ear.send((worker, question)))),
                note: Box::new(drop),
                tell: Box::new(drop),
                workers: posts.clone(),
                broker: broker.clone(),
            };
            let worker = Worker::new(worker, decisions, driver, mailbox, outside);
            workers.push(match layout.flush_every {
                Some(events) => worker.flushing_every(events),
                None => worker,
            });
            cores.push(core);
        }
        let all = idle + layout.clients;
        for pool in 0..layout.pools {
            for client in 0..all {
                let number = (pool * all + client) as u64;
                // Ten clients per millisecond.
                let at = START + number * 100_000;
                let idle = client < idle;
                net.borrow_mut()
                    .client(at, number as usize % count, pool, idle);
            }
        }
        Machine {
            net,
            said: Vec::new(),
            workers,
            cores,
            turns: vec![START; count],
            stalls: vec![0; count],
            posts,
            heard,
            balancer: Balancer::new(layout.cores),
            balanced: 0,
        }
    }

    /// When all clients have long logged in, and send their first statement.
    pub fn begins(idle: usize, layout: &Layout) -> u64 {
        let clients = layout.pools * (idle + layout.clients);
        START + clients as u64 * 100_000 + 1_000_000_000
    }

    /// Runs until this time.
    pub fn run(&mut self, until: u64) {
        loop {
            let at = (0..self.turns.len()).min_by_key(|at| self.turns[*at]);
            let at = at.expect("there is a worker");
            let arrives = self.net.borrow().next().unwrap_or(u64::MAX);
            if arrives.min(self.turns[at]) > until {
                return;
            }
            if arrives <= self.turns[at] {
                let looks = self.net.borrow_mut().deliver();
                if let Some(worker) = looks {
                    self.wake(worker, arrives);
                }
            } else {
                self.turn(at);
            }
        }
    }

    /// The mails between workers so far.
    pub fn mails(&mut self) -> Mails {
        let mut sum = Mails::default();
        for worker in &mut self.workers {
            sum.all += worker.posted();
            let mails = worker.decisions().mails;
            sum.lends += mails.lends;
            sum.moves += mails.moves;
        }
        sum
    }

    /// A worker hangs until this time.
    pub fn stall(&mut self, worker: usize, until: u64) {
        self.stalls[worker] = until;
        self.turns[worker] = self.turns[worker].max(until);
    }

    /// A worker has something to do from this time on.
    fn wake(&mut self, worker: usize, at: u64) {
        let at = at
            .max(self.cores[worker].clock.get())
            .max(self.stalls[worker]);
        self.turns[worker] = self.turns[worker].min(at);
    }

    fn turn(&mut self, at: usize) {
        let core = self.cores[at].clone();
        core.wakes.set(self.turns[at]);
        self.workers[at].turn(Some(Time(0)));
        let worked = core.worked.get();
        core.slept.set(!worked);
        let deadline = self.workers[at].next_deadline();
        let more = worked || self.workers[at].has_mail() || self.net.borrow().has_due(at);
        let clock = core.clock.get();
        self.turns[at] = if more {
            clock
        } else {
            deadline.map_or(u64::MAX, |due| due.0.max(clock))
        };
        let posted = std::mem::take(&mut self.workers[at].decisions().posted);
        for (to, when) in posted {
            self.wake(usize::from(to.0), when);
        }
        if std::mem::take(&mut self.workers[at].decisions().told) {
            for other in (0..self.workers.len()).filter(|other| *other != at) {
                if self.workers[other].has_mail() {
                    self.wake(other, clock);
                }
            }
        }
        while let Ok((worker, question)) = self.heard.try_recv() {
            if let Question::Load(load) = question {
                self.balancer.hear(Time(clock), worker, &load);
                self.balance(clock);
            }
        }
    }

    /// Balances as the control thread does.
    fn balance(&mut self, now: u64) {
        if now < self.balanced + DECIDES {
            return;
        }
        self.balanced = now;
        let workers = self.posts.len() as u16;
        for step in self.balancer.decide(Time(now), workers, false) {
            if let BalanceStep::Say(text) = &step {
                self.said.push((now, text.clone()));
            }
            for (worker, mail) in step.mails(workers) {
                self.posts[usize::from(worker.0)].post(Letter::Mail(mail));
                self.wake(usize::from(worker.0), now);
            }
        }
    }
}

fn config(layout: &Layout) -> Arc<Config> {
    let mut text = String::from("[databases]\n");
    for pool in 0..layout.pools {
        let size = layout.servers;
        text += &format!("p{pool} = host=127.0.0.1 port=5432 pool_size={size}\n");
    }
    text += "[pgbouncer]\nauth_type = trust\nauth_file = list\npool_mode = transaction\nmax_client_conn = 100000\n";
    let list = || "\"u\" \"\"\n".to_string();
    match Config::load("cores.ini", &text, &mut |_| Ok(list())) {
        Ok((config, _)) => Arc::new(config),
        Err(mistakes) => panic!("{mistakes:?} in:\n{text}"),
    }
}
