//! Deadlines of clients and servers. What happens when one has passed: `timeouts.rs`.
//!
//! A connection has at most one entry in the [timers](crate::timers). The entry is corrected only
//! when it expires, so transactions never touch the timers.

use howdah_wire::backend::Status;

use crate::client::{Client, ClientState};
use crate::config::nanos;
use crate::event::{ClientId, ServerId, Time};
use crate::fault::Fault;
use crate::login::Terms;
use crate::maintenance::PERIOD_NS;
use crate::pool::reason::Reason;
use crate::pool::{Pool, Purpose};
use crate::pooler::Pooler;
use crate::roster::check::URGENT_NS;
use crate::server::{Server, ServerState};

/// How long a server may take to become idle after its client has left, in nanoseconds.
const REST_NS: u64 = 15_000_000_000;

/// How long auth_query may take if no setting limits it, in nanoseconds.
const LOOKUP_NS: u64 = 60_000_000_000;

/// How long the first clients of a pool wait for a host that refuses connections, in nanoseconds.
/// So an entry with a wrong port shows its error soon, and a restart of PostgreSQL has some time.
const NOBODY_NS: u64 = 2_000_000_000;

/// How long a new server at a standby waits until the standby shows enough for reads, in nanoseconds.
/// Then its pool backs off, and reads go elsewhere.
const MATURING_NS: u64 = 1_000_000_000;

/// How soon a client that must end is looked at again while it is in the middle of what no server knows,
/// in nanoseconds.
pub(crate) const LATER_NS: u64 = 1_000_000_000;

/// How long a client must have been quiet to be told unasked that it ends, in nanoseconds.
pub(crate) const PEACE_NS: u64 = 1_000_000_000;

/// PgBouncer's text for a server that does not log in in time.
pub(crate) const CONNECT_TIMEOUT: &str = "connect timeout";

/// PgBouncer's text for the end of an old server.
pub(crate) const LIFE_OVER: &str = "server lifetime over";

/// What to do when a client's deadline passes.
#[derive(Clone, Debug)]
pub(crate) enum ClientDue {
    /// Disconnect the client.
    Close(Fault),
    /// Tell the client that it waits.
    Notify,
    /// Examine the client's cancel request.
    Examine,
    /// The client's read waits for no standby any more.
    RouteRead,
    /// The client must end, now or with its transaction.
    End,
}

/// The earliest of several deadlines.
#[derive(Debug, Default)]
struct Deadlines {
    first: Option<(Time, ClientDue)>,
}

impl Deadlines {
    fn add(&mut self, from: Time, limit: u64, fault: Fault) {
        self.put(from, limit, ClientDue::Close(fault));
    }

    fn notify(&mut self, from: Time, limit: u64) {
        self.put(from, limit, ClientDue::Notify);
    }

    fn put(&mut self, from: Time, limit: u64, due: ClientDue) {
        if limit == 0 {
            return;
        }
        let at = Time(from.0.saturating_add(limit));
        if self.first.as_ref().is_none_or(|(first, _)| at < *first) {
            self.first = Some((at, due));
        }
    }
}

impl Pooler {
    /// Sets a client's timer to its next deadline.
    pub(crate) fn watch_client(&mut self, id: ClientId) {
        let Some((at, _)) = self.client_deadline(id) else {
            return;
        };
        let client = self.clients.at_mut(id);
        client.arm_timer(&mut self.timers, id, at);
    }

    /// Sets a linked client's timer before any deadline that may begin while the client is linked.
    /// So nothing else touches the timer meanwhile.
    pub(crate) fn watch_link(&mut self, id: ClientId) {
        let client = self.clients.at_mut(id);
        let Some(login) = client.login else { return };
        let shortest = self.logins.at(login).terms.shortest;
        let at = Time(self.now.0.saturating_add(shortest));
        client.arm_timer(&mut self.timers, id, at);
    }

    /// As `watch_client`, for a server.
    pub(crate) fn watch_server(&mut self, id: ServerId) {
        let Some((at, _)) = self.server_deadline(id) else {
            return;
        };
        let server = self.servers.at_mut(id);
        server.arm_timer(&mut self.timers, id, at);
    }

