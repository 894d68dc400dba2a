//! Addresses of connections.

use std::net::IpAddr;

/// Where a connection leads to or comes from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// TCP over v4 or v6.
    Tcp(IpAddr, u16),
    /// A unix socket's path; an abstract one begins with `@`. The port is the suffix of its file
    /// name (`.s.PGSQL.6432`), kept apart because PgBouncer shows it apart.
    Unix(String, u16),
}
