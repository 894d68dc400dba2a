//! A statement with its values, and where it belongs.

use howdah_shard::{Given, Names, NoKey, Planner, oid};
use howdah_wire::frame::cstr;
use howdah_wire::frontend::BindNames;

use crate::config::{Shard, ShardMap};
use crate::shard::error::ShardError;
use crate::shard::noted::Noted;

/// A statement with its values.
#[derive(Clone, Debug, Default)]
pub struct BoundText<'a> {
    /// Its text; `None` if the text could not be read.
    pub text: Option<&'a [u8]>,
    /// The parameters of its Bind.
    pub parameters: Vec<Given<'a>>,
}

/// What reads statements.
#[derive(Debug)]
pub struct PlanReader<'a> {
    /// Makes plans; `None` while the catalogue is not known.
    pub planner: Option<&'a mut Planner>,
    /// A shard whose catalogue could not be read the last time, and why.
    pub trouble: Option<(&'a str, &'a str)>,
    /// How the client's names are looked up.
    pub names: Names<'a>,
    /// The map as if there were several shards, while there is one.
    pub spread: Option<&'a ShardMap>,
    /// What is noted of the statement.
    pub noted: Noted,
    /// The client's encoding and the server's are both UTF8.
    pub same_encoding: bool,
    /// The transaction has changed where names are looked up: no plan counts.
    pub is_private: bool,
    /// The client has become another user (`SET SESSION AUTHORIZATION`): its search path is not known.
    pub is_another: bool,
}

/// Where a statement belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// There.
    At(Shard),
    /// Nothing in it says where.
    NoKey(NoKey),
    /// Nothing in it says where, and it may run on one shard and then on another.
    Guess {
        /// Where it goes outside of a transaction.
        kind: NoKey,
        /// It must be repeated there. If false, its answer is all.
        repeats: bool,
    },
    /// Nowhere.
    Refused(ShardError),
    /// That is known when the catalogue has been read (again).
    NeedsCatalogue {
        /// The last catalogue lacks a name.
        unknown: bool,
    },
}

impl Decision {
    /// True if any shard will do, whatever ran before.
    pub fn is_free(&self) -> bool {
        let kind = match self {
            Decision::NoKey(kind) | Decision::Guess { kind, .. } => kind,
            _ => return false,
        };
        matches!(
            kind,
            NoKey::Any | NoKey::Begin | NoKey::End | NoKey::Setting
        )
    }

    /// The only shard that is right, if there is one.
    pub fn must_be_at(&self) -> Option<Shard> {
        match self {
            Decision::At(shard) => Some(*shard),
            Decision::NoKey(NoKey::First) => Some(Shard(0)),
            Decision::NoKey(NoKey::Replicated { home, write: true }) => Some(*home),
            _ => None,
        }
    }
}

impl<'a> BoundText<'a> {
    /// A Query, which has no parameters.
    pub fn query(text: Option<&'a [u8]>) -> BoundText<'a> {
        BoundText {
            text,
            parameters: Vec::new(),
        }
    }

    /// A statement of the extended protocol, by its text with the types that Parse declares, and the
    /// body of a Bind. Without its Bind, or with a malformed one, no parameter has a value.
    pub fn bound(definition: &'a [u8], bind: &'a [u8]) -> BoundText<'a> {
        let (text, types) = cstr(definition).unwrap_or((definition, &[]));
        let values = BindNames::read(bind).and_then(|names| bind.get(names.size()..));
        BoundText {
            text: Some(text),
            parameters: values
                .and_then(|values| parameters(types, values))
                .unwrap_or_default(),
        }
    }
}

/// The parameters of a Bind; `None` if it is malformed, which PostgreSQL then says.
fn parameters<'a>(types: &'a [u8], values: &'a [u8]) -> Option<Vec<Given<'a>>> {
    let (count, types) = types.split_first_chunk::<2>().unwrap_or((&[0, 0], &[]));
    let count = usize::from(u16::from_be_bytes(*count));
    let oid = |at: usize| {
        let bytes = types.get(4 * at..4 * at + 4).filter(|_| at < count);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(oid::NONE, u32::from_be_bytes)
    };
    let (formats, rest) = values.split_first_chunk::<2>()?;
    let (formats, rest) = rest.split_at_checked(2 * usize::from(u16::from_be_bytes(*formats)))?;
    let is_binary = |at: usize| {
        let at = if formats.len() == 2 { 0 } else { 2 * at };
        formats
            .get(at..at + 2)
            .is_some_and(|format| format == [0, 1])
    };
    let (count, mut rest) = rest.split_first_chunk::<2>()?;
    let mut parameters = Vec::new();
    for at in 0..usize::from(u16::from_be_bytes(*count)) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // NULL has the length -1.
        let bytes = match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(value)
            }
            Err(_) => None,
        };
        parameters.push(Given {
            oid: oid(at),
            binary: is_binary(at),
            bytes,
        });
    }
    Some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_types_formats_and_values() {
        let bind = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\0";
        let statement = BoundText::bound(b"select $1, $2\0\0\x01\0\0\0\x17", bind);
        assert_eq!(statement.text, Some(&b"select $1, $2"[..]));
        let expected = [
            (oid::INT4, true, Some(&[0, 0, 0, 7][..])),
            (oid::NONE, true, None),
        ];
        let expected = expected.map(|(oid, binary, bytes)| Given { oid, binary, bytes });
        assert_eq!(statement.parameters, expected);
        // Cut short.
        assert_eq!(
            BoundText::bound(b"select $1\0\0\0", &bind[..12]).parameters,
            []
        );
    }
}
