//! A worker: the loop of one thread over the connection layer, the mail and `Pooler`.

use std::collections::VecDeque;

use howdah_pooler::Pooler;
use howdah_pooler::balance::HOT;
use howdah_pooler::event::{Action, Event, LooseSocket, Out, Peer, Question, Time, WorkerId};
use howdah_pooler::load::ThreadLoad;
use howdah_pooler::mail::ToBroker;
use howdah_pooler::note::Note;
use howdah_pooler::queries::Seen;

use crate::broker::SharedBroker;
use crate::driver::{Driver, ReceivedChunk};
use crate::helper::Helper;
use crate::mailbox::{Instruction, Letter, Mailbox, PostBox};
use crate::secure::Plain;
use crate::sockets::{HIGH_WATER, Happening, Sockets, earliest};
use crate::survive::survive;
use crate::vitals::{ThreadTimes, Vitals};

/// Makes a worker's decisions: [`Pooler`], or something smaller in tests of the layers below. The
/// contract is [`Pooler`]'s.
pub trait Decide {
    /// Handles one event, and appends actions to `out`.
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Out);
    /// When [`Event::Tick`] is due.
    fn next_deadline(&self) -> Option<Time>;
    /// Verifies every invariant. Debug builds call this after each event, or less often if it is
    /// much work.
    fn check(&self) {}
    /// Takes the load of the worker's thread since the last report, and how many mails it has
    /// posted to other workers so far.
    fn measured(&mut self, _signals: ThreadLoad, _posted: u64) {}
    /// An event of this connection has caused a panic. Ends this connection and its link, and
    /// nothing else.
    ///
    /// # Panics
    /// If more than this link is out of order.
    fn give_up(&mut self, _peer: Peer, _out: &mut Out) {
        panic!("a mistake that can't be survived");
    }
    /// How much work `check` is: roughly the number of objects that it checks.
    fn check_work(&self) -> usize {
        0
    }
}

impl Decide for Pooler {
    fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Out) {
        Pooler::handle(self, now, event, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        Pooler::next_deadline(self)
    }

    fn check(&self) {
        Pooler::check(self);
    }

    fn check_work(&self) -> usize {
        Pooler::check_work(self)
    }

    fn measured(&mut self, signals: ThreadLoad, posted: u64) {
        Pooler::measured(self, signals, posted);
    }

    fn give_up(&mut self, peer: Peer, out: &mut Out) {
        Pooler::give_up(self, peer, out);
    }
}

/// The part of the work of `check` that one event pays for. `check` runs when the events have paid
/// for all of it.
const CHECKED_PER_EVENT: usize = 64;

/// Receives the actions that do not concern sockets. The functions must not block.
pub struct Outside {
    /// Sends a question to the control thread.
    pub ask: Box<dyn FnMut(WorkerId, Question) + Send>,
    /// Writes to the log.
    pub note: Box<dyn FnMut(Note) + Send>,
    /// Sends a query to the log or to the tracer.
    pub tell: Box<dyn FnMut(Seen) + Send>,
    /// The mailboxes of all workers, by number.
    pub workers: Vec<PostBox>,
    /// The Broker of all workers.
    pub broker: SharedBroker,
}

/// In a long turn, output is handed to the kernel after so many events, so that PostgreSQL and the
/// clients begin while the worker goes on. Without this, all servers of a busy worker get their
/// statements at the end of a turn, and the worker then has nothing to do until the first one answers.
pub const FLUSH_SOON: u32 = 8;
/// The same where other threads want the worker's core. There the process that the kernel wakes may take
/// the core at once, and the worker comes back to cold caches: so it is better to flush rarely than early.
pub const FLUSH_SELDOM: u32 = 256;
/// A hot worker ([`HOT`]) hands its output over after one event for so many of its servers, if this is
/// sooner: a server that waits for its next statement does nothing, and few servers can't fill the gap.
const SERVERS_PER_EVENT: u32 = 6;
/// Other threads want the worker's core if they had it for more than one part in so many of the time in
/// which the worker had something to do.
const CONTENDED: u64 = 10;
/// Output is also handed over after so many received bytes, so that a peer that reads as fast as
/// the worker is seldom taken for congested.
const FLUSH_BYTES: usize = HIGH_WATER / 2;

