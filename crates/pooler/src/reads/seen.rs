//! What a client has seen, noted when it gives its server back; and asking for a round after that.

use std::sync::atomic::Ordering;

use crate::event::{ClientId, Out, ServerId, Time};
use crate::host_check::tell;
use crate::login::LoginId;
use crate::next::Next;
use crate::pooler::Pooler;
use crate::roster::fact::Fact;
use crate::roster::view::Role;

impl Pooler {
    /// A client's request is routed: asks for the volatile functions, if what is known of them is too
    /// old.
    pub(super) fn mind_volatile(&mut self, id: LoginId) {
        let login = self.logins.at_mut(id);
        let schema = self.shared.statements.schema(login.schema);
        if login.reads.asks(self.now, schema) {
            self.next.note(Next::AskVolatile(id, None));
        }
    }

    /// A client has got its last answer from a server.
    pub(crate) fn client_has_seen(&mut self, client: ClientId, server: ServerId) {
        let begun = self.begun.load(Ordering::SeqCst);
        let instance = self.servers.get(server).and_then(|server| server.instance);
        let client = gone!(self.clients.get_mut(client));
        let again = client.read_mark.as_ref().and_then(|mark| mark.again);
        if let Some((login, text)) = client.login.zip(again.and_then(|again| again.text)) {
            // The primary has no error.
            self.logins.at_mut(login).reads.keep_at_primary(text);
        }
        client.sees(begun, instance);
    }

    /// A client's read waits until a standby covers a round above its floor.
    pub(crate) fn read_awaits_round(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        let mark = client.read_mark.as_ref();
        let (Some(login), Some(mark)) = (client.login, mark) else {
            return;
        };
        if let Some(until) = mark.waits_until() {
            self.await_round(login, mark.floor, until, out);
        }
    }

    /// A standby is to cover a later round than this, until then: asks for one.
    pub(crate) fn await_round(&self, login: LoginId, above: u64, until: Time, out: &mut Out) {
        let login = self.logins.at(login);
        let list = self.hosts.lists.get(&*login.terms.database.hosts);
        let hosts = list.map_or(&[][..], |list| &list.hosts);
        let primary = hosts.iter().find(|(_, of)| of.role == Some(Role::Primary));
        if let Some((host, _)) = primary {
            tell(host.clone(), Fact::RoundAwaited { above, until }, out);
        }
    }
}
