//! What is known of host names, for the console.

use std::net::IpAddr;

/// What is known of host names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownNames {
    /// By name.
    pub hosts: Vec<KnownHost>,
    /// By name.
    pub zones: Vec<KnownZone>,
    /// Look-ups under way.
    pub queries: u32,
}

/// A host name that has been looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownHost {
    /// The name.
    pub name: String,
    /// For how many seconds the answer is still believed.
    pub ttl: u64,
    /// None if the look-up failed.
    pub addresses: Vec<IpAddr>,
}

/// A zone of such names: what is behind their first dot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownZone {
    /// The name.
    pub name: String,
    /// As it was last looked at; 0 before that.
    pub serial: u32,
    /// How many of the hosts are in it.
    pub hosts: u32,
}
