//! What of the TLS settings counts.

use crate::{Config, SslMode};

/// What of the TLS settings is in force. A reload with files that can't be used changes the settings, as
/// the console shows them, but not this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsInForce {
    /// What is demanded of clients.
    pub clients: SslMode,
    /// What is demanded of servers, where their database does not say.
    pub servers: SslMode,
    /// Counts how often what servers are connected with has changed: those from before are replaced.
    pub generation: u64,
    /// When our own certificates end, for clients and for servers: seconds since 1970.
    pub ends: [Option<i64>; 2],
    /// The TLS library and its version, if clients' sessions can go to another process that has the
    /// same.
    pub travels_by: Option<&'static str>,
}

impl Default for TlsInForce {
    /// No TLS.
    fn default() -> Self {
        TlsInForce {
            clients: SslMode::Disable,
            servers: SslMode::Disable,
            generation: 0,
            ends: [None; 2],
            travels_by: None,
        }
    }
}

impl TlsInForce {
    /// What the settings ask for.
    pub fn asked(config: &Config, generation: u64) -> TlsInForce {
        TlsInForce {
            clients: config.globals.client_tls_sslmode,
            servers: config.globals.server_tls_sslmode,
            generation,
            ends: [None; 2],
            travels_by: None,
        }
    }
}
