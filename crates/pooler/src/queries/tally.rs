//! Which query texts take the most time: counts by text and pool, in bounded memory.
//!
//! A worker has at most `top_queries` rows. When the table is full, the least used tenth is
//! removed, and the use counts of the others are halved. So texts that come only once displace
//! each other, not the frequent ones. One sum keeps the counts of removed rows.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::hash_table::HashTable;

use super::text::QueryText;
use crate::Seeded;
use crate::login::key::LoginKey;
use crate::queries::watched::Watched;
use crate::times::{BOUNDS, Histogram};

/// The counts of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueryCounts {
    /// How often the query ended.
    pub calls: u64,
    /// How often it ended with an error.
    pub errors: u64,
    /// Number of rows returned or changed.
    pub rows: u64,
    /// Total time on servers, in nanoseconds.
    pub run_ns: u64,
    /// Total time that clients waited for a server, in nanoseconds.
    pub wait_ns: u64,
    /// The longest time on a server, in nanoseconds.
    pub longest_ns: u64,
    /// The distribution of times on servers.
    pub run: Histogram,
}

/// How a query ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Time on the server, in nanoseconds.
    pub run_ns: u64,
    /// Time waited for the server, in nanoseconds.
    pub wait_ns: u64,
    /// Number of rows returned or changed.
    pub rows: u64,
    /// The query ended with an error.
    pub failed: bool,
}

impl Ended {
    /// The end of a query that has run for `run_ns` nanoseconds.
    pub(crate) fn new(query: &Watched, run_ns: u64, failed: bool) -> Self {
        Ended {
            run_ns,
            wait_ns: query.waited,
            rows: query.rows,
            failed,
        }
    }
}

impl QueryCounts {
    fn count(&mut self, ended: &Ended) {
        self.calls += 1;
        self.errors += u64::from(ended.failed);
        self.rows += ended.rows;
        self.run_ns += ended.run_ns;
        self.wait_ns += ended.wait_ns;
        self.longest_ns = self.longest_ns.max(ended.run_ns);
        self.run.count(ended.run_ns);
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &QueryCounts) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.rows += other.rows;
        self.run_ns += other.run_ns;
        self.wait_ns += other.wait_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.run.add(&other.run);
    }

    /// The 99th percentile of times on servers, in nanoseconds: the bound of a bucket, so up to
    /// twice the exact value; never more than the longest time.
    pub fn p99_ns(&self) -> u64 {
        let counts = self.run.counts();
        let mut above = self.run.total() / 100;
        for (bucket, count) in counts.iter().enumerate().rev() {
            if *count > above {
                let bound = match bucket {
                    BOUNDS => u64::MAX,
                    bucket => Histogram::bound(bucket),
                };
                return bound.min(self.longest_ns);
            }
            above -= count;
        }
        0
    }
}

/// A text in a pool, with its counts.
#[derive(Clone, Debug)]
pub struct CountedQuery {
    /// The login.
    pub login: Arc<LoginKey>,
    /// The text.
    pub text: Arc<QueryText>,
    /// Its counts.
    pub counts: QueryCounts,
}

#[derive(Debug)]
struct Entry {
    line: CountedQuery,
    /// Uses, of which older ones count less.
    used: u64,
}

/// A worker's report of its table.
#[derive(Clone, Debug, Default)]
pub struct TopQueries {
    /// The rows, the most time first.
    pub lines: Vec<CountedQuery>,
    /// The sum of the removed rows.
    pub gone: QueryCounts,
    /// Number of removed rows.
    pub evicted: u64,
}

/// Counts by text and pool, in bounded memory.
#[derive(Debug)]
pub struct Tally {
    entries: HashTable<Entry>,
    seeded: Seeded,
    most: usize,
    gone: QueryCounts,
    evicted: u64,
}

impl Tally {
    /// An empty table, without room for any row.
    pub fn new(seeded: Seeded) -> Tally {
        Tally {
            entries: HashTable::new(),
            seeded,
            most: 0,
            gone: QueryCounts::default(),
            evicted: 0,
        }
    }

