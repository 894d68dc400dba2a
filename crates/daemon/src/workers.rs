//! The worker threads.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use howdah_daemon::broker::SharedBroker;
use howdah_daemon::driver::choose::{self, Choice};
use howdah_daemon::driver::epoll::Epoll;
use howdah_daemon::driver::socket::{Listener, SocketOptions, clock};
use howdah_daemon::driver::uring::Uring;
use howdah_daemon::driver::{Driver, Errno, error_text};
use howdah_daemon::mailbox::{Instruction, Letter, Mailbox, PostBox, mailbox};
use howdah_daemon::tls::Contexts;
use howdah_daemon::vitals::Vitals;
use howdah_daemon::worker::{Outside, Worker};
use howdah_pooler::config::{Config, Globals, IoDriver};
use howdah_pooler::event::WorkerId;
use howdah_pooler::mail::Mail;
use howdah_pooler::note::Level;
use howdah_pooler::parcel::Freight;
use howdah_pooler::queries::Seen;
use howdah_pooler::{Pooler, PoolerSetup};

use crate::boot::Fatal;
use crate::control::{ControlEvent, Ear};
use crate::leave::leave;
use crate::log::{self, Log};
use crate::tracer::Tracer;

/// The values that all workers share.
#[derive(Clone)]
pub struct Common {
    /// The settings.
    pub config: Arc<Config>,
    /// The listening sockets.
    pub listeners: Vec<Listener>,
    /// The channel for questions to the control thread.
    pub ear: Ear,
    /// The log.
    pub log: Log,
    /// The TLS contexts.
    pub contexts: Arc<Contexts>,
    /// The Broker of all workers.
    pub broker: SharedBroker,
    /// The reason for this driver, for the log.
    pub driver_story: String,
    /// How many cores the process may use.
    pub cores: usize,
    /// The sender of trace spans.
    pub tracer: Tracer,
    /// [`PoolerSetup::shared_seed`].
    pub shared_seed: [u8; 32],
}

/// Chooses the driver, and returns the reason, too.
///
/// # Errors
/// The driver that the settings demand does not work here.
pub fn choose_driver(globals: &Globals) -> Result<(Choice, String), Fatal> {
    let wanted = match globals.io_driver {
        IoDriver::Auto => choose::IoDriver::Auto,
        IoDriver::IoUring => choose::IoDriver::IoUring,
        IoDriver::Epoll => choose::IoDriver::Epoll,
    };
    choose::choose(wanted).map_err(Fatal)
}

/// How many workers to start: the number in the settings, or one for each core that the process may
/// use (by its affinity and its control group's quota).
pub fn count(globals: &Globals, cores: usize) -> u16 {
    let wanted = if globals.workers == 0 {
        cores
    } else {
        globals.workers as usize
    };
    u16::try_from(wanted).unwrap_or(u16::MAX)
}

/// The socket options in the settings.
pub fn socket_options(globals: &Globals) -> SocketOptions {
    SocketOptions {
        keepalive: globals.tcp_keepalive,
        keepcnt: globals.tcp_keepcnt,
        keepidle: globals.tcp_keepidle,
        keepintvl: globals.tcp_keepintvl,
        user_timeout: globals.tcp_user_timeout,
        buffer: globals.tcp_socket_buffer as usize,
    }
}

/// The worker threads before they work: each has its mailbox and its driver, so that nothing is left
/// that the system might refuse. If this is dropped, the threads end.
pub struct Crew {
    boxes: Vec<PostBox>,
    seats: Vec<(mpsc::Sender<Seat>, [u8; 32])>,
}

