//! Addresses of connections.

use std::net::IpAddr;

/// One end of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(IpAddr, u16),
    /// A unix socket's path; an abstract path begins with `@`. The port is the suffix of the file
    /// name (`.s.PGSQL.6432`). It is a field of its own because PgBouncer shows it separately.
    Unix(String, u16),
}
