//! Servers whose user vanishes: Vault drops the users that it makes when their leases end. Such servers are
//! replaced before, one by one, when no client has them.

use super::Server;
use crate::config::{Fetched, FetchedSecret, FetchedValue, SecretSource};
use crate::event::{Out, ServerId, Time};
use crate::pooler::Pooler;

/// Why such a server is replaced, for the log.
const WHY: &str = "its user ends";

/// The user that a server has logged in as, if the user vanishes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VanishingUser {
    /// Who made the user, and the user's name; `None`: a process that has ended, so nobody renews it.
    made: Option<(SecretSource, String)>,
    /// Where the server's end is in the time in which all servers of the user end.
    share: u16,
    /// When the server is to be replaced.
    retires: Time,
}

impl VanishingUser {
    /// A user of whom only that is known.
    pub(crate) fn until(retires: Time) -> Box<VanishingUser> {
        Box::new(VanishingUser {
            made: None,
            share: 0,
            retires,
        })
    }

    /// When the server is to be replaced.
    pub(crate) fn retires(&self) -> Time {
        self.retires
    }

    /// The source has answered: the user may live longer.
    fn renew(&mut self, fetched: &Fetched) {
        let Some((source, user)) = &self.made else {
            return;
        };
        if let Some(known) = fetched.get(source)
            && vanishing(known) == Some(user)
            && let Some(until) = known.until
        {
            self.retires = retires(known.at, until, self.share);
        }
    }
}

/// The user that a source has given, if that user vanishes.
fn vanishing(known: &FetchedSecret) -> Option<&String> {
    match &known.value {
        Some(FetchedValue::Password {
            user,
            vanishes: true,
            ..
        }) => user.as_ref(),
        _ => None,
    }
}

/// When a server of a user ends who lives so long: in the last fifth of the life, after the time at which the
/// source is asked again, and before the end.
fn retires(at: u64, until: u64, share: u16) -> Time {
    let hundredth = until.saturating_sub(at) / 100;
    let before = 4 * hundredth + 13 * hundredth * u64::from(share) / (1 << 16);
    Time(until.saturating_sub(before))
}

impl Pooler {
    /// A server has logged in with this value of a source: notes its end if its user vanishes. `share` is
    /// random.
    pub(super) fn note_vanishing(
        &mut self,
        id: ServerId,
        fetched: Option<&(SecretSource, u64)>,
        share: u16,
    ) {
        let Some((source, generation)) = fetched else {
            return;
        };
        let known = self.config.fetched.get(source);
        let Some((known, user)) = known.and_then(|known| Some((known, vanishing(known)?))) else {
            return;
        };
        let user = match (known.until, known.generation == *generation) {
            (Some(until), true) => VanishingUser {
                made: Some((source.clone(), user.clone())),
                share,
                retires: retires(known.at, until, share),
            },
            // The source has given another user since.
            (Some(_), false) => *VanishingUser::until(self.now),
            (None, _) => return,
        };
        let server = self.servers.at_mut(id);
        server.vanishing = Some(Box::new(user));
        self.watch_vanishing(id);
    }

    /// Sets the timer for a server's end, if its user vanishes.
    pub(super) fn watch_vanishing(&mut self, id: ServerId) {
        let server = self.servers.at_mut(id);
        if let Some(at) = server.vanishing.as_ref().map(|user| user.retires) {
            server.arm_timer(&mut self.timers, id, at);
        }
    }

    /// Sources have answered: users that vanish may live longer.
    pub(super) fn renew_vanishing(&mut self) {
        for (_, server) in self.servers.iter_mut() {
            if let Some(user) = &mut server.vanishing {
                user.renew(&self.config.fetched);
            }
        }
    }

    /// A server's timer has expired. True if its user ends, and the server with the user: now, or when its
    /// client gives it back.
    pub(crate) fn retires(&mut self, id: ServerId, out: &mut Out) -> bool {
        let due = |server: &Server| {
            let user = server.vanishing.as_ref();
            user.is_some_and(|user| user.retires <= self.now)
        };
        let server = gone!(self.servers.get(id));
        if !due(server) {
            self.watch_vanishing(id);
            return false;
        }
        self.servers.at_mut(id).vanishing = None;
        self.replace(id, WHY, out);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_lie_in_the_last_fifth() {
        let life = 1_000_000;
        let all = [0, u16::MAX / 2, u16::MAX].map(|share| retires(500, 500 + life, share).0 - 500);
        assert_eq!(all[0], 960_000);
        assert!(
            (890_000..900_000).contains(&all[1]) && all[2] > 830_000,
            "{all:?}"
        );
    }
}
