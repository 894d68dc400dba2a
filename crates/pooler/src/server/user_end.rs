//! A server's user who vanishes: Vault drops the users that it makes when their leases end. Such servers are
//! replaced before, one by one, when no client has them.

use crate::config::{Fetched, SecretSource};
use crate::ids::Time;

/// Servers of a user whom PostgreSQL knows no more are replaced within this time.
const GONE_NS: u64 = 5_000_000_000;

/// The user that a server has logged in as, if the user vanishes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VanishingUser {
    /// Who made the user, and the user's name; `None`: a process that has ended, so nobody renews it.
    made: Option<(SecretSource, String)>,
    /// Where the server's end is in the time in which all servers of the user end.
    share: u16,
    /// When the server has logged in.
    born: Time,
    /// When the server is to be replaced.
    retires: Time,
}

impl VanishingUser {
    /// A user of whom only that is known.
    pub(crate) fn until(retires: Time) -> Box<VanishingUser> {
        Box::new(VanishingUser {
            made: None,
            share: 0,
            born: retires,
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
        let user = known.vanishing_user()?;
        let until = known.until?;
        if known.generation != *generation {
            // The source has given another user since.
            return Some(VanishingUser::until(now));
        }
        Some(Box::new(VanishingUser {
            made: Some((source.clone(), user.clone())),
            share,
            born: now,
            retires: retires(known.at, until, share, now),
        }))
    }

    /// When the server is to be replaced.
    pub(crate) fn retires(&self) -> Time {
        self.retires
    }

    /// The source has answered: the user may live longer, or PostgreSQL may know it no more.
    pub(crate) fn renew(&mut self, fetched: &Fetched, now: Time) {
        let Some((source, user)) = &self.made else {
            return;
        };
        if let Some(known) = fetched.get(source)
            && known.vanishing_user() == Some(user)
            && let Some(until) = known.until
        {
            self.retires = retires(known.at, until, self.share, self.born);
        } else if let Some(known) = fetched.get(source)
            && known.gone.as_ref() == Some(user)
        {
            let after = (GONE_NS >> 16) * u64::from(self.share);
            self.retires = self.retires.min(Time(now.0 + after));
        }
    }
}

/// When a server that has logged in at `born` ends, if its user lives so long: in the last fifth of the life,
/// after the time at which the source is asked again, and before the end. Servers born there share what is
/// left.
fn retires(at: u64, until: u64, share: u16, born: Time) -> Time {
    let hundredth = until.saturating_sub(at) / 100;
    let first = until.saturating_sub(17 * hundredth).max(born.0).min(until);
    let last = until
        .saturating_sub(4 * hundredth)
        .max(first + (until - first) / 2);
    Time(last - ((last - first) >> 16) * u64::from(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_lie_in_the_last_fifth() {
        // A second, and ten years.
        for life in [1_000_000_000, 316_224_000_000_000_000] {
            let end = |share| retires(500, 500 + life, share, Time(600)).0 - 500;
            let all = [0, u16::MAX / 2, u16::MAX].map(|share| end(share) / (life / 1000));
            assert!(
                all[0] == 960 && (890..900).contains(&all[1]) && all[2] == 830,
                "{all:?}"
            );
        }
    }

    #[test]
    fn servers_born_late_share_what_is_left() {
        const SECOND: u64 = 1_000_000_000;
        for born in [85, 95, 97, 99] {
            let end = |share| retires(0, 100 * SECOND, share, Time(born * SECOND)).0;
            let (first, last) = (end(u16::MAX), end(0));
            assert!(first >= born * SECOND && last < 100 * SECOND);
            assert!(last - first > SECOND / 3, "{born}: {first}..{last}");
        }
        assert_eq!(retires(0, 100, 7, Time(200)), Time(100));
    }

    #[test]
    fn servers_of_a_user_that_is_gone_end_soon() {
        use crate::config::{FetchedSecret, FetchedValue};
        let source = SecretSource::Vault("database/creds/app".into());
        let of = |user: &str, gone: Option<&str>| {
            let known = FetchedSecret {
                generation: 1,
                value: Some(FetchedValue::Password {
                    user: Some(user.into()),
                    secret: crate::auth::Secret::Plain("p".into()),
                    vanishes: true,
                }),
                until: Some(1 << 50),
                gone: gone.map(String::from),
                ..FetchedSecret::default()
            };
            Fetched::of([(source.clone(), std::sync::Arc::new(known))].into())
        };
        let now = Time(1000);
        let first = of("v-1", None);
        let mut user = VanishingUser::of(&first, &(source.clone(), 1), 9, now).unwrap();
        user.renew(&of("v-2", None), now);
        assert!(user.retires() > Time(GONE_NS + now.0), "another user alone");
        user.renew(&of("v-2", Some("v-1")), now);
        assert!(user.retires() < Time(GONE_NS + now.0));
    }
}
