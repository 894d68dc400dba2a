//! The small part of SQL that the simulated PostgreSQL knows.
//!
//! Clients' statements have a [`Token`] that names their client. It is in the text of a Query, or is the only
//! parameter of a prepared statement.

use std::fmt;

use crate::schema::{Change, Shape, TABLES};
use crate::sharding::{Key, Place};

mod object;

pub use object::Object;

/// The name of one execution: its client, and a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token {
    /// The client.
    pub client: u32,
    /// The number of the client's statement.
    pub number: u32,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.client, self.number)
    }
}

impl Token {
    /// Reads the text that `Display` writes.
    pub fn read(text: &str) -> Option<Token> {
        let (client, number) = text.strip_prefix('c')?.split_once('.')?;
        Some(Token {
            client: client.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// The author of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Author {
    /// A token in the text.
    Token(Token),
    /// A token in the statement's parameter.
    Parameter,
    /// The pooler, or an unknown author: no client.
    Nobody,
}

/// One statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sql {
    /// An empty statement.
    Empty,
    /// A statement with rows.
    Select {
        /// The author.
        author: Author,
        /// The duration in milliseconds.
        slow: u32,
        /// The number of rows.
        rows: u32,
        /// The least size of each row, in bytes.
        size: u32,
        /// A NOTICE comes before the rows.
        notice: bool,
        /// The table whose columns the rows have.
        from: Option<usize>,
        /// Where it must run.
        place: Place,
    },
    /// A change that a transaction commits or rolls back. It may need a table, and a place to run.
    Insert(Author, Option<usize>, Place),
    /// DDL.
    Ddl {
        /// The author.
        author: Author,
        /// The changed table.
        table: usize,
        /// The change.
        change: Change,
        /// A function makes the change, so the command tag does not show it.
        hidden: bool,
    },
    /// A statement that fails, where it must run.
    Fail(Author, Place),
    /// BEGIN, or START TRANSACTION.
    Begin(Modes),
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SET, or with `true` SET LOCAL.
    Set(String, String, bool),
    /// Calls of `set_config`: a value for each name, or none for a reset.
    Change(Vec<(String, Option<String>)>),
    /// SHOW.
    Show(String),
    /// RESET of one setting, or all.
    Reset(Option<String>),
    /// DISCARD ALL.
    DiscardAll,
    /// DDL that changes no table.
    Create,
    /// DEALLOCATE of one statement, or all.
    Deallocate(Option<String>),
    /// PREPARE name AS text.
    Prepare(String, String),
    /// LISTEN.
    Listen(String, Author),
    /// UNLISTEN of one channel, or all.
    Unlisten(Option<String>, Author),
    /// NOTIFY. It may be in a function that a SELECT calls, visible in the text or not.
    Notify {
        /// The channel.
        channel: String,
        /// The author, which is also the payload.
        author: Author,
        /// A SELECT notifies.
        by_select: bool,
        /// The text shows the NOTIFY.
        shown: bool,
    },
    /// A statement about an object that may outlive a transaction.
    Object(Object),
    /// SAVEPOINT.
    Savepoint(String),
    /// ROLLBACK TO.
    RollbackTo(String),
    /// EXECUTE name.
    Execute(String, Author),
    /// COPY ... FROM STDIN.
    CopyIn(Author),
    /// COPY ... TO STDOUT: rows and their size.
    CopyOut(Author, u32, u32),
    /// The pooler's questions about a session: settings, then whether objects of some kinds are
    /// left.
    Ask(Vec<Asked>),
    /// A text that can't be read.
    Unreadable,
}

/// The modes of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Modes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// ISOLATION LEVEL SERIALIZABLE.
    pub serializable: bool,
}

impl Modes {
    fn read(lower: &str) -> Modes {
        let says = |words| lower.contains(words);
        Modes {
            read_only: (says("read only") || says("read write")).then(|| says("read only")),
            serializable: says("serializable"),
        }
    }
}

/// One column of the pooler's questions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A setting's value, in hexadecimal digits.
    Setting(String),
    /// Whether SQL's PREPARE has made statements.
    Prepared,
    /// Whether the session listens.
    Listens,
    /// The session's channels, in hexadecimal digits.
    Channels,
    /// Whether the session has advisory locks.
    Locks,
    /// Whether the session has temporary tables.
    Tables,
    /// Whether the session has cursors.
    Cursors,
    /// Whether the session has an object that this world does not know.
    Other,
}

