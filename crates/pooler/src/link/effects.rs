//! Commands that do something to their client which the server can't do by itself: DEALLOCATE of
//! names that only we know, RESET to values that the client logged in with and the server did not.
//!
//! The client's command runs as it is. Where it takes settings back, commands of ours behind it
//! set those to the values of the client's login, in the same transaction, so that a rollback takes
//! back both. What settings are in between nobody sees.

use howdah_wire::frame::{HEADER, Header};
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::upstream::{FRONT_MAX, Flow, Upstream, whole};
use crate::command::{Forgets, Resets, resets};
use crate::inbox::Chunk;
use crate::ledger::{Change, Entry, Part, Reply};
use crate::params::set_one;
use crate::server::Portal;
use crate::statement;

/// The name of the statements and portals that set settings back.
const BACK: &[u8] = b"howdah_back";

/// What sets settings back to a client's login, behind a Query that resets them.
#[derive(Debug)]
pub(super) struct Tail {
    sql: Vec<u8>,
    /// The client's command can't have company in its Query.
    apart: bool,
}

impl Upstream<'_> {
    /// What a Query resets that the client had given a value at login.
    pub(super) fn query_resets(
        &self,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Option<Tail>, Flow> {
        if self.client.asked.is_none() || header.total() > FRONT_MAX {
            return Ok(None);
        }
        let body = &chunk.rest()[HEADER..];
        let body = &body[..body.len().min(header.body as usize)];
        if !may_reset(body) {
            return Ok(None);
        }
        let whole = whole(chunk, header).ok_or(Flow::Partial)?;
        let resets = resets(whole.strip_suffix(b"\0").unwrap_or(whole));
        let sql = self.values_of_login(&resets).concat();
        let apart = resets == Resets::Discard;
        Ok((!sql.is_empty()).then_some(Tail { sql, apart }))
    }

    /// Sends a Query that resets, and what sets the settings back.
    pub(super) fn query_that_resets(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        mut entry: Entry,
        tail: &Tail,
    ) {
        let to = self.to();
        if tail.apart {
            entry.part = Part::Begun;
            self.relay(chunk, header, Some(entry));
            self.out.send_with(to, |buf| write::query(buf, &tail.sql));
            let mut rest = Entry::forward(Reply::Query);
            rest.part = Part::Rest;
            self.push(rest);
            return;
        }
        let body = &chunk.rest()[HEADER..header.total()];
        let text = body.strip_suffix(b"\0").unwrap_or(body);
        // The client's text may end in a comment.
        let sql = [text, b"\n;", &tail.sql].concat();
        self.out.send_with(to, |buf| write::query(buf, &sql));
        entry.part = Part::Both;
        self.push(entry);
        self.drop(chunk, header);
    }

    /// Statements that set what is reset to what the client asked for at login.
    fn values_of_login(&self, resets: &Resets) -> Vec<Vec<u8>> {
        let Some(asked) = self.client.asked.as_ref() else {
            return Vec::new();
        };
        let (one, local) = match resets {
            Resets::Nothing => return Vec::new(),
            Resets::One { name, local } => match self.tracked.position(name) {
                Some(position) => (Some(position), *local),
                None => return Vec::new(),
            },
            Resets::All | Resets::Discard => (None, false),
        };
        let wanted = |(position, _): &(usize, &[u8])| one.is_none_or(|one| one == *position);
        let set = |(position, value): (usize, &[u8])| {
            let mut sql = Vec::new();
            set_one(&mut sql, &self.tracked.names()[position], value, local);
            sql
        };
        asked.known().filter(wanted).map(set).collect()
    }

    /// The portal of a name, if running it does something to the client.
    pub(super) fn portal(&mut self, name: &[u8]) -> Option<&Portal> {
        let mut portals = self.linked().portals.iter();
        portals.find(|portal| *portal.name == *name)
    }

    /// The entry of an Execute that does something to the client, and statements to run behind it.
    pub(super) fn take_effect(&mut self, portal: &Portal) -> Result<(Entry, Vec<Vec<u8>>), Flow> {
        let mut entry = Entry::forward(Reply::Execute);
        entry.barrier = portal.statement.forgets != Forgets::Nothing;
        if let (Forgets::Name(name), true) = (&portal.statement.forgets, portal.void) {
            self.wait_for(name)?;
            let change = if self.lookup(name).is_some() {
                self.make_void();
                Change::Forget
            } else {
                // Gone since it was bound: PostgreSQL says so.
                let to = self.to();
                self.out.send_with(to, |buf| {
                    write::of_statement(buf, tag::CLOSE, statement::VOID)
                });
                self.push(Entry::swallow(Reply::Close));
                Change::Nothing
            };
            self.push_name_op(name.clone(), change);
            entry.name_op = true;
        }
        let tail = self.values_of_login(&portal.statement.resets);
        if !tail.is_empty() {
            entry.part = Part::Begun;
        }
        Ok((entry, tail))
    }

    /// Runs statements of ours behind an Execute.
    pub(super) fn set_back(&mut self, statements: &[Vec<u8>]) {
        let to = self.to();
        for (at, sql) in statements.iter().enumerate() {
            let definition = [sql, &b"\0\0\0"[..]].concat();
            self.out.send_with(to, |buf| {
                write::parse(buf, BACK, &definition);
                write::bind_head(buf, BACK, BACK, 6);
                buf.extend_from_slice(&[0; 6]);
                write::message(buf, tag::EXECUTE, |buf| {
                    buf.extend_from_slice(BACK);
                    buf.extend_from_slice(&[0; 5]);
                });
                write::message(buf, tag::CLOSE, |buf| {
                    buf.push(b'P');
                    buf.extend_from_slice(BACK);
                    buf.push(0);
                });
                write::of_statement(buf, tag::CLOSE, BACK);
            });
            let replies = [Reply::Parse, Reply::Bind, Reply::Execute, Reply::Close];
            for reply in replies {
                self.push(Entry::swallow(reply));
            }
            let mut last = Entry::swallow(Reply::Close);
            if at + 1 == statements.len() {
                last.part = Part::Rest;
            }
            self.push(last);
        }
    }
}

/// A first look at a text: false for nearly all that reset nothing.
fn may_reset(text: &[u8]) -> bool {
    let is = |word: &[u8; 3]| text.get(..3).is_none_or(|t| t.eq_ignore_ascii_case(word));
    match text.first() {
        Some(b's' | b'S') => is(b"set"),
        Some(b'r' | b'R') => is(b"res"),
        Some(b'd' | b'D') => is(b"dis"),
        Some(b'-' | b'/' | b'\t'..=b'\r' | b' ') => true,
        _ => text.is_empty(),
    }
}
