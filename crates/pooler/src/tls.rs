//! TLS as the decisions know it: how to ask for a session, and facts about an established one.
//!
//! Keys, certificates and records belong to the daemon, between the socket and the decisions: the
//! decisions see plain bytes. [`crate::event::Action::StartTls`] asks for a handshake, and
//! [`crate::event::Event::TlsDone`] reports the result.

use std::net::IpAddr;

use crate::config::SslMode;
pub use crate::config::{TlsFiles, TlsInForce};

/// Howdah's role in a handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TlsStart {
    /// Howdah is the TLS server, and the peer is a client. Earlier output (the `S` that answers an
    /// SSLRequest) is sent in clear text first.
    Accept {
        /// The client began without SSLRequest, so it must offer the protocol `postgresql`.
        direct: bool,
        /// The part of the client's handshake that has already arrived.
        received: Vec<u8>,
    },
    /// Howdah is the TLS client, and the peer is a server.
    Connect(TlsConnect),
}

/// A handshake with a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConnect {
    /// The required checks of the server's certificate.
    pub mode: SslMode,
    /// The host in the configuration. A name is sent to the server (SNI). Under `verify-full` the
    /// certificate must be for this host.
    pub host: String,
    /// The handshake begins without SSLRequest.
    pub direct: bool,
    /// The files that the database names; empty for the global ones.
    pub files: TlsFiles,
}

/// The reason of a failed handshake with a server that Howdah repeats at once: the TLS layer avoids
/// the problem next time.
pub const AGAIN: &str = "the server's certificate is not for digital signatures (keyUsage), which TLS 1.3 \
                         demands: trying TLS 1.2";

/// Facts about a TLS session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFacts {
    /// `TLSv1.3`, `TLSv1.2` and so on.
    pub version: Box<str>,
    /// OpenSSL's name of the cipher suite.
    pub cipher: Box<str>,
    /// The group of the key exchange, if the library reports it.
    pub group: Option<Box<str>>,
    /// The name that the client sent (SNI), or that Howdah sent to the server.
    pub sni: Option<Box<str>>,
    /// The protocol agreed on (ALPN).
    pub alpn: Option<Box<str>>,
    /// `tls-server-end-point` (RFC 5929): the hash of the TLS server's certificate in this session.
    /// `None` where the RFC defines none (Ed25519).
    pub binding: Option<Box<[u8]>>,
    /// The peer's certificate, if a trusted authority has signed it.
    pub peer: Option<Box<PeerCertificate>>,
    /// An earlier session was resumed.
    pub resumed: bool,
    /// The library can export the session to another process ([`TlsInForce::travels_by`]).
    pub travels: bool,
}

/// Counts of handshakes with clients, or with servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handshakes {
    /// Full handshakes.
    pub full: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Handshakes that one of the two sides refused.
    pub failed: u64,
}

impl Handshakes {
    /// Counts a handshake.
    pub(crate) fn count(&mut self, result: &Result<Box<TlsFacts>, String>) {
        match result {
            Ok(facts) if facts.resumed => self.resumed += 1,
            Ok(_) => self.full += 1,
            Err(_) => self.failed += 1,
        }
    }

    /// Adds another worker's counts.
    pub(crate) fn add(&mut self, other: &Handshakes) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
    }
}

/// TLS in the metrics: for clients first, for servers second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlsTold {
    /// Counts of handshakes.
    pub handshakes: [Handshakes; 2],
    /// [`TlsInForce::ends`].
    pub ends: [Option<i64>; 2],
}

/// The names in a verified certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerCertificate {
    /// The subject's common name; the first, if there are several.
    pub common_name: Option<Box<str>>,
    /// Alternative names.
    pub names: Vec<AlternativeName>,
    /// The subject as PostgreSQL shows it (`/CN=user`), in the order of the certificate.
    pub subject: Box<str>,
    /// The subject by RFC 2253 (`CN=user,O=org`), for HBA's `clientname=DN`.
    pub distinguished_name: Box<str>,
}

/// An alternative name of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AlternativeName {
    /// A host name, or a wildcard.
    Dns(Box<str>),
    /// An address.
    Ip(IpAddr),
}

impl TlsFacts {
    /// The session in the log and the console: `TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=X25519`.
    pub fn summary(&self) -> String {
        match &self.group {
            Some(group) => format!("{}/{}/ECDH={group}", self.version, self.cipher),
            None => format!("{}/{}", self.version, self.cipher),
        }
    }
}
