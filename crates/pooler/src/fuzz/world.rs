//! The world around two poolers: sockets, mail, answers, time. It carries out their actions, and
//! verifies the contract.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::client::Client;
use super::postgres::Postgres;
use crate::Pooler;
use crate::broker::Broker;
use crate::config::Config;
use crate::event::{
    Action, Address, Answer, Close, Ends, Event, LooseSocket, Out, Peer, Question, Time,
};
use crate::mail::Mail;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Connecting,
    Open,
    /// The poolers have learned of the end, and must close the socket.
    Lost,
    Detaching,
    /// `Closed` is due.
    Closing,
}

pub(super) struct Socket {
    pub(super) worker: usize,
    pub(super) peer: Peer,
    pub(super) stage: Stage,
    pub(super) receiving: bool,
    pub(super) congested: bool,
    pub(super) end: End,
}

/// The other end of a socket.
pub(super) enum End {
    Server(Postgres),
    Client(Client),
}

pub(super) struct World<'a> {
    pub(super) input: &'a [u8],
    pub(super) now: u64,
    pub(super) poolers: Vec<Pooler>,
    pub(super) broker: Broker,
    pub(super) config: Arc<Config>,
    pub(super) sockets: Vec<Socket>,
    pub(super) loose: BTreeMap<i64, End>,
    pub(super) next_loose: i64,
    pub(super) accepted: Option<End>,
    /// By receiver and sender. The last sender is the Broker.
    pub(super) mail: Vec<Vec<VecDeque<Mail>>>,
    pub(super) answers: VecDeque<(usize, Answer)>,
    /// Peers whose bytes are all sent, with the workers that asked.
    pub(super) flushed: VecDeque<(usize, Peer)>,
    /// The process has been ordered to end.
    pub(super) ended: bool,
}

