//! What happens when a deadline of a client or server has passed ([`crate::deadlines`]).

use howdah_wire::write;

use crate::client::{ClientState, EndReason};
use crate::deadlines::{ClientDue, LATER_NS, LIFE_OVER, PEACE_NS};
use crate::event::{ClientId, Close, Out, Peer, ServerId, Time};
use crate::fault::Fault;
use crate::pooler::Pooler;
use crate::server::{Ending, ServerState};

impl Pooler {
    /// A client's timer entry expired. The entry may be old, or the deadline may have moved.
    pub(crate) fn client_due(&mut self, id: ClientId, at: Time, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        if client.timer != at {
            return;
        }
        client.timer_fired();
        match self.client_deadline(id) {
            Some((deadline, due)) if deadline <= self.now => self.client_late(id, due, out),
            later => {
                if later.is_some() {
                    self.watch_client(id);
                }
                self.watch_link_again(id);
            }
        }
    }

    fn client_late(&mut self, id: ClientId, due: ClientDue, out: &mut Out) {
        match due {
            ClientDue::Close(Fault::QueryWait) => {
                let fault = self.waited_too_long(id);
                self.disconnect(id, fault, out);
            }
            ClientDue::Close(fault) if fault.is_planned() && self.is_being_told(id) => {
                self.look_again_later(id);
            }
            ClientDue::Close(fault) => self.disconnect(id, fault, out),
            ClientDue::Examine => self.cancel_turn(id, out),
            ClientDue::End => self.client_over(id, out),
            ClientDue::RouteRead => {
                self.read_gives_up(id);
                self.watch_client(id);
            }
            ClientDue::Notify => {
                let detail = self.wait_detail(id);
                self.clients.at_mut(id).set_notified(true);
                let text = "No server connection available in postgres backend, \
                            client being queued";
                out.send_with(Peer::Client(id), |buf| {
                    write::notice(buf, "NOTICE", "00000", text, detail.as_deref());
                });
                self.watch_client(id);
            }
        }
    }

    /// A client must end: now, or with its transaction.
    fn client_over(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at_mut(id);
        let ends = client.ends_at.as_ref();
        let Some(why) = ends.and_then(|ends| ends.due(self.now)) else {
            return;
        };
        if why.is_patient() && matches!(client.state(), ClientState::Waiting(_)) {
            client.ends_with_transaction();
            return self.watch_client(id);
        }
        if why.is_patient() && self.is_being_told(id) {
            return self.look_again_later(id);
        }
        if self.is_between_transactions(id) {
            return match why.is_patient() {
                true => self.end_in_peace(id, why, out),
                false => self.disconnect(id, why.fault(), out),
            };
        }
        if self.end_with_transaction(id) {
            self.watch_client(id);
            return self.watch_link_again(id);
        }
        // It is in the middle of a command of the console.
        self.look_again_later(id);
    }

    fn look_again_later(&mut self, id: ClientId) {
        let at = Time(self.now.0 + LATER_NS);
        let client = self.clients.at_mut(id);
        client.arm_timer(&mut self.timers, id, at);
    }

    /// A client that must end has ended its transaction.
    pub(crate) fn client_has_ended_work(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        if client.end_of_transaction(self.now).is_some() {
            self.client_over(id, out);
        }
    }

    /// Ends a client between two transactions. Drivers that read an error right behind the last answer
    /// take it for a notice. So a client that was active just now gets the error when it asks for
    /// something, or a moment later.
    fn end_in_peace(&mut self, id: ClientId, why: EndReason, out: &mut Out) {
        let client = self.clients.at_mut(id);
        // A client that has asked meanwhile is told at once, and nothing of that runs.
        let asks = !client.inbox.held().is_empty();
        if !asks && self.now.0 < client.times.last_active().0.saturating_add(PEACE_NS) {
            client.leave_with(why.fault());
            return self.watch_client(id);
        }
        self.disconnect(id, why.fault(), out);
    }

    /// As `client_due`, for a server.
    pub(crate) fn server_due(&mut self, id: ServerId, at: Time, out: &mut Out) {
        let server = gone!(self.servers.get_mut(id));
        if server.timer != at {
            return;
        }
        server.timer_fired();
        match server.retires() {
            Some(at) if at <= self.now => {
                if self.ends_with_user(id) {
                    return self.replace_as(id, Ending::UserEnds, out);
                }
            }
            _ => self.watch_vanishing(id),
        }
        match self.server_deadline(id) {
            Some((deadline, why)) if deadline <= self.now => self.server_late(id, why, out),
            Some(_) => self.watch_server(id),
            None => {}
        }
    }

    fn server_late(&mut self, id: ServerId, why: &'static str, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        match *server.state() {
            ServerState::Cancel(_) => self.carrier_timeout(id, out),
            ServerState::Maturing(_) => {
                let why = self.why_immature(id);
                self.login_failed(id, "55000", why, out);
                self.close_server(id, why, Close::Await, out);
            }
            ServerState::Resolving
            | ServerState::Connecting
            | ServerState::Securing(_)
            | ServerState::Login(_)
            | ServerState::ConnectQuery => {
                if matches!(server.state(), ServerState::Connecting) {
                    self.host_is_down(id, why, out);
                }

                self.login_failed(id, "08006", why, out);
                self.close_server(id, why, Close::Abort, out);
            }
            ServerState::Examining(ref examination) => match examination.asked {
                Some(asked) => self.check_overdue(id, asked, out),
                None => self.ask_host(id, out),
            },
            ServerState::Idle => {
                // A pool keeps its minimum of servers, except old ones. Only one worker does so, or
                // each would keep as many.
                let pool = self.pools.at(server.pool);
                let min = pool.supply.min_size;
                let keeps = self.first_seat(&pool.key.login) == self.worker;
                if why == "server idle timeout" && pool.servers() <= min && keeps {
                    self.servers.at_mut(id).times.set_used(self.now);
                    return self.watch_server(id);
                }
                if why == LIFE_OVER {
                    return self.end_life(id, out);
                }
                self.close_server(id, why, Close::Await, out);
            }
            _ => self.close_server(id, why, Close::Await, out),
        }
    }
}
