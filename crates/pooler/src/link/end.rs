//! The client's part of a link, kept in the client's slot. The [`Link`](super::Link) itself is in
//! the server's slot. So each side finds its part without another look-up.

/// The client's part of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// The client's next message waits for answers that are under way.
    stalled: bool,
    /// A message of the client has failed. Howdah drops all messages up to the next Sync, as
    /// PostgreSQL would. (This state outlives the link.)
    skips: bool,
}

impl End {
    /// True if the client's next message waits for answers that are under way.
    pub(crate) fn is_stalled(self) -> bool {
        self.stalled
    }

    /// The client's next message has to wait for answers.
    pub(crate) fn stalls(&mut self) {
        self.stalled = true;
    }

    /// The answers have come, or the client has none to wait for.
    pub(crate) fn goes_on(&mut self) {
        self.stalled = false;
    }

    /// True if all messages of the client are skipped up to a Sync.
    pub(crate) fn skips(self) -> bool {
        self.skips
    }

    /// A message of the client has failed, and no Sync came since.
    pub(crate) fn group_fails(&mut self) {
        self.skips = true;
    }

    /// The client has sent a Sync. Messages after the Sync run.
    pub(crate) fn group_ends(&mut self) {
        self.skips = false;
    }
}
