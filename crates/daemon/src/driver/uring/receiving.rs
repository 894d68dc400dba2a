//! Receives.
//!
//! A multishot receive ends by itself when buffers or completion entries run out. It also ends some time
//! after a cancel. In both cases the last completion may bring bytes. So a connection's receive has four
//! states: off, armed, stopping and starved. Only the last completion makes it off, and only then it is armed
//! again. Starved receives wait in a queue until buffers are back in the ring: arming them at once would
//! spin.

use std::os::fd::AsRawFd;

use io_uring::opcode;
use io_uring::types::Fd;
use rustix::io::Errno;

use super::buffers::GROUP;
use super::{Purpose, RECEIVE, Receive, Uring};
use crate::driver::{Completion, Key, ReceivedChunk, Tag};

impl Uring {
    /// Starts the receive of a connection whose receive is off.
    pub(super) fn arm(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        let Some(socket) = &connection.socket else {
            return;
        };
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), GROUP).build();
        connection.receive = Receive::Armed;
        self.push(entry.user_data(Tag::new(RECEIVE, key).pack()));
    }

    /// Puts a connection whose receive is off into the queue.
    pub(super) fn starve(&mut self, key: Key) {
        if let Some(connection) = self.get(key) {
            connection.receive = Receive::Starved;
            self.starved.push_back(key);
        }
    }

    /// Arms connections from the queue, as many as there are buffers.
    pub(super) fn feed_starved(&mut self) {
        let mut available = self.buffers.available();
        while available > 0
            && let Some(key) = self.starved.pop_front()
        {
            if let Some(connection) = self.get(key)
                && connection.receive == Receive::Starved
            {
                self.arm(key);
                available -= 1;
            }
        }
    }

    pub(super) fn stop_receive(&mut self, key: Key) {
        let Some(connection) = self.get(key) else {
            return;
        };
        match connection.receive {
            Receive::Armed => {
                connection.receive = Receive::Stopping;
                self.cancel(Tag::new(RECEIVE, key));
            }
            Receive::Starved => connection.receive = Receive::Off,
            Receive::Off | Receive::Stopping => {}
        }
    }

    pub(super) fn received(
        &mut self,
        key: Key,
        result: Result<usize, Errno>,
        buffer: Option<u16>,
        more: bool,
    ) -> Option<Completion> {
        if let Some(buffer) = buffer {
            self.buffers.taken(buffer);
        }
        let Some(connection) = self.get(key) else {
            debug_assert!(false, "a key is let go before its operations have ended");
            return None;
        };
        if !more {
            connection.receive = Receive::Off;
        }
        let wanted = connection.wanted;
        match (result, buffer) {
            (Ok(len @ 1..), Some(buffer)) => {
                let completion = if connection.purpose == Purpose::Closing {
                    self.buffers.release(buffer);
                    None
                } else {
                    let chunk = ReceivedChunk::new(buffer, len as u32);
                    self.polling.heard(key);
                    Some(Completion::Received { key, chunk })
                };
                if !more {
                    // The receive ended by itself: perhaps no buffer was free.
                    if wanted {
                        self.starve(key);
                    }
                    self.settle(key);
                }
                return completion;
            }
            (_, Some(buffer)) => self.buffers.release(buffer),
            _ => {}
        }
        match result {
            Err(Errno::NOBUFS) => {
                self.buffers.starved();
                if wanted {
                    self.starve(key);
                }
            }
            // The receive was cancelled, and is wanted again.
            Err(Errno::CANCELED) if wanted => self.arm(key),
            Err(Errno::CANCELED) => {}
            Err(Errno::INTR | Errno::AGAIN) if wanted => self.starve(key),
            Err(Errno::INTR | Errno::AGAIN) => {}
            other => self.ended(key, other.err()),
        }
        self.settle(key);
        None
    }

    pub(super) fn ended(&mut self, key: Key, error: Option<Errno>) {
        let Some(connection) = self.get(key) else {
            return;
        };
        connection.wanted = false;
        connection.ended = true;
        if connection.purpose == Purpose::Detaching {
            connection.purpose = Purpose::InUse;
        }
        if connection.purpose != Purpose::Closing {
            self.ready.push_back(Completion::Ended { key, error });
        }
    }
}
