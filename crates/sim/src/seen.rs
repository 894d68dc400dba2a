//! What a client has written or read, for the check that no reply is older.

use crate::sql::Token;
use crate::wal::{Position, Shared};

/// How the error begins for a reply that is older.
pub const READS_BACK: &str = "reads back in time";

/// What a client has seen.
pub struct Seen {
    wal: Option<Shared>,
    /// Each must be shown by the next reply.
    positions: Vec<Position>,
}

impl Seen {
    /// Nothing yet. Without the WAL, nothing is checked.
    pub fn new(wal: Option<Shared>) -> Seen {
        Seen {
            wal,
            positions: Vec::new(),
        }
    }

    /// The client was told that these statements are committed.
    pub fn writes(&mut self, tokens: &[Token]) {
        let Some(wal) = &self.wal else { return };
        let wal = wal.borrow();
        let commits = tokens.iter().filter_map(|token| wal.commit_of(*token));
        self.positions.extend(commits);
    }

    /// A reply shows everything up to here.
    ///
    /// # Errors
    /// The client has seen more, and no promotion has lost that.
    pub fn reads(&mut self, shown: Position) -> Result<(), String> {
        let Some(wal) = &self.wal else { return Ok(()) };
        let wal = wal.borrow();
        let lacks = |seen: &&Position| {
            let shared = wal.shared(seen.branch, shown.branch);
            // A later promotion may have lost it.
            let is_lost = shown.branch > seen.branch;
            let kept = if is_lost {
                seen.lsn.min(shared)
            } else {
                seen.lsn
            };
            kept > shared || kept > shown.lsn
        };
        let lacking = self.positions.iter().find(lacks).copied();
        self.positions = vec![shown];
        match lacking {
            Some(seen) => Err(format!("{READS_BACK}: {shown} after {seen}")),
            None => Ok(()),
        }
    }
}
