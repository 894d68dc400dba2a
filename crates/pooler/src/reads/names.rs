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
use crate::pool::Pool;
use crate::pool::key::{PoolId, Purpose};
use crate::pool::target::TargetName;
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
    /// Asks on this server, or on one that is idle; otherwise on the next one that a client gives back.
    /// The primary's servers come first: a standby may not know the newest functions.
    pub(crate) fn ask_volatile(&mut self, id: LoginId, released: Option<ServerId>, out: &mut Out) {
        let login = self.logins.at(id);
        let mut pools: Vec<(bool, PoolId)> = Vec::new();
        for pool_id in login.pools() {
            let pool = self.pools.at(*pool_id);
            if pool.key.purpose == Purpose::Clients && pool.gives() {
                pools.push((!self.is_at_primary(pool), *pool_id));
            }
        }
        pools.sort();
        for (_, pool_id) in &pools {
            let pool = self.pools.at_mut(*pool_id);
            let server = match released {
                Some(released) if pool.idle.iter().any(|id| id == released) => {
                    pool.idle.remove(released);
                    Some(released)
                }
                Some(_) => None,
                None => pool.idle.take_newest(),
            };
            if let Some(server) = server {
                return self.ask_volatile_on(server, out);
            }
        }
        for (_, pool_id) in pools {
            self.pools.at_mut(pool_id).seeks_names(true);
        }
    }

    /// True for a pool at a host that is the primary, or without roles.
    fn is_at_primary(&self, pool: &Pool) -> bool {
        match &pool.key.target {
            TargetName::Host(host) => self.is_primary(pool.login, host),
            TargetName::Entry | TargetName::NoHost => true,
        }
    }

    fn ask_volatile_on(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at(id);
        let login = server.login;
        let knows_newest = self.is_at_primary(self.pools.at(server.pool));
        for pool in self.logins.at(login).pools().to_vec() {
            self.pools.at_mut(pool).seeks_names(false);
        }
        // A Query drops the unnamed statement.
        self.servers.at_mut(id).statements.set_unnamed(None);
        out.send_with(Peer::Server(id), |buf| {
            write::query(buf, QUESTION.as_bytes())
        });
        let login = self.logins.at(login);
        let naming = Naming {
            // A standby may not have replayed the last change yet.
            schema: if knows_newest {
                self.shared.statements.schema(login.schema)
            } else {
                login.reads.schema()
            },
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
            let text = format!("which functions are volatile is asked again: {why}");
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
