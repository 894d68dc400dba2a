//! The control thread's part in a takeover, on the side of the old process.

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

/// How often clients that were left behind may follow.
const ROUNDS: Duration = Duration::from_secs(1);

/// How long new transactions then wait, so that clients in short transactions come to rest.
const PAUSE: Duration = Duration::from_millis(20);

/// A step of a later round.
#[derive(Clone, Copy, Debug)]
pub enum Round {
    /// New transactions wait.
    Hold,
    /// Clients at rest follow.
    Pack,
}

/// The state of a takeover.
pub struct HandOver {
    listeners: Vec<Listener>,
    successor: Option<Successor>,
    parcels: Vec<(WorkerId, Parcel)>,
    /// The number of workers that have not given everything yet.
    left: usize,
    /// A successor is being sent everything, and has not confirmed yet.
    under_way: bool,
    /// The successor, which has everything but the clients left behind.
    followed: Option<Successor>,
    /// A takeover has succeeded.
    succeeded: bool,
    estate: Estate,
}

/// The end of a sending.
pub struct Sent {
    successor: Successor,
    freight: Freight,
    result: Result<(), String>,
}

impl HandOver {
    /// True once another process has taken over.
    pub fn has_succeeded(&self) -> bool {
        self.succeeded
    }

    /// No takeover.
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

    /// A worker has given a parcel.
    pub fn take(&mut self, from: WorkerId, parcel: Parcel) {
        self.parcels.push((from, parcel));
    }
}

impl Control {
    /// A successor is at the other end of this socket, and all workers are at rest.
    pub fn begin_handover(&mut self, socket: LooseSocket) {
        if self.handover.under_way {
            // Two processes asked in the same moment. The end of the connection tells this one.
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
            Ok(successor) if !self.ending && !self.drain.has_begun() && !given => {
                self.say("a new process takes over");
                self.handover.under_way = true;
                self.handover.successor = Some(successor);
                self.handover.left = self.workers.len();
                self.order(&Order::Pack);
            }
            _ => self.order(&Order::GiveUp),
        }
    }

    /// Why the first round must fail; `None` if it may go on. A process that is told to end in the middle
    /// of a takeover shuts its listening sockets down, for the successor, too.
    fn ends_before_takeover(&self) -> Option<&'static str> {
        let ends = self.is_draining() && !self.handover.succeeded;
        ends.then_some("this process was told to end")
    }

    /// One step of a later round.
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

    /// Clients left behind are served until they follow.
    fn serve_left_behind(&mut self, successor: Successor) {
        self.handover.under_way = false;
        self.handover.followed = Some(successor);
        self.order(&Order::Drain);
        self.next_round(ROUNDS, Round::Hold);
    }

    /// A worker has given everything. When the last worker has, the sending starts.
    pub fn all_packed(&mut self, estate: Estate) {
        let ends = self.ends_before_takeover();
        let handover = &mut self.handover;
        let last_number = handover.estate.last_number.max(estate.last_number);
        handover.estate = Estate {
            last_number,
            roster: self.roster.lore(),
            ..estate
        };
        handover.left = handover.left.saturating_sub(1);
        if handover.left > 0 {
            return;
        }
        let Some(mut successor) = handover.successor.take() else {
            return;
        };
        let new = |(_, parcel): &(WorkerId, Parcel)| !matches!(parcel, Parcel::Pool(_));
        if handover.succeeded && !handover.parcels.iter().any(new) {
            handover.parcels.clear();
            return self.serve_left_behind(successor);
        }
        let copies = match ends {
            Some(why) => Err(std::io::Error::other(why)),
            None => takeover::copies(&handover.listeners),
        };
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
            // While the process is ending, nobody receives this.
            let _ = ear.send(ControlEvent::Sent(Box::new(Sent {
                successor,
                freight,
                result,
            })));
        });
    }

    /// The sending has ended: the successor has everything, or everything comes back.
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
        if let Some(why) = self.ends_before_takeover() {
            return self.take_back(freight, why);
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
            // The successor has died in this moment.
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
        // The successor owns these connections now: closes the copies.
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
