//! The control thread: signals, and work for all workers that may block or is rare.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_daemon::broker::SharedBroker;
use howdah_daemon::driver::memory::Allocator;
use howdah_daemon::driver::socket::{Listener, clock};
use howdah_daemon::mailbox::{Instruction, Letter, PostBox};
use howdah_daemon::tls::Contexts;
use howdah_daemon::tls::contexts::{Look, TicketSeed};
use howdah_pooler::balance::{BalanceStep, Balancer, DECIDES};
use howdah_pooler::config::{Config, PoolSpread, SecretSource};
use howdah_pooler::event::{Answer, Order, Question, Time, Verified, WorkerId};
use howdah_pooler::load::Load;
use howdah_pooler::mail::Mail;
use howdah_pooler::maintenance::long_wait;
use howdah_pooler::note::Level;
use howdah_pooler::order::Shutdown;
use howdah_pooler::roster::lore::RosterLore;
use howdah_pooler::roster::{Outcome, Roster};
use howdah_pooler::sources::SourceAnswer;
use howdah_pooler::stats::Stats;
use nix::unistd::{Uid, User};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::authority::{Authorities, PasswordCheck};
use crate::boot::{Fatal, Source};
use crate::derive::{Derived, Deriver, Done, Recipe};
use crate::dns::{self, Found, HostNames, LookupStep, Resolver};
use crate::drain::Drain;
use crate::forward::forward;
use crate::handover::{HandOver, Round, Sent};
use crate::http::{Http, Sampler};
use crate::leave::leave;
use crate::log::{self, Log};
use crate::long_waits::LongWaits;
use crate::placed_names::PlacedNames;
use crate::reload::{Assigned, LoadedTls, TlsRead};
use crate::signals::{OperatorRequest, Signals};
use crate::sources::Sources;
use crate::systemd;
use crate::tracer::Tracer;
use crate::watch::{FileWatch, SeenFiles};

/// The most threads for blocking work. Some of them stay free for files while the others wait for
/// host names.
const BLOCKING_THREADS: usize = dns::THREADS + 4;

/// How often workers are asked for metrics, if there is an HTTP endpoint.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// How often certificate and key files are checked for changes.
const CERTIFICATES_PERIOD: Duration = Duration::from_secs(10);

/// How often the configuration's files are looked at, with `reload_on_change`.
const FILES_PERIOD: Duration = Duration::from_secs(2);

/// How often the names of placed databases are looked at: whether their answers' time is over.
const NAMES_PERIOD: Duration = Duration::from_secs(1);

/// How often free memory is given back to the system.
const MEMORY_PERIOD: Duration = Duration::from_secs(5);

/// The worker that asked, and the ticket of its question.
pub type QuestionId = (WorkerId, u64);

/// An event for the control thread.
pub enum ControlEvent {
    /// A worker's question.
    Asked(WorkerId, Question),
    /// This configuration's TLS files were looked at, and read if there was a reason.
    Looked(Arc<Config>, Option<Box<TlsRead>>),
    /// The present state of the configuration's files.
    Watched(SeenFiles),
    /// A name was looked up.
    Resolved(String, Found),
    /// A key was derived.
    Derived(Derived),
    /// The name of a system user, or the reason why there is none.
    Named(u32, Result<String, String>),
    /// A source of secrets has answered.
    Sourced(SecretSource, SourceAnswer),
    /// A client's password was checked: the worker and ticket, and whether it is right.
    Checked(WorkerId, u64, Result<Verified, String>),
    /// The serial number of a DNS zone.
    Zone(String, u32),
    /// A peer has received a worker's cancel request.
    Forwarding(WorkerId, u64),
    /// A peer has closed the connection of a cancel request, or could not be reached.
    Forwarded(WorkerId, u64, Result<(), String>),
    /// The configuration was read.
    Loaded(Box<LoadedTls>),
    /// The TLS files of a SET were read.
    Assigned(Box<Assigned>),
    /// A round of a takeover has ended: the successor has everything, or has failed.
    Sent(Box<Sent>),
    /// It is time for the next round of a takeover, for the clients that stayed.
    Round(Round),
}

