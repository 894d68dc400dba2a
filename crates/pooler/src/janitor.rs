//! The state of administrators' orders ([`Janitor`]): pauses, SUSPEND, a takeover, the end of the process.
//! Also: when the next maintenance is due.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};

use crate::ids::{ClientId, Peer, ServerId, Time};
use crate::order::Shutdown;
use crate::parcel::ServerParcel;

/// What is done several times a second, and what administrators have ordered.
#[derive(Debug, Default)]
pub struct Janitor {
    pub(crate) next: Time,
    pub(crate) next_hunger: Option<Time>,
    pub(crate) next_login: Option<Time>,
    pub(crate) paused_all: bool,
    pub(crate) paused: HashSet<String, foldhash::quality::FixedState>,
    pub(crate) disabled: HashSet<String, foldhash::quality::FixedState>,
    /// How often all servers were called in (RECONNECT, changed settings).
    pub(crate) epoch: u64,
    pub(crate) ending: Option<Shutdown>,
    pub(crate) told_idle: bool,
    pub(crate) suspension: Option<Suspension>,
    pub(crate) takeover: Takeover,
    /// The successor takes clients' TLS sessions, too.
    pub(crate) tls_travels: bool,
    /// Since when a successor has everything but for those left behind.
    pub(crate) succeeded: Option<Time>,
    /// The process that we took over from has ended: nobody comes from there any more.
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

    /// Logins that fail are tried again then, if somebody waits.
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

    /// The end waits for servers to be free: who has none gets none any more, a pause that no
    /// RESUME undoes. (An end that waits for clients needs RESUME: paused, they would never leave.)
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

    /// Has the maintenance come no later than that.
    pub(crate) fn hurry(&mut self, at: Time) {
        self.next = self.next.min(at);
    }

    /// KILL is obeyed.
    pub(crate) fn count_kill(&mut self, database: Option<&str>) {
        match database {
            None => self.kills += 1,
            Some(name) => *self.kills_of.entry(name.to_string()).or_default() += 1,
        }
    }

    /// How many KILLs of a database were obeyed here: a client that comes from a worker that has
    /// obeyed fewer has escaped some.
    pub(crate) fn kills_of(&self, database: &str) -> u64 {
        self.kills + self.kills_of.get(database).copied().unwrap_or(0)
    }
}

/// SUSPEND holds.
#[derive(Debug)]
pub struct Suspension {
    /// When who is not quiet is closed.
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
    /// Links are awaited.
    Holding {
        /// Until when.
        until: Time,
        /// How many processes want to take over. Only one will, and others may have left.
        asked: u32,
    },
    /// The driver is asked for what is at rest.
    Packing {
        /// When who is not detached yet is closed.
        until: Time,
        /// When clients that are slow to read are left behind.
        slow: Time,
        /// Who is not detached yet.
        left: BTreeSet<Peer>,
        /// Servers of sessions that are not detached yet, with their clients, whose turn comes
        /// then: all that a server says goes to its client first.
        bound: BTreeMap<ServerId, ClientId>,
        /// Those that the driver has again, until what they were saying is whole.
        back: BTreeSet<ServerId>,
        /// Those that are, by their clients.
        carried: BTreeMap<ClientId, (Box<ServerParcel>, [u8; 32])>,
    },
    /// The successor has everything, but for those left behind.
    Over,
}

impl Takeover {
    /// No server is given out.
    pub fn holds(&self) -> bool {
        matches!(self, Takeover::Holding { .. } | Takeover::Packing { .. })
    }

    /// What is at rest goes to the control thread, which alone can give it back.
    pub fn packs(&self) -> bool {
        matches!(self, Takeover::Packing { .. })
    }

    /// A successor has taken over.
    pub fn is_over(&self) -> bool {
        matches!(self, Takeover::Over)
    }
}
