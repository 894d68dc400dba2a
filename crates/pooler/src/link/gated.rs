//! The messages of a client of a sharded database, while it has a server: what belongs to another
//! shard is refused ([`crate::shard`]).

use howdah_shard::Hint;
use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, Header};
use howdah_wire::frontend::BindNames;
use howdah_wire::tag::frontend as tag;
use howdah_wire::write;

use super::upstream::{Flow, Upstream, await_whole, needs_server, whole};
use crate::effect::ShardedText;
use crate::inbox::Chunk;
use crate::ledger::{Entry, Refusal, Reply};
use crate::limits;
use crate::shard::error::ShardError;
use crate::shard::{Where, hint_of};

impl Upstream<'_> {
    /// Looks at a message before it is sent. True if the message is handled.
    #[cold]
    pub(super) fn gate(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<bool, Flow> {
        if !needs_server(header.tag) && header.tag != tag::FUNCTION_CALL {
            return Ok(false);
        }
        if self.server.link.ledger.owes_ready() {
            // Those answers show whether the transaction is over.
            return Err(self.stall());
        }
        let refused = match header.tag {
            tag::QUERY => return self.gate_query(chunk, header),
            tag::FUNCTION_CALL => Err(ShardError::function_call()),
            tag::BIND => self.gate_bind(chunk, header)?,
            _ => Ok(()),
        };
        Ok(match refused {
            Ok(()) => false,
            Err(error) => {
                let reply = if header.tag == tag::BIND {
                    Reply::Bind
                } else {
                    Reply::Query
                };
                self.refuse_elsewhere(chunk, header, (reply, error));
                true
            }
        })
    }

    fn gate_query(&mut self, chunk: &mut Chunk<'_>, header: Header) -> Result<bool, Flow> {
        let text = match whole(chunk, header) {
            Some(body) => Some(body.strip_suffix(b"\0").unwrap_or(body)),
            None => {
                if header.total() <= limits::SHARDED {
                    await_whole(self.client, self.share, true, header)?;
                }
                None
            }
        };
        let is_over = self.server.status == Status::Idle && !self.server.link.group_open();
        let sharded = self
            .client
            .sharded
            .as_mut()
            .expect("the database is sharded");
        if is_over {
            sharded.says_locally(None);
        }
        let refused = match text.map(ShardedText::read) {
            Some(ShardedText::Set {
                setting,
                value,
                local: true,
            }) => {
                let hint = value.map(|value| hint_of(setting, &value));
                let place = hint.as_ref().map(|hint| sharded.shard_of(hint)).transpose();
                let place = place.map(|shard| shard.map_or(Where::Anywhere, Where::At));
                let fits = place.and_then(|place| self.fits(place));
                if fits.is_ok() && !is_over {
                    self.says_locally(hint);
                }
                fits
            }
            Some(ShardedText::Set { .. } | ShardedText::Reset(_)) => Err(ShardError::set_inside()),
            Some(ShardedText::Show(setting)) => {
                let value = sharded.value(setting).replace('\'', "''");
                let name = setting.name();
                let sql = format!("SELECT '{value}'::text AS \"{name}\"");
                let mut entry = self.query_entry();
                entry.barrier = true;
                self.push(entry);
                let to = self.to();
                self.out
                    .send_with(to, |buf| write::query(buf, sql.as_bytes()));
                self.skip(chunk, header);
                return Ok(true);
            }
            read => {
                if read == Some(ShardedText::ResetAll) && is_over {
                    sharded.says_as_at_login();
                }
                sharded.place(text).and_then(|place| self.fits(place))
            }
        };
        let Err(error) = refused else {
            return Ok(false);
        };
        self.refuse_elsewhere(chunk, header, (Reply::Query, error));
        Ok(true)
    }

    fn says_locally(&mut self, hint: Option<Hint>) {
        if let Some(sharded) = &mut self.client.sharded {
            sharded.says_locally(hint);
        }
    }

    /// Whether a statement may be bound here.
    fn gate_bind(
        &mut self,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Result<(), ShardError>, Flow> {
        let there = &chunk.rest()[HEADER..];
        let body = &there[..there.len().min(header.body as usize)];
        let names = match BindNames::read(body) {
            Some(names) => names,
            None if body.len() < header.body as usize && body.len() < limits::FRONT => {
                return Err(Flow::Partial);
            }
            // PostgreSQL answers with its own error.
            None => return Ok(Ok(())),
        };
        if self.client.status_ahead() != Status::Idle {
            return Ok(Err(ShardError::begins_in_group()));
        }
        let statement = self.lookup(names.statement);
        let text = statement.as_ref().map(|statement| statement.text());
        if let Some(ShardedText::Set { .. } | ShardedText::Reset(_) | ShardedText::Show(_)) =
            text.map(ShardedText::read)
        {
            return Ok(Err(ShardError::set_in_group()));
        }
        let sharded = self
            .client
            .sharded
            .as_deref()
            .expect("the database is sharded");
        Ok(sharded.place(text).and_then(|place| self.fits(place)))
    }

    /// Whether what belongs there may run on the client's server.
    fn fits(&self, place: Where) -> Result<(), ShardError> {
        let sharded = self
            .client
            .sharded
            .as_deref()
            .expect("the database is sharded");
        match (place, sharded.at()) {
            (Where::Anywhere, _) => Ok(()),
            (Where::At(shard), Some(at)) if shard == at => Ok(()),
            (Where::At(shard), at) => Err(ShardError::elsewhere(
                &sharded.map,
                at.unwrap_or(shard),
                shard,
            )),
        }
    }

    /// Refuses a message, and so fails the transaction.
    fn refuse_elsewhere(
        &mut self,
        chunk: &mut Chunk<'_>,
        header: Header,
        (reply, error): (Reply, ShardError),
    ) {
        if let Some(sharded) = &mut self.client.sharded {
            sharded.refuses(error);
        }
        let mut entry = match reply {
            Reply::Query => self.query_entry(),
            reply => Entry::forward(reply),
        };
        entry.barrier = reply == Reply::Query;
        self.client.inbox.gives_room_back();
        self.refuse(chunk, header, entry, Refusal::Shard);
    }
}
