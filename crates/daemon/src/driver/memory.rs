//! Gives unused memory of the allocator back to the system.
//!
//! The C library keeps freed memory for later allocations, separately for each thread. After a burst
//! (thousands of clients, or texts of many megabytes) most memory of the process may be unused, for good.

use std::time::{Duration, Instant};

/// Memory is given back only if the unused bytes have grown enough since the last time: by this
/// amount, and by a quarter of the resident bytes or [`MUCH_BYTES`], whichever is less.
const WORTH_BYTES: usize = 4 << 20;
/// See [`WORTH_BYTES`].
const MUCH_BYTES: usize = 64 << 20;
/// How long memory stays after it was last given back. While memory is given back, workers that
/// allocate wait, and later they get the same pages again, one page fault each. A load that comes
/// and goes should keep its memory.
const PAUSE: Duration = Duration::from_secs(60);

/// The state between two checks.
#[derive(Debug, Default)]
pub struct Allocator {
    /// Unused resident bytes that remained after memory was last given back.
    settled: Option<usize>,
    /// When memory was last given back.
    trimmed: Option<Instant>,
}

impl Allocator {
    /// Gives unused memory back, if that is worth its cost. To be called every few seconds. A check
    /// takes some ten microseconds, giving back takes some milliseconds.
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
        // Two estimates of what could not be given back. The first counts what other threads freed
        // meanwhile, and the second what they allocated. Either would hide unused memory for good.
        self.settled = idle_bytes().map(|(left, still_resident)| {
            left.min(idle.saturating_sub(resident.saturating_sub(still_resident)))
        });
    }
}

/// Two counts of resident bytes: those not in use (the program itself, stacks, rings, and the
/// allocator's free memory), and all.
fn idle_bytes() -> Option<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split_whitespace().nth(1)?.parse().ok()?;
    let resident = pages * rustix::param::page_size();
    Some((resident.saturating_sub(used_bytes()?), resident))
}

#[cfg(target_env = "gnu")]
fn used_bytes() -> Option<usize> {
    // SAFETY: this only reads the allocator's counts, under the allocator's locks.
    let counts = unsafe { libc::mallinfo2() };
    Some(counts.uordblks + counts.hblkhd)
}

#[cfg(not(target_env = "gnu"))]
fn used_bytes() -> Option<usize> {
    None
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: this gives back pages that hold only free memory, under the allocator's locks.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Runs in a process of its own, because the allocator counts all tests of a process together.
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
        // Small enough for the heap. The last block keeps the end of the heap in use.
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
        // After a load that comes and goes, the memory is kept for a minute.
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
