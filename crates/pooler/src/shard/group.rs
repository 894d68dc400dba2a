//! A group of the extended protocol, before its client has a server: which of its statements says
//! the shard, and whether Howdah itself can answer all of it.

use std::sync::Arc;

use howdah_shard::NoKey;
use howdah_wire::frame::{HEADER, cstr, header};
use howdah_wire::frontend::BindNames;
use howdah_wire::tag::frontend as tag;

use crate::client::Client;
use crate::effect::ShardedText;
use crate::limits;
use crate::shard::bound_text::{BoundText, Decision};
use crate::shard::placed::Definition;
use crate::statement::Statement;

/// What a group is, as far as it has come.
#[derive(Debug)]
pub enum GroupRead<'a> {
    /// More must come: so many bytes at least.
    Partial(usize),
    /// The group is longer than what is held.
    Long,
    /// Commands that Howdah may answer, and nothing else.
    Commands(CommandGroup<'a>),
    /// What the first statement says that says anything.
    Decided(Decision),
    /// Statements are parsed, described or closed, and none is bound.
    Unbound,
    /// SET of a hint among other statements.
    Mixed,
}

/// A group of commands that Howdah answers, where it can.
#[derive(Debug)]
pub struct CommandGroup<'a> {
    /// The texts of the commands that run.
    pub texts: Vec<Box<[u8]>>,
    /// What the messages ask for, without the Sync or Flush.
    pub steps: Vec<CommandStep<'a>>,
    /// The length of the group, with its Sync or Flush, in bytes.
    pub length: usize,
    /// The group ends with a Sync.
    pub synced: bool,
    /// Where the group goes if a server must answer it.
    pub decision: Decision,
}

/// A message of a group of commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandStep<'a> {
    /// Gives this name to a statement: its text, and the types that the message declares.
    Parse(&'a [u8], &'a [u8]),
    /// Binds the unnamed portal.
    Bind,
    /// Describes the statement of a text.
    DescribeStatement(Box<[u8]>),
    /// Describes the portal of a text.
    DescribePortal(Box<[u8]>),
    /// Executes the command with this number.
    Execute(usize),
    /// Closes a statement with this name.
    Close(&'a [u8]),
}

/// Reads a group.
struct GroupReader<'a, 'c> {
    client: &'c Client,
    /// The statements that the group parses: name, and text with types.
    parsed: Vec<(&'a [u8], &'a [u8])>,
    /// The texts of commands about the session that are bound.
    commands: Vec<&'c [u8]>,
    /// How the first statement that says no shard goes.
    kind: Option<NoKey>,
    /// All bound statements may run on a guess.
    is_guess: bool,
    /// What a group of commands only asks for; `None` if Howdah can't answer it.
    steps: Option<Vec<CommandStep<'a>>>,
}

/// Says where a statement belongs whose Bind begins at this byte of the group.
type Decide<'f, 'a, 'c> =
    dyn FnMut(BoundText<'_>, usize, Definition<'a, &'c Arc<Statement>>) -> Decision + 'f;

/// Reads the group that begins these bytes.
pub fn read_group<'a: 'c, 'c>(
    client: &'c Client,
    bytes: &'a [u8],
    decide: &mut Decide<'_, 'a, 'c>,
) -> GroupRead<'a> {
    let mut reader = GroupReader {
        client,
        parsed: Vec::new(),
        commands: Vec::new(),
        kind: None,
        is_guess: true,
        steps: Some(Vec::new()),
    };
    let mut at = 0;
    for _ in 0..limits::SHARDED_GROUP {
        let rest = &bytes[at..];
        let header = match header(rest) {
            None => return GroupRead::Partial(at + HEADER),
            // PostgreSQL says what is wrong.
            Some(Err(_)) => return reader.goes_anywhere(),
            Some(Ok(header)) => header,
        };
        let length = at + header.total();
        let Some(body) = rest.get(HEADER..header.total()) else {
            return if length > limits::SHARDED {
                GroupRead::Long
            } else {
                GroupRead::Partial(length)
            };
        };
        match header.tag {
            tag::PARSE => reader.parse(body),
            tag::BIND => {
                if let Some(read) = reader.bind(body, at, decide) {
                    return read;
                }
            }
            tag::DESCRIBE => reader.describe(body),
            tag::EXECUTE => reader.execute(body),
            tag::CLOSE => reader.close(body),
            tag::SYNC => return reader.ends(length, true),
            tag::FLUSH => return reader.ends(length, false),
            _ => return reader.goes_anywhere(),
        }
        at = length;
        if at > limits::SHARDED_GROUP_BYTES {
            break;
        }
    }
    // Each of the others is looked at when it is sent.
    reader.goes_by_its_beginning()
}

