//! Why a statement for a sharded database is refused.

use howdah_shard::{Refusal, RefusalReason};
use howdah_wire::tag::backend;
use howdah_wire::write;

use crate::config::{Shard, ShardMap};

/// An error for a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardError {
    /// The SQLSTATE.
    pub sqlstate: &'static str,
    /// Why, in a word.
    pub reason: RefusalReason,
    /// What is wrong.
    pub message: String,
    /// The place in the statement that is not proved.
    pub detail: Option<String>,
    /// What helps.
    pub hint: Option<String>,
}

const NOT_SUPPORTED: &str = "0A000";

/// What helps where nothing else says the shard.
const SAY_IT: &str = "Say the shard: SET howdah.shard = 'NAME' or SET howdah.key = 'DISTRIBUTION:VALUE', \
                      outside of a transaction; SET LOCAL of these inside; or a comment, \
                      /*howdah.key='DISTRIBUTION:VALUE'*/.";

impl From<Refusal> for ShardError {
    fn from(refusal: Refusal) -> ShardError {
        ShardError {
            sqlstate: refusal.code,
            reason: refusal.reason,
            message: refusal.message,
            detail: refusal.detail,
            hint: refusal.hint,
        }
    }
}

impl ShardError {
    fn because(mut self, reason: RefusalReason) -> ShardError {
        self.reason = reason;
        self
    }

    fn new(sqlstate: &'static str, message: impl Into<String>, hint: &str) -> ShardError {
        ShardError {
            sqlstate,
            reason: RefusalReason::Command,
            message: message.into(),
            detail: None,
            hint: Some(hint.into()).filter(|hint: &String| !hint.is_empty()),
        }
    }

    /// Nothing says the shard.
    pub fn no_hint() -> ShardError {
        let message = "nothing says which shard the statement belongs to";
        ShardError::new(NOT_SUPPORTED, message, SAY_IT).because(RefusalReason::Unproved)
    }

    /// With one shard: a transaction that could touch two, if there were several.
    pub fn several_parts() -> ShardError {
        let message = "the transaction touches rows that may be on several shards";
        let hint = "A transaction has one shard. Touch the rows of each key in a transaction of their own.";
        ShardError::new(NOT_SUPPORTED, message, hint).because(RefusalReason::Elsewhere)
    }

    /// The statement belongs to another shard than the transaction.
    pub fn elsewhere(map: &ShardMap, is: Shard, belongs: Shard) -> ShardError {
        let message = format!(
            "the statement belongs to shard \"{}\", and the transaction is at shard \"{}\"",
            map.name_of(belongs),
            map.name_of(is)
        );
        let hint = "A transaction has one shard. End it first, and what keeps its server: temporary \
                    tables, session locks and the like.";
        ShardError::new(NOT_SUPPORTED, message, hint).because(RefusalReason::Elsewhere)
    }

    /// SQL's PREPARE or EXECUTE.
    pub fn sql_prepare() -> ShardError {
        let message = "PREPARE and EXECUTE are not possible in a sharded database";
        let hint = "Prepare with the driver: statements of the protocol may have any shard.";
        ShardError::new(NOT_SUPPORTED, message, hint)
    }

    /// A FunctionCall.
    pub fn function_call() -> ShardError {
        let message = "function calls of the protocol are not possible in a sharded database";
        ShardError::new(NOT_SUPPORTED, message, "Write SELECT f(...).")
    }

    /// SET of a hint, inside of a transaction or on a kept server.
    pub fn set_inside() -> ShardError {
        let message =
            "howdah.shard and howdah.key can't be set for the session inside a transaction";
        let hint = "Write SET LOCAL, or SET before BEGIN. A client that keeps its server has its \
                    shard until it gives the server back.";
        ShardError::new("25001", message, hint)
    }

    /// SET of a hint by a client that keeps its server at another shard.
    pub fn kept(map: &ShardMap, at: Option<Shard>, other: Shard) -> ShardError {
        let at = at.map_or("", |at| map.name_of(at));
        let message = format!(
            "the client keeps its server at shard \"{at}\", and says shard \"{}\"",
            map.name_of(other)
        );
        let hint = "Give the server back first: drop temporary tables, release session locks, DISCARD ALL.";
        ShardError::new("25001", message, hint)
    }

    /// SET of a hint among other statements of a group.
    pub fn set_in_group() -> ShardError {
        let message = "SET of howdah.shard or howdah.key must be alone before its Sync";
        ShardError::new(NOT_SUPPORTED, message, "Send a Sync behind it.")
    }

    /// The statement is too long to be read.
    pub fn too_long() -> ShardError {
        let message = "the statement is too long to find its shard";
        ShardError::new("54000", message, SAY_IT).because(RefusalReason::TooLong)
    }

    /// The transaction has changed where names are looked up.
    pub fn private() -> ShardError {
        let message = "nothing says which shard the statement belongs to";
        let mut error = ShardError::new(NOT_SUPPORTED, message, SAY_IT);
        error.reason = RefusalReason::Unproved;
        error.detail = Some(
            "The transaction has changed what names mean: by DDL, SET search_path or a temporary table."
                .into(),
        );
        error
    }

    /// The client has become another user.
    pub fn another_user() -> ShardError {
        let mut error = ShardError::no_hint();
        error.detail = Some(
            "After SET SESSION AUTHORIZATION, the search path of the session is not known.".into(),
        );
        error
    }

    /// A hint that is not in ASCII, and may be in any encoding.
    pub fn unread_hint() -> ShardError {
        let message = "howdah.key has characters that are not read";
        let mut error = ShardError::new("22023", message, "Set client_encoding to UTF8.");
        error.detail =
            Some("The client's encoding is not UTF8, and a character is not in ASCII.".into());
        error
    }

    /// This error, for a name that may be in a catalogue that could not be read.
    #[must_use]
    pub fn with_trouble(mut self, shard: &str, why: &str) -> ShardError {
        let trouble = format!("The catalogue of shard \"{shard}\" can't be read: {why}");
        self.detail = Some(match self.detail {
            Some(detail) => format!("{detail} {trouble}"),
            None => trouble,
        });
        self
    }

    /// The shard's entry is gone.
    pub fn gone(name: &str) -> ShardError {
        let message = format!("the entry of shard \"{name}\" is gone");
        ShardError::new("3D000", message, "Connect again.").because(RefusalReason::NoShard)
    }

    /// DISABLE holds for the shard's entry.
    pub fn disabled(name: &str) -> ShardError {
        let message = format!("database \"{name}\" is disabled");
        let hint = "The administrator has disabled this shard: ENABLE undoes it.";
        ShardError::new("57P03", message, hint)
    }

    /// PostgreSQL's error in a failed transaction.
    pub fn aborted() -> ShardError {
        let message =
            "current transaction is aborted, commands ignored until end of transaction block";
        ShardError::new("25P02", message, "")
    }

    /// Writes the ErrorResponse.
    pub fn write(&self, buf: &mut Vec<u8>) {
        write::message(buf, backend::ERROR, |buf| {
            let mut field = |code: u8, value: &str| {
                buf.push(code);
                buf.extend(value.bytes().filter(|byte| *byte != 0));
                buf.push(0);
            };
            field(b'S', "ERROR");
            field(b'V', "ERROR");
            field(b'C', self.sqlstate);
            field(b'M', &self.message);
            if let Some(detail) = &self.detail {
                field(b'D', detail);
            }
            if let Some(hint) = &self.hint {
                field(b'H', hint);
            }
            buf.push(0);
        });
    }
}
