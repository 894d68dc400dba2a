//! The client's end of a link. It is kept in the client's slot, as the [`Link`](super::Link) is kept in the
//! server's slot, so that each side finds its part without a further look-up.

/// The client's end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// The client's next message waits for answers that are under way.
    stalled: bool,
    /// One of its messages failed; all up to the next Sync are skipped. (This outlives the link.)
    skips: bool,
}

impl End {
    /// The client's next message waits for answers that are under way.
    pub(crate) fn is_stalled(self) -> bool {
        self.stalled
    }

    /// Its next message has to wait for answers.
    pub(crate) fn stalls(&mut self) {
        self.stalled = true;
    }

    /// Answers have come, or there are none to wait for.
    pub(crate) fn goes_on(&mut self) {
        self.stalled = false;
    }

    /// All that the client sends is skipped, up to a Sync.
    pub(crate) fn skips(self) -> bool {
        self.skips
    }

    /// One of its messages has failed, and no Sync came since.
    pub(crate) fn group_fails(&mut self) {
        self.skips = true;
    }

    /// A Sync: what comes behind it runs.
    pub(crate) fn group_ends(&mut self) {
        self.skips = false;
    }
}
