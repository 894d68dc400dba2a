//! When the sources of secrets are asked. The control thread has one [`SourceKeeper`], asks a source when
//! it says so, and mails its values to the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::{Fetched, FetchedSecret, FetchedValue, SecretSource, SourceUse};
use crate::event::Time;

const SECOND: u64 = 1_000_000_000;
/// How often a file is looked at.
const LOOKS_NS: u64 = 2 * SECOND;
/// The pause after a first failure. It doubles with each failure.
const FIRST_PAUSE_NS: u64 = SECOND;
/// The longest pause after a failure.
const LONGEST_PAUSE_NS: u64 = 60 * SECOND;
/// A source is asked at most once in this time because PostgreSQL refuses its value. If each call makes a
/// user, the time doubles from refusal to refusal, until a server logs in.
const REFUSALS_NS: u64 = 5 * SECOND;
/// The longest such time.
const LONGEST_REFUSALS_NS: u64 = 600 * SECOND;

/// What a source has answered.
#[derive(Debug)]
pub enum SourceAnswer {
    /// A value, and how long it is good for.
    Value(FetchedValue, Lifetime),
    /// The value is the one that the source gave last.
    Same,
    /// Why there is none.
    Failed(String),
}

/// How long a value is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lifetime {
    /// Its life, in nanoseconds; `None`: it has no known end.
    pub ends: Option<u64>,
    /// When the source is asked again, in nanoseconds from now; `None`: at four fifths of the life.
    pub again: Option<u64>,
}

impl Lifetime {
    /// A life of so many seconds.
    pub fn of_seconds(seconds: u64) -> Lifetime {
        Lifetime {
            ends: Some(seconds.saturating_mul(SECOND)),
            again: None,
        }
    }
}

/// A call of a source that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceCall {
    /// The source.
    pub source: SecretSource,
    /// PostgreSQL has refused the last value: another one is wanted.
    pub is_refused: bool,
}

/// What came of an answer.
#[derive(PartialEq, Eq, Debug)]
pub struct Learned {
    /// Workers must be told.
    pub is_news: bool,
    /// What the log must say: a failure that was not said yet, or the end of failures.
    pub say: Option<Result<String, String>>,
}

/// Decides when sources are asked: one call at a time for each; the next at four fifths of the value's
/// life, or after a pause that doubles from failure to failure, or because PostgreSQL refuses the value. A
/// failure keeps the old value until that ends.
#[derive(Debug, Default)]
pub struct SourceKeeper {
    kept: BTreeMap<SecretSource, KeptSource>,
    /// Sources that nobody uses any more, while a call of them is under way.
    dropped: BTreeSet<SecretSource>,
}

#[derive(Debug, Default)]
struct KeptSource {
    known: FetchedSecret,
    /// A call is under way.
    is_asked: bool,
    /// When the source is asked next; `None`: when somebody wishes it.
    next: Option<Time>,
    /// A call must follow the one under way: what was wished may be newer.
    again: bool,
    /// Failures in a row.
    failures: u32,
    /// How often in a row a value was the same though its rotation was due.
    overdue: u32,
    /// When a refusal last led to a call.
    refused: Option<Time>,
    /// How many did so in a row, and how many logins there were at the last one.
    refusals: (u32, u64),
    /// Somebody waits for that call.
    is_awaited: bool,
}

impl SourceKeeper {
    /// The configuration uses these sources. Each is asked now. True if what is known has changed.
    pub fn set(&mut self, now: Time, uses: BTreeMap<SecretSource, SourceUse>) -> bool {
        let before = self.kept.len();
        let dropped = &mut self.dropped;
        self.kept.retain(|source, kept| {
            let stays = uses.contains_key(source);
            if !stays && kept.is_asked {
                dropped.insert(source.clone());
            }
            stays
        });
        let mut is_news = self.kept.len() != before;
        for (source, used) in uses {
            let is_asked = dropped.remove(&source);
            let kept = self.kept.entry(source).or_default();
            kept.is_asked |= is_asked;
            if let Some(secret) = used.text {
                // The configuration has just read the file.
                let value = FetchedValue::password(secret);
                is_news |= kept.take_file(now, value);
            } else {
                kept.wish(now);
            }
        }
        is_news
    }

