//! The interface between the connection layer and the kernel.
//!
//! A [`Driver`] moves bytes for numbered connections. It knows nothing of clients, servers or
//! PostgreSQL. There are three: [`uring`], [`epoll`], and the simulated one in `howdah-sim`.
#![allow(unsafe_code)] // Otherwise only in `tls/library.rs`; each use says why it is sound.

pub mod choose;
pub mod epoll;
pub mod memory;
pub mod socket;
pub mod uring;

use howdah_pooler::event::{Address, Ends, LooseSocket, Time, Unreached};
pub use rustix::io::Errno;

use socket::SocketOptions;

/// A connection's name towards a driver. The connection layer chooses keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Slots are dense, so a slot can be an index into a table. Below 2^28.
    pub slot: u32,
    /// Differs between two connections that used the same slot.
    pub generation: u32,
}

/// Received bytes in a buffer of the driver: see [`Driver::bytes`]. Each buffer in use has exactly
/// one chunk. Releasing the buffer takes the chunk away.
#[derive(Debug)]
#[must_use = "its buffer must be released"]
pub struct ReceivedChunk {
    buffer: u16,
    len: u32,
}

impl ReceivedChunk {
    /// For drivers: `len` bytes in this buffer, which must have no other chunk.
    pub fn new(buffer: u16, len: u32) -> ReceivedChunk {
        ReceivedChunk { buffer, len }
    }

    /// The number of the driver's buffer.
    pub fn buffer(&self) -> u16 {
        self.buffer
    }

    /// The number of bytes.
    #[allow(clippy::len_without_is_empty)] // It never is.
    pub fn len(&self) -> usize {
        self.len as usize
    }
}

/// A finished operation of a driver.
#[derive(Debug)]
pub enum Completion {
    /// A new connection. The socket belongs to the receiver of this value.
    Accepted {
        /// Index of the listener.
        listener: usize,
        /// The socket; the receiver must attach or discard it.
        socket: LooseSocket,
        /// The addresses of both ends.
        ends: Box<Ends>,
    },
    /// Accepting failed. This listener accepts no more until it is switched on again.
    AcceptFailed {
        /// Index of the listener.
        listener: usize,
        /// The system's error.
        error: Errno,
    },
    /// A connect has ended. After an error the key must still be closed by [`Driver::close`].
    Connected {
        /// The connection.
        key: Key,
        /// The addresses of both ends, or the system's error.
        result: Result<Box<Ends>, Errno>,
    },
    /// Bytes arrived, in the order of the stream. The chunk must be released.
    Received {
        /// The connection.
        key: Key,
        /// The bytes.
        chunk: ReceivedChunk,
    },
    /// The stream ended. No `Received` follows.
    Ended {
        /// The connection.
        key: Key,
        /// The system's error; `None` at an end of file.
        error: Option<Errno>,
    },
    /// The block of a [`Driver::send`] comes back. It was sent, or its sending failed.
    Sent {
        /// The connection.
        key: Key,
        /// The block, unchanged.
        block: Vec<u8>,
        /// The kernel has taken all bytes; or the error.
        result: Result<(), Errno>,
    },
    /// Answers [`Driver::detach`]; the last completion of this key.
    Detached {
        /// The connection.
        key: Key,
        /// The socket. No operation is under way on it.
        socket: LooseSocket,
    },
    /// Answers [`Driver::close`]; the last completion of this key.
    Closed {
        /// The connection.
        key: Key,
    },
}

