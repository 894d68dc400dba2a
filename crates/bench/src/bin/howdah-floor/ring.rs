//! One io_uring: receives into provided buffers, and complete sends.
//!
//! The only file of this program with unsafe code. It is sound because the kernel gets only memory
//! that this value owns and neither moves, changes nor frees before the completion. The receive
//! buffers are leaked, because a ring lives as long as its thread and the process. Bytes to send
//! are moved into the ring, and come back when sent.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io;
use std::mem::{ManuallyDrop, size_of};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

const ENTRIES: u32 = 1024;
const COMPLETIONS: u32 = 8192;
const BUFFERS: u16 = 128;
const BUFFER_BYTES: usize = 4096;
const GROUP: u16 = 0;
const PAGE: usize = 4096;
/// The bit of a tag that marks a send. The other bits are the connection's index.
const SEND: u64 = 1 << 32;

/// `MSG_NOSIGNAL`, and `MSG_WAITALL`: the kernel continues until all bytes are sent.
const WHOLE: i32 = 0x4000 | 0x100;
/// `MSG_DONTWAIT`: a send fails instead of waiting.
const AT_ONCE: i32 = 0x40;

/// The kernel's `ENOBUFS`: all provided buffers were in use.
const NO_BUFFERS: i32 = -105;
/// The kernel's `EAGAIN`: no bytes could be sent at once.
const TRY_AGAIN: i32 = -11;

/// The ring of one thread.
pub struct Ring {
    ring: IoUring,
    /// The kernel's ring of free buffers: `BUFFERS` entries.
    entries: *mut BufRingEntry,
    /// The buffers: `BUFFERS` times `BUFFER_BYTES`.
    memory: *mut u8,
    tail: u16,
    /// Sends that should complete during submission. A send without a completion at the end of the
    /// turn has succeeded. With completions for all of them, every wait would end at once without
    /// need.
    quiet: Vec<usize>,
    /// The bytes being sent, by connection. Never dropped, because the kernel may still read them.
    sends: ManuallyDrop<Vec<Outgoing>>,
}

#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    fd: RawFd,
    /// In `quiet`, and without a completion.
    quiet: bool,
}

/// A filled buffer. [`Ring::recycle`] gives it back.
pub struct Buffer {
    id: u16,
    length: usize,
}

/// An event of a connection.
pub enum Event {
    /// Bytes came, the receive ended (`armed` is false), or both.
    Received {
        /// The connection.
        index: usize,
        /// The bytes, if any.
        buffer: Option<Buffer>,
        /// True if the receive continues.
        armed: bool,
        /// End of file or an error: no more bytes will come.
        ended: bool,
    },
    /// The kernel has taken all bytes of the last send, or the connection is broken.
    Sent {
        /// The connection.
        index: usize,
        /// The allocation, for the next send.
        bytes: Vec<u8>,
        /// True if the connection is broken.
        broken: bool,
    },
}