/// Why a worker has no driver: its number, the driver's name, and the system's error.
type NoDriver = (u16, &'static str, std::io::Error);

/// Starts the worker threads, which wait for [`Crew::work`].
///
/// # Errors
/// The system refuses threads, descriptors, memory or entropy.
pub fn hire(count: u16, driver: Choice) -> Result<Crew, Fatal> {
    let fail = |number, what, why| Fatal(cannot_start(number, count, what, &why));
    let (ready, answers) = mpsc::channel();
    let (mut boxes, mut seats) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (post, mailbox) = mailbox().map_err(|why| fail(number, "its mailbox", why))?;
        let (give, seat) = mpsc::channel();
        boxes.push(post);
        seats.push((give, entropy()?));
        let hired = Hired {
            number,
            mailbox,
            ready: ready.clone(),
            seat,
        };
        let thread = std::thread::Builder::new().name(format!("worker {number}"));
        thread
            .spawn(move || hired.wait(driver))
            .map_err(|why| fail(number, "its thread", why))?;
    }
    drop(ready);
    for _ in 0..count {
        let answer = answers.recv();
        let answer = answer.map_err(|_| Fatal("a worker ended before it began".into()))?;
        answer.map_err(|(number, what, why)| fail(number, what, why))?;
    }
    Ok(Crew { boxes, seats })
}

impl Crew {
    /// The workers begin, each with its share of another process's connections. Returns their
    /// mailboxes.
    pub fn work(self, common: &Common, freight: Option<Freight>) -> Vec<PostBox> {
        let Crew { boxes, seats } = self;
        for post in &boxes {
            // Sent before the connections of another process, whose TLS sessions need this library.
            let options = socket_options(&common.config.globals);
            post.post(Letter::Instruction(Instruction::SocketOptions(options)));
            post.post(Letter::Instruction(Instruction::Tls(
                common.contexts.clone(),
            )));
        }
        if let Some(freight) = freight {
            inherit(freight, &boxes, &common.broker);
        }
        let (numbers, begun) = (Arc::default(), Arc::default());
        let count = boxes.len() as u16;
        for (number, (give, seed)) in (0..count).zip(seats) {
            // The thread waits for this, or its panic ends the process.
            let _ = give.send(Seat {
                id: WorkerId(number),
                count,
                boxes: boxes.clone(),
                seed,
                numbers: Arc::clone(&numbers),
                begun: Arc::clone(&begun),
                common: common.clone(),
            });
        }
        boxes
    }
}

/// The error when a worker can't start, with its remedy.
fn cannot_start(number: u16, count: u16, what: &str, why: &std::io::Error) -> String {
    let limit = match Errno::from_io_error(why) {
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit on descriptors (ulimit -n)",
        Some(Errno::AGAIN) => "raise the limit on threads (ulimit -u, TasksMax=)",
        Some(Errno::NOMEM) => "raise the limits on memory and locked memory (ulimit -v, -l)",
        _ => "look at the limits of the process",
    };
    format!(
        "cannot start worker {} of {count}: {what} cannot be set up: {}; set workers lower \
         (0: one per core), or {limit}",
        number + 1,
        log::text(why)
    )
}

/// Gives the workers everything that another process had.
fn inherit(mut freight: Freight, boxes: &[PostBox], broker: &SharedBroker) {
    let estate = Arc::new(std::mem::take(&mut freight.estate));
    for post in boxes {
        post.post(Letter::Mail(Mail::Inherit(estate.clone())));
    }
    adopt(freight, boxes, broker);
}

/// Gives the workers the connections of another process. The other process's further knowledge
/// (such as disabled databases) came with the first round, and later changes of it do not matter
/// here.
pub fn adopt(freight: Freight, boxes: &[PostBox], broker: &SharedBroker) {
    let workers = boxes.len() as u16;
    broker.expect_arrivals(workers);
    for (worker, mail) in howdah_pooler::mail::deal(freight.parcels, workers) {
        boxes[usize::from(worker.0)].post(Letter::Mail(mail));
    }
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The system has no random bytes.
pub fn entropy() -> Result<[u8; 32], Fatal> {
    let mut seed = [0; 32];
    let got = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(32) => Ok(seed),
        Ok(_) => Err(Fatal("the system gave too little entropy".into())),
        Err(why) => Err(Fatal(format!(
            "the system gave no entropy: {}",
            error_text(why)
        ))),
    }
}

