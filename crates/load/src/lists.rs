//! Lists to which clients append numbers, and the judgement of what each connection sees of them.
//!
//! A connection may be served by the primary or by any standby. Whatever serves it, it must see
//! all that it has appended or seen before. PostgreSQL itself has one exception: a standby may show
//! a commit before the primary does, as long as the commit is not answered.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that is appended once in a run.
pub type Number = i64;
/// The id of a list.
pub type ListId = u64;

/// How many lists get numbers at a time.
const OPEN: usize = 4;
/// About how many numbers a list gets before another one takes its place.
const LENGTH: u64 = 100;
/// How many lists there are. The last ones grow without end.
pub const LISTS: u64 = 40_000;

/// What all clients of a run share.
#[derive(Debug, Default)]
pub struct Board {
    begun: [AtomicU64; OPEN],
    unanswered: Mutex<BTreeSet<Number>>,
}

impl Board {
    /// A list that gets numbers at present; `draw` chooses which.
    pub fn open_list(&self, draw: usize) -> ListId {
        let at = draw % OPEN;
        let round = self.begun[at].load(Ordering::Relaxed) / LENGTH;
        (at as u64 + OPEN as u64 * round).min(LISTS - 1)
    }

    /// These numbers are about to be sent.
    pub fn begin(&self, appends: &[(ListId, Number)]) {
        for (list, _) in appends {
            self.begun[(*list % OPEN as u64) as usize].fetch_add(1, Ordering::Relaxed);
        }
        let mut unanswered = self.unanswered.lock().expect("no panic while held");
        unanswered.extend(appends.iter().map(|(_, number)| *number));
    }

    /// PostgreSQL has confirmed or refused these numbers.
    pub fn answer(&self, appends: &[(ListId, Number)]) {
        let mut unanswered = self.unanswered.lock().expect("no panic while held");
        for (_, number) in appends {
            unanswered.remove(number);
        }
    }

    /// The numbers that were sent, and are neither confirmed nor refused.
    pub fn unanswered(&self) -> BTreeSet<Number> {
        self.unanswered.lock().expect("no panic while held").clone()
    }
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// PostgreSQL has confirmed its commit.
    Confirmed,
    /// It was rolled back, or PostgreSQL has refused it.
    Refused,
    /// The connection was lost before the answer.
    Unanswered,
}

/// One reading of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The list.
    pub list: ListId,
    /// Its numbers, in order.
    pub items: Vec<Number>,
    /// The port of the PostgreSQL that has answered.
    pub port: u16,
    /// It was a standby.
    pub at_standby: bool,
}

/// What a connection knows of a list.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The most that it has seen.
    seen: Vec<Number>,
    /// How much of it a primary has shown.
    firm: usize,
    /// What it has appended, confirmed.
    own: Vec<Number>,
    /// The port that has shown `seen`.
    port: u16,
}

impl Known {
    /// Takes in a reading that was sent while `unanswered` were. True if it misses numbers that
    /// PostgreSQL itself may hide at the primary.
    fn take(&mut self, read: &Reading, unanswered: &BTreeSet<Number>) -> Result<bool, String> {
        let at = |is_standby: bool| {
            if is_standby {
                "a standby"
            } else {
                "the primary"
            }
        };
        let place = format!(
            "list {} at {}, {}",
            read.list,
            read.port,
            at(read.at_standby)
        );
        let found: HashSet<Number> = read.items.iter().copied().collect();
        if let Some(number) = self.own.iter().find(|number| !found.contains(number)) {
            return Err(format!(
                "{place} misses {number}, which this connection has appended: {}",
                tail(&read.items)
            ));
        }
        if read.items.starts_with(&self.seen) {
            self.seen.clone_from(&read.items);
            self.port = read.port;
            if !read.at_standby {
                self.firm = read.items.len();
            }
            return Ok(false);
        }
        let count = read.items.len();
        let missing = self.seen.get(count..).unwrap_or_default();
        let is_earlier = self.seen.starts_with(&read.items);
        let is_excused = !read.at_standby
            && count >= self.firm
            && missing.iter().all(|number| unanswered.contains(number));
        if is_earlier && is_excused {
            self.firm = count;
            return Ok(true);
        }
        let what = if is_earlier {
            "goes back"
        } else {
            "has another order"
        };
        Err(format!(
            "{place} {what}: {} items, {}; {} had shown {}, {}",
            count,
            tail(&read.items),
            self.port,
            self.seen.len(),
            tail(&self.seen)
        ))
    }
}

/// The end of a list, for printing.
fn tail(items: &[Number]) -> String {
    let from = items.len().saturating_sub(8);
    format!("...{:?}", &items[from..])
}

