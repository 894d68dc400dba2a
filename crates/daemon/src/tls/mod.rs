//! TLS, between the driver's bytes and the plain bytes that `Pooler` gets.
//!
//! [`contexts`] builds the contexts of sessions from the settings and their files. [`session`] is one
//! connection's TLS, as a value without a socket. [`facts`] tells `Pooler` about the other end. `directory`
//! is for logins by LDAP. Only this folder calls the TLS library (OpenSSL, or AWS-LC with the feature `aws-lc`): through the safe wrappers of
//! the crate `openssl`, or through [`library`] for calls without a wrapper. To use another library, rewrite
//! this folder.

mod ciphers;
pub mod contexts;
mod curves;
#[cfg(any(feature = "ldap", feature = "cloud"))]
pub mod directory;
mod facts;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod hello;
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

/// Makes TLS sessions. The process uses [`Contexts`], the simulation a library of its own.
pub trait TlsLibrary: fmt::Debug + Send + Sync {
    /// The TLS server's side of a session. `direct`: the client sent no SSLRequest, and must offer
    /// the protocol `postgresql`.
    ///
    /// # Errors
    /// There is no certificate for clients, or no memory.
    fn accept(&self, direct: bool) -> Result<Box<dyn TlsSession>, String>;

    /// The TLS client's side of a session.
    ///
    /// # Errors
    /// TLS to servers is not set up, or there is no memory.
    fn connect(&self, to: TlsConnect) -> Result<Box<dyn TlsSession>, String>;

    /// A session from the result of [`TlsSession::pack`].
    ///
    /// # Errors
    /// The bytes are damaged, or come from another library; the text says which.
    fn unpack(&self, bytes: &[u8]) -> Result<Box<dyn TlsSession>, String>;

    /// True if a client's first message has come whole, or if [`TlsLibrary::accept`]'s session is to
    /// refuse the bytes.
    fn is_hello(&self, bytes: &[u8]) -> bool {
        hello::is_hello(bytes)
    }
}

/// One connection's TLS: ciphertext goes in and plain bytes come out, and the reverse. It owns no
/// socket.
pub trait TlsSession: Send {
    /// The handshake is under way: nothing can be encrypted.
    fn is_in_handshake(&self) -> bool;

    /// True if the next step uses a private key that takes long.
    fn is_laborious(&self) -> bool {
        false
    }

    /// The received ciphertext that was not read yet, in bytes.
    fn unread(&self) -> usize;

    /// Takes ciphertext, for `handshake` or `open` to read.
    fn feed(&mut self, bytes: &[u8]);

    /// Continues the handshake as far as the received bytes allow.
    fn handshake(&mut self) -> HandshakeStep;

    /// Writes the plain bytes of all complete records to `into`, after its first `len` bytes;
    /// `into` may grow. Bytes of `into` after the new `len` have no meaning.
    fn open(&mut self, into: &mut Vec<u8>, len: &mut usize) -> Opened;

    /// Appends records with these plain bytes to `into`.
    ///
    /// # Errors
    /// The session is over; the text says why.
    fn seal(&mut self, plain: &[u8], into: Vec<u8>) -> Result<Vec<u8>, String>;

    /// Queues close_notify, if it can still be sent and was not sent before.
    fn close(&mut self);

    /// Takes the bytes to send to the other side.
    fn take_output(&mut self) -> Option<Vec<u8>>;

    /// Packs the session for [`TlsLibrary::unpack`] in another process: keys, and half a record if
    /// one has arrived. The session must be at rest: no output waits, and all complete records are
    /// decrypted. Afterwards this session is over, so that no two sessions use the same keys.
    ///
    /// # Errors
    /// The library can't pack the session; the text says why. The session goes on as before.
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
