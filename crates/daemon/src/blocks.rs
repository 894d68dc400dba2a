//! Memory for what is to be sent.

/// Blocks of bytes that nobody uses, last in, first out: the hottest are used again first.
#[derive(Default)]
pub(crate) struct Blocks {
    free: Vec<Vec<u8>>,
    /// Capacity of all of `free`.
    held: usize,
}

impl Blocks {
    /// A new block's capacity.
    const SMALL: usize = 4 * 1024;
    /// A block is not filled beyond this.
    pub(crate) const FULL: usize = 64 * 1024;
    /// More unused memory than this is given back.
    const HOLD: usize = 1024 * 1024;

    /// An empty block.
    pub(crate) fn take(&mut self, at_least: usize) -> Vec<u8> {
        match self.free.pop() {
            Some(block) => {
                self.held -= block.capacity();
                block
            }
            None => Vec::with_capacity(Blocks::SMALL.max(at_least)),
        }
    }

    /// Takes a block back, whatever is in it.
    pub(crate) fn give(&mut self, mut block: Vec<u8>) {
        if self.held + block.capacity() <= Blocks::HOLD {
            block.clear();
            self.held += block.capacity();
            self.free.push(block);
        }
    }

    /// Bytes of memory of the blocks nobody uses.
    pub(crate) fn held(&self) -> usize {
        self.held
    }
}