/// One worker. It stays on the thread that made it.
pub struct Worker<P, D> {
    id: WorkerId,
    decisions: P,
    sockets: Sockets<D>,
    mailbox: Mailbox,
    letters: VecDeque<Letter>,
    outside: Outside,
    out: Out,
    now: Time,
    stopped: bool,
    /// The work of `check` that events have paid for since its last run (debug builds).
    paid: usize,
    /// How long the loop has waited, in nanoseconds.
    waited: u64,
    /// The number of mails to other workers.
    posted: u64,
    /// Reads the kernel's figures about this thread. Without it, the thread is taken to have a core
    /// whenever it has work.
    vitals: Option<Vitals>,
    /// The last load report: its time, how long the loop had waited by then, and the kernel's
    /// figures.
    told: (Time, u64, ThreadTimes),
    /// A panic while an event is handled ends the event's connection, not the process.
    survives: bool,
    /// Output is handed over after so many events: [`flush_every`].
    flush_every: u32,
    /// `flush_every` does not change with the load.
    flush_fixed: bool,
}

/// Handles an event. A panic ends the event's connection, if it has one.
fn handle<P: Decide>(
    decisions: &mut P,
    now: Time,
    event: Event<'_>,
    out: &mut Out,
    survives: bool,
) {
    match event.blamed() {
        Some(peer) if survives => {
            if survive(|| decisions.handle(now, event, out)).is_none() {
                decisions.give_up(peer, out);
            }
        }
        _ => decisions.handle(now, event, out),
    }
}

/// After how many events a worker with this load and so many servers hands its output over.
fn flush_every(load: &ThreadLoad, servers: u32) -> u32 {
    // The kernel does not always say how long a thread had no core. It always says how long it had one.
    let lost = load.working.saturating_sub(load.cpu).max(load.delayed);
    if lost > load.working / CONTENDED {
        FLUSH_SELDOM
    } else if load.busy() >= HOT {
        (servers / SERVERS_PER_EVENT).clamp(1, FLUSH_SOON)
    } else {
        FLUSH_SOON
    }
}

/// What the current event lends to its actions.
#[derive(Default)]
struct AtHand<'a> {
    accepted: Option<LooseSocket>,
    received: Option<&'a ReceivedChunk>,
    opened: Option<&'a Plain>,
}

impl<P: Decide, D: Driver> Worker<P, D> {
    /// A worker that begins to accept connections at once.
    pub fn new(
        id: WorkerId,
        decisions: P,
        driver: D,
        mailbox: Mailbox,
        outside: Outside,
    ) -> Worker<P, D> {
        let now = driver.now();
        let mut sockets = Sockets::new(driver);
        sockets.accept(true);
        if let Some(own) = outside.workers.get(usize::from(id.0)) {
            sockets.help_by(Helper::new(own.clone()));
        }
        let (letters, out) = (VecDeque::new(), Out::default());
        let stopped = false;
        Worker {
            id,
            decisions,
            sockets,
            mailbox,
            letters,
            outside,
            out,
            now,
            stopped,
            paid: 0,
            waited: 0,
            posted: 0,
            vitals: None,
            told: (now, 0, ThreadTimes::default()),
            survives: false,
            flush_every: FLUSH_SELDOM,
            flush_fixed: false,
        }
    }

    /// Output is handed over after so many events of a turn, whatever the load.
    pub fn flushing_every(mut self, events: u32) -> Self {
        (self.flush_every, self.flush_fixed) = (events, true);
        self
    }

    /// With this, a panic ends one link. Without it, a panic ends the process, which is right for
    /// tests.
    pub fn surviving(mut self) -> Self {
        self.survives = true;
        self
    }

    /// Reads the kernel's figures about this thread from now on.
    pub fn with_vitals(mut self, vitals: Vitals) -> Self {
        self.told.2 = vitals.take();
        self.vitals = Some(vitals);
        self
    }

    /// Runs until [`Instruction::Stop`].
    pub fn run(&mut self) {
        while !self.stopped {
            let due = self.decisions.next_deadline();
            self.turn(due);
        }
    }

    /// One turn of the loop: waits, at most until `deadline`, and handles all events.
    pub fn turn(&mut self, deadline: Option<Time>) {
        let deadline = if self.mailbox.is_empty() {
            deadline
        } else {
            Some(Time(0))
        };
        let rests = self.sockets.now();
        self.now = self.sockets.wait(deadline);
        self.waited += self.now.0.saturating_sub(rests.0);
        let (mut events, mut bytes) = (0, 0);
        while let Some(happening) = self.sockets.next() {
            // The output of the last events is handed over by the next wait.
            if events >= self.flush_every || bytes >= FLUSH_BYTES {
                self.sockets.submit();
                (events, bytes) = (0, 0);
            }
            bytes += match &happening {
                Happening::Received(_, chunk) => chunk.len(),
                Happening::Opened(_, plain) => plain.bytes().len(),
                _ => 0,
            };
            self.happened(happening);
            events += 1;
        }
        let mut letters = std::mem::take(&mut self.letters);
        self.mailbox.open(&mut letters);
        for letter in letters.drain(..) {
            self.open(letter);
        }
        self.letters = letters;
        if self
            .decisions
            .next_deadline()
            .is_some_and(|due| due <= self.now)
        {
            self.decide(Event::Tick, AtHand::default());
        }
    }

