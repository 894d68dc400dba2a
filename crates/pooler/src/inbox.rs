//! The position in a stream of messages: bytes held back, and the unfinished part of the current
//! message.

use std::sync::Arc;

use howdah_wire::WireError;
use howdah_wire::frame::{HEADER, Header, header};

use crate::account::{Allowance, Charge, KeptFor};
use crate::effect::{Depth, Gist};

/// What happens to the rest of the current message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fate {
    /// Relay to the other side of the link.
    #[default]
    Relay,
    /// Drop.
    Drop,
}

/// What is known of the first held message.
#[derive(Debug, Default)]
struct FirstHeld {
    /// Room in the account, if the message must be held whole.
    room: Option<Room>,
    /// What was read of the message, if it is a Query. Only a memory: the message can be read
    /// again.
    gist: Gist,
}

/// Room in the account for a message that must be held whole.
#[derive(Debug)]
enum Room {
    /// The message waits for so many bytes, and nothing is read meanwhile.
    Waits(usize),
    /// The message has so many bytes.
    Has { _charge: Charge, size: usize },
}

/// The stream of one side of a link.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Bytes that could not be handled yet; they begin at a message's tag.
    held: Vec<u8>,
    /// The number of bytes of the current message still to come.
    left: u32,
    /// What happens to these bytes.
    fate: Fate,
    /// The current message's tag.
    tag: u8,
    /// How closely the first held message was read, if it is a Query of which there is nothing to
    /// say.
    plain: Depth,
    /// What else is known of the first held message.
    first: Option<Box<FirstHeld>>,
}

/// Held bytes.
impl Inbox {
    /// Bytes that could not be handled yet; they begin at a message's tag.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// The header of the first held message, if five bytes of it are there.
    pub fn first(&self) -> Option<Result<Header, WireError>> {
        header(&self.held)
    }

    /// Appends bytes to the held bytes.
    pub fn hold(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// As [`Inbox::hold`]. If the inbox has no memory, it gets some from `memory`.
    pub fn hold_in(&mut self, bytes: &[u8], memory: impl FnOnce() -> Vec<u8>) {
        if self.held.capacity() == 0 {
            self.held = memory();
        }
        self.hold(bytes);
    }

    /// Puts bytes in front of the held bytes.
    pub fn hold_first(&mut self, bytes: &[u8]) {
        self.forget_first();
        self.held.splice(..0, bytes.iter().copied());
    }

    /// Frees unused memory.
    pub fn shrink(&mut self) {
        self.held.shrink_to_fit();
    }

    /// Takes all held bytes.
    pub fn take_held(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// The held bytes of a stream that continues elsewhere.
    pub fn into_held(self) -> Vec<u8> {
        self.held
    }

    /// Takes the first `count` held bytes.
    pub fn take_front(&mut self, count: usize) -> Vec<u8> {
        self.held.drain(..count).collect()
    }

    /// Takes the first held message, tag and body, once it is complete. A message longer than
    /// `longest` bytes, header included, is an error.
    pub fn take_message(&mut self, longest: usize) -> Result<Option<(u8, Vec<u8>)>, WireError> {
        let Some((tag, body)) = message(&self.held, longest)? else {
            return Ok(None);
        };
        let body = body.to_vec();
        self.held.drain(..HEADER + body.len());
        Ok(Some((tag, body)))
    }

    /// The held bytes and the new bytes, to be handled. [`Inbox::keep`] takes the rest back.
    #[inline]
    pub fn feed<'a>(&mut self, bytes: &'a [u8]) -> Feed<'a> {
        if self.held.is_empty() {
            return Feed {
                held: Vec::new(),
                fresh: bytes,
            };
        }
        let mut held = self.take_held();
        held.extend_from_slice(bytes);
        Feed { held, fresh: b"" }
    }

    /// Holds all bytes of the feed except the first `done`.
    pub fn keep(&mut self, mut feed: Feed<'_>, done: usize) {
        if feed.held.is_empty() {
            return self.hold(&feed.fresh[done..]);
        }
        feed.held.drain(..done);
        self.held = feed.held;
    }

    /// Drops the first held message, including the part that is still to come.
    pub fn skip_first(&mut self) {
        let Some(Ok(header)) = self.first() else {
            return;
        };
        let there = header.total().min(self.held.len());
        self.forget_first();
        self.held.drain(..there);
        self.begin(header.tag, Fate::Drop, header.total() - there);
    }
}

