//! The log's lines about clients that wait: one a pool and minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_pooler::login::LoginKey;
use howdah_pooler::metrics::Sight;

/// How often the log tells of a pool.
const EVERY: Duration = Duration::from_secs(60);

/// Which pools the log has told of.
#[derive(Default)]
pub struct LongWaits {
    /// A worker has asked, and no sample of all workers has come since.
    asked: bool,
    told: HashMap<Arc<LoginKey>, Instant>,
}

impl LongWaits {
    /// A worker's clients have waited for long.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// The lines to log, if a worker has asked. `long`: the shortest wait to tell of, in
    /// nanoseconds.
    pub fn lines(&mut self, sight: &Sight, long: u64, now: Instant) -> Vec<String> {
        if !std::mem::take(&mut self.asked) {
            return Vec::new();
        }
        self.told.retain(|_, at| now.duration_since(*at) < EVERY);
        let mut lines = Vec::new();
        for verdict in &sight.verdicts {
            let Some(key) = &verdict.pool else { continue };
            if verdict.longest < long || self.told.contains_key(key) {
                continue;
            }
            lines.push(format!(
                "{}/{}: {} (longest wait {} s)",
                key.database,
                key.user,
                verdict.text,
                verdict.longest / 1_000_000_000
            ));
            self.told.insert(key.clone(), now);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use howdah_pooler::metrics::PoolVerdict;

    use super::*;

    #[test]
    fn a_pool_is_told_of_once_a_minute() {
        let verdict = |user: &str, seconds: u64| PoolVerdict {
            pool: Some(LoginKey::new("shop", user)),
            text: "2 clients wait: the pool is paused".into(),
            longest: seconds * 1_000_000_000,
        };
        let sight = Sight {
            verdicts: vec![verdict("web", 20), verdict("cron", 4)],
            ..Sight::default()
        };
        let (mut waits, start) = (LongWaits::default(), Instant::now());
        let mut told = |asked: bool, after: u64| {
            if asked {
                waits.ask();
            }
            let now = start + Duration::from_secs(after);
            waits.lines(&sight, 5_000_000_000, now)
        };
        assert!(told(false, 0).is_empty(), "nobody has asked");
        let line = "shop/web: 2 clients wait: the pool is paused (longest wait 20 s)";
        assert_eq!(told(true, 1), [line], "the other pool's wait is short");
        assert!(told(true, 60).is_empty(), "within the minute");
        assert_eq!(told(true, 61), [line]);
    }
}
