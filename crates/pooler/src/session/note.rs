//! Notes what a client's texts may do to its session, before they run.

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, Header};

use super::Tracking;
use crate::client::Client;
use crate::effect::{Depth, Effects, Gist, Kinds, Mention};
use crate::fault::Fault;
use crate::inbox::Chunk;
use crate::limits;
use crate::link::upstream::{Flow, LoginValues, Upstream, Verdict, await_whole, whole};
use crate::login::terms::Terms;
use crate::server::Ending;

impl Upstream<'_> {
    /// How to treat state that the client leaves.
    pub(crate) fn tracking(&self) -> Tracking {
        tracking(self.client, self.terms)
    }

    /// Notes the effects of a text that was not sent yet, if it may run.
    pub(crate) fn note_first(
        &mut self,
        found: &Effects,
        values: LoginValues,
    ) -> Result<Verdict, Flow> {
        if found.is_nothing() {
            return Ok(Verdict::Runs);
        }
        if found.kinds.any(Kinds::SETS_BOUND) {
            return self.note_first(&found.bound(None), values);
        }
        if found.touches_session() {
            self.await_settings()?;
        }
        self.hear_first(found)?;
        let verdict = self.may_keep_server(found)?;
        if verdict == Verdict::Runs {
            self.listen_alone(found)?;
            self.note(found, values)?;
        }
        Ok(verdict)
    }

    /// Looks at the front of a Query that is too long to be held.
    pub(crate) fn note_long(&mut self, chunk: &Chunk<'_>, header: Header) -> Result<Verdict, Flow> {
        self.note_front(chunk, header, Some(HEADER))
    }

    /// Looks at the front of a text that is too long to be held; `begin` is where the text begins
    /// in its message, if that is known.
    fn note_front(
        &mut self,
        chunk: &Chunk<'_>,
        header: Header,
        begin: Option<usize>,
    ) -> Result<Verdict, Flow> {
        let there = chunk.rest().len().min(header.total());
        if there < limits::FRONT {
            return Err(Flow::Partial);
        }
        let session = self.client.session_mut();
        let long = session.long.insert(Box::default());
        match begin {
            Some(begin) => long.read(&chunk.rest()[begin..there]),
            None => long.doubt(),
        }
        if there == header.total() && ends_in_doubt(self.client) {
            self.doubt_long();
        }
        Ok(Verdict::Runs)
    }

    /// Looks at more of a Query or Parse that is too long to be held.
    pub(crate) fn note_piece(&mut self, piece: &[u8]) {
        if read_piece(self.client, piece) {
            self.doubt_long();
        }
    }

    /// The text of a long message is in doubt.
    fn doubt_long(&mut self) {
        self.server.session.changes.doubt_meaning();
        self.server.session.mark_doubted();
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
        let Some(body) = whole(chunk, header) else {
            if header.total() <= limits::QUERY_READ && !self.renames {
                await_whole(self.client, self.share, true, header)?;
            }
            let there = &chunk.rest()[HEADER..];
            let begin = match howdah_wire::frame::cstr(there) {
                Some((name, _)) => Some(HEADER + name.len() + 1),
                None if there.len() < limits::FRONT => return Err(Flow::Partial),
                None => None,
            };
            return self.note_front(chunk, header, begin);
        };
        let Some((name, text)) = howdah_wire::frame::cstr(body) else {
            return Ok(Verdict::Runs);
        };
        // Behind the text follow the types of the parameters.
        let text = howdah_wire::frame::cstr(text).map_or(text, |(text, _)| text);
        let mut gist = Gist::default();
        gist.read(text, Depth::EFFECTS);
        let Some(mut found) = gist.effects else {
            return Ok(Verdict::Runs);
        };
        if !found.statements.is_empty() {
            // Nobody knows what a statement does that is executed by its name.
            found.doubt();
        }
        if !name.is_empty() && found.touches_session() {
            // Howdah looks at no Bind of this statement, not even later.
            found.kinds.add(Kinds::STAYS);
        }
        self.note_first(&found, LoginValues::Gone)
    }

    /// Notes the effects of a text.
    fn note(&mut self, found: &Effects, values: LoginValues) -> Result<(), Flow> {
        if !found.touches_session() || self.tracking() == Tracking::Nothing {
            return Ok(());
        }
        if found.kinds.any(Kinds::DOUBT) {
            self.note_doubt(found);
        }
        let kinds = self.certain(found);
        let leaves = Kinds::PINNING.and(Kinds::SEQUENCES).any(kinds);
        let sets = |mention: &Mention| matches!(mention, Mention::Set(_));
        let leaves = leaves || found.settings.iter().any(sets);
        self.note_reset(found);
        let login_back = values == LoginValues::Gone && self.resets_login(found);
        if !leaves && !login_back && self.client.session.is_none() {
            // A RESET or UNLISTEN without anything to reset changes nothing.
            return Ok(());
        }
        self.server.session.soil(leaves);
        let tracking = self.tracking();
        if tracking == Tracking::KeepsSettings && kinds.any(Kinds::PINNING.and(Kinds::SEQUENCES)) {
            return Err(Flow::Broken(Fault::PinsInStatementMode));
        }
        if kinds.any(Kinds::SEQUENCES) {
            self.note_question_for_numbers();
        }
        if tracking == Tracking::Cleans {
            return Ok(());
        }
        let session = self.client.session_mut();
        session.pending.add(found, kinds);
        session.pending.login_back |= login_back;
        Ok(())
    }

    /// The server of a text that can't be read with certainty is cleaned before any client gets the
    /// server.
    fn note_doubt(&mut self, found: &Effects) {
        self.server.session.mark_doubted();
        if found.kinds.any(Kinds::STAYS) {
            self.server.ensure_close_at_release(Ending::StateStays);
        }
    }

    /// The kinds of effects that Howdah follows for the client. Others end with the cleaning of the
    /// server.
    fn certain(&mut self, found: &Effects) -> Kinds {
        let mut kinds = found.kinds;
        if kinds.any(Kinds::DOUBT) {
            // Howdah can't tell what of these the client has.
            kinds = kinds.without(Kinds::DOUBT.and(Kinds::STAYS));
        }
        if kinds.any(Kinds::CREATES) {
            kinds = kinds.without(Kinds::CREATES);
            // The search path may begin with `pg_temp`, also that of the login.
            match self.tracking() {
                Tracking::Keeps => kinds.add(Kinds::TEMPORARY),
                _ => self.server.session.mark_doubted(),
            }
        }
        kinds
    }

    /// True if the text resets a reported setting that the client asked for at login.
    fn resets_login(&self, found: &Effects) -> bool {
        let Some(asked) = self.client.asked.as_ref() else {
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
        if resets && self.terms.database.connect_query.is_some() {
            self.server.session.mark_doubted();
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
        self.forget_numbers();
    }

    /// `currval` or `lastval` is about to run: forgets sequence values of other clients. (Not if
    /// this client's last transaction was also the last one of this server, and not in a
    /// transaction: its own values can't be told apart from others'.)
    fn forget_numbers(&mut self) {
        // With `session_state = discard`, a client's own values end with its transaction, too.
        let kept = self.tracking() == Tracking::Keeps;
        let server = &mut *self.server;
        let numbers = server.session.numbers();
        let rests = server.link.is_at_rest() && server.status == Status::Idle;
        if numbers.mixed && rests && !(numbers.again && kept) {
            server.session.forget_numbers();
            server.runs_for_us(self.server_id, b"DISCARD SEQUENCES", self.out);
        }
    }
}

/// How to treat state that a client leaves. A replication client has a server of its own, which no
/// other client gets later.
pub(crate) fn tracking(client: &Client, terms: &Terms) -> Tracking {
    if client.is_replicating() {
        Tracking::Nothing
    } else {
        terms.tracking
    }
}

/// Looks at more of a Query or Parse that is too long to be held. True if this was the last piece,
/// and the text is in doubt.
pub(crate) fn read_piece(client: &mut Client, piece: &[u8]) -> bool {
    let session = client.session_if_any();
    let Some(long) = session.and_then(|session| session.long.as_mut()) else {
        return false;
    };
    long.read(piece);
    client.inbox.left() == piece.len() && ends_in_doubt(client)
}

/// The last piece of a long text has come. True if the text is in doubt.
fn ends_in_doubt(client: &mut Client) -> bool {
    let session = client.session_if_any();
    let long = session.and_then(|session| session.long.take());
    client.forgets_blank_session();
    long.is_some_and(|long| long.is_doubtful())
}
