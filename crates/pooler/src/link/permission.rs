//! A statement that would make its client keep the server needs permission ([`crate::session`]).

use howdah_wire::backend::Status;
use howdah_wire::frame::Header;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use crate::effect::{Effects, Kinds};
use crate::inbox::Chunk;
use crate::ledger::{Change, Entry, Refusal, Reply};
use crate::link::upstream::{Flow, Step, Upstream, Verdict};
use crate::session::{Permission, Tracking};
use crate::statement::UNKNOWN;

impl Upstream<'_> {
    /// Decides whether a text may run. Howdah has not sent the text to the server yet.
    pub(crate) fn may_keep_server(&mut self, found: &Effects) -> Result<Verdict, Flow> {
        if !self.needs_permission(found) || self.client.may_keep() {
            return Ok(Verdict::Runs);
        }
        self.wait_without_server()?;
        let permission = self.client.permission();
        if permission == Some(Permission::Refused) {
            let session = self.client.session_if_any();
            session.and_then(|session| session.ticket.take());
            return Ok(Verdict::Refused);
        }
        let link = &self.server.link;
        if permission == Some(Permission::Asked) || link.is_owed() && !link.group_open() {
            // Those answers will show whether the client is in a transaction.
            return Err(self.stall());
        }
        Err(Flow::NeedPermission { waits: false })
    }

    /// The client parses or binds a statement that may leave state behind. The client can still
    /// wait without a server, because Howdah has sent nothing of the group yet.
    pub(super) fn await_permission(&mut self, found: &Effects) -> Result<(), Flow> {
        if self.needs_permission(found) && !self.client.may_keep() {
            self.wait_without_server()
        } else {
            Ok(())
        }
    }

    fn needs_permission(&self, found: &Effects) -> bool {
        let keeps = || {
            let kinds = if self.must_listen_alone(found) {
                found.kinds.and(Kinds::LISTENS)
            } else if self.may_share(found) {
                found.kinds.without(Kinds::LISTENS)
            } else {
                found.kinds
            };
            let found = Effects {
                kinds,
                ..Effects::default()
            };
            found.keeps_server()
        };
        self.terms.pins > 0 && self.tracking() == Tracking::Keeps && keeps()
    }

    /// Outside of a transaction, the client gives its server back and waits. Returns `Ok` only if
    /// the client can't do so. (A client that already keeps its server may also need permission.)
    fn wait_without_server(&mut self) -> Step {
        if self.client.is_pinned() {
            return Ok(());
        }
        self.await_settings()?;
        let server = &mut *self.server;
        if server.link.is_group_at_work() {
            return Ok(());
        }
        if server.link.owes_ready() {
            // Those answers will show whether the client is in a transaction.
            return Err(self.stall());
        }
        if server.status != Status::Idle {
            return Ok(());
        }
        if server.link.is_owed() || server.link.group_open() {
            // Howdah has sent only Closes. After a Sync, the server can be given back.
            let to = self.to();
            self.out
                .send_with(to, |buf| write::empty(buf, frontend::SYNC));
            self.push(Entry::swallow(Reply::Sync));
            return Err(self.stall());
        }
        let session = self.client.session.as_ref();
        // Only this server can answer questions about the client's session.
        Err(
            if session.is_some_and(|session| !session.pending.is_empty()) {
                self.stall()
            } else {
                Flow::NeedPermission { waits: true }
            },
        )
    }

    /// Replaces a Query or Parse by a message that PostgreSQL refuses. The client learns that too
    /// many clients keep a server.
    pub(super) fn refuse_to_keep(&mut self, chunk: &mut Chunk<'_>, header: Header, entry: Entry) {
        self.refuse(chunk, header, entry, Refusal::Pins);
    }

    /// Replaces a Query or Parse by a message that PostgreSQL refuses, for any reason.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        mut entry: Entry,
        why: Refusal,
    ) {
        let to = self.to();
        if let Some(forgets) = entry.takes_name() {
            // An entry carries one change. So removing the name gets a Close of its own.
            let mut close = Entry::swallow(Reply::Close);
            close.effects_mut().name = Some(forgets);
            self.out
                .send_with(to, |buf| write::of_statement(buf, frontend::CLOSE, b""));
            self.push(close);
        }
        entry.effects_mut().name = Some(self.name_op(Box::default(), Change::Refused(why)));
        let simple = entry.reply == Reply::Query;
        self.push(entry);
        self.out.send_with(to, |buf| {
            if simple {
                write::query(buf, &[b"DEALLOCATE ", UNKNOWN].concat())
            } else {
                write::bind_head(buf, b"", UNKNOWN, 6);
                buf.extend_from_slice(&[0; 6]);
            }
        });
        self.skip(chunk, header);
    }
}
