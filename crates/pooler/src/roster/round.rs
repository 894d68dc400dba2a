//! RoundLog: how far standbys have come, so that a client never reads back in time.
//!
//! All workers share one counter, `begun`. Each question to the primary is a **round**: the worker
//! adds 1 to `begun`, *then* asks where the primary inserts into the WAL. A standby **covers** a
//! round if it has replayed what the primary answered, on the primary's timeline.
//!
//! Whoever has an answer of PostgreSQL, and reads `begun` then, knows this: all that the answer may
//! show was in the WAL before the primary is asked in any later round. So a standby that covers a
//! later round shows all of that, too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::fact::Reached;
use super::view::Instance;
use crate::config::HostPort;
use crate::ids::Time;

/// After so long, PostgreSQL has flushed each commit, in nanoseconds: it takes three times
/// `wal_writer_delay` (0.2 s) with `synchronous_commit = off`.
const FLUSHED_NS: u64 = 2_000_000_000;

/// How many rounds are remembered. When there are more, every other one of the older half is
/// forgotten: a standby that lags then covers a slightly older round than it could.
const ROUNDS: usize = 256;

/// The newest round that a standby covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cover {
    /// The PostgreSQL that does: after a restart it is another one.
    pub instance: Instance,
    /// The round; 0 for none.
    pub round: u64,
    /// How much older this round is than the newest one, in nanoseconds: the standby's lag.
    pub lag: u64,
}

/// What the standbys of a list cover. A standby without an entry has not told.
pub type Covers = BTreeMap<HostPort, Cover>;

/// The rounds of one list of hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RoundLog {
    timeline: u32,
    /// The newest last.
    begun: VecDeque<Round>,
    /// Where the primary inserted last, and since when it has inserted nothing more.
    rests: Option<(u64, Time)>,
    covers: Covers,
    awaited: Option<Awaited>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Round {
    number: u64,
    /// Where the primary inserted.
    lsn: u64,
    at: Time,
}

/// Clients wait until a standby covers a later round than this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Awaited {
    above: u64,
    /// Until when they wait.
    until: Time,
}

impl RoundLog {
    /// The primary has answered. Nothing is covered on another timeline than its own.
    pub(super) fn primary_reaches(&mut self, now: Time, reached: &Reached) {
        if self.timeline != reached.timeline {
            self.timeline = reached.timeline;
            self.begun.clear();
            self.rests = None;
            self.covers.clear();
        }
        if self
            .begun
            .back()
            .is_some_and(|last| last.number >= reached.round)
        {
            return;
        }
        if self.begun.len() >= ROUNDS {
            let mut at = 0;
            self.begun.retain(|_| {
                at += 1;
                at > ROUNDS / 2 || at % 2 == 0
            });
        }
        let lsn = page_start(self.needed(now, reached));
        self.begun.push_back(Round {
            number: reached.round,
            lsn,
            at: now,
        });
    }

    /// What a standby must have replayed to show all that the primary shows. Commits are flushed
    /// before anybody sees them, but those with `synchronous_commit = off`, which are flushed soon
    /// after. Other records may stay unflushed for long, as those of a read that has cleaned a page.
    /// Standbys do not get them, and need them for nothing.
    fn needed(&mut self, now: Time, reached: &Reached) -> u64 {
        let (_, since) = match self.rests {
            Some(rests) if rests.0 == reached.lsn => rests,
            _ => (reached.lsn, now),
        };
        self.rests = Some((reached.lsn, since));
        if now.0.saturating_sub(since.0) >= FLUSHED_NS {
            reached.flushed
        } else {
            reached.lsn
        }
    }

    /// A standby has answered. True if that changes what it covers.
    pub(super) fn standby_reaches(&mut self, host: &HostPort, reached: &Reached) -> bool {
        if self.timeline != reached.timeline {
            return self.covers.remove(host).is_some();
        }
        // A round that began after the question is left out, though the answer may cover it.
        let is_covered = |of: &&Round| of.number <= reached.round && of.lsn <= reached.lsn;
        let newest = self.begun.iter().rev().find(is_covered);
        let last = self.begun.back();
        let cover = Cover {
            instance: reached.instance,
            round: newest.map_or(0, |of| of.number),
            lag: match (last, newest) {
                (Some(last), Some(newest)) => last.at.0.saturating_sub(newest.at.0),
                _ => u64::MAX,
            },
        };
        self.covers.insert(host.clone(), cover) != Some(cover)
    }