/// What a client has appended and seen.
#[derive(Debug, Default)]
pub struct History {
    /// Of the connection that it has now.
    known: BTreeMap<ListId, Known>,
    /// The most that its earlier connections have seen.
    past: Vec<(ListId, Vec<Number>)>,
    appends: Vec<(ListId, Number, Fate)>,
    /// The list that it has read or appended to last.
    last: Option<ListId>,
    /// Named statements of the connection.
    pub prepared: BTreeSet<&'static str>,
    /// How many transactions that only read were answered by a standby.
    pub at_standbys: u64,
    /// How many of them were answered by a primary.
    pub at_primary: u64,
    /// How many readings missed what the primary may hide.
    pub excused: u64,
    /// How long each transaction that only reads has taken.
    pub took: Vec<Duration>,
}

impl History {
    /// A new connection begins, which has seen nothing.
    pub fn connects(&mut self) {
        let known = std::mem::take(&mut self.known);
        let seen = known.into_iter().map(|(list, known)| (list, known.seen));
        self.past.extend(seen.filter(|(_, seen)| !seen.is_empty()));
        self.prepared.clear();
        self.last = None;
    }

    /// The list that this connection has used last.
    pub fn last(&self) -> Option<ListId> {
        self.last
    }

    /// Any list that this connection has used; `draw` chooses which.
    pub fn any(&self, draw: usize) -> Option<ListId> {
        let count = self.known.len();
        self.known.keys().nth(draw.checked_rem(count)?).copied()
    }

    /// Judges a reading that was sent while `unanswered` were.
    pub fn take(&mut self, read: &Reading, unanswered: &BTreeSet<Number>) -> Result<(), String> {
        self.last = Some(read.list);
        let known = self.known.entry(read.list).or_default();
        if known.take(read, unanswered)? {
            self.excused += 1;
        }
        Ok(())
    }

    /// Notes what became of appends.
    pub fn appended(&mut self, appends: &[(ListId, Number)], fate: Fate) {
        for (list, number) in appends {
            self.appends.push((*list, *number, fate));
            if fate == Fate::Confirmed {
                self.known.entry(*list).or_default().own.push(*number);
                self.last = Some(*list);
            }
        }
    }

    /// How many appends ended so.
    pub fn count(&self, fate: Fate) -> usize {
        self.appends.iter().filter(|(_, _, of)| *of == fate).count()
    }

    /// Compares with the lists at the end; gives what is wrong.
    pub fn compare(&self, ends: &Ends) -> Vec<String> {
        let mut wrong = Vec::new();
        for (list, number, fate) in &self.appends {
            let found = ends.place.get(number);
            match fate {
                Fate::Confirmed if found != Some(list) => {
                    wrong.push(format!("{number} was confirmed, and is not in list {list}"));
                }
                Fate::Refused if found.is_some() => {
                    wrong.push(format!("{number} was refused, and is in list {list}"));
                }
                _ => {}
            }
        }
        let seen = self.past.iter().map(|(list, seen)| (list, seen));
        let seen = seen.chain(self.known.iter().map(|(list, known)| (list, &known.seen)));
        for (list, seen) in seen {
            let end = ends.lists.get(list).map_or(&[][..], Vec::as_slice);
            if !end.starts_with(seen) {
                let at = seen.iter().zip(end).take_while(|(a, b)| a == b).count();
                wrong.push(format!(
                    "list {list} was seen with {} items, which are not its first in the end: from \
                     {at} on they differ, {} and {}",
                    seen.len(),
                    tail(&seen[..(at + 8).min(seen.len())]),
                    tail(&end[..(at + 8).min(end.len())])
                ));
            }
        }
        wrong
    }

    /// The numbers that may be in a list at the end.
    fn possible(&self) -> impl Iterator<Item = Number> {
        let possible = self
            .appends
            .iter()
            .filter(|(_, _, fate)| *fate != Fate::Refused);
        possible.map(|(_, number, _)| *number)
    }
}

/// The lists of the primary at the end of a run.
#[derive(Debug, Default)]
pub struct Ends {
    lists: HashMap<ListId, Vec<Number>>,
    place: HashMap<Number, ListId>,
    twice: Vec<Number>,
}

