//! Password exchanges, both ways, as values: a message goes in, a [`LoginStep`] comes out.
//!
//! ```text
//!   client  <-- ClientLogin -->   us   <-- ServerLogin -->  PostgreSQL
//!               scram_client                scram_server
//!               md5, plain                  md5
//! ```
//!
//! [`ClientLogin`] has a client prove itself to us, [`ServerLogin`] proves us to PostgreSQL. Both
//! read and make bodies only; framing is the caller's. Nothing here waits, draws random numbers or
//! computes for long: nonces and keys are arguments, and the one slow computation, a SCRAM key
//! derivation, is asked for with [`LoginStep::Derive`].
//!
//! What a client is told never depends on whether the user exists: unknown users go through the
//! same exchange and fail at its end ([`scram_client`] says how far that reaches).
#![forbid(unsafe_code)]

pub mod client_login;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod md5;
pub mod plain;
pub mod require;
pub mod saslprep;
pub mod scram;
pub mod scram_client;
pub mod scram_server;
pub mod secret;
pub mod server_login;
pub mod verifier;

use std::borrow::Cow;
use std::fmt;

pub use client_login::{
    Admitted, ClientLogin, ClientLoginSetup, ClientStep, NO_SECRET, WRONG_PASSWORD,
};
pub use require::RequireAuth;
pub use secret::Secret;
pub use server_login::{ChannelBinding, ServerLogin, ServerLoginSetup, ServerStep};
pub use verifier::{ScramKeys, Verifier};

use scram::Malformed;

/// What an exchange wants next. `R` is what a reply is made of, `D` what success gives.
#[derive(Debug)]
pub enum LoginStep<R, D> {
    /// Send this, then await the peer's next message.
    Reply(R),
    /// Compute [`scram::salted_password`] elsewhere and continue with `derived`. Messages that
    /// come meanwhile must be held.
    Derive(Derivation),
    /// Nothing to send: await the peer's next message.
    Await,
    /// The exchange succeeded.
    Done(D),
    /// The exchange failed; there is nothing to continue.
    Refuse(LoginRefusal),
}

/// A key derivation. Its result depends on nothing else, so it can be cached by these three.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Derivation {
    /// The password, prepared.
    pub password: Vec<u8>,
    /// The salt.
    pub salt: Vec<u8>,
    /// How often to apply the hash.
    pub iterations: u32,
}

impl Derivation {
    /// Does the work; takes about a millisecond for 4096 iterations.
    pub fn compute(&self) -> scram::ScramKey {
        scram::salted_password(&self.password, &self.salt, self.iterations)
    }
}

impl fmt::Debug for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Derivation({} iterations, ..)", self.iterations)
    }
}

/// Why an exchange failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginRefusal {
    /// For the client. Says nothing that the client should not learn.
    pub text: Cow<'static, str>,
    /// For our log: the reason.
    pub detail: Cow<'static, str>,
}

impl LoginRefusal {
    /// For the client, and for our log.
    pub fn new(text: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            text: text.into(),
            detail: detail.into(),
        }
    }
}

/// An authentication request: what follows the tag and the length of an `R` message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthRequest {
    /// The login succeeded.
    Ok,
    /// Send the password.
    Cleartext,
    /// Send the password hashed with this salt.
    Md5 {
        /// Drawn anew for each login.
        salt: [u8; 4],
    },
    /// Begin one of these SASL exchanges: SCRAM-SHA-256, with channel binding or without.
    Sasl {
        /// Channel binding is offered, too.
        plus: bool,
    },
    /// A message within the exchange.
    SaslContinue(Vec<u8>),
    /// The last message of the exchange; [`AuthRequest::Ok`] follows.
    SaslFinal(Vec<u8>),
}

/// The codes of authentication requests, from PostgreSQL's protocol.
pub mod code {
    /// `AuthenticationOk`.
    pub const OK: u32 = 0;
    /// `AuthenticationCleartextPassword`.
    pub const CLEARTEXT: u32 = 3;
    /// `AuthenticationMD5Password`.
    pub const MD5: u32 = 5;
    /// `AuthenticationSASL`.
    pub const SASL: u32 = 10;
    /// `AuthenticationSASLContinue`.
    pub const SASL_CONTINUE: u32 = 11;
    /// `AuthenticationSASLFinal`.
    pub const SASL_FINAL: u32 = 12;
}

