//! Sends cancel requests to PostgreSQL, by carriers ([`super::carrier`]).

use crate::cancel::answer_done;
use crate::cancel::errand::Errand;
use crate::event::{Action, Address, Out, ServerId, WorkerId};
use crate::pooler::Pooler;

impl Pooler {
    /// Cancels the statement that a departed client has left running.
    pub(crate) fn cancel_for_us(&mut self, id: ServerId, out: &mut Out) {
        self.send_cancel(id, None, out);
    }

    pub(crate) fn send_cancel(
        &mut self,
        target: ServerId,
        asker: Option<(WorkerId, u64)>,
        out: &mut Out,
    ) {
        // A carrier on its way serves both requests, unless it may have signalled already.
        if let Some(errand) = self.errand_to(target) {
            errand.askers.extend(asker);
            return;
        }
        let (number, now, seeded) = (self.number(), self.now, self.seeded);
        let server = gone!(self.servers.get_mut(target));
        let (Some(ends), Some(_)) = (&server.connection.ends, &server.cancels.key) else {
            return asker.map_or((), |asker| answer_done(asker, out));
        };
        let (to, pool): (Address, _) = (ends.remote.clone(), server.pool);
        server.cancels.begin();
        let errand = Errand {
            target,
            askers: asker.into_iter().collect(),
            sent: false,
            asked: false,
        };
        let carrier = server.carrier(errand, &to, seeded, now).numbered(number);
        let carrier = self.servers.insert(|_| carrier);
        self.pools.at_mut(pool).server_enters();
        out.push(Action::Connect(carrier, to));
        self.watch_server(carrier);
    }

    /// The carrier for this server that has not sent its request yet.
    fn errand_to(&mut self, target: ServerId) -> Option<&mut Errand> {
        if !self.servers.get(target)?.cancels.are_under_way() {
            return None;
        }
        self.servers
            .iter_mut()
            .filter_map(|(_, server)| server.errand_mut())
            .find(|errand| errand.target == target && !errand.sent)
    }
}
