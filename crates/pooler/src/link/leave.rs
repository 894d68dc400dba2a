//! A statement that would keep its server for its client runs only by leave ([`crate::session`]).

use howdah_wire::backend::Status;
use howdah_wire::frame::Header;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::upstream::{Flow, Upstream};
use crate::effect::{Effects, Kinds};
use crate::inbox::Chunk;
use crate::ledger::{Change, Entry, Refusal, Reply};
use crate::session::{Leave, Tracking};
use crate::statement::UNKNOWN;

/// Whether a text may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It may.
    Runs,
    /// It would keep a server, and too many do.
    Refused,
}

impl Upstream<'_> {
    /// Whether a text may run that the server has not been sent yet.
    pub(crate) fn may_keep_server(&mut self, found: &Effects) -> Result<Verdict, Flow> {
        if !self.asks_leave(found) || self.client.may_keep() {
            return Ok(Verdict::Runs);
        }
        if self.rests() {
            return Err(Flow::NeedLeave { waits: true });
        }
        let leave = self.client.leave();
        if leave == Some(Leave::Refused) {
            let session = self.client.session.as_mut();
            session.and_then(|session| session.ticket.take());
            return Ok(Verdict::Refused);
        }
        let link = &self.linked().link;
        if leave == Some(Leave::Asked) || link.is_owed() && !link.group_open() {
            // Whether it is in a transaction is known behind that.
            return Err(self.stall());
        }
        Err(Flow::NeedLeave { waits: false })
    }

    /// A statement that may leave something behind is parsed, or one is bound: before anything of
    /// its group is sent, its client can wait without a server.
    pub(super) fn await_leave(&mut self, found: &Effects) -> Result<(), Flow> {
        let asks = self.asks_leave(found);
        match asks && !self.client.may_keep() && self.rests() {
            true => Err(Flow::NeedLeave { waits: true }),
            false => Ok(()),
        }
    }

    fn asks_leave(&self, found: &Effects) -> bool {
        let creates = || found.kinds.any(Kinds::SCHEMA) && self.creates_temporary();
        let keeps = || match self.may_share(found) {
            true => found.kinds.without(Kinds::LISTENS),
            false => found.kinds,
        };
        let keeps = || {
            let kinds = keeps();
            let found = Effects {
                kinds,
                ..Effects::default()
            };
            found.keeps_server() || creates()
        };
        self.limits_pins && self.tracking == Tracking::Keeps && keeps()
    }

    /// Nothing was sent, no transaction is open, and nothing keeps its server, so that can be given
    /// back. (A client that keeps it may yet wait to be told whether it may.)
    fn rests(&self) -> bool {
        // What is to be asked of its session can be asked of this server only.
        let session = self.client.session.as_ref();
        let asks = session.is_some_and(|session| !session.pending.is_empty());
        if self.client.is_pinned() || asks {
            return false;
        }
        let server = self.server.as_ref();
        server.is_some_and(|(_, server)| {
            !server.link.is_owed() && !server.link.group_open() && server.status == Status::Idle
        })
    }

    /// PostgreSQL refuses something else in the place of a Query or Parse, and its client is told
    /// why.
    pub(super) fn refuse_to_keep(&mut self, chunk: &mut Chunk<'_>, header: Header, entry: Entry) {
        self.refuse(chunk, header, entry, Refusal::Pins);
    }

    /// Likewise, for any reason.
    pub(super) fn refuse(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        mut entry: Entry,
        why: Refusal,
    ) {
        let to = self.to();
        if let Some(forgets) = entry.takes_name() {
            // One entry carries one change: this goes with an entry that is there for it.
            let mut close = Entry::swallow(Reply::Close);
            close.effects_mut().name = Some(forgets);
            self.out
                .send_with(to, |buf| write::of_statement(buf, frontend::CLOSE, b""));
            self.push(close);
        }
        entry.effects_mut().name = Some(self.name_op(Box::default(), Change::Refused(why)));
        let simple = entry.reply == Reply::Query;
        self.push(entry);
        self.out.send_with(to, |buf| match simple {
            true => write::query(buf, &[b"DEALLOCATE ", UNKNOWN].concat()),
            false => {
                write::bind_head(buf, b"", UNKNOWN, 6);
                buf.extend_from_slice(&[0; 6]);
            }
        });
        self.drop(chunk, header);
    }
}
