//! The WAL of the hosts with roles: what each promotion has begun, what it has kept of the WAL before, and
//! where commits lie.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use crate::sql::Token;

/// Shared by the hosts, and by the clients that compare what they read.
pub type Shared = Rc<RefCell<Wal>>;

/// Records do not begin in the header of a page.
const PAGE: u64 = 8192;
const HEADER: u64 = 24;

/// What stands before a position in a row.
const MARK: &str = "@wal:";

/// What a host shows: everything up to here. Later branches have greater numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The branch that the host is on.
    pub branch: usize,
    /// The end of the last record.
    pub lsn: u64,
}

impl Position {
    /// The place of a position that only the reply knows.
    pub const UNKNOWN: Position = Position { branch: 0, lsn: 0 };
}

impl fmt::Display for Position {
    /// All positions are as long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{:02x}.{:010x}", self.branch, self.lsn)
    }
}

/// A message with an unknown position in place of the one that it shows, and that one.
pub fn taken_off(message: &[u8]) -> (Cow<'_, [u8]>, Option<Position>) {
    let unknown = Position::UNKNOWN.to_string();
    let mut starts = message.windows(MARK.len());
    let Some(at) = starts.position(|part| part == MARK.as_bytes()) else {
        return (Cow::Borrowed(message), None);
    };
    let Some(shown) = message.get(at..at + unknown.len()).and_then(read) else {
        return (Cow::Borrowed(message), None);
    };
    let mut rest = message.to_vec();
    rest[at..at + unknown.len()].copy_from_slice(unknown.as_bytes());
    (Cow::Owned(rest), Some(shown))
}

fn read(text: &[u8]) -> Option<Position> {
    let text = std::str::from_utf8(text).ok()?.strip_prefix(MARK)?;
    let (branch, lsn) = text.split_once('.')?;
    Some(Position {
        branch: usize::from_str_radix(branch, 16).ok()?,
        lsn: u64::from_str_radix(lsn, 16).ok()?,
    })
}

/// The WAL from one promotion on. What came before is part of it.
#[derive(Debug)]
struct Branch {
    /// Where the promotion was.
    from: Option<Position>,
    /// Where its records end.
    ends: Vec<u64>,
}

/// All WAL.
#[derive(Debug)]
pub struct Wal {
    branches: Vec<Branch>,
    /// Where the commit of each statement lies.
    commits: BTreeMap<Token, Position>,
}

impl Default for Wal {
    fn default() -> Wal {
        let first = Branch {
            from: None,
            ends: vec![PAGE],
        };
        Wal {
            branches: vec![first],
            commits: BTreeMap::new(),
        }
    }
}

impl Wal {
    /// The end of a branch: what its primary shows.
    pub fn end(&self, branch: usize) -> u64 {
        self.branches[branch].ends.last().copied().unwrap_or(PAGE)
    }

    /// Where a primary inserts next: never in the header of a page.
    pub fn insert(&self, branch: usize) -> u64 {
        let end = self.end(branch);
        if end.is_multiple_of(PAGE) {
            end + HEADER
        } else {
            end
        }
    }

    /// A primary writes a record of about this length.
    pub fn write(&mut self, branch: usize, length: u64) {
        let begin = self.insert(branch);
        let mut end = begin + HEADER.max(length.next_multiple_of(8));
        if begin / PAGE < end / PAGE && !end.is_multiple_of(PAGE) {
            end += HEADER;
        }
        self.branches[branch].ends.push(end);
    }

    /// The last record of a branch is the commit of this statement.
    pub fn commits(&mut self, token: Token, branch: usize) {
        let lsn = self.end(branch);
        self.commits.insert(token, Position { branch, lsn });
    }

    /// Where the commit of a statement lies.
    pub fn commit_of(&self, token: Token) -> Option<Position> {
        self.commits.get(&token).copied()
    }

    /// A standby is promoted here.
    pub fn fork(&mut self, from: Position) -> usize {
        let ends = &self.branches[from.branch].ends;
        let ends = ends
            .iter()
            .copied()
            .filter(|end| *end <= from.lsn)
            .collect();
        let from = Some(from);
        self.branches.push(Branch { from, ends });
        self.branches.len() - 1
    }

    /// How many records of its branch a standby has not replayed.
    pub fn behind(&self, at: Position) -> usize {
        let ends = &self.branches[at.branch].ends;
        ends.len() - ends.partition_point(|end| *end <= at.lsn)
    }

    /// The position so many records later, or before.
    pub fn moved(&self, at: Position, by: isize) -> Position {
        let ends = &self.branches[at.branch].ends;
        let here = ends.partition_point(|end| *end <= at.lsn) - 1;
        let there = here.saturating_add_signed(by).min(ends.len() - 1);
        Position {
            lsn: ends[there],
            ..at
        }
    }

    /// Up to where two branches are the same.
    pub fn shared(&self, one: usize, other: usize) -> u64 {
        let others = self.ways_back(other);
        let mut ways = self.ways_back(one).into_iter();
        let met = ways.find_map(|(branch, lsn)| {
            let (_, of) = others.iter().find(|(other, _)| *other == branch)?;
            Some(lsn.min(*of))
        });
        met.unwrap_or(PAGE)
    }

    /// A branch and those before, with what is left of each.
    fn ways_back(&self, branch: usize) -> Vec<(usize, u64)> {
        let mut ways = vec![(branch, u64::MAX)];
        let mut left = u64::MAX;
        let mut at = branch;
        while let Some(from) = self.branches[at].from {
            left = left.min(from.lsn);
            at = from.branch;
            ways.push((at, left));
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_share_what_was_replayed_at_the_promotion() {
        let mut wal = Wal::default();
        for _ in 0..3 {
            wal.write(0, 100);
        }
        let first = Position {
            branch: 0,
            lsn: PAGE,
        };
        let at = wal.moved(first, 2);
        assert_eq!((wal.behind(first), wal.behind(at)), (3, 1));
        let next = wal.fork(at);
        assert_eq!(wal.end(next), at.lsn);
        wal.write(0, 100);
        wal.write(next, 100);
        let other = wal.fork(first);
        assert_eq!(wal.shared(0, next), at.lsn);
        assert_eq!(wal.shared(next, other), PAGE);
        assert_eq!(wal.shared(next, next), u64::MAX);
    }

    #[test]
    fn records_skip_the_headers_of_pages() {
        let mut wal = Wal::default();
        wal.write(0, PAGE - HEADER);
        assert_eq!(wal.end(0), 2 * PAGE);
        assert_eq!(wal.insert(0), 2 * PAGE + HEADER);
        wal.write(0, PAGE - HEADER + 8);
        assert_eq!(wal.end(0), 3 * PAGE + HEADER + 8);
    }

    #[test]
    fn positions_are_taken_off_replies() {
        let shown = Position {
            branch: 3,
            lsn: 70_000,
        };
        let (rest, found) = (format!("a{}b", Position::UNKNOWN), format!("a{shown}b"));
        let (left, taken) = taken_off(found.as_bytes());
        assert_eq!((&*left, taken), (rest.as_bytes(), Some(shown)));
        assert_eq!(taken_off(b"a@wal:0").1, None);
    }
}
