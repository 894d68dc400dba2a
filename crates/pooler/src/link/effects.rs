//! Commands that affect state that only Howdah knows. `DEALLOCATE a` names a statement that has
//! another name on the server. `RESET DateStyle` must restore the value of the client's login, but
//! the server logged in with another value.
//!
//! The client's command runs unchanged. If it resets settings, Howdah sends commands after it that
//! set the values of the client's login. Both run in one transaction, so a rollback undoes both. No
//! client sees the values in between.
//!
//! Simpler ways would give other answers than PostgreSQL:
//!
//! - Howdah can't set the values at the server's next use. In `RESET TimeZone; SELECT now()`, one
//!   Query or one group of messages, the SELECT must see the value of the login.
//! - Howdah can't replace `RESET` by `SET`: the client would get `SET` as the command's tag.
//! - Howdah can't change the values that RESET restores: PostgreSQL fixes them when a session
//!   begins, and this session serves other clients, too.

use howdah_wire::frame::{HEADER, Header};
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::portal::Portal;
use super::upstream::{Flow, Upstream};
use crate::effect::first::{Alters, Among, Forgets, Resets};
use crate::inbox::Chunk;
use crate::ledger::{Entry, Part, Reply};
use crate::params::set_one;
use crate::session::settings;
use crate::statement::Statement;

/// The name of the statements and portals that Howdah runs among a client's messages.
const OURS: &[u8] = b"howdah_ours";

/// The SQL that restores settings of the client's login, after a command in a Query that resets
/// them.
#[derive(Debug)]
pub(super) struct Tail {
    sql: Vec<u8>,
    /// The number of commands in `sql`.
    count: u16,
    /// Where the SQL goes in the Query's text, and the number of client commands before it.
    place: (usize, u8),
    /// PostgreSQL accepts the client's command only alone in its Query (DISCARD ALL).
    apart: bool,
}

