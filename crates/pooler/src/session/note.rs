//! Notes what a client's texts may do to its session, before they run.

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, Header};

use super::{Tracking, settings};
use crate::effect::{Effects, Kinds, Mention, Names, read_effects};
use crate::fault::Fault;
use crate::inbox::Chunk;
use crate::ledger::Part;
use crate::limits;
use crate::link::upstream::{Flow, Upstream, Verdict, Via};
use crate::server::state::Numbers;

impl Upstream<'_> {
    /// How to treat state that the client leaves. A replication client has a server of its own,
    /// which no other client gets later.
    pub(crate) fn tracking(&self) -> Tracking {
        match self.client.replication.any() {
            true => Tracking::Nothing,
            false => self.terms.tracking,
        }
    }

    /// Notes the effects of a Query.
    pub(crate) fn note_query(
        &mut self,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Verdict, Flow> {
        if self.tracking() == Tracking::Nothing {
            return Ok(Verdict::Runs);
        }
        if header.total() > limits::QUERY_READ {
            let there = chunk.rest().len().min(header.total());
            let front = &chunk.rest()[HEADER..there];
            return self.note_front(front, there == header.total());
        }
        let text = chunk.rest().get(HEADER..header.total());
        let text = text.ok_or(Flow::Partial)?;
        match read_effects(text) {
            Some(found) => self.note_first(&found, Via::Query),
            None => self.note_harmless(text, Via::Query),
        }
    }

    /// Notes a Query with an EXECUTE of a statement with `effects`. The Query may have more:
    /// `EXECUTE p(set_config('a.b', 'c', false)); SET work_mem = '64MB'`.
    #[cold]
    pub(crate) fn note_executed(
        &mut self,
        effects: &Effects,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Verdict, Flow> {
        let text = chunk.rest().get(HEADER..header.total());
        let text = text.ok_or(Flow::Partial)?;
        match read_effects(text) {
            Some(more) => self.note_first(&more.with(effects), Via::Query),
            None => self.note_first(effects, Via::Query),
        }
    }

    /// Notes the effects of a text that was not sent yet, if it may run.
    pub(crate) fn note_first(&mut self, found: &Effects, via: Via) -> Result<Verdict, Flow> {
        if found.is_nothing() {
            return Ok(Verdict::Runs);
        }
        if found.kinds.any(Kinds::SETS_BOUND) {
            return self.note_first(&found.bound(None), via);
        }
        if found.may_touch_session() {
            self.await_settings()?;
        }
        if via == Via::Query {
            self.names = found.names();
        }
        self.hear_first(found, via)?;
        let verdict = self.may_keep_server(found)?;
        if verdict == Verdict::Runs {
            self.note(found)?;
        }
        Ok(verdict)
    }

    /// Reads the front of a text that is too long to be held. `whole`: it came at once.
    fn note_front(&mut self, front: &[u8], whole: bool) -> Result<Verdict, Flow> {
        let session = self.client.session_mut();
        session.pieces.insert(Box::default()).read(front);
        if whole {
            self.note_end()?;
        }
        Ok(Verdict::Runs)
    }

    /// Reads more of a Query or Parse that is too long to be held.
    pub(crate) fn note_piece(&mut self, piece: &[u8]) -> Result<(), Flow> {
        let session = self.client.session_if_any();
        let Some(pieces) = session.and_then(|session| session.pieces.as_mut()) else {
            return Ok(());
        };
        pieces.read(piece);
        match self.client.inbox.left() == piece.len() {
            true => self.note_end(),
            false => Ok(()),
        }
    }

    fn note_end(&mut self) -> Result<(), Flow> {
        let session = self.client.session_if_any();
        let pieces = session.and_then(|session| session.pieces.take());
        let found = pieces.map(|pieces| pieces.end()).unwrap_or_default();
        self.client.forgets_blank_session();
        if found.names() != Names::Same
            && let Some((_, server)) = &mut self.server
        {
            server.link.doubts_meaning();
        }
        self.note(&found)
    }

    /// Notes the effects of a Parse that is passed on unchanged.
    pub(crate) fn note_parse(
        &mut self,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Verdict, Flow> {
        if self.tracking() == Tracking::Nothing {
            return Ok(Verdict::Runs);
        }
        let Some(body) = chunk.rest().get(HEADER..header.total()) else {
            let there = &chunk.rest()[HEADER..];
            return match howdah_wire::frame::cstr(there) {
                Some((_, text)) if header.total() > limits::QUERY_READ => {
                    self.note_front(text, false)
                }
                // The end of the statement's name has not come yet.
                None if there.len() > limits::QUERY_READ => self.note_first(
                    &Effects {
                        kinds: Kinds::DOUBT,
                        ..Effects::default()
                    },
                    Via::Extended,
                ),
                _ => Err(Flow::Partial),
            };
        };
        let Some((name, text)) = howdah_wire::frame::cstr(body) else {
            return Ok(Verdict::Runs);
        };
        let Some(mut found) = read_effects(text) else {
            return Ok(Verdict::Runs);
        };
        if !name.is_empty() && found.touches_session() {
            // Howdah looks at no Bind of this statement, not even later.
            found.kinds.add(Kinds::STAYS);
        }
        self.note_first(&found, Via::Extended)
    }

    /// Notes the effects of a text.
    pub(crate) fn note(&mut self, found: &Effects) -> Result<(), Flow> {
        if found.kinds.any(Kinds::SETS_BOUND) {
            return self.note(&found.bound(None));
        }
        let creates = found.kinds.any(Kinds::SCHEMA) && self.creates_temporary();
        if !creates && !found.touches_session() || self.tracking() == Tracking::Nothing {
            return Ok(());
        }
        let leaves = Kinds::PINNING
            .and(Kinds::SETS_ANY)
            .and(Kinds::SEQUENCES)
            .any(found.kinds);
        let sets = |mention: &Mention| matches!(mention, Mention::Set(_));
        let leaves = leaves || creates || found.settings.iter().any(sets);
        self.note_reset(found);
        let login_back = self.resets_login(found);
        if !leaves && !login_back && self.client.session.is_none() {
            // A RESET or UNLISTEN without anything to reset changes nothing.
            return Ok(());
        }
        if let Some((_, server)) = &mut self.server {
            server.soil(leaves);
        }
        if self.tracking() == Tracking::Cleans {
            if found.kinds.any(Kinds::SEQUENCES) {
                self.note_question_for_numbers();
            }
            return Ok(());
        }
        let pins = Kinds::PINNING.and(Kinds::SETS_ANY).and(Kinds::SEQUENCES);
        if self.tracking() == Tracking::KeepsSettings && (creates || found.kinds.any(pins)) {
            return Err(Flow::Broken(Fault::PinsInStatementMode));
        }
        if found.kinds.any(Kinds::SEQUENCES) {
            self.note_question_for_numbers();
        }
        let session = self.client.session_mut();
        session.pending.add(found);
        session.pending.login_back |= login_back;
        if creates {
            session.pending.kinds.add(Kinds::TEMPORARY);
        }
        Ok(())
    }

    /// True if the text resets a reported setting that the client asked for at login, and Howdah
    /// sends no command that restores the client's value.
    fn resets_login(&self, found: &Effects) -> bool {
        let Some(asked) = self.client.asked.as_ref().filter(|_| !self.sets_back) else {
            return false;
        };
        let known = |name: &[u8]| {
            let position = self.tracked.position(name);
            position.is_some_and(|position| asked.get(position).is_some())
        };
        found.settings.iter().any(|mention| match mention {
            Mention::Set(_) => false,
            Mention::Back(name) => known(name),
            Mention::AllBack => true,
        })
    }

    /// A RESET also resets settings of `connect_query`, which must run again before another client
    /// gets the server.
    fn note_reset(&mut self, found: &Effects) {
        let back = |mention: &Mention| !matches!(mention, Mention::Set(_));
        let resets = found.kinds.any(Kinds::DISCARDS_ALL) || found.settings.iter().any(back);
        if let Some((_, server)) = self
            .server
            .as_mut()
            .filter(|_| resets && self.terms.database.connect_query.is_some())
        {
            server.mark_soiled_unseen();
        }
    }

    /// A statement with `currval` is parsed or bound: forgets others' sequence values before any
    /// message of this group is sent.
    pub(crate) fn may_ask_numbers(&mut self, found: &Effects) {
        let tells = matches!(self.tracking(), Tracking::Keeps | Tracking::Cleans);
        if found.kinds.any(Kinds::SEQUENCES) && tells {
            self.forget_numbers();
        }
    }

    /// The client calls `currval` or `lastval`. Forgets others' sequence values now, and from now
    /// on whenever a server changes clients.
    fn note_question_for_numbers(&mut self) {
        self.counts.sequences = true;
        self.client.set_asks_numbers();
        self.forget_numbers();
    }

    /// `currval` or `lastval` is about to run: forgets sequence values of other clients. (Not if
    /// this client's last transaction was also the last one of this server. Not if the open
    /// transaction may have drawn values: its own can't be told apart from others'.)
    fn forget_numbers(&mut self) {
        const FORGET: &[u8] = b"DISCARD SEQUENCES";
        let number = self.client.number;
        // With `session_state = discard`, a client's own values end with its transaction, too.
        let kept = self.tracking() == Tracking::Keeps;
        let Some((id, server)) = &mut self.server else {
            return;
        };
        let rests = server.link.is_at_rest() && server.status == Status::Idle;
        let fresh = server.link.has_drawn_nothing() && server.not_failed();
        let others = match server.numbers() {
            Numbers::Several { again, .. } => !(again && kept),
            Numbers::Nobody | Numbers::Of(_) => false,
        };
        if !others || !rests && !fresh {
            return;
        }
        server.set_numbers_of(number);
        match server.link.group_open() && !rests {
            true => self.run_for_us(FORGET, Part::Whole),
            false => server.runs_for_us(*id, FORGET, self.out),
        }
    }

    /// Notes a text that has no effect by itself.
    #[inline(always)] // Few clients have a session.
    pub(crate) fn note_harmless(&mut self, text: &[u8], via: Via) -> Result<Verdict, Flow> {
        match self.client.session {
            None => Ok(Verdict::Runs),
            Some(_) => self.note_into(text, via),
        }
    }

    /// `SELECT ... INTO t` makes a temporary table if the client's search path has `pg_temp`.
    fn note_into(&mut self, text: &[u8], via: Via) -> Result<Verdict, Flow> {
        if !self.creates_temporary() {
            return Ok(Verdict::Runs);
        }
        let mut words = text.windows(4);
        if !words.any(|word| word.eq_ignore_ascii_case(b"into")) {
            return Ok(Verdict::Runs);
        }
        let found = Effects {
            kinds: Kinds::TEMPORARY,
            ..Effects::default()
        };
        self.note_first(&found, via)
    }

    /// True if the client's search path has `pg_temp`: CREATE then makes temporary objects.
    pub(crate) fn creates_temporary(&self) -> bool {
        let session = self.client.session.as_deref();
        let own = session.and_then(|session| settings::value(&session.settings, b"search_path"));
        let position = self.tracked.position(b"search_path");
        let params = self.client.params.as_ref();
        let reported = position.and_then(|position| params.and_then(|p| p.get(position)));
        [own, reported]
            .into_iter()
            .flatten()
            .any(|path| memchr::memmem::find(path, b"pg_temp").is_some())
    }
}
