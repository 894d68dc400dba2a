//! What a client must receive: a session of its own that gets the client's messages.
//!
//! The session runs only as far as the replies have come. So if PostgreSQL may do one of two things (a cancel
//! hits or misses), the reply decides.

use std::borrow::Cow;
use std::collections::VecDeque;

use howdah_pooler::event::Time;
use howdah_wire::backend::Fields;
use howdah_wire::frame::{HEADER, header};
use howdah_wire::tag::{backend, frontend};

use crate::hearing::Hearing;
use crate::seen::Seen;
use crate::session::{CANCELLED, CONFLICT, Deed, Keeping, REFUSED, Session};
use crate::sql::Token;
use crate::story::words;
use crate::view::Sent;
use crate::wal::taken_off;

/// A message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its tag.
    pub tag: u8,
    /// Its body.
    pub body: Vec<u8>,
}

/// The reference of one client.
pub struct Reference {
    session: Session,
    unfed: VecDeque<(Message, Sent)>,
    /// The number of messages sent.
    sent: u64,
    /// The client's statements may be cancelled, or the schema may change: nothing is certain
    /// before its reply.
    uncertain: bool,
    /// The number of cancel requests for this client.
    pub cancels: u32,
    /// The time of the last cancel request, if nothing can have delayed it.
    pub cancelled_at: Option<u64>,
    /// Syncs that a COPY may have eaten. If a cancel was faster, they are answered.
    stray: usize,
    /// Syncs that the current COPY has eaten.
    eaten: usize,
    /// What a standby refuses always runs again.
    heals: bool,
    /// The client has seen a row, or the end of a statement, since the last ReadyForQuery.
    is_shown: bool,
    /// The last message was a Query.
    simple: bool,
    /// The transaction had failed before the last message.
    had_failed: bool,
    /// The notifications that the client must receive.
    pub hearing: Hearing,
    /// What the client has written or read.
    seen: Seen,
    kept: Vec<Token>,
    /// How many of these changes the client knows to be kept.
    known: usize,
}

impl Reference {
    /// The reference of a client that has just logged in.
    pub fn new(
        session: Session,
        (hearing, seen): (Hearing, Seen),
        uncertain: bool,
        heals: bool,
    ) -> Reference {
        Reference {
            session,
            uncertain,
            sent: 0,
            unfed: VecDeque::new(),
            cancels: 0,
            cancelled_at: None,
            stray: 0,
            eaten: 0,
            heals,
            is_shown: false,
            simple: false,
            had_failed: false,
            hearing,
            seen,
            kept: Vec::new(),
            known: 0,
        }
    }

    /// True if no transaction is open after the answers so far.
    pub fn is_idle(&self) -> bool {
        self.session.is_idle()
    }

    /// The client sends this message.
    pub fn sent(&mut self, message: Message, now: Time) {
        let sent = Sent {
            number: self.sent,
            moment: self.session.view.moment(),
            at: now,
            heard: self.hearing.position(),
        };
        self.sent += 1;
        self.unfed.push_back((message, sent));
    }

    /// The client receives this message at this time, in nanoseconds.
    ///
    /// # Errors
    /// Another message, or none, should have come.
    pub fn received(&mut self, message: &[u8], now: u64) -> Result<(), String> {
        self.hearing.goes_on()?;
        let (message, shown) = match self.session.shows {
            Some(_) => taken_off(message),
            None => (Cow::Borrowed(message), None),
        };
        let message = &*message;
        self.answers(message, now)?;
        if let Some(shown) = shown {
            self.seen.reads(shown)?;
        }
        self.learn(message, now);
        match message {
            [backend::READY, .., b'I'] => {
                if self.session.keeping == Keeping::Never {
                    self.session.discard_objects();
                }
                self.hearing.is_ready()
            }
            _ => Ok(()),
        }
    }

    /// What the client's pooler must know by now, if it has sent this message.
    fn learn(&mut self, message: &[u8], now: u64) {
        let ddl = [&b"ALTER"[..], b"DROP", b"CREATE FUNCTION"];
        let body = &message[HEADER..];
        let view = &mut self.session.view;
        match message[0] {
            backend::COMMAND_COMPLETE if ddl.iter().any(|tag| body.starts_with(tag)) => {
                view.ddl_is_answered(self.sent);
            }
            backend::READY if body == b"I" => view.is_told_of_end(Time(now)),
            backend::ERROR if Fields::new(body).sqlstate() == Some(b"0A000") => {
                view.is_told_of_refusal(Time(now));
            }
            _ => {}
        }
    }

