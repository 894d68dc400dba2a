//! How far a run has come, and how long the rest will take.

use std::time::{Duration, Instant};

/// Counts steps of similar length.
pub struct Pace {
    started: Instant,
    done: usize,
    total: usize,
}

impl Pace {
    /// The first step begins now.
    pub fn new(total: usize) -> Self {
        Self {
            started: Instant::now(),
            done: 0,
            total,
        }
    }

    /// Counts one step as done. Returns how far the run is, as `[3/40, 1:05 left]`.
    pub fn step(&mut self) -> String {
        self.done += 1;
        let (done, total) = (self.done, self.total);
        let each = self.started.elapsed() / done as u32;
        let left = each * total.saturating_sub(done) as u32;
        let width = total.to_string().len();
        format!("[{done:>width$}/{total}, {} left]", minutes(left))
    }
}

/// A duration as minutes and seconds: `1:05`.
pub fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_and_nothing_is_left_after_the_last() {
        let mut pace = Pace::new(10);
        assert!(pace.step().starts_with("[ 1/10, "));
        for _ in 2..10 {
            pace.step();
        }
        assert_eq!(pace.step(), "[10/10, 0:00 left]");
        assert_eq!(minutes(Duration::from_secs(65)), "1:05");
    }
}
