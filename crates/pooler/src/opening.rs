//! What Howdah knows of a client's next message before a server handles the message.

use howdah_wire::tag::frontend as tag;

use crate::effect::{Depth, Gist};
use crate::inbox::Chunk;

/// What was read of a client's next message, if that is a Query.
///
/// The value stays where it is: whoever reads the Query fills it in place, and all others look at
/// it.
#[derive(Debug, Default)]
pub struct QueryRead {
    /// The Query is read.
    pub filled: bool,
    /// What the text says; blank if the text is too long to be held.
    pub gist: Gist,
}

impl QueryRead {
    /// The message begins a group that only reads.
    pub fn begins_read_group(&mut self) {
        self.filled = true;
        self.gist.tell_read(true);
    }

    /// The message that needs a server, as far as it was read.
    pub fn opening<'a>(&'a self, chunk: &Chunk<'a>) -> Opening<'a> {
        match chunk.rest().first() {
            Some(&tag::QUERY) if self.gist.depth != Depth::NOTHING => {
                Opening::Query(&self.gist, chunk.rest())
            }
            Some(&(tag::PARSE | tag::BIND | tag::DESCRIBE | tag::CLOSE | tag::EXECUTE)) => {
                Opening::Group {
                    bytes: chunk.rest(),
                    is_read: self.gist.routing.is_read,
                }
            }
            _ => Opening::Unread,
        }
    }

    /// The message is handled, or dropped.
    #[inline]
    pub fn forget(&mut self) {
        if !self.filled && self.gist.depth == Depth::NOTHING {
            return;
        }
        self.filled = false;
        self.gist.depth = Depth::NOTHING;
        if !self.gist.is_plain() {
            self.gist = Gist::default();
        }
    }
}

/// The first message that a client's server will get.
#[derive(Clone, Copy, Debug)]
pub enum Opening<'a> {
    /// Nothing is known of the message.
    Unread,
    /// A Query: what its text says; and the bytes that have come, from its first one on.
    Query(&'a Gist, &'a [u8]),
    /// A message of the extended protocol.
    Group {
        /// The bytes that have come, from its first one on.
        bytes: &'a [u8],
        /// They are a whole group, which only reads.
        is_read: bool,
    },
}
