//! The connection layer over each of the kernel's drivers: one suite for all of them.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_daemon::driver::Driver;
use howdah_daemon::driver::epoll::Epoll;
use howdah_daemon::driver::socket::{Listener, SocketOptions};
use howdah_daemon::driver::uring::Uring;
use howdah_daemon::mailbox::{Letter, PostBox, mailbox};
use howdah_daemon::worker::{Decide, Outside, Worker};
use howdah_pooler::event::{
    Action, Address, Answer, ClientId, Close, Event, LooseSocket, Out, Peer, ServerId, Time,
    WorkerId,
};
use howdah_sim::forwarder::Forwarder;

/// Makes a driver.
trait Make: Driver + Sized {
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

macro_rules! suite {
    ($($name:ident)*) => {
        mod epoll { $(#[test] fn $name() { super::$name::<super::Epoll>(); })* }
        mod uring { $(#[test] fn $name() { super::$name::<super::Uring>(); })* }
    };
}

suite! {
    echoes_of_all_sizes
    a_slow_reader_bounds_memory
    stopping_and_starting_loses_nothing
    flush_delivers_everything
    abort_closes_at_once
    await_waits_for_the_end_of_the_stream
    a_socket_moves_between_workers_with_data_under_way
    end_of_file_and_reset_are_told_apart
    a_refused_connect_is_told_once
    last_words_survive_a_failed_send
    more_connections_than_buffers
    mail_wakes_a_waiting_worker
    deadlines_that_move_are_kept
    closing_while_everything_is_under_way
    an_idle_worker_does_not_spin
    one_event_sends_to_hundreds
    small_kernel_buffers_lose_nothing
    who_connects_after_the_end_is_refused_at_once
}

/// Decisions made by a closure.
#[allow(clippy::type_complexity)]
struct Scripted<'a>(Box<dyn FnMut(Event<'_>, &mut Out) + 'a>);

impl Decide for Scripted<'_> {
    fn handle(&mut self, _now: Time, event: Event<'_>, out: &mut Out) {
        (self.0)(event, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

/// A worker driven by the test's own thread.
struct Stage<P, D> {
    worker: Worker<P, D>,
    post: PostBox,
    port: u16,
}

const CLIENT: Peer = Peer::Client(ClientId {
    index: 0,
    generation: 1,
});
const SERVER: Peer = Peer::Server(ServerId {
    index: 0,
    generation: 1,
});

fn listener() -> (u16, Listener) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = socket.local_addr().unwrap();
    let address = Address::Tcp(name.ip(), name.port());
    (name.port(), Listener::new(address, socket.into()))
}

impl<P: Decide, D: Make> Stage<P, D> {
    fn new(decisions: P) -> Self {
        let (port, listener) = listener();
        let (post, mailbox) = mailbox().unwrap();
        let driver = D::make(vec![listener], mailbox.wire());
        let outside = Outside {
            ask: Box::new(|_, _| ()),
            note: Box::new(|note| eprintln!("{}", note.text)),
            workers: vec![post.clone()],
        };
        let worker = Worker::new(WorkerId(0), decisions, driver, mailbox, outside);
        Stage { worker, post, port }
    }

    fn connect(&mut self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn turn(&mut self) {
        let soon = Time(self.worker.sockets().driver().now().0 + 5_000_000);
        self.worker.turn(Some(soon));
    }

    /// Turns until the condition holds.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            self.turn();
            assert!(start.elapsed() < Duration::from_secs(30), "in vain: {what}");
        }
    }

    /// Has the decisions carry out what they understand by this number.
    fn command(&mut self, number: u64) {
        self.post
            .post(Letter::Answer(Answer::Reloaded(number, Ok(()))));
    }
}

/// Bytes that tell where they belong.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8)
        .collect()
}

/// What a non-blocking read found: the end is `None`.
fn read_some(stream: &mut TcpStream, into: &mut Vec<u8>) -> Option<usize> {
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

fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    match stream.write(bytes) {
        Ok(n) => n,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

/// Adopts the only client as `CLIENT`; the rest is the test's.
fn scripted<'a>(mut rest: impl FnMut(Event<'_>, &mut Out) + 'a) -> Scripted<'a> {
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

fn echo(event: &Event<'_>, out: &mut Out) {
    if let Event::Received(peer, bytes) = event {
        out.relay(*peer, 0..bytes.len());
    }
}

fn echoes_of_all_sizes<D: Make>() {
    let mut stage = Stage::<_, D>::new(scripted(|event, out| echo(&event, out)));
    let mut stream = stage.connect();
    for len in [1, 2, 100, 8191, 8192, 8193, 70_000, 1, 500_000, 3] {
        let sent = pattern(len, len);
        let (mut written, mut back) = (0, Vec::new());
        stage.until("the echo", |_| {
            written += write_some(&mut stream, &sent[written..]);
            read_some(&mut stream, &mut back).unwrap();
            back.len() == len
        });
        assert!(back == sent);
    }
    // An idle connection owns no memory to send from.
    stage.until("quiet", |stage| {
        stage.worker.sockets().output_memory() <= 1024 * 1024
    });
}

fn upstream() -> (TcpListener, Address) {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = upstream.local_addr().unwrap();
    (upstream, Address::Tcp(name.ip(), name.port()))
}

fn a_slow_reader_bounds_memory<D: Make>() {
    const TOTAL: usize = 20_000_000;
    let (upstream, address) = upstream();
    let mut stage = Stage::<_, D>::new(Forwarder::new(address));
    let mut client = stage.connect();
    upstream.set_nonblocking(true).unwrap();
    let mut server = None;
    stage.until("a server", |_| {
        server = server.take().or_else(|| upstream.accept().ok());
        server.is_some()
    });
    let mut server = server.unwrap().0;
    server.set_nonblocking(true).unwrap();
    let sent = pattern(0, TOTAL);
    let (mut written, mut got, mut most, mut turns) = (0, Vec::new(), 0, 0);
    stage.until("20 MB", |stage| {
        if written < TOTAL {
            written += write_some(&mut server, &sent[written..]);
        }
        turns += 1;
        // The reader sleeps until the sender is stuck, then reads a little every few turns.
        let started = stage.worker.decisions().seen.congested > 0;
        if started && turns % 3 == 0 {
            read_some(&mut client, &mut got).unwrap();
        }
        most = most.max(stage.worker.sockets().output_memory());
        got.len() == TOTAL
    });
    assert!(got == sent);
    assert!(most < 4_000_000, "{most} bytes were held");
    stage.until("drained", |stage| {
        let seen = stage.worker.decisions().seen;
        seen.congested > 0 && seen.drained == seen.congested
    });
    assert!(stage.worker.sockets().output_memory() <= 1024 * 1024);
}

fn stopping_and_starting_loses_nothing<D: Make>() {
    let got = Rc::new(RefCell::new(Vec::new()));
    let seen = got.clone();
    let mut on = true;
    let decisions = scripted(move |event, out| match event {
        Event::Received(_, bytes) => {
            seen.borrow_mut().extend_from_slice(bytes);
            on = !on;
            out.push(Action::Receive { peer: CLIENT, on });
            // Back and forth within one turn as well.
            if bytes.len() % 3 == 0 {
                out.push(Action::Receive {
                    peer: CLIENT,
                    on: !on,
                });
                out.push(Action::Receive { peer: CLIENT, on });
            }
        }
        Event::Answer(_) => {
            on = true;
            out.push(Action::Receive { peer: CLIENT, on });
        }
        _ => {}
    });
    let mut stage = Stage::<_, D>::new(decisions);
    let mut stream = stage.connect();
    let sent = pattern(0, 3_000_000);
    let (mut written, mut step) = (0, 1);
    stage.until("everything", |stage| {
        if written < sent.len() {
            step = step * 7 % 20_011;
            let end = (written + step).min(sent.len());
            written += write_some(&mut stream, &sent[written..end]);
        }
        stage.command(1);
        got.borrow().len() == sent.len()
    });
    assert!(*got.borrow() == sent);
}

fn flush_delivers_everything<D: Make>() {
    let closed = Rc::new(RefCell::new(0));
    let seen = closed.clone();
    let words = pattern(0, 3_000_000);
    let said = words.clone();
    let decisions = scripted(move |event, out| match event {
        Event::Accepted(_) => {
            for part in said.chunks(100_000) {
                out.send(CLIENT, part);
            }
            out.push(Action::Close {
                peer: CLIENT,
                how: Close::Flush,
            });
        }
        Event::Closed { .. } => *seen.borrow_mut() += 1,
        Event::Congested(_) | Event::Drained(_) => {}
        other => panic!("told after close: {other:?}"),
    });
    let mut stage = Stage::<_, D>::new(decisions);
    let mut stream = stage.connect();
    // Input nobody reads must not reset the connection.
    assert_eq!(write_some(&mut stream, b"unread"), 6);
    let mut got = Vec::new();
    stage.until("the end", |_| read_some(&mut stream, &mut got).is_none());
    assert!(got == words);
    drop(stream);
    stage.until("closed", |_| *closed.borrow() == 1);
    assert!(stage.worker.sockets().is_empty());
}

fn abort_closes_at_once<D: Make>() {
    let closed = Rc::new(RefCell::new(Vec::new()));
    let seen = closed.clone();
    let decisions = scripted(move |event, out| match event {
        Event::Received(..) => {
            out.send(CLIENT, &pattern(0, 10_000_000));
            out.push(Action::Close {
                peer: CLIENT,
                how: Close::Abort,
            });
            out.push(Action::Close {
                peer: CLIENT,
                how: Close::Abort,
            });
        }
        Event::Closed { peer, gone } => seen.borrow_mut().push((peer, gone)),
        _ => {}
    });
    let mut stage = Stage::<_, D>::new(decisions);
    let mut stream = stage.connect();
    write_some(&mut stream, b"x");
    stage.until("closed", |_| !closed.borrow().is_empty());
    assert_eq!(*closed.borrow(), [(CLIENT, false)]);
    assert!(stage.worker.sockets().is_empty());
    stream.set_nonblocking(false).unwrap();
    assert!(
        stream.read(&mut [0; 10]).is_ok_and(|n| n == 0),
        "an end of file"
    );
}

fn await_waits_for_the_end_of_the_stream<D: Make>() {
    let (upstream, address) = upstream();
    let closed = Rc::new(RefCell::new(Vec::new()));
    let seen = closed.clone();
    let decisions = scripted(move |event, out| match event {
        Event::Answer(_) => {
            let server = ServerId {
                index: 0,
                generation: 1,
            };
            out.push(Action::Connect(server, address.clone()));
        }
        Event::Connected(_, result) => {
            result.unwrap();
            out.send(SERVER, b"X");
            out.push(Action::Close {
                peer: SERVER,
                how: Close::Await,
            });
        }
        Event::Closed { peer, gone } => seen.borrow_mut().push((peer, gone)),
        other => panic!("{other:?}"),
    });
    let mut stage = Stage::<_, D>::new(decisions);
    stage.command(1);
    upstream.set_nonblocking(true).unwrap();
    let mut server = None;
    let mut got = Vec::new();
    stage.until("our end of file", |_| {
        server = server.take().or_else(|| upstream.accept().ok());
        server.as_mut().is_some_and(|(stream, _)| {
            stream.set_nonblocking(true).unwrap();
            read_some(stream, &mut got).is_none()
        })
    });
    assert_eq!(got, b"X");
    for _ in 0..3 {
        stage.turn();
    }
    assert!(closed.borrow().is_empty(), "PostgreSQL has not let go yet");
    drop(server);
    stage.until("closed", |_| !closed.borrow().is_empty());
    assert_eq!(*closed.borrow(), [(SERVER, true)]);
}

fn a_socket_moves_between_workers_with_data_under_way<D: Make>() {
    let parcel: Rc<RefCell<Option<LooseSocket>>> = Rc::default();
    let got: Rc<RefCell<Vec<u8>>> = Rc::default();
    let decisions = || {
        let (parcel, got) = (parcel.clone(), got.clone());
        scripted(move |event, out| match event {
            Event::Received(_, bytes) => {
                got.borrow_mut().extend_from_slice(bytes);
                out.relay(CLIENT, 0..bytes.len());
            }
            Event::Answer(Answer::Reloaded(1, _)) => out.push(Action::Detach(CLIENT)),
            Event::Answer(_) => {
                let socket = parcel.borrow_mut().take().unwrap();
                out.push(Action::Attach(CLIENT, socket));
            }
            Event::Detached(_, socket) => assert!(parcel.borrow_mut().replace(socket).is_none()),
            Event::Accepted(_) | Event::Congested(_) | Event::Drained(_) => {}
            other => panic!("{other:?}"),
        })
    };
    let mut stages = [
        Stage::<_, D>::new(decisions()),
        Stage::<_, D>::new(decisions()),
    ];
    let mut stream = stages[0].connect();
    let sent = pattern(0, 2_000_000);
    let (mut written, mut back, mut moves) = (0, Vec::new(), 0);
    let mut at = 0;
    while back.len() < sent.len() {
        // Written until half a megabyte is under way, then moved in the middle of it.
        let end = (written + 300_000).min(sent.len());
        let target = back.len() + 1;
        stages[at].until("an echo", |_| {
            written += write_some(&mut stream, &sent[written..end]);
            read_some(&mut stream, &mut back).unwrap();
            back.len() >= target
        });
        stages[at].command(1);
        stages[at].until("detached", |stage| {
            read_some(&mut stream, &mut back).unwrap();
            parcel.borrow().is_some() && stage.worker.sockets().is_empty()
        });
        at = 1 - at;
        stages[at].command(2);
        moves += 1;
        stages[at].until("attached", |_| parcel.borrow().is_none());
    }
    assert!(back == sent && *got.borrow() == sent);
    assert!(moves > 3);
}

fn end_of_file_and_reset_are_told_apart<D: Make>() {
    let lost: Rc<RefCell<Vec<Option<String>>>> = Rc::default();
    let seen = lost.clone();
    let closed = Rc::new(RefCell::new(0));
    let count = closed.clone();
    let decisions = scripted(move |event, out| match event {
        Event::Lost(peer, why) => {
            seen.borrow_mut().push(why);
            out.push(Action::Close {
                peer,
                how: Close::Flush,
            });
        }
        Event::Closed { gone, .. } => {
            assert!(gone);
            *count.borrow_mut() += 1;
        }
        _ => {}
    });
    let mut stage = Stage::<_, D>::new(decisions);
    let stream = stage.connect();
    stage.until("accepted", |stage| stage.worker.sockets().len() == 1);
    drop(stream);
    stage.until("closed", |_| *closed.borrow() == 1);
    let stream = stage.connect();
    stage.until("accepted", |stage| stage.worker.sockets().len() == 1);
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    stage.until("closed", |_| *closed.borrow() == 2);
    assert_eq!(
        *lost.borrow(),
        [None, Some("Connection reset by peer".to_owned())]
    );
}

fn a_refused_connect_is_told_once<D: Make>() {
    let told: Rc<RefCell<Vec<String>>> = Rc::default();
    let seen = told.clone();
    let (upstream, address) = upstream();
    drop(upstream);
    let decisions = scripted(move |event, out| match event {
        Event::Answer(Answer::Reloaded(1, _)) => {
            let server = ServerId {
                index: 0,
                generation: 1,
            };
            out.push(Action::Connect(server, address.clone()));
        }
        Event::Answer(_) => {
            let server = ServerId {
                index: 0,
                generation: 1,
            };
            let nowhere = Address::Unix("/nonexistent/.s.PGSQL.1".into(), 1);
            out.push(Action::Connect(server, nowhere));
        }
        other => seen.borrow_mut().push(format!("{other:?}")),
    });
    let mut stage = Stage::<_, D>::new(decisions);
    for (number, error) in [(1, "Connection refused"), (2, "No such file or directory")] {
        stage.command(number);
        stage.until("closed", |_| told.borrow().len() == 2);
        let told = std::mem::take(&mut *told.borrow_mut());
        assert!(
            told[0].starts_with("Connected") && told[0].contains(error),
            "{told:?}"
        );
        assert!(told[1].starts_with("Closed"), "{told:?}");
    }
    assert!(stage.worker.sockets().is_empty());
}

fn last_words_survive_a_failed_send<D: Make>() {
    let (upstream, address) = upstream();
    let got: Rc<RefCell<Vec<u8>>> = Rc::default();
    let lost = Rc::new(RefCell::new(0));
    let (seen, count) = (got.clone(), lost.clone());
    let decisions = scripted(move |event, out| match event {
        Event::Answer(Answer::Reloaded(1, _)) => {
            let server = ServerId {
                index: 0,
                generation: 1,
            };
            out.push(Action::Connect(server, address.clone()));
        }
        Event::Connected(_, result) => {
            result.unwrap();
            out.push(Action::Receive {
                peer: SERVER,
                on: false,
            });
        }
        Event::Answer(Answer::Reloaded(2, _)) => {
            // In one turn: received only after the send has failed.
            out.send(SERVER, b"a query");
            out.push(Action::Receive {
                peer: SERVER,
                on: true,
            });
        }
        Event::Received(_, bytes) => seen.borrow_mut().extend_from_slice(bytes),
        Event::Lost(..) => *count.borrow_mut() += 1,
        other => panic!("{other:?}"),
    });
    let mut stage = Stage::<_, D>::new(decisions);
    stage.command(1);
    upstream.set_nonblocking(true).unwrap();
    let mut server = None;
    stage.until("a server", |_| {
        server = server.take().or_else(|| upstream.accept().ok());
        server.is_some()
    });
    for _ in 0..3 {
        stage.turn();
    }
    let (mut stream, _) = server.unwrap();
    stream.write_all(b"FATAL: last words").unwrap();
    drop(stream);
    stage.command(2);
    stage.until("lost", |_| *lost.borrow() == 1);
    assert_eq!(*got.borrow(), b"FATAL: last words");
}

fn more_connections_than_buffers<D: Make>() {
    let (upstream, address) = upstream();
    let mut stage = Stage::<_, D>::new(Forwarder::new(address));
    upstream.set_nonblocking(true).unwrap();
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..300 {
        clients.push(stage.connect());
        stage.until("a server", |_| {
            servers.extend(upstream.accept());
            servers.len() == clients.len()
        });
    }
    let sent = pattern(0, 50_000);
    let mut got = vec![Vec::new(); 300];
    for (server, _) in &mut servers {
        server.set_nonblocking(true).unwrap();
    }
    let mut written = vec![0; 300];
    stage.until("all bytes on all connections", |_| {
        for (i, (server, _)) in servers.iter_mut().enumerate() {
            if written[i] < sent.len() {
                written[i] += write_some(server, &sent[written[i]..]);
            }
        }
        for (i, client) in clients.iter_mut().enumerate() {
            read_some(client, &mut got[i]).unwrap();
        }
        got.iter().all(|got| got.len() == sent.len())
    });
    assert!(got.iter().all(|got| *got == sent));
    drop(clients);
    stage.until("closed", |stage| {
        stage.worker.decisions().seen.closed == 300
    });
    assert!(stage.worker.sockets().is_empty());
}

fn mail_wakes_a_waiting_worker<D: Make>() {
    let answers = Rc::new(RefCell::new(0));
    let seen = answers.clone();
    let mut stage = Stage::<_, D>::new(scripted(move |event, _| {
        if let Event::Answer(_) = event {
            *seen.borrow_mut() += 1;
        }
    }));
    for round in 1..=100 {
        let post = stage.post.clone();
        let sender = std::thread::spawn(move || {
            post.post(Letter::Answer(Answer::Reloaded(1, Ok(()))));
        });
        while *answers.borrow() < round {
            // For ever: only the bell ends it.
            stage.worker.turn(None);
        }
        sender.join().unwrap();
    }
}

fn deadlines_that_move_are_kept<D: Make>() {
    const MILLISECOND: u64 = 1_000_000;
    let mut stage = Stage::<_, D>::new(scripted(|event, out| echo(&event, out)));
    let mut stream = stage.connect();
    for round in 0..50 {
        let mut until = |stage: &mut Stage<_, D>, after: u64, something: bool| {
            let start = stage.worker.sockets().driver().now();
            if something {
                write_some(&mut stream, b"x");
                stage.worker.turn(Some(Time(start.0 + after)));
                return;
            }
            // A wait may end early, but not for ever.
            loop {
                stage.worker.turn(Some(Time(start.0 + after)));
                if stage.worker.sockets().driver().now().0 >= start.0 + after {
                    break;
                }
            }
            let late = stage.worker.sockets().driver().now().0 - start.0 - after;
            assert!(late < 20_000 * MILLISECOND, "a later deadline was awaited");
        };
        // What comes ends a wait for a distant deadline; then a near one counts, then one between.
        until(&mut stage, 30_000 * MILLISECOND, true);
        until(&mut stage, MILLISECOND, false);
        until(&mut stage, 100 * MILLISECOND, true);
        until(&mut stage, (round % 4) * MILLISECOND, false);
    }
}

fn closing_while_everything_is_under_way<D: Make>() {
    let (upstream, address) = upstream();
    let mut stage = Stage::<_, D>::new(Forwarder::new(address));
    upstream.set_nonblocking(true).unwrap();
    let noise = pattern(0, 200_000);
    for round in 1..=100 {
        let mut client = stage.connect();
        let mut server = None;
        stage.until("a server", |_| {
            server = server.take().or_else(|| upstream.accept().ok());
            server.is_some()
        });
        let (mut server, _) = server.unwrap();
        server.set_nonblocking(true).unwrap();
        for _ in 0..round % 4 {
            write_some(&mut client, &noise);
            write_some(&mut server, &noise);
            stage.turn();
        }
        match round % 3 {
            0 => drop(client),
            1 => drop(server),
            _ => drop((client, server)),
        }
        stage.turn();
    }
    stage.until("closed", |stage| {
        stage.worker.decisions().seen.closed == 100
    });
    assert!(stage.worker.sockets().is_empty());
}

fn an_idle_worker_does_not_spin<D: Make>() {
    let handled = Rc::new(RefCell::new(0));
    let seen = handled.clone();
    let mut stage = Stage::<_, D>::new(scripted(move |event, out| {
        *seen.borrow_mut() += 1;
        match event {
            Event::Received(peer, _) => {
                out.send(peer, b"!");
                out.push(Action::Receive { peer, on: false });
            }
            Event::Answer(_) => stage_busy(out),
            _ => {}
        }
    }));
    fn stage_busy(out: &mut Out) {
        out.send(CLIENT, &[0; 5_000_000]);
    }
    let mut stream = stage.connect();
    write_some(&mut stream, b"a");
    let mut got = Vec::new();
    stage.until("an answer", |_| {
        read_some(&mut stream, &mut got).unwrap();
        got.len() == 1
    });
    // Unread input with receiving off, unsent output: nothing to do but to wait.
    write_some(&mut stream, b"b");
    stage.command(1);
    let (mut quiet, mut turns) = (0, 0);
    while quiet < 3 {
        let start = stage.worker.sockets().driver().now();
        stage.worker.turn(Some(Time(start.0 + 5_000_000)));
        let end = stage.worker.sockets().driver().now();
        quiet = if end.0 - start.0 >= 5_000_000 {
            quiet + 1
        } else {
            0
        };
        turns += 1;
        assert!(turns < 200, "the worker never comes to rest");
    }
    let before = *handled.borrow();
    stage.turn();
    assert_eq!(*handled.borrow(), before);
}

fn one_event_sends_to_hundreds<D: Make>() {
    const COUNT: u32 = 700;
    let closed = Rc::new(RefCell::new(0));
    let count = closed.clone();
    let mut accepted = 0;
    let client = |index| {
        Peer::Client(ClientId {
            index,
            generation: 1,
        })
    };
    let decisions = Scripted(Box::new(
        move |event: Event<'_>, out: &mut Out| match event {
            Event::Accepted(_) => {
                let index = accepted;
                accepted += 1;
                out.push(Action::Adopt(ClientId {
                    index,
                    generation: 1,
                }));
            }
            Event::Answer(Answer::Reloaded(round, _)) => {
                for index in 0..COUNT {
                    let peer = client(index);
                    out.send(peer, &pattern(index as usize, 1000));
                    out.push(Action::Receive {
                        peer,
                        on: round == 2,
                    });
                    if round == 2 {
                        out.push(Action::Close {
                            peer,
                            how: Close::Flush,
                        });
                    }
                }
            }
            Event::Closed { .. } => *count.borrow_mut() += 1,
            other => panic!("{other:?}"),
        },
    ));
    let mut stage = Stage::<_, D>::new(decisions);
    let mut clients = Vec::new();
    for _ in 0..COUNT {
        clients.push(stage.connect());
        stage.until("accepted", |stage| {
            stage.worker.sockets().len() == clients.len()
        });
    }
    let mut got = vec![Vec::new(); clients.len()];
    stage.command(1);
    stage.until("the first words", |_| {
        for (client, got) in clients.iter_mut().zip(&mut got) {
            read_some(client, got).unwrap();
        }
        got.iter().all(|got| got.len() == 1000)
    });
    stage.command(2);
    stage.until("the last words and the end", |_| {
        let ends = clients.iter_mut().zip(&mut got);
        ends.filter_map(|(client, got)| read_some(client, got))
            .count()
            == 0
    });
    for (index, got) in got.iter().enumerate() {
        assert!(*got == [pattern(index, 1000), pattern(index, 1000)].concat());
    }
    drop(clients);
    stage.until("closed", |_| *closed.borrow() == COUNT);
    assert!(stage.worker.sockets().is_empty());
}

/// Blocks are larger than what is sent in one call then.
fn small_kernel_buffers_lose_nothing<D: Make>() {
    let (sent, mut seen) = (pattern(0, 300_000), 0);
    let total = sent.len();
    let mut stage = Stage::<_, D>::new(scripted(move |event, out| {
        if let Event::Received(peer, bytes) = event {
            out.relay(peer, 0..bytes.len());
            seen += bytes.len();
            if seen == total {
                let how = Close::Flush;
                out.push(Action::Close { peer, how });
            }
        }
    }));
    stage.worker.sockets().set_options(SocketOptions {
        buffer: 4096,
        ..SocketOptions::default()
    });
    let mut stream = stage.connect();
    let (mut written, mut back) = (0, Vec::new());
    stage.until("all of it, and the end", |_| {
        if written < sent.len() {
            written += write_some(&mut stream, &sent[written..]);
        }
        read_some(&mut stream, &mut back).is_none()
    });
    assert!(back == sent);
}

/// Though the kernel may need a while to let go of an accept that waits.
fn who_connects_after_the_end_is_refused_at_once<D: Make>() {
    let mut stage = Stage::<_, D>::new(scripted(|event, out| echo(&event, out)));
    let mut stream = stage.connect();
    let mut back = Vec::new();
    write_some(&mut stream, b"x");
    stage.until("an echo", |_| {
        read_some(&mut stream, &mut back).unwrap();
        !back.is_empty()
    });
    stage.worker.sockets().stop_listening(false);
    let refused = TcpStream::connect(("127.0.0.1", stage.port)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // Who is in stays.
    write_some(&mut stream, b"y");
    stage.until("another echo", |_| {
        read_some(&mut stream, &mut back).unwrap();
        back == b"xy"
    });
}
