//! A carrier's errand: which server to cancel, and which connection asked.

use crate::ids::{ClientId, ServerId, WorkerId};

/// What a carrier is for.
#[derive(Debug)]
pub struct Errand {
    /// The server to cancel.
    pub(super) target: ServerId,
    /// Who wants to know when it is done.
    pub(super) askers: Vec<(WorkerId, ClientId)>,
    /// The request was handed to the driver.
    pub(super) sent: bool,
    /// PostgreSQL was asked for TLS, and its answer is awaited.
    pub(super) asked: bool,
}

impl Errand {
    /// How many clients' cancel requests it carries.
    pub fn requests(&self) -> u32 {
        self.askers.len() as u32
    }
}
