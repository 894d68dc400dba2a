//! A PostgreSQL with a small vocabulary: processes over the world's sockets, with logins, cancel requests,
//! slow statements, restarts, and a journal of all statements that ran.

use std::collections::{BTreeMap, BTreeSet};

use howdah_pooler::config::SessionAttrs;
use howdah_pooler::event::Time;
use howdah_wire::frame::{HEADER, header};
use howdah_wire::startup::{FirstPacket, length, read};
use howdah_wire::tag::frontend;
use howdah_wire::{backend::Status, write};

use crate::host::{CHECKED, Host, Refusal};
use crate::journal::Journal;
use crate::line::{Line, Secrecy};
use crate::session::{Ailment, Deed, Session};
use crate::settings::Settings;
use crate::sharding::{CATALOGUE, MapInForce, NAME, Placed, write_catalogue};
use crate::story::{Who, words};
use crate::view::View;
use crate::world::{Read, SocketId, World};

/// How PostgreSQL behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// A login takes at most this many milliseconds.
    pub login_millis: u64,
    /// A login is refused once in this many times; 0 for never.
    pub refuses_once_in: usize,
    /// A cancel request is read after at most this many milliseconds.
    pub cancel_millis: u64,
    /// Once in this many times, a cancel request is carried out only after as many seconds; 0 for
    /// never.
    pub cancel_late_once_in: usize,
    /// Once in this many times, the connection of a cancel request breaks after the request has
    /// arrived. The request is carried out anyway. 0 for never.
    pub cancel_cut_once_in: usize,
    /// Once in this many times, a cancel has no effect, as if it had come before its statement was
    /// read. 0 for never.
    pub cancel_missed_once_in: usize,
    /// Once in this many steps, a session sends a message that was not asked for; 0 for never.
    pub speaks_once_in: usize,
    /// The connection of a cancel request is closed at most this many milliseconds after the
    /// request was carried out.
    pub cancel_close_millis: u64,
    /// How connections must use TLS.
    pub secrecy: Secrecy,
    /// A handshake fails once in this many times; 0 for never.
    pub handshake_fails_once_in: usize,
    /// The answer to a check is late once in this many times; 0 for never.
    pub answers_late_once_in: usize,
    /// Somebody else writes once in this many steps, if hosts have roles; 0 for never.
    pub others_write_once_in: usize,
    /// A standby refuses a single read once in this many times, or gives up after a row; 0 for never.
    pub refuses_reads_once_in: usize,
}

/// A database and a user.
pub type Login = (String, String);

/// One process.
struct Process {
    /// Which of the hosts it runs on.
    host: usize,
    pid: u32,
    secret: [u8; 4],
    line: Line,
    stage: Stage,
    inbox: Vec<u8>,
    session: Session,
    busy_until: Option<Time>,
    login: Login,
    /// The client whose statements ran last.
    owner: Option<u32>,
    /// What it has reported as `in_hot_standby`.
    told_standby: bool,
    /// Nothing is sent before this time.
    held_until: Time,
    /// The statements that say where they must run, and were not checked yet.
    placed: Vec<Placed>,
}

enum Stage {
    Starting,
    /// The login ends at this time.
    LoggingIn(Time),
    Ready,
    /// A cancel request: carried out at the first time, closed at the second.
    Cancelling {
        pid: u32,
        secret: Vec<u8>,
        at: Time,
    },
    Closing(Time),
    Gone,
}

/// The PostgreSQL server, or several: a primary and its standbys.
pub struct Postgres {
    /// The servers.
    pub hosts: Vec<Host>,
    /// By placed database: which hosts it wants.
    pub wishes: BTreeMap<String, SessionAttrs>,
    /// The databases whose reads go to standbys.
    pub readers: BTreeSet<String>,
    /// Those of them whose single reads do.
    pub single_readers: BTreeSet<String>,
    /// How it behaves.
    pub manners: Manners,
    /// All statements that ran.
    pub journal: Journal,
    /// The greatest number of sessions. While this is set, more sessions are a violation.
    pub limits: Limits,
    processes: Vec<Process>,
    next_pid: u32,
    /// The databases whose PAUSE was answered and that were not resumed.
    pub paused: Paused,
    /// Where statements of a sharded database must run.
    pub map: Option<MapInForce>,
    /// How many processes of Howdah connect. Each has limits of its own.
    pub owners: usize,
    /// How often sessions were cut during a client's statements.
    pub restarts: u32,
    /// How many statements of databases at the primary ran on standbys.
    pub reads: usize,
}

