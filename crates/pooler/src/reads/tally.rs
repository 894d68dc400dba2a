//! Where reads have gone, and why.

use crate::reads::guard::Sqlstate;

/// How many SQLSTATEs of reads that ran again are counted apart.
const CODES: usize = 16;

/// The SQLSTATE of all others.
const OTHER: Sqlstate = *b"other";

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

    /// The role of the host, and the reason: labels of metrics.
    pub fn labels(self) -> (&'static str, &'static str) {
        match self {
            ReadPlace::Standby => ("standby", "fits"),
            ReadPlace::Shared => ("primary", "shared"),
            ReadPlace::NoStandby => ("primary", "no_standby"),
            ReadPlace::Behind => ("primary", "behind"),
            ReadPlace::Known => ("primary", "text_refused"),
            ReadPlace::Again => ("primary", "again"),
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
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadCounts {
    places: [u64; ReadPlace::ALL.len()],
    waits: u64,
    again: Vec<(Sqlstate, u64)>,
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
        self.add_again(sqlstate, 1);
    }

    fn add_again(&mut self, sqlstate: Sqlstate, count: u64) {
        let is_known = self.again.iter().any(|(known, _)| *known == sqlstate);
        let name = if is_known || self.again.len() < CODES {
            sqlstate
        } else {
            OTHER
        };
        match self.again.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => *all += count,
            None => self.again.push((name, count)),
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &ReadCounts) {
        for (count, more) in self.places.iter_mut().zip(other.places) {
            *count += more;
        }
        self.waits += other.waits;
        for (sqlstate, count) in &other.again {
            self.add_again(*sqlstate, *count);
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

    /// How many reads have run again, by the SQLSTATE of the standby.
    pub fn again(&self) -> &[(Sqlstate, u64)] {
        &self.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_codes_are_counted_together() {
        let mut counts = ReadCounts::default();
        for code in 0..CODES as u8 + 3 {
            counts.count_again([b'4', b'2', b'0', b'0', b'A' + code]);
        }
        counts.count_again(*b"4200A");
        let mut sum = counts.clone();
        sum.add(&counts);
        assert_eq!(sum.again()[0], (*b"4200A", 4));
        assert_eq!(sum.again().last(), Some(&(OTHER, 6)));
    }
}
