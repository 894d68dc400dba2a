//! The TLS settings in force.

use crate::{Config, Database, Globals, SslMode};

/// The TLS settings in force. A reload with certificate files that can't be used changes the
/// settings that the console shows, but not these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsInForce {
    /// The TLS mode for clients.
    pub clients: SslMode,
    /// The TLS mode for servers whose database sets none.
    pub servers: SslMode,
    /// Counts the changes of the TLS settings for servers. Servers of an earlier generation are
    /// replaced.
    pub generation: u64,
    /// When Howdah's own certificates for clients and for servers expire, in seconds since 1970.
    pub ends: [Option<i64>; 2],
    /// The TLS library and its version. `None` if clients' sessions can't move to another process.
    /// The other process must have the same library and version.
    pub travels_by: Option<&'static str>,
}

/// The files of TLS to a database's servers, where its entry names any.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct TlsFiles {
    /// `sslrootcert`.
    pub authorities: Option<String>,
    /// `sslcert`.
    pub certificate: Option<String>,
    /// `sslkey`.
    pub key: Option<String>,
}

impl TlsFiles {
    /// The paths of a database's authorities, certificate and key: its own, or the global ones. Without
    /// authorities those of the system are meant.
    pub fn paths<'a>(&'a self, globals: &'a Globals) -> [&'a str; 3] {
        let own = |own: &'a Option<String>, global: &'a String| own.as_deref().unwrap_or(global);
        let authorities = own(&self.authorities, &globals.server_tls_ca_file);
        [
            if authorities == "system" {
                ""
            } else {
                authorities
            },
            own(&self.certificate, &globals.server_tls_cert_file),
            own(&self.key, &globals.server_tls_key_file),
        ]
    }
}

impl Database {
    /// The files of TLS to its servers; empty where the global settings count.
    pub fn tls_files(&self) -> TlsFiles {
        TlsFiles {
            authorities: self.sslrootcert.clone(),
            certificate: self.sslcert.clone(),
            key: self.sslkey.clone(),
        }
    }
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
    /// The settings as they were written.
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
