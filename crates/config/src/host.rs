//! Hosts of PostgreSQL, and the lists of them in entries.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::value::{Kind, Value};

/// A host of PostgreSQL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Host {
    /// A name to be resolved.
    Name(String),
    /// One of several addresses of a name: a host of its own, in databases that have roles.
    Address {
        /// The name, which TLS checks.
        name: String,
        /// The address.
        ip: IpAddr,
    },
    /// An address.
    Ip(IpAddr),
    /// The directory of a unix socket; abstract if it begins with `@`.
    Unix(String),
}

impl Host {
    /// The hosts in a `host` setting, separated by commas.
    pub(super) fn list(text: &str) -> Vec<Host> {
        text.split(',')
            .map(str::trim)
            .filter(|host| !host.is_empty())
            .map(Host::from_text)
            .collect()
    }

    fn from_text(text: &str) -> Host {
        if text.starts_with(['/', '@']) {
            Host::Unix(text.into())
        } else {
            text.parse()
                .map_or_else(|_| Host::Name(text.into()), Host::Ip)
        }
    }

    /// True if a text names the host: as messages show it, or, if it is an address of a name, by
    /// either of the two.
    fn is_named(&self, text: &str) -> bool {
        let written = Host::from_text(text);
        match self {
            Host::Address { name, ip } => {
                written == Host::Ip(*ip) || text == name || text == self.to_string()
            }
            _ => written == *self,
        }
    }
}

/// A host and its port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The port; for a unix socket, a part of its name.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(text) | Host::Unix(text) => f.write_str(text),
            Host::Address { name, ip } => write!(f, "{name}({ip})"),
            Host::Ip(address) => address.fmt(f),
        }
    }
}

impl HostPort {
    /// True if a text names the host, with its port (`host:port`) or without.
    pub fn is_named(&self, text: &str) -> bool {
        self.is_named_with_port(text) || self.host.is_named(text)
    }

    /// True if a text names the host with its port: as `host:port`, or as messages show it.
    pub(super) fn is_named_with_port(&self, text: &str) -> bool {
        let Some((host, port)) = text.rsplit_once(':') else {
            return text == self.to_string();
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        text == self.to_string() || port.parse() == Ok(self.port) && self.host.is_named(host)
    }
}

impl fmt::Display for HostPort {
    /// `name:port`, `name(address):port`, or the path of a unix socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(_) | Host::Address { .. } => write!(f, "{}:{}", self.host, self.port),
            Host::Ip(address) => SocketAddr::new(*address, self.port).fmt(f),
            Host::Unix(folder) => write!(f, "{folder}/.s.PGSQL.{}", self.port),
        }
    }
}

/// The ports of a list of hosts: one for all, or one for each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ports {
    first: u16,
    others: Vec<u16>,
}

impl Ports {
    /// The port of the first host.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The hosts with their ports.
    ///
    /// # Errors
    /// There are several ports, but not as many as hosts: their number.
    pub(super) fn of(&self, hosts: Vec<Host>) -> Result<Vec<HostPort>, usize> {
        let ports = 1 + self.others.len();
        if ports > 1 && ports != hosts.len() {
            return Err(ports);
        }
        let own = std::iter::once(self.first).chain(self.others.iter().copied());
        let all = own.chain(std::iter::repeat(self.first));
        let pairs = hosts.into_iter().zip(all);
        Ok(pairs.map(|(host, port)| HostPort { host, port }).collect())
    }
}

impl Value for Ports {
    const KIND: Kind = Kind::Ports;
    fn read(text: &str) -> Option<Ports> {
        let port = |text: &str| text.trim().parse().ok().filter(|port| *port > 0);
        let ports: Option<Vec<u16>> = text.split(',').map(port).collect();
        let mut ports = ports?.into_iter();
        Some(Ports {
            first: ports.next()?,
            others: ports.collect(),
        })
    }
    fn show(&self) -> Option<String> {
        let others = self.others.iter().map(|port| format!(",{port}"));
        Some(self.first.to_string() + &others.collect::<String>())
    }
}
