//! The decisions of Howdah: who is linked to whom, and which bytes are sent when.
//!
//! This crate does no I/O: a [`Pooler`] takes [`event::Event`]s and returns [`event::Action`]s.
//! Time, entropy and settings are arguments.
#![forbid(unsafe_code)]

/// Looks up a connection that may be gone. If so, the calling function (for a late answer, a timer
/// or mail) returns without doing anything. Use [`table::Table::at`] for a connection that must
/// exist.
macro_rules! gone {
    ($found:expr) => {
        match $found {
            Some(found) => found,
            None => return Default::default(),
        }
    };
}

pub mod account;
pub mod adoption;
pub mod balance;
pub mod broker;
pub mod cancel;
pub mod census;
pub mod certificate;
pub mod client;
pub mod console;
pub mod deadlines;
mod drain;
pub mod errors;
pub mod event;
pub mod fault;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod host_check;
pub mod hosts;
pub mod ids;
pub mod inbox;
mod internal_error;
mod invariants;
pub mod janitor;
pub mod keyed;
pub mod known;
pub mod ledger;
pub mod limits;
pub mod link;
pub mod listen;
mod literal;
pub mod load;
pub mod login;
pub mod lookup;
pub mod mail;
pub mod maintenance;
pub mod metrics;
pub mod moves;
pub mod moving;
pub mod names;
mod next;
pub mod note;
mod opening;
pub mod order;
pub mod orders;
mod packing;
pub mod params;
pub mod parcel;
pub mod peer;
pub mod peering;
pub mod place;
pub mod pool;
mod promotion;
pub mod queries;
pub mod reads;
pub mod reload;
mod renewal;
pub mod roster;
pub mod seats;
pub mod server;
pub mod session;
pub mod shard;
pub mod shared;
pub mod signal;
pub mod socket;
pub mod sources;
pub mod spelling;
pub mod spread;
mod standby;
pub mod statement;
pub mod stats;
pub mod suspend;
pub mod table;
pub mod takeover;
mod timeouts;
pub mod timers;
pub mod times;
pub mod tls;
pub mod valve;

mod pooler;
mod router;

pub use howdah_auth as auth;
pub use howdah_config as config;
pub use howdah_config::ldap;
use howdah_config::quotes;
pub use howdah_sql as effect;
pub use pooler::{Pooler, PoolerSetup};
pub use shared::Shared;

use std::hash::BuildHasher;

/// The hasher of all tables: fast, and seeded at start, so that an attacker can't aim at a slot.
#[derive(Clone, Copy, Debug)]
pub struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = foldhash::quality::FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        foldhash::quality::FixedState::with_seed(self.0).build_hasher()
    }
}

/// A hasher with this seed.
pub fn seeded(seed: u64) -> Seeded {
    Seeded(seed)
}
