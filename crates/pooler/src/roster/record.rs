//! What the roster knows of one host, whatever lists it is in.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fact::HostReport;
use super::lore::HostLore;
use super::verdict::{Contestant, Fence, LastWord, Ruling};
use super::view::{HostStanding, State};
use crate::config::HostPort;
use crate::event::WorkerId;
use crate::ids::Time;
use crate::limits;

/// How often the log says what a check can't find, in nanoseconds.
const HIDDEN_AGAIN_FOR_THE_LOG: u64 = 60_000_000_000;

/// Why a silent host is not used.
const SILENT: &str = "does not answer on any connection";

/// Whether a host can be reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Presence {
    #[default]
    Up,
    /// Why.
    Down(Arc<str>),
    Silent,
}

/// The question to all workers whether a byte has come from a host.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SilenceQuestion {
    /// Since this check.
    since: Time,
    /// Workers that have heard nothing.
    unheard: BTreeSet<WorkerId>,
}

/// What is known of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct HostRecord {
    /// What it has said last.
    pub(super) word: Option<LastWord>,
    presence: Presence,
    is_drained: bool,
    /// Its last check was answered.
    is_checked: bool,
    /// When the last check was answered.
    reported: Time,
    /// What checks can't find.
    hidden: Option<Arc<str>>,
    /// When the log said so.
    hidden_told: Option<Time>,
    question: Option<SilenceQuestion>,
    /// The last check that workers were asked about.
    asked: Option<Time>,
}

impl HostRecord {
    /// A check was answered: true if it lacks nothing, and an earlier one did.
    pub(super) fn is_answered(&mut self, now: Time, report: &HostReport) -> bool {
        let was_hidden = self.is_hidden();
        self.is_checked = true;
        self.reported = now;
        let is_dated = report.started.is_some() && report.lsn.is_some();
        let is_complete = is_dated && report.system.is_some() && report.timeline.is_some();
        self.hidden.take_if(|_| is_complete).is_some() || was_hidden
    }

    /// No check finds the role.
    fn is_hidden(&self) -> bool {
        self.hidden.is_some() && !self.is_checked
    }

    /// Another host has said this, and that before. If it is this host by another address, it holds
    /// here, too. If it was, and has been restarted, what is known here is out of date.
    pub(super) fn learn_of_alias(&mut self, before: Option<&LastWord>, word: &LastWord) {
        let Some(identity) = self.word.as_ref().and_then(LastWord::identity) else {
            return;
        };
        if word.identity() == Some(identity) {
            self.word = Some(word.clone());
            return;
        }
        // On a newer timeline, the other address has moved to another host, or a fence around this
        // address will end with its next check.
        let was_alias = |before: &&LastWord| before.identity() == Some(identity);
        if let Some(before) = before.filter(was_alias)
            && word.report.timeline <= before.report.timeline
        {
            self.word = None;
        }
    }

    /// What the host has said last, if a login has just reported another role. After a promotion,
    /// it is the same process on another timeline; a primary becomes a standby by a restart.
    pub(super) fn contradicted(&self, in_recovery: bool, since: Time) -> Option<LastWord> {
        if since < self.reported {
            // The login took longer than the check.
            return None;
        }
        let last = self.word.as_ref().map(|word| &word.report);
        if last.is_some_and(|report| report.in_recovery == in_recovery) {
            return None;
        }
        let last = last.cloned().unwrap_or_default();
        let report = HostReport {
            in_recovery,
            started: last.started.filter(|_| !in_recovery),
            timeline: None,
            lsn: None,
            ..last
        };
        Some(LastWord {
            report,
            in_doubt: self.is_checked,
        })
    }

    /// A check was answered, or a login has succeeded: true if the host was down or silent.
    pub(super) fn rises(&mut self) -> bool {
        self.question = None;
        std::mem::take(&mut self.presence) != Presence::Up
    }

    /// A connection has failed: true if the host was up. A silent host stays silent: it may accept
    /// connections until its queue is full.
    pub(super) fn falls(&mut self, why: &str) -> bool {
        let falls = self.is_up();
        if falls {
            self.presence = Presence::Down(shortened(why));
        }
        falls
    }

    /// A check can't find something: true if that is new.
    pub(super) fn hides(&mut self, what: &str) -> bool {
        let was_hidden = self.is_hidden();
        self.is_checked = false;
        let what = Some(shortened(what));
        let is_new = self.hidden != what;
        self.hidden = what;
        is_new || !was_hidden
    }