/// Databases in which no statement may run.
#[derive(Clone, Debug, Default)]
pub struct Paused {
    /// All databases.
    pub all: bool,
    /// These databases.
    pub databases: BTreeSet<String>,
}

/// Limits on sessions.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// By database and user.
    pub pool: BTreeMap<Login, usize>,
    /// By database.
    pub database: BTreeMap<String, usize>,
    /// By user.
    pub user: BTreeMap<String, usize>,
}

impl Limits {
    /// Sets each limit to the greater of the two. For a while after a reload, both limits are
    /// right.
    pub fn widen(&mut self, other: &Limits) {
        fn widen<K: Ord + Clone>(ours: &mut BTreeMap<K, usize>, theirs: &BTreeMap<K, usize>) {
            ours.retain(|key, bound| {
                theirs.get(key).is_some_and(|other| {
                    *bound = (*bound).max(*other);
                    true
                })
            });
        }
        widen(&mut self.pool, &other.pool);
        widen(&mut self.database, &other.database);
        widen(&mut self.user, &other.user);
    }
}

impl Postgres {
    /// These servers, which listen from now on.
    pub fn new(hosts: Vec<Host>, manners: Manners, world: &mut World) -> Postgres {
        for host in &hosts {
            world.listen(host.address.clone());
        }
        Postgres {
            hosts,
            wishes: BTreeMap::new(),
            readers: BTreeSet::new(),
            single_readers: BTreeSet::new(),
            manners,
            journal: Journal::default(),
            limits: Limits::default(),
            processes: Vec::new(),
            next_pid: 100,
            paused: Paused::default(),
            map: None,
            owners: 1,
            restarts: 0,
            reads: 0,
        }
    }

    /// Lets each process take a step, or none.
    pub fn step(&mut self, world: &mut World) {
        for at in 0..self.hosts.len() {
            self.step_host(at, world);
        }
        if self.hosts.iter().any(|host| host.has_role) {
            self.advance(world);
        }
        let speaks = self.manners.speaks_once_in;
        if speaks > 0 && world.chance.once_in(speaks) && !self.processes.is_empty() {
            let at = world.chance.within(0..=self.processes.len() - 1);
            let host = &self.hosts[self.processes[at].host];
            if host.acts(world.now) {
                self.processes[at].speak(!host.has_role || host.in_recovery, world);
            }
        }
        for at in 0..self.processes.len() {
            let acts = self.hosts[self.processes[at].host].acts(world.now);
            if acts && !world.chance.once_in(4) {
                self.step_process(at, world);
            }
        }
        self.processes
            .retain(|process| !matches!(process.stage, Stage::Gone));
    }

    fn step_host(&mut self, at: usize, world: &mut World) {
        let host = &mut self.hosts[at];
        if !host.acts(world.now) {
            return;
        }
        if host.down_until.0 > 0 {
            host.down_until = Time(0);
            world.listen(host.address.clone());
        }
        while let Some(socket) = world.accept(&self.hosts[at].address) {
            self.accept(at, socket, world);
        }
    }

