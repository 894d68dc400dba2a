//! Every way in which a connection can end.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::Duration;

use howdah_pooler::event::{Action, Address, Answer, Close, Event};
use howdah_sim::forwarder::Forwarder;

use crate::stage::{
    CLIENT, Make, SERVER, Stage, connect, echo, pattern, read_some, scripted, upstream, write_some,
};

pub(crate) fn flush_delivers_everything<D: Make>() {
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
    // Unread input must not reset the connection.
    assert_eq!(write_some(&mut stream, b"unread"), 6);
    let mut got = Vec::new();
    stage.until("the end", |_| read_some(&mut stream, &mut got).is_none());
    assert!(got == words);
    drop(stream);
    stage.until("closed", |_| *closed.borrow() == 1);
    assert!(stage.worker.sockets().is_empty());
    stage.turn();
    assert_eq!(stage.worker.next_deadline(), None, "nothing is left to end");
}

pub(crate) fn abort_closes_at_once<D: Make>() {
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

pub(crate) fn parting_awaits_no_end_of_the_stream<D: Make>() {
    let closed = Rc::new(RefCell::new(0));
    let seen = closed.clone();
    let words = pattern(0, 3_000_000);
    let said = words.clone();
    let decisions = scripted(move |event, out| match event {
        Event::Received(..) => {
            for part in said.chunks(100_000) {
                out.send(CLIENT, part);
            }
            out.push(Action::Close {
                peer: CLIENT,
                how: Close::Part,
            });
        }
        Event::Closed { .. } => *seen.borrow_mut() += 1,
        Event::Accepted(_) | Event::Congested(_) | Event::Drained(_) => {}
        other => panic!("told after close: {other:?}"),
    });
    let mut stage = Stage::<_, D>::new(decisions);
    let mut stream = stage.connect();
    assert_eq!(write_some(&mut stream, b"X"), 1);
    let mut got = Vec::new();
    // Although this side of the stream stays open.
    stage.until("closed", |_| {
        let _ = read_some(&mut stream, &mut got);
        *closed.borrow() == 1
    });
    assert!(stage.worker.sockets().is_empty());
    stage.turn();
    assert_eq!(stage.worker.next_deadline(), None, "nothing is left to end");
    stage.until("the end", |_| read_some(&mut stream, &mut got).is_none());
    assert!(got == words);
}

pub(crate) fn parting_with_the_end_of_the_stream_at_hand<D: Make>() {
    const ROUNDS: u32 = 20;
    let closed = Rc::new(RefCell::new(0));
    let seen = closed.clone();
    let decisions = scripted(move |event, out| match event {
        Event::Received(..) => {
            let (peer, how) = (CLIENT, Close::Part);
            out.push(Action::Close { peer, how });
        }
        Event::Closed { .. } => *seen.borrow_mut() += 1,
        Event::Accepted(_) => {}
        other => panic!("told after close: {other:?}"),
    });
    let mut stage = Stage::<_, D>::new(decisions);
    for round in 1..=ROUNDS {
        let mut stream = stage.connect();
        stage.until("accepted", |stage| stage.worker.sockets().len() == 1);
        assert_eq!(write_some(&mut stream, b"X"), 1);
        drop(stream);
        stage.until("closed", |_| *closed.borrow() == round);
        assert!(stage.worker.sockets().is_empty());
    }
}

pub(crate) fn await_waits_for_the_end_of_the_stream<D: Make>() {
    let (upstream, address) = upstream();
    let closed = Rc::new(RefCell::new(Vec::new()));
    let seen = closed.clone();
    let decisions = scripted(move |event, out| match event {
        Event::Answer(_) => connect(out, &address),
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

pub(crate) fn a_hang_up_is_found_while_receiving_is_off<D: Make>() {
    let lost = Rc::new(RefCell::new(0));
    let count = lost.clone();
    let decisions = scripted(move |event, out| match event {
        Event::Accepted(_) => out.push(Action::Receive {
            peer: CLIENT,
            on: false,
        }),
        Event::Answer(_) => out.push(Action::LookForEnd(CLIENT)),
        Event::Lost(peer, why) => {
            assert_eq!(why, None);
            *count.borrow_mut() += 1;
            out.push(Action::Close {
                peer,
                how: Close::Flush,
            });
        }
        // The bytes may have arrived before receiving was switched off.
        Event::Received(..) | Event::Closed { .. } => {}
        other => panic!("{other:?}"),
    });
    let mut stage = Stage::<_, D>::new(decisions);
    let mut stream = stage.connect();
    stage.until("accepted", |stage| stage.worker.sockets().len() == 1);
    assert_eq!(write_some(&mut stream, b"unread"), 6);
    for _ in 0..3 {
        stage.command(1);
        stage.turn();
    }
    assert_eq!(*lost.borrow(), 0, "it is still there");
    drop(stream);
    stage.until("its end to be found", |stage| {
        stage.command(1);
        stage.worker.sockets().is_empty()
    });
    assert_eq!(*lost.borrow(), 1);
}

pub(crate) fn end_of_file_and_reset_are_told_apart<D: Make>() {
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

pub(crate) fn a_refused_connect_is_told_once<D: Make>() {
    let told: Rc<RefCell<Vec<String>>> = Rc::default();
    let seen = told.clone();
    let (upstream, address) = upstream();
    drop(upstream);
    let decisions = scripted(move |event, out| match event {
        Event::Answer(Answer::Reloaded(1, _)) => connect(out, &address),
        Event::Answer(_) => {
            connect(out, &Address::Unix("/nonexistent/.s.PGSQL.1".into(), 1));
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

pub(crate) fn last_words_survive_a_failed_send<D: Make>() {
    let (upstream, address) = upstream();
    let got: Rc<RefCell<Vec<u8>>> = Rc::default();
    let lost = Rc::new(RefCell::new(0));
    let (seen, count) = (got.clone(), lost.clone());
    let decisions = scripted(move |event, out| match event {
        Event::Answer(Answer::Reloaded(1, _)) => connect(out, &address),
        Event::Connected(_, result) => {
            result.unwrap();
            out.push(Action::Receive {
                peer: SERVER,
                on: false,
            });
        }
        Event::Answer(Answer::Reloaded(2, _)) => {
            // In one turn: receiving begins only after the send has failed.
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

pub(crate) fn closing_while_everything_is_under_way<D: Make>() {
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

/// Although the kernel may need a while to undo a waiting accept.
pub(crate) fn who_connects_after_the_end_is_refused_at_once<D: Make>() {
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
    // An open connection stays.
    write_some(&mut stream, b"y");
    stage.until("another echo", |_| {
        read_some(&mut stream, &mut back).unwrap();
        back == b"xy"
    });
}
