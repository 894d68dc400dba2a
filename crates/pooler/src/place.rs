//! The two ends of a connection, and addresses as the log and the console show them.

use crate::config::Address;

/// Why a connect came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreached {
    /// The system's text.
    pub text: String,
    /// The host answered that nobody listens, or there is no such socket.
    pub nobody: bool,
    /// The failure is no sign of the host: this process or machine lacks something.
    pub ours: bool,
}

/// The remote end of a client or server, as PgBouncer writes it: `1.2.3.4:5`, `[::1]:5`,
/// `unix(pid):5`.
pub fn remote(ends: &Ends) -> String {
    match (&ends.remote, ends.unix_peer) {
        (Address::Unix(_, port), Some(peer)) => format!("unix({}):{port}", peer.pid),
        (Address::Unix(_, port), None) => format!("unix:{port}"),
        (tcp, _) => whole(tcp),
    }
}

/// A whole address, to find out why it can't be reached: `1.2.3.4:5`, `[::1]:5`,
/// `unix(/tmp/.s.PGSQL.5)`.
pub fn whole(address: &Address) -> String {
    match address {
        Address::Tcp(ip, port) if ip.is_ipv6() => format!("[{ip}]:{port}"),
        Address::Tcp(ip, port) => format!("{ip}:{port}"),
        Address::Unix(path, _) => format!("unix({path})"),
    }
}

/// Only the address.
pub fn host(address: &Address) -> String {
    match address {
        Address::Tcp(ip, _) => ip.to_string(),
        Address::Unix(..) => "unix".to_string(),
    }
}

/// Only the port.
pub fn port(address: &Address) -> u16 {
    match address {
        Address::Tcp(_, port) | Address::Unix(_, port) => *port,
    }
}

/// The process at the other end of a unix socket, as the operating system reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnixPeer {
    /// Process id.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
}

/// The two ends of a connected socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The other side.
    pub remote: Address,
    /// Our side.
    pub local: Address,
    /// The process at the other end of a unix socket.
    pub unix_peer: Option<UnixPeer>,
}

/// How a client's connection reaches this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Via {
    /// Nothing has said that a balancer is between.
    #[default]
    Direct,
    /// A balancer has connected, and its header is not read yet.
    HeaderDue,
    /// A balancer's header was read. `near`: the balancer came from a loopback address.
    Balancer {
        /// The balancer came from a loopback address.
        near: bool,
    },
}
