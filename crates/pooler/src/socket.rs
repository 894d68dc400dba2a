//! A socket on its way to another worker or to a successor.

use std::any::Any;
use std::fmt;

/// A socket that is detached from one driver and not yet attached to the next. Only drivers know
/// the type of the inner value (a descriptor, or the simulator's handle). Dropping a `LooseSocket`
/// drops the inner value. A TLS session travels with its socket.
pub struct LooseSocket {
    socket: Box<dyn Any + Send>,
    session: Option<LooseSession>,
}

/// The TLS session of a [`LooseSocket`].
enum LooseSession {
    /// A value of the TLS layer.
    Live(Box<dyn Any + Send>),
    /// Bytes for another process, including keys.
    Packed(Vec<u8>),
}

impl LooseSocket {
    /// Wraps a driver's socket.
    pub fn new<T: Any + Send>(socket: T) -> LooseSocket {
        LooseSocket {
            socket: Box::new(socket),
            session: None,
        }
    }

    /// The inner value.
    ///
    /// # Panics
    /// The value has another type: two kinds of drivers were mixed.
    pub fn into_inner<T: Any>(self) -> T {
        match self.socket.downcast() {
            Ok(socket) => *socket,
            Err(_) => panic!("a socket of another kind of driver"),
        }
    }

    /// A reference to the inner value.
    ///
    /// # Panics
    /// The value has another type.
    pub fn inside<T: Any>(&self) -> &T {
        let socket = self.socket.downcast_ref();
        socket.expect("a socket of this kind of driver")
    }

    /// Adds a TLS session. Only the TLS layer knows its type.
    pub fn with_session<T: Any + Send>(mut self, session: T) -> LooseSocket {
        self.session = Some(LooseSession::Live(Box::new(session)));
        self
    }

    /// Adds a packed TLS session.
    pub fn set_packed_session(&mut self, bytes: Vec<u8>) {
        self.session = Some(LooseSession::Packed(bytes));
    }

    /// Takes out the TLS session, if there is one that is not packed.
    ///
    /// # Panics
    /// The session has another type: two kinds of TLS layers were mixed.
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

    /// The packed TLS session, if there is one.
    pub fn packed_session(&self) -> Option<&[u8]> {
        match &self.session {
            Some(LooseSession::Packed(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Takes out the packed TLS session.
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
