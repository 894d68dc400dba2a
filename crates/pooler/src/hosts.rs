//! Known host names, for the console.

use std::net::IpAddr;

/// All known host names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownNames {
    /// Sorted by name.
    pub hosts: Vec<KnownHost>,
    /// Sorted by name.
    pub zones: Vec<KnownZone>,
    /// The number of look-ups under way.
    pub queries: u32,
}

/// A host name after a look-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownHost {
    /// The name.
    pub name: String,
    /// For how many seconds the answer remains valid.
    pub ttl: u64,
    /// None if the look-up failed.
    pub addresses: Vec<IpAddr>,
}

/// A zone of host names: the part of a name after the first dot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownZone {
    /// The name.
    pub name: String,
    /// The serial number at the last look; 0 before.
    pub serial: u32,
    /// The number of known hosts in the zone.
    pub hosts: u32,
}
