//! What the balancer decides, and the mails that carry it out.

use std::sync::Arc;

use crate::event::WorkerId;
use crate::login::key::LoginKey;
use crate::mail::Mail;

/// A decision of the balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BalanceStep {
    /// New clients of a pool go to these workers. With none, the pool is forgotten.
    Seat(Arc<LoginKey>, Arc<[WorkerId]>),
    /// New clients of pools without seats go to this worker.
    NewPools(WorkerId),
    /// A worker hands clients to another.
    Shed {
        /// The worker that hands clients over.
        from: WorkerId,
        /// The worker that gets them.
        to: WorkerId,
        /// The clients' login.
        login: Arc<LoginKey>,
        /// The number of clients.
        clients: u32,
        /// Idle clients move, too. If false, only recently active ones move.
        idle: bool,
    },
    /// A line for the log.
    Say(String),
}

impl BalanceStep {
    /// The mails that carry the step out, for this number of workers.
    pub fn mails(self, workers: u16) -> Vec<(WorkerId, Mail)> {
        let all = (0..workers).map(WorkerId);
        match self {
            BalanceStep::Seat(login, seats) => all
                .map(|worker| (worker, Mail::Seats(login.clone(), seats.clone())))
                .collect(),
            BalanceStep::NewPools(at) => all.map(|worker| (worker, Mail::NewPools(at))).collect(),
            BalanceStep::Shed {
                from,
                to,
                login,
                clients,
                idle,
            } => {
                let mail = Mail::Shed {
                    login,
                    to,
                    clients,
                    idle,
                };
                vec![(from, mail)]
            }
            BalanceStep::Say(_) => Vec::new(),
        }
    }
}
