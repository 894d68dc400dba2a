//! Servers whose user vanishes: when their end is known, and when it moves.

use super::VanishingUser;
use crate::config::SecretSource;
use crate::event::ServerId;
use crate::pooler::Pooler;

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

    /// Sources have answered: users that vanish may live longer.
    pub(super) fn renew_vanishing(&mut self) {
        for (_, server) in self.servers.iter_mut() {
            server.renews_user(&self.config.fetched);
        }
    }
}