/// A worker's thread before it has its seat.
struct Hired {
    number: u16,
    mailbox: Mailbox,
    ready: mpsc::Sender<Result<(), NoDriver>>,
    seat: mpsc::Receiver<Seat>,
}

impl Hired {
    /// Runs the thread. The driver is made here, because some drivers belong to a thread. The listening
    /// sockets come with the seat: until a takeover is certain they are the old process's.
    fn wait(self, driver: Choice) {
        let wire = self.mailbox.wire();
        match driver {
            Choice::IoUring => {
                let made = Uring::new(Vec::new(), wire);
                self.work("io_uring", made, |driver, seat| {
                    let limit = seat.common.config.globals.busy_poll;
                    driver.busy_poll(Duration::from_micros(limit.into()));
                    driver.add_listeners(seat.common.listeners.clone())
                });
            }
            Choice::Epoll => {
                let made = Epoll::new(Vec::new(), wire).map_err(std::io::Error::from);
                self.work("epoll", made, |driver, seat| {
                    driver.add_listeners(seat.common.listeners.clone())
                });
            }
        }
    }

    fn work<D: Driver>(
        self,
        name: &'static str,
        driver: std::io::Result<D>,
        sit: impl FnOnce(&mut D, &Seat) -> Result<(), Errno>,
    ) {
        let (driver, answer) = match driver {
            Ok(driver) => (Some(driver), Ok(())),
            Err(why) => (None, Err((self.number, name, why))),
        };
        // If nobody hears this, or nobody gives a seat, the process could not start, and ends.
        let _ = self.ready.send(answer);
        drop(self.ready);
        let (Some(mut driver), Ok(mut seat)) = (driver, self.seat.recv()) else {
            return;
        };
        if let Err(why) = sit(&mut driver, &seat) {
            let text = cannot_start(self.number, seat.count, name, &why.into());
            seat.common.log.say(Level::Fatal, text);
            leave(1);
        }
        seat.common.listeners.clear();
        seat.run(driver, self.mailbox);
    }
}

/// The values for one worker.
struct Seat {
    id: WorkerId,
    count: u16,
    boxes: Vec<PostBox>,
    seed: [u8; 32],
    numbers: Arc<AtomicU64>,
    begun: Arc<AtomicU64>,
    common: Common,
}

impl Seat {
    fn run(self, driver: impl Driver, mailbox: Mailbox) {
        let Common {
            config,
            ear,
            log,
            driver_story,
            cores,
            tracer,
            shared_seed,
            broker,
            ..
        } = self.common;
        let decisions = Pooler::new(PoolerSetup {
            worker: self.id,
            workers: self.count,
            usable: u16::try_from(cores).unwrap_or(u16::MAX),
            config,
            seed: self.seed,
            shared_seed,
            started: wall_clock_at_origin(),
            driver: driver_story,
            uid: rustix::process::geteuid().as_raw(),
            numbers: self.numbers,
            begun: self.begun,
        });
        let slow_log = log.clone();
        let outside = Outside {
            // While the process is ending, nobody receives this.
            ask: Box::new(move |from, question| {
                drop(ear.send(ControlEvent::Asked(from, question)))
            }),
            note: Box::new(move |note| log.note(&note)),
            tell: Box::new(move |seen| match seen {
                Seen::Slow(slow) => slow_log.slow(&slow),
                Seen::Traced(traced) => tracer.offer(traced),
            }),
            workers: self.boxes,
            broker,
        };
        let worker = Worker::new(self.id, decisions, driver, mailbox, outside);
        // In debug builds a mistake must be noticed, so it ends the process.
        let worker = if cfg!(debug_assertions) {
            worker
        } else {
            worker.surviving()
        };
        worker.with_vitals(Vitals::of_this_thread()).run();
    }
}

/// The wall clock at `Time(0)`, in seconds since 1970.
fn wall_clock_at_origin() -> f64 {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    wall.as_secs_f64() - clock().0 as f64 / 1e9
}