    /// True if the log shall say now what is hidden.
    pub(super) fn tells_hidden(&mut self, now: Time) -> bool {
        let again = |told: Time| now.0.saturating_sub(told.0) >= HIDDEN_AGAIN_FOR_THE_LOG;
        let tells = self.hidden_told.is_none_or(again);
        if tells {
            self.hidden_told = Some(now);
        }
        tells
    }

    /// A check is overdue: true if all workers must be asked about it.
    pub(super) fn is_overdue(&mut self, since: Time) -> bool {
        let asks = self.presence != Presence::Silent && self.asked < Some(since);
        if asks {
            self.asked = Some(since);
            self.question = Some(SilenceQuestion {
                since,
                unheard: BTreeSet::new(),
            });
        }
        asks
    }

    /// One of this many workers has answered: true if none has heard anything, and the host is
    /// silent now.
    pub(super) fn answers(
        &mut self,
        since: Time,
        worker: WorkerId,
        heard: bool,
        workers: u16,
    ) -> bool {
        let Some(question) = self.question.as_mut().filter(|asked| asked.since == since) else {
            return false;
        };
        if heard {
            self.question = None;
            return false;
        }
        if worker.0 < workers {
            question.unheard.insert(worker);
        }
        let is_silent = question.unheard.len() == usize::from(workers);
        if is_silent {
            self.presence = Presence::Silent;
            self.question = None;
        }
        is_silent
    }

    /// An operator takes the host out, or back in: true if that changes something.
    pub(super) fn drains(&mut self, is_drained: bool) -> bool {
        std::mem::replace(&mut self.is_drained, is_drained) != is_drained
    }

    /// An operator takes the host in again: a role that only logins report is unknown until the next
    /// one.
    pub(super) fn forgets_what_is_hidden(&mut self) {
        if self.is_hidden() {
            self.word = None;
        }
    }

    /// What a successor must know of the host.
    pub(super) fn lore(&self, host: &HostPort) -> HostLore {
        let word = self.word.as_ref().filter(|word| !word.in_doubt);
        HostLore {
            host: host.clone(),
            is_drained: self.is_drained,
            down: match &self.presence {
                Presence::Up => None,
                Presence::Down(why) => Some(why.to_string()),
                Presence::Silent => Some(SILENT.into()),
            },
            report: word.map(|word| word.report.clone()),
        }
    }

    /// What the predecessor knew of the host.
    pub(super) fn inherit(lore: &HostLore) -> HostRecord {
        let down = lore.down.as_deref();
        HostRecord {
            word: lore.report.clone().map(|report| LastWord {
                report,
                in_doubt: false,
            }),
            presence: down.map_or(Presence::Up, |why| Presence::Down(shortened(why))),
            is_drained: lore.is_drained,
            ..HostRecord::default()
        }
    }

    /// It is neither down nor silent.
    pub(super) fn is_up(&self) -> bool {
        self.presence == Presence::Up
    }

    /// The host before the verdict.
    pub(super) fn contestant<'a>(&'a self, host: &'a HostPort) -> Contestant<'a> {
        Contestant {
            host,
            word: self.word.as_ref(),
            is_up: self.is_up(),
            is_drained: self.is_drained,
            is_awaited: self.word.is_none() && self.is_up() && self.hidden.is_none(),
        }
    }

    /// The host after the verdict, with no position in the WAL, and in this state since now.
    pub(super) fn standing(
        &self,
        now: Time,
        ruling: Ruling,
        fence: Option<&Fence>,
    ) -> HostStanding {
        let (state, why) = match (&self.presence, fence) {
            _ if self.is_drained => (State::Drained, "was drained".into()),
            (_, Some(fence)) => (State::Fenced, fence.why.clone()),
            (Presence::Silent, _) => (State::Silent, SILENT.into()),
            (Presence::Down(why), _) => (State::Down, why.clone()),
            (Presence::Up, _) => {
                let hidden = self.hidden.clone().filter(|_| !ruling.behind);
                (State::Up, hidden.unwrap_or(ruling.why))
            }
        };
        let report = self.word.as_ref().map(|word| &word.report);
        HostStanding {
            role: ruling.role,
            state,
            behind: ruling.behind,
            lag_over: 0,
            read_only: report.is_some_and(|report| report.read_only),
            hidden: self.is_hidden(),
            why,
            since: now,
            timeline: report.and_then(|report| report.timeline),
            lsn: None,
        }
    }

    /// Its last known position in the WAL.
    pub(super) fn lsn(&self) -> Option<u64> {
        self.word.as_ref().and_then(|word| word.report.lsn)
    }
}

/// The beginning of a text from outside.
fn shortened(text: &str) -> Arc<str> {
    let beginning: String = text.chars().take(limits::HOST_WHY).collect();
    beginning.into()
}
