//! What a server needs to be cancelled; and a carrier's errand: which server to cancel, and which
//! searches asked.

use crate::ids::{ServerId, WorkerId};

/// The key for cancel requests to a server, and the requests under way.
#[derive(Debug, Default)]
pub struct Cancels {
    /// PostgreSQL's process id and secret.
    pub(crate) key: Option<(u32, Box<[u8]>)>,
    under_way: u32,
}

impl Cancels {
    /// No request is under way yet.
    pub(crate) fn new(key: Option<(u32, Box<[u8]>)>) -> Self {
        Cancels { key, under_way: 0 }
    }

    /// PostgreSQL's process id, if the server has sent its key.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.key.as_ref().map(|(pid, _)| *pid)
    }

    /// The server has sent its key.
    pub(crate) fn set_key(&mut self, pid: u32, secret: &[u8]) {
        self.key = Some((pid, secret.into()));
    }

    pub(crate) fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// A request is under way.
    pub(crate) fn begin(&mut self) {
        self.under_way += 1;
    }

    /// A request has reached PostgreSQL, or will never reach it.
    pub(crate) fn end(&mut self) {
        self.under_way -= 1;
    }
}

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
