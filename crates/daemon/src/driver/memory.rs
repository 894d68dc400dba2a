//! What the allocator keeps of memory that nobody uses goes back to the system.
//!
//! The C library keeps what was freed for whoever asks next, by thread. After a burst (thousands of
//! clients, texts of many megabytes) that may be most of the process, for good.

/// How much more the allocator must keep than it could not give back the last time, in bytes.
const WORTH_BYTES: usize = 4 << 20;

/// See the module.
#[derive(Debug, Default)]
pub struct Allocator {
    /// Resident bytes that nobody uses and that did not go back when that was last tried.
    settled: Option<usize>,
}

impl Allocator {
    /// Gives back what is free, if that is worth it. To be called every few seconds: to look takes
    /// some ten microseconds, to give back some milliseconds.
    pub fn tidy(&mut self) {
        let Some(idle) = idle_bytes() else {
            return;
        };
        let settled = self.settled.get_or_insert(idle);
        *settled = idle.min(*settled);
        if idle < *settled + WORTH_BYTES {
            return;
        }
        trim();
        self.settled = idle_bytes();
    }
}

/// Resident bytes that are not memory in use: the program itself, stacks, rings, and what the
/// allocator keeps.
fn idle_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split_whitespace().nth(1)?.parse().ok()?;
    let resident = pages * rustix::param::page_size();
    Some(resident.saturating_sub(used_bytes()?))
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

    #[test]
    fn what_is_freed_goes_back() {
        let mut allocator = Allocator::default();
        allocator.tidy();
        // Small enough for the heap; the last one keeps the heap's end in use.
        let blocks: Vec<Vec<u8>> = (0..4000).map(|_| vec![1; 16 << 10]).collect();
        let last = blocks.last().cloned();
        let before = idle_bytes().unwrap();
        drop(blocks);
        let kept = idle_bytes().unwrap();
        allocator.tidy();
        let after = idle_bytes().unwrap();
        assert!(kept > before + (32 << 20), "{before} {kept}");
        assert!(after < before + (16 << 20), "{before} {kept} {after}");
        drop(last);
    }
}