    /// When the next source is due.
    pub fn next_due(&self) -> Option<Time> {
        let waiting = self.kept.values().filter(|kept| !kept.is_asked);
        waiting.filter_map(|kept| kept.next).min()
    }

    /// The sources to ask now. Each must be answered.
    pub fn take_due(&mut self, now: Time) -> Vec<SourceCall> {
        let due = |kept: &KeptSource| !kept.is_asked && kept.next.is_some_and(|next| next <= now);
        let all = self.kept.iter_mut().filter(|(_, kept)| due(kept));
        let all = all.map(|(source, kept)| {
            kept.is_asked = true;
            kept.next = None;
            SourceCall {
                source: source.clone(),
                is_refused: kept.is_awaited,
            }
        });
        all.collect()
    }

    /// A source has answered. `chance` is random.
    pub fn answered(
        &mut self,
        now: Time,
        source: &SecretSource,
        answer: SourceAnswer,
        chance: u32,
    ) -> Learned {
        let is_file = matches!(source, SecretSource::File(_));
        let Some(kept) = self.kept.get_mut(source) else {
            // A reload has dropped it.
            self.dropped.remove(source);
            return Learned {
                is_news: false,
                say: None,
            };
        };
        kept.is_asked = false;
        let is_awaited = std::mem::take(&mut kept.is_awaited);
        let failed = kept.known.error.is_some();
        let mut learned = Learned {
            is_news: true,
            say: failed.then(|| Ok(format!("{source} gives a password again"))),
        };
        match answer {
            SourceAnswer::Value(value, _)
                if is_file && !is_awaited && kept.known.value.as_ref() == Some(&value) =>
            {
                learned.is_news = failed;
                kept.works();
            }
            SourceAnswer::Value(value, life) => {
                // Who was refused tries even the same value once more.
                let is_same = kept.gives(now, value, life, is_awaited);
                if is_same && life.ends.is_none() {
                    learned.is_news = failed;
                }
                kept.asked_again_after(now, life, chance);
                kept.stays_same(now, is_same && life.again == Some(FIRST_PAUSE_NS));
            }
            SourceAnswer::Same => {
                learned.is_news = failed || is_awaited;
                kept.works();
                // Who was refused tries the same text once more.
                kept.known.generation += u64::from(is_awaited);
            }
            SourceAnswer::Failed(why) => {
                let is_new = kept.known.error.as_ref() != Some(&why);
                learned.say = is_new.then(|| Err(format!("{source}: {why}")));
                kept.fails(now, why);
                learned.is_news = is_new || is_awaited;
            }
        }
        if is_file && kept.failures == 0 {
            kept.next = Some(Time(now.0 + LOOKS_NS));
        }
        if std::mem::take(&mut kept.again) {
            kept.next = Some(now);
        }
        learned
    }

    /// PostgreSQL has refused a value. If that is still the source's last one, it is asked anew. True if
    /// that is so late that clients must get the error: workers must be told.
    pub fn refused(&mut self, now: Time, source: &SecretSource, generation: u64) -> bool {
        let Some(kept) = self.kept.get_mut(&source.fetched()) else {
            return false;
        };
        if kept.known.generation != generation {
            return false;
        }
        if kept.is_asked {
            // The pool waits for the answer, even for a failure that is no news.
            kept.is_awaited = true;
            return false;
        }
        if !kept.is_awaited {
            let pause = kept.refusal_pause();
            let last = kept.refused.map_or(0, |at| at.0 + pause);
            let at = Time(last.max(now.0));
            kept.refused = Some(at);
            kept.is_awaited = true;
            kept.next = Some(kept.next.map_or(at, |next| next.min(at)));
        }
        let is_late = kept.next.is_some_and(|at| at.0 > now.0 + REFUSALS_NS);
        if is_late {
            kept.known.error = Some("PostgreSQL refuses the users that it gives".into());
        }
        is_late
    }

    /// What is known of all sources, for the configuration.
    pub fn fetched(&self) -> Fetched {
        let all = self.kept.iter();
        let all = all.map(|(source, kept)| (source.clone(), Arc::new(kept.known.clone())));
        Fetched::of(all.collect())
    }

