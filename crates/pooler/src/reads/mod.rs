//! Reads on standbys, without a client that reads back in time.
//!
//! With `read_routing`, the requests of a client that are **reads** go to standbys: a login has
//! pools at standbys for them ([`crate::login::Login::read_pools`]), beside those of its own
//! target. `wish.rs` says what is a read, `place.rs` finds its pool.
//!
//! With `read_consistency = session`, what a client reads shows all that it has written or seen
//! before. The numbers that this takes count **rounds** ([`crate::roster::round`]). A client's
//! `floor` is `begun` when its last answer had come; `at` is the instance that answered, if that was
//! a standby. A read may go to a standby
//!
//! - that covers a round above `floor`, or
//! - whose instance is `at`,
//!
//! on a server that is **mature** (`newborn.rs`): the standby has covered a round that began after
//! the server was asked for its instance.
//!
//! Why this is right:
//!
//! 1. All that the client has seen was in the primary's WAL when its last answer came, because a
//!    standby shows nothing that the primary has not inserted. A round above `floor` began later.
//!    So a standby that covers this round has replayed all of that.
//! 2. The answer of `at` showed what this standby had replayed then. While it runs, it only goes on.
//!    By induction, this is no less than what the client had seen before.
//! 3. PostgreSQL restarts itself after a crash of one of its processes, with the same start time, and
//!    may then show less than before. All servers are lost in such a crash. A server matures by a
//!    report that was asked for after the server was born, so by one of its own time. Reports of a
//!    standby come in order, so the later ones are of this time, too. And this one covers a round
//!    that began after the crash: all that any standby had shown before it.
//!
//! One exception is PostgreSQL's own: a standby may show a commit before the primary does, while its
//! writer still waits, for a synchronous standby or for a moment. Who has seen this commit there may
//! miss it at the primary until then.

mod again;
pub mod group;
pub mod guard;
pub mod hindrance;
pub mod lore;
pub mod mark;
pub(crate) mod maturity;
mod names;
pub mod naming;
mod newborn;
mod place;
mod progress;
mod seen;
pub mod tally;
pub mod wish;

use crate::config::{
    Database, ReadConsistency, ReadRouting, ReadTarget, Scopes, SessionAttrs, nanos,
};

/// How the reads of a login are routed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadTerms {
    /// `read_target`
    pub target: ReadTarget,
    /// `read_consistency` is `session`.
    pub is_session: bool,
    /// `read_wait`, in nanoseconds.
    pub wait: u64,
    /// `max_standby_lag`, in nanoseconds; `u64::MAX` for none.
    pub max_lag: u64,
    /// `read_routing` is `statements`.
    pub has_statements: bool,
}

impl ReadTerms {
    /// The settings of a login; `None` if its reads are not routed: also if all of its requests go to
    /// standbys anyhow.
    pub fn of(scopes: Scopes<'_>, database: &Database) -> Option<ReadTerms> {
        use SessionAttrs::{Primary, ReadWrite};
        let writes = matches!(database.target_session_attrs, Primary | ReadWrite);
        if scopes.read_routing() == ReadRouting::Off || !writes {
            return None;
        }
        let max_lag = match nanos(scopes.max_standby_lag()) {
            0 => u64::MAX,
            lag => lag,
        };
        Some(ReadTerms {
            target: scopes.read_target(),
            is_session: scopes.read_consistency() == ReadConsistency::Session,
            wait: nanos(scopes.read_wait()),
            max_lag,
            has_statements: scopes.read_routing() == ReadRouting::Statements,
        })
    }
}
