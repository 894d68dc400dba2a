//! Bytes that wait to be sent, and the blocks of memory that hold them.

use std::collections::VecDeque;

/// The bytes that wait to be sent to one peer.
#[derive(Default)]
pub(crate) struct Output {
    /// No block is empty; the last block is being filled.
    pub(crate) blocks: VecDeque<Vec<u8>>,
    /// The bytes in `blocks` and in the block that the driver is sending.
    pub(crate) queued: usize,
    /// How many of `blocks`, from the front, are sent unencrypted in spite of TLS: they are older
    /// than the TLS session, or already are TLS records.
    pub(crate) ready: usize,
}

impl Output {
    /// Appends a copy of the bytes.
    pub(crate) fn append(&mut self, bytes: &[u8], memory: &mut FreeBuffers) {
        self.queued += bytes.len();
        let plain = self.blocks.len() > self.ready;
        match self.blocks.back_mut() {
            Some(last) if plain && last.len() + bytes.len() <= FreeBuffers::FULL => {
                last.extend_from_slice(bytes);
            }
            _ => {
                let mut block = memory.take(bytes.len());
                block.extend_from_slice(bytes);
                self.blocks.push_back(block);
            }
        }
    }

    /// All waiting blocks are sent unencrypted.
    pub(crate) fn mark_ready(&mut self) {
        self.ready = self.blocks.len();
    }

    /// Puts records before the bytes that are not encrypted yet.
    pub(crate) fn insert_ready(&mut self, records: Vec<u8>) {
        self.queued += records.len();
        self.blocks.insert(self.ready, records);
        self.ready += 1;
    }

    /// Takes the first block. True if the block must be encrypted first.
    pub(crate) fn take_first(&mut self) -> Option<(Vec<u8>, bool)> {
        let block = self.blocks.pop_front()?;
        let plain = self.ready == 0;
        self.ready = self.ready.saturating_sub(1);
        Some((block, plain))
    }
}

/// Free blocks and outputs. The last one freed is used first, because it is most likely in the
/// cache.
#[derive(Default)]
pub(crate) struct FreeBuffers {
    free: Vec<Vec<u8>>,
    #[allow(clippy::vec_box)] // They move between here and a peer's slot.
    outputs: Vec<Box<Output>>,
    /// The total capacity of `free`.
    held: usize,
}

impl FreeBuffers {
    /// The capacity of a new block.
    const SMALL: usize = 4 * 1024;
    /// A block is not filled beyond this size.
    const FULL: usize = 64 * 1024;
    /// The most unused outputs that are kept.
    const OUTPUTS: usize = 1024;
    /// The most unused memory that is kept.
    const HOLD: usize = 1024 * 1024;

    /// An empty output.
    pub(crate) fn output(&mut self) -> Box<Output> {
        self.outputs.pop().unwrap_or_default()
    }

    /// Takes an output back, with any content.
    pub(crate) fn give_output(&mut self, mut output: Box<Output>) {
        while let Some(block) = output.blocks.pop_front() {
            self.give(block);
        }
        (output.queued, output.ready) = (0, 0);
        // After a burst, large outputs are freed.
        if self.outputs.len() < FreeBuffers::OUTPUTS && output.blocks.capacity() <= 64 {
            self.outputs.push(output);
        }
    }

    /// An empty block.
    pub(crate) fn take(&mut self, at_least: usize) -> Vec<u8> {
        match self.free.pop() {
            Some(block) => {
                self.held -= block.capacity();
                block
            }
            None => Vec::with_capacity(FreeBuffers::SMALL.max(at_least)),
        }
    }

    /// Takes a block back, with any content.
    pub(crate) fn give(&mut self, mut block: Vec<u8>) {
        if self.held + block.capacity() <= FreeBuffers::HOLD {
            block.clear();
            self.held += block.capacity();
            self.free.push(block);
        }
    }

    /// Frees everything if there are no connections: the worker sleeps.
    pub(crate) fn keep_for(&mut self, connections: usize) {
        if connections == 0 {
            *self = FreeBuffers::default();
        }
    }

    /// The memory of free blocks, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.held
    }
}
