//! Where reads have gone, and why.

use crate::reads::guard::Sqlstate;

/// The classes of SQLSTATEs of reads that run again: of the guard's errors.
pub const CLASSES: [&str; 8] = ["0A", "25", "3F", "40", "42", "55", "58", "XX"];

/// Where a read goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadPlace {
    /// To a standby.
    Standby,
    /// To the primary, which shares the reads (`read_target = any`).
    Shared,
    /// To the primary: no standby fits.
    NoStandby,
    /// To the primary: no standby shows in time what the client has seen.
    Behind,
    /// To the primary: standbys have refused this text before.
    Known,
    /// To the primary, once more: a standby has refused the read just now.
    Again,
}

impl ReadPlace {
    /// All of them.
    pub const ALL: [ReadPlace; 6] = [
        ReadPlace::Standby,
        ReadPlace::Shared,
        ReadPlace::NoStandby,
        ReadPlace::Behind,
        ReadPlace::Known,
        ReadPlace::Again,
    ];

    /// The label of metrics.
    pub fn word(self) -> &'static str {
        match self {
            ReadPlace::Standby => "standby",
            ReadPlace::Shared => "primary_shared",
            ReadPlace::NoStandby => "primary_no_standby",
            ReadPlace::Behind => "primary_standbys_behind",
            ReadPlace::Known => "primary_text_refused",
            ReadPlace::Again => "primary_again",
        }
    }

    /// What a client is told of it.
    pub fn told(self) -> &'static str {
        match self {
            ReadPlace::Standby => "a standby",
            ReadPlace::Shared => "the primary shares the reads",
            ReadPlace::NoStandby => "the primary, since no standby fits",
            ReadPlace::Behind => {
                "the primary, since no standby shows yet what this client has seen"
            }
            ReadPlace::Known => "the primary, since standbys have refused this text",
            ReadPlace::Again => "the primary, since a standby has just refused it",
        }
    }
}

/// Counts of a login's reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadCounts {
    places: [u64; ReadPlace::ALL.len()],
    waits: u64,
    again: [u64; CLASSES.len()],
}

impl ReadCounts {
    /// A read begins there.
    pub fn count(&mut self, place: ReadPlace) {
        self.places[place as usize] += 1;
    }

    /// A read waits for a standby.
    pub fn count_wait(&mut self) {
        self.waits += 1;
    }

    /// A read runs again, because a standby has refused it with this SQLSTATE.
    pub fn count_again(&mut self, sqlstate: Sqlstate) {
        let class = CLASSES
            .iter()
            .position(|class| sqlstate.starts_with(class.as_bytes()));
        if let Some(class) = class {
            self.again[class] += 1;
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &ReadCounts) {
        let more = other
            .places
            .iter()
            .chain(&other.again)
            .chain([&other.waits]);
        let counts = self.places.iter_mut().chain(&mut self.again);
        for (count, more) in counts.chain([&mut self.waits]).zip(more) {
            *count += more;
        }
    }

    /// How many reads have gone where.
    pub fn places(&self) -> impl Iterator<Item = (ReadPlace, u64)> {
        ReadPlace::ALL.into_iter().zip(self.places)
    }

    /// How many reads have waited for a standby.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// How many reads have run again, by the class of the standby's SQLSTATE.
    pub fn again(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added() {
        let mut counts = ReadCounts::default();
        counts.count(ReadPlace::Again);
        counts.count_again(*b"25006");
        counts.count_wait();
        let mut sum = counts;
        sum.add(&counts);
        assert!(
            sum.places()
                .eq(ReadPlace::ALL.into_iter().zip([0, 0, 0, 0, 0, 2]))
        );
        assert_eq!(sum.waits(), 2);
        assert_eq!(sum.again().find(|(_, count)| *count > 0), Some(("25", 2)));
    }
}
