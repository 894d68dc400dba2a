//! The state of administrators' orders ([`Janitor`]): pauses, SUSPEND, a takeover, the end of the
//! process. Also the time of the next maintenance.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};

use crate::ids::{ClientId, Peer, ServerId, Time};
use crate::order::Shutdown;
use crate::parcel::ServerParcel;

/// The state of maintenance and of administrators' orders.
#[derive(Debug, Default)]
pub struct Janitor {
    pub(crate) next: Time,
    pub(crate) next_hunger: Option<Time>,
    pub(crate) next_login: Option<Time>,
    /// When the next connection of a check is opened.
    pub(crate) next_check: Option<Time>,
    pub(crate) paused_all: bool,
    pub(crate) paused: HashSet<String, foldhash::quality::FixedState>,
    pub(crate) disabled: HashSet<String, foldhash::quality::FixedState>,
    /// Counts orders to replace all servers (RECONNECT, changed settings).
    pub(crate) epoch: u64,
    pub(crate) ending: Option<Shutdown>,
    pub(crate) told_idle: bool,
    /// When the last client is to have ended, once all clients are being ended.
    pub(crate) drained_at: Option<Time>,
    pub(crate) suspension: Option<Suspension>,
    pub(crate) takeover: Takeover,
    /// The successor also takes TLS sessions of clients.
    pub(crate) tls_travels: bool,
    /// When a successor got everything except the connections that stayed here.
    pub(crate) succeeded: Option<Time>,
    /// The number of KILLs: of all databases, and by database.
    kills: u64,
    kills_of: HashMap<String, u64, foldhash::quality::FixedState>,
    pub(crate) tidied: Time,
    /// When the control thread was last asked to log that clients wait.
    pub(crate) waits_told: Time,
    pub(crate) stats_at: Time,
    pub(crate) period_ends: Option<Time>,
    pub(crate) older_stats_at: Time,
}

impl Janitor {
    /// When the next work is due.
    pub fn next(&self) -> Time {
        let others = [self.next_hunger, self.next_login, self.next_check];
        others.into_iter().flatten().fold(self.next, Time::min)
    }

    /// If a client waits, retries failed logins at this time.
    pub(crate) fn retry_at(&mut self, at: Time) {
        self.next_login = Some(self.next_login.map_or(at, |next| next.min(at)));
    }

    /// When the period of averages ends, if one has begun.
    pub fn end_of_period(&self) -> Option<Time> {
        self.period_ends
    }

    /// PAUSE holds for this database.
    pub fn is_paused(&self, database: &str) -> bool {
        self.paused_all || self.paused.contains(database)
    }

    /// PAUSE holds for everything.
    pub fn is_paused_all(&self) -> bool {
        self.paused_all
    }

    /// PAUSE holds for this database, given by name.
    pub fn is_paused_alone(&self, database: &str) -> bool {
        self.paused.contains(database)
    }

    /// No server is given out, because of SUSPEND or a takeover.
    pub fn holds(&self) -> bool {
        self.suspension.is_some() || self.takeover.holds()
    }

    /// PAUSE holds for some databases given by name.
    pub fn pauses_some(&self) -> bool {
        !self.paused.is_empty()
    }

    /// DISABLE holds for this database.
    pub fn is_disabled(&self, database: &str) -> bool {
        self.disabled.contains(database)
    }

    /// When the pools' `older_stats` were taken.
    pub fn older_stats_at(&self) -> Time {
        self.older_stats_at
    }

    /// The process accepts no new clients.
    pub fn is_shutting_down(&self) -> bool {
        self.ending.is_some()
    }

    /// SHUTDOWN waits for servers to be free: clients without a server get none, and RESUME changes
    /// nothing. (A SHUTDOWN that waits for clients needs RESUME: paused clients would never leave.)
    pub fn awaits_servers(&self) -> bool {
        self.ending == Some(Shutdown::Servers)
    }

    /// SHUTDOWN has begun, and RESUME has no pause to undo or must not undo it.
    pub fn ignores_resume(&self) -> bool {
        let paused = self.paused_all || self.pauses_some();
        self.awaits_servers() || self.is_shutting_down() && !paused
    }

    /// The number of the last order to replace servers.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Moves the next maintenance to this time, unless it is earlier.
    pub(crate) fn hurry(&mut self, at: Time) {
        self.next = self.next.min(at);
    }

    /// Counts a KILL.
    pub(crate) fn count_kill(&mut self, database: Option<&str>) {
        match database {
            None => self.kills += 1,
            Some(name) => *self.kills_of.entry(name.to_string()).or_default() += 1,
        }
    }

    /// The number of KILLs of a database here. A client from a worker with a lower count has
    /// escaped a KILL.
    pub(crate) fn kills_of(&self, database: &str) -> u64 {
        self.kills + self.kills_of.get(database).copied().unwrap_or(0)
    }
}

/// SUSPEND holds.
#[derive(Debug)]
pub struct Suspension {
    /// When connections that are not quiet are closed.
    pub(crate) until: Time,
    pub(crate) peers: BTreeMap<Peer, SuspendProgress>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SuspendProgress {
    /// In the middle of a message.
    Reading,
    /// Not read; queued bytes are being sent.
    Flushing,
    /// Neither read nor written.
    Quiet,
}

/// The progress of a takeover.
#[derive(Debug, Default)]
pub enum Takeover {
    /// No takeover.
    #[default]
    No,
    /// The worker waits for links to end.
    Holding {
        /// The time limit.
        until: Time,
        /// How many processes want to take over. At most one will, and others may have left.
        asked: u32,
    },
    /// The driver is detaching connections at rest.
    Packing {
        /// When connections that are not detached are closed.
        until: Time,
        /// When clients that read too slowly stay behind.
        slow: Time,
        /// Connections that are not detached yet.
        left: BTreeSet<Peer>,
        /// Servers of sessions that are not detached yet, with their clients. A client is detached
        /// after its server, so that the client first gets all bytes of the server.
        bound: BTreeMap<ServerId, ClientId>,
        /// Servers of sessions that are attached again until the message that they are sending is
        /// complete.
        back: BTreeSet<ServerId>,
        /// Detached servers of sessions, by client.
        carried: BTreeMap<ClientId, (Box<ServerParcel>, [u8; 32])>,
    },
    /// The successor has everything except the connections that stayed here.
    Over,
}

impl Takeover {
    /// No server is given out.
    pub fn holds(&self) -> bool {
        matches!(self, Takeover::Holding { .. } | Takeover::Packing { .. })
    }

    /// True while connections at rest go to the control thread. Only this thread can give them
    /// back.
    pub fn packs(&self) -> bool {
        matches!(self, Takeover::Packing { .. })
    }

    /// A successor has taken over.
    pub fn is_over(&self) -> bool {
        matches!(self, Takeover::Over)
    }
}