/// Moves bytes. Each worker has one driver, and uses it only from the thread that made it.
///
/// **Turns.** [`wait`](Driver::wait) passes the requested operations to the kernel. It blocks until
/// an operation is finished, the deadline has passed, or the worker's mailbox is rung. Then
/// [`next`](Driver::next) is called until it returns `None`. The other methods may be called at any
/// time in between.
///
/// **Receiving** is switched on and off with [`receive`](Driver::receive). After it is switched
/// off, bytes that were under way are still delivered. After `Ended` it stays off.
///
/// **Sending**: at most one [`send`](Driver::send) per key is under way. The driver owns the block
/// until the driver returns it: at once as the method's return value, or with `Sent`.
///
/// **Leaving**: [`close`](Driver::close) and [`detach`](Driver::detach) stop the operations under
/// way, wait for their end, and answer with the last completion of the key. If a `detach` finds
/// that the stream has ended, it answers with `Ended` instead, and the connection stays. For a key
/// that is not in use, every method does nothing. So a call may cross with the last completion.
///
/// Each key is used for one connection only.
pub trait Driver {
    /// The time in nanoseconds, from an origin that all workers share.
    fn now(&self) -> Time;
    /// See above. Without a deadline it waits for ever; with a deadline in the past it only
    /// collects completions.
    fn wait(&mut self, deadline: Option<Time>);
    /// The next completion of this turn.
    fn next(&mut self) -> Option<Completion>;
    /// Passes the requested operations to the kernel, without waiting.
    fn submit(&mut self);

    /// The bytes of a chunk.
    fn bytes(&self, chunk: &ReceivedChunk) -> &[u8];
    /// Gives a chunk's buffer back. To be called for each `Received`, before the next `wait`.
    fn release(&mut self, chunk: ReceivedChunk);

    /// The addresses of the listeners that the driver was made with. Methods name a listener by its
    /// index in this list.
    fn listeners(&self) -> Vec<Address>;
    /// Starts or stops accepting. A few connections may still be accepted after a stop.
    fn accept(&mut self, listener: usize, on: bool);
    /// Releases a listener for good. New connections are refused from now on, whatever other
    /// workers do. The socket is closed when every worker has released it.
    fn unlisten(&mut self, listener: usize);

    /// Options for TCP connections that are accepted or begun from now on.
    fn set_options(&mut self, options: SocketOptions);
    /// Opens a connection; `Connected` answers. Receiving is off at first.
    fn connect(&mut self, key: Key, address: &Address);
    /// Adds a socket. Receiving is off at first.
    fn attach(&mut self, key: Key, socket: LooseSocket);
    /// Closes a socket that was never attached.
    fn discard(&mut self, socket: LooseSocket);
    /// Starts or stops receiving.
    fn receive(&mut self, key: Key, on: bool);
    /// Asks the kernel whether the peer has ended its direction of the stream, or the whole stream.
    /// Bytes may still be unread. For connections on which receiving is off.
    fn hung_up(&mut self, key: Key) -> bool;
    /// Sends a block, which must not be empty. `Some` means that the kernel took all bytes at once
    /// and no `Sent` follows. Unless `prompt`, the `Sent` of a success may wait until the driver
    /// reports something else: it wakes nobody.
    fn send(&mut self, key: Key, block: Vec<u8>, prompt: bool) -> Option<Vec<u8>>;
    /// Ends the sending direction of the stream. No send may be under way.
    fn shutdown(&mut self, key: Key);
    /// Removes the socket from the driver. No send may be under way.
    fn detach(&mut self, key: Key);
    /// Closes the socket. If a block is under way, it comes back with an error first.
    fn close(&mut self, key: Key);
}

/// The meaning of a number that the kernel returns: the kind of an object, and the object.
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

    /// The tag of an object that is not a connection.
    fn of(kind: u8, index: usize) -> Tag {
        let key = Key {
            slot: index as u32,
            generation: 0,
        };
        Tag::new(kind, key)
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

/// The reason why a connect failed.
pub fn unreached(error: Errno) -> Unreached {
    Unreached {
        text: error_text(error),
        nobody: matches!(error, Errno::CONNREFUSED | Errno::NOENT),
        ours: matches!(
            error,
            Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::NOBUFS
                | Errno::ADDRNOTAVAIL
                | Errno::ACCESS
                | Errno::PERM
        ),
    }
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