/// The channel on which workers send their questions; it never blocks.
pub type Ear = UnboundedSender<ControlEvent>;

/// The control thread's runtime and channel, before workers exist.
pub struct Desk {
    runtime: tokio::runtime::Runtime,
    signals: Signals,
    ear: Ear,
    heard: UnboundedReceiver<ControlEvent>,
    deriver: Deriver<QuestionId>,
    cores: usize,
}

/// Everything that exists when the control thread begins to serve.
pub struct Parts {
    /// The log.
    pub log: Log,
    /// The source of the settings.
    pub source: Source,
    /// The settings.
    pub config: Arc<Config>,
    /// Keys and certificates.
    pub contexts: Arc<Contexts>,
    /// The seed of the session ticket keys.
    pub tickets: TicketSeed,
    /// Resolves host names.
    pub resolver: Resolver,
    /// The sources of secrets.
    pub sources: Sources,
    /// The workers' mailboxes, by worker number.
    pub workers: Vec<PostBox>,
    /// The Broker of all workers.
    pub broker: SharedBroker,
    /// The listening sockets.
    pub listeners: Vec<Listener>,
    /// The sender of trace spans.
    pub tracer: Tracer,
    /// What the predecessor knew of hosts.
    pub hosts: RosterLore,
}

impl Desk {
    /// Begins to handle signals, and starts the threads that derive keys. The signals that end the
    /// process do so at once until [`Desk::end_in_order`].
    ///
    /// # Errors
    /// The system refuses threads or descriptors.
    pub fn open(cores: usize) -> Result<Desk, Fatal> {
        let open = || -> std::io::Result<Desk> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(BLOCKING_THREADS)
                .build()?;
            let signals = {
                let _inside = runtime.enter();
                Signals::install()?
            };
            let (ear, heard) = unbounded_channel();
            let ready = ear.clone();
            let deriver = Deriver::start(cores.saturating_sub(1), move |derived| {
                // While the process is ending, nobody receives this.
                let _ = ready.send(ControlEvent::Derived(derived));
            })?;
            Ok(Desk {
                runtime,
                signals,
                ear,
                heard,
                deriver,
                cores,
            })
        };
        open().map_err(|why| cannot_start(&why))
    }

    /// From now on, signals end the process in good order.
    ///
    /// # Errors
    /// The system refuses descriptors.
    pub fn end_in_order(&mut self) -> Result<(), Fatal> {
        let _inside = self.runtime.enter();
        let installed = self.signals.install_stops();
        installed.map_err(|why| cannot_start(&why))
    }

    /// The channel for questions.
    pub fn ear(&self) -> Ear {
        self.ear.clone()
    }

    /// Serves the workers and the operator until the process ends.
    pub fn serve(self, parts: Parts) -> ! {
        let Parts {
            log,
            source,
            config,
            contexts,
            tickets,
            resolver,
            sources,
            workers,
            broker,
            listeners,
            tracer,
            hosts,
        } = parts;
        tracer.set(config.globals.trace_endpoint.as_str());
        let Desk {
            runtime,
            mut signals,
            ear,
            mut heard,
            deriver,
            cores,
        } = self;
        let http = {
            let _inside = runtime.enter();
            Http::start(&config.globals, &log)
        };
        let resolver = Arc::new(resolver);
        let count = workers.len() as u16;
        let authorities = Authorities::new(resolver.clone(), &log);
        let mut control = Control {
            log,
            source,
            looks: Contexts::looks(&config),
            looking: false,
            config,
            contexts,
            tickets_made: tickets,
            workers,
            broker,
            ear,
            balancer: Balancer::new(count),
            roster: Roster::new(count),
            balanced: Time(0),
            usable: count.min(u16::try_from(cores).unwrap_or(u16::MAX)).max(1),
            names: HostNames::new(),
            placed: PlacedNames::inherit(&hosts),
            authorities,
            sources,
            resolver,
            deriver,
            nameless: HashMap::new(),
            reloads: VecDeque::new(),
            watch: FileWatch::default(),
            handover: HandOver::new(listeners),
            http,
            sampler: Sampler::new(),
            long_waits: LongWaits::default(),
            tracer,
            ending: false,
            asked_to_end: false,
            drain: Drain::default(),
            idle: HashSet::new(),
            counted: Stats::default(),
            counted_by: HashSet::new(),
        };
        control.roster.inherit(hosts);
        crate::look::look_once(control.config.clone(), control.log.clone());
        runtime.block_on(async {
            control.place_hosts();
            let mut zones_at = Instant::now();
            let mut samples = tokio::time::interval(SAMPLE_EVERY);
            samples.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut certificates = tokio::time::interval(CERTIFICATES_PERIOD);
            let mut files = tokio::time::interval(FILES_PERIOD);
            files.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut names = tokio::time::interval(NAMES_PERIOD);
            names.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut memory = tokio::time::interval(MEMORY_PERIOD);
            memory.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut allocator = Allocator::default();
            loop {
                let period = control.config.globals.dns_zone_check_period;
                let next = zones_at.checked_add(period).unwrap_or(zones_at);
                tokio::select! {
                    wish = signals.next() => control.grant(wish),
                    Some(heard) = heard.recv() => control.hear(heard),
                    _ = samples.tick(), if control.http.is_on() => {
                        control.sampler.ask(&control.workers);
                    }
                    _ = names.tick(), if control.placed.names().next().is_some() => {
                        control.look_up_placed(false);
                    }
                    at = memory.tick() => allocator.tidy(at.into_std()),
                    _ = certificates.tick(), if !control.looks.is_empty() => {
                        control.look_at_certificates();
                    }
                    _ = files.tick(), if control.config.globals.reload_on_change => {
                        control.look_at_files();
                    }
                    () = due_at(control.drain.next_due()) => control.drain_on(),
                    () = due_at(control.sources.next_due()) => control.sources.ask_due(),
                    () = tokio::time::sleep_until(next.into()), if !period.is_zero() => {
                        zones_at = Instant::now();
                        control.check_zones();
                    }
                }
            }
        })
    }
}