/// What is known of the first held message.
impl Inbox {
    /// Keeps what was read of the first held message, until the message is handled.
    pub fn keep_gist(&mut self, gist: &mut Gist) {
        if gist.is_plain() {
            self.plain = gist.depth
        } else {
            self.first.get_or_insert_default().gist = std::mem::take(gist)
        }
    }

    /// Takes out what was read of the first held message.
    pub fn take_gist(&mut self, gist: &mut Gist) {
        match &mut self.first {
            Some(first) if first.gist.depth != Depth::NOTHING => {
                *gist = std::mem::take(&mut first.gist);
            }
            _ => gist.depth = std::mem::take(&mut self.plain),
        }
    }

    /// Another message is now the first one.
    fn forget_first(&mut self) {
        self.plain = Depth::NOTHING;
        self.first = None;
    }

    /// True if the first message waits for room in the account, or has so much of it, in bytes.
    pub fn asked_for_room(&self, size: usize) -> bool {
        self.room().is_some_and(|room| match room {
            Room::Waits(_) => true,
            Room::Has { size: has, .. } => *has >= size,
        })
    }

    /// The room that the first message waits for, in bytes.
    pub fn waits_for_room(&self) -> Option<usize> {
        match self.room()? {
            Room::Waits(size) => Some(*size),
            Room::Has { .. } => None,
        }
    }

    fn room(&self) -> Option<&Room> {
        self.first.as_ref()?.room.as_ref()
    }

    /// The first message begins to wait for room: it is long, and must be held whole.
    pub fn awaits_room(&mut self, size: usize) {
        self.first.get_or_insert_default().room = Some(Room::Waits(size));
    }

    /// The first message gets room, and memory of just this size.
    pub fn gets_room(&mut self, share: &Arc<Allowance>, size: usize) {
        let _charge = share.charge(KeptFor::Messages, size);
        self.first.get_or_insert_default().room = Some(Room::Has { _charge, size });
        let more = size.saturating_sub(self.held.len());
        self.held.reserve_exact(more);
    }

    /// The first message is handled: its room is free again.
    #[inline]
    pub fn gives_room_back(&mut self) {
        if self.first.is_some() {
            self.first = None;
        }
    }
}

/// The current message.
impl Inbox {
    /// Begins a message with this tag, of which `left` bytes are still to come.
    #[inline(always)]
    pub fn begin(&mut self, tag: u8, fate: Fate, left: usize) {
        self.tag = tag;
        self.fate = fate;
        self.left = left as u32;
    }

    /// `there` bytes have come: how many of them belong to the message, and their fate.
    #[inline(always)]
    pub fn advance(&mut self, there: usize) -> (usize, Fate) {
        let count = there.min(self.left as usize);
        self.left -= count as u32;
        (count, self.fate)
    }

    /// The number of bytes still to come.
    pub fn left(&self) -> usize {
        self.left as usize
    }

    /// The current message's tag.
    pub fn tag(&self) -> u8 {
        self.tag
    }

    /// True between messages. (Held bytes do not count: nobody else has seen them.)
    pub fn at_boundary(&self) -> bool {
        self.left == 0
    }

    /// True if a part of the current message was relayed and the rest is still to come.
    pub fn relaying(&self) -> bool {
        self.left > 0 && self.fate == Fate::Relay
    }
}

/// The bytes of a stream to handle now: those of the current event, behind any held bytes.
#[derive(Debug)]
pub struct Feed<'a> {
    held: Vec<u8>,
    fresh: &'a [u8],
}

impl Feed<'_> {
    /// All bytes, none of them handled yet.
    #[inline]
    pub fn chunk(&self) -> Chunk<'_> {
        if self.held.is_empty() {
            Chunk::fresh(self.fresh)
        } else {
            Chunk {
                bytes: &self.held,
                at: 0,
                fresh: false,
            }
        }
    }

    /// The memory of the held bytes.
    pub fn into_memory(self) -> Vec<u8> {
        self.held
    }
}