    /// Sets the maximum number of rows; 0 ends counting and removes all rows.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
        if most == 0 {
            self.clear();
        } else if self.entries.len() > most {
            self.evict(self.entries.len() - most);
        }
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.entries = HashTable::new();
        self.gone = QueryCounts::default();
        self.evicted = 0;
    }

    /// Counts a query that has ended in a pool.
    pub fn count(&mut self, pool: &Arc<LoginKey>, text: &Arc<QueryText>, ended: &Ended) {
        if self.most == 0 {
            return;
        }
        let seeded = self.seeded;
        let hash = hash(&seeded, pool, text);
        let same = |entry: &Entry| entry.line.text == *text && Arc::ptr_eq(&entry.line.login, pool);
        if let Some(entry) = self.entries.find_mut(hash, same) {
            entry.used += 1;
            return entry.line.counts.count(ended);
        }
        if self.entries.len() >= self.most {
            self.evict((self.most / 10).max(1));
        }
        let mut counts = QueryCounts::default();
        counts.count(ended);
        let line = CountedQuery {
            login: pool.clone(),
            text: text.clone(),
            counts,
        };
        let rehash = |entry: &Entry| self::hash(&seeded, &entry.line.login, &entry.line.text);
        let entry = Entry { line, used: 1 };
        self.entries.insert_unique(hash, entry, rehash);
    }

    fn evict(&mut self, count: usize) {
        let mut uses: Vec<u64> = self.entries.iter().map(|entry| entry.used).collect();
        let count = count.min(uses.len());
        if count == 0 {
            return;
        }
        let (_, bound, _) = uses.select_nth_unstable(count - 1);
        let bound = *bound;
        let below = self.entries.iter().filter(|entry| entry.used < bound);
        // Only some of the rows with exactly `bound` uses must go.
        let mut at_bound = count - below.count();
        let (gone, evicted) = (&mut self.gone, &mut self.evicted);
        self.entries.retain(|entry| {
            let goes = entry.used < bound || entry.used == bound && at_bound > 0;
            if goes {
                at_bound -= usize::from(entry.used == bound);
                gone.add(&entry.line.counts);
                *evicted += 1;
            }
            entry.used /= 2;
            !goes
        });
    }

    /// At most `most` rows, the most time first.
    pub fn tell(&self, most: usize) -> TopQueries {
        let mut lines: Vec<&CountedQuery> = self.entries.iter().map(|entry| &entry.line).collect();
        let longest = |line: &&CountedQuery| std::cmp::Reverse(line.counts.run_ns);
        if lines.len() > most {
            lines.select_nth_unstable_by_key(most, longest);
            lines.truncate(most);
        }
        lines.sort_by_key(longest);
        TopQueries {
            lines: lines.into_iter().cloned().collect(),
            gone: self.gone,
            evicted: self.evicted,
        }
    }
}

/// Hashes the address of the pool's key. Each row holds the key, so the address stays unique.
fn hash(seeded: &Seeded, pool: &Arc<LoginKey>, text: &QueryText) -> u64 {
    seeded.hash_one((Arc::as_ptr(pool) as usize, &*text.text))
}