impl Sql {
    /// True if the statement ends a transaction: it is allowed in a failed one.
    pub fn is_exit(&self) -> bool {
        matches!(self, Sql::Commit | Sql::Rollback | Sql::RollbackTo(_))
    }

    /// True if the statement may change settings.
    pub fn sets(&self) -> bool {
        matches!(
            self,
            Sql::Set(..)
                | Sql::Change(_)
                | Sql::Reset(_)
                | Sql::DiscardAll
                | Sql::Commit
                | Sql::Rollback
        )
    }

    /// True if a standby refuses the statement.
    pub fn writes(&self) -> bool {
        let changes = matches!(self, Sql::Insert(..) | Sql::Ddl { .. } | Sql::CopyIn(_));
        changes || matches!(self, Sql::Object(Object::Next(_)))
    }

    /// True if the statement returns rows.
    pub fn has_rows(&self) -> bool {
        matches!(
            self,
            Sql::Select { .. }
                | Sql::Show(_)
                | Sql::Ddl { hidden: true, .. }
                | Sql::Notify {
                    by_select: true,
                    ..
                }
        ) || matches!(self, Sql::Object(object) if object.has_rows())
    }

    /// True if a pooler keeps the server because of the statement.
    pub fn keeps_server(&self) -> bool {
        match self {
            Sql::Object(object) => object.keeps(),
            _ => matches!(self, Sql::Prepare(..)),
        }
    }

    /// The table without which the statement can't be parsed.
    pub fn table(&self) -> Option<usize> {
        match self {
            Sql::Select { from, .. } => *from,
            Sql::Insert(_, into, _) => *into,
            _ => None,
        }
    }

    /// Where the statement must run; `None` for commands.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Sql::Select { place, .. } | Sql::Insert(_, _, place) | Sql::Fail(_, place) => {
                Some(place)
            }
            _ => None,
        }
    }

    /// The statement's token, if its text has one.
    pub fn token(&self) -> Option<Token> {
        match self.author()? {
            Author::Token(token) => Some(*token),
            _ => None,
        }
    }

    fn author(&self) -> Option<&Author> {
        match self {
            Sql::Select { author, .. }
            | Sql::Ddl { author, .. }
            | Sql::Insert(author, ..)
            | Sql::Fail(author, _)
            | Sql::Listen(_, author)
            | Sql::Unlisten(_, author)
            | Sql::Notify { author, .. }
            | Sql::CopyIn(author)
            | Sql::CopyOut(author, ..) => Some(author),
            _ => None,
        }
    }

    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        let has_key = self
            .place()
            .is_some_and(|place| place.key == Key::Parameter);
        usize::from(self.author() == Some(&Author::Parameter)) + usize::from(has_key)
    }

    /// Reads one statement.
    pub fn read(text: &str) -> Sql {
        read(text).unwrap_or(Sql::Unreadable)
    }
}

