//! Why a statement is refused, in PostgreSQL's terms.

use std::fmt;

use crate::map::Shard;

/// What a client is told about a statement that no shard gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The SQLSTATE.
    pub code: &'static str,
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
        Refusal::new("0A000", message)
    }

    /// A value without a shard.
    pub(crate) fn no_shard(message: impl Into<String>) -> Refusal {
        Refusal::new("22023", message)
    }

    /// PostgreSQL's grammar refuses the text.
    pub(crate) fn syntax(message: impl Into<String>) -> Refusal {
        Refusal::new("42601", message)
    }

    /// The statement is too long or too deep to be read.
    pub(crate) fn too_complex(message: impl Into<String>) -> Refusal {
        Refusal::new("54001", message)
    }

    /// A refusal with an SQLSTATE.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
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

    /// A name of the statement is not known.
    pub(crate) fn unknown_name(mut self) -> Refusal {
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
