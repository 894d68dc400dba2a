//! A group of the extended protocol, before its client has a server: which of its statements says
//! the shard.

use howdah_wire::frame::{HEADER, cstr, header};
use howdah_wire::frontend::BindNames;
use howdah_wire::tag::frontend as tag;

use crate::client::Client;
use crate::effect::ShardedText;
use crate::limits;

/// What a group is, as far as it has come.
#[derive(Debug)]
pub enum GroupRead<'a> {
    /// More must come: so many bytes at least.
    Partial(usize),
    /// The group is longer than what is held.
    Long,
    /// One command that Howdah may answer, alone in its group.
    Command(Command),
    /// The statement that says the shard.
    Statement(&'a [u8]),
    /// Statements are parsed, described or closed, and none is bound.
    Unbound,
    /// Only commands are bound that belong to no shard, or a statement that Howdah does not know.
    Unknown,
    /// SET of a hint among other statements.
    Mixed,
}

/// A command that is parsed, bound and executed, alone in its group.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its text.
    pub text: Box<[u8]>,
    /// The length of the group, with its Sync.
    pub length: usize,
}

/// Reads the group that begins these bytes.
pub fn read_group<'a>(client: &'a Client, bytes: &'a [u8]) -> GroupRead<'a> {
    let mut parsed: Vec<(&[u8], &[u8])> = Vec::new();
    let mut commands: Vec<&[u8]> = Vec::new();
    let (mut rest, mut is_plain) = (bytes, true);
    let mut executed = 0;
    loop {
        let at = bytes.len() - rest.len();
        let header = match header(rest) {
            None => return GroupRead::Partial(at + HEADER),
            Some(Err(_)) => return GroupRead::Unknown,
            Some(Ok(header)) => header,
        };
        let Some(body) = rest.get(HEADER..header.total()) else {
            let comes = at + header.total();
            return if comes > limits::SHARDED {
                GroupRead::Long
            } else {
                GroupRead::Partial(comes)
            };
        };
        match header.tag {
            tag::PARSE => {
                if let Some((name, rest)) = cstr(body)
                    && let Some((text, _)) = cstr(rest)
                {
                    is_plain &= name.is_empty() && parsed.is_empty();
                    parsed.push((name, text));
                }
            }
            tag::BIND => {
                let name = BindNames::read(body).map(|names| names.statement);
                let of_group = |name: &[u8]| parsed.iter().rev().find(|(of, _)| *of == name);
                let text = name.and_then(|name| match of_group(name) {
                    Some((_, text)) => Some(*text),
                    None => named(client, name),
                });
                let Some(text) = text else {
                    return GroupRead::Unknown;
                };
                match ShardedText::read(text) {
                    ShardedText::Other | ShardedText::Prepares if commands.is_empty() => {
                        return GroupRead::Statement(text);
                    }
                    ShardedText::Other | ShardedText::Prepares => {
                        let mixed = commands.iter().any(|text| is_hint(text));
                        return if mixed {
                            GroupRead::Mixed
                        } else {
                            GroupRead::Statement(text)
                        };
                    }
                    _ => commands.push(text),
                }
            }
            tag::EXECUTE => executed += 1,
            tag::SYNC | tag::FLUSH => {
                let length = at + header.total();
                return match commands[..] {
                    [text] if is_plain && executed == 1 && header.tag == tag::SYNC => {
                        GroupRead::Command(Command {
                            text: text.into(),
                            length,
                        })
                    }
                    [] if executed == 0 => GroupRead::Unbound,
                    ref commands if commands.iter().any(|text| is_hint(text)) => GroupRead::Mixed,
                    _ => GroupRead::Unknown,
                };
            }
            tag::DESCRIBE | tag::CLOSE => {}
            _ => return GroupRead::Unknown,
        }
        rest = &rest[header.total()..];
    }
}

/// True for SET, RESET and SHOW of a hint.
fn is_hint(text: &[u8]) -> bool {
    matches!(
        ShardedText::read(text),
        ShardedText::Set { .. } | ShardedText::Reset(_) | ShardedText::Show(_)
    )
}

/// The text of a client's statement.
fn named<'a>(client: &'a Client, name: &[u8]) -> Option<&'a [u8]> {
    let statement = match name {
        b"" => client.statements.unnamed(),
        name => client.statements.get(name).map(|named| &named.statement),
    };
    statement.map(|statement| statement.text())
}

/// The messages of a whole group, but for its Sync: tag and body.
pub fn messages(mut rest: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let header = header(rest)?.ok()?;
        let body = rest.get(HEADER..header.total())?;
        rest = &rest[header.total()..];
        (header.tag != tag::SYNC).then_some((header.tag, body))
    })
}
