//! A socket that travels: from one worker to another, or to a successor.

use std::any::Any;
use std::fmt;

/// A socket on its way between two workers of one process: detached from one driver, not yet
/// attached to the next. What is inside means something to the drivers only (a descriptor, or the
/// simulator's handle), and has this one owner: dropping it drops what is inside.
/// A TLS session travels with it.
pub struct LooseSocket {
    socket: Box<dyn Any + Send>,
    session: Option<LooseSession>,
}

/// The TLS session of a [`LooseSocket`].
enum LooseSession {
    /// As the layer that made it has it.
    Live(Box<dyn Any + Send>),
    /// As bytes, for another process: keys are among them.
    Packed(Vec<u8>),
}

impl LooseSocket {
    /// Owns what a driver takes for a socket.
    pub fn new<T: Any + Send>(socket: T) -> LooseSocket {
        LooseSocket {
            socket: Box::new(socket),
            session: None,
        }
    }

    /// What is inside.
    ///
    /// # Panics
    /// It is of another type: two kinds of drivers were mixed.
    pub fn into_inner<T: Any>(self) -> T {
        match self.socket.downcast() {
            Ok(socket) => *socket,
            Err(_) => panic!("a socket of another kind of driver"),
        }
    }

    /// The same, to be looked at.
    ///
    /// # Panics
    /// It is of another type.
    pub fn inside<T: Any>(&self) -> &T {
        let socket = self.socket.downcast_ref();
        socket.expect("a socket of this kind of driver")
    }

    /// Puts a TLS session with it. What that is, only the layer that makes and takes it knows.
    pub fn with_session<T: Any + Send>(mut self, session: T) -> LooseSocket {
        self.session = Some(LooseSession::Live(Box::new(session)));
        self
    }

    /// Likewise, as the bytes that it was packed into.
    pub fn set_packed_session(&mut self, bytes: Vec<u8>) {
        self.session = Some(LooseSession::Packed(bytes));
    }

    /// Takes the TLS session out, if there is one that was not packed.
    ///
    /// # Panics
    /// It is of another type: two kinds of layers were mixed.
    pub fn take_session<T: Any>(&mut self) -> Option<T> {
        match self.session.take()? {
            LooseSession::Live(session) => match session.downcast() {
                Ok(session) => Some(*session),
                Err(_) => panic!("a session of another kind of layer"),
            },
            packed @ LooseSession::Packed(_) => {
                self.session = Some(packed);
                None
            }
        }
    }

    /// The TLS session, if there is one that was packed.
    pub fn packed_session(&self) -> Option<&[u8]> {
        match &self.session {
            Some(LooseSession::Packed(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Takes that out.
    pub fn take_packed_session(&mut self) -> Option<Vec<u8>> {
        match self.session.take()? {
            LooseSession::Packed(bytes) => Some(bytes),
            live @ LooseSession::Live(_) => {
                self.session = Some(live);
                None
            }
        }
    }
}

impl fmt::Debug for LooseSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LooseSocket")
    }
}
