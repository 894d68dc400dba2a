//! Servers whose user vanishes: when their end is known, and when it moves.

use super::{ServerState, VanishingUser};
use crate::config::SecretSource;
use crate::event::{ServerId, Time};
use crate::pooler::Pooler;

/// When the end of a packed server's user is looked at again.
const AGAIN_NS: u64 = 1_000_000_000;

impl Pooler {
    /// A server has logged in with this value of a source: notes its end if its user vanishes. `share` is
    /// random.
    pub(super) fn note_vanishing(
        &mut self,
        id: ServerId,
        fetched: &(SecretSource, u64),
        share: u16,
    ) {
        let user = VanishingUser::of(&self.config.fetched, fetched, share, self.now);
        self.servers.at_mut(id).lives_as(user);
        self.watch_vanishing(id);
    }

    /// Sets the timer for a server's end, if its user vanishes.
    pub(crate) fn watch_vanishing(&mut self, id: ServerId) {
        let server = self.servers.at_mut(id);
        if let Some(at) = server.retires() {
            server.arm_timer(&mut self.timers, id, at);
        }
    }

    /// Sources have answered: users that vanish may live longer, or be gone.
    pub(super) fn renew_vanishing(&mut self) {
        for (id, server) in self.servers.iter_mut() {
            server.renews_user(&self.config.fetched, self.now);
            if let Some(at) = server.retires() {
                server.arm_timer(&mut self.timers, id, at);
            }
        }
    }

    /// A server's user ends. True if the server is to be replaced. It stays if its client may stream for ever,
    /// or if clients listen there: neither needs the user's rights. A packed server keeps its end, for a
    /// successor that fails.
    pub(crate) fn ends_with_user(&mut self, id: ServerId) -> bool {
        let server = self.servers.at_mut(id);
        if matches!(server.state(), ServerState::Packed) {
            let at = Time(self.now.0 + AGAIN_NS);
            server.arm_timer(&mut self.timers, id, at);
            return false;
        }
        server.lives_as(None);
        let listens = matches!(server.state(), ServerState::Listening { .. });
        !(listens || server.is_reserved() && server.is_linked())
    }
}