    /// Other sessions than Howdah's write, and standbys replay.
    fn advance(&mut self, world: &mut World) {
        let wal = world.wal.clone();
        let mut wal = wal.borrow_mut();
        let (now, often) = (world.now, self.manners.others_write_once_in);
        let is_up = |host: &Host| host.down_until <= now;
        for host in self.hosts.iter().filter(|host| !host.in_recovery) {
            if often > 0 && is_up(host) && world.chance.once_in(often) {
                wal.write(host.branch, world.chance.number() % 400);
            }
        }
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let sends = |of: &Host| !of.in_recovery && is_up(of) && of.branch == host.branch;
            let replays = host.in_recovery && is_up(host) && host.replays_at <= now;
            if replays && self.hosts.iter().any(sends) {
                self.hosts[at].replay(&wal, world);
            }
        }
    }

    fn accept(&mut self, host: usize, socket: SocketId, world: &mut World) {
        self.next_pid += 1;
        self.processes.push(Process {
            host,
            pid: self.next_pid,
            secret: (world.chance.number() as u32).to_be_bytes(),
            line: Line::new(socket),
            stage: Stage::Starting,
            inbox: Vec::new(),
            session: Session::new(
                Settings::new([]),
                View::new(world.catalog(""), self.next_pid),
            ),
            busy_until: None,
            login: Login::default(),
            owner: None,
            told_standby: false,
            held_until: Time(0),
            placed: Vec::new(),
        });
    }

    fn step_process(&mut self, at: usize, world: &mut World) {
        let now = world.now;
        let process = &mut self.processes[at];
        // A cancel request is carried out even if its sender is gone.
        let asked = matches!(process.stage, Stage::Cancelling { .. });
        if world.is_reset(process.line.socket) && !asked {
            return process.die(world, &mut self.journal);
        }
        match &process.stage {
            Stage::Starting => self.start(at, world),
            Stage::LoggingIn(until) => {
                if *until <= now {
                    self.log_in(at, world);
                }
            }
            Stage::Ready => self.serve(at, world),
            Stage::Cancelling {
                pid,
                secret,
                at: when,
            } => {
                if *when <= now {
                    let (pid, secret) = (*pid, secret.clone());
                    self.cancel(pid, &secret, world);
                    let delay = world.chance.number() % (self.manners.cancel_close_millis + 1);
                    let until = Time(now.0 + delay * 1_000_000);
                    world.alarm(until);
                    self.processes[at].stage = Stage::Closing(until);
                }
            }
            Stage::Closing(until) => {
                if *until <= now {
                    process.die(world, &mut self.journal);
                }
            }
            Stage::Gone => {}
        }
    }

    fn start(&mut self, at: usize, world: &mut World) {
        let process = &mut self.processes[at];
        if !process.receive(world) {
            return process.die(world, &mut self.journal);
        }
        let size = match length(&process.inbox) {
            Some(Ok(size)) if process.inbox.len() >= size => size,
            Some(Err(_)) => return process.die(world, &mut self.journal),
            _ => return,
        };
        let packet: Vec<u8> = process.inbox.drain(..size).collect();
        let after = |world: &mut World, millis: u64| {
            let delay = world.chance.number() % (millis * 1_000_000 + 1);
            let until = Time(world.now.0 + delay);
            world.alarm(until);
            until
        };
        let packet = read(&packet);
        if let Ok(FirstPacket::Ssl) = packet {
            let fails = self.manners.handshake_fails_once_in;
            if !process.inbox.is_empty() {
                let text = "clear text follows an SSLRequest".into();
                world
                    .story
                    .violate("tls", &[Who::Backend(process.pid)], text);
            }
            return process.line.request(self.manners.secrecy, fails, world);
        }
        // A cancel request needs no better protection than the statement that it cancels.
        let open = match packet {
            Ok(FirstPacket::Cancel { pid, .. }) if self.manners.secrecy != Secrecy::Required => {
                let of = |p: &&Process| p.pid == pid && p.line.is_secure();
                !self.processes.iter().any(|process| of(&process))
            }
            _ => false,
        };
        let process = &mut self.processes[at];
        if !open && !process.line.may_begin(self.manners.secrecy) {
            let text = format!("{:?} begins as it must not", self.manners.secrecy);
            let who = [Who::Backend(process.pid)];
            world.story.violate("tls", &who, text);
        }
        match packet {
            Ok(FirstPacket::Cancel { pid, secret }) => {
                let late = self.manners.cancel_late_once_in;
                let millis = if late > 0 && world.chance.once_in(late) {
                    20_000
                } else {
                    self.manners.cancel_millis
                };
                let at = after(world, millis);
                let secret = secret.to_vec();
                let cut = self.manners.cancel_cut_once_in;
                if cut > 0 && world.chance.once_in(cut) {
                    world.reset(process.line.socket);
                }
                process.stage = Stage::Cancelling { pid, secret, at };
            }
            Ok(FirstPacket::Startup(startup)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let of = |name| startup.get(name).map(text).unwrap_or_default();
                process.login = (of("database"), of("user"));
                let given: Vec<_> = startup
                    .parameters()
                    .map(|(name, value)| (text(name), text(value)))
                    .collect();
                let given = given.iter().map(|(name, value)| (&**name, &**value));
                let view = View::new(world.catalog(&process.login.0), process.pid);
                process.session = Session::new(Settings::new(given), view);
                let board = world.board(&process.login.0);
                process.session.on_board(board, process.pid);
                process.stage = Stage::LoggingIn(after(world, self.manners.login_millis));
                let pid = process.pid;
                let login = process.login.clone();
                world.story.tell(world.now, Who::Backend(pid), || {
                    format!("starts for {} of {}", login.1, login.0)
                });
                self.count(pid, world);
            }
            _ => process.die(world, &mut self.journal),
        }
    }

    /// Sessions that still run although the other end is gone. What is left of Howdah can't know of
    /// them.
    pub fn deserted(&self, world: &World) -> usize {
        let live = |p: &&Process| matches!(p.stage, Stage::LoggingIn(_) | Stage::Ready);
        let left = |p: &&Process| world.is_closed(world.other(p.line.socket));
        self.processes.iter().filter(live).filter(left).count()
    }

    /// Checks that there are no more sessions than the settings allow.
    fn count(&self, pid: u32, world: &mut World) {
        let Some(login) = self
            .processes
            .iter()
            .find(|p| p.pid == pid)
            .map(|p| &p.login)
        else {
            return;
        };
        let live: Vec<_> = self
            .processes
            .iter()
            .filter(|p| matches!(p.stage, Stage::LoggingIn(_) | Stage::Ready))
            .filter(|p| !world.is_reset(p.line.socket))
            .collect();
        // A login has a pool for each host.
        let here = |host| {
            live.iter()
                .filter(move |p| p.login == *login && p.host == host)
        };
        let pool = (0..self.hosts.len()).map(|host| here(host).count());
        let pool = pool.max().unwrap_or(0);
        let database = live.iter().filter(|p| p.login.0 == login.0).count();
        let user = live.iter().filter(|p| p.login.1 == login.1).count();
        let bounds = [
            (self.limits.pool.get(login), pool, "pool"),
            (self.limits.database.get(&login.0), database, "database"),
            (self.limits.user.get(&login.1), user, "user"),
        ];
        for (bound, count, what) in bounds {
            let late = world.excuses.late_sessions;
            let bound = bound.map(|bound| bound * self.owners + late);
            if let Some(bound) = bound.filter(|bound| count > *bound) {
                let text = format!(
                    "{count} sessions of {} in {}, the {what}'s bound is {bound}",
                    login.1, login.0
                );
                world.story.violate("limits", &[], text);
            }
        }
    }

    fn log_in(&mut self, at: usize, world: &mut World) {
        let process = &mut self.processes[at];
        let refuses = self.manners.refuses_once_in;
        let mut out = Vec::new();
        let host = &self.hosts[process.host];
        if world.now < host.starting_until {
            write::error(
                &mut out,
                "FATAL",
                "57P03",
                "the database system is starting up",
            );
        } else if refuses > 0 && world.chance.once_in(refuses) {
            write::error(
                &mut out,
                "FATAL",
                "53300",
                "sorry, too many clients already",
            );
        }
        if !out.is_empty() {
            process.line.write(&out, world);
            process.stage = Stage::Closing(world.now);
            return;
        }
        write::authentication(&mut out, 0, b"");
        write::parameter_status(&mut out, b"server_version", b"17.0");
        for (name, value) in process.session.settings.reported() {
            write::parameter_status(&mut out, name.as_bytes(), value.as_bytes());
        }
        for (name, value) in host.reports() {
            write::parameter_status(&mut out, name.as_bytes(), value.as_bytes());
        }
        process.told_standby = host.in_recovery;
        process.session.read_only = host.in_recovery;
        write::key_data(&mut out, process.pid, &process.secret);
        write::ready(&mut out, Status::Idle);
        process.session.flushed += out.len();
        process.session.out.extend_from_slice(&out);
        process.stage = Stage::Ready;
        world.activity += 1;
    }

    fn serve(&mut self, at: usize, world: &mut World) {
        let process = &mut self.processes[at];
        if process.held_until > world.now {
            return;
        }
        process.send(world);
        if process.session.slow().is_some() {
            let Some(until) = process.busy_until else {
                let millis = u64::from(process.session.slow().unwrap_or(0));
                let until = Time(world.now.0 + millis * 1_000_000);
                process.busy_until = Some(until);
                return world.alarm(until);
            };
            if until > world.now {
                return;
            }
            process.busy_until = None;
            process.session.finish(false);
            process.write_down(world, &mut self.journal);
            self.check_places(at, world);
            world.activity += 1;
            return;
        }
        // A process that can't send does not read, either.
        if !process.line.push(world) || process.session.flushed > 0 {
            return;
        }
        process.hear(world);
        process.tell_role(&self.hosts[process.host], world);
        let open = process.receive(world);
        if let Some((tag, body)) = process.message() {
            world.activity += 1;
            if tag == frontend::TERMINATE {
                return process.die(world, &mut self.journal);
            }
            if process.login.0 == CHECKED {
                process.is_checked(&self.hosts[process.host], &body, world);
                return process.is_late(self.manners.answers_late_once_in, world);
            }
            let host = &self.hosts[process.host];
            if tag == frontend::QUERY && body.windows(ITS_START.len()).any(|part| part == ITS_START)
            {
                return process.tells_instance(host, world);
            }
            if tag == frontend::QUERY && body.windows(CATALOGUE.len()).any(|part| part == CATALOGUE)
            {
                return process.tells_catalogue(world);
            }
            if tag == frontend::QUERY && body.windows(FUNCTIONS.len()).any(|part| part == FUNCTIONS)
            {
                return process.tells_functions(world);
            }
            let single = host.in_recovery && self.single_readers.contains(&process.login.0);
            let refuses = self.manners.refuses_reads_once_in;
            if single && refuses > 0 && process.session.is_idle() {
                let befalls = world.chance.once_in(refuses);
                let ailment = AILMENTS[world.chance.within(0..=AILMENTS.len() - 1)];
                process.session.ailment = befalls.then_some(ailment);
            }
            let forgives = self.map.as_ref().is_some_and(MapInForce::forgives);
            process.session.refuses_begin = forgives && world.chance.once_in(6);
            let shown = host.has_role.then(|| host.position(&world.wal.borrow()));
            process.session.shows = shown;
            let before = self.journal.len();
            process.take(tag, &body, world, &mut self.journal);
            self.check_places(at, world);
            if self.journal.len() > before {
                self.check_orders(at, world);
            }
            self.check_refusal(at, world);
        } else if !open {
            process.die(world, &mut self.journal);
        }
    }

    /// Checks that no statement runs in a paused database, or on a standby for a database that wants
    /// the primary: a primary becomes a standby only by a restart, and each login reports the role.
    fn check_orders(&mut self, at: usize, world: &mut World) {
        let process = &self.processes[at];
        let who = [Who::Backend(process.pid)];
        let wish = self.wishes.get(&process.login.0);
        let wants_primary = matches!(wish, Some(SessionAttrs::Primary | SessionAttrs::ReadWrite));
        let single = self.single_readers.contains(&process.login.0);
        let session = &process.session;
        let may = session.may_be_read() || single && session.reads_alone();
        let reads = self.readers.contains(&process.login.0) && may;
        let at_standby = wants_primary && self.hosts[process.host].in_recovery;
        self.reads += usize::from(at_standby);
        if at_standby && !reads {
            let text = format!("a statement of {} runs on a standby", process.login.0);
            world.story.violate("roles", &who, text);
        }
        let whole = self.map.as_ref().filter(|map| {
            let owner = process.owner;
            owner.is_some_and(|owner| map.clients.contains(&owner))
        });
        let paused = &self.paused.databases;
        let paused = paused.contains(&process.login.0) || whole.is_some() && paused.contains(NAME);
        let paused = self.paused.all || paused;
        if paused {
            let text = format!("a statement runs in {}, which is paused", process.login.0);
            world.story.violate("orders", &who, text);
        }
    }

    /// Checks that statements of a sharded database have run where they belong, in their transactions.
    fn check_places(&mut self, at: usize, world: &mut World) {
        let process = &mut self.processes[at];
        let doubled = process.session.doubled.take();
        let doubled = doubled.map(|name| format!("savepoint {name} is there twice"));
        let mut placed = process.placed.drain(..);
        let objection = self.map.as_ref().and_then(|map| {
            let found = placed.find_map(|placed| map.objection(&process.login.0, &placed));
            found.or(doubled)
        });
        drop(placed);
        if let Some(text) = objection {
            let owner = process.owner.unwrap_or_default();
            let who = [Who::Client(owner), Who::Backend(process.pid)];
            world.story.violate("shards", &who, text);
        }
    }

    /// Checks that nobody has taken a write for a read: the standby's refusal heals, and is not seen.
    fn check_refusal(&mut self, at: usize, world: &mut World) {
        let process = &mut self.processes[at];
        let refused = std::mem::take(&mut process.session.refused_write);
        let single = self.single_readers.contains(&process.login.0);
        if refused
            && single
            && self.hosts[process.host].in_recovery
            && !process.session.may_be_read()
        {
            let text = format!("a write of {} is taken for a read", process.login.0);
            let who = [Who::Backend(process.pid)];
            world.story.violate("roles", &who, text);
        }
    }

    fn cancel(&mut self, pid: u32, secret: &[u8], world: &mut World) {
        let found = self.processes.iter_mut().find(|p| p.pid == pid);
        let Some(process) = found.filter(|p| p.secret == *secret) else {
            return;
        };
        let misses = self.manners.cancel_missed_once_in;
        let missed = misses > 0 && world.chance.once_in(misses);
        let hit = !missed && matches!(process.stage, Stage::Ready) && process.session.cancel();
        let owner = process.owner;
        world.story.tell(world.now, Who::Backend(pid), || {
            format!(
                "is cancelled ({}), last owner {owner:?}",
                if missed {
                    "missed"
                } else if hit {
                    "hit"
                } else {
                    "idle"
                }
            )
        });
        if hit {
            process.busy_until = None;
            process.write_down(world, &mut self.journal);
        }
    }

    /// PostgreSQL restarts. It may send each client an error; or one of its processes crashes, and
    /// the others warn their clients; or the whole machine crashes. Then it is down for some time.
    pub fn restart(
        &mut self,
        at: usize,
        crash: bool,
        (down, starting): (u64, u64),
        world: &mut World,
    ) {
        self.restarts += 1;
        world.story.tell(world.now, Who::World, || {
            format!(
                "postgres {at} restarts, {}",
                if crash { "crashed" } else { "orderly" }
            )
        });
        self.lose_sessions(at, crash, world);
        let host = &mut self.hosts[at];
        world.stop_listening(&host.address);
        host.down_until = Time(world.now.0 + down);
        host.starting_until = Time(world.now.0 + down + starting);
        host.started = world.now;
        host.falls_back(world);
        world.alarm(host.down_until);
    }

    /// One process of a host crashes. PostgreSQL ends all others, and recovers: it has not been
    /// restarted, and says so.
    pub fn crash_one(&mut self, at: usize, starting: u64, world: &mut World) {
        self.restarts += 1;
        world.story.tell(world.now, Who::World, || {
            format!("a process of postgres {at} crashes")
        });
        self.lose_sessions(at, true, world);
        let host = &mut self.hosts[at];
        host.starting_until = Time(world.now.0 + starting);
        host.falls_back(world);
    }

    /// All sessions of a host end.
    fn lose_sessions(&mut self, at: usize, crash: bool, world: &mut World) {
        let warns = crash && world.chance.once_in(2);
        for process in &mut self.processes {
            if process.host != at || matches!(process.stage, Stage::Gone) {
                continue;
            }
            if crash && !warns {
                world.reset(process.line.socket);
            } else {
                let mut out = Vec::new();
                if crash {
                    let text = "terminating connection because of crash of another server process";
                    write::notice(&mut out, "WARNING", CRASHED, text, None);
                } else {
                    let text = "terminating connection due to administrator command";
                    write::error(&mut out, "FATAL", "57P01", text);
                }
                let session = &mut process.session;
                if matches!(process.stage, Stage::Ready) && session.flushed == 0 {
                    process.line.write(&out, world);
                }
            }
            process.die(world, &mut self.journal);
        }
        self.processes.retain(|process| process.host != at);
    }

    /// Breaks the connection of one session.
    pub fn cut_one(&mut self, world: &mut World) {
        if self.processes.is_empty() {
            return;
        }
        let at = world.chance.within(0..=self.processes.len() - 1);
        let process = &mut self.processes[at];
        self.restarts += 1;
        let pid = process.pid;
        world
            .story
            .tell(world.now, Who::Backend(pid), || "is cut off".into());
        // By an alert, if there is TLS, or by the network.
        if world.chance.once_in(2) && process.line.alert(world) {
            return process.die(world, &mut self.journal);
        }
        world.reset(process.line.socket);
    }

    /// The numbers of sessions that are logged in: for clients, and of checks.
    pub fn sessions(&self) -> (usize, usize) {
        let ready = |p: &&Process| matches!(p.stage, Stage::Ready);
        let checks = |p: &&Process| p.login.0 == CHECKED;
        let all = self.processes.iter().filter(ready);
        let checks = all.clone().filter(checks).count();
        (all.count() - checks, checks)
    }

    /// The number of processes of any kind.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// The numbers of prepared statements over all sessions: by the protocol, and by SQL's PREPARE.
    pub fn statements(&self) -> (usize, usize) {
        let count = |by_sql| {
            self.processes
                .iter()
                .map(|p| {
                    p.session
                        .statements(by_sql)
                        .filter(|n| *n != b"howdah_void")
                        .count()
                })
                .sum()
        };
        (count(false), count(true))
    }

    /// The reason why an unused session is not clean, if there is one.
    pub fn unclean(&self) -> Option<String> {
        self.processes.iter().find_map(|process| {
            let idle = process.session.is_idle() && process.inbox.is_empty();
            if let Some(name) = process.session.left().next() {
                return Some(format!("postgres {} has {name} still", process.pid));
            }
            (!idle).then(|| format!("postgres {} is not at rest", process.pid))
        })
    }
}

