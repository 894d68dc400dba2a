//! The ledger of a link: which answers the server owes, in order, and which of them the client sees.
//!
//! Every message that will be answered is an entry. PostgreSQL is answering the entry in front. Replies
//! that Howdah makes itself (to a Parse that was skipped, to a Close that was kept from the server) are
//! entries of the same queue, and go out when they come to the front. So the client sees answers in the
//! order of its messages. After an error PostgreSQL skips everything up to the next Sync. The ledger
//! then drops its entries up to that Sync, Howdah's own replies included.

mod entry;

pub use entry::{
    Asked, Change, Consequences, Described, Entry, NameOp, Part, Refusal, Reply, SetOp, UnnamedOp,
};

use std::collections::VecDeque;

use crate::effect::Names;
use crate::effect::first::Alters;
use crate::event::Time;
use crate::queries::watched::Watched;
use crate::statement::Named;

/// How many entries have effects of each kind. If there are none, no search is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Carried {
    names: u32,
    sets: u32,
    unnamed: u32,
    described: u32,
}

impl Carried {
    fn add(&mut self, effects: &Consequences) {
        self.names += u32::from(effects.name.is_some());
        self.sets += u32::from(effects.set.is_some());
        self.unnamed += u32::from(effects.unnamed.is_some());
        self.described += u32::from(effects.described.is_some());
    }

    fn take(&mut self, effects: &Consequences) {
        self.names -= u32::from(effects.name.is_some());
        self.sets -= u32::from(effects.set.is_some());
        self.unnamed -= u32::from(effects.unnamed.is_some());
        self.described -= u32::from(effects.described.is_some());
    }
}

/// Messages that were sent already when a COPY from the client began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyIn {
    /// How many Syncs, which PostgreSQL eats.
    pub eaten: usize,
    /// Its end was sent.
    pub ended: bool,
    /// A message that breaks the COPY was sent before its end.
    pub breaks: bool,
}

/// The answers that PostgreSQL owes on a link, in order, and which of them the client sees.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: VecDeque<Entry>,
    carried: Carried,
    /// Watched queries that have ended and were not taken yet.
    ended: VecDeque<Watched>,
    /// When the last taken query ended. The next one did not run before that.
    last_end: Time,
    group: u32,
    group_open: bool,
    group_works: bool,
    group_sure: bool,
    flushed: bool,
    barriers: u32,
    /// Entries up to a ReadyForQuery, Query and Sync alike.
    readies: u32,
}

impl Ledger {
    /// True if PostgreSQL owes no answer.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry that PostgreSQL answers now.
    pub fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// The statement that PostgreSQL describes now, if Howdah reads the description.
    pub fn described(&mut self) -> Option<&mut Described> {
        let effects = self.entries.front_mut()?.effects.as_mut()?;
        effects.described.as_deref_mut()
    }

    /// Changes how much of the answer under way the client sees.
    pub fn set_part(&mut self, part: Part) {
        if let Some(front) = self.entries.front_mut() {
            front.effects_mut().part = part;
        }
    }

    /// Where PostgreSQL looks names up behind the command that has just ended.
    pub fn names(&self) -> Names {
        self.front()
            .map_or(Names::Same, |front| front.effects().names)
    }

    /// Takes what the command that has just ended does to the meaning of texts.
    pub fn take_alters(&mut self) -> Alters {
        let front = self.entries.front_mut();
        front.map_or(Alters::Nothing, |front| {
            std::mem::replace(&mut front.alters, Alters::Nothing)
        })
    }

    /// The number of the group being sent. A group ends with a Sync or a Query.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// How many groups are over. Groups from this number on are not: PostgreSQL owes a
    /// ReadyForQuery for each of them except the last.
    pub fn groups_over(&self) -> u32 {
        self.group.wrapping_sub(self.readies)
    }

    /// True if messages of the extended protocol were sent, and no Sync or Query behind them.
    pub fn group_open(&self) -> bool {
        self.group_open
    }