impl Ring {
    /// A ring for the calling thread. No other thread may use it.
    ///
    /// # Errors
    /// The kernel forbids io_uring or is too old (it must be 6.1 or later).
    pub fn new() -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETIONS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(ENTRIES)?;
        let entries = leak(usize::from(BUFFERS) * size_of::<BufRingEntry>()).cast();
        let memory = leak(usize::from(BUFFERS) * BUFFER_BYTES);
        // SAFETY: `entries` is page-aligned, zeroed, holds BUFFERS entries and is never freed.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(entries as u64, BUFFERS, GROUP, 0)?;
        }
        let sends = ManuallyDrop::new(Vec::new());
        let mut ring = Self {
            ring,
            entries,
            memory,
            tail: 0,
            quiet: Vec::new(),
            sends,
        };
        (0..BUFFERS).for_each(|id| ring.provide(id));
        Ok(ring)
    }

    /// Gives a buffer to the kernel, for the first time or again.
    fn provide(&mut self, id: u16) {
        let slot = usize::from(self.tail & (BUFFERS - 1));
        // SAFETY: `slot` is below BUFFERS, `id` too; this thread alone writes entries, and the
        // kernel reads this one only after the tail moved past it.
        unsafe {
            let entry = &mut *self.entries.add(slot);
            entry.set_addr(self.memory.add(usize::from(id) * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies in the first entry, which lives for ever; the kernel reads it
        // concurrently, hence atomically; it is two-byte aligned by the kernel's layout.
        unsafe {
            let tail = BufRingEntry::tail(self.entries).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    /// Receives on a connection until an event says that the receive has ended.
    pub fn receive(&mut self, index: usize, fd: RawFd) {
        let entry = opcode::RecvMulti::new(Fd(fd), GROUP)
            .build()
            .user_data(index as u64);
        // SAFETY: the kernel writes only to provided buffers, which live for ever.
        unsafe { self.push(&entry) };
    }

    /// Sends all bytes. Only one send for each connection at a time.
    ///
    /// # Panics
    /// A send of this connection is in flight.
    pub fn send(&mut self, index: usize, fd: RawFd, bytes: Vec<u8>) {
        if self.sends.len() <= index {
            self.sends.resize_with(index + 1, Outgoing::default);
        }
        assert!(self.sends[index].bytes.is_empty(), "one send at a time");
        let quiet = true;
        self.sends[index] = Outgoing {
            bytes,
            sent: 0,
            fd,
            quiet,
        };
        self.quiet.push(index);
        self.push_send(index);
    }

    fn push_send(&mut self, index: usize) {
        let Outgoing {
            bytes,
            sent,
            fd,
            quiet,
        } = &self.sends[index];
        let rest = &bytes[*sent..];
        let (how, flags) = if *quiet {
            (WHOLE | AT_ONCE, squeue::Flags::SKIP_SUCCESS)
        } else {
            (WHOLE, squeue::Flags::empty())
        };
        let entry = opcode::Send::new(Fd(*fd), rest.as_ptr(), rest.len() as u32)
            .flags(how)
            .build()
            .flags(flags)
            .user_data(index as u64 | SEND);
        // SAFETY: the bytes stay in `sends` untouched until the completion; moving the `Outgoing`
        // when the table grows does not move what its vector points to.
        unsafe { self.push(&entry) };
    }

    /// # Safety
    /// The memory behind the entry must stay valid until its last completion.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: by this function's own contract.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // The queue is full. Entries that the kernel can't take now go at the next attempt.
            let _ = self.ring.submit();
        }
    }

    /// Submits the queued entries and waits for at least one event.
    ///
    /// # Errors
    /// The kernel refuses, which is fatal.
    pub fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            // Interrupted (4), or too many completions (16): these are handled first.
            Err(error) if matches!(error.raw_os_error(), Some(4 | 16)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next available event. The caller must repeat this until there is none.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let Some(entry) = self.ring.completion().next() else {
                break;
            };
            let index = (entry.user_data() & !SEND) as usize;
            if entry.user_data() & SEND == 0 {
                return Some(received(index, &entry));
            }
            if let Some(event) = self.sent(index, entry.result()) {
                return Some(event);
            }
        }
        // Some completions may not have fitted into the queue.
        if self.ring.submission().cq_overflow() {
            return None;
        }
        while let Some(index) = self.quiet.pop() {
            if std::mem::take(&mut self.sends[index].quiet) {
                return Some(self.whole(index, false));
            }
        }
        None
    }

    /// Handles a completion: the send is complete or failed, or the rest is sent now with waiting.
    fn sent(&mut self, index: usize, result: i32) -> Option<Event> {
        let outgoing = &mut self.sends[index];
        let may_wait = std::mem::take(&mut outgoing.quiet) && result == TRY_AGAIN;
        outgoing.sent += usize::try_from(result).unwrap_or(0);
        let broken = result < 0 && !may_wait;
        if !broken && outgoing.sent < outgoing.bytes.len() {
            self.push_send(index);
            return None;
        }
        Some(self.whole(index, broken))
    }

    fn whole(&mut self, index: usize, broken: bool) -> Event {
        let mut bytes = std::mem::take(&mut self.sends[index].bytes);
        bytes.clear();
        Event::Sent {
            index,
            bytes,
            broken,
        }
    }

    /// The content of a buffer.
    pub fn bytes(&self, buffer: &Buffer) -> &[u8] {
        // SAFETY: the kernel filled `length` bytes of this buffer and does not touch it again
        // before it is recycled, which consumes the `Buffer`.
        unsafe {
            let start = self.memory.add(usize::from(buffer.id) * BUFFER_BYTES);
            std::slice::from_raw_parts(start, buffer.length)
        }
    }

    /// Lets the kernel fill the buffer again.
    pub fn recycle(&mut self, buffer: Buffer) {
        self.provide(buffer.id);
    }
}

fn received(index: usize, entry: &cqueue::Entry) -> Event {
    let length = usize::try_from(entry.result()).unwrap_or(0);
    // At the end of file the kernel may or may not have used a buffer.
    let buffer = cqueue::buffer_select(entry.flags()).map(|id| Buffer { id, length });
    let armed = cqueue::more(entry.flags());
    let ended = !armed && length == 0 && entry.result() != NO_BUFFERS;
    Event::Received {
        index,
        buffer,
        armed,
        ended,
    }
}

/// Zeroed, page-aligned memory that is never freed.
fn leak(bytes: usize) -> *mut u8 {
    let layout = Layout::from_size_align(bytes, PAGE).expect("a page is a power of two");
    // SAFETY: no caller asks for nothing.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    memory
}
