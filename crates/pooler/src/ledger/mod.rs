//! The ledger of a link: the answers that the server owes, in order, and which the client sees.
//!
//! Each message that will get an answer is an entry; PostgreSQL is answering the front one.
//! Replies that Howdah makes itself (for a skipped Parse, or a Close that the server does not get)
//! are entries, too, sent when they reach the front. So the client gets answers in the order of
//! its messages. After an error, PostgreSQL skips all messages up to the next Sync, and the ledger
//! drops their entries, including Howdah's own replies.

mod entry;
mod group;

pub use entry::{
    Asked, Change, Consequences, Described, Entry, NameOp, Part, Refusal, Reply, SetOp, UnnamedOp,
};

use std::collections::{BTreeMap, VecDeque};

use group::Group;

use crate::effect::Names;
use crate::effect::first::Alters;
use crate::event::Time;
use crate::queries::text::QueryText;
use crate::queries::watched::Watched;
use crate::statement::Named;

/// How many entries have effects of each kind. With 0, no search is needed.
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

/// Where entries change names, and the server's unnamed statement: the numbers of the entries, latest
/// last. So a message that names a statement costs no search among all that is owed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Places {
    names: BTreeMap<Box<[u8]>, VecDeque<u64>>,
    unnamed: VecDeque<u64>,
}

impl Places {
    /// The name whose meaning an entry changes, once it is answered.
    fn changed(effects: &Consequences) -> Option<&[u8]> {
        let op = effects.name.as_deref()?;
        let changes = !matches!(op.change, Change::Nothing | Change::Refused(_));
        changes.then_some(&*op.name)
    }

    fn add(&mut self, effects: &Consequences, number: u64) {
        if let Some(name) = Places::changed(effects) {
            match self.names.get_mut(name) {
                Some(numbers) => numbers.push_back(number),
                None => drop(self.names.insert(name.into(), [number].into())),
            }
        }
        if effects.unnamed.is_some() {
            self.unnamed.push_back(number);
        }
    }

    /// The first entry with these effects is gone.
    fn take_first(&mut self, effects: &Consequences) {
        if let Some(name) = Places::changed(effects) {
            self.forget_first(name);
        }
        if effects.unnamed.is_some() {
            self.unnamed.pop_front();
        }
    }

    fn forget_first(&mut self, name: &[u8]) {
        if let Some(numbers) = self.names.get_mut(name) {
            numbers.pop_front();
            if numbers.is_empty() {
                self.names.remove(name);
            }
        }
    }
}

/// Messages that were already sent when a COPY from the client began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyIn {
    /// Number of Syncs, which PostgreSQL ignores.
    pub eaten: usize,
    /// CopyDone or CopyFail was sent.
    pub ended: bool,
    /// A message that breaks the COPY was sent before its end.
    pub breaks: bool,
}

/// The answers that PostgreSQL owes on a link, in order, and which of them the client sees.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: VecDeque<Entry>,
    carried: Carried,
    places: Places,
    /// Number of entries taken out at the front, which is the number of the first entry.
    taken: u64,
    /// Watched queries that have ended and are still to be taken.
    ended: VecDeque<Watched>,
    /// When the last taken query ended. The next one did not run before.
    last_end: Time,
    group: Group,
    /// Number of entries that may make PostgreSQL forget statements.
    barriers: u32,
    /// Number of Query and Sync entries, which end with a ReadyForQuery.
    readies: u32,
}

impl Ledger {
    /// True if PostgreSQL owes no answer.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry that PostgreSQL is answering.
    pub fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// The statement that PostgreSQL is describing, if Howdah reads the description.
    pub fn described(&mut self) -> Option<&mut Described> {
        let effects = self.entries.front_mut()?.effects.as_mut()?;
        effects.described.as_deref_mut()
    }

    /// Takes out the next change of a name by SQL's PREPARE or DEALLOCATE in the first entry.
    pub fn take_sql_name(&mut self) -> Option<NameOp> {
        let effects = self.entries.front_mut()?.effects.as_mut()?;
        effects.sql_names.as_mut()?.pop_front()
    }

    /// Changes how much of the current answer the client sees.
    pub fn set_part(&mut self, part: Part) {
        if let Some(front) = self.entries.front_mut() {
            front.effects_mut().part = part;
        }
    }

