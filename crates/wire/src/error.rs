//! Errors in received bytes.

use std::fmt;

/// Bytes that are not the message they claim to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// The length field is less than 4 or more than the limit.
    Length {
        /// The message's tag; 0 for a start-up packet.
        tag: u8,
        /// The value of the length field.
        length: u32,
    },
    /// A message that does not exist in this direction.
    Tag(u8),
    /// The body is shorter or longer than its fields.
    Body {
        /// The message's tag; 0 for a start-up packet.
        tag: u8,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Length { tag: 0, length } => {
                write!(f, "invalid length of startup packet ({length})")
            }
            WireError::Length { tag, length } => {
                write!(
                    f,
                    "invalid message length {length} of message {}",
                    Shown(*tag)
                )
            }
            WireError::Tag(tag) => write!(f, "invalid message type {}", Shown(*tag)),
            WireError::Body { tag: 0 } => f.write_str("invalid startup packet layout"),
            WireError::Body { tag } => write!(f, "invalid body of message {}", Shown(*tag)),
        }
    }
}

impl std::error::Error for WireError {}

/// A tag for people: the letter, or the number if the tag is no letter.
struct Shown(u8);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_ascii_graphic() {
            write!(f, "'{}'", self.0 as char)
        } else {
            write!(f, "0x{:02x}", self.0)
        }
    }
}