    /// A client's next deadline, and what to do then.
    pub(crate) fn client_deadline(&self, id: ClientId) -> Option<(Time, ClientDue)> {
        let client = self.clients.get(id)?;
        let globals = &self.config.globals;
        let mut deadlines = Deadlines::default();
        let terms = client.login.map(|login| &self.logins.at(login).terms);
        match (client.state(), terms) {
            (ClientState::Canceller, _) => {
                let limit = nanos(globals.cancel_wait_timeout);
                deadlines.add(client.times.request, limit, Fault::CancelWait);
                if let Some(turn) = self.guesses.turn_of(id) {
                    deadlines.put(turn, 1, ClientDue::Examine);
                }
            }
            (ClientState::Leaving { .. } | ClientState::Packed(_), _) => return None,
            (ClientState::Closing, _) => return None,
            (ClientState::Console(_), _) => {}
            (ClientState::Idle, Some(terms)) => {
                let limit = terms.client_idle_timeout;
                deadlines.add(client.times.quiet, limit, Fault::ClientIdle);
                if client.status_ahead() != Status::Idle {
                    let limit = terms.idle_transaction_timeout;
                    deadlines.add(client.times.quiet, limit, Fault::IdleTransaction);
                }
            }
            (ClientState::Waiting(_), Some(terms)) => {
                let limit = terms.query_wait_timeout;
                deadlines.add(client.times.request, limit, Fault::QueryWait);
                let limit = terms.query_timeout;
                deadlines.add(client.times.request, limit, Fault::QueryTimeoutWaiting);
                let read = client
                    .read_mark
                    .as_ref()
                    .and_then(|mark| mark.waits_until());
                if let Some(until) = read {
                    deadlines.put(Time(until.0 - 1), 1, ClientDue::RouteRead);
                }
                if !client.notified && client.welcomed {
                    deadlines.notify(client.times.request, nanos(globals.query_wait_notify));
                }
            }
            (ClientState::Linked(server) | ClientState::Aligning(server), Some(terms)) => {
                self.linked_deadlines(client, self.servers.get(*server)?, terms, &mut deadlines);
            }
            // As with PgBouncer, a client that waits for auth_query counts as waiting for a server.
            (ClientState::Lookup(pool), Some(terms)) => {
                if let Some(fault) = self.nobody_there(*pool) {
                    deadlines.add(client.times.request, NOBODY_NS, fault);
                }
                let limit = nanos(globals.client_login_timeout);
                deadlines.add(client.times.connected, limit, Fault::LoginTimeout);
                let limit = terms.query_wait_timeout;
                deadlines.add(client.times.request, limit, Fault::QueryWait);
            }
            (ClientState::Welcome(pool), Some(terms)) => {
                if let Some(fault) = self.nobody_there(*pool) {
                    deadlines.add(client.times.request, NOBODY_NS, fault);
                }
                let limit = nanos(globals.client_login_timeout);
                deadlines.add(client.times.connected, limit, Fault::LoginTimeoutServerDown);
                let limit = terms.query_timeout;
                deadlines.add(client.times.connected, limit, Fault::QueryTimeoutWaiting);
                let limit = terms.query_wait_timeout;
                deadlines.add(client.times.request, limit, Fault::QueryWait);
            }
            (state, _) => {
                let limit = nanos(globals.client_login_timeout);
                let silent =
                    matches!(state, ClientState::Startup) && client.inbox.held().is_empty();
                let fault = if silent && !client.is_tls() {
                    Fault::LoginTimeoutSilent
                } else {
                    Fault::LoginTimeout
                };
                deadlines.add(client.times.connected, limit, fault);
            }
        }
        if let Some(fault) = client.ends_when_it_asks() {
            deadlines.add(client.times.last_active(), PEACE_NS, fault);
        } else if let Some(end) = client.next_end(self.now) {
            // While a transaction has no server yet, the end must not hide other deadlines.
            let waits = end <= self.now && self.has_unsent_transaction(id);
            let at = if waits { self.now.0 + LATER_NS } else { end.0 };
            deadlines.put(Time(at.saturating_sub(1)), 1, ClientDue::End);
        }
        deadlines.first
    }

    /// True if a client is in a transaction, or has not all its answers, and has no server.
    fn has_unsent_transaction(&self, id: ClientId) -> bool {
        let state = self.clients.at(id).state();
        let without = matches!(state, ClientState::Idle | ClientState::Waiting(_));
        without && !self.is_between_transactions(id)
    }

    /// True if a client has no transaction, and asks for none that a server has begun.
    pub(crate) fn is_between_transactions(&self, id: ClientId) -> bool {
        let client = self.clients.at(id);
        match client.state() {
            // Its last answer is held back, or it is in a group that has failed, and awaits its ReadyForQuery.
            _ if client.is_hushed() || client.end.skips() => false,
            ClientState::Idle | ClientState::Waiting(_) => {
                client.status_ahead() == Status::Idle && !client.is_pinned()
            }
            ClientState::Linked(server) => {
                let server = self.servers.at(*server);
                let is_busy = server.link.is_owed() || server.link.group_open();
                !is_busy && server.status == Status::Idle
            }
            ClientState::Console(session) => session.at_rest().is_some(),
            ClientState::Welcome(_) => true,
            _ => false,
        }
    }

    /// The error of a client at `query_wait_timeout`. A server that only other clients can have for
    /// now is a server.
    pub(crate) fn waited_too_long(&self, id: ClientId) -> Fault {
        let Some(pool) = self.clients.at(id).waits_in() else {
            return Fault::QueryWait;
        };
        match self.reason(pool) {
            Reason::Paused | Reason::Suspended => Fault::QueryWaitServerDown,
            // Other workers or other pools have the servers.
            Reason::HeldBy(_) | Reason::Asked | Reason::PinLimit | Reason::Catalogue => {
                Fault::QueryWait
            }
            _ if self.has_usable_server(pool) => Fault::QueryWait,
            _ => Fault::QueryWaitServerDown,
        }
    }

