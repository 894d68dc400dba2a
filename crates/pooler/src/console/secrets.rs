//! SHOW SECRETS: the sources of secrets, and what came of the last call. No value is in it.

use std::sync::atomic::Ordering;

use super::rows::{Row, number};
use crate::config::Config;
use crate::event::Time;

/// One row for each source that the configuration uses.
pub(super) fn show_secrets(config: &Config, now: Time) -> Vec<Row> {
    let seconds = |nanos: u64| number(nanos / 1_000_000_000);
    let all = config.secret_sources().into_iter();
    let rows = all.map(|(source, used)| {
        let known = config.fetched.get(&source);
        let valued = known.filter(|known| known.value.is_some());
        let until = valued.and_then(|known| known.until);
        vec![
            Some(source.to_string()),
            Some(used.users.join("; ")),
            valued.and_then(|known| seconds(now.0.saturating_sub(known.at))),
            until.and_then(|until| seconds(until.saturating_sub(now.0))),
            number(known.map_or(0, |known| known.generation)),
            number(known.map_or(0, |known| known.logins.load(Ordering::Relaxed))),
            known.and_then(|known| known.error.clone()),
        ]
    });
    rows.collect()
}