    /// True if each source has answered.
    pub fn has_all_answers(&self) -> bool {
        self.kept.values().all(|kept| kept.known.has_answered())
    }
}

impl KeptSource {
    /// Somebody wants a new call.
    fn wish(&mut self, now: Time) {
        if self.is_asked {
            self.again = true;
        } else {
            self.next = Some(now);
        }
    }

    /// PostgreSQL has refused the value: how long after the last refusal the source is asked anew.
    fn refusal_pause(&mut self) -> u64 {
        let logins = self.known.logins.load(Ordering::Relaxed);
        if self.known.vanishing_user().is_none() || self.refusals.1 != logins {
            self.refusals = (0, logins);
        }
        let doubled = REFUSALS_NS << self.refusals.0.saturating_sub(1).min(7);
        self.refusals.0 += 1;
        doubled.min(LONGEST_REFUSALS_NS)
    }

    /// The text of a file. True if it is another one.
    fn take_file(&mut self, now: Time, value: FetchedValue) -> bool {
        self.next = Some(self.next.unwrap_or(Time(now.0 + LOOKS_NS)));
        if self.known.value.as_ref() == Some(&value) {
            return false;
        }
        self.known.generation += 1;
        self.known.value = Some(value);
        self.known.at = now.0;
        self.works();
        true
    }

    /// A value has come. True if it is the one before.
    fn gives(&mut self, now: Time, value: FetchedValue, life: Lifetime, is_awaited: bool) -> bool {
        self.works();
        let known = &mut self.known;
        // The same value lives longer.
        let is_same = !is_awaited && known.valid(now.0) == Some(&value);
        known.generation += u64::from(!is_same);
        let before = known.vanishing_user().cloned();
        known.value = Some(value);
        if !is_same {
            known.made = now.0;
        }
        if is_awaited && before.as_ref() != known.vanishing_user() {
            known.gone = before;
        }
        known.at = now.0;
        known.until = life.ends.map(|life| now.0.saturating_add(life));
        known.calls[0].fetch_add(1, Ordering::Relaxed);
        is_same
    }

    /// Somebody who was to rotate a value at once has not: the pauses until the next look double.
    fn stays_same(&mut self, now: Time, is_overdue: bool) {
        self.overdue = if is_overdue { self.overdue + 1 } else { 0 };
        if is_overdue {
            let pause = FIRST_PAUSE_NS << self.overdue.min(6);
            self.next = Some(Time(now.0 + pause.min(LONGEST_PAUSE_NS)));
        }
    }

    /// The next call follows from the life of the value that has just come.
    fn asked_again_after(&mut self, now: Time, life: Lifetime, chance: u32) {
        self.next = life.ends.map(|life| {
            // Up to a tenth earlier, so that many processes do not ask at the same moment.
            let early = (life / 10).saturating_mul(u64::from(chance >> 16)) >> 16;
            let after = (life / 5).saturating_mul(4).saturating_sub(early);
            Time(now.0.saturating_add(after.max(FIRST_PAUSE_NS)))
        });
        if let Some(again) = life.again {
            self.next = Some(Time(now.0.saturating_add(again.max(FIRST_PAUSE_NS))));
        }
    }

    /// The source has failed no more.
    fn works(&mut self) {
        self.failures = 0;
        self.known.error = None;
    }

