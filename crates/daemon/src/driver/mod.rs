//! The interface between the connection layer and the kernel.
//!
//! A [`Driver`] moves bytes for numbered connections. It knows nothing of clients, servers or
//! PostgreSQL. There are three: [`uring`], [`epoll`], and the simulated one in `howdah-sim`.
#![allow(unsafe_code)] // Here and nowhere else; each use says why it is sound.

pub mod choose;
pub mod epoll;
pub mod memory;
pub mod socket;
pub mod uring;

use howdah_pooler::event::{Address, Ends, LooseSocket, Time};
pub use rustix::io::Errno;

use socket::SocketOptions;

/// Names a connection towards a driver. The connection layer chooses keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Dense: suits as an index into a table. Below 2^28.
    pub slot: u32,
    /// Differs between two connections that used the same slot.
    pub generation: u32,
}

/// Received bytes, still in a buffer of the driver: see [`Driver::bytes`]. There is one for each
/// buffer that is out, and releasing the buffer takes the chunk away.
#[derive(Debug)]
#[must_use = "its buffer must be released"]
pub struct ReceivedChunk {
    buffer: u16,
    len: u32,
}

impl ReceivedChunk {
    /// So many bytes in this buffer of the driver's, which has no other chunk. For drivers.
    pub fn new(buffer: u16, len: u32) -> ReceivedChunk {
        ReceivedChunk { buffer, len }
    }

    /// Which of the driver's buffers.
    pub fn buffer(&self) -> u16 {
        self.buffer
    }

    /// How many bytes.
    #[allow(clippy::len_without_is_empty)] // It never is.
    pub fn len(&self) -> usize {
        self.len as usize
    }
}

/// Something a driver finished.
#[derive(Debug)]
pub enum Completion {
    /// A connection came in. The socket belongs to the receiver of this value.
    Accepted {
        /// Index of the listener.
        listener: usize,
        /// To be attached or discarded.
        socket: LooseSocket,
        /// Who is connected to whom.
        ends: Box<Ends>,
    },
    /// Accepting failed, and is off on this listener until switched on again.
    AcceptFailed {
        /// Index of the listener.
        listener: usize,
        /// Why.
        error: Errno,
    },
    /// A connect ended. After an error the key still wants a [`Driver::close`].
    Connected {
        /// Whose.
        key: Key,
        /// The ends, or why not.
        result: Result<Box<Ends>, Errno>,
    },
    /// Bytes arrived, in stream order. The chunk must be released.
    Received {
        /// Whose.
        key: Key,
        /// The bytes.
        chunk: ReceivedChunk,
    },
    /// The stream ended (no error: end of file); no `Received` follows.
    Ended {
        /// Whose.
        key: Key,
        /// Why, unless by end of file.
        error: Option<Errno>,
    },
    /// The block of a [`Driver::send`] is back: sent whole, or not (wholly) sent.
    Sent {
        /// Whose.
        key: Key,
        /// As it was given.
        block: Vec<u8>,
        /// Everything was taken by the kernel, or the error.
        result: Result<(), Errno>,
    },
    /// Answers [`Driver::detach`]; the last completion of this key.
    Detached {
        /// Whose.
        key: Key,
        /// The socket, with nothing under way on it.
        socket: LooseSocket,
    },
    /// Answers [`Driver::close`]; the last completion of this key.
    Closed {
        /// Whose.
        key: Key,
    },
}

/// Moves bytes. One per worker, used from the thread that made it.
///
/// **Turns.** [`wait`](Driver::wait) hands the kernel what was asked for and blocks until something
/// is finished, the deadline passes or the worker's mailbox is rung; then [`next`](Driver::next)
/// is called until it returns `None`. Verbs may be called at any time in between.
///
/// **Receiving** is switched on and off with [`receive`](Driver::receive). After switching it off,
/// bytes that were under way are still delivered. After `Ended` it stays off.
///
/// **Sending**: at most one [`send`](Driver::send) per key is under way. The driver owns the block
/// until it gives it back: at once as the verb's return value, or with `Sent`.
///
/// **Leaving**: [`close`](Driver::close) and [`detach`](Driver::detach) stop what is under way,
/// await its end, and answer with the last completion of the key. A `detach` that finds the stream
/// ended answers with `Ended` instead, and the connection stays. A key that is not in use makes
/// every verb a no-op, so that verbs may cross with last completions.
///
/// Each key is used for one connection only.
pub trait Driver {
    /// Reads the clock: nanoseconds since an origin common to all workers.
    fn now(&self) -> Time;
    /// See above. Without a deadline it waits for ever; a deadline in the past only collects.
    fn wait(&mut self, deadline: Option<Time>);
    /// The next completion of this turn.
    fn next(&mut self) -> Option<Completion>;
    /// Hands the kernel what was asked for so far, without waiting.
    fn submit(&mut self);

