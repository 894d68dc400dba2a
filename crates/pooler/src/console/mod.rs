//! The console: the databases `pgbouncer` and `howdah`, on which administrators send commands.
//!
//! A console is on the worker that accepted it. It asks all workers by mail, including its own. Each worker
//! gets a [`Survey`] and answers with one [`Report`], at once or when the order is carried out. Then the
//! console answers the administrator. Queries that arrive meanwhile wait.

pub mod columns;
pub mod command;
pub mod drivers;
pub mod extended;
pub mod gather;
pub mod holdings;
pub mod host_sight;
mod hosts;
pub mod lines;
pub mod prepared;
pub mod report;
pub mod roles;
pub mod rows;
mod secrets;
pub mod sentence;
pub mod serve;
pub mod session;
pub mod sharded_sight;
mod shards;
pub mod show;
pub mod statistics;
pub mod survey;
#[cfg(test)]
mod tests;
mod where_to;

pub use report::{Report, Survey};
pub use session::ConsoleSession;

use std::collections::HashSet;

use crate::event::ClientId;
use crate::limits;
use crate::stats::Stats;

pub use crate::config::is_console;

/// The version in SHOW VERSION. Programs look for the first numbers, to learn which columns SHOW
/// has; some split the text from there at dots, and cast the first three parts.
const VERSION: &str = concat!(
    "PgBouncer 1.25.2.0 (Howdah ",
    env!("CARGO_PKG_VERSION"),
    ")"
);

/// The state that all consoles of a worker share.
#[derive(Debug, Default)]
pub struct Consoles {
    /// Clients that say they are administrators, and have not proved it.
    unproven: HashSet<ClientId>,
    /// Orders that this worker has not carried out completely.
    pub(super) owed: Vec<Survey>,
    pub(super) stats: Stats,
    pub(super) last_stats: Stats,
    pub(super) older_stats: Stats,
}

impl Consoles {
    /// A client says that it is an administrator. False if too many do so: then the client is
    /// treated like any other.
    pub(crate) fn proof_begins(&mut self, id: ClientId) -> bool {
        let free = self.unproven.len() < limits::CONSOLE_LOGINS;
        if free {
            self.unproven.insert(id);
        }
        free
    }

    /// The client has proved to be an administrator, or is gone.
    pub(crate) fn proof_ends(&mut self, id: ClientId) {
        if !self.unproven.is_empty() {
            self.unproven.remove(&id);
        }
    }

    /// True if a console waits for this worker.
    pub fn are_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// A period of the statistics has ended.
    pub fn end_period(&mut self) {
        self.older_stats = self.last_stats;
        self.last_stats = self.stats;
    }
}