    /// True if a message of the open group may have begun a transaction in PostgreSQL. (A Close
    /// does not.)
    pub fn group_works(&self) -> bool {
        self.group_open && self.group_works
    }

    /// True if PostgreSQL holds answers back, because neither Sync nor Flush was sent behind the
    /// last messages. True only once: the caller sends a Flush.
    pub fn needs_flush(&mut self) -> bool {
        let settings = self.sets() && !self.owes_ready();
        let needs = (self.group_open || settings) && !self.flushed;
        self.flushed |= needs;
        needs
    }

    /// True while PostgreSQL owes the answer to settings that were sent along with the client's
    /// first messages.
    #[inline]
    pub fn sets(&self) -> bool {
        let front = self.front();
        front.is_some_and(|entry| entry.reply == Reply::Settings)
    }

    /// True if only the client's settings were sent for it (and Closes by Howdah, which can't
    /// fail).
    pub fn has_settings_only(&self) -> bool {
        let ours = |entry: &Entry| match entry.reply {
            Reply::Settings => true,
            Reply::Close => entry.swallow,
            _ => false,
        };
        self.entries.iter().all(ours)
    }

    /// True if PostgreSQL owes nothing but the answer to settings. (If it refuses these, it skips
    /// the messages behind them.)
    fn is_fresh(&self) -> bool {
        self.entries.is_empty() || self.sets() && self.entries.len() == 1
    }

    /// True if a message under way may make PostgreSQL forget statements.
    pub fn has_barrier(&self) -> bool {
        self.barriers > 0
    }

    /// True if PostgreSQL owes a ReadyForQuery.
    pub fn owes_ready(&self) -> bool {
        self.readies > 0
    }

    /// How many ReadyForQuery PostgreSQL owes.
    pub fn readies(&self) -> u32 {
        self.readies
    }

    /// Whether a group that begins now begins in a transaction known not to be failed, given that
    /// the last ReadyForQuery said so. In a group already open: whether it began so.
    pub fn sure_of_transaction(&self, not_failed: bool) -> bool {
        if self.group_open {
            self.group_sure
        } else {
            self.is_fresh() && not_failed
        }
    }

    /// A message that awaits a reply was sent (or its reply made).
    #[inline(always)]
    pub fn push(&mut self, entry: Entry, not_failed: bool) {
        match entry.reply {
            Reply::Query | Reply::Sync => {
                self.group = self.group.wrapping_add(1);
                self.group_open = false;
                self.readies += 1;
            }
            Reply::CopyEnd | Reply::Settings => {}
            _ if !self.group_open => {
                self.group_sure = self.is_fresh() && not_failed;
                self.group_open = true;
            }
            _ => {}
        }
        self.group_works = match entry.reply {
            Reply::Query | Reply::Sync => false,
            Reply::Close | Reply::MadeClose | Reply::MadeParse => self.group_works,
            Reply::CopyEnd | Reply::Settings => self.group_works,
            _ => true,
        };
        self.flushed = false;
        self.barriers += u32::from(entry.barrier);
        if let Some(effects) = &entry.effects {
            self.carried.add(effects);
        }
        self.entries.push_back(entry);
    }

