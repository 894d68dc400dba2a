//! Log records, as values.

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
    /// How much it matters.
    pub level: Level,
    /// The whole text, its `C-0x...: db/user@host:port` prefix included.
    pub text: String,
}
