//! What Howdah reads in SQL texts. Above all: how running a text may change its session.
//!
//! A text belongs to one of three classes:
//!
//! - **Plain**: nothing stays. Nearly all texts. [`words`] finds out without tokens, because no word
//!   that could act stands anywhere in the text.
//! - **Readable**: one of the forms that Howdah follows for its client (SET, CREATE TEMP, PREPARE,
//!   LISTEN, ...), at the top level of a text whose tokens are certain. [`reader`] finds out what.
//! - **Doubtful** ([`Kinds::DOUBT`]): a text that cannot be read with certainty, such as a DO whose
//!   body has the word SET. Its server is cleaned before any other client gets it. What the client
//!   left behind by such a text is gone for the client, too.
//!
//! Howdah may expect too many effects, but never too few. An effect too many costs a question to
//! PostgreSQL, or a cleaning. No text shows the hidden effects of functions and triggers (one that
//! calls `set_config`).
//!
//! Only if texts are routed to standbys, three more questions are asked: is the text a read
//! ([`reads`]), how does it begin a transaction ([`Begin`]), and does it say where it runs
//! ([`RouteHint`])?

#![forbid(unsafe_code)]

mod begin;
mod bound;
mod called;
mod channels;
pub mod constants;
mod effects;
pub mod first;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod gist;
pub mod harmless;
mod hint;
pub mod kinds;
pub mod limits;
pub mod name;
mod prepared;
mod reader;
pub mod reads;
mod routing;
mod sharded;
pub mod signal;
pub mod token;
mod words;

#[cfg(test)]
mod tests;

use words::FirstLook;

pub use begin::Begin;
pub use called::{CalledName, VolatileNames};
pub use channels::ListenCommands;
pub use effects::{Effects, Mention, Names};
pub use first::{First, first};
pub use gist::{Depth, Gist};
pub use hint::RouteHint;
pub use kinds::Kinds;
pub use prepared::StatementCommand;
pub use reads::is_read;
pub use routing::Routing;
pub use sharded::{ShardSetting, ShardedText, ends_first, names_isolation, repeats, resets_all};
pub use words::LongText;

/// The possible effects of running a text, which may have several commands.
pub fn effects(text: &[u8]) -> Effects {
    read_effects(text).unwrap_or_default()
}

/// Like [`effects`], but `None` for a text that a first look shows to have no effect, as most
/// texts.
pub(crate) fn read_effects(text: &[u8]) -> Option<Effects> {
    let text = words::trim(text.strip_suffix(b"\0").unwrap_or(text));
    match words::look(text) {
        FirstLook::Only(Kinds::NOTHING) => None,
        FirstLook::Only(kinds) => Some(Effects {
            kinds,
            ..Effects::default()
        }),
        FirstLook::Unclear => Some(read_by_token(text)),
    }
}

#[inline(never)] // Rare: the first look is enough for most texts.
fn read_by_token(text: &[u8]) -> Effects {
    // PostgreSQL reads a text up to the first zero byte.
    let end = memchr::memchr(0, text);
    let text = &text[..end.unwrap_or(text.len())];
    let mut found = reader::read(text);
    if found.kinds.any(Kinds::DOUBT) {
        found.doubt();
        if words::has_lasting(text) {
            found.kinds.add(Kinds::STAYS);
        }
    }
    found.channels = channels::channels(text, found.kinds);
    found
}
