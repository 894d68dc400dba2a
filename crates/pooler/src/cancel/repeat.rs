//! Cancels that PostgreSQL may have missed, because it had not read the statement yet: they are
//! repeated while the statement goes on and is all that its client has sent.

use crate::event::{Out, ServerId, Time};
use crate::pooler::Pooler;
use crate::server::{self, Server};

/// A statement that was under way for longer was surely read by PostgreSQL: a cancel of it can't
/// be missed, and one that the statement catches is not to come twice. In nanoseconds.
const YOUNG_NS: u64 = 250_000_000;

/// How long PostgreSQL has to obey before the first repetition, in nanoseconds; before each further
/// one it is four times as long.
const REPEAT_NS: u64 = 30_000_000;

/// How often a cancel is repeated at most.
const REPEATS_MAX: u8 = 3;

/// A cancel that PostgreSQL may have missed.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    /// The number of the group that comes next: as long as it is, no later one can be hit.
    group: u32,
    /// When it is repeated, if the statement goes on.
    at: Time,
    /// How often it was.
    times: u8,
    /// A carrier is out for it.
    out: bool,
}

impl Server {
    /// When a cancel is to be repeated.
    pub(crate) fn repeat_due(&self) -> Option<Time> {
        let due = self.repeat.as_ref().filter(|repeat| !repeat.out);
        due.map(|repeat| repeat.at)
    }

    /// A repeated cancel is out: what the client sends must not reach the server.
    pub(crate) fn repeats(&self) -> bool {
        self.repeat.is_some_and(|repeat| repeat.out)
    }

    /// All that the server owes is one group, and it is whole: a cancel can hit nothing else.
    fn one_group(&self) -> bool {
        let ledger = &self.ledger;
        let linked = matches!(self.state, server::State::Linked(_));
        linked && ledger.readies() == 1 && !ledger.group_open() && !self.copy_in
    }
}

impl Pooler {
    /// A statement is cancelled: if PostgreSQL may not have read it yet, the cancel may be repeated.
    pub(super) fn mind_missed(&mut self, id: ServerId) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let young = now.0.saturating_sub(server.request.0) < YOUNG_NS;
        let group = server.ledger.group();
        let known = server.repeat.is_some_and(|repeat| repeat.group == group);
        if young && !known && server.one_group() {
            server.repeat = Some(Repeat {
                group,
                at: Time(u64::MAX),
                times: 0,
                out: false,
            });
        }
    }

    /// All carriers to a server are through: the client's messages may go on, and if the statement
    /// does, too, it will be cancelled once more.
    pub(super) fn carriers_through(&mut self, id: ServerId, out: &mut Out) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let Some(mut repeat) = server.repeat.take() else {
            return;
        };
        let goes_on = server.one_group() && server.ledger.group() == repeat.group;
        let held = std::mem::take(&mut repeat.out);
        if goes_on && repeat.times < REPEATS_MAX && server.close_why.is_none() {
            repeat.at = Time(now.0 + (REPEAT_NS << (2 * repeat.times)));
            server.repeat = Some(repeat);
        }
        let link = server.link();
        self.watch_server(id);
        if let (true, Some(client)) = (held, link) {
            self.resume(client, out);
        }
    }

    /// PostgreSQL had time to obey a cancel, and the statement may go on.
    pub(crate) fn repeat_cancel(&mut self, id: ServerId, out: &mut Out) {
        let Some(server) = self.servers.get_mut(id) else {
            return;
        };
        let Some(mut repeat) = server.repeat.take() else {
            return;
        };
        if !server.one_group() || server.ledger.group() != repeat.group || server.cancels > 0 {
            return;
        }
        repeat.times += 1;
        repeat.out = true;
        server.repeat = Some(repeat);
        if let Some(client) = server.link().and_then(|id| self.clients.get_mut(id)) {
            client.stalled = true;
        }
        self.send_cancel(id, None, out);
    }
}
