//! A carrier's errand: which server to cancel, and which searches asked.

use crate::ids::{ServerId, WorkerId};

/// The task of a carrier.
#[derive(Debug)]
pub struct Errand {
    /// The server to cancel.
    pub(super) target: ServerId,
    /// The searches that wait for the result, by their workers and numbers.
    pub(super) askers: Vec<(WorkerId, u64)>,
    /// The request was handed to the driver.
    pub(super) sent: bool,
    /// Howdah has asked PostgreSQL for TLS, and waits for the answer.
    pub(super) asked: bool,
}

impl Errand {
    /// The number of clients' cancel requests that this errand carries.
    pub fn requests(&self) -> u32 {
        self.askers.len() as u32
    }
}
