//! `Pooler` in a takeover: the successor learns to hear the same notifications, and clients that listen
//! move (`heritage.rs`).

use std::sync::Arc;

use rand_chacha::rand_core::RngCore;

use super::heritage::{MARK, PARTNER};
use super::operator::by_worker;
use super::{Channels, FromListener, NotificationPosition, Reach, Requirements, ToListener, Wish};
use crate::client::{self, Client, ClientState};
use crate::event::{Action, ClientId, Out};
use crate::mail::Mail;
use crate::parcel::{Bequest, Hearing, Parcel, PoolLore};
use crate::pool::key::PoolKey;
use crate::pooler::Pooler;

// The process that clients leave.
impl Pooler {
    /// The next process has everything but for those left behind: what listeners hear it is to hear,
    /// too.
    pub(crate) fn prepare_bequests(&mut self, out: &mut Out) {
        let now = self.now;
        let keys: Vec<Arc<PoolKey>> = self.listeners.keys().cloned().collect();
        for key in keys {
            let (high, low) = (self.random.next_u64(), self.random.next_u64());
            let mark = u128::from(high) << 64 | u128::from(low);
            let listener = gone!(self.listeners.get_mut(&key));
            let heard = listener.heard().next().is_some();
            if listener.server.is_some() && listener.heritages.prepare(now, mark, heard) {
                listener.hear(PARTNER, vec![MARK.into()], Requirements::default());
                self.begin_round(&key, out);
            }
        }
    }

    /// What the next process has to hear, and was not told yet.
    pub(crate) fn pack_bequests(&mut self, out: &mut Out) {
        let keys: Vec<Arc<PoolKey>> = self.listeners.keys().cloned().collect();
        for key in keys {
            let listener = gone!(self.listeners.get_mut(&key));
            let untold = listener.server.zip(listener.heritages.untold());
            let (Some((server, reach)), Some(pool)) = (untold, self.pools.find(&key)) else {
                continue;
            };
            let bequest = Bequest {
                mark: reach.mark,
                names: reach.names.iter().cloned().collect(),
                encoding: self.encoding_at(server).map(Box::from),
            };
            let lore = PoolLore {
                bequest: Some(Arc::new(bequest)),
                ..self.lore(pool)
            };
            out.push(crate::takeover::packed(Parcel::Pool(Box::new(lore))));
        }
    }

    /// Clients may leave soon: their workers are told how far those have been told that are told all,
    /// or that none can.
    pub(crate) fn tell_reached(&self, out: &mut Out) {
        for listener in self.listeners.values() {
            let Some((reach, number)) = listener.heritages.reached() else {
                continue;
            };
            let hearers = listener.all_hearers().into_iter();
            for (worker, clients) in by_worker(hearers) {
                let mail = FromListener::Reached(reach.clone(), number, clients);
                out.push(Action::Post(worker, Mail::FromListener(mail)));
            }
        }
    }

    /// Clients have been told so much. No number: they can't leave.
    pub(super) fn reached(
        &mut self,
        reach: &Arc<Reach>,
        number: Option<u64>,
        clients: Vec<ClientId>,
    ) {
        for id in clients {
            let client = self.clients.get_mut(id);
            let client = client.filter(|c| !matches!(c.state(), ClientState::Packed(_)));
            let session = client.and_then(client::Client::session_if_any);
            if let Some(own) = session.and_then(|session| session.channels.as_mut()) {
                own.reach = number.map(|number| (reach.clone(), number));
            }
        }
    }

    /// A client that is in no table any more goes to the next process: what it hears, and how far it
    /// was told. It hears that here no longer.
    pub(crate) fn hearing_goes(
        &mut self,
        id: ClientId,
        client: &Client,
        out: &mut Out,
    ) -> Option<Box<Hearing>> {
        let own = client.session.as_ref()?.channels.as_ref()?;
        let NotificationPosition { mark, number } = own.place()?;
        self.leave_channels(id, own.listener.clone(), own.all(), true, out);
        Some(Box::new(Hearing {
            listener: own.listener.clone(),
            names: own.all(),
            encoding: own.encoding.clone(),
            mark,
            number,
        }))
    }
}

// The process that they come to.
impl Pooler {
    /// The process before this one hears something: so does this one, from now on.
    pub(crate) fn inherit_channels(&mut self, lore: PoolLore, out: &mut Out) {
        let Some(bequest) = lore.bequest else { return };
        let mut channels = bequest.names.clone();
        channels.push(MARK.into());
        let wish = Wish {
            listener: Arc::new(PoolKey {
                database: self.consoles.name(&lore.key.database),
                user: self.consoles.name(&lore.key.user),
                ..*lore.key
            }),
            hearer: PARTNER,
            channels,
            demand: Requirements {
                encoding: bequest.encoding.clone(),
                ..Requirements::default()
            },
            keys: lore.scram_keys,
            secret: lore.found_secret,
        };
        let to = self.listener_at(&wish.listener);
        let inherit = ToListener::Inherit(Box::new(wish), bequest.mark);
        out.push(Action::Post(to, Mail::ToListener(inherit)));
    }

    /// Likewise, where the listener is.
    pub(super) fn inherits(&mut self, wish: Wish, mark: u128, out: &mut Out) {
        let (now, key, names) = (self.now, wish.listener.clone(), wish.channels.clone());
        let listener = self.listeners.get(&key);
        // It is this process's own, and comes back.
        if listener.is_some_and(|listener| listener.heritages.knows(mark)) {
            return;
        }
        self.wished(wish, out);
        let ended = self.janitor.predecessor_ended;
        if let Some(listener) = self.listeners.get_mut(&key) {
            listener.heritages.inherit(now, mark, &names);
            // The mail of its end was faster.
            if ended {
                listener.heritages.ends(now);
            }
        }
    }

    /// A client has come that listens: it is told what it has missed on its way.
    pub(crate) fn hearing_comes(&mut self, id: ClientId, hearing: Hearing, out: &mut Out) {
        let Hearing {
            listener,
            names,
            encoding,
            mark,
            number,
        } = hearing;
        let client = gone!(self.clients.get_mut(id));
        let mut own = Channels::new(listener);
        own.encoding = encoding.clone();
        own.follow(names.clone());
        client.session_mut().channels = Some(Box::new(own));
        client.ends_hush();
        let demand = Requirements {
            place: None,
            encoding,
            after: Some(NotificationPosition { mark, number }),
        };
        self.ask_to_hear(id, names, demand, out);
    }

    /// It was told.
    pub(super) fn follows(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        let session = client.session_if_any();
        let own = session.and_then(|session| session.channels.as_mut());
        if let Some(asked) = own.and_then(|own| own.follows.take()) {
            self.leave_stopped(id, asked, out);
            self.tell_if_idle(id, out);
        }
    }

    /// Nobody comes from the process before this one any more.
    pub(crate) fn predecessor_ended(&mut self) {
        self.janitor.predecessor_ended = true;
        for listener in self.listeners.values_mut() {
            listener.heritages.ends(self.now);
        }
    }

    /// What was heard for that is not heard any more, after a while.
    pub(super) fn forget_heritages(&mut self, out: &mut Out) {
        let now = self.now;
        let mut over = Vec::new();
        for (key, listener) in &mut self.listeners {
            if listener.heritages.are_over(now) {
                let all = listener.all();
                listener.leave(PARTNER, &all, false);
                over.push(key.clone());
            }
        }
        for key in over {
            self.begin_round(&key, out);
        }
    }
}
