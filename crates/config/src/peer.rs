//! An entry of `[peers]`.

use super::database::{Host, read_limit};
use super::value::Value;

/// Another process of the same group. It may own the client that a cancel request names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerProcess {
    /// `host` as it was written.
    pub host: String,
    /// The hosts, tried in turn.
    pub hosts: Vec<Host>,
    /// The port.
    pub port: u16,
    /// How many cancel requests are forwarded to the peer at once. `None` means default_pool_size,
    /// 0 sets no limit.
    pub pool_size: Option<u32>,
}

impl Default for PeerProcess {
    fn default() -> PeerProcess {
        PeerProcess {
            host: String::new(),
            hosts: Vec::new(),
            port: 6432,
            pool_size: None,
        }
    }
}

impl PeerProcess {
    /// Assigns one pair; `None` if the value is not of the key's kind. The key must be in the table
    /// for peers.
    pub(super) fn assign(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "host" => {
                self.host = value.to_owned();
                self.hosts = Host::list(value);
                (!self.hosts.is_empty()).then_some(())?;
            }
            "port" => self.port = u16::read(value).filter(|&port| port > 0)?,
            "pool_size" => self.pool_size = read_limit(value)?,
            _ => return None,
        }
        Some(())
    }
}
