//! Signals to clients, by the process ids that they were told at login ([`crate::signal`]).

use crate::cancel::Keys;
use crate::client::ClientState;
use crate::event::{Action, ClientId, Out, WorkerId};
use crate::fault::Fault;
use crate::mail::Mail;
use crate::pool::key::PoolId;
use crate::pooler::Pooler;
use crate::signal::{SameRole, Signal, SignalSent};

impl Pooler {
    /// A client sends a signal to the client with this process id. The worker that the id names is
    /// asked first, then the others: the client may have moved, or come from a predecessor.
    pub(crate) fn ask_for_signal(&mut self, id: ClientId, pid: u32, ends: bool, out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.end.stalls();
        let Some(pool) = client.pool else { return };
        let by_admin = self.config.globals.admin_users.has(&client.who.user);
        let signal = Signal {
            pid,
            ends,
            of: self.same_role(pool),
            by_admin,
            from: (self.worker, id),
            asked: 0,
        };
        let worker = self.first_asked(pid, &[0; 4]);
        out.push(Action::Post(worker, Mail::Signal(Box::new(signal))));
    }

    fn same_role(&self, pool: PoolId) -> SameRole {
        let pool = self.pools.at(pool);
        SameRole {
            user: pool.key.login.user.clone(),
            host: pool.terms.database.host.clone(),
            port: pool.terms.database.port,
        }
    }

    /// A signal that may be for a client of this worker.
    pub(crate) fn signal_came(&mut self, mut signal: Box<Signal>, out: &mut Out) {
        let from = signal.from;
        let Some(id) = self.told_holder(signal.pid) else {
            signal.asked += 1;
            if signal.asked == self.workers {
                return out.push(Action::Post(from.0, Mail::Cancelled(from.1, false)));
            }
            let next = WorkerId((self.worker.0 + 1) % self.workers);
            return out.push(Action::Post(next, Mail::Signal(signal)));
        };
        let client = self.clients.at(id);
        let role = client.pool.map(|pool| self.same_role(pool));
        let may = role.is_some_and(|mut role| {
            if signal.by_admin {
                role.user = signal.of.user.clone();
            }
            role == signal.of
        });
        if !may {
            return out.push(Action::Post(from.0, Mail::Cancelled(from.1, false)));
        }
        if !signal.ends {
            let (pid, secret) = match &client.old_key {
                Some(key) => (key.pid, key.secret.clone()),
                None => {
                    let (pid, secret, length) = self.own_key(id, client.long_key);
                    (pid, secret[..length].into())
                }
            };
            return self.cancel_wanted(pid, secret, from, false, out);
        }
        out.push(Action::Post(from.0, Mail::Cancelled(from.1, true)));
        self.disconnect(id, Fault::Forced, out);
    }

    /// The client of this worker that was told this process id. `None` if several were.
    fn told_holder(&self, pid: u32) -> Option<ClientId> {
        let told = |id: ClientId| {
            let client = gone!(self.clients.get(id));
            let there = client.welcomed && !matches!(client.state(), ClientState::Closing);
            let own = crate::peering::login_pid(&self.keys, &self.peering, id, client);
            (there && own == pid).then_some(id)
        };
        let named = self.clients.key_at(Keys::slot(pid)).and_then(told);
        let peered = || {
            let own = self.peering.keys_of.iter();
            let mut own = own.filter(|(_, key)| key.pid() == pid);
            own.next().filter(|_| own.next().is_none())
        };
        let found = named.or_else(|| self.keys.inherited_alone(pid).and_then(told));
        found.or_else(|| peered().and_then(|(id, _)| told(*id)))
    }

    /// The worker of a signal's client has answered. False if this client waits for no signal.
    pub(crate) fn signal_answered(&mut self, id: ClientId, got: bool, out: &mut Out) -> bool {
        let client = gone!(self.clients.get_mut(id));
        let Some(signal) = client.signal() else {
            return false;
        };
        let SignalSent::Asked(pid) = signal.sent else {
            return false;
        };
        signal.sent = SignalSent::Done(pid, got);
        if matches!(client.state(), ClientState::Linked(_) | ClientState::Idle) {
            self.resume(id, out);
            self.settle_client(id, out);
        }
        true
    }
}
