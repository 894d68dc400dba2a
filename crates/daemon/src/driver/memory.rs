//! Gives the allocator's unused memory back to the system.
//!
//! The C library keeps freed memory for later allocations, by thread. After a burst (thousands of
//! clients, texts of many megabytes) that may be most of the process, for good.

use std::time::{Duration, Instant};

/// How much more the allocator must keep than it could not give back the last time, in bytes:
/// that much, and a quarter of what is resident or as much as this.
const WORTH_BYTES: usize = 4 << 20;
/// See [`WORTH_BYTES`].
const MUCH_BYTES: usize = 64 << 20;
/// How often it is given back at most. Meanwhile workers that want memory wait, and later they get
/// the same pages again, one fault each: a load that comes and goes had better keep them.
const PAUSE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub struct Allocator {
    /// Resident bytes that nobody uses and that did not go back when that was last tried.
    settled: Option<usize>,
    /// When it last was.
    trimmed: Option<Instant>,
}

impl Allocator {
    /// Gives back what is free, if that is worth it. To be called every few seconds: to look takes
    /// some ten microseconds, to give back some milliseconds.
    pub fn tidy(&mut self, now: Instant) {
        if self.trimmed.is_some_and(|last| now < last + PAUSE) {
            return;
        }
        let Some((idle, resident)) = idle_bytes() else {
            return;
        };
        let settled = self.settled.get_or_insert(idle);
        *settled = idle.min(*settled);
        let more = idle - *settled;
        if more < WORTH_BYTES || more < MUCH_BYTES.min(resident / 4) {
            return;
        }
        trim();
        self.trimmed = Some(now);
        self.settled = idle_bytes().map(|(idle, _)| idle);
    }
}

/// Resident bytes that are not memory in use: the program itself, stacks, rings, and what the
/// allocator keeps; and all that are resident.
fn idle_bytes() -> Option<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split_whitespace().nth(1)?.parse().ok()?;
    let resident = pages * rustix::param::page_size();
    Some((resident.saturating_sub(used_bytes()?), resident))
}

#[cfg(target_env = "gnu")]
fn used_bytes() -> Option<usize> {
    // SAFETY: it only reads the allocator's counts, under the allocator's locks.
    let counts = unsafe { libc::mallinfo2() };
    Some(counts.uordblks + counts.hblkhd)
}

#[cfg(not(target_env = "gnu"))]
fn used_bytes() -> Option<usize> {
    None
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it gives back pages that hold nothing but free memory, under the allocator's locks.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// In a process of its own, because the allocator counts for the whole process, other tests included.
    #[test]
    fn what_is_freed_goes_back() {
        let alone = "driver::memory::tests::what_is_freed_goes_back_alone";
        let ran = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", alone, "--ignored", "--test-threads=1"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "what_is_freed_goes_back runs it"]
    fn what_is_freed_goes_back_alone() {
        let (mut allocator, now) = (Allocator::default(), Instant::now());
        allocator.tidy(now);
        // Small enough for the heap; the last one keeps the heap's end in use.
        let burst = || -> Vec<Vec<u8>> { (0..4000).map(|_| vec![1; 16 << 10]).collect() };
        let idle = || idle_bytes().unwrap().0;
        let blocks = burst();
        let mut last = vec![blocks.last().cloned()];
        let before = idle();
        drop(blocks);
        let kept = idle();
        allocator.tidy(now);
        let after = idle();
        assert!(kept > before + (32 << 20), "{before} {kept}");
        assert!(after < before + (16 << 20), "{before} {kept} {after}");
        // A load that comes and goes keeps what it has, for a minute.
        let blocks = burst();
        last.push(blocks.last().cloned());
        drop(blocks);
        let kept = idle();
        allocator.tidy(now + PAUSE / 2);
        assert!(idle() + (16 << 20) > kept && kept > after + (32 << 20));
        allocator.tidy(now + PAUSE);
        assert!(idle() < after + (16 << 20));
        drop(last);
    }
}