fn cannot_start(why: &std::io::Error) -> Fatal {
    Fatal(format!(
        "cannot start the control thread: {}",
        log::text(why)
    ))
}

/// Waits until a time of the process's clock; for ever without one.
async fn due_at(at: Option<Time>) {
    match at {
        Some(at) => tokio::time::sleep(Duration::from_nanos(at.0.saturating_sub(clock().0))).await,
        None => std::future::pending().await,
    }
}

pub struct Control {
    pub log: Log,
    pub source: Source,
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The TLS contexts.
    pub contexts: Arc<Contexts>,
    /// The seed of the session ticket keys.
    pub tickets_made: TicketSeed,
    /// The state of the files when the contexts were made.
    pub looks: Vec<Look>,
    /// A thread is checking these files.
    pub looking: bool,
    pub workers: Vec<PostBox>,
    pub broker: SharedBroker,
    pub ear: Ear,
    balancer: Balancer,
    pub roster: Roster,
    /// When the balancer last decided.
    balanced: Time,
    /// How many workers may have clients.
    usable: u16,
    names: HostNames<QuestionId>,
    placed: PlacedNames,
    resolver: Arc<Resolver>,
    pub authorities: Authorities,
    /// The sources of secrets.
    pub sources: Sources,
    deriver: Deriver<QuestionId>,
    /// The questions that wait for the name of a system user. There is one look-up at a time for
    /// each user.
    nameless: HashMap<u32, Vec<QuestionId>>,
    /// Reloads that are wanted; the first is under way. `None`: by a signal.
    pub reloads: VecDeque<Option<QuestionId>>,
    /// Changes of the configuration's files.
    pub watch: FileWatch,
    pub handover: HandOver,
    pub http: Http,
    pub sampler: Sampler,
    long_waits: LongWaits,
    pub tracer: Tracer,
    /// The process ends as soon as possible: an operator wants that, or a successor has taken over.
    pub ending: bool,
    /// An operator has asked for the end: the next such signal ends the process at once.
    pub asked_to_end: bool,
    /// The steps before that, if there are any.
    pub drain: Drain,
    /// Workers with nothing left to wait for.
    idle: HashSet<WorkerId>,
    /// The counts of this `stats_period`, and the workers that have reported theirs.
    counted: Stats,
    counted_by: HashSet<WorkerId>,
}