impl World<'_> {
    /// Delivers mail, answers and ends of connections, and lets PostgreSQL answer correctly, until
    /// nothing is left to do or this many steps were taken. True in the first case.
    pub(super) fn settle(&mut self, steps: usize) -> bool {
        for _ in 0..steps {
            if self.deliver() {
                continue;
            }
            let mut answers = self.sockets.iter().enumerate();
            let busy = answers.find(|(_, s)| match (&s.end, s.stage) {
                (_, Stage::Connecting | Stage::Closing) => true,
                (_, Stage::Detaching) => true,
                (End::Server(p), Stage::Open) => s.receiving && (p.owes() || p.over),
                _ => false,
            });
            let Some((at, socket)) = busy else {
                return true;
            };
            match socket.stage {
                Stage::Connecting => self.connect(at, false),
                Stage::Closing => self.closed(at),
                Stage::Detaching => self.detached(at),
                _ => self.server_answers(at, 0),
            }
        }
        false
    }

    fn deliver(&mut self) -> bool {
        if let Some((worker, peer)) = self.flushed.pop_front() {
            self.handle(worker, Event::Flushed(peer), &[]);
            return true;
        }
        if let Some((worker, answer)) = self.answers.pop_front() {
            self.handle(worker, Event::Answer(answer), &[]);
            return true;
        }
        for to in 0..self.poolers.len() {
            for from in 0..=self.poolers.len() {
                if let Some(mail) = self.mail[to][from].pop_front() {
                    self.handle(to, Event::Mail(mail), &[]);
                    return true;
                }
            }
        }
        false
    }

    pub(super) fn tick(&mut self) {
        for worker in 0..self.poolers.len() {
            let due = |pooler: &Pooler, now| pooler.next_deadline().is_some_and(|at| at.0 <= now);
            if due(&self.poolers[worker], self.now) {
                self.handle(worker, Event::Tick, &[]);
                assert!(
                    !due(&self.poolers[worker], self.now),
                    "a tick is due at once again"
                );
            }
        }
    }

    pub(super) fn connect(&mut self, at: usize, refused: bool) {
        let socket = &mut self.sockets[at];
        let (worker, Peer::Server(id)) = (socket.worker, socket.peer) else {
            unreachable!("only servers connect");
        };
        if refused {
            socket.stage = Stage::Closing;
            return self.handle(worker, Event::Connected(id, Err(nobody())), &[]);
        }
        socket.stage = Stage::Open;
        self.handle(worker, Event::Connected(id, Ok(ends())), &[]);
    }

    pub(super) fn server_answers(&mut self, at: usize, how: u8) {
        let socket = &mut self.sockets[at];
        let End::Server(postgres) = &mut socket.end else {
            return;
        };
        if !socket.receiving || socket.stage != Stage::Open {
            return;
        }
        if postgres.over {
            let (worker, peer) = (socket.worker, socket.peer);
            socket.stage = Stage::Lost;
            return self.handle(worker, Event::Lost(peer, None), &[]);
        }
        let mut bytes = postgres.answer(how);
        if how & 64 != 0 {
            bytes.extend(postgres.answer(how & 0x3f));
        }
        self.receive(at, &bytes);
    }

    pub(super) fn closed(&mut self, at: usize) {
        let Socket { worker, peer, .. } = self.sockets.remove(at);
        self.handle(worker, Event::Closed { peer, gone: true }, &[]);
    }

    pub(super) fn detached(&mut self, at: usize) {
        let Socket {
            worker, peer, end, ..
        } = self.sockets.remove(at);
        self.next_loose += 1;
        self.loose.insert(self.next_loose, end);
        self.handle(
            worker,
            Event::Detached(peer, LooseSocket::new(self.next_loose)),
            &[],
        );
    }

    pub(super) fn lose_at(&mut self, at: usize) {
        let socket = &mut self.sockets[at];
        socket.stage = Stage::Lost;
        let (worker, peer) = (socket.worker, socket.peer);
        let why = (at % 2 == 1).then(|| "reset".to_string());
        self.handle(worker, Event::Lost(peer, why), &[]);
    }

    pub(super) fn turn_congestion(&mut self, at: usize) {
        let socket = &mut self.sockets[at];
        socket.congested = !socket.congested;
        let (worker, peer) = (socket.worker, socket.peer);
        let event = if socket.congested {
            Event::Congested(peer)
        } else {
            Event::Drained(peer)
        };
        self.handle(worker, event, &[]);
    }

    pub(super) fn accept(&mut self, worker: usize, client: Client, bytes: &[u8]) {
        let before = self.sockets.len();
        self.accepted = Some(End::Client(client));
        self.handle(worker, Event::Accepted(ends()), &[]);
        if self.accepted.take().is_none() && self.sockets.len() > before {
            self.receive(self.sockets.len() - 1, bytes);
        }
    }

    pub(super) fn receive(&mut self, at: usize, bytes: &[u8]) {
        let Socket { worker, peer, .. } = self.sockets[at];
        if !bytes.is_empty() {
            self.handle(worker, Event::Received(peer, bytes), bytes);
        }
    }

    pub(super) fn handle(&mut self, worker: usize, event: Event<'_>, bytes: &[u8]) {
        let mut out = Out::default();
        self.poolers[worker].handle(Time(self.now), event, &mut out);
        let made = std::mem::take(&mut out.bytes);
        let mut questions = Vec::new();
        for action in out.actions {
            self.act(worker, action, bytes, &made, &mut questions);
        }
        self.poolers[worker].check();
        for question in questions {
            self.question(worker, question);
        }
    }

    fn find(&self, worker: usize, peer: Peer) -> Option<usize> {
        self.sockets
            .iter()
            .position(|s| s.worker == worker && s.peer == peer)
    }

    fn act(
        &mut self,
        worker: usize,
        action: Action,
        event: &[u8],
        made: &[u8],
        questions: &mut Vec<Question>,
    ) {
        match action {
            Action::Send(peer, range) => self.sent(worker, peer, made, range),
            Action::Relay(peer, range) => self.sent(worker, peer, event, range),
            Action::Receive { peer, on } => {
                let at = self
                    .find(worker, peer)
                    .expect("who is there is received from");
                self.sockets[at].receiving = on;
            }
            Action::Adopt(id) => {
                let end = self
                    .accepted
                    .take()
                    .expect("only what was accepted is adopted");
                self.open(worker, Peer::Client(id), Stage::Open, end);
            }
            Action::Connect(id, _) => {
                let end = End::Server(Postgres::new());
                self.open(worker, Peer::Server(id), Stage::Connecting, end);
            }
            // These settings have no TLS.
            Action::StartTls(..) => panic!("TLS was never switched on"),
            Action::Close { peer, how } => {
                let at = self.find(worker, peer).expect("who is there is closed");
                let _: Close = how;
                self.sockets[at].stage = Stage::Closing;
            }
            Action::Detach(peer) => {
                let at = self.find(worker, peer).expect("who is there is detached");
                if self.sockets[at].stage == Stage::Open {
                    self.sockets[at].stage = Stage::Detaching;
                }
            }
            Action::Attach(peer, socket) => {
                let end = self
                    .loose
                    .remove(&socket.into_inner())
                    .expect("a loose socket is attached once");
                self.open(worker, peer, Stage::Open, end);
            }
            Action::Discard(socket) => {
                assert!(
                    self.loose.remove(&socket.into_inner()).is_some(),
                    "a loose socket is discarded once"
                );
            }
            Action::Post(to, mail) => self.mail[usize::from(to.0)][worker].push_back(mail),
            Action::Broker(mail) => {
                let (boxes, last) = (&mut self.mail, self.poolers.len());
                self.broker.handle(Time(self.now), mail, &mut |to, mail| {
                    boxes[usize::from(to.0)][last].push_back(mail);
                });
                self.broker.check();
            }
            Action::TellFlushed(peer) => self.flushed.push_back((worker, peer)),
            Action::LookForEnd(_) => {}
            Action::Ask(question) => questions.push(question),
            Action::Tell(seen) => drop(format!("{seen:?}")),
            Action::Note(note) => assert!(!note.text.contains(char::is_control)),
        }
    }

    fn open(&mut self, worker: usize, peer: Peer, stage: Stage, end: End) {
        assert!(self.find(worker, peer).is_none(), "no peer is there twice");
        self.sockets.push(Socket {
            worker,
            peer,
            stage,
            receiving: true,
            congested: false,
            end,
        });
    }

    fn sent(&mut self, worker: usize, peer: Peer, bytes: &[u8], range: Range<usize>) {
        let Some(at) = self.find(worker, peer) else {
            panic!("{peer:?} is sent to, and is not there");
        };
        let socket = &mut self.sockets[at];
        if socket.stage == Stage::Connecting {
            // A Terminate, which is lost with the connection.
            assert_eq!(
                bytes[range], *b"X\0\0\0\x04",
                "sent to before it is connected"
            );
            return;
        }
        if socket.stage == Stage::Closing {
            return;
        }
        match &mut socket.end {
            End::Server(postgres) => postgres.receive(&bytes[range]),
            End::Client(client) => client.receive(&bytes[range]),
        }
    }

    fn question(&mut self, worker: usize, question: Question) {
        match question {
            Question::Resolve { ticket, .. } => {
                let found = Ok(vec![[127, 0, 0, 1].into()]);
                self.answers
                    .push_back((worker, Answer::Resolved(ticket, found)));
            }
            Question::Names { ticket } => {
                self.answers
                    .push_back((worker, Answer::Names(ticket, Box::default())));
            }
            Question::Derive { ticket, .. } => {
                self.answers
                    .push_back((worker, Answer::Derived(ticket, [0; 32])));
            }
            Question::Reload { ticket } => {
                self.answers
                    .push_back((worker, Answer::Reloaded(ticket, Ok(()))));
            }
            Question::Set { ticket, key, value } => {
                let result = if self.set(&key, &value) {
                    Ok(())
                } else {
                    Err("no".to_string())
                };
                self.answers
                    .push_back((worker, Answer::Reloaded(ticket, result)));
            }
            Question::Exit(_) => self.ended = true,
            Question::NameUser { ticket, uid } => {
                let named = Err(format!("nobody has number {uid}"));
                self.answers
                    .push_back((worker, Answer::UserNamed(ticket, named)));
            }
            Question::CheckPassword { ticket, .. } => {
                let verdict = match ticket % 2 {
                    0 => Ok(crate::event::Verified::default()),
                    _ => Err("wrong".to_string()),
                };
                self.answers
                    .push_back((worker, Answer::PasswordChecked(ticket, verdict)));
            }
            Question::Forward { ticket, .. } => {
                let reached = Err("there are no peers".to_string());
                self.answers
                    .push_back((worker, Answer::Forwarded(ticket, reached)));
            }
            Question::HandOver(_) | Question::Packed(_) | Question::AllPacked(_) => {
                panic!("nobody here may take over");
            }
            Question::Surveyed { .. }
            | Question::SecretRefused { .. }
            | Question::LogStats { .. }
            | Question::LongWaits
            | Question::Idle(..)
            | Question::Busy(_)
            | Question::Load(_)
            | Question::Accept(_)
            | Question::Host(_)
            | Question::Drain
            | Question::StopListening { .. } => {}
        }
    }

    pub(super) fn set(&mut self, key: &str, value: &str) -> bool {
        let Ok(config) = self.config.with(key, value) else {
            return false;
        };
        self.config = Arc::new(config);
        for worker in 0..self.poolers.len() {
            self.handle(worker, Event::Settings(self.config.clone()), &[]);
        }
        true
    }

    /// Closes all clients. Nothing of them may be left, and no more servers than permits.
    pub(super) fn end(&mut self) {
        self.input = &[];
        while let Some(at) = self.pick(false) {
            self.lose_at(at);
        }
        for round in 0..60 {
            self.settle(1_000);
            if let Some(at) = self.sockets.iter().position(|s| s.congested) {
                self.turn_congestion(at);
            }
            // Clients that have come from another worker meanwhile are closed, too.
            while let Some(at) = self.pick(false) {
                self.lose_at(at);
            }
            self.now += 1_000_000_000 * (1 + round);
            self.tick();
        }
        assert!(self.settle(10_000), "it never comes to rest");
        let mut left = self.broker.census();
        for pooler in &self.poolers {
            left += pooler.census();
        }
        assert_eq!(left.clients, 0, "{left:?}");
        assert_eq!(left.waiting + left.newcomers + left.asks, 0, "{left:?}");
        // A dishonest server may have stopped in the middle of a message.
        let honest = |s: &Socket| matches!(&s.end, End::Server(postgres) if postgres.honest);
        assert!(
            left.held == 0 || !self.sockets.iter().all(honest),
            "{left:?}"
        );
        assert_eq!((left.admitted, left.names), (0, 0), "{left:?}");
        assert_eq!(left.permits, left.servers, "{left:?}");
        assert!(self.loose.is_empty(), "a socket was lost");
        let clients = self
            .sockets
            .iter()
            .filter(|s| matches!(s.end, End::Client(_)));
        assert_eq!(clients.count(), 0, "a client was never closed");
        assert_eq!(
            self.sockets.len(),
            left.servers,
            "a server was never closed"
        );
    }
}

pub(super) fn ends() -> Ends {
    Ends {
        remote: Address::Tcp([127, 0, 0, 1].into(), 5432),
        local: Address::Tcp([127, 0, 0, 1].into(), 6432),
        unix_peer: None,
    }
}

fn nobody() -> crate::event::Unreached {
    crate::event::Unreached {
        text: "refused".into(),
        nobody: true,
        ours: false,
    }
}
