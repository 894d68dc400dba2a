//! Sends.
//!
//! A send is *quiet* if nobody waits for its end. A quiet send does not wait in the kernel. It completes
//! during the submission, and posts a completion entry only if it fails or sends a part. If no entry has
//! appeared when the submitting call returns, the send has succeeded. An entry for each send would needlessly
//! end every wait at once.
//!
//! Sends by slot ("registered files") would save the kernel the look-up of the descriptor, a hundredth of a
//! transaction's cost. But when a process ends, such sockets stay open until the kernel has cleaned up its
//! rings. A successor would then find PostgreSQL full of sessions.

use std::os::fd::AsRawFd;

use io_uring::opcode;
use io_uring::squeue::Flags;
use io_uring::types::Fd;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::{NONE, Purpose, SEND, Uring};
use crate::driver::{Completion, Key, Tag};

/// `MSG_WAITALL`: for a send, the kernel goes on until all bytes are sent.
const WAIT_FOR_ALL: u32 = 0x100;

/// A send under way.
pub(super) struct Sending {
    pub(super) block: Vec<u8>,
    pub(super) sent: usize,
    /// No completion entry means success.
    pub(super) quiet: bool,
}

impl Uring {
    /// Queues the send of the rest of the block under way.
    pub(super) fn send_rest(&mut self, key: Key) {
        let Some(connection) = self.connections.get(key.slot as usize) else {
            return;
        };
        let Some(socket) = &connection.socket else {
            return;
        };
        let Some(sending) = self.sends.get(connection.sending as usize) else {
            return;
        };
        let rest = &sending.block[sending.sent..];
        let rest = &rest[..rest.len().min(self.options.piece())];
        let (mut how, mut flags) = (SendFlags::NOSIGNAL.bits() | WAIT_FOR_ALL, Flags::empty());
        if sending.quiet {
            how |= SendFlags::DONTWAIT.bits();
            flags = Flags::SKIP_SUCCESS;
        }
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), rest.as_ptr(), rest.len() as u32)
            .flags(how as i32)
            .build()
            .flags(flags);
        self.push(entry.user_data(Tag::new(SEND, key).pack()));
    }

    /// Reports the quiet sends that have succeeded. To be called when everything is submitted and
    /// all completion entries are collected.
    pub(super) fn hear_quiet_sends(&mut self) {
        for arrived in &self.arrived {
            if arrived.tag.kind == SEND
                && let Some(connection) = self.connections.get(arrived.tag.key.slot as usize)
                && let Some(sending) = self.sends.get_mut(connection.sending as usize)
            {
                sending.quiet = false;
            }
        }
        let mut quiet = std::mem::take(&mut self.quiet);
        for key in quiet.drain(..) {
            let Some(connection) = self.get(key) else {
                continue;
            };
            let index = connection.sending;
            match self.sends.get_mut(index as usize) {
                Some(sending) if sending.quiet => {
                    let block = std::mem::take(&mut sending.block);
                    self.sent_all(key, block, Ok(()));
                }
                _ => {}
            }
        }
        self.quiet = quiet;
    }

    /// Gives the block of a finished send back.
    pub(super) fn sent_all(&mut self, key: Key, block: Vec<u8>, result: Result<(), Errno>) {
        if let Some(connection) = self.get(key) {
            let index = std::mem::replace(&mut connection.sending, NONE);
            self.free_sends.push(index);
        }
        self.ready
            .push_back(Completion::Sent { key, block, result });
        self.settle(key);
    }

    pub(super) fn sent(&mut self, key: Key, result: Result<usize, Errno>) {
        let Some(connection) = self.get(key) else {
            return;
        };
        let (index, closing) = (connection.sending, connection.purpose == Purpose::Closing);
        let Some(sending) = self.sends.get_mut(index as usize) else {
            return;
        };
        sending.quiet = false;
        sending.sent += result.unwrap_or(0);
        let whole = sending.sent >= sending.block.len();
        let result = match result {
            _ if whole => Ok(()),
            Err(error @ Errno::CANCELED) => Err(error),
            Err(Errno::INTR | Errno::AGAIN) | Ok(1..) if !closing => {
                return self.send_rest(key);
            }
            Err(error) => Err(error),
            Ok(_) => Err(Errno::PIPE),
        };
        let block = std::mem::take(&mut sending.block);
        self.sent_all(key, block, result);
    }
}
