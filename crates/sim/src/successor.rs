//! A process that will take over. It logs in on the console by unix socket, and asks for everything.

use howdah_pooler::event::{Address, Time};
use howdah_pooler::parcel::VERSION;
use howdah_wire::frame::header;
use howdah_wire::tag::backend;
use howdah_wire::write;

use crate::chance::Chance;
use crate::story::{Who, words};
use crate::tls;
use crate::world::{Read, SocketId, World};

/// How far a takeover gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The process takes over.
    TakesOver,
    /// The process ends before everything is at rest, this many milliseconds after it has asked.
    EndsEarly(u64),
    /// The process ends after it has received everything, and before it has confirmed.
    EndsLate,
}

/// A process that will take over.
pub struct Successor {
    at: Time,
    /// How far the takeover gets.
    pub fate: Fate,
    stage: Stage,
    socket: Option<SocketId>,
    out: Vec<u8>,
    inbox: Vec<u8>,
    ends_at: Option<Time>,
    /// The process was refused, because an earlier takeover was only just given up. It asks again
    /// at this time, once.
    again_at: Option<Time>,
    asked_again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Away,
    LoggingIn,
    Asking,
    /// Everything is at rest. The process waits for the freight from the control thread.
    Receiving,
    Gone,
}

impl Successor {
    /// A process that starts at this time.
    pub fn new(at: Time, chance: &mut Chance, world: &mut World) -> Successor {
        world.alarm(at);
        let fate = match chance.within(0..=5) {
            0 => Fate::EndsEarly(chance.within(0..=100) as u64),
            1 => Fate::EndsLate,
            _ => Fate::TakesOver,
        };
        Successor {
            at,
            fate,
            stage: Stage::Away,
            socket: None,
            out: Vec::new(),
            inbox: Vec::new(),
            ends_at: None,
            again_at: None,
            asked_again: false,
        }
    }

    /// True if the process has ended, or has taken over.
    pub fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// True if the process knows that everything is at rest.
    pub fn is_there(&self) -> bool {
        self.stage == Stage::Receiving
    }

    /// If the process has not started yet, it will not start.
    pub fn stop(&mut self) {
        if self.stage == Stage::Away {
            self.stage = Stage::Gone;
        }
    }

    /// Closes the console: the process has everything, or nothing.
    pub fn leave(&mut self, world: &mut World) {
        if let Some(socket) = self.socket.take() {
            world.close(socket);
        }
        self.stage = Stage::Gone;
    }

    /// Takes a step, or none.
    pub fn step(&mut self, console: &Address, world: &mut World) {
        if self.stage == Stage::Gone || self.at > world.now {
            return;
        }
        let Some(socket) = self.socket else {
            let names = [("user", "pgbouncer"), ("database", "pgbouncer")];
            write::startup(&mut self.out, 0, names);
            self.socket = world.connect(console);
            self.stage = Stage::LoggingIn;
            return;
        };
        if self.ends_at.is_some_and(|at| at <= world.now) && self.stage == Stage::Asking {
            tell(world, "the successor ends");
            return self.leave(world);
        }
        if self.again_at.is_some_and(|at| at <= world.now) {
            self.again_at = None;
            self.asked_again = true;
            self.ask();
        }
        if let Some(sent) = world.write(socket, &self.out) {
            self.out.drain(..sent);
        }
        match world.read(socket, 4096) {
            Read::Bytes(bytes) => self.inbox.extend_from_slice(&bytes),
            Read::Nothing => {}
            Read::End | Read::Reset => return self.leave(world),
        }
        while let Some(Ok(header)) = header(&self.inbox) {
            if self.inbox.len() < header.total() {
                return;
            }
            let message: Vec<u8> = self.inbox.drain(..header.total()).collect();
            tell(world, &format!("successor -> {}", words(&message)));
            self.message(header.tag, world);
        }
    }

    fn ask(&mut self) {
        // One process in four has another TLS library.
        let command = match self.at.0 % 4 {
            0 => format!("TAKEOVER {VERSION}"),
            _ => format!("TAKEOVER \"{VERSION} {}\"", tls::NAME),
        };
        write::query(&mut self.out, command.as_bytes());
    }

    fn message(&mut self, tag: u8, world: &mut World) {
        match (self.stage, tag) {
            (Stage::LoggingIn, backend::READY) => {
                self.ask();
                self.stage = Stage::Asking;
                if let Fate::EndsEarly(millis) = self.fate {
                    let at = Time(world.now.0 + millis * 1_000_000);
                    self.ends_at = Some(at);
                    world.alarm(at);
                }
            }
            (Stage::Asking, backend::COMMAND_COMPLETE) => self.stage = Stage::Receiving,
            (Stage::Asking, backend::ERROR) if !self.asked_again => {
                let at = Time(world.now.0 + ASKS_AGAIN);
                self.again_at = Some(at);
                world.alarm(at);
            }
            (_, backend::ERROR) => {
                let text = "a successor is refused".to_string();
                world.story.violate("takeover", &[], text);
            }
            _ => {}
        }
    }
}

/// The pause after a refusal, in nanoseconds.
const ASKS_AGAIN: u64 = 10_000_000;

fn tell(world: &mut World, line: &str) {
    let now = world.now;
    world.story.tell(now, Who::World, || line.to_string());
}
