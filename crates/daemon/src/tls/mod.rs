//! TLS, between the driver's bytes and the plain bytes that the decisions see.
//!
//! [`contexts`] makes what sessions start from, out of the settings and their files; [`session`] is one
//! connection's TLS, as a value without a socket; [`facts`] tells the decisions who is at the other end.
//! The TLS library (OpenSSL, or AWS-LC with the feature `aws-lc`) is called in this folder only: by the
//! safe wrappers of the crate `openssl`, and where those lack a call, in [`library`]. To use another
//! library, rewrite this folder.

mod ciphers;
pub mod contexts;
mod curves;
mod facts;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod library;
#[cfg(any(test, feature = "fuzzing"))]
mod samples;
pub mod session;
#[cfg(test)]
mod tests;
mod travel;

use std::fmt;

use howdah_pooler::tls::TlsConnect;

pub use contexts::Contexts;
pub use library::travels_by;
pub use session::LibrarySession;
use session::{HandshakeStep, Opened};
pub use travel::pack_sessions;

/// Makes TLS sessions. [`Contexts`] does so in the process; the simulation has its own.
pub trait TlsLibrary: fmt::Debug + Send + Sync {
    /// The TLS server's side of a session. `direct`: the client came without SSLRequest, and must offer
    /// our protocol.
    ///
    /// # Errors
    /// There is no certificate for clients, or no memory.
    fn accept(&self, direct: bool) -> Result<Box<dyn TlsSession>, String>;

    /// The TLS client's side of a session.
    ///
    /// # Errors
    /// TLS to servers is not set up, or no memory.
    fn connect(&self, to: TlsConnect) -> Result<Box<dyn TlsSession>, String>;

    /// What [`TlsSession::pack`] has made.
    ///
    /// # Errors
    /// It is damaged, or was made by another library: why.
    fn unpack(&self, bytes: &[u8]) -> Result<Box<dyn TlsSession>, String>;
}

/// One connection's TLS: ciphertext in, plain bytes out, and the reverse. It owns no socket.
pub trait TlsSession: Send {
    /// The handshake is under way: nothing can be sealed.
    fn is_in_handshake(&self) -> bool;

    /// Its next step uses a private key that takes long.
    fn is_laborious(&self) -> bool {
        false
    }

    /// Ciphertext that was taken in and not yet read, in bytes.
    fn unread(&self) -> usize;

    /// Takes ciphertext in, to be worked through by `handshake` or `open`.
    fn feed(&mut self, bytes: &[u8]);

    /// Continues the handshake as far as the received bytes allow.
    fn handshake(&mut self) -> HandshakeStep;

    /// Appends the plain bytes of all whole records at hand to the first `len` bytes of `into`, which
    /// may grow. What is in it behind `len` has no meaning.
    fn open(&mut self, into: &mut Vec<u8>, len: &mut usize) -> Opened;

    /// Appends records with these plain bytes to `into`.
    ///
    /// # Errors
    /// The session is over: why.
    fn seal(&mut self, plain: &[u8], into: Vec<u8>) -> Result<Vec<u8>, String>;

    /// Queues close_notify, if it can still be sent and was not.
    fn close(&mut self);

    /// Takes the bytes to send to the other side.
    fn take_output(&mut self) -> Option<Vec<u8>>;

    /// All of it as bytes, for [`TlsLibrary::unpack`] of another process: keys, and half a record if one
    /// has come. It must be at rest: nothing to say, and all whole records opened. Afterwards this one is
    /// over, so that no two go on with the same keys.
    ///
    /// # Errors
    /// The library can't: why. It goes on as before.
    fn pack(&mut self) -> Result<Vec<u8>, String>;
}

impl TlsLibrary for Contexts {
    fn accept(&self, direct: bool) -> Result<Box<dyn TlsSession>, String> {
        Ok(Box::new(LibrarySession::accept(self, direct)?))
    }

    fn connect(&self, to: TlsConnect) -> Result<Box<dyn TlsSession>, String> {
        Ok(Box::new(LibrarySession::connect(self, to)?))
    }

    fn unpack(&self, bytes: &[u8]) -> Result<Box<dyn TlsSession>, String> {
        Ok(Box::new(LibrarySession::unpack(self, bytes)?))
    }
}
