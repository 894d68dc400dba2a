//! The group of messages that is being sent on a link.

use super::entry::Reply;

/// The messages of the extended protocol since the last Sync or Query, which ends a group.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// How many groups came before.
    number: u32,
    /// A message of the group was sent.
    open: bool,
    /// PostgreSQL got a message since the last group ended.
    sent: bool,
    /// A message of the group may have begun a transaction in PostgreSQL.
    works: bool,
    /// When the group began, it was certain that it is in no failed transaction.
    sure: bool,
    /// A Flush followed the last message.
    flushed: bool,
}

impl Group {
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// True if a message of the open group may have begun a transaction in PostgreSQL. (A Close
    /// begins none.)
    pub(super) fn is_at_work(&self) -> bool {
        self.open && self.works
    }

    /// True if it was certain at the beginning of the group that it is in no failed transaction.
    pub(super) fn is_sure(&self) -> bool {
        self.sure
    }

    pub(super) fn set_sure(&mut self, sure: bool) {
        self.sure = sure;
    }

    /// A message that gets this reply was sent. True if it has begun the group.
    #[inline(always)]
    pub(super) fn add(&mut self, reply: Reply) -> bool {
        self.flushed = false;
        match reply {
            Reply::Query | Reply::Sync => {
                self.end();
                return false;
            }
            Reply::CopyEnd | Reply::Settings => {
                self.sent = true;
                return false;
            }
            Reply::MadeClose | Reply::MadeParse => {}
            Reply::Close => self.sent = true,
            _ => {
                self.sent = true;
                self.works = true;
            }
        }
        !std::mem::replace(&mut self.open, true)
    }

    /// A Sync or Query ends the group.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.open = false;
        self.sent = false;
        self.works = false;
    }

    /// True if Howdah itself has answered all messages of the open group.
    pub(super) fn is_unsent(&self) -> bool {
        self.open && !self.sent
    }

    /// The group goes on: PostgreSQL skips or ignores the message that seemed to end it.
    pub(super) fn reopen(&mut self) {
        self.open = true;
        self.sent = true;
    }

    /// An Execute of the group, which goes on, copies rows from the client.
    pub(super) fn reopen_at_work(&mut self) {
        self.reopen();
        self.works = true;
    }

    pub(super) fn close(&mut self) {
        self.open = false;
    }

    /// True if PostgreSQL holds answers back, because no Sync or Flush followed the last messages:
    /// those of the open group, or `settings`. True only once: the caller sends a Flush.
    pub(super) fn needs_flush(&mut self, settings: bool) -> bool {
        let needs = (self.open || settings) && !self.flushed;
        self.flushed |= needs;
        needs
    }
}
