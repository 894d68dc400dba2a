//! Groups of the extended protocol that are reads: all messages up to the Sync.

use howdah_wire::frame::{HEADER, cstr, header};
use howdah_wire::tag::frontend as tag;

use crate::client::Client;
use crate::effect::{Begin, VolatileNames, is_read};
use crate::limits;
use crate::statement::Statement;

/// What a client's group is, as far as it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKind {
    /// It may be a read: more must come.
    Unsure,
    /// All of it has come, nothing is behind it, and all its statements are reads.
    Read,
    /// It is no read, or must not wait.
    Other,
}

/// What the group is that begins these bytes. A group that reads has no Flush, closes no statement,
/// and gives no name again. So it can run twice.
pub fn group_kind(client: &Client, bytes: &[u8], volatile: &VolatileNames) -> GroupKind {
    let mut parsed: Option<&[u8]> = None;
    let (mut rest, mut reads) = (bytes, false);
    loop {
        if bytes.len() - rest.len() > limits::READ_GROUP {
            return GroupKind::Other;
        }
        let header = match header(rest) {
            None => return GroupKind::Unsure,
            Some(Err(_)) => return GroupKind::Other,
            Some(Ok(header)) => header,
        };
        let Some(body) = rest.get(HEADER..header.total()) else {
            let comes = bytes.len() - rest.len() + header.total();
            return if comes > limits::READ_GROUP || !may_be_in_read(header.tag) {
                GroupKind::Other
            } else {
                GroupKind::Unsure
            };
        };
        let is_read = match header.tag {
            tag::PARSE => match cstr(body) {
                Some((name, rest)) => {
                    let text = cstr(rest).map(|(text, _)| text);
                    let is_new = name.is_empty() || client.statements.get(name).is_none();
                    let is_first = parsed.replace(name).is_none();
                    is_first && is_new && text.is_some_and(|text| is_read(text, volatile))
                }
                None => false,
            },
            tag::BIND => {
                let name = cstr(body).and_then(|(_, rest)| cstr(rest));
                name.is_some_and(|(name, _)| {
                    parsed == Some(name) || is_read_statement(client, name, volatile)
                })
            }
            tag::DESCRIBE => match cstr(body) {
                Some(([b'S', name @ ..], _)) => {
                    parsed == Some(name) || is_read_statement(client, name, volatile)
                }
                Some(([b'P', ..], _)) => true,
                _ => false,
            },
            tag::EXECUTE => true,
            tag::SYNC if reads && header.total() == rest.len() && body.is_empty() => {
                return GroupKind::Read;
            }
            _ => false,
        };
        if !is_read {
            return GroupKind::Other;
        }
        reads |= header.tag != tag::EXECUTE;
        rest = &rest[header.total()..];
    }
}

/// True if these messages, a whole request, begin a transaction and do nothing else: a Query, or one
/// statement that is parsed, if it is new, bound and executed.
pub fn is_bare_begin(client: &Client, request: &[u8]) -> bool {
    let is_begin = |text: &[u8]| Begin::read(text).is_some();
    let (mut rest, mut parsed, mut bound, mut is_executed) = (request, None, None, false);
    while let Some(Ok(header)) = header(rest) {
        let body = rest.get(HEADER..header.total()).unwrap_or_default();
        let first = cstr(body);
        let second = first.and_then(|(_, rest)| cstr(rest)).map(|(of, _)| of);
        let first = first.map(|(of, _)| of);
        match header.tag {
            tag::QUERY => return rest.len() == request.len() && first.is_some_and(is_begin),
            tag::PARSE if rest.len() == request.len() => parsed = first.zip(second),
            tag::BIND if bound.is_none() => {
                bound = second.and_then(|name| match parsed {
                    Some((of, text)) if of == name => Some(text),
                    _ => named(client, name).map(Statement::text),
                });
                if !bound.is_some_and(is_begin) {
                    return false;
                }
            }
            tag::DESCRIBE => {}
            tag::EXECUTE if bound.is_some() && !is_executed => is_executed = true,
            tag::SYNC => return is_executed,
            _ => return false,
        }
        rest = &rest[body.len() + HEADER..];
    }
    false
}

fn may_be_in_read(of: u8) -> bool {
    matches!(
        of,
        tag::PARSE | tag::BIND | tag::DESCRIBE | tag::EXECUTE | tag::SYNC
    )
}

fn is_read_statement(client: &Client, name: &[u8], volatile: &VolatileNames) -> bool {
    named(client, name).is_some_and(|statement| statement.is_read(volatile))
}

/// A client's statement.
pub(super) fn named<'a>(client: &'a Client, name: &[u8]) -> Option<&'a Statement> {
    let statement = match name {
        b"" => client.statements.unnamed(),
        name => client.statements.get(name).map(|named| &named.statement),
    };
    statement.map(|statement| &**statement)
}