    /// How far a standby is behind, in nanoseconds, by what it has told last; 0 if it has told nothing.
    pub(super) fn lag(&self, host: &HostPort) -> u64 {
        let Some(cover) = self.covers.get(host) else {
            return 0;
        };
        let (first, last) = (self.begun.front(), self.begun.back());
        let known = first
            .zip(last)
            .map(|(first, last)| last.at.0.saturating_sub(first.at.0));
        // It may cover none of the rounds that are known: then it is behind all of them.
        if cover.round == 0 {
            known.unwrap_or(0)
        } else {
            cover.lag
        }
    }

    /// A standby does not tell any more how far it has come. True if it covered something.
    pub(super) fn forget(&mut self, host: &HostPort) -> bool {
        self.covers.remove(host).is_some()
    }

    /// Clients wait for a later round than this one. True if the primary must be asked for it.
    pub(super) fn await_round(&mut self, above: u64, until: Time) -> bool {
        let before = self.awaited.replace(Awaited { above, until });
        if let (Some(before), Some(now)) = (before, &mut self.awaited) {
            now.above = now.above.max(before.above);
            now.until = now.until.max(before.until);
        }
        let last = self.begun.back().map_or(0, |last| last.number);
        last <= above
    }

    /// True if clients wait for a round, it has begun, and this standby does not cover it yet.
    pub(super) fn is_awaited_of(&mut self, now: Time, host: &HostPort) -> bool {
        self.awaited.take_if(|awaited| awaited.until <= now);
        let Some(Awaited { above, .. }) = self.awaited else {
            return false;
        };
        let last = self.begun.back().map_or(0, |last| last.number);
        let covered = self.covers.get(host).map_or(0, |cover| cover.round);
        last > above && covered <= above
    }

    /// What the standbys cover.
    pub(super) fn covers(&self) -> Arc<Covers> {
        Arc::new(self.covers.clone())
    }
}

