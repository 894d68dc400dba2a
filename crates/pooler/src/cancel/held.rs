//! Searches that are held until their client has moved away, or has ended instead.

use crate::cancel::answer_done;
use crate::cancel::seek::Seek;
use crate::event::{ClientId, Out};
use crate::pooler::Pooler;

impl Pooler {
    /// A client that was about to move has ended, or goes to the successor process: searches for it
    /// have nothing to cancel.
    pub(crate) fn settle_held(&mut self, id: ClientId, out: &mut Out) {
        for seek in self.held_for(id) {
            answer_done(seek.from, out);
        }
    }

    pub(crate) fn held_for(&mut self, id: ClientId) -> Vec<Seek> {
        let all = &mut self.moves.held;
        let held = all.extract_if(.., |(client, _)| *client == id);
        held.map(|(_, seek)| seek).collect()
    }
}
