//! The two ends of a connection, and addresses as logs and the console show them.

use crate::config::Address;

/// A client's or a server's remote side, as PgBouncer writes it: `1.2.3.4:5`, `[::1]:5`,
/// `unix(pid):5`.
pub fn remote(ends: &Ends) -> String {
    match (&ends.remote, ends.unix_peer) {
        (Address::Unix(_, port), Some(peer)) => format!("unix({}):{port}", peer.pid),
        (Address::Unix(_, port), None) => format!("unix:{port}"),
        (tcp, _) => whole(tcp),
    }
}

/// An address that may not be reached, so that it is found what is wrong with it: `1.2.3.4:5`,
/// `[::1]:5`, `unix(/tmp/.s.PGSQL.5)`.
pub fn whole(address: &Address) -> String {
    match address {
        Address::Tcp(ip, port) if ip.is_ipv6() => format!("[{ip}]:{port}"),
        Address::Tcp(ip, port) => format!("{ip}:{port}"),
        Address::Unix(path, _) => format!("unix({path})"),
    }
}

/// The address part alone.
pub fn host(address: &Address) -> String {
    match address {
        Address::Tcp(ip, _) => ip.to_string(),
        Address::Unix(..) => "unix".to_string(),
    }
}

/// The port part alone.
pub fn port(address: &Address) -> u16 {
    match address {
        Address::Tcp(_, port) | Address::Unix(_, port) => *port,
    }
}

/// What the operating system says of the process at the other end of a unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnixPeer {
    /// Process id.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
}

/// An established socket's two ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The other side.
    pub remote: Address,
    /// Our side.
    pub local: Address,
    /// Set where it is a unix socket.
    pub unix_peer: Option<UnixPeer>,
}
