//! `Pooler` in a takeover: the successor listens to the same channels, and listening clients move to the
//! successor (`heritage.rs`).

use std::sync::Arc;

use chacha20::rand_core::Rng;

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
    /// Almost everything has moved to the successor. For the clients left behind, the successor
    /// must listen to the same channels as the listeners here.
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

    /// Sends the successor the channels that it must hear and does not know of yet.
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

    /// Clients may leave soon. Tells their workers the number of the last notification delivered,
    /// or that no client can leave.
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

    /// These clients have received all notifications up to `number`. No number: the clients can't
    /// leave.
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

    /// A client, already out of the table, moves to the successor. Returns its channels and the
    /// number of its last notification. The client no longer hears these channels here.
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

// The process that clients come to.
impl Pooler {
    /// The predecessor listens to channels: this process listens to them from now on, too.
    pub(crate) fn inherit_channels(&mut self, lore: PoolLore, out: &mut Out) {
        let Some(bequest) = lore.bequest else { return };
        let mut channels = bequest.names.clone();
        channels.push(MARK.into());
        let wish = Wish {
            listener: Arc::new(PoolKey {
                database: self.shared.names.intern(&lore.key.database),
                user: self.shared.names.intern(&lore.key.user),
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

    /// The same as `inherit_channels`, on the listener's worker.
    pub(super) fn inherits(&mut self, wish: Wish, mark: u128, out: &mut Out) {
        let (now, key, names) = (self.now, wish.listener.clone(), wish.channels.clone());
        let listener = self.listeners.get(&key);
        // This process made up the mark itself: the parcels came back.
        if listener.is_some_and(|listener| listener.heritages.knows(mark)) {
            return;
        }
        self.wished(wish, out);
        let ended = self.janitor.predecessor_ended;
        if let Some(listener) = self.listeners.get_mut(&key) {
            listener.heritages.inherit(now, mark, &names);
            // The mail about the predecessor's end was faster.
            if ended {
                listener.heritages.ends(now);
            }
        }
    }

    /// A listening client has arrived. The listener must send the client the notifications missed
    /// on the way.
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

    /// A client from another process has received the notifications that it had missed.
    pub(super) fn follows(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        let session = client.session_if_any();
        let own = session.and_then(|session| session.channels.as_mut());
        if let Some(asked) = own.and_then(|own| own.follows.take()) {
            self.leave_stopped(id, asked, out);
            self.tell_if_idle(id, out);
        }
    }

    /// The predecessor has ended: no more clients come.
    pub(crate) fn predecessor_ended(&mut self) {
        self.janitor.predecessor_ended = true;
        for listener in self.listeners.values_mut() {
            listener.heritages.ends(self.now);
        }
    }

    /// Some time after the predecessor's end, stops listening to channels that only the predecessor
    /// heard.
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
