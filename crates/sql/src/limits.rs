//! The limits of what is read of a text.

/// How many bytes outside of strings are read of a text that may have effects.
pub const TEXT_OUTSIDE_STRINGS: usize = 1 << 20;

/// How many commands about statements (`EXECUTE p`) of one text are followed.
pub const STATEMENTS_NAMED: usize = 1000;

/// The longest text of several commands in which Howdah looks for a command that resets settings,
/// in bytes. Drivers clean sessions with short texts.
pub const SEVERAL: usize = 512;

/// How many settings of one text are known by name. A text with more may set any setting.
pub const MENTIONS: usize = 64;

/// The longest name in SQL, in bytes: PostgreSQL truncates longer ones.
pub const NAME: usize = 63;

/// How many channels of one text are remembered by name.
pub const CHANNELS_TOLD: usize = 1000;

/// How many calls of `set_config` with arguments in the Bind are remembered for one text.
pub const CALLS: usize = 16;

/// In how many tokens of a call Howdah looks for the third argument, which makes a slot temporary.
pub const SLOT_TOKENS: usize = 64;

/// The longest text that may be a read for a standby, in bytes.
pub const READ: usize = 16 << 10;