/// Splits a text at its semicolons, except those in quotes. Empty statements are left out.
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
    let place = Place::read(text);
    let text = text.trim();
    let text = match text.strip_prefix("/*") {
        Some(comment) => comment.split_once("*/")?.1.trim(),
        None => text,
    };
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let lower = rest.to_ascii_lowercase();
    if let Some(object) = Object::read(&first.to_ascii_lowercase(), &lower) {
        return Some(Sql::Object(object));
    }
    Some(match first.to_ascii_lowercase().as_str() {
        "" => Sql::Empty,
        "select" => select(rest, place)?,
        "insert" if rest.starts_with("into items") => {
            let (_, last) = rest.split_once(')')?.0.rsplit_once(' ')?;
            match rest.contains("fails") {
                true => Sql::Fail(author(last), place),
                false => Sql::Insert(author(last), None, place),
            }
        }
        "insert" => Sql::Insert(author(rest), table(rest, "into"), place),
        "with" => Sql::Insert(author(rest.split_once("insert")?.1), None, place),
        "alter" | "drop" => ddl(&first.to_ascii_lowercase(), rest, rest, false)?,
        "create" if rest.starts_with("table ") => ddl("create", rest, rest, false)?,
        "fail" => Sql::Fail(author(rest), place),
        "begin" => Sql::Begin(Modes::read(&lower)),
        "start" if lower.starts_with("transaction") => Sql::Begin(Modes::read(&lower)),
        "commit" | "end" => Sql::Commit,
        "rollback" if lower.starts_with("to ") => Sql::RollbackTo(rest[3..].into()),
        "rollback" => Sql::Rollback,
        "savepoint" => Sql::Savepoint(rest.into()),
        "listen" => {
            let (name, rest) = channel(rest)?;
            Sql::Listen(name, remark(rest))
        }
        "unlisten" => match rest.strip_prefix('*') {
            Some(rest) => Sql::Unlisten(None, remark(rest)),
            None => {
                let (name, rest) = channel(rest)?;
                Sql::Unlisten(Some(name), remark(rest))
            }
        },
        "notify" => {
            let (channel, rest) = channel(rest)?;
            Sql::Notify {
                channel,
                author: author(rest.trim_start_matches(',')),
                by_select: false,
                shown: true,
            }
        }
        "show" => Sql::Show(rest.into()),
        "set" => set(rest)?,
        "reset" if lower == "all" => Sql::Reset(None),
        "reset" => Sql::Reset(Some(rest.trim_matches('"').into())),
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

fn select(rest: &str, place: Place) -> Option<Sql> {
    if let Some(call) = rest.strip_prefix("pg_notify('") {
        let (channel, call) = call.split_once('\'')?;
        return Some(Sql::Notify {
            channel: channel.into(),
            author: author(call.trim_start_matches(',').trim_end_matches(')')),
            by_select: true,
            shown: true,
        });
    }
    if let Some((whose, name)) = rest.split_once(" tells ") {
        return Some(Sql::Notify {
            channel: channel(name)?.0,
            author: author(whose),
            by_select: true,
            shown: false,
        });
    }
    // The listener's first query: this world does not have its setting.
    if rest.starts_with("pg_catalog.set_config(name,") {
        return Some(Sql::Ask(Vec::new()));
    }
    if rest.starts_with("pg_catalog.set_config(") {
        return set_config(rest);
    }
    let asks = [
        "pg_catalog.encode(",
        "CASE WHEN (SELECT source",
        "EXISTS(",
        "(SELECT pg_catalog.string_agg(",
    ];
    if asks.iter().any(|start| rest.starts_with(start)) {
        return Some(Sql::Ask(asked(rest)));
    }
    for (word, verb) in [
        ("alters", "alter"),
        ("drops", "drop"),
        ("creates", "create"),
    ] {
        if let Some((front, what)) = rest.split_once(&format!(" {word} ")) {
            return ddl(verb, what, front, true);
        }
    }
    Some(Sql::Select {
        from: table(rest, "from"),
        author: author(rest),
        slow: number(rest, "slow", 0),
        rows: number(rest, "rows", 1),
        size: number(rest, "size", 0),
        notice: rest.contains(" notice"),
        place,
    })
}

/// Reads calls of `set_config`, with commas between them.
fn set_config(mut rest: &str) -> Option<Sql> {
    let mut all = Vec::new();
    loop {
        let (name, call) = literal(rest.strip_prefix("pg_catalog.set_config(")?)?;
        let call = call.strip_prefix(',')?;
        let (value, call) = match call.strip_prefix("NULL") {
            Some(call) => (None, call),
            None => literal(call).map(|(value, call)| (Some(value), call))?,
        };
        if let Some("") = call.strip_prefix(",true)") {
            return Some(Sql::Set(name, value?, true));
        }
        all.push((name, value));
        match call.strip_prefix(",false)")?.strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    Some(match &all[..] {
        [(name, Some(value))] => Sql::Set(name.clone(), value.clone(), false),
        _ => Sql::Change(all),
    })
}

fn asked(text: &str) -> Vec<Asked> {
    let settings = text.split("current_setting('").skip(1);
    let settings = settings.filter_map(|rest| Some(rest.split_once('\'')?.0));
    let others = text.split("EXISTS(").skip(1);
    let others = others.map(|rest| {
        let question = rest.split_once(')').map_or(rest, |(question, _)| question);
        match question {
            _ if question.contains("pg_prepared_statements") => Asked::Prepared,
            _ if question.contains("pg_listening_channels") => Asked::Listens,
            _ if question.contains("pg_depend") => Asked::Tables,
            _ if question.contains("pg_cursors") => Asked::Cursors,
            _ if question.contains("pg_locks") => Asked::Locks,
            _ => Asked::Other,
        }
    });
    let settings = settings.map(|name| Asked::Setting(name.into()));
    let names = text.contains("AS listening(channel)");
    let names = names.then_some(Asked::Channels);
    settings.chain(others).chain(names).collect()
}

/// Reads DDL: `table t0`, perhaps a shape's number, and the author.
fn ddl(verb: &str, rest: &str, whose: &str, hidden: bool) -> Option<Sql> {
    let table = table(rest, "table")?;
    let shape = || {
        let number = rest.split_whitespace().nth(2)?.parse().ok()?;
        Shape::read(number)
    };
    let change = match verb {
        "alter" => Change::Alter(shape()?),
        "create" => Change::Create(shape()?),
        _ => Change::Drop,
    };
    let author = if hidden {
        author(whose)
    } else {
        author(whose.split_whitespace().last().unwrap_or(""))
    };
    Some(Sql::Ddl {
        author,
        table,
        change,
        hidden,
    })
}

/// The table after a word.
fn table(rest: &str, word: &str) -> Option<usize> {
    let mut words = rest.split_whitespace();
    words.find(|found| *found == word)?;
    let number = words.next()?.strip_prefix('t')?.parse().ok()?;
    (number < TABLES).then_some(number)
}

/// A channel's name, and the text after it.
fn channel(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, rest) = quoted.split_once('"')?;
        return Some((name.into(), rest));
    }
    let end = text.find([' ', ',']).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_ascii_lowercase(), &text[end..]))
}

