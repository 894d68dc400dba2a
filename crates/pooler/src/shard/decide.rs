//! To which shard a statement belongs: what its plan proves, and what its client says.

use howdah_shard::{Given, Hint, Names, NoKey, Planner, Values, Verdict, oid};
use howdah_wire::frame::cstr;
use howdah_wire::frontend::BindNames;

use crate::config::{Shard, ShardMap};
use crate::effect::ShardedText;
use crate::shard::Sharded;
use crate::shard::error::ShardError;

/// A statement with its values.
#[derive(Clone, Debug, Default)]
pub struct Statement<'a> {
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
    /// How the client's names are looked up.
    pub names: Names<'a>,
    /// The client's encoding is the server's.
    pub same_encoding: bool,
    /// The transaction has changed where names are looked up: no plan counts.
    pub is_private: bool,
}

/// Where a statement belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// There.
    At(Shard),
    /// Nothing in it says where.
    NoKey(NoKey),
    /// Nowhere.
    Refused(ShardError),
    /// That is known when the catalogue has been read (again).
    NeedsCatalogue {
        /// The last catalogue lacks a name.
        unknown: bool,
    },
}

impl<'a> Statement<'a> {
    /// A Query, which has no parameters.
    pub fn query(text: Option<&'a [u8]>) -> Statement<'a> {
        Statement {
            text,
            parameters: Vec::new(),
        }
    }

    /// A statement of the extended protocol, by its text with the types that Parse declares, and the
    /// body of a Bind. Without its Bind, or with a malformed one, no parameter has a value.
    pub fn bound(definition: &'a [u8], bind: &'a [u8]) -> Statement<'a> {
        let (text, types) = cstr(definition).unwrap_or((definition, &[]));
        let values = BindNames::read(bind).and_then(|names| bind.get(names.size()..));
        Statement {
            text: Some(text),
            parameters: values.and_then(|values| parameters(types, values)).unwrap_or_default(),
        }
    }
}

/// The parameters of a Bind; `None` if it is malformed, which PostgreSQL then says.
fn parameters<'a>(types: &'a [u8], values: &'a [u8]) -> Option<Vec<Given<'a>>> {
    let (count, types) = types.split_first_chunk::<2>().unwrap_or((&[0, 0], &[]));
    let count = usize::from(u16::from_be_bytes(*count));
    let oid = |at: usize| {
        let bytes = types.get(4 * at..4 * at + 4).filter(|_| at < count);
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(oid::NONE, u32::from_be_bytes)
    };
    let (formats, rest) = values.split_first_chunk::<2>()?;
    let (formats, rest) = rest.split_at_checked(2 * usize::from(u16::from_be_bytes(*formats)))?;
    let is_binary = |at: usize| {
        let at = if formats.len() == 2 { 0 } else { 2 * at };
        formats.get(at..at + 2).is_some_and(|format| format == [0, 1])
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

impl Sharded {
    /// Where a statement belongs. `is_final`: a name that the catalogue lacks does not exist.
    pub fn decide(
        &self,
        statement: &Statement<'_>,
        reader: &mut PlanReader<'_>,
        is_final: bool,
    ) -> Decision {
        let decision = self.decided(statement, reader, is_final);
        match decision {
            Ok(decision) => decision,
            Err(error) => Decision::Refused(error),
        }
    }

    fn decided(
        &self,
        statement: &Statement<'_>,
        reader: &mut PlanReader<'_>,
        is_final: bool,
    ) -> Result<Decision, ShardError> {
        let Some(text) = statement.text else {
            return Ok(self.unread());
        };
        let read = ShardedText::read(text);
        if read == ShardedText::Prepares {
            return Err(ShardError::sql_prepare());
        }
        let comment = match self.local {
            None => Hint::read(text, reader.names.escapes)?,
            Some(_) => None,
        };
        let comment = comment.map(|comment| comment.hint);
        let hint = self.local.as_ref().or(comment.as_ref()).or(self.session.as_ref());
        let hint = hint.map(|hint| hint.shard(&self.map)).transpose()?;
        let of_session = !matches!(read, ShardedText::Other);
        let verdict = if of_session {
            Verdict::NoKey(NoKey::Setting)
        } else if reader.is_private {
            return hint.map(Decision::At).ok_or_else(ShardError::private);
        } else {
            match plan(&self.map, text, statement, reader) {
                Some(verdict) => verdict,
                None => return Ok(Decision::NeedsCatalogue { unknown: false }),
            }
        };
        let verdict = match hint {
            Some(hint) => verdict.with_hint(&self.map, hint),
            None => verdict,
        };
        Ok(match verdict {
            Verdict::Shard(shard) => Decision::At(shard),
            Verdict::NoKey(no_key) => Decision::NoKey(no_key),
            Verdict::Refused(refusal) if refusal.has_unknown_name && !is_final => {
                Decision::NeedsCatalogue { unknown: true }
            }
            Verdict::Refused(refusal) => Decision::Refused(refusal.into()),
        })
    }
}

/// What the plan of a text says with these values; `None` while the catalogue is not known.
fn plan(
    map: &ShardMap,
    text: &[u8],
    statement: &Statement<'_>,
    reader: &mut PlanReader<'_>,
) -> Option<Verdict> {
    let planner = reader.planner.as_deref_mut()?;
    Some(match planner.plan(text, &reader.names) {
        Ok(planned) => planned.plan.place(
            map,
            &Values {
                text,
                constants: &planned.constants,
                parameters: &statement.parameters,
                same_encoding: reader.same_encoding,
            },
        ),
        Err(refusal) => Verdict::Refused(refusal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_types_formats_and_values() {
        let bind = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\0";
        let statement = Statement::bound(b"select $1, $2\0\0\x01\0\0\0\x17", bind);
        assert_eq!(statement.text, Some(&b"select $1, $2"[..]));
        let expected = [
            (oid::INT4, true, Some(&[0, 0, 0, 7][..])),
            (oid::NONE, true, None),
        ];
        let expected = expected.map(|(oid, binary, bytes)| Given { oid, binary, bytes });
        assert_eq!(statement.parameters, expected);
        // Cut short.
        assert_eq!(Statement::bound(b"select $1\0\0\0", &bind[..12]).parameters, []);
    }
}