impl Ends {
    /// All lists with their numbers.
    pub fn new(lists: HashMap<ListId, Vec<Number>>) -> Ends {
        let mut ends = Ends::default();
        for (list, items) in &lists {
            for number in items {
                if ends.place.insert(*number, *list).is_some() {
                    ends.twice.push(*number);
                }
            }
        }
        ends.lists = lists;
        ends
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// Numbers that are there twice, or that nobody has appended; `all` are the histories of all
    /// clients.
    pub fn strangers<'a>(&self, all: impl Iterator<Item = &'a History>) -> Vec<String> {
        let possible: HashSet<Number> = all.flat_map(History::possible).collect();
        let twice = self
            .twice
            .iter()
            .map(|number| format!("{number} is there twice"));
        let others = self
            .place
            .keys()
            .filter(|number| !possible.contains(number));
        let others = others.map(|number| format!("{number} is there, and nobody has committed it"));
        twice.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(items: &[Number], at_standby: bool) -> Reading {
        Reading {
            list: 1,
            items: items.to_vec(),
            port: 5432,
            at_standby,
        }
    }

    fn none() -> BTreeSet<Number> {
        BTreeSet::new()
    }

    #[test]
    fn a_list_only_grows() {
        let mut history = History::default();
        for items in [&[][..], &[1, 2], &[1, 2], &[1, 2, 3]] {
            assert_eq!(history.take(&read(items, true), &none()), Ok(()));
        }
        let shorter = history.take(&read(&[1, 2], true), &none()).unwrap_err();
        assert!(shorter.contains("goes back"), "{shorter}");
        let other = history
            .take(&read(&[1, 3, 2, 4], false), &none())
            .unwrap_err();
        assert!(other.contains("another order"), "{other}");
        history.connects();
        assert_eq!(
            history.take(&read(&[1], true), &none()),
            Ok(()),
            "another connection"
        );
    }

    #[test]
    fn own_numbers_are_seen() {
        let mut history = History::default();
        history.appended(&[(1, 7)], Fate::Confirmed);
        history.appended(&[(1, 8)], Fate::Refused);
        assert!(history.take(&read(&[5, 6], true), &none()).is_err());
        assert_eq!(history.take(&read(&[5, 6, 7], true), &none()), Ok(()));
    }

    #[test]
    fn the_primary_may_hide_what_is_unanswered_and_only_a_standby_has_shown() {
        let mut history = History::default();
        history.take(&read(&[1], false), &none()).unwrap();
        history.take(&read(&[1, 2, 3], true), &none()).unwrap();
        let (both, last) = (BTreeSet::from([2, 3]), BTreeSet::from([3]));
        assert_eq!(history.take(&read(&[1], false), &both), Ok(()));
        assert_eq!(history.excused, 1);
        assert!(
            history.take(&read(&[1, 2], true), &last).is_err(),
            "the standby has shown it"
        );
        assert!(
            history.take(&read(&[1], false), &last).is_err(),
            "2 is confirmed"
        );
        assert!(
            history
                .take(&read(&[], false), &BTreeSet::from([1, 2, 3]))
                .is_err()
        );
        assert_eq!(history.take(&read(&[1, 2, 3], false), &none()), Ok(()));
        assert!(
            history.take(&read(&[1, 2], false), &last).is_err(),
            "the primary has shown it"
        );
    }

    #[test]
    fn the_end_is_compared() {
        let mut history = History::default();
        history.appended(&[(1, 1)], Fate::Confirmed);
        history.appended(&[(1, 2)], Fate::Refused);
        history.appended(&[(1, 3)], Fate::Unanswered);
        history.take(&read(&[9, 1], true), &none()).unwrap();
        let wrong = |items: &[Number]| {
            let ends = Ends::new(HashMap::from([(1, items.to_vec())]));
            let strangers = ends.strangers([&history].into_iter());
            (history.compare(&ends).len(), strangers.len())
        };
        assert_eq!(wrong(&[9, 1]), (0, 1), "9 is nobody's");
        assert_eq!(wrong(&[9, 1, 3]), (0, 1));
        assert_eq!(wrong(&[1, 3]), (1, 0), "seen otherwise");
        assert_eq!(wrong(&[9]), (2, 1), "1 is lost, and was seen");
        assert_eq!(wrong(&[9, 1, 2]), (1, 2), "2 was refused");
        assert_eq!(wrong(&[9, 1, 1]), (0, 2));
    }

    #[test]
    fn full_lists_are_replaced() {
        let board = Board::default();
        assert_eq!(board.open_list(5), 1);
        for number in 0..LENGTH {
            board.begin(&[(1, number as Number)]);
        }
        assert_eq!(
            (board.open_list(1), board.open_list(0)),
            (1 + OPEN as u64, 0)
        );
        board.answer(&[(1, 4)]);
        assert_eq!(board.unanswered().len() as u64, LENGTH - 1);
    }
}