    fn fails(&mut self, now: Time, why: String) {
        let pause = FIRST_PAUSE_NS << self.failures.min(6);
        self.failures += 1;
        self.known.error = Some(why);
        self.known.calls[1].fetch_add(1, Ordering::Relaxed);
        self.next = Some(Time(now.0 + pause.min(LONGEST_PAUSE_NS)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Secret;

    fn at(seconds: u64) -> Time {
        Time(seconds * SECOND)
    }

    fn command() -> SecretSource {
        SecretSource::Command(vec!["/bin/token".into()])
    }

    fn file() -> SecretSource {
        SecretSource::File("/run/word".into())
    }

    fn uses(source: SecretSource, text: Option<&str>) -> BTreeMap<SecretSource, SourceUse> {
        let text = text.map(|text| Secret::Plain(text.into()));
        let users = vec!["database d".into()];
        [(source, SourceUse { text, users })].into()
    }

    fn value(text: &str, life: Option<u64>) -> SourceAnswer {
        let secret = Secret::Plain(text.into());
        let life = life.map_or_else(Lifetime::default, Lifetime::of_seconds);
        SourceAnswer::Value(FetchedValue::password(secret), life)
    }

    fn failed() -> SourceAnswer {
        SourceAnswer::Failed("exit status 1".into())
    }

    fn asked(keeper: &mut SourceKeeper) -> Time {
        let due = keeper.next_due().unwrap();
        assert_eq!(keeper.take_due(Time(due.0 - 1)), []);
        let call = keeper.take_due(due);
        assert_eq!(call.len(), 1);
        assert_eq!(call[0].source, command());
        assert_eq!(keeper.take_due(due), [], "one call at a time");
        due
    }

    fn keeper() -> SourceKeeper {
        let mut keeper = SourceKeeper::default();
        keeper.set(at(100), uses(command(), None));
        assert_eq!(asked(&mut keeper), at(100));
        keeper
    }

    #[test]
    fn a_value_is_fetched_ahead_of_its_end() {
        for (chance, next) in [(0, 800), (u32::MAX, 701)] {
            let mut keeper = keeper();
            let learned = keeper.answered(at(100), &command(), value("a", Some(1000)), chance);
            assert!(learned.is_news && learned.say.is_none());
            let due = keeper.next_due().unwrap();
            assert!(due.0.abs_diff(at(100 + next).0) < 2 * SECOND, "{due:?}");
            let fetched = keeper.fetched();
            let known = fetched.get(&command()).unwrap();
            assert_eq!((known.generation, known.until), (1, Some(at(1100).0)));
            assert!(known.valid(at(1099).0).is_some() && known.valid(at(1100).0).is_none());
        }
    }

    #[test]
    fn failures_keep_the_value_and_their_pauses_double() {
        let mut keeper = keeper();
        keeper.answered(at(100), &command(), value("a", Some(1000)), 0);
        let mut now = asked(&mut keeper);
        let mut pauses = Vec::new();
        for count in 0..9 {
            let learned = keeper.answered(now, &command(), failed(), 0);
            assert_eq!(learned.say.is_some(), count == 0, "said once");
            let then = asked(&mut keeper);
            pauses.push((then.0 - now.0) / SECOND);
            now = then;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let known = keeper.fetched().get(&command()).unwrap().clone();
        let calls = known
            .calls
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed));
        assert_eq!((known.generation, calls), (1, [1, 9]));
        assert!(known.valid(at(1000).0).is_some() && known.error.is_some());
        let learned = keeper.answered(now, &command(), value("b", None), 0);
        assert!(matches!(learned.say, Some(Ok(_))));
        assert_eq!(keeper.next_due(), None, "a value without an end");
        assert_eq!(keeper.fetched().get(&command()).unwrap().error, None);
    }

    #[test]
    fn a_refused_value_is_fetched_anew_at_most_once_in_five_seconds() {
        let mut keeper = keeper();
        keeper.refused(at(100), &command(), 0);
        keeper.answered(at(100), &command(), value("a", None), 0);
        assert_eq!(keeper.next_due(), None, "a call was under way");
        keeper.refused(at(101), &command(), 0);
        assert_eq!(keeper.next_due(), None, "an older value was refused");
        for _ in 0..3 {
            keeper.refused(at(102), &command(), 1);
        }
        assert_eq!(asked(&mut keeper), at(102));
        keeper.answered(at(102), &command(), value("a", None), 0);
        keeper.refused(at(103), &command(), 2);
        assert_eq!(asked(&mut keeper), at(107));
        let learned = keeper.answered(at(107), &command(), failed(), 0);
        assert!(learned.is_news, "who waits is told");
        // Also if the call was under way when PostgreSQL refused.
        let next = asked(&mut keeper);
        keeper.refused(next, &command(), 2);
        assert!(keeper.answered(next, &command(), failed(), 0).is_news);
        let next = asked(&mut keeper);
        assert!(!keeper.answered(next, &command(), failed(), 0).is_news);
    }

    #[test]
    fn a_rotation_that_does_not_come_is_looked_for_ever_more_rarely() {
        let mut keeper = keeper();
        let mut now = at(100);
        let mut pauses = Vec::new();
        for count in 0..8 {
            let value = FetchedValue::password(Secret::Plain("a".into()));
            let life = Lifetime {
                ends: None,
                again: Some(FIRST_PAUSE_NS),
            };
            let answer = SourceAnswer::Value(value, life);
            let learned = keeper.answered(now, &command(), answer, 0);
            assert_eq!(learned.is_news, count == 0);
            let then = asked(&mut keeper);
            pauses.push((then.0 - now.0) / SECOND);
            now = then;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn refusals_of_users_that_are_made_come_ever_more_rarely() {
        let mut keeper = keeper();
        let user = |name: u64| {
            let value = FetchedValue::Password {
                user: Some(format!("v-{name}")),
                secret: Secret::Plain("p".into()),
                vanishes: true,
            };
            SourceAnswer::Value(value, Lifetime::of_seconds(1_000_000))
        };
        let known = |keeper: &SourceKeeper| keeper.fetched().get(&command()).unwrap().clone();
        keeper.answered(at(100), &command(), user(0), 0);
        let mut now = at(1000);
        let mut pauses = Vec::new();
        for generation in 1..=10 {
            let is_late = keeper.refused(now, &command(), generation);
            let then = asked(&mut keeper);
            assert_eq!(is_late, then.0 > now.0 + REFUSALS_NS, "clients are told");
            assert_eq!(known(&keeper).error.is_some(), is_late);
            pauses.push((then.0 - now.0) / SECOND);
            now = then;
            keeper.answered(now, &command(), user(generation), 0);
            assert_eq!(known(&keeper).gone, Some(format!("v-{}", generation - 1)));
        }
        assert_eq!(pauses, [0, 5, 10, 20, 40, 80, 160, 320, 600, 600]);
        known(&keeper).logins.fetch_add(1, Ordering::Relaxed);
        keeper.refused(now, &command(), 11);
        assert_eq!(asked(&mut keeper).0 - now.0, REFUSALS_NS);
    }

    #[test]
    fn a_reload_asks_anew_and_forgets() {
        let mut keeper = keeper();
        keeper.set(at(101), uses(command(), None));
        keeper.answered(at(102), &command(), value("old", None), 0);
        assert_eq!(
            asked(&mut keeper),
            at(102),
            "the call was older than the wish"
        );
        assert!(keeper.set(at(103), BTreeMap::new()));
        let learned = keeper.answered(at(104), &command(), value("late", None), 0);
        assert!(!learned.is_news && keeper.fetched().get(&command()).is_none());
    }

    #[test]
    fn a_source_that_goes_and_comes_back_has_one_call() {
        let mut keeper = keeper();
        keeper.set(at(100), BTreeMap::new());
        keeper.set(at(101), uses(command(), None));
        assert_eq!(keeper.take_due(at(200)), [], "the first call is under way");
        assert!(
            keeper
                .answered(at(200), &command(), value("a", None), 0)
                .is_news
        );
        assert_eq!(asked(&mut keeper), at(200), "what was wished may be newer");
    }

    #[test]
    fn a_file_is_looked_at_every_two_seconds() {
        let mut keeper = SourceKeeper::default();
        assert!(keeper.set(at(1), uses(file(), Some("a"))));
        assert_eq!(keeper.next_due(), Some(at(3)));
        assert_eq!(keeper.take_due(at(3)).len(), 1);
        let learned = keeper.answered(at(3), &file(), SourceAnswer::Same, 0);
        assert!(!learned.is_news);
        assert_eq!(keeper.take_due(at(5)).len(), 1);
        let learned = keeper.answered(at(5), &file(), value("b", None), 0);
        assert!(learned.is_news);
        assert_eq!(keeper.fetched().get(&file()).unwrap().generation, 2);
        assert!(!keeper.set(at(6), uses(file(), Some("b"))), "the same text");
        assert_eq!(keeper.next_due(), Some(at(7)));
    }
}
