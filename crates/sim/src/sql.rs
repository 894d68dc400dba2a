//! The few words of SQL that the simulated PostgreSQL knows.
//!
//! Statements of clients carry a [`Token`], which names who sent them: in the text of a Query, or
//! as the one parameter of a prepared statement.

use std::fmt;

/// Names one execution: the client that wants it, and a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token {
    /// Which client.
    pub client: u32,
    /// Which of its statements.
    pub number: u32,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.client, self.number)
    }
}

impl Token {
    /// Reads what `Display` wrote.
    pub fn read(text: &str) -> Option<Token> {
        let (client, number) = text.strip_prefix('c')?.split_once('.')?;
        Some(Token {
            client: client.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// Who a statement is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Author {
    /// Written in the text.
    Token(Token),
    /// The statement's parameter says.
    Parameter,
    /// Not one of the clients: the pooler, or somebody who does not say.
    Nobody,
}

/// One statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sql {
    /// Nothing.
    Empty,
    /// Rows.
    Select {
        /// Whose.
        author: Author,
        /// How long it takes, in milliseconds.
        slow: u32,
        /// How many rows.
        rows: u32,
        /// How long each is, in bytes, at least.
        size: u32,
        /// A NOTICE comes first.
        notice: bool,
    },
    /// A change that a transaction keeps or undoes.
    Insert(Author),
    /// An error.
    Fail(Author),
    /// BEGIN.
    Begin,
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SET, with LOCAL or without.
    Set(String, String, bool),
    /// SHOW.
    Show(String),
    /// RESET of one setting, or all.
    Reset(Option<String>),
    /// DISCARD ALL.
    DiscardAll,
    /// DDL.
    Create,
    /// DEALLOCATE of one statement, or all.
    Deallocate(Option<String>),
    /// PREPARE name AS text.
    Prepare(String, String),
    /// EXECUTE name.
    Execute(String, Author),
    /// COPY ... FROM STDIN.
    CopyIn(Author),
    /// COPY ... TO STDOUT: rows and their size.
    CopyOut(Author, u32, u32),
    /// Not SQL.
    Unreadable,
}

impl Sql {
    /// It ends a transaction, so that a failed one takes it.
    pub fn is_exit(&self) -> bool {
        matches!(self, Sql::Commit | Sql::Rollback)
    }

    /// It returns rows.
    pub fn has_rows(&self) -> bool {
        matches!(self, Sql::Select { .. } | Sql::Show(_))
    }

    /// How many parameters it has.
    pub fn parameters(&self) -> usize {
        let of = |author: &Author| usize::from(*author == Author::Parameter);
        match self {
            Sql::Select { author, .. }
            | Sql::Insert(author)
            | Sql::Fail(author)
            | Sql::CopyIn(author)
            | Sql::CopyOut(author, ..) => of(author),
            _ => 0,
        }
    }

    /// Reads one statement.
    pub fn read(text: &str) -> Sql {
        read(text).unwrap_or(Sql::Unreadable)
    }
}

/// Cuts a text at its semicolons, those in quotes excepted; empty statements are left out.
pub fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut quoted) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b';' if !quoted => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn read(text: &str) -> Option<Sql> {
    let text = text.trim();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let lower = rest.to_ascii_lowercase();
    Some(match first.to_ascii_lowercase().as_str() {
        "" => Sql::Empty,
        "select" => select(rest)?,
        "insert" => Sql::Insert(author(rest)),
        "fail" => Sql::Fail(author(rest)),
        "begin" => Sql::Begin,
        "commit" => Sql::Commit,
        "rollback" => Sql::Rollback,
        "show" => Sql::Show(rest.into()),
        "set" => set(rest)?,
        "reset" if lower == "all" => Sql::Reset(None),
        "reset" => Sql::Reset(Some(rest.into())),
        "discard" if lower == "all" => Sql::DiscardAll,
        "create" => Sql::Create,
        "deallocate" if lower == "all" => Sql::Deallocate(None),
        "deallocate" => Sql::Deallocate(Some(rest.into())),
        "prepare" => {
            let (name, text) = rest.split_once(" as ")?;
            Sql::Prepare(name.into(), text.into())
        }
        "execute" => {
            let (name, token) = rest.split_once(' ')?;
            Sql::Execute(name.into(), author(token))
        }
        "copyin" => Sql::CopyIn(author(rest)),
        "copyout" => Sql::CopyOut(
            author(rest),
            number(rest, "rows", 3),
            number(rest, "size", 20),
        ),
        _ => return None,
    })
}

fn select(rest: &str) -> Option<Sql> {
    if let Some(value) = rest.strip_prefix("pg_catalog.set_config('search_path',") {
        let (value, _) = literal(value)?;
        return Some(Sql::Set("search_path".into(), value, false));
    }
    Some(Sql::Select {
        author: author(rest),
        slow: number(rest, "slow", 0),
        rows: number(rest, "rows", 1),
        size: number(rest, "size", 0),
        notice: rest.contains(" notice"),
    })
}

/// The first word that says whose it is.
fn author(rest: &str) -> Author {
    let word = rest.split_whitespace().next().unwrap_or("");
    match Token::read(word.trim_matches('\'')) {
        Some(token) => Author::Token(token),
        None if word == "$1" => Author::Parameter,
        None => Author::Nobody,
    }
}

/// The number behind a word.
fn number(rest: &str, name: &str, default: u32) -> u32 {
    let mut words = rest.split_whitespace();
    while let Some(word) = words.next() {
        if word == name {
            return words.next().and_then(|n| n.parse().ok()).unwrap_or(default);
        }
    }
    default
}

fn set(rest: &str) -> Option<Sql> {
    let (rest, local) = match rest.strip_prefix("local ") {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let (name, value) = rest.split_once('=')?;
    let (value, _) = literal(value.trim())?;
    Some(Sql::Set(name.trim().into(), value, local))
}

/// A literal's value, and what follows it.
fn literal(text: &str) -> Option<(String, &str)> {
    let (escaped, text) = match text.strip_prefix('E') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let text = text.strip_prefix('\'')?;
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '\'' if chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                chars.next();
                value.push('\'');
            }
            '\'' => return Some((value, &text[at + 1..])),
            '\\' if escaped => value.push(chars.next()?.1),
            _ => value.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_read() {
        let token = Token {
            client: 3,
            number: 14,
        };
        assert_eq!(Token::read(&token.to_string()), Some(token));
        assert_eq!(
            Sql::read("select 'c3.14' slow 5 rows 2"),
            Sql::Select {
                author: Author::Token(token),
                slow: 5,
                rows: 2,
                size: 0,
                notice: false,
            }
        );
        assert_eq!(
            Sql::read("SET TimeZone=E'it''s\\\\'"),
            Sql::Set("TimeZone".into(), "it's\\".into(), false)
        );
        assert_eq!(Sql::read("garbage"), Sql::Unreadable);
        assert_eq!(split("a;'b;c';; d"), ["a", "'b;c'", " d"]);
    }
}
