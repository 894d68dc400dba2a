//! PostgreSQL's end of a connection: plain bytes in and out, through TLS if the other side asks for it.

use howdah_daemon::tls::TlsSession;
use howdah_daemon::tls::session::{HandshakeStep, Opened};
use howdah_pooler::event::Time;

use crate::story::Who;
use crate::tls::ToySession;
use crate::world::{Read, SocketId, World};

/// How connections must use TLS, and how PostgreSQL treats them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Secrecy {
    /// No connection may ask for TLS.
    #[default]
    Clear,
    /// Every connection asks for TLS, and goes on in clear text if PostgreSQL has none. PostgreSQL
    /// has none once in this many times; 0 for never.
    Preferred(usize),
    /// Every connection asks for TLS, and nothing may be sent in clear text.
    Required,
}

/// PostgreSQL's end of a connection.
pub struct Line {
    /// The socket.
    pub socket: SocketId,
    /// TLS was asked for and accepted.
    tls: Option<Box<ToySession>>,
    /// TLS was asked for and refused.
    refused: bool,
    /// Encrypted bytes that wait to be sent.
    sealed: Vec<u8>,
    /// Nothing is sent before this time.
    rests_until: Time,
    /// Bytes that are not TLS were sent.
    spoilt: bool,
    /// Bytes in clear text were sent that must not be believed.
    meddled: bool,
    /// The other side has begun its handshake.
    begun: bool,
}

impl Line {
    /// The end of a new connection.
    pub fn new(socket: SocketId) -> Line {
        Line {
            socket,
            tls: None,
            refused: false,
            sealed: Vec::new(),
            rests_until: Time(0),
            spoilt: false,
            meddled: false,
            begun: false,
        }
    }

    /// True if the connection uses TLS.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// The first packet is not an SSLRequest. True if TLS was asked for before, as far as it had to
    /// be.
    pub fn may_begin(&self, secrecy: Secrecy) -> bool {
        match secrecy {
            Secrecy::Clear => self.tls.is_none(),
            _ if self.meddled => false,
            Secrecy::Preferred(_) => self.tls.is_some() || self.refused,
            Secrecy::Required => self.tls.is_some(),
        }
    }

    /// An SSLRequest arrives. `fails`: the handshake fails once in this many times.
    pub fn request(&mut self, secrecy: Secrecy, fails: usize, world: &mut World) {
        let none = match secrecy {
            Secrecy::Preferred(refuses) => refuses > 0 && world.chance.once_in(refuses),
            Secrecy::Required => fails > 0 && world.chance.once_in(3 * fails),
            Secrecy::Clear => true,
        };
        if none {
            self.refused = true;
            world.write(self.socket, b"N");
            return;
        }
        world.write(self.socket, b"S");
        self.tls = Some(Box::new(ToySession::server(world.chance.number())));
        let fails = fails > 0 && world.chance.once_in(fails);
        if fails {
            self.spoil(world);
        } else if world.chance.once_in(4) {
            self.rest(world.chance.number() % 100_000_000, world);
        }
    }

    /// Makes the handshake fail: by a long silence, by an alert, or by bytes that are not TLS,
    /// before the handshake or in it.
    fn spoil(&mut self, world: &mut World) {
        self.spoilt = true;
        match world.chance.within(0..=3) {
            // An attacker inserts bytes before the handshake.
            3 => {
                self.meddled = true;
                world.write(self.socket, b"N\0\0\0\x08SX\0\0");
            }
            0 => self.rest(40_000_000_000, world),
            1 => drop(self.alert(world)),
            _ => self
                .sealed
                .extend([22, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9]),
        }
    }

    fn rest(&mut self, nanos: u64, world: &mut World) {
        self.rests_until = Time(world.now.0 + nanos);
        world.alarm(self.rests_until);
    }

    /// Sends an alert, if there is TLS. True if so.
    pub fn alert(&mut self, world: &mut World) -> bool {
        let Some(session) = &mut self.tls else {
            return false;
        };
        self.spoilt = true;
        session.alert();
        self.sealed
            .extend(session.take_output().unwrap_or_default());
        self.push(world);
        true
    }

    /// Reads at most `most` bytes. Returns the plain ones.
    pub fn read(&mut self, most: usize, world: &mut World) -> Read {
        self.push(world);
        if self.rests_until > world.now {
            return Read::Nothing;
        }
        let read = world.read(self.socket, most);
        let (Some(session), Read::Bytes(bytes)) = (&mut self.tls, &read) else {
            return read;
        };
        session.feed(bytes);
        self.begun = true;
        let mut wrong = None;
        if session.is_in_handshake()
            && let HandshakeStep::Failed(why) = session.handshake()
        {
            wrong = Some(why);
        }
        let (mut plain, mut len, mut end) = (Vec::new(), 0, false);
        if !session.is_in_handshake() && wrong.is_none() {
            match session.open(&mut plain, &mut len) {
                Opened::More => {}
                Opened::End => end = true,
                Opened::Failed(why) => wrong = Some(why),
            }
        }
        self.sealed
            .extend(session.take_output().unwrap_or_default());
        self.push(world);
        plain.truncate(len);
        match wrong {
            Some(why) if !self.spoilt => {
                let text = format!("postgres reads what is no TLS: {why}");
                world.story.violate("tls", &[Who::World], text);
                Read::Reset
            }
            Some(_) => Read::Reset,
            None if end && plain.is_empty() => Read::End,
            None if plain.is_empty() => Read::Nothing,
            None => Read::Bytes(plain),
        }
    }

    /// Sends as much as there is room for; `None` if the other end is gone.
    pub fn write(&mut self, bytes: &[u8], world: &mut World) -> Option<usize> {
        if self.tls.is_none() {
            return world.write(self.socket, bytes);
        }
        if !self.push(world) {
            return Some(0);
        }
        let session = self.tls.as_mut()?;
        if world.chance.once_in(10) {
            session.update_keys(world.chance.once_in(2));
            self.sealed
                .extend(session.take_output().unwrap_or_default());
        }
        let sealed = std::mem::take(&mut self.sealed);
        self.sealed = session.seal(bytes, sealed).ok()?;
        self.push(world);
        Some(bytes.len())
    }

    /// Sends encrypted bytes, as far as there is room. True if none are left.
    pub fn push(&mut self, world: &mut World) -> bool {
        if self.begun && !self.sealed.is_empty() && self.rests_until <= world.now {
            let most = world.chance.part(self.sealed.len());
            match world.write(self.socket, &self.sealed[..most]) {
                Some(sent) => drop(self.sealed.drain(..sent)),
                // The next read will find this out.
                None => self.sealed.clear(),
            }
        }
        self.sealed.is_empty()
    }

    /// Ends the connection. Encrypted bytes are sent first, and sometimes close_notify.
    pub fn close(&mut self, world: &mut World) {
        if let Some(session) = &mut self.tls {
            if world.chance.once_in(2) && !session.is_in_handshake() {
                session.close();
                self.sealed
                    .extend(session.take_output().unwrap_or_default());
            }
            world.write(self.socket, &self.sealed);
        }
        world.close(self.socket);
    }
}