    /// Where PostgreSQL looks names up after the command that has just ended.
    pub fn names(&self) -> Names {
        self.front()
            .map_or(Names::Same, |front| front.effects().names)
    }

    /// Takes the change in the meaning of texts by the command that has just ended.
    pub fn take_alters(&mut self) -> Alters {
        let front = self.entries.front_mut();
        front.map_or(Alters::Nothing, |front| {
            std::mem::replace(&mut front.alters, Alters::Nothing)
        })
    }

    /// The number of the group that is being sent. A group ends with a Sync or a Query.
    pub fn group(&self) -> u32 {
        self.group.number()
    }

    /// The number of groups that are over. PostgreSQL owes a ReadyForQuery for each later group
    /// except the last.
    pub fn groups_over(&self) -> u32 {
        self.group.number().wrapping_sub(self.readies)
    }

    /// True if extended messages were sent, without a Sync or Query after them.
    pub fn group_open(&self) -> bool {
        self.group.is_open()
    }

    /// True if a message of the open group may have begun a transaction in PostgreSQL. (A Close
    /// begins none.)
    pub fn is_group_at_work(&self) -> bool {
        self.group.is_at_work()
    }

    /// True if PostgreSQL got no message of the open group and owes nothing: Howdah has answered all
    /// of the group itself.
    pub fn is_group_unsent(&self) -> bool {
        self.entries.is_empty() && self.group.is_unsent()
    }

    /// Ends the open group, of which PostgreSQL got nothing.
    pub fn end_unsent_group(&mut self) {
        self.group.end();
    }

    /// True if PostgreSQL holds answers back, because no Sync or Flush followed the last messages.
    /// True only once: the caller sends a Flush.
    pub fn needs_flush(&mut self) -> bool {
        let settings = self.has_settings() && !self.owes_ready();
        self.group.needs_flush(settings)
    }

    /// True while PostgreSQL owes the answer to settings that were sent with the client's first
    /// messages.
    #[inline]
    pub fn has_settings(&self) -> bool {
        let front = self.front();
        front.is_some_and(|entry| entry.reply == Reply::Settings)
    }

    /// True if only settings were sent for the client, besides Closes by Howdah, which can't fail.
    pub fn has_settings_only(&self) -> bool {
        let ours = |entry: &Entry| match entry.reply {
            Reply::Settings => true,
            Reply::Close => entry.swallow,
            _ => false,
        };
        self.entries.iter().all(ours)
    }

    /// True if PostgreSQL owes at most the answer to settings. (If PostgreSQL refuses the
    /// settings, it skips the messages after them.)
    fn is_fresh(&self) -> bool {
        self.entries.is_empty() || self.has_settings() && self.entries.len() == 1
    }

    /// True if a message on its way may make PostgreSQL forget statements.
    pub fn has_barrier(&self) -> bool {
        self.barriers > 0
    }

