//! Bytes that wait to be sent, and the blocks of memory that hold them.

use std::collections::VecDeque;

/// The bytes that wait to be sent to one peer.
#[derive(Default)]
pub(crate) struct Output {
    /// No block is empty; the last one is being filled.
    pub(crate) blocks: VecDeque<Vec<u8>>,
    /// Bytes in `blocks` and in the block that is with the driver.
    pub(crate) queued: usize,
    /// How many of `blocks`, from the front, are sent as they are in spite of TLS: they are older
    /// than the TLS session, or are records already.
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

    /// Everything that waits is sent as it is, without TLS.
    pub(crate) fn mark_ready(&mut self) {
        self.ready = self.blocks.len();
    }

    /// Puts records in front of the bytes that are not encrypted yet.
    pub(crate) fn insert_ready(&mut self, records: Vec<u8>) {
        self.queued += records.len();
        self.blocks.insert(self.ready, records);
        self.ready += 1;
    }

    /// Takes the first block. True if it must be encrypted first.
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
    /// Capacity of all of `free`.
    held: usize,
}

impl FreeBuffers {
    /// A new block's capacity.
    const SMALL: usize = 4 * 1024;
    /// A block is not filled beyond this.
    const FULL: usize = 64 * 1024;
    /// More unused outputs than this are given back.
    const OUTPUTS: usize = 1024;
    /// More unused memory than this is given back.
    const HOLD: usize = 1024 * 1024;

    /// An output with nothing in it.
    pub(crate) fn output(&mut self) -> Box<Output> {
        self.outputs.pop().unwrap_or_default()
    }

    /// Takes an output back, whatever is in it.
    pub(crate) fn give_output(&mut self, mut output: Box<Output>) {
        while let Some(block) = output.blocks.pop_front() {
            self.give(block);
        }
        (output.queued, output.ready) = (0, 0);
        // After a burst, memory is given back.
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

    /// Takes a block back, whatever is in it.
    pub(crate) fn give(&mut self, mut block: Vec<u8>) {
        if self.held + block.capacity() <= FreeBuffers::HOLD {
            block.clear();
            self.held += block.capacity();
            self.free.push(block);
        }
    }

    /// The memory of free blocks, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.held
    }
}
