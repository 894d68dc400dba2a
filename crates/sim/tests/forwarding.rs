//! The production worker loop and connection layer in the simulated world.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use howdah_daemon::broker::SharedBroker;
use howdah_daemon::mailbox::{Letter, Mailbox, PostBox, silent_mailbox};
use howdah_daemon::worker::{Decide, Outside, Worker};
use howdah_pooler::event::{
    Action, Address, Answer, ClientId, Close, Event, LooseSocket, Out, Peer, Time, WorkerId,
};
use howdah_sim::chance::Chance;
use howdah_sim::driver::SimDriver;
use howdah_sim::forwarder::Forwarder;
use howdah_sim::world::{Read, Shared, SocketId, World};

fn address(port: u16) -> Address {
    Address::Tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn worker<P: Decide>(
    id: u16,
    decisions: P,
    driver: SimDriver,
    mailbox: Mailbox,
    workers: Vec<PostBox>,
) -> Worker<P, SimDriver> {
    let outside = Outside {
        ask: Box::new(|_, _| ()),
        note: Box::new(|_| ()),
        tell: Box::new(drop),
        workers,
        broker: SharedBroker::new(0),
    };
    Worker::new(WorkerId(id), decisions, driver, mailbox, outside)
}

/// A program outside of Howdah: sends its bytes in pieces, and records what it receives.
struct Talker {
    socket: SocketId,
    say: VecDeque<u8>,
    heard: Vec<u8>,
    ended: bool,
    closes_when_done: usize,
}

impl Talker {
    fn new(socket: SocketId, say: Vec<u8>, closes_when_done: usize) -> Talker {
        Talker {
            socket,
            say: say.into(),
            heard: Vec::new(),
            ended: false,
            closes_when_done,
        }
    }

    fn step(&mut self, world: &mut World) {
        if self.ended || world.chance.once_in(2) {
            return;
        }
        if !self.say.is_empty() {
            let len = world.chance.part(self.say.len());
            let part = &self.say.make_contiguous()[..len];
            let written = world
                .write(self.socket, part)
                .expect("the other side is there");
            self.say.drain(..written);
        }
        let most = world.chance.part(20_000);
        match world.read(self.socket, most) {
            Read::Bytes(bytes) => self.heard.extend(bytes),
            Read::Nothing => {}
            Read::End => self.ended = true,
            Read::Reset => panic!("reset"),
        }
        let done = self.say.is_empty() && self.heard.len() >= self.closes_when_done;
        if (done || self.ended) && !world.is_closed(self.socket) {
            world.close(self.socket);
            self.ended = true;
        }
    }
}

fn bytes(chance: &mut Chance) -> Vec<u8> {
    let len = chance.within(1..=60_000);
    (0..len).map(|_| chance.number() as u8).collect()
}

/// Runs turns until all is over. The clock jumps if nothing moves.
fn pass_time(world: &Shared, deadline: Option<Time>, steps: usize) {
    let mut world = world.borrow_mut();
    world.now.0 += world.chance.number() % 50_000;
    if steps % 1000 == 999
        && let Some(deadline) = deadline
    {
        world.now = world.now.max(deadline);
    }
}

fn forward(seed: u64) -> Vec<usize> {
    let world = World::new(seed);
    let (front, back) = (address(6432), address(5432));
    world.borrow_mut().listen(back.clone());
    let driver = SimDriver::new(world.clone(), vec![front.clone()]);
    let (_post, mailbox) = silent_mailbox();
    let mut worker = worker(0, Forwarder::new(back.clone()), driver, mailbox, Vec::new());

    let mut chance = Chance::new(!seed);
    let count = chance.within(1..=6);
    let mut expected = Vec::new();
    let (mut clients, mut servers): (Vec<Talker>, Vec<Talker>) = (Vec::new(), Vec::new());
    for _ in 0..count {
        // One more byte comes first: the client's number.
        let mut say = bytes(&mut chance);
        say.insert(0, clients.len() as u8);
        let reply = bytes(&mut chance);
        let socket = world.borrow_mut().connect(&front).unwrap();
        clients.push(Talker::new(socket, say.clone(), reply.len()));
        expected.push((say, reply));
    }
    let mut steps = 0;
    while worker.decisions().seen.closed < count as u64 {
        worker.turn(Some(Time(0)));
        let mut outside = world.borrow_mut();
        if let Some(socket) = outside.accept(&back) {
            servers.push(Talker::new(socket, Vec::new(), usize::MAX));
        }
        for server in &mut servers {
            let quiet = server.heard.is_empty();
            server.step(&mut outside);
            if let (true, Some(&who)) = (quiet, server.heard.first()) {
                server.say = expected[usize::from(who)].1.clone().into();
            }
        }
        clients
            .iter_mut()
            .for_each(|client| client.step(&mut outside));
        drop(outside);
        pass_time(&world, worker.next_deadline(), steps);
        steps += 1;
        assert!(steps < 100_000, "seed {seed}: it does not end");
    }
    for (client, (_, reply)) in clients.iter().zip(&expected) {
        assert!(client.heard == *reply, "seed {seed}: a reply differs");
    }
    for server in &servers {
        let (say, _) = &expected[usize::from(server.heard[0])];
        assert!(server.heard == *say, "seed {seed}: what was said differs");
    }
    assert!(worker.sockets().is_empty());
    assert_eq!(worker.sockets().driver().buffers_out(), 0);
    vec![steps, worker.decisions().seen.received as usize]
}

#[test]
fn what_goes_in_comes_out() {
    for seed in 0..300 {
        forward(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(forward(7), forward(7));
    assert_ne!(forward(7), forward(8));
}

/// Echoes bytes. Gives its client away on answer 1, and takes a client on answer 2.
#[derive(Default)]
struct Mover {
    given: Option<LooseSocket>,
    taken: Option<LooseSocket>,
    generation: u32,
    here: bool,
}

impl Mover {
    fn client(&self) -> ClientId {
        ClientId {
            index: 0,
            generation: self.generation,
        }
    }
}

impl Decide for Mover {
    fn handle(&mut self, _now: Time, event: Event<'_>, out: &mut Out) {
        match event {
            Event::Accepted(_) => {
                self.here = true;
                out.push(Action::Adopt(self.client()));
            }
            Event::Received(peer, bytes) => {
                assert!(self.here && peer == Peer::Client(self.client()));
                out.relay(peer, 0..bytes.len());
            }
            Event::Answer(Answer::Reloaded(1, _)) if self.here => {
                out.push(Action::Detach(Peer::Client(self.client())));
            }
            Event::Answer(_) => {
                if let Some(socket) = self.taken.take() {
                    self.generation += 1;
                    self.here = true;
                    out.push(Action::Attach(Peer::Client(self.client()), socket));
                }
            }
            Event::Detached(_, socket) => {
                self.here = false;
                self.given = Some(socket);
            }
            Event::Lost(peer, _) => out.push(Action::Close {
                peer,
                how: Close::Flush,
            }),
            Event::Closed { .. } => self.here = false,
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn travel(seed: u64) -> usize {
    let world = World::new(seed);
    let front = address(6432);
    let (posts, mailboxes): (Vec<_>, Vec<_>) = (0..2).map(|_| silent_mailbox()).unzip();
    let mut workers: Vec<_> = (0..2u16)
        .zip(mailboxes)
        .map(|(id, mailbox)| {
            let fronts = if id == 0 {
                vec![front.clone()]
            } else {
                Vec::new()
            };
            let driver = SimDriver::new(world.clone(), fronts);
            worker(id, Mover::default(), driver, mailbox, posts.clone())
        })
        .collect();
    let say = bytes(&mut Chance::new(!seed));
    let socket = world.borrow_mut().connect(&front).unwrap();
    let mut talker = Talker::new(socket, say.clone(), say.len());
    let (mut steps, mut moves) = (0, 0);
    while !(talker.ended && workers.iter_mut().all(|worker| worker.sockets().is_empty())) {
        for (worker, post) in workers.iter_mut().zip(&posts) {
            worker.turn(Some(Time(0)));
            if !talker.ended && world.borrow_mut().chance.once_in(4) {
                post.post(Letter::Answer(Answer::Reloaded(1, Ok(()))));
            }
        }
        for at in 0..2 {
            if let Some(socket) = workers[at].decisions().given.take() {
                workers[1 - at].decisions().taken = Some(socket);
                posts[1 - at].post(Letter::Answer(Answer::Reloaded(2, Ok(()))));
                moves += 1;
            }
        }
        talker.step(&mut world.borrow_mut());
        let deadline = workers
            .iter()
            .filter_map(|worker| worker.next_deadline())
            .min();
        pass_time(&world, deadline, steps);
        steps += 1;
        assert!(steps < 100_000, "seed {seed}: it does not end");
    }
    assert!(talker.heard == say, "seed {seed}: the echo differs");
    moves
}

#[test]
fn a_socket_on_the_move_loses_nothing() {
    let moves: usize = (0..500).map(travel).sum();
    assert!(moves > 1000, "only {moves} moves");
}
