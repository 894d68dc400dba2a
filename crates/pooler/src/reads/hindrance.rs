//! Why a host gets no reads, whatever their clients have seen. The code that chooses asks here, and
//! so does SHOW HOSTS.

use std::cmp::Ordering;
use std::sync::Arc;

use super::ReadTerms;
use crate::config::ReadTarget;
use crate::roster::round::Cover;
use crate::roster::view::{HostStanding, Role, State};

/// Why a host gets no reads. The least one first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hindrance {
    /// It is the primary, and only standbys have the reads.
    Primary,
    /// It is too far behind (`max_standby_lag`).
    Lags,
    /// It is not known how far it is.
    Untold,
    /// New servers fail there, or do not serve reads: the last error.
    Servers(Arc<str>),
    /// It follows another timeline than the primary's.
    OtherTimeline,
    /// Its role is not known.
    NoRole,
    /// It is not up.
    Away(State),
}

/// Whether reads of a login go to a host, or why not. Of several, the least one counts: a login's
/// before that of an entry whose clients have not come yet, and none before a hindrance.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReadSight {
    /// No client has come yet.
    pub(crate) is_expected: bool,
    /// `None` if reads go there.
    pub(crate) hindrance: Option<Hindrance>,
}

impl ReadSight {
    /// What two workers say of a host. Only the one that has tried knows that new servers fail there.
    pub fn with<'a>(&'a self, other: &'a ReadSight) -> &'a ReadSight {
        match other.is_expected.cmp(&self.is_expected) {
            Ordering::Less => other,
            Ordering::Greater => self,
            Ordering::Equal => self.max(other),
        }
    }
}

impl Hindrance {
    /// What speaks against a host, as the last view has it.
    pub fn of_host(standing: &HostStanding) -> Option<Hindrance> {
        match (standing.state, standing.role) {
            (State::Up, Some(Role::Standby)) => standing.behind.then_some(Hindrance::OtherTimeline),
            (State::Up, Some(Role::Primary)) => Some(Hindrance::Primary),
            (State::Up, _) => Some(Hindrance::NoRole),
            (state, _) => Some(Hindrance::Away(state)),
        }
    }

    /// What speaks against a standby that covers this; `None` for one that has not told. The caller
    /// knows what the client has seen.
    #[inline]
    pub fn of_cover(cover: Option<&Cover>, terms: &ReadTerms) -> Option<Hindrance> {
        match cover {
            Some(cover) if cover.lag > terms.max_lag => Some(Hindrance::Lags),
            None if terms.is_session || terms.max_lag < u64::MAX => Some(Hindrance::Untold),
            _ => None,
        }
    }

    /// What speaks against a host whose new servers do not fail.
    pub fn of_reads(
        standing: &HostStanding,
        cover: Option<&Cover>,
        terms: &ReadTerms,
    ) -> Option<Hindrance> {
        match Hindrance::of_host(standing) {
            Some(Hindrance::Primary) if terms.target == ReadTarget::Any => None,
            None => Hindrance::of_cover(cover, terms),
            hindrance => hindrance,
        }
    }

    /// A short phrase. `lack`: what the host, or its primary, has not told.
    pub fn phrase(&self, lack: Option<&str>) -> String {
        match self {
            Hindrance::Primary => "the primary".into(),
            Hindrance::Lags => "over max_standby_lag".into(),
            Hindrance::Untold => lack.unwrap_or("has not told its LSN yet").into(),
            Hindrance::Servers(error) => error.to_string(),
            Hindrance::OtherTimeline => "another timeline".into(),
            Hindrance::NoRole => "role unknown".into(),
            Hindrance::Away(state) => state.word().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Time;
    use crate::roster::view::Instance;

    #[test]
    fn a_host_is_hindered_by_its_state_its_timeline_and_its_lag() {
        let standing = |state, role, behind| HostStanding {
            role,
            state,
            behind,
            lag_over: 0,
            read_only: false,
            hidden: false,
            why: "".into(),
            since: Time(0),
            timeline: Some(1),
            lsn: None,
        };
        let standby = |behind| standing(State::Up, Some(Role::Standby), behind);
        let cover = |lag| Cover {
            instance: Instance(1),
            round: 5,
            lag,
        };
        let terms = |is_session, max_lag, target| ReadTerms {
            target,
            is_session,
            wait: 0,
            max_lag,
            has_statements: true,
        };
        let session = terms(true, 10, ReadTarget::PreferStandby);
        let reads = |standing, cover: Option<Cover>, terms| {
            let hindrance = Hindrance::of_reads(&standing, cover.as_ref(), &terms);
            hindrance.map_or("yes".into(), |of| of.phrase(None))
        };
        assert_eq!(reads(standby(false), Some(cover(10)), session), "yes");
        assert_eq!(
            reads(standby(false), Some(cover(11)), session),
            "over max_standby_lag"
        );
        assert_eq!(
            reads(standby(false), None, session),
            "has not told its LSN yet"
        );
        assert_eq!(
            reads(standby(true), Some(cover(0)), session),
            "another timeline"
        );
        let lost = standing(State::Down, Some(Role::Standby), false);
        assert_eq!(reads(lost, Some(cover(0)), session), "down");
        let unknown = standing(State::Up, None, false);
        assert_eq!(reads(unknown, None, session), "role unknown");
        let eventual = |max_lag| terms(false, max_lag, ReadTarget::Any);
        assert_eq!(reads(standby(false), None, eventual(u64::MAX)), "yes");
        assert_eq!(
            reads(standby(false), None, eventual(10)),
            "has not told its LSN yet"
        );
        let primary = || standing(State::Up, Some(Role::Primary), false);
        assert_eq!(reads(primary(), None, eventual(10)), "yes");
        assert_eq!(reads(primary(), None, session), "the primary");
    }
}
