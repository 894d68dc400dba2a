//! The events that end a worker's wait, and the cases in which a worker must not wake.

use std::cell::RefCell;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::rc::Rc;

use howdah_daemon::driver::Completion;
use howdah_daemon::driver::socket::Listener;
use howdah_daemon::mailbox::Letter;
use howdah_pooler::event::{Action, Address, Answer, Event, Out, Time};

use crate::stage::{CLIENT, Make, Stage, echo, listener, read_some, scripted, write_some};

pub(crate) fn mail_wakes_a_waiting_worker<D: Make>() {
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
            // Without a deadline: only the bell ends the wait.
            stage.worker.turn(None);
        }
        sender.join().unwrap();
    }
}

pub(crate) fn deadlines_that_move_are_kept<D: Make>() {
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
            // A wait may end early, but must not last for ever.
            loop {
                stage.worker.turn(Some(Time(start.0 + after)));
                if stage.worker.sockets().driver().now().0 >= start.0 + after {
                    break;
                }
            }
            let late = stage.worker.sockets().driver().now().0 - start.0 - after;
            assert!(late < 20_000 * MILLISECOND, "a later deadline was awaited");
        };
        // Bytes end a wait with a distant deadline. Then a near deadline counts, then one in
        // between.
        until(&mut stage, 30_000 * MILLISECOND, true);
        until(&mut stage, MILLISECOND, false);
        until(&mut stage, 100 * MILLISECOND, true);
        until(&mut stage, (round % 4) * MILLISECOND, false);
    }
}

pub(crate) fn an_idle_worker_does_not_spin<D: Make>() {
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
    // Unread input with receiving off, and unsent output: the worker can only wait.
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

/// A worker that hangs does not keep a connection from others: any running worker can accept it.
pub(crate) fn who_stands_still_keeps_nobody_from_accepting<D: Make>() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = Address::Tcp(Ipv4Addr::LOCALHOST.into(), port);
    let listener = Listener::new(address, listener.into());
    // The stuck worker is the first in the kernel's queue.
    let mut stuck = D::make(vec![listener.clone()], None);
    stuck.accept(0, true);
    stuck.wait(Some(Time(0)));
    let mut lively = D::make(vec![listener], None);
    lively.accept(0, true);
    lively.wait(Some(Time(0)));
    let streams: Vec<_> = { 0..3 }
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    let give_up = lively.now().0 + 10_000_000_000;
    let mut accepted = 0;
    while accepted < streams.len() && lively.now().0 < give_up {
        let until = lively.now().0 + 10_000_000;
        lively.wait(Some(Time(until)));
        while let Some(completion) = lively.next() {
            if let Completion::Accepted { socket, .. } = completion {
                lively.discard(socket);
                accepted += 1;
            }
        }
    }
    assert_eq!(accepted, streams.len());
}

/// At the end of the process listeners are shut down while workers still wait at them.
pub(crate) fn the_end_of_a_listener_is_no_error<D: Make>() {
    let tcp = listener().1;
    let name = format!("{}-{}", std::any::type_name::<D>(), std::process::id());
    let unix = SocketAddr::from_abstract_name(&name).unwrap();
    let unix = UnixListener::bind_addr(&unix).unwrap();
    let unix = Listener::new(Address::Unix(name, 0), unix.into());
    for listener in [tcp, unix] {
        let mut driver = D::make(vec![listener.clone()], None);
        driver.accept(0, true);
        driver.wait(Some(Time(0)));
        listener.stop();
        for _ in 0..3 {
            let until = driver.now().0 + 5_000_000;
            driver.wait(Some(Time(until)));
            assert!(driver.next().is_none());
        }
    }
}
