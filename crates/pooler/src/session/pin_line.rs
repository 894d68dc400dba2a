//! Clients that wait for permission to keep a server ([`super::pins`]): they stand in their pool's
//! `pin_line` until the Broker has answered.

use crate::client::ClientState;
use crate::event::{ClientId, Out};
use crate::fault::{Fault, refusal};
use crate::mail::PinWish;
use crate::pool::key::PoolId;
use crate::pooler::Pooler;
use crate::session::ticket::Permission;

impl Pooler {
    /// A message of the client would pin it. `waits`: the client waits without a server.
    pub(crate) fn need_permission(&mut self, id: ClientId, waits: bool, out: &mut Out) {
        if !waits {
            self.ask_permission(id, PinWish::Knows, out);
            self.clients.at_mut(id).end.stalls();
            return;
        }
        self.part_and_wait(id, out);
    }

    /// The client stands in the line of those that wait for permission.
    pub(crate) fn stands_in_pin_line(&mut self, id: ClientId, pool: PoolId, out: &mut Out) {
        self.tell_if_idle(id, out);
        // What the client was told may have ended it.
        if let Some(client) = self.clients.get_mut(id)
            && client.login.is_some()
        {
            client.stands_in_line(pool);
            let pool = self.pools.at_mut(pool);
            pool.pin_line.join(id, client.times.request);
        }
        self.ask_permission(id, PinWish::Waits, out);
        self.watch_client(id);
    }

    /// The Broker has answered. (A client that is gone has already given its permission back.)
    pub(crate) fn permission_answered(
        &mut self,
        id: ClientId,
        ticket: u64,
        granted: bool,
        out: &mut Out,
    ) {
        let client = gone!(self.clients.get_mut(id));
        let asked = client.session_if_any().and_then(|s| s.ticket.as_mut());
        let Some(asked) = asked.filter(|t| t.number == ticket && t.state == Permission::Asked)
        else {
            return;
        };
        asked.state = if granted {
            Permission::Held
        } else {
            Permission::Refused
        };
        match *client.state() {
            ClientState::Waiting(pool) if !granted => {
                self.pools.at_mut(pool).pin_line.leave(id);
                let error = |buf: &mut Vec<u8>| refusal::error(buf, refusal::PINS_REST);
                if !self.fail_waiting(id, b"53000", error, out) {
                    self.disconnect(id, Fault::TooManyPins, out);
                }
            }
            ClientState::Waiting(pool) => {
                client.becomes_idle(self.now);
                self.pools.at_mut(pool).pin_line.leave(id);
                self.resume(id, out);
            }
            ClientState::Linked(_) if client.end.is_stalled() => {
                self.resume(id, out);
                // The client's ReadyForQuery may have waited for the answer.
                self.settle_client(id, out);
            }
            ClientState::Linked(_) | ClientState::Aligning(_) if !granted && client.is_pinned() => {
                self.disconnect(id, Fault::TooManyPins, out);
            }
            ClientState::Linked(server) => {
                if !granted {
                    self.give_permission_back(id, out);
                }
                self.settle(server, out);
            }
            ClientState::Aligning(_) if granted => {}
            _ => self.give_permission_back(id, out),
        }
    }
}
