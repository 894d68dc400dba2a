//! The buffers into which the kernel receives: io_uring's "provided buffer ring".
//!
//! The kernel takes buffers from the ring in the order in which they were added, so it touches every buffer
//! of the ring in turn. Therefore the ring holds only as many buffers as the load needs. The other buffers
//! wait in a stack.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use crate::driver::ReceivedChunk;

/// The size of a buffer in bytes.
pub(super) const SIZE: usize = 8 * 1024;
/// The distance between two buffers. Short messages touch only the start of a buffer. If the
/// distance were a power of two, all starts would compete for the same few sets of the processor's
/// caches.
const STRIDE: usize = SIZE + 5 * 64;
/// The number of buffers; the kernel requires a power of two.
const COUNT: u16 = 128;
/// The smallest number of buffers in the ring.
const FEWEST: u16 = 32;
/// How often the number of buffers in the ring may shrink: once in this many refills.
const PATIENCE: u32 = 4096;
/// The ring's group number; each driver has only one ring.
pub(super) const GROUP: u16 = 0;

pub(super) struct Buffers {
    entries: *mut BufRingEntry,
    memory: *mut u8,
    /// The ring's tail, as last published.
    tail: u16,
    /// The number of buffers in the ring, as far as known. The kernel may already have taken some.
    in_ring: u16,
    /// The wanted number of buffers in the ring.
    target: u16,
    /// The buffers in the stack.
    free: Vec<u16>,
    /// The buffers that hold the bytes of a chunk, as bits.
    out: u128,
    /// The kernel may still write to the buffers: they are never freed.
    kept: bool,
    refills: u32,
    /// The greatest number of missing buffers at a refill, lately.
    most_missing: u16,
}

impl Buffers {
    fn layouts() -> (Layout, Layout) {
        let ring = size_of::<BufRingEntry>() * usize::from(COUNT);
        let page = |size| Layout::from_size_align(size, 4096).expect("a small constant");
        (page(ring), page(STRIDE * usize::from(COUNT)))
    }

    /// Allocates the buffers, and registers them with the ring behind `submitter`.
    pub(super) fn register(submitter: &Submitter<'_>) -> io::Result<Buffers> {
        let (ring, memory) = Buffers::layouts();
        // SAFETY: both layouts have a size above zero.
        let (entries, memory) = unsafe { (alloc_zeroed(ring), alloc_zeroed(memory)) };
        if entries.is_null() || memory.is_null() {
            handle_alloc_error(ring);
        }
        let mut buffers = Buffers {
            entries: entries.cast(),
            memory,
            tail: 0,
            in_ring: 0,
            target: FEWEST,
            free: (0..COUNT).rev().collect(),
            out: 0,
            kept: false,
            refills: 0,
            most_missing: 0,
        };
        // SAFETY: the memory is page-aligned, holds COUNT entries, and outlives the registration:
        // `Uring` drops its ring before its buffers.
        unsafe {
            submitter.register_buf_ring_with_flags(entries as u64, COUNT, GROUP, 0)?;
        }
        buffers.refill();
        Ok(buffers)
    }

    /// The kernel took this buffer from the ring, and its bytes have arrived here.
    pub(super) fn taken(&mut self, buffer: u16) {
        self.in_ring -= 1;
        self.out |= 1 << buffer;
    }

    /// A buffer is no longer needed.
    ///
    /// # Panics
    /// If the buffer was already released: two connections would get it.
    pub(super) fn release(&mut self, buffer: u16) {
        assert!(self.is_out(buffer), "a buffer is released once");
        self.out &= !(1 << buffer);
        self.free.push(buffer);
    }

    fn is_out(&self, buffer: u16) -> bool {
        buffer < COUNT && self.out & 1 << buffer != 0
    }

    /// The received bytes.
    ///
    /// # Panics
    /// If the chunk's buffer is not in use.
    pub(super) fn bytes(&self, chunk: &ReceivedChunk) -> &[u8] {
        assert!(self.is_out(chunk.buffer()) && chunk.len() <= SIZE);
        // SAFETY: inside the allocation, as just asserted; initialised (zeroed when allocated); and
        // the kernel does not write to a buffer between handing it to us (it is out) and `refill`
        // putting it back, which needs `&mut self`.
        unsafe {
            let start = self.memory.add(usize::from(chunk.buffer()) * STRIDE);
            std::slice::from_raw_parts(start, chunk.len())
        }
    }

    /// Never frees the buffers, because the kernel may still use them.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }

    /// How many buffers the kernel can use.
    pub(super) fn available(&self) -> usize {
        usize::from(self.in_ring)
    }

    /// A receive found no buffer: the ring needs more.
    pub(super) fn starved(&mut self) {
        self.target = (self.target * 2).min(COUNT);
        self.refills = 0;
        self.most_missing = self.target;
    }

    /// Adds buffers to the ring, up to the wanted number.
    pub(super) fn refill(&mut self) {
        let missing = self.target.saturating_sub(self.in_ring);
        self.adapt(missing);
        let before = self.tail;
        for _ in 0..missing {
            let Some(buffer) = self.free.pop() else { break };
            // SAFETY: the index is below COUNT. The kernel does not read entries from the published
            // tail on. Fields are written one by one because the first entry's unused field is the
            // ring's tail.
            unsafe {
                let entry = self.entries.add(usize::from(self.tail & (COUNT - 1)));
                (*entry).set_addr(self.memory.add(usize::from(buffer) * STRIDE) as u64);
                (*entry).set_len(SIZE as u32);
                (*entry).set_bid(buffer);
            }
            self.tail = self.tail.wrapping_add(1);
        }
        if self.tail != before {
            self.in_ring += self.tail.wrapping_sub(before);
            // SAFETY: the first entry is valid, so its tail field is valid and aligned. The kernel
            // only reads it.
            let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
            tail.store(self.tail, Ordering::Release);
        }
    }

    fn adapt(&mut self, missing: u16) {
        self.most_missing = self.most_missing.max(missing);
        self.refills += 1;
        if self.refills == PATIENCE {
            if self.most_missing < self.target / 4 {
                self.target = (self.target / 2).max(FEWEST);
            }
            self.refills = 0;
            self.most_missing = 0;
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let (ring, memory) = Buffers::layouts();
        // SAFETY: allocated with these layouts; `Uring` has ended the kernel's use of them.
        unsafe {
            dealloc(self.entries.cast(), ring);
            dealloc(self.memory, memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "released once")]
    fn a_buffer_is_not_given_to_two_connections() {
        let Ok(ring) = io_uring::IoUring::new(4) else {
            panic!("released once: no io_uring here");
        };
        let mut buffers = Buffers::register(&ring.submitter()).unwrap();
        // Two chunks of one buffer would do this, if they could exist.
        buffers.taken(0);
        buffers.release(0);
        buffers.release(0);
    }
}
