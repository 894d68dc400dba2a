//! Why a statement is refused, in PostgreSQL's terms.

use std::fmt;

use crate::map::Shard;

/// Why a statement is refused, in a word that metrics and the console show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RefusalReason {
    /// The key of a sharded table is not compared with a value.
    Unproved,
    /// The statement is proved to touch several shards.
    Several,
    /// The command belongs to no shard by itself.
    Command,
    /// A function or operator may touch other rows.
    Function,
    /// A table is closed.
    Closed,
    /// No line of the map speaks of a table.
    Unlisted,
    /// A table is not on the shard of the statement.
    Missing,
    /// A name is in no catalogue.
    Unknown,
    /// A value without a shard, or a hint about a shard that does not exist.
    NoShard,
    /// A hint contradicts the statement.
    Hint,
    /// The grammar refuses the text.
    Syntax,
    /// The text is too long or too deep to be read.
    TooLong,
    /// The statement belongs to another shard than its transaction.
    Elsewhere,
}

impl RefusalReason {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            RefusalReason::Unproved => "unproved",
            RefusalReason::Several => "several",
            RefusalReason::Command => "command",
            RefusalReason::Function => "function",
            RefusalReason::Closed => "closed",
            RefusalReason::Unlisted => "unlisted",
            RefusalReason::Missing => "missing",
            RefusalReason::Unknown => "unknown",
            RefusalReason::NoShard => "no_shard",
            RefusalReason::Hint => "hint",
            RefusalReason::Syntax => "syntax",
            RefusalReason::TooLong => "too_long",
            RefusalReason::Elsewhere => "elsewhere",
        }
    }
}

/// What a client is told about a statement that no shard gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The SQLSTATE.
    pub code: &'static str,
    /// Why, in a word.
    pub reason: RefusalReason,
    /// What is wrong.
    pub message: String,
    /// The table or place that is not proved.
    pub detail: Option<String>,
    /// The remedy.
    pub hint: Option<String>,
    /// A hint about the shard does not help.
    pub firm: bool,
    /// No catalogue has a name of the statement: it may be newer than the catalogues.
    pub has_unknown_name: bool,
    /// Something else in the text is proved to be on this shard, and there only.
    pub proved: Option<Shard>,
}

/// The remedy for most statements.
pub(crate) const SAY_KEY: &str = "Compare the key of each sharded table with a constant or parameter, or say \
     the shard: SET howdah.key or howdah.shard, or a comment /*howdah.key='distribution:value'*/.";

/// The remedy for statements without a key.
pub(crate) const SAY_SHARD: &str = "Say the shard (SET howdah.shard, or a comment /*howdah.shard='name'*/), or use \
     the shard's own entry.";

impl Refusal {
    /// Not supported: the shard is not proved.
    pub(crate) fn unproved(message: impl Into<String>) -> Refusal {
        Refusal::new("0A000", message).because(RefusalReason::Unproved)
    }

    /// A value without a shard.
    pub(crate) fn no_shard(message: impl Into<String>) -> Refusal {
        Refusal::new("22023", message).because(RefusalReason::NoShard)
    }

    /// PostgreSQL's grammar refuses the text.
    pub(crate) fn syntax(message: impl Into<String>) -> Refusal {
        Refusal::new("42601", message).because(RefusalReason::Syntax)
    }

    /// The statement is too long or too deep to be read.
    pub(crate) fn too_complex(message: impl Into<String>) -> Refusal {
        Refusal::new("54001", message)
    }

    /// A refusal with an SQLSTATE.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
            reason: RefusalReason::TooLong,
            message: message.into(),
            detail: None,
            hint: None,
            firm: false,
            has_unknown_name: false,
            proved: None,
        }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Refusal {
        self.detail = Some(detail.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }

    /// The reason in a word.
    pub(crate) fn because(mut self, reason: RefusalReason) -> Refusal {
        self.reason = reason;
        self
    }

    /// A name of the statement is not known.
    pub(crate) fn unknown_name(mut self) -> Refusal {
        self.reason = RefusalReason::Unknown;
        self.has_unknown_name = true;
        self
    }

    /// Even a hint about the shard does not help.
    pub(crate) fn firm(mut self) -> Refusal {
        self.firm = true;
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.code, self.message)?;
        self.detail
            .iter()
            .try_for_each(|detail| write!(to, " ({detail})"))
    }
}
