//! A server's user who vanishes: Vault drops the users that it makes when their leases end. Such servers are
//! replaced before, one by one, when no client has them.

use crate::config::{Fetched, FetchedSecret, FetchedValue, SecretSource};
use crate::ids::Time;

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

    /// The user of a server that has logged in with this value of a source, if the user vanishes. `share` is
    /// random.
    pub(crate) fn of(
        fetched: &Fetched,
        (source, generation): &(SecretSource, u64),
        share: u16,
        now: Time,
    ) -> Option<Box<VanishingUser>> {
        let known = fetched.get(source)?;
        let user = vanishing(known)?;
        let until = known.until?;
        if known.generation != *generation {
            // The source has given another user since.
            return Some(VanishingUser::until(now));
        }
        Some(Box::new(VanishingUser {
            made: Some((source.clone(), user.clone())),
            share,
            retires: retires(known.at, until, share),
        }))
    }

    /// When the server is to be replaced.
    pub(crate) fn retires(&self) -> Time {
        self.retires
    }

    /// The source has answered: the user may live longer.
    pub(crate) fn renew(&mut self, fetched: &Fetched) {
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
    let before = 4 * hundredth + 13 * (hundredth >> 16) * u64::from(share);
    Time(until.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_lie_in_the_last_fifth() {
        // A second, and ten years.
        for life in [1_000_000_000, 316_224_000_000_000_000] {
            let end = |share| retires(500, 500 + life, share).0 - 500;
            let all = [0, u16::MAX / 2, u16::MAX].map(|share| end(share) / (life / 1000));
            assert!(
                all[0] == 960 && (890..900).contains(&all[1]) && all[2] == 830,
                "{all:?}"
            );
        }
    }
}
