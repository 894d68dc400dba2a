//! The state of administrators' orders ([`Janitor`]): pauses, SUSPEND, a takeover, the end of the process.
//! Also: when the next maintenance is due.

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
    pub(crate) paused_all: bool,
    pub(crate) paused: HashSet<String, foldhash::quality::FixedState>,
    pub(crate) disabled: HashSet<String, foldhash::quality::FixedState>,
    /// How often all servers were to be replaced (RECONNECT, changed settings).
    pub(crate) epoch: u64,
    pub(crate) ending: Option<Shutdown>,
    pub(crate) told_idle: bool,
    pub(crate) suspension: Option<Suspension>,
    pub(crate) takeover: Takeover,
    /// The successor takes clients' TLS sessions, too.
    pub(crate) tls_travels: bool,
    /// When a successor got everything except the connections that stayed.
    pub(crate) succeeded: Option<Time>,
    /// The process that we took over from has ended: no more connections come from it.
    pub(crate) predecessor_ended: bool,
    /// How often clients were killed: all, and those of a database.
    kills: u64,
    kills_of: HashMap<String, u64, foldhash::quality::FixedState>,
    pub(crate) tidied: Time,
    pub(crate) stats_at: Time,
    pub(crate) period_ends: Option<Time>,
    pub(crate) older_stats_at: Time,
}

impl Janitor {
    /// When there is something to do.
    pub fn next(&self) -> Time {
        let others = [self.next_hunger, self.next_login];
        others.into_iter().flatten().fold(self.next, Time::min)
    }

    /// Failing logins are tried again at that time, if a client waits.
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

    /// PAUSE holds for this database by its name.
    pub fn is_paused_alone(&self, database: &str) -> bool {
        self.paused.contains(database)
    }

    /// No server is given out, by SUSPEND or because a successor takes over.
    pub fn holds(&self) -> bool {
        self.suspension.is_some() || self.takeover.holds()
    }

    /// PAUSE holds for some databases by their names.
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

    /// No new clients.
    pub fn is_shutting_down(&self) -> bool {
        self.ending.is_some()
    }

    /// The end waits for servers to be free: clients without a server get none any more, and no
    /// RESUME changes that. (An end that waits for clients needs RESUME: paused, they would never
    /// leave.)
    pub fn awaits_servers(&self) -> bool {
        self.ending == Some(Shutdown::Servers)
    }

    /// The end has begun, and a RESUME has no pause to undo, or must not undo it.
    pub fn ignores_resume(&self) -> bool {
        let paused = self.paused_all || self.pauses_some();
        self.awaits_servers() || self.is_shutting_down() && !paused
    }

    /// The number of the last order that called servers in.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes the next maintenance come no later than this.
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

    /// How many KILLs of a database were obeyed here: a client that arrives from a worker with a
    /// lower count has escaped some.
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
    /// Not read from; something is queued for it.
    Flushing,
    /// Neither.
    Quiet,
}

/// How far a takeover is.
#[derive(Debug, Default)]
pub enum Takeover {
    /// There is none.
    #[default]
    No,
    /// Waits for links to end.
    Holding {
        /// Until when.
        until: Time,
        /// How many processes want to take over. Only one will, and others may have left.
        asked: u32,
    },
    /// The driver is detaching connections at rest.
    Packing {
        /// When connections that are not detached by then are closed.
        until: Time,
        /// When clients that read too slowly are left behind.
        slow: Time,
        /// The connections that are not detached yet.
        left: BTreeSet<Peer>,
        /// Servers of sessions that are not detached yet, with their clients. A client is detached
        /// after its server, so that it first gets everything from the server.
        bound: BTreeMap<ServerId, ClientId>,
        /// Servers of sessions that the driver has again, until the message that they were sending
        /// is complete.
        back: BTreeSet<ServerId>,
        /// Servers of sessions that are detached, by their clients.
        carried: BTreeMap<ClientId, (Box<ServerParcel>, [u8; 32])>,
    },
    /// The successor has everything except the connections that stayed.
    Over,
}

impl Takeover {
    /// No server is given out.
    pub fn holds(&self) -> bool {
        matches!(self, Takeover::Holding { .. } | Takeover::Packing { .. })
    }

    /// True while connections at rest go to the control thread. Only the control thread can give
    /// them back.
    pub fn packs(&self) -> bool {
        matches!(self, Takeover::Packing { .. })
    }

    /// A successor has taken over.
    pub fn is_over(&self) -> bool {
        matches!(self, Takeover::Over)
    }
}
