//! Sent bytes arrive, complete and in order, and memory stays bounded.

use std::cell::RefCell;
use std::rc::Rc;

use howdah_daemon::driver::socket::SocketOptions;
use howdah_pooler::event::{Action, Answer, ClientId, Close, Event, LooseSocket, Out, Peer};
use howdah_sim::forwarder::Forwarder;

use crate::stage::{
    CLIENT, Make, Scripted, Stage, echo, pattern, read_some, scripted, upstream, write_some,
};

pub(crate) fn echoes_of_all_sizes<D: Make>() {
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
    // An idle connection owns no memory for sending.
    stage.until("quiet", |stage| {
        stage.worker.sockets().output_memory() <= 1024 * 1024
    });
}

pub(crate) fn a_slow_reader_bounds_memory<D: Make>() {
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
        // The reader sleeps until the sender is stuck. Then it reads a little every few turns.
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

pub(crate) fn stopping_and_starting_loses_nothing<D: Make>() {
    let got = Rc::new(RefCell::new(Vec::new()));
    let seen = got.clone();
    let mut on = true;
    let decisions = scripted(move |event, out| match event {
        Event::Received(_, bytes) => {
            seen.borrow_mut().extend_from_slice(bytes);
            on = !on;
            out.push(Action::Receive { peer: CLIENT, on });
            // Switches receiving off and on within one turn, too.
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

pub(crate) fn a_socket_moves_between_workers_with_data_under_way<D: Make>() {
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
        // Sends until half a megabyte is under way, then moves the socket.
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

pub(crate) fn more_connections_than_buffers<D: Make>() {
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

pub(crate) fn one_event_sends_to_hundreds<D: Make>() {
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

/// Then blocks are larger than the bytes of one send call.
pub(crate) fn small_kernel_buffers_lose_nothing<D: Make>() {
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