impl AuthRequest {
    /// The code that begins the body.
    pub fn code(&self) -> u32 {
        match self {
            Self::Ok => code::OK,
            Self::Cleartext => code::CLEARTEXT,
            Self::Md5 { .. } => code::MD5,
            Self::Sasl { .. } => code::SASL,
            Self::SaslContinue(_) => code::SASL_CONTINUE,
            Self::SaslFinal(_) => code::SASL_FINAL,
        }
    }

    /// What follows the code.
    pub fn payload(&self) -> &[u8] {
        match self {
            Self::Ok | Self::Cleartext => b"",
            Self::Md5 { salt } => salt,
            // The list of mechanisms: each ends with a zero byte, and so does the list.
            Self::Sasl { plus: true } => b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
            Self::Sasl { plus: false } => b"SCRAM-SHA-256\0\0",
            Self::SaslContinue(message) | Self::SaslFinal(message) => message,
        }
    }
}

/// What a login with this secret would need: how a client has to prove itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `any`: everybody is let in.
    Any,
    /// `trust`: everybody known is let in.
    Trust,
    /// `plain`, in HBA files `password`: the password itself.
    Plain,
    /// `md5`: the password, hashed. Becomes SCRAM by itself where the stored secret is SCRAM.
    Md5,
    /// `scram-sha-256`.
    Scram,
}

/// What is told of an empty password, which no authority is asked about: for a directory it would
/// mean an anonymous bind, which succeeds.
pub const EMPTY_PASSWORD: &str = "empty password returned by client";
/// What is told for every failure of a login by a directory.
pub const LDAP_FAILED: &str = "LDAP authentication failed";
/// What is told for every failure of a login by PAM.
pub const PAM_FAILED: &str = "PAM authentication failed";
/// What is told for every failure of the methods `md5` and `plain`.
pub const PASSWORD_FAILED: &str = "password authentication failed";
/// What is told for every failure of SCRAM.
pub const SASL_FAILED: &str = "SASL authentication failed";
/// What is told of a first SCRAM message that contradicts the mechanism.
pub const SCRAM_MALFORMED: &str = "malformed SCRAM message";
/// What is told who chose a mechanism that was not offered.
pub const MECHANISM_UNKNOWN: &str = "client selected an invalid SASL authentication mechanism";
/// What is told who was offered channel binding and believes that it was not.
pub const BINDING_DOWNGRADE: &str = "SCRAM channel binding negotiation error";
/// What is told who binds the channel in a way of which PostgreSQL has none.
pub const BINDING_UNKNOWN: &str = "unsupported SCRAM channel-binding type";
/// What is told who was shown another certificate than ours.
pub const BINDING_WRONG: &str = "SCRAM channel binding check failed";
/// What is told who says another thing of channel binding at the end than at the beginning.
pub const BINDING_ATTRIBUTE: &str =
    "unexpected SCRAM channel-binding attribute in client-final-message";
/// What is told to users `trust` does not know.
pub const TRUST_FAILED: &str = "\"trust\" authentication failed";
/// What is told where the system's user may not be the database's.
pub const PEER_FAILED: &str = "unix socket login rejected";
/// What is told where a client certificate is asked for.
pub const CERT_FAILED: &str = "certificate authentication failed";
/// What is told where a certificate is asked for besides another proof.
pub const CERT_REQUIRED: &str = "connection requires a valid client certificate";
/// What is told where a rule says so.
pub const REJECTED: &str = "login rejected";
/// What is told where no rule fits.
pub const NO_RULE: &str = "no authentication method is found";

impl From<Malformed> for Cow<'static, str> {
    fn from(malformed: Malformed) -> Self {
        format!("malformed SCRAM message: {}", malformed.0).into()
    }
}

#[cfg(test)]
mod binding_tests;
#[cfg(test)]
mod exchange_tests;
