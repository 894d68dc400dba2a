//! A worker over one of the drivers, which the test's own thread runs.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_daemon::broker::SharedBroker;
use howdah_daemon::driver::Driver;
use howdah_daemon::driver::epoll::Epoll;
use howdah_daemon::driver::socket::Listener;
use howdah_daemon::driver::uring::Uring;
use howdah_daemon::mailbox::{Letter, PostBox, mailbox};
use howdah_daemon::worker::{Decide, Outside, Worker};
use howdah_pooler::event::{
    Action, Address, Answer, ClientId, Event, Out, Peer, ServerId, Time, WorkerId,
};

/// Makes a driver.
pub(crate) trait Make: Driver + Sized {
    fn make(listeners: Vec<Listener>, bell: Option<Arc<OwnedFd>>) -> Self;
}

impl Make for Epoll {
    fn make(listeners: Vec<Listener>, bell: Option<Arc<OwnedFd>>) -> Self {
        Epoll::new(listeners, bell).unwrap()
    }
}

impl Make for Uring {
    fn make(listeners: Vec<Listener>, bell: Option<Arc<OwnedFd>>) -> Self {
        Uring::new(listeners, bell).unwrap()
    }
}

/// Decisions that a closure makes.
#[allow(clippy::type_complexity)]
pub(crate) struct Scripted<'a>(pub(crate) Box<dyn FnMut(Event<'_>, &mut Out) + 'a>);

impl Decide for Scripted<'_> {
    fn handle(&mut self, _now: Time, event: Event<'_>, out: &mut Out) {
        (self.0)(event, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

/// A worker that the test's own thread runs.
pub(crate) struct Stage<P, D> {
    pub(crate) worker: Worker<P, D>,
    pub(crate) post: PostBox,
    pub(crate) port: u16,
}

pub(crate) const CLIENT: Peer = Peer::Client(ClientId {
    index: 0,
    generation: 1,
});
const SERVER_ID: ServerId = ServerId {
    index: 0,
    generation: 1,
};

pub(crate) const SERVER: Peer = Peer::Server(SERVER_ID);

/// Opens the server's connection.
pub(crate) fn connect(out: &mut Out, to: &Address) {
    out.push(Action::Connect(SERVER_ID, to.clone()));
}

pub(crate) fn listener() -> (u16, Listener) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = socket.local_addr().unwrap();
    let address = Address::Tcp(name.ip(), name.port());
    (name.port(), Listener::new(address, socket.into()))
}

impl<P: Decide, D: Make> Stage<P, D> {
    pub(crate) fn new(decisions: P) -> Self {
        let (port, listener) = listener();
        let (post, mailbox) = mailbox().unwrap();
        let driver = D::make(vec![listener], mailbox.wire());
        let outside = Outside {
            ask: Box::new(|_, _| ()),
            note: Box::new(|note| eprintln!("{}", note.text)),
            tell: Box::new(drop),
            workers: vec![post.clone()],
            broker: SharedBroker::new(0),
        };
        let worker = Worker::new(WorkerId(0), decisions, driver, mailbox, outside);
        Stage { worker, post, port }
    }

    pub(crate) fn connect(&mut self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    pub(crate) fn turn(&mut self) {
        let soon = Time(self.worker.sockets().driver().now().0 + 5_000_000);
        self.worker.turn(Some(soon));
    }

    /// Runs turns until the condition holds.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            self.turn();
            assert!(start.elapsed() < Duration::from_secs(30), "in vain: {what}");
        }
    }

    /// Sends the decisions a number. Its meaning is the test's.
    pub(crate) fn command(&mut self, number: u64) {
        self.post
            .post(Letter::Answer(Answer::Reloaded(number, Ok(()))));
    }
}

/// Bytes from which their position can be told.
pub(crate) fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8)
        .collect()
}

/// The result of a non-blocking read; `None` at the end of the stream.
pub(crate) fn read_some(stream: &mut TcpStream, into: &mut Vec<u8>) -> Option<usize> {
    let mut buffer = [0; 65536];
    match stream.read(&mut buffer) {
        Ok(0) => None,
        Ok(n) => {
            into.extend_from_slice(&buffer[..n]);
            Some(n)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    match stream.write(bytes) {
        Ok(n) => n,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

/// Adopts the only client as `CLIENT`; the closure handles all other events.
pub(crate) fn scripted<'a>(mut rest: impl FnMut(Event<'_>, &mut Out) + 'a) -> Scripted<'a> {
    Scripted(Box::new(move |event, out| match event {
        Event::Accepted(_) => {
            out.push(Action::Adopt(ClientId {
                index: 0,
                generation: 1,
            }));
            rest(event, out);
        }
        event => rest(event, out),
    }))
}

pub(crate) fn echo(event: &Event<'_>, out: &mut Out) {
    if let Event::Received(peer, bytes) = event {
        out.relay(*peer, 0..bytes.len());
    }
}

pub(crate) fn upstream() -> (TcpListener, Address) {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = upstream.local_addr().unwrap();
    (upstream, Address::Tcp(name.ip(), name.port()))
}
