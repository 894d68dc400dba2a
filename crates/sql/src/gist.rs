//! What Howdah needs to know of a text, as one value.

use crate::first::{Among, First, Resets, first, may_matter, resets_among};
use crate::signal::SignalText;
use crate::{Effects, Routing, limits, read_effects};

/// How closely a text is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Depth(u8);

impl Depth {
    /// Not at all.
    pub const NOTHING: Depth = Depth(0);
    /// The first command.
    pub const FIRST: Depth = Depth(1);
    /// The first command of a text that acts at once: not if the command is only planned or ends a
    /// transaction.
    pub const ACTING: Depth = Depth(2);
    /// The effects on the session.
    pub const EFFECTS: Depth = Depth(4);
    /// The commands that reset settings. The first command must be read, too.
    pub const AMONG: Depth = Depth(8);
    /// Whether the text sends a signal.
    pub const SIGNAL: Depth = Depth(16);
    /// Where the text may run, as its beginning says.
    pub const ROUTING: Depth = Depth(32);
    /// Whether the text is a read. The reader needs the names of volatile functions for that
    /// ([`Gist::tell_read`]).
    pub const READ: Depth = Depth(64);

    /// Both.
    #[must_use]
    #[inline]
    pub const fn and(self, more: Depth) -> Depth {
        Depth(self.0 | more.0)
    }

    /// True if any of these is read.
    #[inline]
    pub const fn any(self, of: Depth) -> bool {
        self.0 & of.0 != 0
    }
}

/// What Howdah needs to know of a text. The text is read once, before a server is chosen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gist {
    /// How closely the text was read.
    pub depth: Depth,
    /// The first command, if there is anything to say about it.
    pub first: Option<First>,
    /// The possible effects on the session, if there are any.
    pub effects: Option<Effects>,
    /// The commands that reset settings, if they are certain.
    pub among: Vec<Among>,
    /// The signal that the text sends, if the text does nothing else.
    pub signal: Option<SignalText>,
    /// Where the text may run.
    pub routing: Routing,
}

impl Gist {
    /// Reads a text. The gist must be blank. The text has no zero byte at its end.
    ///
    /// The gist is filled in place: it is long, and for nearly all texts nothing is written.
    #[inline]
    pub fn read(&mut self, text: &[u8], depth: Depth) {
        debug_assert!(self.depth == Depth::NOTHING && self.is_plain());
        self.depth = depth;
        if depth.any(Depth::FIRST) || depth.any(Depth::ACTING) && may_matter(text) {
            self.first = Some(first(text));
        }
        if depth.any(Depth::EFFECTS)
            && let Some(effects) = read_effects(text)
            && !effects.is_nothing()
        {
            self.effects = Some(effects);
        }
        if depth.any(Depth::AMONG) && (self.first.is_some() || memchr::memchr(b';', text).is_some())
        {
            self.read_resets(text);
        }
        if depth.any(Depth::SIGNAL) && SignalText::may_be(text) {
            self.signal = SignalText::read(text);
        }
        if depth.any(Depth::ROUTING) {
            self.routing = Routing::read(text);
        }
    }

    /// Notes whether the text is a read.
    #[inline]
    pub fn tell_read(&mut self, is_read: bool) {
        self.routing.is_read = is_read;
    }

    /// True if there is nothing to say about the text.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.first.is_none()
            && self.effects.is_none()
            && self.among.is_empty()
            && self.signal.is_none()
            && self.routing == Routing::default()
    }

    #[cold]
    fn read_resets(&mut self, text: &[u8]) {
        match self.first.as_ref().map(|first| &first.resets) {
            None | Some(Resets::Nothing) if text.len() <= limits::SEVERAL => {
                self.among = resets_among(text).unwrap_or_default();
            }
            None | Some(Resets::Nothing) => {}
            Some(resets) => self.among.push(Among {
                resets: resets.clone(),
                end: text.len(),
                commands: 1,
            }),
        }
    }
}
