//! When things last happened on a server.

use crate::ids::Time;

/// When things last happened on a server.
#[derive(Debug)]
pub struct ServerTimes {
    /// The server connected.
    pub(crate) connected: Time,
    /// PostgreSQL answered a client, or a task of Howdah's own began.
    pub(crate) used: Time,
    /// The client's current transaction began.
    pub(crate) transaction: Time,
    /// The current request began.
    pub(crate) request: Time,
    /// Bytes last came from PostgreSQL.
    pub(crate) heard: Time,
    /// Howdah has answered for PostgreSQL, which has said nothing since `used`.
    silent: bool,
}

impl ServerTimes {
    /// The times of a server that is new here, and connected at `connected`.
    pub(crate) fn new(connected: Time, now: Time) -> Self {
        ServerTimes {
            connected,
            used: now,
            transaction: now,
            request: now,
            heard: Time(0),
            silent: false,
        }
    }

    pub(super) fn set_connected(&mut self, now: Time) {
        self.connected = now;
    }

    pub(crate) fn set_used(&mut self, then: Time) {
        self.used = then;
    }

    /// The client begins a request, and a transaction too if `first`.
    pub(super) fn begin_request(&mut self, now: Time, first: bool) {
        self.request = now;
        if first {
            self.transaction = now;
        }
    }

    /// Howdah begins a task of its own.
    pub(super) fn begin_task(&mut self, now: Time) {
        self.used = now;
        self.request = now;
    }

    /// Bytes have come.
    #[inline(always)]
    pub(crate) fn mark_heard(&mut self, now: Time) {
        self.heard = now;
    }

    /// Howdah answers a whole group for PostgreSQL. That is no sign that the server is alive.
    pub(crate) fn mark_silent(&mut self) {
        self.silent = true;
    }

    /// PostgreSQL has answered.
    pub(super) fn mark_answered(&mut self) {
        self.silent = false;
    }

    /// The server is free for the next client. If PostgreSQL has said nothing to the last one, the
    /// server was not used: its tests and idle timeout count from before.
    pub(crate) fn rest(&mut self, now: Time) {
        if !self.silent {
            self.used = now;
        }
    }
}