    /// The client receives a notification.
    ///
    /// # Errors
    /// The client must not receive it.
    pub fn notified(&mut self, message: &[u8]) -> Result<(), String> {
        let silent = self.is_silent() && self.unfed.is_empty();
        let idle = silent && self.session.is_idle();
        if silent && self.session.in_block() {
            return Err("is told something in the middle of a transaction".into());
        }
        self.hearing.notified(&message[HEADER..], idle)
    }

    fn answers(&mut self, message: &[u8], now: u64) -> Result<(), String> {
        let cancelled = self.cancels > 0 && is_cancel(message);
        loop {
            if let Some(expected) = self.next_expected() {
                let unparsed = self.had_failed && is_unparsed(&expected, message);
                let lost = self.session.view.renames() && is_lost(&expected, message);
                if unparsed {
                    self.session.skip();
                } else if lost {
                    self.session.lose();
                }
                let refused = self.session.may_be_refused() && is_refused(message);
                if refused {
                    self.session.lose();
                }
                let conflicts = is_conflict(message) && (self.is_shown || !self.heals);
                if conflicts {
                    self.session.conflicts(self.simple);
                }
                let kept_off = is_kept_off(message) && self.session.refuse_to_keep();
                let forgotten = is_forgotten(message) && self.session.forget_number();
                let placed = self.session.is_sharded()
                    && (is_refused_alike(&expected, message)
                        || self.had_failed && is_begin_refused(&expected, message));
                if expected == message
                    || unparsed
                    || lost
                    || refused
                    || kept_off
                    || forgotten
                    || placed
                    || conflicts
                {
                    self.is_shown = shows(message, self.is_shown);
                    if self.is_silent() {
                        let known = std::mem::replace(&mut self.known, self.kept.len());
                        self.seen.writes(&self.kept[known..]);
                    }
                    return Ok(());
                }
                let out = std::mem::replace(&mut self.session.out, expected.clone());
                self.session.out.extend_from_slice(&out);
                if self.is_stray(message) {
                    return Ok(());
                }
                return Err(format!(
                    "got {} instead of {}",
                    words(message),
                    words(&expected)
                ));
            }
            if self.session.is_undecided() {
                self.session.decide(message);
                continue;
            }
            if let Some(millis) = self.session.slow() {
                if !cancelled && self.was_cancelled(u64::from(millis), now) {
                    return Err("was cancelled, and PostgreSQL does not know".into());
                }
                self.session.finish(cancelled);
                continue;
            }
            if cancelled && self.session.copies_in() {
                self.eat_syncs();
                self.session.cancel();
                continue;
            }
            let Some((next, sent)) = self.unfed.pop_front() else {
                if self.is_stray(message) {
                    return Ok(());
                }
                return Err(format!("got {}, which nobody asked for", words(message)));
            };
            let begins = matches!(
                next.tag,
                frontend::QUERY
                    | frontend::PARSE
                    | frontend::BIND
                    | frontend::DESCRIBE
                    | frontend::CLOSE
                    | frontend::EXECUTE
            );
            if begins && !self.session.skips() && self.is_stray(message) {
                self.unfed.push_front((next, sent));
                return Ok(());
            }
            let unsent = self.session.is_sharded() && !self.session.is_idle();
            if cancelled && begins && unsent && !self.session.skips() {
                // The cancel hit while a transaction waited that no server had, or a group of which
                // another shard's server has answered what comes before its first Bind.
                self.hearing.follows(sent.heard, true);
                self.session.refuse_in_block(next.tag == frontend::QUERY);
                continue;
            }
            if cancelled && begins && self.session.is_idle() {
                // The cancel hit while the client waited for a server.
                self.hearing.follows(sent.heard, true);
                self.session.refuse(next.tag);
                continue;
            }
            self.session.view.follow(sent, Some(message));
            self.session.refuses_write = is_write_refused(message);
            self.session.hears_refusal(sqlstate(message));
            if next.tag != frontend::QUERY && self.is_group_refused(&next) {
                continue;
            }
            self.feed(&next, sent);
            self.note();
        }
    }

    /// True if the group is refused that goes on with this message.
    fn is_group_refused(&mut self, next: &Message) -> bool {
        let rest = self.unfed.iter().map(|(message, _)| message);
        let group = std::iter::once(next).chain(rest);
        let group = group.map(|message| (message.tag, &*message.body));
        self.session.refuses_group(group)
    }

    /// True if a statement of this duration has just ended, although it was cancelled long before.
    fn was_cancelled(&self, millis: u64, now: u64) -> bool {
        let begun = now.saturating_sub(millis * 1_000_000) + 100_000_000;
        self.cancelled_at
            .is_some_and(|at| begun < at && at + 2_000_000_000 < now)
    }

