//! One PostgreSQL as a host of placed databases: its role, its timeline, and what it says of them.

use howdah_pooler::event::{Address, Time};
use howdah_pooler::roster::question::QUESTION;

/// The database in which checks ask.
pub const CHECKED: &str = "postgres";

/// The answer to a check: its columns, or an error with its SQLSTATE.
pub type Answer = Result<[Option<String>; 6], (&'static str, &'static str)>;

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

    /// What it answers to a check now.
    pub fn answer(&self, question: &[u8], now: Time) -> Answer {
        let word = |on: bool, yes: &str, no: &str| Some(String::from(if on { yes } else { no }));
        let is_whole = question.strip_suffix(b"\0") == Some(QUESTION.as_bytes());
        if is_whole && self.hides {
            return Err(("42501", "permission denied for function pg_control_system"));
        }
        let shown = |value: u64| is_whole.then(|| value.to_string());
        Ok([
            word(self.in_recovery, "t", "f"),
            // No two hosts start at the same moment.
            Some(format!("{}.{}", self.started.0, self.number)),
            shown(7_000_000_000_000_000_001),
            shown(self.timeline.into()),
            shown(now.0 / 1000),
            word(self.read_only, "on", "off"),
        ])
    }
}
