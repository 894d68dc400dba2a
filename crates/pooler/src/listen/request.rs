//! What a client's worker asks of the worker of the client's listener.

use std::hash::BuildHasher;
use std::sync::Arc;

use crate::event::{Action, ClientId, Out, WorkerId};
use crate::listen::{Hush, Name, Requirements, ToListener, Wish};
use crate::login::key::LoginKey;
use crate::login::secrets::Secrets;
use crate::mail::Mail;
use crate::pooler::Pooler;

impl Pooler {
    /// The worker that owns a listener.
    fn listener_at(&self, key: &LoginKey) -> WorkerId {
        let hash = crate::seeded(0).hash_one((&*key.database, &*key.user));
        WorkerId((hash % u64::from(self.workers)) as u16)
    }

    pub(super) fn demand_of(&self, id: ClientId, encoding: Option<Box<[u8]>>) -> Requirements {
        Requirements {
            place: self.place_of_server(self.clients.at(id)),
            encoding,
        }
    }

    /// Sends the listener a client's request to hear channels.
    pub(super) fn ask_to_hear(
        &mut self,
        id: ClientId,
        channels: Vec<Name>,
        demand: Requirements,
        out: &mut Out,
    ) {
        let client = self.clients.at(id);
        let own = client.channels();
        let (Some(own), Some(login)) = (own, client.login) else {
            return;
        };
        let (login, listener) = (self.logins.at(login), own.listener.clone());
        let known = *listener.user == *login.key.user;
        let wish = Wish {
            hearer: (self.worker, id),
            channels,
            demand,
            secrets: if known {
                login.secrets.clone()
            } else {
                Secrets::default()
            },
            listener,
        };
        let to = self.listener_at(&wish.listener);
        let wish = ToListener::Hear(Box::new(wish));
        out.push(Action::Post(to, Mail::ToListener(wish)));
    }

    /// Holds a client back until it has received every notification committed by now.
    pub(crate) fn await_pass(&mut self, id: ClientId, hush: Hush, out: &mut Out) {
        let client = self.clients.at_mut(id);
        let Some(own) = client.channels() else {
            return;
        };
        let listener = own.listener.clone();
        client.hushes(hush, self.now);
        let hearer = (self.worker, id);
        let to = self.listener_at(&listener);
        let pass = ToListener::Pass { listener, hearer };
        out.push(Action::Post(to, Mail::ToListener(pass)));
    }

    /// A client no longer hears some channels. `ends`: the client is closed.
    pub(crate) fn leave_channels(
        &mut self,
        id: ClientId,
        listener: Arc<LoginKey>,
        channels: Vec<Name>,
        ends: bool,
        out: &mut Out,
    ) {
        let hearer = (self.worker, id);
        let to = self.listener_at(&listener);
        let leave = ToListener::Leave {
            listener,
            hearer,
            channels,
            ends,
        };
        out.push(Action::Post(to, Mail::ToListener(leave)));
    }
}