    /// A cancel hit while a COPY awaited rows. It is unknown whether PostgreSQL had read a Sync
    /// before. So all Syncs count as eaten, and may still be answered.
    fn eat_syncs(&mut self) {
        self.stray += self.eaten;
        type Unfed = (Message, Sent);
        let ends = |(m, _): &Unfed| matches!(m.tag, frontend::COPY_DONE | frontend::COPY_FAIL);
        let end = self.unfed.iter().position(ends).unwrap_or(self.unfed.len());
        let rest = self.unfed.split_off(end);
        let before = self.unfed.len();
        self.unfed.retain(|(m, _)| m.tag != frontend::SYNC);
        self.stray += before - self.unfed.len();
        self.unfed.extend(rest);
    }

    fn is_stray(&mut self, message: &[u8]) -> bool {
        let stray = self.stray > 0 && message.first() == Some(&backend::READY);
        self.stray -= usize::from(stray);
        stray
    }

    /// Feeds the session a message, and counts the Syncs that its COPY eats.
    fn feed(&mut self, message: &Message, sent: Sent) {
        let idle = self.session.is_idle();
        self.hearing.follows(sent.heard, idle);
        if !self.session.copies_in() {
            self.eaten = 0;
        } else if message.tag == frontend::SYNC {
            self.eaten += 1;
        }
        self.had_failed = self.session.has_failed();
        self.simple = message.tag == frontend::QUERY;
        self.session.feed(message.tag, &message.body);
    }

    fn next_expected(&mut self) -> Option<Vec<u8>> {
        let whole = header(&self.session.out)?.ok()?.total();
        let rest = self.session.out.split_off(whole);
        self.note();
        Some(std::mem::replace(&mut self.session.out, rest))
    }

    fn note(&mut self) {
        for deed in self.session.deeds.drain(..) {
            match deed {
                Deed::Kept(token) => self.kept.push(token),
                Deed::Ran(token) => self.hearing.ran(token),
                Deed::Listening(change) => self.hearing.changes(change),
                Deed::Undone(_) | Deed::At(_) => {}
            }
        }
    }

    /// Runs all messages, as if nothing had been cancelled.
    pub fn run_out(&mut self) {
        loop {
            self.session.out.clear();
            self.session.decide(&[]);
            while self.session.slow().is_some() {
                self.session.finish(false);
            }
            let Some((next, sent)) = self.unfed.pop_front() else {
                break;
            };
            self.session.view.follow(sent, None);
            self.session.refuses_write = false;
            self.session.hears_refusal(None);
            self.feed(&next, sent);
        }
        self.note();
    }

    /// True if all messages were answered. Runs the session as far as possible.
    pub fn is_answered(&mut self) -> bool {
        while self.is_silent()
            && (!self.uncertain || self.next_is_silent())
            && let Some((next, sent)) = self.unfed.pop_front()
        {
            self.session.view.follow(sent, None);
            self.feed(&next, sent);
        }
        self.note();
        self.is_silent() && self.unfed.is_empty()
    }

    /// The session owes no reply to the messages so far.
    fn is_silent(&self) -> bool {
        self.session.out.is_empty() && self.session.slow().is_none() && !self.session.is_undecided()
    }

    /// True if a slow statement was sent and is not answered.
    pub fn is_slow(&self) -> bool {
        let word =
            |(message, _): &(Message, Sent)| message.body.windows(6).any(|part| part == b" slow ");
        self.session.slow().is_some() || self.unfed.iter().any(word)
    }

    /// True if the next message has no reply, whatever a cancel may do.
    fn next_is_silent(&self) -> bool {
        let Some((next, _)) = self.unfed.front() else {
            return false;
        };
        match next.tag {
            frontend::SYNC => self.session.copies_in(),
            frontend::FLUSH | frontend::COPY_DATA => true,
            frontend::COPY_DONE | frontend::COPY_FAIL => !self.session.copies_in(),
            _ => self.session.skips(),
        }
    }

    /// True if the session awaits the rows of a COPY and owes no other answer.
    pub fn copies_in(&mut self) -> bool {
        self.session.copies_in()
    }

    /// A description of the expected reply.
    pub fn awaits(&self) -> String {
        let next: Vec<String> = self
            .unfed
            .iter()
            .take(3)
            .map(|(m, _)| format!("{} {}", char::from(m.tag), words(&m.body)))
            .collect();
        format!(
            "replies {} slow {:?} then [{}]",
            words(&self.session.out),
            self.session.slow(),
            next.join(" / ")
        )
    }