impl<'a: 'c, 'c> GroupReader<'a, 'c> {
    fn parse(&mut self, body: &'a [u8]) {
        let Some((name, definition)) = cstr(body) else {
            self.steps = None;
            return;
        };
        let is_new = !self.parsed.iter().any(|(of, _)| *of == name);
        self.parsed.push((name, definition));
        let text = cstr(definition).map_or(definition, |(text, _)| text);
        // PostgreSQL says that the name is taken.
        let is_free = name.is_empty() || is_new && named(self.client, name).is_none();
        let can = is_free && ShardedText::read(text).is_own();
        self.step(can, CommandStep::Parse(name, definition));
    }

    /// Returns what the statement says, if that decides.
    fn bind(
        &mut self,
        body: &'a [u8],
        at: usize,
        decide: &mut Decide<'_, 'a, 'c>,
    ) -> Option<GroupRead<'a>> {
        let names = BindNames::read(body);
        let definition = names
            .as_ref()
            .and_then(|names| self.definition(names.statement));
        let (Some(names), Some(definition)) = (names, definition) else {
            // PostgreSQL says that there is no such statement.
            return Some(self.goes_anywhere());
        };
        let bytes = definition.bytes();
        let text = cstr(bytes).map_or(bytes, |(text, _)| text);
        let read = ShardedText::read(text);
        if !matches!(read, ShardedText::Other | ShardedText::Prepares) {
            self.commands.push(text);
        }
        let can = read.is_own() && names.portal.is_empty();
        self.step(can, CommandStep::Bind);
        match decide(BoundText::bound(bytes, body), at, definition) {
            Decision::NoKey(kind) => {
                self.is_guess = false;
                self.says(kind);
                None
            }
            Decision::Guess { kind, .. } => {
                self.says(kind);
                None
            }
            _ if self.has_hint() => Some(GroupRead::Mixed),
            decided => Some(GroupRead::Decided(decided)),
        }
    }

    /// What says most counts: after it, what reads tables or locks.
    fn says(&mut self, kind: NoKey) {
        let says_little = |kind: &NoKey| {
            matches!(
                kind,
                NoKey::Any | NoKey::Begin | NoKey::Setting | NoKey::Savepoint
            )
        };
        if self.kind.as_ref().is_none_or(says_little) {
            self.kind = Some(kind);
        }
    }

    fn describe(&mut self, body: &'a [u8]) {
        let text = match body {
            [b'S', name @ .., 0] => self.definition(name).map(Definition::bytes),
            b"P\0" => self.commands.last().copied(),
            _ => None,
        };
        let text = text.map(|of| cstr(of).map_or(of, |(text, _)| text));
        let Some(text) = text.filter(|text| ShardedText::read(text).is_own()) else {
            self.steps = None;
            return;
        };
        let step = match body[0] {
            b'S' => CommandStep::DescribeStatement(text.into()),
            _ => CommandStep::DescribePortal(text.into()),
        };
        self.step(true, step);
    }

    fn execute(&mut self, body: &'a [u8]) {
        let last = self.commands.len().checked_sub(1);
        let step = CommandStep::Execute(last.unwrap_or_default());
        let can = last.is_some() && !self.has_step(&step) && body.first() == Some(&0);
        self.step(can, step);
    }

    fn close(&mut self, body: &'a [u8]) {
        match body {
            [b'S', name @ .., 0] if !name.is_empty() => self.step(true, CommandStep::Close(name)),
            _ => self.steps = None,
        }
    }

    /// The group ends at this length, with a Sync or in a Flush.
    fn ends(mut self, length: usize, synced: bool) -> GroupRead<'a> {
        let all_run = (0..self.commands.len()).all(|at| self.has_step(&CommandStep::Execute(at)));
        if let Some(steps) = self.steps.take()
            && !steps.is_empty()
            && all_run
        {
            return GroupRead::Commands(CommandGroup {
                texts: self.commands.iter().map(|text| (*text).into()).collect(),
                steps,
                length,
                synced,
                decision: self.decision(),
            });
        }
        self.goes_by_its_beginning()
    }

    /// No statement so far says a shard.
    fn goes_by_its_beginning(&self) -> GroupRead<'a> {
        match self.kind {
            _ if self.has_hint() => GroupRead::Mixed,
            None => GroupRead::Unbound,
            Some(_) => GroupRead::Decided(self.decision()),
        }
    }

    /// Where a group goes of which no statement says a shard.
    fn decision(&self) -> Decision {
        let kind = self.kind.unwrap_or(NoKey::Any);
        if self.is_guess {
            Decision::Guess {
                kind,
                repeats: false,
            }
        } else {
            Decision::NoKey(kind)
        }
    }

    fn goes_anywhere(&self) -> GroupRead<'a> {
        GroupRead::Decided(Decision::NoKey(NoKey::Any))
    }

    /// A step of a group of commands, if Howdah can answer it.
    fn step(&mut self, can: bool, step: CommandStep<'a>) {
        match &mut self.steps {
            Some(steps) if can => steps.push(step),
            _ => self.steps = None,
        }
    }

    fn has_step(&self, step: &CommandStep<'_>) -> bool {
        self.steps
            .as_ref()
            .is_some_and(|steps| steps.contains(step))
    }

    /// True if the group has a SET, RESET or SHOW of a hint.
    fn has_hint(&self) -> bool {
        self.commands.iter().any(|text| is_hint(text))
    }

    /// A statement of the group or of the client: its text, and the types that its Parse declares.
    fn definition(&self, name: &[u8]) -> Option<Definition<'a, &'c Arc<Statement>>> {
        let mut of_group = self.parsed.iter().rev();
        match of_group.find(|(of, _)| *of == name) {
            Some((_, definition)) => Some(Definition::OfGroup(definition)),
            None => named(self.client, name).map(Definition::OfClient),
        }
    }
}

/// True for SET, RESET and SHOW of a hint.
pub fn is_hint(text: &[u8]) -> bool {
    matches!(
        ShardedText::read(text),
        ShardedText::Set { .. } | ShardedText::Reset(_) | ShardedText::Show(_)
    )
}

/// A client's statement.
fn named<'a>(client: &'a Client, name: &[u8]) -> Option<&'a Arc<Statement>> {
    match name {
        b"" => client.statements.unnamed(),
        name => client.statements.get(name).map(|named| &named.statement),
    }
}
