//! Log records, as values.

use crate::limits;
use std::borrow::Cow;
use std::fmt;

/// PgBouncer's log levels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// The process cannot go on.
    Fatal,
    /// Something failed.
    Error,
    /// Something is odd.
    Warning,
    /// What operators want to see.
    Log,
    /// Shown with `verbose = 1` or more.
    Debug,
    /// Shown with `verbose = 2` or more.
    Noise,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Fatal => "FATAL",
            Level::Error => "ERROR",
            Level::Warning => "WARNING",
            Level::Log => "LOG",
            Level::Debug => "DEBUG",
            Level::Noise => "NOISE",
        })
    }
}

/// One log record. The daemon adds time and process id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The level.
    pub level: Level,
    /// The whole text, including its `C-0x...: db/user@host:port` prefix.
    pub text: String,
    /// Who can cause it.
    pub cause: Cause,
}

/// Who can cause a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A client that has proved its identity, a server, or Howdah itself.
    Known,
    /// Anybody, any number of times: the client has not proved its identity.
    Unauthenticated,
    /// Anybody, but the record reports a refused login. Such records show that passwords are being
    /// guessed, so other records must not crowd them out.
    Refused,
}

impl Note {
    /// A record that strangers can't cause.
    pub fn new(level: Level, text: impl Into<String>) -> Note {
        Note {
            level,
            text: text.into(),
            cause: Cause::Known,
        }
    }

    /// The text as one line of a log. Names come from anybody who connects, so control characters
    /// are written as `\n` or `\x1b`: no name can end the line or move a terminal's cursor. A line
    /// ends after 2 KB, so that no name can fill a disk.
    pub fn line(&self) -> Cow<'_, str> {
        let text = self.text.trim_end();
        if text.len() <= limits::LOG_LINE && !text.contains(char::is_control) {
            return Cow::Borrowed(text);
        }
        let mut line = String::with_capacity(text.len().min(limits::LOG_LINE) + 16);
        for c in text.chars() {
            if line.len() >= limits::LOG_LINE {
                line.push_str("...");
                break;
            }
            match c {
                '\n' => line.push_str("\\n"),
                '\r' => line.push_str("\\r"),
                '\t' => line.push_str("\\t"),
                c if c.is_control() => line.push_str(&format!("\\x{:02x}", u32::from(c))),
                c => line.push(c),
            }
        }
        Cow::Owned(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_of_printable_characters() {
        for (text, line) in [
            ("C-0x1: d/u@unix:1 hello \n", "C-0x1: d/u@unix:1 hello"),
            ("Grüße \\o/", "Grüße \\o/"),
            ("a\nFATAL b\r\tc", "a\\nFATAL b\\r\\tc"),
            (
                "\u{1b}[2J\u{7}\u{7f}\u{9b}1m\0",
                "\\x1b[2J\\x07\\x7f\\x9b1m\\x00",
            ),
        ] {
            assert_eq!(Note::new(Level::Log, text).line(), line);
        }
    }

    #[test]
    fn a_line_has_an_end() {
        for text in ["x".repeat(9000), "\x01".repeat(9000), "ö".repeat(9000)] {
            let note = Note::new(Level::Log, text);
            let line = note.line();
            assert!(
                (limits::LOG_LINE..limits::LOG_LINE + 16).contains(&line.len())
                    && line.ends_with("...")
            );
        }
    }
}
