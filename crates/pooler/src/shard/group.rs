//! A group of the extended protocol, before its client has a server: which of its statements says
//! the shard.

use howdah_shard::NoKey;
use howdah_wire::frame::{HEADER, cstr, header};
use howdah_wire::frontend::BindNames;
use howdah_wire::tag::frontend as tag;

use crate::client::Client;
use crate::effect::ShardedText;
use crate::limits;
use crate::shard::bound_text::{BoundText, Decision};

/// What a group is, as far as it has come.
#[derive(Debug)]
pub enum GroupRead {
    /// More must come: so many bytes at least.
    Partial(usize),
    /// The group is longer than what is held.
    Long,
    /// One command that Howdah may answer, alone in its group.
    Command(GroupCommand),
    /// What the first statement says that says anything.
    Decided(Decision),
    /// Statements are parsed, described or closed, and none is bound.
    Unbound,
    /// SET of a hint among other statements.
    Mixed,
}

/// A command that is parsed, bound and executed, alone in its group.
#[derive(Clone, Debug)]
pub struct GroupCommand {
    /// Its text.
    pub text: Box<[u8]>,
    /// The length of the group, with its Sync.
    pub length: usize,
}

/// Reads the group that begins these bytes. `decide` says where a statement belongs.
pub fn read_group(
    client: &Client,
    bytes: &[u8],
    decide: &mut dyn FnMut(BoundText<'_>) -> Decision,
) -> GroupRead {
    let mut parsed: Vec<(&[u8], &[u8])> = Vec::new();
    let mut commands: Vec<&[u8]> = Vec::new();
    let (mut rest, mut is_plain, mut executed) = (bytes, true, 0);
    let mut kind = None;
    loop {
        let at = bytes.len() - rest.len();
        let header = match header(rest) {
            None => return GroupRead::Partial(at + HEADER),
            Some(Err(_)) => return GroupRead::Decided(Decision::NoKey(NoKey::Any)),
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
                if let Some((name, definition)) = cstr(body) {
                    is_plain &= name.is_empty() && parsed.is_empty();
                    parsed.push((name, definition));
                }
            }
            tag::BIND => {
                let definition = BindNames::read(body).and_then(|names| {
                    let of_group = parsed.iter().rev();
                    let mut of_group = of_group.filter(|(of, _)| *of == names.statement);
                    let known = || named(client, names.statement);
                    of_group
                        .next()
                        .map(|(_, definition)| *definition)
                        .or_else(known)
                });
                let Some(definition) = definition else {
                    // PostgreSQL says that there is no such statement.
                    return GroupRead::Decided(Decision::NoKey(NoKey::Any));
                };
                let text = cstr(definition).map_or(definition, |(text, _)| text);
                match ShardedText::read(text) {
                    ShardedText::Other | ShardedText::Prepares => {
                        match decide(BoundText::bound(definition, body)) {
                            Decision::NoKey(found) => {
                                kind = kind.filter(|kind| *kind != NoKey::Any).or(Some(found));
                            }
                            Decision::Guess { .. } => kind = kind.or(Some(NoKey::Any)),
                            _ if commands.iter().any(|text| is_hint(text)) => {
                                return GroupRead::Mixed;
                            }
                            decided => return GroupRead::Decided(decided),
                        }
                    }
                    _ => commands.push(text),
                }
            }
            tag::EXECUTE => executed += 1,
            tag::SYNC | tag::FLUSH => {
                let length = at + header.total();
                let is_one = is_plain && executed == 1 && header.tag == tag::SYNC;
                return match (&commands[..], kind) {
                    ([text], None) if is_one => GroupRead::Command(GroupCommand {
                        text: (*text).into(),
                        length,
                    }),
                    ([], None) => GroupRead::Unbound,
                    (commands, _) if commands.iter().any(|text| is_hint(text)) => GroupRead::Mixed,
                    (_, kind) => {
                        let kind = kind.unwrap_or(NoKey::Setting);
                        GroupRead::Decided(Decision::NoKey(kind))
                    }
                };
            }
            tag::DESCRIBE | tag::CLOSE => {}
            _ => return GroupRead::Decided(Decision::NoKey(NoKey::Any)),
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

/// A client's statement: its text, and the types that its Parse declares.
fn named<'a>(client: &'a Client, name: &[u8]) -> Option<&'a [u8]> {
    let statement = match name {
        b"" => client.statements.unnamed(),
        name => client.statements.get(name).map(|named| &named.statement),
    };
    statement.map(|statement| &*statement.definition)
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
