//! What Howdah knows of a client's next message before a server handles the message.

use crate::effect::{Depth, Gist};

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
    /// The Query is handled.
    #[inline]
    pub fn clear(&mut self) {
        self.filled = false;
        self.gist.depth = Depth::NOTHING;
        if !self.gist.is_plain() {
            self.gist = Gist::default();
        }
    }
}