/// The author in a comment.
fn remark(rest: &str) -> Author {
    author(rest.trim().trim_start_matches("/*"))
}

/// The author in the first word.
fn author(rest: &str) -> Author {
    let word = rest.split_whitespace().next().unwrap_or("");
    match Token::read(word.trim_matches('\'')) {
        Some(token) => Author::Token(token),
        None if word == "$1" => Author::Parameter,
        None => Author::Nobody,
    }
}

/// The number after a word.
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
    let (first, behind) = rest.split_once(' ').unwrap_or((rest, ""));
    let (rest, local) = if first.eq_ignore_ascii_case("local") {
        (behind, true)
    } else {
        (rest, false)
    };
    let (name, value) = rest.split_once('=')?;
    let value = match value.trim() {
        "0" => "0".to_owned(),
        quoted => literal(quoted)?.0,
    };
    Some(Sql::Set(name.trim().into(), value, local))
}

/// A literal's value, and the text after it.
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
                from: None,
                place: Place::default(),
            }
        );
        assert_eq!(
            Sql::read("alter table t1 2 'c3.14'"),
            Sql::Ddl {
                author: Author::Token(token),
                table: 1,
                change: Change::Alter(Shape::read(2).expect("there is one")),
                hidden: false,
            }
        );
        assert_eq!(
            Sql::read("select $1 drops table t0"),
            Sql::Ddl {
                author: Author::Parameter,
                table: 0,
                change: Change::Drop,
                hidden: true,
            }
        );
        assert_eq!(Sql::read("select $1 from t1 rows 2 v9").table(), Some(1));
        assert_eq!(
            Sql::read("SET TimeZone=E'it''s\\\\'"),
            Sql::Set("TimeZone".into(), "it's\\".into(), false)
        );
        let placed = Sql::read("insert into items values ($2, $1) /* at 1 block 7 */");
        let place = Place {
            key: Key::Parameter,
            shard: Some(1),
            block: Some(7),
            ..Place::default()
        };
        assert_eq!(placed, Sql::Insert(Author::Parameter, None, place));
        assert_eq!(placed.parameters(), 2);
        assert_eq!(Sql::read("garbage"), Sql::Unreadable);
        assert_eq!(split("a;'b;c';; d"), ["a", "'b;c'", " d"]);
    }
}
