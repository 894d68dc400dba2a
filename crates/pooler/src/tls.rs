//! What the decisions know of TLS: how to ask for a session, and facts about an established one.
//!
//! Keys, certificates and records belong to the daemon, which does TLS between the socket and the
//! decisions: the decisions see plain bytes. [`crate::event::Action::StartTls`] asks for a handshake, and
//! [`crate::event::Event::TlsDone`] reports how it ended.

use std::net::IpAddr;

use crate::config::SslMode;
pub use crate::config::TlsInForce;

/// Which part we play in a handshake, and what with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TlsStart {
    /// We are the TLS server: the peer is a client. What was sent to it so far (the `S` that answers an
    /// SSLRequest) leaves in clear text before.
    Accept {
        /// The client began the handshake without SSLRequest: it must offer the protocol `postgresql`.
        direct: bool,
        /// What it has sent of the handshake so far.
        received: Vec<u8>,
    },
    /// We are the TLS client: the peer is a server.
    Connect(TlsConnect),
}

/// A handshake with a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConnect {
    /// What is demanded of the server's certificate.
    pub mode: SslMode,
    /// The host as the configuration names it: told to the server (SNI) if it is a name, and what the
    /// certificate must be for under `verify-full`.
    pub host: String,
    /// The handshake begins without SSLRequest.
    pub direct: bool,
}

/// Why a handshake with a server failed that is worth another one at once: the layer below has learnt what
/// is wrong, and does it in another way.
pub const AGAIN: &str = "the server's certificate is not for digital signatures (keyUsage), which TLS 1.3 \
                         demands: trying TLS 1.2";

/// What is known of a TLS session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFacts {
    /// `TLSv1.3`, `TLSv1.2` and so on.
    pub version: Box<str>,
    /// OpenSSL's name of the cipher suite.
    pub cipher: Box<str>,
    /// The group of the key exchange, if the library tells.
    pub group: Option<Box<str>>,
    /// The name that the client wanted to reach (SNI), or that we told the server.
    pub sni: Option<Box<str>>,
    /// The protocol agreed on (ALPN).
    pub alpn: Option<Box<str>>,
    /// `tls-server-end-point` (RFC 5929): the hash of the certificate that the TLS server has served in
    /// this session. `None` where the RFC has none (Ed25519).
    pub binding: Option<Box<[u8]>>,
    /// The other side's certificate, if it showed one that an authority of ours has signed.
    pub peer: Option<Box<PeerCertificate>>,
    /// An earlier session was resumed.
    pub resumed: bool,
    /// The library can give it to another process ([`TlsInForce::travels_by`]).
    pub travels: bool,
}

/// Handshakes with clients, or with servers, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handshakes {
    /// Those that were done in full.
    pub full: u64,
    /// Those that resumed an earlier session.
    pub resumed: u64,
    /// Those that one of the two sides refused.
    pub failed: u64,
}

impl Handshakes {
    /// One more.
    pub(crate) fn count(&mut self, result: &Result<Box<TlsFacts>, String>) {
        match result {
            Ok(facts) if facts.resumed => self.resumed += 1,
            Ok(_) => self.full += 1,
            Err(_) => self.failed += 1,
        }
    }

    /// The same of another worker is added.
    pub(crate) fn add(&mut self, other: &Handshakes) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
    }
}

/// What is told of TLS: of clients first, of servers second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlsTold {
    /// Handshakes so far.
    pub handshakes: [Handshakes; 2],
    /// [`TlsInForce::ends`].
    pub ends: [Option<i64>; 2],
}

/// A certificate that was verified: whom it names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerCertificate {
    /// The subject's common name; the first, if there are several.
    pub common_name: Option<Box<str>>,
    /// Alternative names.
    pub names: Vec<AlternativeName>,
    /// The subject as PostgreSQL shows it (`/CN=user`), from the first part to the last.
    pub subject: Box<str>,
    /// The subject by RFC 2253 (`CN=user,O=org`), as HBA's `clientname=DN` compares it.
    pub distinguished_name: Box<str>,
}

/// An alternative name of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AlternativeName {
    /// A host, wildcards included.
    Dns(Box<str>),
    /// An address.
    Ip(IpAddr),
}

impl TlsFacts {
    /// As the log and the console have it: `TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=X25519`.
    pub fn summary(&self) -> String {
        match &self.group {
            Some(group) => format!("{}/{}/ECDH={group}", self.version, self.cipher),
            None => format!("{}/{}", self.version, self.cipher),
        }
    }
}