    /// Changes that the client knows to be kept.
    pub fn known(&self) -> &[Token] {
        &self.kept[..self.known]
    }

    /// Changes that the messages so far would keep.
    pub fn kept(&self) -> &[Token] {
        &self.kept
    }
}

/// The SQLSTATE of an error.
fn sqlstate(message: &[u8]) -> Option<&[u8]> {
    let body = message.strip_prefix(&[backend::ERROR])?.get(HEADER - 1..)?;
    Fields::new(body).sqlstate()
}

/// What Howdah refuses, or PostgreSQL's grammar: the texts differ.
fn is_refused_alike(expected: &[u8], message: &[u8]) -> bool {
    let same = sqlstate(expected).filter(|state| Some(*state) == sqlstate(message));
    let fields = |message: &[u8]| Fields::new(&message[HEADER..]).message().to_vec();
    let is_alike =
        same.is_some_and(|state| state == b"42601" || fields(expected) == REFUSED.as_bytes());
    // A statement of a failed transaction may be refused for two reasons.
    let failed = sqlstate(expected) == Some(b"25P02");
    let reasons = [&b"0A000"[..], b"22023", b"25001", b"42601"];
    is_alike || failed && sqlstate(message).is_some_and(|state| reasons.contains(&state))
}

/// In a failed transaction: Howdah sends a BEGIN for what ends it, and that is refused. Or it looks for
/// the state of the transaction first.
fn is_begin_refused(expected: &[u8], message: &[u8]) -> bool {
    let other = [&b"0A000"[..], b"25P02"];
    sqlstate(expected).is_some() && sqlstate(message).is_some_and(|state| other.contains(&state))
}

/// In a failed transaction, a server can't parse a statement that it lacks. So the client can't
/// learn that a Bind has too few parameters, or that the statement has no rows. The client only
/// learns that nothing is executed.
fn is_unparsed(expected: &[u8], message: &[u8]) -> bool {
    let is = |message: &[u8], code: &[u8]| {
        message.first() == Some(&backend::ERROR)
            && Fields::new(&message[HEADER..]).sqlstate() == Some(code)
    };
    let described = expected.first() == Some(&backend::PARAMETER_DESCRIPTION);
    (described || is(expected, b"08P01")) && is(message, b"25P02")
}

/// For a statement whose table is gone, PostgreSQL sends the parameters, and then this error (or
/// NoData). A server that lacks the statement can't parse it any more.
///
/// For statements that were described before, this exception must go when the pooler does better.
fn is_lost(expected: &[u8], message: &[u8]) -> bool {
    expected.first() == Some(&backend::PARAMETER_DESCRIPTION)
        && message.first() == Some(&backend::ERROR)
        && Fields::new(&message[HEADER..]).sqlstate() == Some(b"42P01")
}

/// The statement has constants of other settings than its client's, and its server lacks the
/// statement.
fn is_refused(message: &[u8]) -> bool {
    message.first() == Some(&backend::ERROR) && {
        let fields = Fields::new(&message[HEADER..]);
        fields.sqlstate() == Some(b"0A000") && fields.message().starts_with(b"prepared statement")
    }
}

/// The statement would keep its server for its client, and too many clients keep a server.
fn is_kept_off(message: &[u8]) -> bool {
    message.first() == Some(&backend::ERROR)
        && Fields::new(&message[HEADER..]).sqlstate() == Some(b"53000")
}

/// Another server knows the last value of the sequence, so the client gets an error.
fn is_forgotten(message: &[u8]) -> bool {
    message.first() == Some(&backend::ERROR)
        && Fields::new(&message[HEADER..]).sqlstate() == Some(b"55000")
}

/// True if a client has seen a row, or the end of a statement, after this message.
fn shows(message: &[u8], before: bool) -> bool {
    match message.first() {
        Some(&(backend::DATA_ROW | backend::COMMAND_COMPLETE)) => true,
        Some(&backend::READY) => false,
        _ => before,
    }
}

/// A standby has not carried a read out.
fn is_conflict(message: &[u8]) -> bool {
    message.first() == Some(&backend::ERROR)
        && Fields::new(&message[HEADER..]).message() == CONFLICT.as_bytes()
}

/// A write was refused, perhaps because it was sent to a standby.
fn is_write_refused(message: &[u8]) -> bool {
    message.first() == Some(&backend::ERROR)
        && Fields::new(&message[HEADER..]).sqlstate() == Some(b"25006")
}

/// True for the error of a cancelled statement.
fn is_cancel(message: &[u8]) -> bool {
    message.first() == Some(&backend::ERROR)
        && Fields::new(&message[HEADER..]).message() == CANCELLED.as_bytes()
}