    /// The entry in front is answered.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Entry> {
        let mut entry = self.entries.pop_front()?;
        self.forget(&entry);
        if let Some(effects) = &mut entry.effects {
            self.end_watched(effects);
        }
        Some(entry)
    }

    #[inline(never)] // Seldom: most entries carry nothing.
    fn end_watched(&mut self, effects: &mut Consequences) {
        if let Some(query) = effects.watched.take() {
            self.ended.push_back(*query);
        }
    }

    /// Counts further rows of the query that PostgreSQL answers now.
    pub fn add_rows(&mut self, rows: u64) {
        let front = self.entries.front_mut();
        if let Some(query) = front.and_then(Entry::watched) {
            query.rows += rows;
        }
    }

    /// Takes the query that PostgreSQL answers now, or next, and how long it has run, in
    /// nanoseconds. Its end will not be seen.
    pub fn take_watched(&mut self, now: Time) -> Option<(Watched, u64)> {
        let mut entries = self.entries.iter_mut();
        let query = entries.find_map(|entry| entry.effects.as_mut()?.watched.take())?;
        let run = self.run(&query, now);
        Some((*query, run))
    }

    /// True if watched queries have ended.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The next query that has ended, and for how long it has run, in nanoseconds.
    pub fn next_ended(&mut self, now: Time) -> Option<(Watched, u64)> {
        let query = self.ended.pop_front()?;
        let run = self.run(&query, now);
        self.last_end = now;
        Some((query, run))
    }

    /// How long a query has run: since it was sent and the one before it had ended.
    fn run(&self, query: &Watched, now: Time) -> u64 {
        now.0.saturating_sub(query.sent.max(self.last_end).0)
    }

    /// An error came: it is that of the first query of its group, if the group has one.
    pub fn note_error(&mut self, sqlstate: Option<&[u8]>) {
        let group = self.groups_over();
        let mut entries = self.entries.iter_mut();
        if let Some(query) = entries.find_map(Entry::watched)
            && query.group == group
        {
            let code = sqlstate.and_then(|code| code.first_chunk().copied());
            query.sqlstate.get_or_insert(code.unwrap_or(*b"XX000"));
        }
    }

    /// An entry is taken out.
    #[inline(always)]
    fn forget(&mut self, entry: &Entry) {
        self.barriers -= u32::from(entry.barrier);
        self.readies -= u32::from(matches!(entry.reply, Reply::Query | Reply::Sync));
        if let Some(effects) = &entry.effects {
            self.carried.take(effects);
        }
    }

    /// The Query in front failed: the client's names stay as they are.
    pub fn keep_names(&mut self) {
        let Some(front) = self.entries.front_mut() else {
            return;
        };
        let named = |op: &mut Box<NameOp>| !op.name.is_empty();
        let effects = front.effects.as_mut();
        if effects.is_some_and(|effects| effects.name.take_if(named).is_some()) {
            self.carried.names -= 1;
        }
    }

    /// An extended message failed: takes out the next entry that PostgreSQL skips because of that,
    /// the failed one first. None is left when a Sync is in front, or nothing is.
    pub fn pop_failed(&mut self) -> Option<Entry> {
        if self.front()?.reply == Reply::Sync {
            return None;
        }
        let before = self.ended.len();
        let entry = self.pop();
        if self.ended.len() > before {
            // Without an error of its own it has not run.
            let ran = self.ended.back().is_some_and(|q| q.sqlstate.is_some());
            self.ended.truncate(before + usize::from(ran));
        }
        // A Query is skipped, too, and does not end the group.
        self.group_open |= self.entries.is_empty();
        entry
    }

    /// After an error and all `pop_failed`: true if PostgreSQL goes on to skip what is sent, up to
    /// a Sync.
    pub fn ends_in_failed_group(&self) -> bool {
        self.entries.is_empty()
    }

    /// The open group was given up: the next message begins a new one, after a Sync.
    pub fn close_group(&mut self) {
        self.group_open = false;
    }

    /// PostgreSQL began a COPY from the client, for the entry in front, and eats every Sync up to
    /// its end. Takes those out that were sent already. What else stands there breaks the COPY; of
    /// a Query's, that is eaten, too, and what follows is answered. (An Execute's error has all
    /// skipped up to a Sync.)
    pub fn begin_copy_in(&mut self) -> CopyIn {
        let copies = |e: &Entry| {
            use Reply::{CopyEnd, MadeClose, MadeParse, Refused, Sync};
            matches!(e.reply, Sync | Refused | CopyEnd | MadeParse | MadeClose)
        };
        let end = self.entries.iter().position(|e| e.reply == Reply::CopyEnd);
        let reach = end.unwrap_or(self.entries.len());
        let breaks = (1..reach).find(|at| !copies(&self.entries[*at]));
        let simple = self.front().is_some_and(|e| e.reply == Reply::Query);
        if let (Some(at), true) = (breaks, simple)
            && let Some(entry) = self.entries.remove(at)
        {
            self.forget(&entry);
        }
        let reach = breaks.unwrap_or(reach);
        let mut at = 0;
        let mut eaten = 0;
        self.entries.retain(|entry| {
            let inside = at > 0 && at < reach;
            let sync = inside && entry.reply == Reply::Sync;
            at += 1;
            eaten += u32::from(sync);
            // A Flush is eaten, too, whatever it says.
            let refused = inside && entry.reply == Reply::Refused;
            !sync && !refused
        });
        self.readies -= eaten;
        // A Sync that was eaten has ended nothing.
        let extended = self
            .front()
            .is_some_and(|entry| entry.reply == Reply::Execute);
        if extended && self.readies == 0 {
            self.group_open = true;
            self.group_works = true;
        }
        CopyIn {
            eaten: eaten as usize,
            ended: end.is_some(),
            breaks: breaks.is_some(),
        }
    }

    /// The client has left: all answers still owed are swallowed.
    pub fn orphan(&mut self) {
        for entry in &mut self.entries {
            entry.swallow = true;
            if let Some(effects) = &mut entry.effects {
                effects.watched = None;
                effects.name = None;
            }
        }
        self.carried.names = 0;
    }

    /// Changes of the client's names are on their way.
    pub fn changes_names(&self) -> bool {
        self.carried.names > 0
    }

    /// Changes of the server's unnamed statement are on their way.
    pub fn changes_unnamed(&self) -> bool {
        self.carried.unnamed > 0
    }

    /// The server's unnamed statement, once everything that changes it is answered.
    pub fn unnamed(&self) -> Option<&UnnamedOp> {
        if self.carried.unnamed == 0 {
            return None;
        }
        let mut latest = self.entries.iter().rev();
        latest.find_map(|entry| entry.effects().unnamed.as_ref())
    }

    /// A statement is to be parsed on the server under a key.
    pub fn adds(&self, key: u128) -> bool {
        let mut sets = self
            .entries
            .iter()
            .filter_map(|e| e.effects().set.as_deref());
        self.carried.sets > 0 && sets.any(|op| op.key == key && op.add)
    }

    /// The latest pending change of a name.
    #[inline]
    pub fn pending(&self, name: &[u8]) -> Option<&NameOp> {
        match self.carried.names {
            0 => None,
            _ => self.latest(name),
        }
    }

    fn latest(&self, name: &[u8]) -> Option<&NameOp> {
        let latest = self.entries.iter().rev();
        let changes = latest.filter_map(|entry| entry.effects().name.as_deref());
        changes
            .filter(|op| !matches!(op.change, Change::Nothing | Change::Refused(_)))
            .find(|op| *op.name == *name)
    }

    /// True while the server describes the statement under a key.
    pub fn checks(&self, key: u128) -> bool {
        let some = self.carried.described > 0;
        let entries = self.entries.iter().filter(|_| some);
        let mut described = entries.filter_map(|entry| entry.effects().described.as_deref());
        described.any(|d| d.asked.is_none() && d.key == key)
    }

    /// True if the open group asks for the description of the client's statement of this number. (A
    /// description that an earlier group asks for may be skipped.)
    pub fn tells(&self, number: u64) -> bool {
        let ends = |e: &Entry| matches!(e.reply, Reply::Query | Reply::Sync);
        let some = self.carried.described > 0;
        let group = self.entries.iter().rev().take_while(|e| some && !ends(e));
        let described = group.filter_map(|entry| entry.effects().described.as_deref());
        let mut asked = described.filter_map(|d| d.asked.as_ref());
        asked.any(|asked| asked.number == number)
    }

    /// The named statement that a pending definition makes.
    pub fn pending_definition(&mut self, number: u64) -> Option<&mut Named> {
        self.entries
            .iter_mut()
            .filter_map(|entry| entry.effects.as_mut()?.name.as_deref_mut())
            .find_map(|op| match &mut op.change {
                Change::Define(named) if named.number == number => Some(named),
                _ => None,
            })
    }

    /// Verifies that the counts agree with the entries.
    pub fn check(&self) {
        let count = |f: fn(&Entry) -> bool| self.entries.iter().filter(|e| f(e)).count();
        let mut carried = Carried::default();
        for entry in &self.entries {
            carried.add(entry.effects());
        }
        assert_eq!(carried, self.carried, "effects of entries");
        assert_eq!(count(|e| e.barrier), self.barriers as usize, "barriers");
        let readies = count(|e| matches!(e.reply, Reply::Query | Reply::Sync));
        assert_eq!(readies, self.readies as usize, "readies");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(replies: &[Reply]) -> Ledger {
        let mut ledger = Ledger::default();
        for &reply in replies {
            ledger.push(Entry::forward(reply), true);
        }
        ledger
    }

    #[test]
    fn an_error_drops_up_to_the_sync() {
        use Reply::*;
        let mut ledger = ledger(&[Parse, MadeClose, Query, Sync, Parse]);
        let mut dropped = Vec::new();
        while let Some(entry) = ledger.pop_failed() {
            dropped.push(entry.reply);
        }
        assert_eq!(dropped, [Parse, MadeClose, Query]);
        assert!(!ledger.ends_in_failed_group());
        assert_eq!(ledger.pop().unwrap().reply, Sync);
        ledger.check();
    }

    #[test]
    fn a_query_that_is_skipped_ends_no_group() {
        use Reply::*;
        let mut ledger = ledger(&[Parse, Query]);
        assert!(!ledger.group_open());
        while ledger.pop_failed().is_some() {}
        assert!(ledger.group_open(), "PostgreSQL skips all up to a Sync");
        ledger.push(Entry::swallow(Sync), true);
        assert!(!ledger.group_open());
        ledger.check();
    }

    #[test]
    fn a_copy_eats_syncs_up_to_its_end() {
        use Reply::*;
        let mut open = ledger(&[Execute, Sync, Sync]);
        let begun = open.begin_copy_in();
        assert_eq!((begun.eaten, begun.ended, begun.breaks), (2, false, false));
        assert_eq!(open.len(), 1);
        let mut closed = ledger(&[Execute, Sync, Refused, CopyEnd, Sync]);
        let begun = closed.begin_copy_in();
        assert_eq!((begun.eaten, begun.ended, begun.breaks), (1, true, false));
        assert_eq!(closed.len(), 3);
        assert!(closed.owes_ready());
        closed.check();
    }

    #[test]
    fn what_is_no_copy_is_eaten_and_breaks_it() {
        use Reply::*;
        let mut simple = ledger(&[Query, Sync, Query, Sync, Query]);
        let begun = simple.begin_copy_in();
        assert_eq!((begun.eaten, begun.ended, begun.breaks), (1, false, true));
        simple.check();
        let left = std::iter::from_fn(|| simple.pop()).map(|entry| entry.reply);
        assert_eq!(left.collect::<Vec<_>>(), [Query, Sync, Query]);
        let mut extended = ledger(&[Execute, Parse, Sync]);
        let begun = extended.begin_copy_in();
        assert_eq!((begun.eaten, begun.ended, begun.breaks), (0, false, true));
        assert_eq!(extended.len(), 3, "the error is followed by the Sync");
    }

    #[test]
    fn a_group_is_sure_if_nothing_was_owed_when_it_began() {
        let mut ledger = Ledger::default();
        assert!(ledger.sure_of_transaction(true));
        assert!(!ledger.sure_of_transaction(false));
        ledger.push(Entry::forward(Reply::Bind), true);
        assert!(ledger.sure_of_transaction(true));
        ledger.push(Entry::forward(Reply::Sync), true);
        assert!(
            !ledger.sure_of_transaction(true),
            "the first group may have failed"
        );
        ledger.push(Entry::forward(Reply::Bind), true);
        assert!(!ledger.sure_of_transaction(true));
    }
}
