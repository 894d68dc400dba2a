//! One PostgreSQL as a host of placed databases: its role, its timeline, and what it says of them.

use howdah_pooler::event::{Address, Time};
use howdah_pooler::roster::question::QUESTION;

use crate::wal::{Position, Wal};
use crate::world::World;

/// The database in which checks ask.
pub const CHECKED: &str = "postgres";

/// What all hosts are copies of.
const SYSTEM: u64 = 7_000_000_000_000_000_001;

/// An error with its SQLSTATE.
pub type Refusal = (&'static str, &'static str);

const HIDDEN: Refusal = ("42501", "permission denied for function pg_control_system");

/// The answer to a check: its columns, or an error.
pub type Answer = Result<[Option<String>; 7], Refusal>;

/// A PostgreSQL.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its number, from 0.
    pub number: usize,
    /// Where it listens.
    pub address: Address,
    /// It is one of several, and tells its role.
    pub has_role: bool,
    /// It is a standby.
    pub in_recovery: bool,
    /// The timeline that it writes; of a standby, the greatest one that it knows of.
    pub timeline: u32,
    /// The branch of the WAL that it writes or replays.
    pub branch: usize,
    /// How far it has replayed, if it is a standby.
    pub replayed: u64,
    /// When it replays again.
    pub replays_at: Time,
    /// `default_transaction_read_only` is on.
    pub read_only: bool,
    /// The user of checks may not see more than the role.
    pub hides: bool,
    /// When it was started.
    pub started: Time,
    /// It is down until this time.
    pub down_until: Time,
    /// It is starting up until this time.
    pub starting_until: Time,
    /// It takes bytes and does nothing until this time.
    pub silent_until: Time,
    /// Checks get their answers late until this time.
    pub slow_until: Time,
}

impl Host {
    /// A PostgreSQL that is up and takes writes.
    pub fn new(number: usize, address: Address, now: Time) -> Host {
        Host {
            number,
            address,
            has_role: false,
            in_recovery: false,
            timeline: 1,
            branch: 0,
            replayed: Wal::default().end(0),
            replays_at: Time(0),
            read_only: false,
            hides: false,
            started: now,
            down_until: Time(0),
            starting_until: Time(0),
            silent_until: Time(0),
            slow_until: Time(0),
        }
    }

    /// True if it is neither down nor silent.
    pub fn acts(&self, now: Time) -> bool {
        self.down_until <= now && self.silent_until <= now
    }

    /// What it reports at each login.
    pub fn reports(&self) -> Vec<(&'static str, &'static str)> {
        let word = |on: bool| if on { "on" } else { "off" };
        if !self.has_role {
            return Vec::new();
        }
        vec![
            ("in_hot_standby", word(self.in_recovery)),
            ("default_transaction_read_only", word(self.read_only)),
        ]
    }

    /// What it shows: a primary all that it has written, a standby what it has replayed.
    pub fn position(&self, wal: &Wal) -> Position {
        let branch = self.branch;
        let lsn = if self.in_recovery {
            self.replayed
        } else {
            wal.end(branch)
        };
        Position { branch, lsn }
    }

    /// It is restarted as a standby.
    pub fn joins_standbys(&mut self, wal: &Wal) {
        self.replayed = self.position(wal).lsn;
        self.in_recovery = true;
    }

    /// Replays some of what the primary has sent, and rests for a while.
    pub fn replay(&mut self, wal: &Wal, world: &mut World) {
        let chance = &mut world.chance;
        let behind = wal.behind(self.position(wal));
        if behind == 0 {
            return;
        }
        let some = if chance.once_in(3) {
            behind
        } else {
            chance.within(1..=behind)
        };
        self.replayed = wal.moved(self.position(wal), some as isize).lsn;
        let most = match chance.within(0..=999) {
            0 => 4_000_000_000,
            1..=12 => 300_000_000,
            13..=150 => 30_000_000,
            _ => 2_000_000,
        };
        self.replays_at = Time(world.now.0 + chance.number() % most);
        world.alarm(self.replays_at);
    }

    /// It has crashed or was restarted: a standby begins at an earlier position.
    pub fn falls_back(&mut self, world: &mut World) {
        if !self.in_recovery {
            return;
        }
        let (wal, records) = (world.wal.borrow(), world.chance.number() % 60);
        self.replayed = wal.moved(self.position(&wal), -(records as isize)).lsn;
        drop(wal);
        self.replays_at = Time(world.now.0 + world.chance.number() % 400_000_000);
        world.alarm(self.replays_at);
    }

    /// When it was started, as it says.
    fn start(&self) -> String {
        // No two hosts start at the same moment.
        format!("{}.{}", self.started.0, self.number)
    }

    /// What it answers to a server that asks which instance it belongs to.
    pub fn instance(&self) -> Result<[Option<String>; 3], Refusal> {
        if self.hides {
            return Err(HIDDEN);
        }
        Ok([
            Some(SYSTEM.to_string()),
            Some(self.start()),
            Some("read committed".into()),
        ])
    }

    /// What it answers to a check now.
    pub fn answer(&self, question: &[u8], wal: &Wal) -> Answer {
        let word = |on: bool, yes: &str, no: &str| Some(String::from(if on { yes } else { no }));
        let is_whole = question.strip_suffix(b"\0") == Some(QUESTION.as_bytes());
        if is_whole && self.hides {
            return Err(HIDDEN);
        }
        let shown = |value: u64| is_whole.then(|| value.to_string());
        Ok([
            word(self.in_recovery, "t", "f"),
            Some(self.start()),
            shown(SYSTEM),
            shown(self.timeline.into()),
            shown(if self.in_recovery {
                self.replayed
            } else {
                wal.insert(self.branch)
            }),
            // The simulated WAL is flushed as it is inserted.
            None,
            word(self.read_only, "on", "off"),
        ])
    }
}