impl Control {
    fn grant(&mut self, wish: OperatorRequest) {
        match wish {
            OperatorRequest::Reload => {
                self.say("got SIGHUP, re-reading config");
                systemd::reloading();
                self.reload(None);
            }
            OperatorRequest::EndAfterClients if self.asked_to_end => {
                self.say("got SIGTERM while shutting down, fast exit");
                leave(0);
            }
            OperatorRequest::EndAfterServers if self.asked_to_end => {
                self.say("got SIGINT while shutting down, fast exit");
                leave(0);
            }
            OperatorRequest::EndAfterClients => {
                self.say("got SIGTERM, shutting down, waiting for all clients disconnect");
                self.end(Order::ShutdownWaitForClients);
            }
            OperatorRequest::EndAfterServers => {
                self.say(
                    "got SIGINT, shutting down, waiting for all servers connections to be released",
                );
                self.begin_drain();
            }
            OperatorRequest::EndNow => {
                self.say("got SIGQUIT, fast exit");
                leave(0);
            }
            OperatorRequest::Pause => {
                self.say("got SIGUSR1, pausing all activity");
                self.order(&Order::Pause(None));
            }
            OperatorRequest::Resume => {
                self.say("got SIGUSR2, continuing from PAUSE");
                self.order(&Order::Resume(None));
            }
        }
    }

    /// True if balancers should send no new clients: the process ends, or will soon.
    pub fn is_draining(&self) -> bool {
        self.ending || self.drain.has_begun()
    }

    /// TCP sockets are closed first, so that new connections are refused from now on.
    pub fn end(&mut self, order: Order) {
        self.asked_to_end = true;
        systemd::stopping();
        self.stop_listening(true);
        self.order(&order);
    }

    fn hear(&mut self, heard: ControlEvent) {
        match heard {
            ControlEvent::Asked(from, question) => self.asked(from, question),
            ControlEvent::Watched(seen) => self.watched(&seen),
            ControlEvent::Looked(of, read) => self.looked(&of, read.map(|read| *read)),
            ControlEvent::Assigned(assigned) => self.assigned(*assigned),
            ControlEvent::Resolved(host, found) => {
                let globals = &self.config.globals;
                let ttl = if found.is_ok() {
                    globals.dns_max_ttl
                } else {
                    globals.dns_nxdomain_ttl
                };
                if let Err(why) = &found {
                    let text = format!("DNS lookup failed: {host}: {why}");
                    self.log.say(Level::Warning, text);
                }
                let (askers, gone) = self.names.found(&host, &found, ttl, Instant::now());
                if !gone.is_empty() {
                    self.moved(&host, &gone);
                }
                // Before the answers: a name with several addresses is no host that somebody waits for.
                if self.placed.found(&host, self.names.addresses(&host)) {
                    self.say_hosts_of(&host);
                    self.set_lists();
                }
                for asker in askers {
                    self.answer(asker.0, Answer::Resolved(asker.1, found.clone()));
                }
            }
            ControlEvent::Derived(derived) => {
                let (key, askers) = match self.deriver.ready(derived) {
                    Done::Key(key, askers) => (Some(key), askers),
                    Done::Dropped(askers) => (None, askers),
                };
                for (worker, ticket) in askers {
                    let answer =
                        key.map_or(Answer::Dropped(ticket), |key| Answer::Derived(ticket, key));
                    self.answer(worker, answer);
                }
            }
            ControlEvent::Named(uid, name) => {
                for (worker, ticket) in self.nameless.remove(&uid).unwrap_or_default() {
                    self.answer(worker, Answer::UserNamed(ticket, name.clone()));
                }
            }
            ControlEvent::Sourced(source, answer) => {
                if self.sources.answered(&source, answer) {
                    self.new_secrets();
                }
            }
            ControlEvent::Checked(worker, ticket, verdict) => {
                self.answer(worker, Answer::PasswordChecked(ticket, verdict));
            }
            ControlEvent::Zone(zone, serial) => {
                if let Some((old, names)) = self.names.zone_has(&zone, serial) {
                    self.say(&format!(
                        "zone '{zone}' serial changed: old={old} new={serial}"
                    ));
                    for name in names {
                        self.look_up(name);
                    }
                }
            }
            ControlEvent::Forwarding(worker, ticket) => {
                self.answer(worker, Answer::Forwarding(ticket))
            }
            ControlEvent::Forwarded(worker, ticket, result) => {
                self.answer(worker, Answer::Forwarded(ticket, result));
            }
            ControlEvent::Loaded(loaded) => self.loaded(*loaded),
            ControlEvent::Round(round) => self.round(round),
            ControlEvent::Sent(sent) => self.sent(*sent),
        }
    }

