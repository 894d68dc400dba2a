//! Howdah's own answers to clients of sharded databases.

use howdah_wire::tag::backend;
use howdah_wire::write;
use howdah_wire::write::Column;

use crate::effect::{ShardSetting, ShardedText, ends_first};
use crate::shard::error::ShardError;
use crate::shard::group::CommandStep;

/// Howdah's answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnAnswer {
    /// The command is done: its tag.
    Done(&'static str),
    /// SET LOCAL outside of a transaction, which has no effect.
    LocalOutside,
    /// The value of a setting.
    Row(ShardSetting, String),
}

/// Writes what a Describe of a command gets: its row, or that there is none.
pub fn describe(text: &[u8], buf: &mut Vec<u8>) {
    match ShardedText::read(text) {
        ShardedText::Show(setting) => {
            write::row_description(buf, &[text_column(setting.name())]);
        }
        _ => write::empty(buf, backend::NO_DATA),
    }
}

impl OwnAnswer {
    /// Writes the answer, without a description of its row.
    pub fn write(&self, buf: &mut Vec<u8>) {
        let tag = match self {
            OwnAnswer::Done(tag) => tag,
            OwnAnswer::LocalOutside => {
                let text = "SET LOCAL can only be used in transaction blocks";
                write::notice(buf, "WARNING", "25P01", text, None);
                "SET"
            }
            OwnAnswer::Row(_, value) => {
                write::data_row(buf, [Some(value.as_bytes())].into_iter());
                "SHOW"
            }
        };
        write::command_complete(buf, tag);
    }

    /// Writes the answer to a Query.
    pub fn write_to_query(&self, buf: &mut Vec<u8>) {
        if let OwnAnswer::Row(setting, _) = self {
            write::row_description(buf, &[text_column(setting.name())]);
        }
        self.write(buf);
    }
}

impl CommandStep<'_> {
    /// True for a Parse that a failed transaction does not take.
    pub fn begins_anew(&self) -> bool {
        matches!(self, CommandStep::Parse(_, definition) if !ends_first(definition))
    }

    /// Writes the answer to a message of a group of commands, by the answers to the commands. `Err` if
    /// the command of the message fails.
    pub fn write<'a>(
        &self,
        answers: &'a [Result<OwnAnswer, ShardError>],
        buf: &mut Vec<u8>,
    ) -> Result<(), &'a ShardError> {
        match self {
            CommandStep::Parse(..) => write::empty(buf, backend::PARSE_COMPLETE),
            CommandStep::Bind => write::empty(buf, backend::BIND_COMPLETE),
            CommandStep::Close(_) => write::empty(buf, backend::CLOSE_COMPLETE),
            CommandStep::DescribeStatement(text) => {
                write::message(buf, backend::PARAMETER_DESCRIPTION, |buf| {
                    buf.extend_from_slice(&[0, 0]);
                });
                describe(text, buf);
            }
            CommandStep::DescribePortal(text) => describe(text, buf),
            CommandStep::Execute(command) => {
                if let Some(answer) = answers.get(*command) {
                    answer.as_ref()?.write(buf);
                }
            }
        }
        Ok(())
    }
}

/// A column of type text.
fn text_column(name: &str) -> Column<'_> {
    Column {
        name,
        type_oid: 25,
        type_size: -1,
    }
}