impl Upstream<'_> {
    /// The SQL that restores settings of the client's login after a Query that resets them, if
    /// there are any.
    #[inline]
    pub(super) fn query_resets(&self, among: &[Among]) -> Option<Box<Tail>> {
        if among.is_empty() {
            None
        } else {
            self.tail(among)
        }
    }

    #[cold]
    fn tail(&self, among: &[Among]) -> Option<Box<Tail>> {
        let mut values = Vec::new();
        let mut place = (0, 0);
        for one in among {
            let more = self.values_of_login(&one.resets);
            if !more.is_empty() {
                // All values go after the last RESET. Commands between two RESETs rarely read
                // settings.
                place = (one.end, one.commands);
                values.extend(more);
            }
        }
        (!values.is_empty()).then(|| {
            Box::new(Tail {
                sql: values.concat(),
                count: u16::try_from(values.len()).unwrap_or(u16::MAX),
                place,
                apart: among.iter().any(|one| one.resets == Resets::Discard),
            })
        })
    }

    /// Sends a Query that resets settings, and the SQL that restores them.
    #[cold]
    pub(super) fn query_that_resets(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        mut entry: Entry,
        tail: &Tail,
    ) {
        let to = self.to();
        if tail.apart {
            entry.effects_mut().part = Part::Begun;
            self.ask(chunk, header, entry);
            self.out.send_with(to, |buf| write::query(buf, &tail.sql));
            let mut rest = Entry::forward(Reply::Query);
            rest.effects_mut().part = Part::Rest;
            self.push(rest);
            return;
        }
        let body = &chunk.rest()[HEADER..header.total()];
        let text = body.strip_suffix(b"\0").unwrap_or(body);
        let (at, before) = tail.place;
        // The client's text may end in a comment.
        let sql = [&text[..at], b"\n;", &tail.sql, &text[at..]].concat();
        self.out.send_with(to, |buf| write::query(buf, &sql));
        entry.effects_mut().part = Part::Both {
            before,
            ours: tail.count,
        };
        self.push(entry);
        self.skip(chunk, header);
    }

    /// Commands that set the reset settings to their values from the client's login.
    fn values_of_login(&self, resets: &Resets) -> Vec<Vec<u8>> {
        let mut values = self.tracked_of_login(resets);
        let session = self.client.session.as_deref();
        if let Some(login) = session.and_then(|session| session.login.as_ref()) {
            values.extend(match resets {
                Resets::Nothing => Vec::new(),
                Resets::One { name, local } => login.setting(|known| *known == **name, *local),
                Resets::All => login.setting(settings::reset_by_all, false),
                Resets::Discard => login.setting(|_| true, false),
            });
        }
        values
    }

    fn tracked_of_login(&self, resets: &Resets) -> Vec<Vec<u8>> {
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
            set_one(
                &mut sql,
                &self.tracked.names()[position],
                value,
                asked,
                local,
            );
            sql
        };
        asked.known().filter(wanted).map(set).collect()
    }

    /// The remembered portal with this name, if any.
    pub(super) fn portal(&mut self, name: &[u8]) -> Option<&Portal> {
        self.server.link.portals.get(name)
    }

    /// True if running a statement affects its client in a way that the server does not handle, or
    /// affects texts parsed later.
    pub(super) fn has_effect(&mut self, statement: &Statement) -> bool {
        match statement.first.alters {
            Alters::Nothing => statement.first.forgets != Forgets::Nothing,
            // Most transactions end without such changes.
            Alters::Ends => self.server.session.changes.end_matters(),
            _ => true,
        }
    }

    /// Makes the entry of an Execute that affects the client, and the statements to run after it.
    pub(super) fn take_effect(&mut self, portal: &Portal) -> Result<(Entry, Vec<Vec<u8>>), Flow> {
        let mut entry = Entry::forward(Reply::Execute);
        self.execute_alters(portal, &mut entry);
        // Texts parsed after this Execute may have another meaning.
        entry.barrier =
            portal.statement.first.forgets != Forgets::Nothing || entry.alters != Alters::Nothing;
        if let (Forgets::Name(name), true) = (&portal.statement.first.forgets, portal.void) {
            self.wait_for(name)?;
            // The statement may have been dropped since the Bind. Then PostgreSQL reports an error.
            let change = self.void_or_nothing(name);
            entry.effects_mut().name = Some(self.name_op(name.clone(), change));
        }
        let tail = self.values_of_login(&portal.statement.first.resets);
        if !tail.is_empty() {
            entry.effects_mut().part = Part::Begun;
        }
        Ok((entry, tail))
    }

    /// Runs statements of Howdah after an Execute.
    #[cold]
    pub(super) fn set_back(&mut self, statements: &[Vec<u8>]) {
        for (at, sql) in statements.iter().enumerate() {
            let last = at + 1 == statements.len();
            self.run_for_us(sql, if last { Part::Rest } else { Part::Whole });
        }
    }

    /// Runs a statement of Howdah among the client's messages. `part` belongs to the last reply.
    /// The first two Closes remove leftovers of an earlier statement that failed midway.
    pub(crate) fn run_for_us(&mut self, sql: &[u8], part: Part) {
        let to = self.to();
        let definition = [sql, &b"\0\0\0"[..]].concat();
        self.out.send_with(to, |buf| {
            close_ours(buf);
            write::parse(buf, OURS, &definition);
            write::bind_head(buf, OURS, OURS, 6);
            buf.extend_from_slice(&[0; 6]);
            write::message(buf, tag::EXECUTE, |buf| {
                buf.extend_from_slice(OURS);
                buf.extend_from_slice(&[0; 5]);
            });
            close_ours(buf);
        });
        use Reply::{Bind, Close, Execute, Parse};
        for reply in [Close, Close, Parse, Bind, Execute, Close] {
            self.push(Entry::swallow(reply));
        }
        let mut last = Entry::swallow(Reply::Close);
        if part != Part::Whole {
            last.effects_mut().part = part;
        }
        self.push(last);
    }
}

/// Closes Howdah's portal and statement, if they exist.
fn close_ours(buf: &mut Vec<u8>) {
    write::message(buf, tag::CLOSE, |buf| {
        buf.push(b'P');
        buf.extend_from_slice(OURS);
        buf.push(0);
    });
    write::of_statement(buf, tag::CLOSE, OURS);
}
