//! Password exchanges in both directions, as values: a message goes in, a [`LoginStep`] comes out.
//!
//! ```text
//!   client  <-- ClientLogin -->   us   <-- ServerLogin -->  PostgreSQL
//!               scram_checker               scram_prover
//!               md5, plain                  md5
//! ```
//!
//! In a [`ClientLogin`] a client proves itself to Howdah, in a [`ServerLogin`] Howdah proves itself to
//! PostgreSQL. Both read and write message bodies only; the caller does the framing. This crate does no I/O,
//! draws no random numbers and computes nothing slow. Nonces and keys are arguments. The one slow
//! computation, a SCRAM key derivation, is requested by [`LoginStep::Derive`].
//!
//! The messages to a client never depend on whether the user exists: unknown users go through the same
//! exchange and fail at its end ([`scram_checker`] names the remaining differences).
#![forbid(unsafe_code)]

pub mod aws;
pub mod client_login;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod md5;
pub mod oauthbearer;
pub mod plain;
pub mod require;
pub mod saslprep;
pub mod scram;
pub mod scram_checker;
pub mod scram_prover;
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

/// The next step of an exchange. `R` is the type of a reply, `D` the result of a success.
#[derive(Debug)]
pub enum LoginStep<R, D> {
    /// Send this reply, then wait for the peer's next message.
    Reply(R),
    /// Compute [`scram::salted_password`] elsewhere and call `derived`. Messages that arrive
    /// meanwhile must be held.
    Derive(Derivation),
    /// Wait for the peer's next message; there is nothing to send.
    Await,
    /// The exchange succeeded.
    Done(D),
    /// The exchange failed and is over.
    Refuse(LoginRefusal),
}

/// A key derivation. The result depends on these three fields only, so it can be cached by them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Derivation {
    /// The password after SASLprep.
    pub password: Vec<u8>,
    /// The salt.
    pub salt: Vec<u8>,
    /// How often the hash is applied.
    pub iterations: u32,
}

impl Derivation {
    /// Computes the key; this takes about a millisecond for 4096 iterations.
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
    /// For the client. Contains nothing that the client must not learn.
    pub text: Cow<'static, str>,
    /// For Howdah's log: the reason.
    pub detail: Cow<'static, str>,
}

impl LoginRefusal {
    /// A refusal with a text for the client and a reason for Howdah's log.
    pub fn new(text: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            text: text.into(),
            detail: detail.into(),
        }
    }
}

/// An authentication request: the bytes after the tag and the length of an `R` message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthRequest {
    /// The login succeeded.
    Ok,
    /// Send the password.
    Cleartext,
    /// Send the password hashed with this salt.
    Md5 {
        /// Random, drawn anew for each login.
        salt: [u8; 4],
    },
    /// Begin SCRAM-SHA-256, with channel binding or without.
    Sasl {
        /// Channel binding is offered, too.
        plus: bool,
    },
    /// Begin OAUTHBEARER.
    SaslOauth,
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
    /// The code at the start of the body.
    pub fn code(&self) -> u32 {
        match self {
            Self::Ok => code::OK,
            Self::Cleartext => code::CLEARTEXT,
            Self::Md5 { .. } => code::MD5,
            Self::Sasl { .. } | Self::SaslOauth => code::SASL,
            Self::SaslContinue(_) => code::SASL_CONTINUE,
            Self::SaslFinal(_) => code::SASL_FINAL,
        }
    }

    /// The bytes after the code.
    pub fn payload(&self) -> &[u8] {
        match self {
            Self::Ok | Self::Cleartext => b"",
            Self::Md5 { salt } => salt,
            // The list of mechanisms: each ends with a zero byte, and so does the list.
            Self::Sasl { plus: true } => b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
            Self::Sasl { plus: false } => b"SCRAM-SHA-256\0\0",
            Self::SaslOauth => b"OAUTHBEARER\0\0",
            Self::SaslContinue(message) | Self::SaslFinal(message) => message,
        }
    }
}

/// The proof that a client's login requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `any`: every client is let in.
    Any,
    /// `trust`: every known user is let in.
    Trust,
    /// `plain`, in HBA files `password`: the password itself.
    Plain,
    /// `md5`: the hashed password. If the stored secret is a SCRAM secret, the login uses SCRAM.
    Md5,
    /// `scram-sha-256`.
    Scram,
}

/// The error for an empty password. An empty password goes to no directory: there it would mean an
/// anonymous bind, which succeeds.
pub const EMPTY_PASSWORD: &str = "empty password returned by client";
/// The error for every failure of a login by a directory.
pub const LDAP_FAILED: &str = "LDAP authentication failed";
/// The error for every failure of a login by PAM.
pub const PAM_FAILED: &str = "PAM authentication failed";
/// The error for every failure of the methods `md5` and `plain`.
pub const PASSWORD_FAILED: &str = "password authentication failed";
/// The error for every failure of SCRAM.
pub const SASL_FAILED: &str = "SASL authentication failed";
/// The error for a first SCRAM message that contradicts the mechanism.
pub const SCRAM_MALFORMED: &str = "malformed SCRAM message";
/// The error for a client that chose a mechanism that was not offered.
pub const MECHANISM_UNKNOWN: &str = "client selected an invalid SASL authentication mechanism";
/// The error for a client that was offered channel binding and believes that it was not.
pub const BINDING_DOWNGRADE: &str = "SCRAM channel binding negotiation error";
/// The error for a client that binds the channel in a way that PostgreSQL does not have.
pub const BINDING_UNKNOWN: &str = "unsupported SCRAM channel-binding type";
/// The error for a client that saw another certificate than Howdah's.
pub const BINDING_WRONG: &str = "SCRAM channel binding check failed";
/// The error for a client whose last message contradicts its first message about channel binding.
pub const BINDING_ATTRIBUTE: &str =
    "unexpected SCRAM channel-binding attribute in client-final-message";
/// The error for users that `trust` does not know.
pub const TRUST_FAILED: &str = "\"trust\" authentication failed";
/// The error for a system user that may not log in as the database user.
pub const PEER_FAILED: &str = "unix socket login rejected";
/// The error if a client certificate is the required proof and is missing or wrong.
pub const CERT_FAILED: &str = "certificate authentication failed";
/// The error if a client certificate is required besides another proof.
pub const CERT_REQUIRED: &str = "connection requires a valid client certificate";
/// The error if an HBA rule rejects the login.
pub const REJECTED: &str = "login rejected";
/// The error if no HBA rule matches.
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
