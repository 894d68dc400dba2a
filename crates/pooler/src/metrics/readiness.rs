//! Decides whether the process should get new clients.

use super::Sight;
use crate::config::CAUSES;

/// The reasons, among those that count, why the process should get no new clients.
///
/// `draining`: the process shuts down, or a successor takes over. `paused`: PAUSE or SUSPEND holds
/// for all pools. `unreachable`: logins to PostgreSQL fail, or a database
/// has no host with the wished role, and no pool has a server.
pub fn readiness(sight: &Sight, counts: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let no_host = sight.usable_hosts.values().any(|hosts| *hosts == 0);
    let fails = no_host || sight.pools.iter().any(|pool| pool.failure.is_some());
    let any_server = sight.pools.iter().any(|pool| pool.ready_servers() > 0);
    let is = |cause: &str| match cause {
        "draining" => sight.process.draining,
        "paused" => sight.paused || sight.suspended,
        _ => fails && !any_server,
    };
    let mut causes = CAUSES.to_vec();
    causes.retain(|cause| counts(cause) && is(cause));
    causes
}