    /// True if PostgreSQL owes the answer to a client's Parse.
    pub fn owes_parse(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.reply == Reply::Parse && !entry.swallow)
    }

    /// True if PostgreSQL owes a ReadyForQuery.
    pub fn owes_ready(&self) -> bool {
        self.readies > 0
    }

    /// How many ReadyForQuery messages PostgreSQL owes.
    pub fn readies(&self) -> u32 {
        self.readies
    }

    /// How many of them the client will see.
    pub fn readies_to_client(&self) -> usize {
        let readies = self.entries.iter().filter(|entry| entry.reply.gets_ready());
        readies.filter(|entry| !entry.hides_ready()).count()
    }

    /// Whether a group that begins now is certainly not in a failed transaction; `not_failed`
    /// comes from the last ReadyForQuery. For an open group: whether this was certain when it
    /// began.
    pub fn sure_of_transaction(&self, not_failed: bool) -> bool {
        if self.group.is_open() {
            self.group.is_sure()
        } else {
            self.is_fresh() && not_failed
        }
    }

    /// Adds a message that was sent, or Howdah's own reply to one.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry, not_failed: bool) {
        if self.group.add(entry.reply) {
            self.group.set_sure(self.is_fresh() && not_failed);
        }
        self.readies += u32::from(entry.reply.gets_ready());
        self.barriers += u32::from(entry.barrier);
        if let Some(effects) = &entry.effects {
            self.carried.add(effects);
            let number = self.taken + self.entries.len() as u64;
            self.places.add(effects, number);
        }
        self.entries.push_back(entry);
    }

    /// Takes out the front entry, once answered.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Entry> {
        let mut entry = self.entries.pop_front()?;
        self.taken += 1;
        self.forget(&entry);
        if let Some(effects) = &mut entry.effects {
            self.places.take_first(effects);
            self.end_watched(effects);
        }
        Some(entry)
    }

    #[inline(never)] // Rare: most entries carry nothing.
    fn end_watched(&mut self, effects: &mut Consequences) {
        if let Some(query) = effects.watched.take() {
            self.ended.push_back(*query);
        }
    }

    /// Counts more rows of the query that PostgreSQL is answering.
    pub fn add_rows(&mut self, rows: u64) {
        let front = self.entries.front_mut();
        if let Some(query) = front.and_then(Entry::watched) {
            query.rows += rows;
        }
    }

    /// The query that PostgreSQL is answering has sent as many rows as its Execute asked for.
    pub fn fill_rows(&mut self) {
        let front = self.entries.front_mut();
        if let Some(query) = front.and_then(Entry::watched) {
            query.rows += u64::from(query.row_limit);
        }
    }

    /// The text of the query that PostgreSQL is answering, or answers next, if it is watched.
    pub fn running_text(&self) -> Option<&std::sync::Arc<QueryText>> {
        let mut texts = self.entries.iter();
        texts.find_map(|entry| Some(&entry.effects.as_ref()?.watched.as_ref()?.text))
    }

    /// Takes out the query that PostgreSQL is answering, or answers next, and how long it has run,
    /// in nanoseconds. Howdah will not see its end.
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

    /// The next query that has ended, and how long it ran, in nanoseconds.
    pub fn next_ended(&mut self, now: Time) -> Option<(Watched, u64)> {
        let query = self.ended.pop_front()?;
        let run = self.run(&query, now);
        self.last_end = now;
        Some((query, run))
    }

    /// How long a query has run: since it was sent, but not before the previous query ended.
    fn run(&self, query: &Watched, now: Time) -> u64 {
        now.0.saturating_sub(query.sent.max(self.last_end).0)
    }

    /// An error has come. It belongs to the first query of the front group, if there is one.
    pub fn note_error(&mut self, sqlstate: Option<&[u8]>) {
        for entry in &mut self.entries {
            let ends_group = matches!(entry.reply, Reply::Query | Reply::Sync);
            if let Some(query) = entry.watched() {
                let code = sqlstate.and_then(|code| code.first_chunk().copied());
                query.sqlstate.get_or_insert(code.unwrap_or(*b"XX000"));
                return;
            }
            if ends_group {
                return;
            }
        }
    }

    /// Removes an entry from the counts.
    #[inline(always)]
    fn forget(&mut self, entry: &Entry) {
        self.barriers -= u32::from(entry.barrier);
        self.readies -= u32::from(entry.reply.gets_ready());
        if let Some(effects) = &entry.effects {
            self.carried.take(effects);
        }
    }

    /// The front Query has failed: the client's names stay unchanged.
    pub fn keep_names(&mut self) {
        let Some(front) = self.entries.front_mut() else {
            return;
        };
        let named = |op: &mut Box<NameOp>| !op.name.is_empty();
        let Some(effects) = &mut front.effects else {
            return;
        };
        let changed = Places::changed(effects).map(Box::<[u8]>::from);
        if effects.name.take_if(named).is_some() {
            self.carried.names -= 1;
            if let Some(name) = changed {
                self.places.forget_first(&name);
            }
        }
    }

    /// An extended message has failed. Takes out the next entry that PostgreSQL skips, beginning
    /// with the failed one. `None` if a Sync is in front, or the ledger is empty.
    pub fn pop_failed(&mut self) -> Option<Entry> {
        if self.front()?.reply == Reply::Sync {
            return None;
        }
        let before = self.ended.len();
        let entry = self.pop();
        if self.ended.len() > before {
            // A query without an error of its own has not run.
            let ran = self.ended.back().is_some_and(|q| q.sqlstate.is_some());
            self.ended.truncate(before + usize::from(ran));
        }
        // PostgreSQL skips a Query, too, so the Query does not end the group.
        if self.entries.is_empty() {
            self.group.reopen();
        }
        entry
    }

    /// After an error and all calls of `pop_failed`: true if PostgreSQL will also skip later
    /// messages, up to a Sync.
    pub fn ends_in_failed_group(&self) -> bool {
        self.entries.is_empty()
    }

    /// Gives the open group up: the next message begins a new group, after a Sync.
    pub fn close_group(&mut self) {
        self.group.close();
    }

    /// PostgreSQL has begun a COPY from the client for the front entry. It ignores each Sync until
    /// the end of the COPY, so the entries of Syncs already sent are taken out. Other messages
    /// break the COPY. In a Query's COPY, PostgreSQL drops the breaking message and answers the
    /// later ones. (In an Execute's COPY, it skips everything up to a Sync.)
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
            // PostgreSQL also ignores a Flush, even one with a body.
            let refused = inside && entry.reply == Reply::Refused;
            !sync && !refused
        });
        self.readies -= eaten;
        self.places = self.found_places();
        // An ignored Sync has ended no group.
        let extended = self
            .front()
            .is_some_and(|entry| entry.reply == Reply::Execute);
        if extended && self.readies == 0 {
            self.group.reopen_at_work();
        }
        CopyIn {
            eaten: eaten as usize,
            ended: end.is_some(),
            breaks: breaks.is_some(),
        }
    }

    /// The client has left: swallows all answers still owed.
    pub fn orphan(&mut self) {
        for entry in &mut self.entries {
            entry.swallow = true;
            if let Some(effects) = &mut entry.effects {
                effects.watched = None;
                effects.name = None;
            }
        }
        self.carried.names = 0;
        self.places.names.clear();
    }

    /// True if changes of the client's names are not confirmed yet.
    pub fn changes_names(&self) -> bool {
        self.carried.names > 0
    }

    /// Number of changes of the client's names that are not confirmed yet.
    pub fn names_changing(&self) -> usize {
        self.carried.names as usize
    }

    /// True if changes of the server's unnamed statement are not confirmed yet.
    pub fn changes_unnamed(&self) -> bool {
        self.carried.unnamed > 0
    }

    /// The last unconfirmed change of the server's unnamed statement.
    pub fn unnamed(&self) -> Option<&UnnamedOp> {
        self.effects_of(*self.places.unnamed.back()?)
            .unnamed
            .as_ref()
    }

    /// The effects of the entry with this number.
    fn effects_of(&self, number: u64) -> &Consequences {
        self.entries[(number - self.taken) as usize].effects()
    }

    /// The places of the entries as they are now.
    fn found_places(&self) -> Places {
        let mut places = Places::default();
        for (number, entry) in (self.taken..).zip(&self.entries) {
            places.add(entry.effects(), number);
        }
        places
    }

    /// True if a Parse of a statement under this key is on its way.
    pub fn is_adding(&self, key: u128) -> bool {
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
        let numbers = self.places.names.get(name)?;
        self.effects_of(*numbers.back()?).name.as_deref()
    }

    /// True while the server describes this statement for Howdah.
    pub fn is_checking(&self, key: u128) -> bool {
        let some = self.carried.described > 0;
        let entries = self.entries.iter().filter(|_| some);
        let mut described = entries.filter_map(|entry| entry.effects().described.as_deref());
        described.any(|d| d.asked.is_none() && d.key == key)
    }

    /// True if the open group asks for the description of the client's statement with this number.
    /// (PostgreSQL may skip a description that an earlier group asks for.)
    pub fn is_describing(&self, number: u64) -> bool {
        let some = self.carried.described > 0;
        let group = self
            .entries
            .iter()
            .rev()
            .take_while(|e| some && !e.reply.gets_ready());
        let described = group.filter_map(|entry| entry.effects().described.as_deref());
        let mut asked = described.filter_map(|d| d.asked.as_ref());
        asked.any(|asked| asked.number == number)
    }

    /// The named statement of an unconfirmed definition.
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
        assert_eq!(self.found_places(), self.places, "places of entries");
        assert_eq!(count(|e| e.barrier), self.barriers as usize, "barriers");
        let readies = count(|e| e.reply.gets_ready());
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