/// The sum of all workers' reports.
pub fn merged(told: impl IntoIterator<Item = TopQueries>) -> TopQueries {
    let mut all: BTreeMap<(Arc<LoginKey>, Arc<QueryText>), CountedQuery> = BTreeMap::new();
    let mut sum = TopQueries::default();
    for told in told {
        sum.gone.add(&told.gone);
        sum.evicted += told.evicted;
        for line in told.lines {
            match all.entry((line.login.clone(), line.text.clone())) {
                std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(line)),
                std::collections::btree_map::Entry::Occupied(mut there) => {
                    there.get_mut().counts.add(&line.counts);
                }
            }
        }
    }
    sum.lines = all.into_values().collect();
    sum.lines
        .sort_by_key(|line| std::cmp::Reverse(line.counts.run_ns));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::text::Texts;
    use crate::seeded;

    fn pool() -> Arc<LoginKey> {
        LoginKey::new("d", "u")
    }

    fn ended(run_ns: u64) -> Ended {
        Ended {
            run_ns,
            wait_ns: 1,
            rows: 2,
            failed: false,
        }
    }

    fn tally(most: usize) -> Tally {
        let mut tally = Tally::new(seeded(1));
        tally.set_most(most);
        tally
    }

    #[test]
    fn lines_are_by_text_and_pool_and_add_up() {
        let mut texts = Texts::new(seeded(1));
        let (pool, other) = (pool(), LoginKey::new("d", "v"));
        let (one, two) = (texts.of(b"select 1"), texts.of(b"select a"));
        let (mut here, mut there) = (tally(9), tally(9));
        here.count(&pool, &one, &ended(5));
        here.count(
            &pool,
            &one,
            &Ended {
                failed: true,
                ..ended(7)
            },
        );
        here.count(&pool, &two, &ended(1));
        there.count(&other, &one, &ended(3));
        there.count(&pool.clone(), &one, &ended(30));
        let all = merged([here.tell(100), there.tell(100)]);
        let seen = all.lines.iter().map(|line| {
            let counts = &line.counts;
            (
                &*line.login.user,
                &*line.text.text,
                counts.calls,
                counts.errors,
                counts.run_ns,
            )
        });
        let seen = seen.collect::<Vec<_>>();
        assert_eq!(
            seen,
            [
                ("u", "select ?", 3, 1, 42),
                ("v", "select ?", 1, 0, 3),
                ("u", "select a", 1, 0, 1)
            ]
        );
        let forged = Arc::new(QueryText {
            fingerprint: one.fingerprint,
            text: "select forged".into(),
        });
        here.count(&pool, &forged, &ended(2));
        let lines = merged([here.tell(100), there.tell(100)]).lines;
        assert_eq!(lines.len(), 4, "an equal fingerprint is not an equal text");
        let first = &all.lines[0].counts;
        assert_eq!(
            (first.longest_ns, first.rows, first.wait_ns, first.p99_ns()),
            (30, 6, 3, 30)
        );
        assert_eq!(here.tell(1).lines.len(), 1);
        here.clear();
        assert!(here.tell(100).lines.is_empty());
    }

    #[test]
    fn a_storm_of_texts_pushes_out_itself() {
        let mut texts = Texts::new(seeded(1));
        let pool = pool();
        let usual = texts.of(b"select usual");
        let mut tally = tally(100);
        for i in 0..10_000 {
            let text = texts.of(format!("select c{i}").as_bytes());
            tally.count(&pool, &text, &ended(1));
            if i % 5 == 0 {
                tally.count(&pool, &usual, &ended(1_000_000));
            }
            assert!(tally.entries.len() <= 100);
        }
        let told = tally.tell(1000);
        let kept: u64 = told.lines.iter().map(|line| line.counts.calls).sum();
        assert_eq!(kept + told.gone.calls, 12_000, "nothing is lost");
        assert_eq!(told.evicted, 10_001 - told.lines.len() as u64);
        assert_eq!(
            (&*told.lines[0].text.text, told.lines[0].counts.calls),
            ("select usual", 2000)
        );
        tally.set_most(10);
        assert_eq!(tally.entries.len(), 10);
        tally.set_most(0);
        assert_eq!((tally.entries.len(), tally.tell(9).evicted), (0, 0));
    }

    #[test]
    fn most_are_below_the_p99() {
        let mut counts = QueryCounts::default();
        for _ in 0..985 {
            counts.count(&ended(1_000_000));
        }
        for _ in 0..15 {
            counts.count(&ended(100_000_000));
        }
        assert_eq!(
            counts.p99_ns(),
            100_000_000,
            "the longest is below its bucket's bound"
        );
        for _ in 0..1000 {
            counts.count(&ended(1_000_000));
        }
        assert_eq!(counts.p99_ns(), 1 << 20);
        assert_eq!(QueryCounts::default().p99_ns(), 0);
    }
}
