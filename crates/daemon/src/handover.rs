//! The control thread's part in handing everything over to a successor.

use std::sync::atomic::Ordering;
use std::time::Duration;

use howdah_daemon::driver::socket::Listener;
use howdah_daemon::tls::pack_sessions;
use howdah_pooler::event::{LooseSocket, Order, WorkerId};
use howdah_pooler::note::Level;
use howdah_pooler::parcel::{Estate, Freight, Parcel};

use crate::control::{Control, ControlEvent};
use crate::leave;
use crate::log;
use crate::systemd;
use crate::takeover::{self, Successor};

/// How often those left behind may follow.
const ROUNDS: Duration = Duration::from_secs(1);

/// For how long nobody begins anything then, so that who is in a short transaction can.
const PAUSE: Duration = Duration::from_millis(20);

/// A step of a later round.
#[derive(Clone, Copy, Debug)]
pub enum Round {
    /// Nobody begins anything.
    Hold,
    /// Who is at rest follows.
    Pack,
}

/// What is on its way.
pub struct HandOver {
    listeners: Vec<Listener>,
    successor: Option<Successor>,
    parcels: Vec<(WorkerId, Parcel)>,
    /// Workers that have not given everything yet.
    left: usize,
    /// A successor was given everything, or is about to be, and has not confirmed yet.
    under_way: bool,
    /// The one that has everything but those left behind.
    followed: Option<Successor>,
    /// There was one.
    succeeded: bool,
    estate: Estate,
}

/// What became of it.
pub struct Sent {
    successor: Successor,
    freight: Freight,
    result: Result<(), String>,
}

impl HandOver {
    /// Nothing.
    pub fn new(listeners: Vec<Listener>) -> HandOver {
        HandOver {
            listeners,
            successor: None,
            parcels: Vec::new(),
            left: 0,
            under_way: false,
            followed: None,
            succeeded: false,
            estate: Estate::default(),
        }
    }

    /// A worker gave this.
    pub fn take(&mut self, from: WorkerId, parcel: Parcel) {
        self.parcels.push((from, parcel));
    }
}

impl Control {
    /// A successor is at the other end of this socket, and all workers are at rest.
    pub fn begin_handover(&mut self, socket: LooseSocket) {
        if self.handover.under_way {
            // Two asked in the same moment. This one learns it by the end of its connection.
            self.say("another new process is taking over already");
            return drop(socket);
        }
        let mut listeners = self.handover.listeners.iter();
        let given = listeners.any(|listener| listener.shared.load(Ordering::Acquire));
        if given {
            let text = "no new process can take over sockets from the service manager";
            self.log.say(Level::Warning, text);
        }
        match Successor::at(socket) {
            Ok(successor) if !self.ending && !given => {
                self.say("a new process takes over");
                self.handover.under_way = true;
                self.handover.successor = Some(successor);
                self.handover.left = self.workers.len();
                self.order(&Order::Pack);
            }
            _ => self.order(&Order::GiveUp),
        }
    }

    /// Sees who of those left behind can follow.
    pub fn round(&mut self, round: Round) {
        match round {
            Round::Hold => {
                self.order(&Order::HandOver { tls: true });
                self.next_round(PAUSE, Round::Pack);
            }
            Round::Pack => {
                self.handover.under_way = true;
                self.handover.successor = self.handover.followed.take();
                self.handover.left = self.workers.len();
                self.order(&Order::Pack);
            }
        }
    }

    fn next_round(&self, wait: Duration, round: Round) {
        let ear = self.ear.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = ear.send(ControlEvent::Round(round));
        });
    }

    /// Who is left behind is served until they follow.
    fn serve_left_behind(&mut self, successor: Successor) {
        self.handover.under_way = false;
        self.handover.followed = Some(successor);
        self.order(&Order::Drain);
        self.next_round(ROUNDS, Round::Hold);
    }

    /// A worker has given everything; the last one's word starts the sending.
    pub fn all_packed(&mut self, estate: Estate) {
        let handover = &mut self.handover;
        let last_number = handover.estate.last_number.max(estate.last_number);
        handover.estate = Estate {
            last_number,
            ..estate
        };
        handover.left = handover.left.saturating_sub(1);
        if handover.left > 0 {
            return;
        }
        let Some(mut successor) = handover.successor.take() else {
            return;
        };
        let new = |(_, parcel): &(WorkerId, Parcel)| match parcel {
            Parcel::Pool(lore) => lore.bequest.is_some(),
            Parcel::Server { .. } | Parcel::Client(_) => true,
        };
        if handover.succeeded && !handover.parcels.iter().any(new) {
            handover.parcels.clear();
            return self.serve_left_behind(successor);
        }
        let copies = takeover::copies(&handover.listeners);
        let mut freight = |listeners| Freight {
            estate: std::mem::take(&mut handover.estate),
            listeners,
            parcels: std::mem::take(&mut handover.parcels),
        };
        let listeners = match copies {
            Ok(listeners) => listeners,
            Err(why) => {
                let (freight, result) = (freight(Vec::new()), Err(log::text(&why)));
                return self.sent(Sent {
                    successor,
                    freight,
                    result,
                });
            }
        };
        let (mut freight, ear) = (freight(listeners), self.ear.clone());
        let log = self.log.clone();
        tokio::task::spawn_blocking(move || {
            for text in pack_sessions(&mut freight) {
                log.say(Level::Warning, text);
            }
            let result = successor.send(&freight).map_err(|why| log::text(&why));
            // Nobody hears when the process is ending.
            let _ = ear.send(ControlEvent::Sent(Box::new(Sent {
                successor,
                freight,
                result,
            })));
        });
    }

    /// The successor has everything, or it comes back.
    pub fn sent(&mut self, sent: Sent) {
        let Sent {
            mut successor,
            freight,
            result,
        } = sent;
        self.handover.under_way = false;
        if let Err(why) = result {
            return self.take_back(freight, &why);
        }
        if self.handover.succeeded {
            return match successor.release() {
                Ok(()) => {
                    drop(freight);
                    self.serve_left_behind(successor);
                }
                Err(why) => self.take_back(freight, &log::text(&why)),
            };
        }
        // The pid file must be gone before the successor writes its own.
        leave::hand_over();
        for listener in &self.handover.listeners {
            listener.shared.store(true, Ordering::Release);
        }
        if let Err(why) = successor.release() {
            // It has died in this very moment.
            for listener in &self.handover.listeners {
                listener.shared.store(false, Ordering::Release);
            }
            crate::listen::keep(&self.handover.listeners, &self.log);
            if let Err(crate::boot::Fatal(why)) = leave::write_pidfile(&self.config.globals.pidfile)
            {
                self.log.say(Level::Warning, why);
            }
            return self.take_back(freight, &log::text(&why));
        }
        let (clients, servers) = takeover::count(&freight);
        // Our copies of what the successor has now are closed.
        drop(freight);
        self.handover.listeners.clear();
        self.stop_listening(false);
        self.http.stop();
        self.say(&format!(
            "a new process took over {clients} clients and {servers} servers; \
             those left are served until they can follow, or leave"
        ));
        self.handover.succeeded = true;
        systemd::succeeded_by(successor.process());
        self.serve_left_behind(successor);
    }

    fn take_back(&mut self, freight: Freight, why: &str) {
        let text = format!("a new process did not take over: {why}; going on");
        self.log.say(Level::Warning, text);
        crate::workers::adopt(freight, &self.workers, &self.broker);
        self.order(&Order::GiveUp);
    }
}
