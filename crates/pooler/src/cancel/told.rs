//! Signals to clients, by the process ids that they were told at login ([`crate::signal`]).

use crate::cancel::Keys;
use crate::cancel::seek::Whom;
use crate::client::ClientState;
use crate::event::{ClientId, Out};
use crate::login::key::LoginId;
use crate::pooler::Pooler;
use crate::signal::{SameRole, Signal, SignalSent};

impl Pooler {
    /// A client sends a signal to the client with this process id.
    pub(crate) fn ask_for_signal(&mut self, id: ClientId, pid: u32, ends: bool, out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.end.stalls();
        let Some(login) = client.login else { return };
        let by_admin = self.config.globals.admin_users.has(&client.who.user);
        let signal = Signal {
            pid,
            ends,
            of: self.same_role(login),
            by_admin,
        };
        self.begin_search(id, Whom::Told(Box::new(signal)), out);
    }

    fn same_role(&self, login: LoginId) -> SameRole {
        let login = self.logins.at(login);
        SameRole {
            user: login.key.user.clone(),
            host: login.terms.database.host.clone(),
            port: login.terms.database.port.first(),
        }
    }

    /// The client of this worker that a signal is for, if its sender may send the signal.
    pub(super) fn told_holder(&self, signal: &Signal) -> Option<ClientId> {
        let id = self.told(signal.pid)?;
        let mut role = self.same_role(self.clients.at(id).login?);
        if signal.by_admin {
            role.user = signal.of.user.clone();
        }
        (role == signal.of).then_some(id)
    }

    /// The client of this worker that was told this process id. `None` if several were.
    fn told(&self, pid: u32) -> Option<ClientId> {
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
        let inherited = self.keys.inherited_alone(pid).and_then(told);
        let peered = peered().and_then(|(id, _)| told(*id));
        let mut found = [named, inherited, peered].into_iter().flatten();
        let first = found.next();
        first.filter(|id| found.all(|other| other == *id))
    }

    /// The search for a signal's client is over.
    pub(super) fn signal_answered(&mut self, id: ClientId, got: bool, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        let signal = gone!(client.signal());
        let SignalSent::Asked(pid) = signal.sent else {
            return;
        };
        signal.sent = SignalSent::Done(pid, got);
        if matches!(client.state(), ClientState::Linked(_) | ClientState::Idle) {
            self.resume(id, out);
            self.settle_client(id, out);
        }
    }
}
