//! The LISTEN commands that a client has sent together.

use howdah_wire::frame::{HEADER, header};
use howdah_wire::frontend::Parse;
use howdah_wire::tag::frontend as tag;

use super::Name;
use crate::effect::{Kinds, effects};
use crate::limits;

/// How many messages are read at most.
const MOST: usize = 256;

/// The channels of the LISTEN commands at the beginning of `bytes`, which are messages of a client.
pub(crate) fn listens_at_once(mut bytes: &[u8]) -> Vec<Name> {
    let mut names = Vec::new();
    for _ in 0..MOST {
        let Some(Ok(message)) = header(bytes) else {
            break;
        };
        let whole = message.total() <= limits::FRONT;
        let Some(body) = bytes.get(HEADER..message.total()).filter(|_| whole) else {
            break;
        };
        let text = match message.tag {
            tag::QUERY => Some(body),
            tag::PARSE => Parse::read(body).ok().map(Parse::text),
            tag::BIND | tag::DESCRIBE | tag::EXECUTE | tag::SYNC | tag::FLUSH => None,
            _ => break,
        };
        if let Some(text) = text {
            let Some(listens) = listens(text) else { break };
            names.extend(listens);
        }
        bytes = &bytes[message.total()..];
    }
    names
}

/// The channels of a text that does nothing but LISTEN.
fn listens(text: &[u8]) -> Option<Vec<Name>> {
    let found = effects(text);
    let only = found.kinds.any(Kinds::LISTENS) && found.kinds.without(Kinds::LISTENS).is_empty();
    Some(found.channels.filter(|_| only)?.listens)
}

#[cfg(test)]
mod tests {
    use howdah_wire::write;

    use super::*;

    #[test]
    fn what_listens_together_is_read_up_to_anything_else() {
        let mut bytes = Vec::new();
        write::query(&mut bytes, b"listen a");
        write::parse(&mut bytes, b"", b"listen \"B\"\0\0\0");
        write::message(&mut bytes, tag::BIND, |buf| buf.extend_from_slice(&[0; 8]));
        write::message(&mut bytes, tag::EXECUTE, |buf| {
            buf.extend_from_slice(&[0; 5])
        });
        write::empty(&mut bytes, tag::SYNC);
        write::query(&mut bytes, b"listen c; listen d;");
        let all: Vec<Name> = ["a", "B", "c", "d"]
            .map(|name| name.as_bytes().into())
            .into();
        assert_eq!(listens_at_once(&bytes), all);
        let short = &bytes[..bytes.len() - 1];
        assert_eq!(
            listens_at_once(short),
            all[..2],
            "the last message is not whole"
        );
        for other in [
            "select 1",
            "unlisten *",
            "begin",
            "listen a; select 1; notify b",
        ] {
            let mut bytes = bytes.clone();
            write::query(&mut bytes, other.as_bytes());
            write::query(&mut bytes, b"listen e");
            assert_eq!(listens_at_once(&bytes), all, "{other}");
        }
    }
}