    fn asked(&mut self, from: WorkerId, question: Question) {
        match question {
            Question::Resolve { ticket, host } => self.resolve((from, ticket), host),
            Question::Derive {
                ticket,
                password,
                salt,
                iterations,
                host,
                wanted,
            } => {
                let recipe = Recipe {
                    password,
                    salt,
                    iterations,
                };
                if let Some(key) = self.deriver.ask(recipe, host, wanted, (from, ticket)) {
                    self.answer(from, Answer::Derived(ticket, key));
                }
            }
            Question::NameUser { ticket, uid } => self.name_user((from, ticket), uid),
            Question::CheckPassword {
                ticket,
                authority,
                user,
                database,
                password,
                remote,
            } => {
                let check = PasswordCheck {
                    authority,
                    user,
                    database,
                    trust: self.config.globals.https_ca_file.clone(),
                    password,
                    remote,
                };
                let ear = self.ear.clone();
                self.authorities.ask(check, move |verdict| {
                    // While the process is ending, nobody receives this.
                    let _ = ear.send(ControlEvent::Checked(from, ticket, verdict));
                });
            }
            Question::Forward {
                ticket,
                hosts,
                port,
                packet,
            } => {
                let (ear, resolver) = (self.ear.clone(), self.resolver.clone());
                let balancers = self.config.globals.proxy_protocol.clone();
                tokio::spawn(async move {
                    // While the process is ending, nobody receives this.
                    let reached = || drop(ear.send(ControlEvent::Forwarding(from, ticket)));
                    let result =
                        forward(&resolver, &hosts, port, &packet, &balancers, reached).await;
                    let _ = ear.send(ControlEvent::Forwarded(from, ticket, result));
                });
            }
            Question::Names { ticket } => {
                let names = self.names.tell(Instant::now());
                self.answer(from, Answer::Names(ticket, Box::new(names)));
            }
            Question::Reload { ticket } => self.reload(Some((from, ticket))),
            Question::Set { ticket, key, value } => self.set((from, ticket), key, value),
            Question::SecretRefused { source, generation } => {
                if self.sources.refused(&source, generation) {
                    self.new_secrets();
                }
            }
            Question::LogStats { stats, seconds } => self.log_stats(from, &stats, seconds),
            Question::Surveyed { serial, holdings } => {
                let globals = &self.config.globals;
                let spans = self.tracer.counts();
                let keys_age = self.authorities.keys_age();
                let sight = self.sampler.answered(
                    serial,
                    *holdings,
                    (self.is_draining(), spans, keys_age),
                    globals,
                );
                if let Some(sight) = sight {
                    let long = long_wait(&self.config.globals);
                    for line in self.long_waits.lines(&sight, long, Instant::now()) {
                        self.log.say(Level::Warning, line);
                    }
                    self.http.publish(sight);
                }
            }
            Question::LongWaits => {
                self.long_waits.ask();
                // Otherwise the next sample comes within a second.
                if !self.http.is_on() {
                    self.sampler.ask(&self.workers);
                }
            }
            Question::Idle(worker, ending) => {
                self.idle.insert(worker);
                if self.ending && self.idle.len() == self.workers.len() {
                    self.say(match ending {
                        Shutdown::Clients => "client connections dropped, exiting",
                        Shutdown::Servers => "server connections dropped, exiting",
                    });
                    leave(0);
                }
            }
            Question::Load(load) => self.balance(from, &load),
            Question::Host(fact) => {
                let outcome = self.roster.hear(clock(), *fact);
                self.tell_hosts(outcome);
            }
            Question::Busy(worker) => drop(self.idle.remove(&worker)),
            Question::Accept(on) => self.accept(on),
            Question::HandOver(socket) => self.begin_handover(socket),
            Question::Packed(parcel) => self.handover.take(from, *parcel),
            Question::AllPacked(estate) => self.all_packed(*estate),
            Question::Exit(code) => leave(code),
            Question::Drain => self.begin_drain(),
            Question::StopListening { keep_unix } => {
                self.asked_to_end = true;
                self.stop_listening(keep_unix);
            }
        }
    }