    fn linked_deadlines(
        &self,
        client: &Client,
        server: &Server,
        terms: &Terms,
        deadlines: &mut Deadlines,
    ) {
        if !server.link.is_owed() {
            if server.status == Status::Idle && !server.link.group_open() {
                deadlines.add(
                    client.times.quiet,
                    terms.client_idle_timeout,
                    Fault::ClientIdle,
                );
                if client.is_pinned() {
                    deadlines.add(client.times.quiet, terms.pin_idle_timeout, Fault::PinIdle);
                }
                return;
            }
            let limit = terms.idle_transaction_timeout;
            deadlines.add(client.times.quiet, limit, Fault::IdleTransaction);
        } else {
            // A COPY FROM STDIN takes as long as its client sends. As with PgBouncer, the timeout
            // counts from the client's last bytes.
            let from = server.times.request.max(client.times.quiet);
            // Both runs of a read, or of a BEGIN, are one query.
            let mark = client.read_mark.as_ref();
            let first = mark.and_then(|mark| mark.again.map(|of| of.since).or(mark.repeated));
            let from = first.unwrap_or(from);
            deadlines.add(from, terms.query_timeout, Fault::QueryTimeout);
        }
        deadlines.add(
            server.times.transaction,
            terms.transaction_timeout,
            Fault::TransactionTimeout,
        );
    }

    /// A server's next deadline, and the reason.
    pub(crate) fn server_deadline(&self, id: ServerId) -> Option<(Time, &'static str)> {
        let server = self.servers.get(id)?;
        let globals = &self.config.globals;
        let after = |from: Time, limit: u64| Time(from.0.saturating_add(limit));
        match *server.state() {
            ServerState::Resolving
            | ServerState::Connecting
            | ServerState::Securing(_)
            | ServerState::Login(_)
            | ServerState::ConnectQuery => {
                let limit = match self.pools.at(server.pool).key.purpose {
                    Purpose::Checks => nanos(globals.host_check_timeout),
                    _ => nanos(globals.server_connect_timeout),
                };
                (limit > 0).then(|| (after(server.times.connected, limit), CONNECT_TIMEOUT))
            }
            ServerState::Idle => Some(idle_deadline(server, self.pools.at(server.pool))),
            ServerState::Cancel(_) => Some((
                after(server.times.connected, crate::cancel::carrier::CARRIER_NS),
                "cancel timeout",
            )),
            ServerState::Lookup(_) => {
                // Without any timeout set, a hanging query must not block logins for ever.
                let terms = &self.logins.at(server.login).terms;
                let limits = [
                    (nanos(globals.client_login_timeout), "client_login_timeout"),
                    (terms.query_timeout, "query_timeout"),
                    (terms.query_wait_timeout, "query_wait_timeout"),
                ];
                let set = limits.into_iter().filter(|(limit, _)| *limit > 0);
                let (limit, why) = set.min().unwrap_or((LOOKUP_NS, "auth_query did not end"));
                Some((after(server.times.request, limit), why))
            }
            ServerState::Examining(ref examination) => Some(match examination.asked {
                Some(asked) => (
                    after(asked, nanos(globals.host_check_timeout)),
                    "host_check_timeout",
                ),
                None => {
                    let pause = nanos(globals.host_check_interval);
                    let pause = if examination.is_urgent {
                        pause.min(URGENT_NS)
                    } else {
                        pause
                    };
                    (after(server.times.used, pause), "the next check")
                }
            }),
            ServerState::Maturing(_) => Some((
                after(server.times.used, MATURING_NS),
                "the standby does not advance",
            )),
            ServerState::Draining => Some((
                after(server.times.used, REST_NS),
                "client left, query did not end",
            )),
            ServerState::Resetting => {
                Some((after(server.times.used, REST_NS), "reset query failed"))
            }
            ServerState::Checking => Some((after(server.times.used, REST_NS), "test query failed")),
            ServerState::Naming(_) => Some((
                after(server.times.used, REST_NS),
                "the question for functions was not answered",
            )),
            ServerState::Cataloguing(_) => Some((
                after(server.times.used, REST_NS),
                "the question for the catalogue was not answered",
            )),
            _ => None,
        }
    }
}

/// When an idle server is to be closed, and the reason.
#[inline]
pub(crate) fn idle_deadline(server: &Server, pool: &Pool) -> (Time, &'static str) {
    let supply = &pool.supply;
    let after = |from: Time, limit: u64| Time(from.0.saturating_add(limit));
    // Even with a lifetime of 0, a new server gets some time to serve a client.
    let over = after(
        server.times.connected,
        supply.server_lifetime.max(PERIOD_NS),
    );
    let over = over.max(pool.next_life());
    let idle = after(server.times.used, supply.server_idle_timeout);
    if supply.server_idle_timeout > 0 && idle <= over {
        (idle, "server idle timeout")
    } else {
        (over, LIFE_OVER)
    }
}