    /// True if there is mail.
    pub fn has_mail(&self) -> bool {
        !self.mailbox.is_empty()
    }

    /// The number of mails to other workers so far, including those that the Broker posted for this
    /// worker.
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// When the worker needs a turn even if nothing happens.
    pub fn next_deadline(&self) -> Option<Time> {
        earliest(self.decisions.next_deadline(), self.sockets.deadline())
    }

    /// The value that makes the decisions.
    pub fn decisions(&mut self) -> &mut P {
        &mut self.decisions
    }

    /// The connection layer.
    pub fn sockets(&mut self) -> &mut Sockets<D> {
        &mut self.sockets
    }

    fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Received(peer, chunk) => {
                let event = Event::Received(peer, self.sockets.bytes(&chunk));
                handle(
                    &mut self.decisions,
                    self.now,
                    event,
                    &mut self.out,
                    self.survives,
                );
                self.act(AtHand {
                    received: Some(&chunk),
                    ..AtHand::default()
                });
                self.sockets.release(chunk);
            }
            Happening::Accepted(socket, ends) => {
                let at_hand = AtHand {
                    accepted: Some(socket),
                    ..AtHand::default()
                };
                self.decide(Event::Accepted(*ends), at_hand);
            }
            Happening::Opened(peer, plain) => {
                let at_hand = AtHand {
                    opened: Some(&plain),
                    ..AtHand::default()
                };
                self.decide(Event::Received(peer, plain.bytes()), at_hand);
                self.sockets.give(plain);
            }
            Happening::Event(event) => self.decide(event, AtHand::default()),
            Happening::Note(note) => (self.outside.note)(note),
        }
    }

    fn open(&mut self, letter: Letter) {
        let event = match letter {
            Letter::Mail(mail) => Event::Mail(mail),
            Letter::Answer(answer) => Event::Answer(answer),
            Letter::Settings(config) => Event::Settings(config),
            Letter::Operator(order) => Event::Order(order),
            Letter::Instruction(order) => return self.obey(order),
        };
        self.decide(event, AtHand::default());
    }

    fn obey(&mut self, order: Instruction) {
        match order {
            Instruction::StopListening { keep_unix } => self.sockets.stop_listening(keep_unix),
            Instruction::Accept(on) => self.sockets.accept(on),
            Instruction::SocketOptions(options) => self.sockets.set_options(options),
            Instruction::Tls(library) => self.sockets.set_library(library),
            Instruction::Shaken(shaken) => self.sockets.shaken(*shaken),
            Instruction::Stop => self.stopped = true,
        }
    }

    fn decide(&mut self, event: Event<'_>, at_hand: AtHand<'_>) {
        handle(
            &mut self.decisions,
            self.now,
            event,
            &mut self.out,
            self.survives,
        );
        self.act(at_hand);
    }

    /// The load of this thread since the last call.
    fn signals(&mut self, servers: u32) -> ThreadLoad {
        let times = self.vitals.as_ref().map(Vitals::take).unwrap_or_default();
        let (since, waited, before) = self.told;
        self.told = (self.now, self.waited, times);
        let window = self.now.0.saturating_sub(since.0);
        let working = window.saturating_sub(self.waited - waited);
        let cpu = match self.vitals {
            Some(_) => times.cpu.saturating_sub(before.cpu),
            None => working,
        };
        let load = ThreadLoad {
            window,
            working,
            cpu,
            delayed: times.delayed.saturating_sub(before.delayed),
        };
        if !self.flush_fixed {
            self.flush_every = flush_every(&load, servers);
        }
        load
    }

    /// Carries the actions out, in order.
    fn act(&mut self, mut at_hand: AtHand<'_>) {
        let mut out = std::mem::take(&mut self.out);
        for action in out.actions.drain(..) {
            match action {
                Action::Relay(peer, range) => {
                    if let Some(chunk) = at_hand.received {
                        self.sockets.relay(peer, chunk, range);
                    } else if let Some(plain) = at_hand.opened {
                        self.sockets.relay_opened(peer, plain, range);
                    }
                }
                Action::Send(peer, range) => self.sockets.send(peer, &out.bytes[range]),
                Action::Receive { peer, on } => self.sockets.receive(peer, on),
                Action::Adopt(client) => {
                    if let Some(socket) = at_hand.accepted.take() {
                        self.sockets.adopt(Peer::Client(client), socket);
                    }
                }
                Action::TellFlushed(peer) => self.sockets.tell_flushed(peer),
                Action::LookForEnd(peer) => self.sockets.look_for_end(peer),
                Action::Connect(server, address) => {
                    self.sockets.connect(Peer::Server(server), &address);
                }
                Action::StartTls(peer, start) => self.sockets.start_tls(peer, *start),
                Action::Close { peer, how } => self.sockets.close(peer, how),
                Action::Detach(peer) => self.sockets.detach(peer),
                Action::Attach(peer, socket) => self.sockets.adopt(peer, socket),
                Action::Discard(socket) => self.sockets.discard(socket),
                Action::Post(to, mail) if to == self.id => {
                    self.mailbox.post_own(Letter::Mail(mail));
                }
                Action::Post(to, mail) => {
                    self.posted += 1;
                    self.outside.workers[to.0 as usize].post(Letter::Mail(mail));
                }
                Action::Broker(mail) => self.tell_broker(mail),
                Action::Ask(Question::Load(mut load)) => {
                    load.signals = self.signals(load.servers);
                    self.decisions.measured(load.signals, self.posted);
                    (self.outside.ask)(self.id, Question::Load(load));
                }
                Action::Ask(question) => (self.outside.ask)(self.id, question),
                Action::Note(note) => (self.outside.note)(note),
                Action::Tell(seen) => (self.outside.tell)(*seen),
            }
        }
        if let Some(unwanted) = at_hand.accepted {
            self.sockets.discard(unwanted);
        }
        out.clear();
        self.out = out;
        if cfg!(debug_assertions) {
            self.paid += CHECKED_PER_EVENT;
            if self.paid >= self.decisions.check_work() {
                self.paid = 0;
                self.decisions.check();
                self.outside.broker.check();
            }
        }
    }

    /// Calls the Broker. The Broker's answers are mail, to this worker, too.
    fn tell_broker(&mut self, mail: ToBroker) {
        let (id, workers, posted) = (self.id, &self.outside.workers, &mut self.posted);
        self.outside.broker.tell(self.now, mail, &mut |to, mail| {
            let post = &workers[usize::from(to.0)];
            if to == id {
                return post.post_awake(Letter::Mail(mail));
            }
            *posted += 1;
            post.post(Letter::Mail(mail));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_pooler::event::ClientId;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Panics at every event.
    #[derive(Default)]
    struct Broken {
        given_up: Vec<Peer>,
    }

    impl Decide for Broken {
        fn handle(&mut self, _now: Time, _event: Event<'_>, _out: &mut Out) {
            panic!("a mistake");
        }

        fn next_deadline(&self) -> Option<Time> {
            None
        }

        fn give_up(&mut self, peer: Peer, _out: &mut Out) {
            self.given_up.push(peer);
        }
    }

    #[test]
    fn a_mistake_ends_the_connection_that_it_can_be_blamed_for() {
        let (mut broken, mut out) = (Broken::default(), Out::default());
        let peer = Peer::Client(ClientId {
            index: 7,
            generation: 0,
        });
        let mut ends = |event: Event<'_>, survives| {
            let handled = || handle(&mut broken, Time(1), event, &mut out, survives);
            let ends = catch_unwind(AssertUnwindSafe(handled)).is_err();
            (ends, std::mem::take(&mut broken.given_up))
        };
        assert_eq!(ends(Event::Received(peer, b"x"), true), (false, vec![peer]));
        assert_eq!(ends(Event::Congested(peer), true), (false, vec![peer]));
        assert_eq!(
            ends(Event::Tick, true),
            (true, vec![]),
            "whose it is nobody knows"
        );
        let begins = Event::Closed { peer, gone: true };
        assert_eq!(
            ends(begins, true),
            (true, vec![]),
            "there is nothing left to end"
        );
        assert_eq!(
            ends(Event::Received(peer, b"x"), false),
            (true, vec![]),
            "in tests"
        );
    }

    #[test]
    fn output_waits_where_others_want_the_core() {
        // Of a thousand: the loop did not wait, the thread had a core, it wanted one and had none.
        for (working, cpu, delayed, servers, events) in [
            (0, 0, 0, 5, FLUSH_SOON),
            (500, 480, 0, 5, FLUSH_SOON),
            (500, 480, 60, 5, FLUSH_SELDOM),
            // The kernel does not say how long there was none.
            (500, 400, 0, 5, FLUSH_SELDOM),
            // The kernel's threads work for the worker while its loop waits.
            (100, 300, 5, 5, FLUSH_SOON),
            // A hot worker keeps none of a few servers waiting.
            (1000, 1000, 0, 5, 1),
            (1000, 980, 0, 12, 2),
            (1000, 1000, 0, 500, FLUSH_SOON),
            (1000, 700, 0, 5, FLUSH_SELDOM),
        ] {
            let load = ThreadLoad {
                window: 1000,
                working,
                cpu,
                delayed,
            };
            assert_eq!(flush_every(&load, servers), events, "{load:?}, {servers}");
        }
    }
}