impl Process {
    /// Receives bytes. False if no more will come.
    fn receive(&mut self, world: &mut World) -> bool {
        let most = world.chance.part(16 * 1024);
        match self.line.read(most, world) {
            Read::Bytes(bytes) => self.inbox.extend_from_slice(&bytes),
            Read::Nothing => {}
            Read::End | Read::Reset => return false,
        }
        true
    }

    fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let header = header(&self.inbox)?.ok()?;
        if self.inbox.len() < header.total() {
            return None;
        }
        let body = self.inbox[HEADER..header.total()].to_vec();
        self.inbox.drain(..header.total());
        Some((header.tag, body))
    }

    /// Sends a notice or a parameter's value that was not asked for.
    fn speak(&mut self, standby: bool, world: &mut World) {
        let session = &mut self.session;
        let awaits = session.slow().is_none() && session.flushed == 0 && session.out.is_empty();
        if !matches!(self.stage, Stage::Ready) || !awaits || session.copies_in() {
            return;
        }
        if world.chance.once_in(2) {
            let text = format!("{UNASKED} {}", "x".repeat(world.chance.within(1..=9000)));
            write::notice(&mut session.out, "NOTICE", "00000", &text, None);
        } else {
            let value = if standby { "on" } else { "off" };
            write::parameter_status(&mut session.out, UNASKED.as_bytes(), value.as_bytes());
        }
        session.flushed = session.out.len();
    }

    /// An idle session sends its notifications, sooner or later.
    fn hear(&mut self, world: &mut World) {
        if !self.session.is_idle() || !self.session.has_notes() {
            return;
        }
        world.activity += 1;
        if self.inbox.is_empty() && world.chance.once_in(3) && self.session.tell_notes() {
            self.session.flushed = self.session.out.len();
            let (pid, now) = (self.pid, world.now);
            let out = &self.session.out;
            world
                .story
                .tell(now, Who::Backend(pid), || format!("-> {}", words(out)));
        }
    }

    /// An idle session reports that its host was promoted.
    fn tell_role(&mut self, host: &Host, world: &mut World) {
        if self.told_standby == host.in_recovery || !self.session.is_idle() {
            return;
        }
        self.told_standby = host.in_recovery;
        self.session.read_only = host.in_recovery;
        let out = &mut self.session.out;
        write::parameter_status(out, UNASKED.as_bytes(), b"off");
        self.session.flushed = out.len();
        world.activity += 1;
    }

    /// The host is asked for its role. What it says may be out of date when it is sent.
    fn is_checked(&mut self, host: &Host, question: &[u8], world: &mut World) {
        let answer = host.answer(question, &world.wal.borrow());
        self.say(answer, world);
        if host.slow_until > world.now {
            self.held_until = Time(world.now.0 + world.chance.number() % 1_500_000_000);
            world.alarm(self.held_until);
        }
    }

    /// What was answered is sent late, once in so many times.
    fn is_late(&mut self, once_in: usize, world: &mut World) {
        if once_in > 0 && self.held_until <= world.now && world.chance.once_in(once_in) {
            self.held_until = Time(world.now.0 + world.chance.number() % 60_000_000);
            world.alarm(self.held_until);
        }
    }

    /// A new server is asked which instance it belongs to.
    fn tells_instance(&mut self, host: &Host, world: &mut World) {
        self.say(host.instance(), world);
    }

    /// The catalogue of a shard.
    fn tells_catalogue(&mut self, world: &mut World) {
        let out = &mut self.session.out;
        write_catalogue(out);
        self.session.flushed = out.len();
        world.activity += 1;
    }

    /// Which functions are volatile. No user has made any.
    fn tells_functions(&mut self, world: &mut World) {
        let out = &mut self.session.out;
        for name in ["currval", "lastval", "nextval", "setval"] {
            let columns = [Some(name.as_bytes()), Some(b"f")];
            write::data_row(out, columns.into_iter());
        }
        write::command_complete(out, "SELECT 4");
        write::ready(out, Status::Idle);
        self.session.flushed = out.len();
        world.activity += 1;
    }

    /// Answers a question about the host.
    fn say<const COLUMNS: usize>(
        &mut self,
        answer: Result<[Option<String>; COLUMNS], Refusal>,
        world: &mut World,
    ) {
        let out = &mut self.session.out;
        match answer {
            Ok(columns) => {
                let columns = columns
                    .iter()
                    .map(|column| column.as_deref().map(str::as_bytes));
                write::data_row(out, columns);
                write::command_complete(out, "SELECT 1");
            }
            Err((sqlstate, text)) => write::error(out, "ERROR", sqlstate, text),
        }
        write::ready(out, Status::Idle);
        self.session.flushed = out.len();
        let (pid, now) = (self.pid, world.now);
        world
            .story
            .tell(now, Who::Backend(pid), || format!("-> {}", words(out)));
    }

    fn take(&mut self, tag: u8, body: &[u8], world: &mut World, journal: &mut Journal) {
        let (pid, now) = (self.pid, world.now);
        let fresh = self.session.is_idle();
        world.story.tell(now, Who::Backend(pid), || {
            format!("<- {} {}", char::from(tag), words(body))
        });
        let before = self.session.out.len();
        self.session.feed(tag, body);
        let out = &self.session.out[before..];
        if !out.is_empty() {
            world
                .story
                .tell(now, Who::Backend(pid), || format!("-> {}", words(out)));
        }
        // A full buffer is sent at once.
        if self.session.out.len() > 8192 {
            self.session.flushed = self.session.out.len();
        }
        self.write_down_of(fresh, world, journal);
    }

    fn write_down(&mut self, world: &mut World, journal: &mut Journal) {
        self.write_down_of(false, world, journal);
    }

    /// Records the session's deeds in the journal, and checks whose they are.
    fn write_down_of(&mut self, fresh: bool, world: &mut World, journal: &mut Journal) {
        let deeds = std::mem::take(&mut self.session.deeds);
        self.commit(&deeds, world);
        for deed in deeds {
            journal.write(&deed, self.pid, &mut world.story);
            let token = match deed {
                Deed::Ran(token) => token,
                Deed::At(placed) => {
                    self.placed.push(placed);
                    continue;
                }
                _ => continue,
            };
            if self.owner != Some(token.client) {
                self.new_owner(token.client, fresh, world);
            }
        }
        if let [first, second, ..] = *self.session.authors() {
            let who = [
                Who::Client(first),
                Who::Client(second),
                Who::Backend(self.pid),
            ];
            let text = format!("clients {first} and {second} share a transaction");
            world.story.violate("isolation", &who, text);
        }
    }

    /// What a transaction has changed gets a record in the WAL.
    fn commit(&mut self, deeds: &[Deed], world: &mut World) {
        let Some(at) = self.session.shows else { return };
        let mut wal = world.wal.borrow_mut();
        let kept = deeds.iter().filter_map(|deed| match deed {
            Deed::Kept(token) => Some(*token),
            _ => None,
        });
        let kept: Vec<_> = kept.collect();
        if !kept.is_empty() {
            wal.write(at.branch, world.chance.number() % 200);
        }
        for token in kept {
            wal.commits(token, at.branch);
        }
    }

    fn new_owner(&mut self, client: u32, _fresh: bool, world: &mut World) {
        let before = self.owner.replace(client);
        let (pid, now) = (self.pid, world.now);
        world.story.tell(now, Who::Client(client), || {
            format!("is served by postgres {pid}")
        });
        let Some(before) = before else { return };
        // An object's name has the number of its client.
        let own = |name: &String| {
            let of = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
            of.starts_with(&format!("{client}_"))
        };
        if let Some(name) = self.session.left().find(|name| !own(name)) {
            let who = [
                Who::Client(client),
                Who::Client(before),
                Who::Backend(self.pid),
            ];
            let text = format!("client {client} finds {name} of another");
            world.story.violate("isolation", &who, text);
        }
    }

    /// Sends what PostgreSQL would have sent, as far as there is room.
    fn send(&mut self, world: &mut World) {
        let session = &mut self.session;
        if session.flushed == 0 {
            return;
        }
        let most = world.chance.part(session.flushed);
        match self.line.write(&session.out[..most], world) {
            Some(sent) => {
                session.out.drain(..sent);
                session.flushed -= sent;
            }
            None => {
                // The next read will find this out.
                session.out.drain(..session.flushed);
                session.flushed = 0;
            }
        }
    }

    fn die(&mut self, world: &mut World, journal: &mut Journal) {
        if matches!(self.stage, Stage::Gone) {
            return;
        }
        self.session.end();
        self.session.flushed = 0;
        for deed in std::mem::take(&mut self.session.deeds) {
            journal.write(&deed, self.pid, &mut world.story);
        }
        self.stage = Stage::Gone;
        let (pid, now) = (self.pid, world.now);
        world
            .story
            .tell(now, Who::Backend(pid), || "is gone".into());
        self.line.close(world);
    }
}

/// The SQLSTATE of the warning that a session sends last when another session has crashed.
pub const CRASHED: &str = "57P02";

/// What only a question about the host itself asks for.
const ITS_START: &[u8] = b"pg_postmaster_start_time";

/// What only a question about functions asks for.
const FUNCTIONS: &[u8] = b"provolatile";

/// What befalls reads at standbys.
const AILMENTS: [Ailment; 4] = [
    Ailment::Refuses("40001"),
    Ailment::Refuses("25006"),
    Ailment::GivesUp,
    Ailment::GivesUp,
];

/// The beginning of notices and parameters that were not asked for.
pub const UNASKED: &str = "in_hot_standby";
