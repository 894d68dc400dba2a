//! Where a stream of messages stands: what is held, and what of the current message passes on.

/// What becomes of the rest of a message that is passing through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fate {
    /// To the other side of the link.
    #[default]
    Relay,
    /// Nowhere.
    Drop,
}

/// One side's stream.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Bytes that could not be handled yet; they begin at a message's tag.
    pub held: Vec<u8>,
    /// Bytes of the current message still to come, all of them to pass or be dropped.
    pub left: u32,
    /// Which of the two.
    pub fate: Fate,
    /// The current message's tag.
    pub tag: u8,
}

impl Inbox {
    /// Drops the message that the held bytes begin with, the part still to come included.
    pub fn skip_first(&mut self) {
        let Some(Ok(header)) = howdah_wire::frame::header(&self.held) else {
            return;
        };
        let there = header.total().min(self.held.len());
        self.held.drain(..there);
        self.left = (header.total() - there) as u32;
        self.fate = Fate::Drop;
    }

    /// True between messages (a held front of a message does not count: nobody else has seen it).
    pub fn at_boundary(&self) -> bool {
        self.left == 0
    }

    /// True if a part of the current message was passed on and the rest is still to come.
    pub fn relaying(&self) -> bool {
        self.left > 0 && self.fate == Fate::Relay
    }
}

/// Bytes being worked through: those of the event at hand, or some that were held.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// All of them.
    pub bytes: &'a [u8],
    /// How many are done with.
    pub at: usize,
    /// They are the event's own, so that ranges of them can be relayed.
    pub fresh: bool,
}

impl<'a> Chunk<'a> {
    /// Not yet done with.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Passes the next `count` bytes on.
    #[inline]
    pub fn pass(&mut self, count: usize, to: crate::event::Peer, out: &mut crate::event::Out) {
        let range = self.at..self.at + count;
        if self.fresh {
            out.relay(to, range);
        } else {
            out.send(to, &self.bytes[range]);
        }
        self.at += count;
    }
}
