//! Permission to keep a server between transactions (`pin_limit`). The pool's other clients can't
//! use a kept server, so only a limited number of clients get permission.
//!
//! The Broker counts. A client asks before it runs a statement that may pin it. Outside of a
//! transaction, the client gives its server back and waits, as for a server. Inside a transaction,
//! the Broker answers at once, and the statement fails if too many clients keep a server.
//!
//! The limit binds while other clients wait for a server. Otherwise all servers but one can be kept.
//! Then only those who keep a server can end a wait. If all of them are silent, the waiting
//! application may be the one that they wait for, so the wait ends with an error.
//!
//! (`currval` never fails: it runs, and its value is not kept.) Sometimes a client turns out to be
//! pinned only after its statement has run. If it has no permission, Howdah disconnects it.

use howdah_wire::backend::Status;
use howdah_wire::write;

use crate::client::{Client, ClientState};
use crate::effect::Kinds;
use crate::event::{Action, ClientId, Out, Peer, Time};
use crate::mail::{PinWish, ToBroker};
use crate::maintenance::PERIOD_NS;
use crate::pool::key::PoolId;
use crate::pooler::Pooler;
use crate::session::ticket::{Permission, Ticket};

impl Client {
    /// The client may keep a server.
    pub(crate) fn may_keep(&self) -> bool {
        self.permission() == Some(Permission::Held)
    }

    /// True while the client waits for permission to keep a server.
    pub(crate) fn awaits_permission(&self) -> bool {
        matches!(self.state(), ClientState::Waiting(_))
            && self.permission() == Some(Permission::Asked)
    }

    /// The state of the client's request for permission, if there is one.
    pub(crate) fn permission(&self) -> Option<Permission> {
        let session = self.session.as_deref();
        session.and_then(|session| Some(session.ticket.as_ref()?.state))
    }
}

impl Pooler {
    /// Asks the Broker for permission, unless a request exists already.
    pub(crate) fn ask_permission(&mut self, id: ClientId, wish: PinWish, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        let linked = self.pool_of_server(client);
        let client = self.clients.at_mut(id);
        let pool = client.waits_in().or(linked);
        let Some(pool) = pool.map(|pool| self.pools.at(pool)) else {
            return;
        };
        let session = client.session_mut();
        if session.ticket.is_some() || pool.supply.bounds.pins == 0 {
            return;
        }
        self.tickets += 1;
        let (ticket, key) = (self.tickets, pool.key.clone());
        session.ticket = Some(Ticket {
            number: ticket,
            pool: key.clone(),
            state: Permission::Asked,
        });
        let asks = ToBroker::Pin {
            worker: self.worker,
            client: id,
            ticket,
            pool: key,
            wish,
            bounds: pool.supply.bounds.clone(),
        };
        out.push(Action::Broker(asks));
    }

    /// Tells the Broker whether clients that keep servers of a pool work.
    pub(crate) fn tell_pins(&self, id: PoolId, out: &mut Out) {
        let pool = self.pools.at(id);
        if pool.supply.bounds.pins == 0 || self.tickets == 0 {
            return;
        }
        let lately = Time(self.now.0.saturating_sub(PERIOD_NS));
        let works = self.servers.iter().any(|(_, server)| {
            let in_transaction = server.status != Status::Idle;
            server.pool == id
                && (server.link.is_owed() || in_transaction || server.times.request >= lately)
                && self.client_of(server).is_some_and(Client::may_keep)
        });
        if works || !pool.pin_line.is_empty() {
            let (worker, pool) = (self.worker, pool.key.clone());
            out.push(Action::Broker(ToBroker::Pins {
                worker,
                pool,
                works,
            }));
        }
    }

    /// Gives permission back: the client keeps no server, and does not wait to.
    pub(crate) fn give_permission_back(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        let Some(session) = client.session_if_any() else {
            return;
        };
        let Some(ticket) = session.ticket.take() else {
            return;
        };
        client.forgets_blank_session();
        self.unpin(&ticket, out);
    }

    /// Gives permission back for a client that is in no table any more and goes to a successor.
    pub(crate) fn permission_ends(&mut self, client: &Client, out: &mut Out) {
        let session = client.session.as_ref();
        if let Some(ticket) = session.and_then(|session| session.ticket.as_ref()) {
            self.unpin(ticket, out);
        }
    }

    fn unpin(&self, ticket: &Ticket, out: &mut Out) {
        if ticket.state == Permission::Refused {
            return;
        }
        let unpin = ToBroker::Unpin {
            worker: self.worker,
            ticket: ticket.number,
            pool: ticket.pool.clone(),
        };
        out.push(Action::Broker(unpin));
    }

    /// A client begins or stops keeping its server.
    pub(crate) fn pin_changed(&mut self, id: ClientId, kinds: Kinds, out: &mut Out) {
        let text = if kinds.is_empty() {
            "no longer keeps its server".to_string()
        } else {
            self.ask_permission(id, PinWish::Knows, out);
            format!("keeps its server: {}", super::reasons(kinds))
        };
        if self.config.globals.pin_notice {
            let text = format!("this session {text}");
            out.send_with(Peer::Client(id), |buf| {
                write::notice(buf, "NOTICE", "00000", &text, None);
            });
        }
        self.note_client(crate::note::Level::Debug, id, &text, out);
    }
}
