//! Accepting when no descriptor is left. This test has a process of its own, because it lowers the process's
//! limit.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use howdah_daemon::broker::SharedBroker;
use howdah_daemon::driver::Driver;
use howdah_daemon::driver::epoll::Epoll;
use howdah_daemon::driver::socket::Listener;
use howdah_daemon::driver::uring::Uring;
use howdah_daemon::mailbox::mailbox;
use howdah_daemon::worker::{Decide, Outside, Worker};
use howdah_pooler::event::{Action, Address, ClientId, Close, Event, Out, Peer, Time, WorkerId};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Adopts every connection, and closes those that end.
#[derive(Default)]
struct Holder {
    adopted: u32,
    closed: u32,
}

impl Decide for Holder {
    fn handle(&mut self, _now: Time, event: Event<'_>, out: &mut Out) {
        match event {
            Event::Accepted(_) => {
                let index = self.adopted;
                self.adopted += 1;
                out.push(Action::Adopt(ClientId {
                    index,
                    generation: 1,
                }));
            }
            Event::Lost(peer @ Peer::Client(_), _) => {
                out.push(Action::Close {
                    peer,
                    how: Close::Flush,
                });
            }
            Event::Closed { .. } => self.closed += 1,
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn open_descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").unwrap().count() as u64
}

fn limit(descriptors: Option<u64>) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = descriptors.or(maximum);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

fn accepting_pauses_and_resumes<D: Driver>(
    make: impl FnOnce(Vec<Listener>, Option<Arc<std::os::fd::OwnedFd>>) -> D,
) {
    const CLIENTS: u32 = 20;
    let before = open_descriptors();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = socket.local_addr().unwrap();
    let address = Address::Tcp(name.ip(), name.port());
    let (post, mailbox) = mailbox().unwrap();
    let listener = Listener::new(address, socket.into());
    let driver = make(vec![listener], mailbox.wire());
    let notes = Arc::new(AtomicU32::new(0));
    let count = notes.clone();
    let outside = Outside {
        ask: Box::new(|_, _| ()),
        note: Box::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        }),
        tell: Box::new(drop),
        workers: vec![post],
        broker: SharedBroker::new(0),
    };
    let mut worker = Worker::new(WorkerId(0), Holder::default(), driver, mailbox, outside);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| TcpStream::connect(name).unwrap())
        .collect();
    limit(Some(open_descriptors() + 4));
    let turn = |worker: &mut Worker<_, D>| {
        let start = worker.sockets().driver().now();
        worker.turn(Some(Time(start.0 + 20_000_000)));
        worker.sockets().driver().now().0 - start.0 >= 20_000_000
    };
    let start = Instant::now();
    // The worker is at rest when three turns in a row end by their time limit.
    let (mut quiet, mut turns) = (0, 0);
    while quiet < 3 {
        quiet = if turn(&mut worker) { quiet + 1 } else { 0 };
        turns += 1;
        assert!(turns < 100, "it spins");
    }
    let held = worker.decisions().adopted;
    assert!(
        held > 0 && held < CLIENTS,
        "{held} of {CLIENTS} were accepted"
    );
    // Descriptors become free, in the test and in the worker: the other connections are accepted.
    while worker.decisions().closed < CLIENTS {
        let open = worker.decisions().adopted - worker.decisions().closed;
        if open > 0 && !clients.is_empty() {
            clients.remove(0);
        }
        turn(&mut worker);
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "accepting does not resume"
        );
    }
    assert_eq!(worker.decisions().adopted, CLIENTS);
    assert_eq!(
        notes.load(Ordering::Relaxed),
        1,
        "one note, not one per failure"
    );
    drop(worker);
    limit(None);
    let start = Instant::now();
    while open_descriptors() > before {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "descriptors leak"
        );
        std::thread::yield_now();
    }
}

#[test]
fn accepting_without_descriptors() {
    accepting_pauses_and_resumes(|listeners, bell| Epoll::new(listeners, bell).unwrap());
    accepting_pauses_and_resumes(|listeners, bell| Uring::new(listeners, bell).unwrap());
}