/// The start of a page of the WAL, if this is the position behind its header: all records before it
/// end where the page starts, and that is what a standby has replayed then.
fn page_start(lsn: u64) -> u64 {
    const PAGE: u64 = 8192;
    const SHORT_HEADER: u64 = 24;
    const LONG_HEADER: u64 = 40;
    match lsn % PAGE {
        SHORT_HEADER | LONG_HEADER => lsn - lsn % PAGE,
        _ => lsn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Host;

    fn host(name: &str) -> HostPort {
        HostPort {
            host: Host::Name(name.into()),
            port: 5432,
        }
    }

    fn reached(round: u64, lsn: u64) -> Reached {
        Reached {
            round,
            lsn,
            flushed: lsn,
            timeline: 1,
            instance: Instance(9),
        }
    }

    /// After these rounds of the primary, a second apart.
    fn after(rounds: &[(u64, u64)]) -> RoundLog {
        let mut all = RoundLog::default();
        for (round, lsn) in rounds {
            all.primary_reaches(Time(round * 1_000), &reached(*round, *lsn));
        }
        all
    }

    fn covered(rounds: &mut RoundLog, of: Reached) -> Option<(u64, u64)> {
        rounds.standby_reaches(&host("s"), &of);
        let cover = rounds.covers.get(&host("s"))?;
        Some((cover.round, cover.lag))
    }

    #[test]
    fn a_standby_covers_what_it_has_replayed() {
        let mut rounds = after(&[(1, 100), (2, 200), (4, 300)]);
        assert_eq!(covered(&mut rounds, reached(4, 99)), Some((0, u64::MAX)));
        assert_eq!(covered(&mut rounds, reached(4, 100)), Some((1, 3_000)));
        assert_eq!(covered(&mut rounds, reached(4, 299)), Some((2, 2_000)));
        assert_eq!(covered(&mut rounds, reached(4, 300)), Some((4, 0)));
        assert_eq!(
            covered(&mut rounds, reached(3, 900)),
            Some((2, 2_000)),
            "asked before"
        );
        // It has crashed, and shows less than before.
        assert_eq!(covered(&mut rounds, reached(4, 150)), Some((1, 3_000)));
    }

    #[test]
    fn what_stays_unflushed_is_no_commit() {
        let mut rounds = RoundLog::default();
        let unflushed = |round| Reached {
            flushed: 90,
            ..reached(round, 100)
        };
        let seconds = |count: u64| Time(count * 1_000_000_000);
        rounds.primary_reaches(seconds(1), &unflushed(1));
        rounds.primary_reaches(seconds(2), &unflushed(2));
        assert_eq!(covered(&mut rounds, reached(2, 90)).map(|of| of.0), Some(0));
        rounds.primary_reaches(seconds(3), &unflushed(3));
        assert_eq!(covered(&mut rounds, reached(3, 90)).map(|of| of.0), Some(3));
        // Something is inserted again.
        let more = Reached {
            lsn: 110,
            ..unflushed(4)
        };
        rounds.primary_reaches(seconds(4), &more);
        assert_eq!(covered(&mut rounds, reached(4, 90)).map(|of| of.0), Some(3));
    }

    #[test]
    fn nothing_is_covered_across_timelines() {
        let mut rounds = after(&[(1, 100)]);
        let new = |round, lsn| Reached {
            timeline: 2,
            ..reached(round, lsn)
        };
        assert_eq!(covered(&mut rounds, reached(1, 100)), Some((1, 0)));
        assert_eq!(
            covered(&mut rounds, new(1, 100)),
            None,
            "it follows another one"
        );
        assert_eq!(covered(&mut rounds, reached(1, 100)), Some((1, 0)));
        rounds.primary_reaches(Time(2_000), &new(2, 90));
        assert!(rounds.covers.is_empty());
        assert_eq!(covered(&mut rounds, reached(2, 900)), None);
        assert_eq!(covered(&mut rounds, new(2, 90)), Some((2, 0)));
    }

    #[test]
    fn many_rounds_are_thinned() {
        let rounds: Vec<(u64, u64)> = (1..=10_000).map(|at| (at, at * 10)).collect();
        let mut all = after(&rounds);
        assert!(all.begun.len() <= ROUNDS);
        assert_eq!(
            covered(&mut all, reached(10_000, 100_000)),
            Some((10_000, 0))
        );
        let (round, _) = covered(&mut all, reached(10_000, 99_000)).unwrap();
        assert!((9_890..=9_900).contains(&round), "{round}");
    }

    #[test]
    fn a_standby_that_covers_nothing_is_behind_all_that_is_known() {
        let mut rounds = after(&[(1, 100)]);
        assert_eq!(rounds.lag(&host("s")), 0, "it has told nothing");
        covered(&mut rounds, reached(1, 50));
        assert_eq!(rounds.lag(&host("s")), 0);
        rounds.primary_reaches(Time(5_000), &reached(2, 100));
        assert_eq!(rounds.lag(&host("s")), 4_000);
        covered(&mut rounds, reached(2, 100));
        assert_eq!(rounds.lag(&host("s")), 0);
        assert!(rounds.forget(&host("s")) && !rounds.forget(&host("s")));
    }

    #[test]
    fn a_page_header_holds_no_record() {
        assert_eq!(page_start(8192 + 24), 8192);
        assert_eq!(page_start((1 << 24) + 40), 1 << 24);
        assert_eq!(page_start(8192 + 32), 8192 + 32);
    }

    #[test]
    fn standbys_are_asked_until_one_covers_an_awaited_round() {
        let mut rounds = after(&[(1, 100)]);
        let (of, now) = (host("s"), Time(5_000));
        assert!(
            rounds.await_round(1, Time(9_000)),
            "the primary must be asked"
        );
        assert!(!rounds.is_awaited_of(now, &of), "the round has not begun");
        rounds.primary_reaches(now, &reached(2, 200));
        assert!(!rounds.await_round(1, Time(8_000)));
        assert!(rounds.is_awaited_of(now, &of));
        rounds.standby_reaches(&of, &reached(2, 150));
        assert!(rounds.is_awaited_of(now, &of));
        rounds.standby_reaches(&of, &reached(2, 200));
        assert!(!rounds.is_awaited_of(now, &of));
        assert!(rounds.is_awaited_of(now, &host("other")));
        assert!(
            !rounds.is_awaited_of(Time(9_000), &host("other")),
            "they have given up"
        );
    }
}
