//! SQL's PREPARE, EXECUTE and DEALLOCATE in a text.

use super::name::identifier;
use super::token::{Token, Tokens};

/// A command about a statement that has a name in SQL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatementCommand {
    /// `PREPARE name (types) AS statement`
    Prepare {
        /// The name.
        name: Box<[u8]>,
        /// Text and types as in a Parse message. `None` if Howdah does not know the number of a
        /// type.
        definition: Option<Box<[u8]>>,
    },
    /// `EXECUTE name`, also as the query of EXPLAIN or CREATE TABLE AS.
    Execute(Box<[u8]>),
    /// `DEALLOCATE name`
    Deallocate(Box<[u8]>),
}

impl StatementCommand {
    /// The statement's name.
    pub fn name(&self) -> &[u8] {
        match self {
            StatementCommand::Prepare { name, .. }
            | StatementCommand::Execute(name)
            | StatementCommand::Deallocate(name) => name,
        }
    }
}

/// Reads a PREPARE behind its first word, up to the semicolon behind the statement. `None` if it
/// can't be read.
pub(super) fn prepare(tokens: &mut Tokens<'_>) -> Option<StatementCommand> {
    let name = identifier(tokens)?;
    let mut types = Some(Vec::new());
    if tokens.sign(b'(') {
        loop {
            let (number, closes) = parameter_type(tokens)?;
            types = types.filter(|types: &Vec<u32>| types.len() < usize::from(u16::MAX));
            types = types.zip(number).map(|(mut types, number)| {
                types.push(number);
                types
            });
            if closes {
                break;
            }
        }
    }
    if !tokens.word(b"as") {
        return None;
    }
    let from = tokens.rest();
    let mut end = from;
    let mut ahead = *tokens;
    while !matches!(ahead.next(), None | Some(Token::Sign(b';'))) {
        *tokens = ahead;
        end = tokens.rest();
    }
    let statement = &from[..from.len() - end.len()];
    Some(StatementCommand::Prepare {
        name,
        definition: types.map(|types| definition(statement, &types)),
    })
}

/// Text and types as in a Parse message.
fn definition(statement: &[u8], types: &[u32]) -> Box<[u8]> {
    let mut definition = statement.trim_ascii().to_vec();
    definition.push(0);
    definition.extend_from_slice(&(types.len() as u16).to_be_bytes());
    for number in types {
        definition.extend_from_slice(&number.to_be_bytes());
    }
    definition.into()
}

/// Reads a parameter's type: its number in PostgreSQL, if Howdah knows it, and whether it is the
/// last one. `None` if the list can't be read.
fn parameter_type(tokens: &mut Tokens<'_>) -> Option<(Option<u32>, bool)> {
    let mut name = Vec::new();
    let mut known = true;
    let mut depth = 0u32;
    loop {
        match tokens.next()? {
            Token::Sign(b'(') => depth += 1,
            Token::Sign(b')') if depth > 0 => depth -= 1,
            Token::Sign(sign @ (b',' | b')')) if depth == 0 => {
                return Some((number_of(&name).filter(|_| known), sign == b')'));
            }
            // `varchar(20)`: the length is ignored.
            _ if depth > 0 => {}
            Token::Sign(b';') => return None,
            Token::Word(word) => {
                if !name.is_empty() {
                    name.push(b' ');
                }
                name.extend(word.iter().map(u8::to_ascii_lowercase));
            }
            Token::Sign(sign @ (b'[' | b']')) => name.push(sign),
            // `pg_catalog.oid`
            Token::Sign(b'.') if name == b"pg_catalog" => name.clear(),
            _ => known = false,
        }
    }
}

/// The number of a type of PostgreSQL's own (`pg_type.oid`).
fn number_of(name: &[u8]) -> Option<u32> {
    Some(match name {
        b"bool" | b"boolean" => 16,
        b"bytea" => 17,
        b"bigint" | b"int8" => 20,
        b"int2" | b"smallint" => 21,
        b"int" | b"int4" | b"integer" => 23,
        b"text" => 25,
        b"oid" => 26,
        b"json" => 114,
        b"float4" | b"real" => 700,
        b"double precision" | b"float8" => 701,
        b"inet" => 869,
        b"bool[]" | b"boolean[]" => 1000,
        b"int[]" | b"int4[]" | b"integer[]" => 1007,
        b"text[]" => 1009,
        b"bigint[]" | b"int8[]" => 1016,
        b"character varying" | b"varchar" => 1043,
        b"date" => 1082,
        b"time" | b"time without time zone" => 1083,
        b"timestamp" | b"timestamp without time zone" => 1114,
        b"timestamp with time zone" | b"timestamptz" => 1184,
        b"interval" => 1186,
        b"decimal" | b"numeric" => 1700,
        b"uuid" => 2950,
        b"jsonb" => 3802,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, Option<Vec<u8>>)> {
        let mut tokens = Tokens::new(text.as_bytes());
        match prepare(&mut tokens)? {
            StatementCommand::Prepare { name, definition } => Some((
                String::from_utf8_lossy(&name).into(),
                definition.map(Vec::from),
            )),
            _ => None,
        }
    }

    #[test]
    fn a_prepare_is_a_parse() {
        let text = |text: &str, types: &[u32]| Some(definition(text.as_bytes(), types).to_vec());
        for (sql, name, definition) in [
            ("P as select $1", "p", text("select $1", &[])),
            (
                "\"P\"\"q\" AS select 1 ; set a = 1",
                "P\"q",
                text("select 1", &[]),
            ),
            (
                "p (int, Text) as select ';', $1 -- a",
                "p",
                text("select ';', $1", &[23, 25]),
            ),
            (
                "p (character varying(20), numeric(10, 2), int[], timestamp (3) with time zone) \
                 as values ($1)",
                "p",
                text("values ($1)", &[1043, 1700, 1007, 1184]),
            ),
            (
                "p(pg_catalog.oid, int) as select $1",
                "p",
                text("select $1", &[26, 23]),
            ),
            ("p (mood) as select $1", "p", None),
            ("p (public.mood, int) as select $1", "p", None),
        ] {
            assert_eq!(read(sql), Some((name.to_string(), definition)), "{sql}");
        }
        for sql in [
            "",
            "p",
            "p (int",
            "p select 1",
            "'p' as select 1",
            "U&\"p\" as select 1",
        ] {
            assert_eq!(read(sql), None, "{sql}");
        }
    }
}