    /// The bytes of a chunk.
    fn bytes(&self, chunk: &ReceivedChunk) -> &[u8];
    /// Gives a chunk's buffer back. To be called for each `Received`, before the next `wait`.
    fn release(&mut self, chunk: ReceivedChunk);

    /// The listeners the driver was made with; an index into this list names one.
    fn listeners(&self) -> Vec<Address>;
    /// Starts or stops accepting. A few connections may still be accepted after a stop.
    fn accept(&mut self, listener: usize, on: bool);
    /// Lets go of a listener for good. Who connects from then on is refused, whatever other workers
    /// do; the socket is closed when every worker has let go.
    fn unlisten(&mut self, listener: usize);

    /// Options for the TCP connections accepted or begun from now on.
    fn set_options(&mut self, options: SocketOptions);
    /// Opens a connection; `Connected` answers. Receiving is off.
    fn connect(&mut self, key: Key, address: &Address);
    /// Takes a socket in. Receiving is off.
    fn attach(&mut self, key: Key, socket: LooseSocket);
    /// Closes a socket that was never attached.
    fn discard(&mut self, socket: LooseSocket);
    /// Starts or stops receiving.
    fn receive(&mut self, key: Key, on: bool);
    /// Whether the peer has ended its direction of the stream, or all of it, perhaps with bytes of it
    /// not yet received. For connections that are not received from: it asks the kernel.
    fn hung_up(&mut self, key: Key) -> bool;
    /// Sends a block, which is not empty. `Some` means the kernel took all of it at once and no
    /// `Sent` follows. Unless `prompt`, the `Sent` of a success may wait until the driver has
    /// something else to tell: nobody is woken for it.
    fn send(&mut self, key: Key, block: Vec<u8>, prompt: bool) -> Option<Vec<u8>>;
    /// Ends our direction of the stream. No send may be under way.
    fn shutdown(&mut self, key: Key);
    /// Takes the socket out. No send may be under way.
    fn detach(&mut self, key: Key);
    /// Closes the socket. A block under way comes back with an error first.
    fn close(&mut self, key: Key);
}

/// What a number given to the kernel means: which kind of thing it names, and which one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag {
    kind: u8,
    key: Key,
}

impl Tag {
    const SLOT_BITS: u32 = 28;

    fn new(kind: u8, key: Key) -> Tag {
        debug_assert!(kind < 16 && key.slot < 1 << Tag::SLOT_BITS);
        Tag { kind, key }
    }

    fn pack(self) -> u64 {
        u64::from(self.kind) << 60 | u64::from(self.key.slot) << 32 | u64::from(self.key.generation)
    }

    fn unpack(raw: u64) -> Tag {
        Tag {
            kind: (raw >> 60) as u8,
            key: Key {
                slot: (raw >> 32) as u32 & ((1 << Tag::SLOT_BITS) - 1),
                generation: raw as u32,
            },
        }
    }
}

/// The system's text of an error, without Rust's "(os error 5)".
pub fn error_text(error: Errno) -> String {
    let mut text = std::io::Error::from(error).to_string();
    if let Some(end) = text.rfind(" (os error") {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_survives_packing() {
        for kind in [0, 3, 15] {
            for (slot, generation) in [(0, 0), (1, u32::MAX), ((1 << 28) - 1, 7)] {
                let tag = Tag::new(kind, Key { slot, generation });
                assert_eq!(Tag::unpack(tag.pack()), tag);
            }
        }
    }

    #[test]
    fn an_error_is_told_as_the_system_tells_it() {
        assert_eq!(error_text(Errno::CONNREFUSED), "Connection refused");
    }
}
