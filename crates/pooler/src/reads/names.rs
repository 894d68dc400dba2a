//! Which functions of a database are volatile: PostgreSQL is asked, on a server that rests, when a
//! client's request is routed and what is known is too old. All workers learn the answer.

use std::sync::Arc;

use howdah_wire::backend::{Fields, Status, parameter_status};
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use crate::effect::VolatileNames;
use crate::event::{Action, Out, Peer, ServerId, WorkerId};
use crate::login::LoginId;
use crate::mail::Mail;
use crate::next::Next;
use crate::note::Level;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::reads::naming::Naming;
use crate::roster::question::values;
use crate::server::ServerState;

/// Asks for the volatile functions, and which of them users have made. PostgreSQL calls all aggregates
/// immutable, whatever their functions are.
const QUESTION: &str = "SELECT DISTINCT p.proname, p.oid OPERATOR(pg_catalog.>=) 16384 AND NOT EXISTS (\
    SELECT FROM pg_catalog.pg_depend d WHERE d.objid OPERATOR(pg_catalog.=) p.oid \
    AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass \
    AND d.deptype OPERATOR(pg_catalog.=) 'e'::pg_catalog.\"char\") \
    FROM pg_catalog.pg_proc p WHERE p.provolatile OPERATOR(pg_catalog.=) 'v'::pg_catalog.\"char\" \
    OR EXISTS (SELECT FROM pg_catalog.pg_aggregate a \
    JOIN pg_catalog.pg_proc f ON f.provolatile OPERATOR(pg_catalog.=) 'v'::pg_catalog.\"char\" \
    AND f.oid OPERATOR(pg_catalog.=) ANY (ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn, \
    a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::pg_catalog.oid[]) \
    WHERE a.aggfnoid OPERATOR(pg_catalog.=) p.oid)";

/// How much later each further worker asks, in nanoseconds: the first one asks for all.
const WORKER_NS: u64 = 1_000_000_000;

impl Pooler {
    /// Asks on a server that is idle; otherwise on the next one that a client gives back.
    pub(crate) fn ask_volatile(&mut self, login: LoginId, out: &mut Out) {
        for pool_id in self.logins.at(login).pools().to_vec() {
            let pool = self.pools.at_mut(pool_id);
            if pool.key.purpose != Purpose::Clients || pool.paused() {
                continue;
            }
            if let Some(server) = pool.idle.take_newest() {
                return self.ask_volatile_on(server, out);
            }
            pool.seeks_names(true);
        }
    }

    fn ask_volatile_on(&mut self, id: ServerId, out: &mut Out) {
        let login = self.servers.at(id).login;
        for pool in self.logins.at(login).pools().to_vec() {
            self.pools.at_mut(pool).seeks_names(false);
        }
        // A Query drops the unnamed statement.
        self.servers.at_mut(id).statements.set_unnamed(None);
        out.send_with(Peer::Server(id), |buf| {
            write::query(buf, QUESTION.as_bytes())
        });
        let schema = self.logins.at(login).schema;
        let naming = Naming {
            schema: self.shared.statements.schema(schema),
            ..Naming::default()
        };
        self.await_task(id, ServerState::Naming(Box::new(naming)));
    }

    /// A message of a server that tells the volatile functions.
    pub(crate) fn naming_message(&mut self, id: ServerId, message: u8, body: &[u8], out: &mut Out) {
        if message == tag::PARAMETER_STATUS {
            if let Ok((name, value)) = parameter_status(body) {
                self.learn(id, name, value);
            }
            return;
        }
        let server = self.servers.at_mut(id);
        let naming = gone!(server.naming_mut());
        match message {
            tag::DATA_ROW => match values(body) {
                Some([Some(name), Some(is_of_users)]) => {
                    naming.names.add(name, is_of_users == b"t");
                }
                _ => naming.error = Some("an answer that is none".into()),
            },
            tag::ERROR => naming.error = Some(Fields::new(body).texts("XX000").1),
            tag::READY => self.names_are_told(id, body, out),
            _ => {}
        }
    }

    fn names_are_told(&mut self, id: ServerId, ready: &[u8], out: &mut Out) {
        let server = self.servers.at_mut(id);
        let naming = std::mem::take(gone!(server.naming_mut()));
        // Anything else closes the server.
        server.mark_ready(Status::read(ready).unwrap_or(Status::Failed));
        let login = self.logins.at(server.login);
        let database = login.key.database.clone();
        self.next.note(Next::BringToRest(id));
        let schema = naming.schema;
        if let Some(why) = naming.error {
            let text =
                format!("no single reads go to standbys: volatile functions are unknown: {why}");
            return self.note_server(Level::Warning, id, &text, out);
        }
        let names = Arc::new(naming.names);
        for to in (0..self.workers).map(WorkerId) {
            if to != self.worker {
                let (database, names) = (database.clone(), names.clone());
                out.push(Action::Post(
                    to,
                    Mail::VolatileNames(database, schema, names),
                ));
            }
        }
        self.learn_volatile(&database, schema, &names);
    }

    /// PostgreSQL has told the volatile functions of a database.
    pub(crate) fn learn_volatile(
        &mut self,
        database: &str,
        schema: u64,
        names: &Arc<VolatileNames>,
    ) {
        let later = u64::from(self.worker.0) * WORKER_NS;
        for id in self.logins.ids() {
            let login = self.logins.at_mut(id);
            let has_statements = login.terms.reads.is_some_and(|reads| reads.has_statements);
            if has_statements && *login.key.database == *database {
                login.reads.learn(names.clone(), self.now, schema, later);
            }
        }
    }
}
