//! A process that is to take over: logs in on the console by unix socket, and asks for everything.

use howdah_pooler::event::{Address, Time};
use howdah_pooler::parcel::VERSION;
use howdah_wire::frame::header;
use howdah_wire::tag::backend;
use howdah_wire::write;

use crate::chance::Chance;
use crate::story::{Who, words};
use crate::tls;
use crate::world::{Read, SocketId, World};

/// How far it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It takes over.
    TakesOver,
    /// It ends before everything is at rest, so many milliseconds after it has asked.
    EndsEarly(u64),
    /// It ends with everything in its hands, and not confirmed.
    EndsLate,
}

/// See the module.
pub struct Successor {
    at: Time,
    /// How far it comes.
    pub fate: Fate,
    stage: Stage,
    socket: Option<SocketId>,
    out: Vec<u8>,
    inbox: Vec<u8>,
    ends_at: Option<Time>,
    /// It was refused, as one before it is only just given up, and asks again then: once.
    again_at: Option<Time>,
    asked_again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Away,
    LoggingIn,
    Asking,
    /// It was told that all is at rest, and awaits the rest from the control thread.
    Receiving,
    Gone,
}

impl Successor {
    /// One that comes at this time.
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

    /// It has come and gone, or has become the process.
    pub fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// It was told that all is at rest.
    pub fn is_there(&self) -> bool {
        self.stage == Stage::Receiving
    }

    /// It does not come any more, if it has not yet.
    pub fn stop(&mut self) {
        if self.stage == Stage::Away {
            self.stage = Stage::Gone;
        }
    }

    /// It needs no console any more: it has everything, or nothing.
    pub fn leave(&mut self, world: &mut World) {
        if let Some(socket) = self.socket.take() {
            world.close(socket);
        }
        self.stage = Stage::Gone;
    }

    /// Does something, or not.
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
        // One in four has another library.
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

/// After a refusal; in nanoseconds.
const ASKS_AGAIN: u64 = 10_000_000;

fn tell(world: &mut World, line: &str) {
    let now = world.now;
    world.story.tell(now, Who::World, || line.to_string());
}