/// Bytes that are being handled: those of the current event, or held ones.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// All bytes.
    pub bytes: &'a [u8],
    /// How many are handled.
    pub at: usize,
    /// These are bytes of the current event, so ranges of them can be relayed.
    pub fresh: bool,
}

impl<'a> Chunk<'a> {
    /// The bytes of the current event.
    #[inline]
    pub fn fresh(bytes: &'a [u8]) -> Self {
        Chunk {
            bytes,
            at: 0,
            fresh: true,
        }
    }

    /// The bytes that are not handled yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next message, tag and body, once it is complete. A message longer than `longest` bytes,
    /// header included, is an error.
    pub fn next_message(&mut self, longest: usize) -> Result<Option<(u8, &'a [u8])>, WireError> {
        let next = message(self.rest(), longest)?;
        self.at += next.map_or(0, |(_, body)| HEADER + body.len());
        Ok(next)
    }

    /// Passes `count` bytes on.
    #[inline(always)]
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

/// The first message, tag and body, if it is complete.
fn message(bytes: &[u8], longest: usize) -> Result<Option<(u8, &[u8])>, WireError> {
    let Some(header) = header(bytes).transpose()? else {
        return Ok(None);
    };
    let tag = header.tag;
    if header.total() > longest {
        let length = header.body + 4;
        return Err(WireError::Length { tag, length });
    }
    Ok(bytes.get(HEADER..header.total()).map(|body| (tag, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"Q\0\0\0\x05\0";

    #[test]
    fn what_is_left_of_a_feed_is_held() {
        let mut inbox = Inbox::default();
        let feed = inbox.feed(b"Q\0");
        assert!(feed.chunk().fresh);
        inbox.keep(feed, 0);
        assert_eq!(inbox.take_message(64), Ok(None), "not whole");
        let rest = [&QUERY[2..], QUERY, b"X"].concat();
        let feed = inbox.feed(&rest);
        let mut chunk = feed.chunk();
        assert!(!chunk.fresh, "ranges of what was held can't be relayed");
        assert_eq!(chunk.next_message(64), Ok(Some((b'Q', &b"\0"[..]))));
        let done = chunk.at;
        inbox.keep(feed, done);
        assert_eq!(inbox.held(), [QUERY, b"X"].concat());
        assert_eq!(inbox.take_message(64), Ok(Some((b'Q', b"\0".to_vec()))));
        assert_eq!(inbox.held(), b"X");
    }

    #[test]
    fn a_message_may_be_too_long() {
        let mut inbox = Inbox::default();
        inbox.hold(QUERY);
        let error = WireError::Length {
            tag: b'Q',
            length: 5,
        };
        assert_eq!(inbox.take_message(QUERY.len() - 1), Err(error));
        assert!(inbox.take_message(QUERY.len()).is_ok_and(|m| m.is_some()));
    }

    #[test]
    fn what_was_read_is_kept_with_the_first_message() {
        let read = |text: &[u8]| {
            let mut gist = Gist::default();
            gist.read(text, Depth::EFFECTS);
            gist
        };
        let kept = |text: &[u8], then: fn(&mut Inbox)| {
            let mut inbox = Inbox::default();
            inbox.hold(QUERY);
            inbox.keep_gist(&mut read(text));
            then(&mut inbox);
            let mut gist = Gist::default();
            inbox.take_gist(&mut gist);
            gist
        };
        for text in [&b"select 1"[..], b"set a = 1"] {
            assert_eq!(kept(text, |_| {}), read(text));
            assert_eq!(kept(text, |inbox| inbox.awaits_room(9)), read(text));
            assert_eq!(kept(text, |inbox| inbox.hold(QUERY)), read(text));
            let changes: [fn(&mut Inbox); 3] = [
                Inbox::skip_first,
                |inbox| inbox.hold_first(QUERY),
                |inbox| inbox.take_gist(&mut Gist::default()),
            ];
            for change in changes {
                assert_eq!(kept(text, change), Gist::default());
            }
        }
    }

    #[test]
    fn a_message_passes_in_pieces() {
        let mut inbox = Inbox::default();
        inbox.begin(b'd', Fate::Relay, 7);
        assert_eq!(inbox.advance(5), (5, Fate::Relay));
        assert!(inbox.relaying());
        assert_eq!(inbox.advance(5), (2, Fate::Relay));
        assert!(inbox.at_boundary());
    }
}