    /// Sources have given new values, or have failed: all workers are told.
    fn new_secrets(&mut self) {
        let mut config = (*self.config).clone();
        self.sources.fill(&mut config);
        self.config = Arc::new(config);
        self.post_to_all(|| Letter::Mail(Mail::Secrets(self.config.clone())));
    }

    /// The configuration is new: the roster learns which hosts there are, and their names are looked
    /// up.
    pub fn place_hosts(&mut self) {
        let known = |name: &str| self.names.addresses(name).to_vec();
        self.placed.set(&self.config, known);
        // Before workers hear of new hosts: who asks for one of these names waits for its look-up.
        self.look_up_placed(true);
        self.set_lists();
    }

    /// Looks up the names of placed databases: all of them `anew`, or those whose answer's time is
    /// over.
    fn look_up_placed(&mut self, anew: bool) {
        let now = Instant::now();
        let due = self.placed.names();
        let due = due.filter(|name| self.names.is_due(name, anew, now));
        for name in due.map(String::from).collect::<Vec<_>>() {
            self.look_up(name);
        }
    }

    /// The roster learns which hosts there are.
    fn set_lists(&mut self) {
        let addresses = |name: &str| self.placed.addresses(name);
        let outcome = self.roster.set_lists(clock(), &self.config, &addresses);
        self.tell_hosts(outcome);
    }

    /// Logs for which hosts a name stands.
    fn say_hosts_of(&self, name: &str) {
        let addresses = self.placed.addresses(name);
        let list: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let list = list.join(", ");
        self.say(&format!("DNS: {name} stands for the hosts {list}"));
    }

    /// Logs what the roster says, and tells all workers.
    fn tell_hosts(&self, outcome: Outcome) {
        for note in &outcome.notes {
            self.log.note(note);
        }
        for worker in &self.workers {
            outcome
                .mails()
                .for_each(|mail| worker.post(Letter::Mail(mail)));
        }
    }

    /// Passes a worker's load to the balancer, and ten times a second carries out what the balancer
    /// decides.
    fn balance(&mut self, from: WorkerId, load: &Load) {
        let now = clock();
        self.balancer.hear(now, from, load);
        if now.0 < self.balanced.0 + DECIDES {
            return;
        }
        self.balanced = now;
        let workers = self.workers.len() as u16;
        let always = self.config.globals.pool_spread == PoolSpread::Always;
        for step in self.balancer.decide(now, self.usable, always) {
            if let BalanceStep::Say(text) = &step {
                self.say(text);
            }
            for (worker, mail) in step.mails(workers) {
                self.workers[usize::from(worker.0)].post(Letter::Mail(mail));
            }
        }
    }

