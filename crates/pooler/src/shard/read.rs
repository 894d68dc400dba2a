//! The catalogues of shards: PostgreSQL is asked on connections of Howdah's own, because clients may
//! leave something on theirs that changes the answer. All workers learn it.

use std::sync::Arc;

use howdah_shard::Part;
use howdah_wire::backend::{Fields, Status, parameter_status};
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use crate::event::{Action, Out, Peer, ServerId, WorkerId};
use crate::mail::Mail;
use crate::next::Next;
use crate::note::Level;
use crate::pooler::Pooler;
use crate::server::ServerState;
use crate::shard::lore::{CatalogueAnswer, CatalogueFailure, CatalogueQuestion};

impl Pooler {
    /// A server has logged in, or was lent, to tell a shard's catalogue.
    pub(crate) fn read_catalogue(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at(id);
        let (pool, login) = (server.pool, server.login);
        self.pools.at_mut(pool).listener_wanted(false);
        self.sated(pool, out);
        let schema = self.logins.at(login).schema;
        let answer = CatalogueAnswer {
            question: CatalogueQuestion {
                asked: self.now,
                schema: self.shared.statements.schema(schema),
            },
            ..CatalogueAnswer::default()
        };
        let parts = Part::ALL.map(Part::query).join(";");
        self.servers.at_mut(id).statements.set_unnamed(None);
        out.send_with(Peer::Server(id), |buf| write::query(buf, parts.as_bytes()));
        self.await_task(id, ServerState::Cataloguing(Box::new(answer)));
    }

    /// A message of a server that tells a shard's catalogue.
    pub(crate) fn catalogue_message(
        &mut self,
        id: ServerId,
        message: u8,
        body: &[u8],
        out: &mut Out,
    ) {
        if message == tag::PARAMETER_STATUS {
            if let Ok((name, value)) = parameter_status(body) {
                self.learn(id, name, value);
            }
            return;
        }
        let server = self.servers.at_mut(id);
        let answer = gone!(server.catalogue_mut());
        match message {
            tag::DATA_ROW => {
                let part = Part::ALL.get(answer.parts).copied();
                let fields = fields(body);
                let read = part
                    .zip(fields)
                    .map(|(part, row)| answer.reader.row(part, &row));
                match read {
                    Some(Ok(())) => {}
                    Some(Err(odd)) => answer.error = Some(odd.to_string()),
                    None => answer.error = Some("an answer that is none".into()),
                }
            }
            tag::COMMAND_COMPLETE => answer.parts += 1,
            tag::ERROR => answer.error = Some(Fields::new(body).texts("XX000").1),
            tag::READY => self.catalogue_is_told(id, body, out),
            _ => {}
        }
    }

    fn catalogue_is_told(&mut self, id: ServerId, ready: &[u8], out: &mut Out) {
        let server = self.servers.at_mut(id);
        let answer = std::mem::take(gone!(server.catalogue_mut()));
        server.mark_ready(Status::read(ready).unwrap_or(Status::Failed));
        let shard = self.logins.at(server.login).key.database.clone();
        if let Some(why) = answer.error {
            let text = format!("the catalogue of the shard can't be read: {why}");
            self.note_server(Level::Warning, id, &text, out);
            self.note_unread(&shard, &why);
            self.miss_catalogue(&shard, CatalogueFailure::Refused(why.as_str().into()));
            return self.next.note(Next::BringToRest(id));
        }
        let found = Arc::new(answer.reader.finish());
        for to in (0..self.workers)
            .map(WorkerId)
            .filter(|to| *to != self.worker)
        {
            let (shard, found) = (shard.clone(), found.clone());
            let mail = Mail::ShardCatalogue(shard, answer.question, found);
            out.push(Action::Post(to, mail));
        }
        self.learn_catalogue(&shard, answer.question, found);
        self.next.note(Next::BringToRest(id));
    }
}

/// The columns of a DataRow.
fn fields(row: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let (count, mut rest) = row.split_first_chunk::<2>()?;
    let mut fields = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // NULL has the length -1.
        let field = match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(value)
            }
            Err(_) => None,
        };
        fields.push(field);
    }
    Some(fields)
}