    /// The workers' periods end within moments of each other; the last one completes the line.
    fn log_stats(&mut self, from: WorkerId, stats: &Stats, seconds: u64) {
        self.counted.add(stats);
        self.counted_by.insert(from);
        if self.counted_by.len() == self.workers.len() {
            let line = std::mem::take(&mut self.counted).log_line(seconds);
            self.counted_by.clear();
            self.say(&line);
        }
    }

    fn resolve(&mut self, asker: QuestionId, host: String) {
        match self.names.ask(&host, asker, Instant::now()) {
            LookupStep::Answer(found) => self.answer(asker.0, Answer::Resolved(asker.1, found)),
            LookupStep::Wait => {}
            LookupStep::LookUp => self.look_up(host),
        }
    }

    fn look_up(&self, host: String) {
        let (ear, resolver) = (self.ear.clone(), self.resolver.clone());
        tokio::spawn(async move {
            let found = resolver.look_up(&host).await;
            let _ = ear.send(ControlEvent::Resolved(host, found));
        });
    }

    /// Closes servers at addresses that a host name no longer has.
    fn moved(&self, host: &str, gone: &[IpAddr]) {
        let list: Vec<_> = gone.iter().map(ToString::to_string).collect();
        self.say(&format!(
            "DNS: {host} no longer has {}: servers there are closed",
            list.join(", ")
        ));
        self.post_to_all(|| {
            Letter::Answer(Answer::Moved {
                host: host.to_owned(),
                gone: gone.to_vec(),
            })
        });
    }

    /// Looks up the name of a system user, on another thread because the look-up may use a network.
    fn name_user(&mut self, asker: QuestionId, uid: u32) {
        let askers = self.nameless.entry(uid).or_default();
        askers.push(asker);
        if askers.len() > 1 {
            return;
        }
        let ear = self.ear.clone();
        tokio::task::spawn_blocking(move || {
            let name = match User::from_uid(Uid::from_raw(uid)) {
                Ok(Some(user)) => Ok(user.name),
                Ok(None) => Err(format!("the system has no user of number {uid}")),
                Err(why) => Err(format!(
                    "could not name the system's user {uid}: {}",
                    why.desc()
                )),
            };
            let _ = ear.send(ControlEvent::Named(uid, name));
        });
    }

    /// Looks up the serial numbers of the zones of all known names.
    fn check_zones(&mut self) {
        for zone in self.names.zones() {
            let (ear, resolver) = (self.ear.clone(), self.resolver.clone());
            tokio::spawn(async move {
                // A zone that does not exist or gives no answer counts as unchanged.
                if let Ok(serial) = resolver.serial(&zone).await {
                    let _ = ear.send(ControlEvent::Zone(zone, serial));
                }
            });
        }
    }

    fn accept(&self, on: bool) {
        if !self.ending {
            self.post_to_all(|| Letter::Instruction(Instruction::Accept(on)));
        }
    }

    pub fn stop_listening(&mut self, keep_unix: bool) {
        self.ending = true;
        self.http.drains();
        self.post_to_all(|| Letter::Instruction(Instruction::StopListening { keep_unix }));
    }

    pub fn order(&self, order: &Order) {
        self.post_to_all(|| Letter::Operator(order.clone()));
    }

    pub fn post_to_all(&self, letter: impl Fn() -> Letter) {
        for worker in &self.workers {
            worker.post(letter());
        }
    }

    pub fn answer(&self, worker: WorkerId, answer: Answer) {
        self.workers[usize::from(worker.0)].post(Letter::Answer(answer));
    }

    pub fn say(&self, text: &str) {
        self.log.say(Level::Log, text);
    }
}
