//! The console's grammar: the ends of commands, and their words.

use crate::limits;
use crate::quotes::quoted;

/// A statement that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sentence {
    /// A command's name, and its argument if it has one.
    Command(String, Option<String>),
    /// SET: a setting's name and its value.
    Set(String, String),
    /// ROUTE
    Route(Box<RouteQuestion>),
}

/// A statement whose shard is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteQuestion {
    /// The sharded database.
    pub database: String,
    /// The statement.
    pub sql: String,
    /// The values of its parameters; `None` is NULL.
    pub values: Vec<Option<String>>,
}

/// The reason why a statement can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// It has no known form.
    Syntax,
    /// A word is too long.
    Arguments,
}

/// Splits a Query into statements, at each `;` outside of quotes. Returns at least one.
pub fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            _ => {}
        }
        if c == ';' && quote.is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    let filled: Vec<String> = parts
        .iter()
        .map(|part| part.trim().to_string())
        .filter(|part| !part.is_empty())
        .collect();
    if filled.is_empty() || parts.len() <= 2 && filled.len() == 1 {
        // The unchanged text with its `;`, because errors repeat it.
        return vec![text.to_string()];
    }
    filled
}

/// The text without comments, each of which becomes a blank. Drivers and tools send comments before
/// statements, or alone.
pub fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut quote = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let comment = match quote {
            None if rest.starts_with("--") => Some(rest.find('\n').unwrap_or(rest.len())),
            None if rest.starts_with("/*") => Some(block_comment(rest)),
            _ => None,
        };
        if let Some(length) = comment {
            kept.push(' ');
            rest = &rest[length..];
            continue;
        }
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            _ => {}
        }
        kept.push(c);
        rest = &rest[c.len_utf8()..];
    }
    kept
}

/// The length of the comment at the start of a text. Comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Reads one statement.
///
/// # Errors
/// Why the statement can't be read.
pub fn read(text: &str) -> Result<Sentence, Unread> {
    let rest = text.trim_start_matches(BLANKS);
    let (name, rest) = word(rest).ok_or(Unread::Syntax)?;
    let after = rest.trim_start_matches(BLANKS);
    if is_end(after) {
        return Ok(Sentence::Command(
            bounded(name, limits::CONSOLE_WORD)?,
            None,
        ));
    }
    if after.len() == rest.len() {
        return Err(Unread::Syntax);
    }
    if name.eq_ignore_ascii_case("route") {
        return route(after).map(|question| Sentence::Route(Box::new(question)));
    }
    let (argument, rest) = match name.to_ascii_lowercase().as_str() {
        "drain_host" | "resume_host" => host_word(after),
        _ => word(after),
    }
    .ok_or(Unread::Syntax)?;
    let after = rest.trim_start_matches(BLANKS);
    if is_end(after) {
        let argument = bounded(argument, limits::CONSOLE_ARGUMENT)?;
        return Ok(Sentence::Command(
            bounded(name, limits::CONSOLE_WORD)?,
            Some(argument),
        ));
    }
    if !name.eq_ignore_ascii_case("set") {
        return Err(Unread::Syntax);
    }
    let after = match after.as_bytes() {
        [b'=', ..] => &after[1..],
        [b't' | b'T', b'o' | b'O', ..] => &after[2..],
        _ => return Err(Unread::Syntax),
    };
    let after = after.trim_start_matches(BLANKS);
    let (value, rest) = quoted(after, '\'')
        .or_else(|| word(after))
        .ok_or(Unread::Syntax)?;
    if !is_end(rest.trim_start_matches(BLANKS)) {
        return Err(Unread::Syntax);
    }
    if argument.is_empty() {
        return Err(Unread::Arguments);
    }
    Ok(Sentence::Set(
        bounded(argument, limits::CONSOLE_ARGUMENT)?,
        bounded(value, limits::CONSOLE_VALUE)?,
    ))
}

/// Reads `prod 'SELECT ...' [value ...]`: values as texts, in quotes or of one word, or NULL.
fn route(text: &str) -> Result<RouteQuestion, Unread> {
    let (database, rest) = word(text).ok_or(Unread::Syntax)?;
    let rest = rest.trim_start_matches(BLANKS);
    let (sql, mut rest) = quoted(rest, '\'').ok_or(Unread::Syntax)?;
    let mut values = Vec::new();
    loop {
        let after = rest.trim_start_matches(BLANKS);
        if is_end(after) {
            return Ok(RouteQuestion {
                database: bounded(database, limits::CONSOLE_ARGUMENT)?,
                sql,
                values,
            });
        }
        if after.len() == rest.len() {
            return Err(Unread::Syntax);
        }
        if after.starts_with('\'') {
            let (value, behind) = quoted(after, '\'').ok_or(Unread::Syntax)?;
            values.push(Some(value));
            rest = behind;
            continue;
        }
        let end = after.find(|c| BLANKS.contains(&c) || c == ';');
        let (value, behind) = after.split_at(end.unwrap_or(after.len()));
        let is_null = value.eq_ignore_ascii_case("null");
        values.push((!is_null).then(|| value.to_owned()));
        rest = behind;
    }
}

const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

/// True if nothing follows, or a `;`.
fn is_end(rest: &str) -> bool {
    rest.strip_prefix(';')
        .unwrap_or(rest)
        .trim_start_matches(BLANKS)
        .is_empty()
}

/// A word, bare or in double quotes, and the text after it.
pub(super) fn word(text: &str) -> Option<(String, &str)> {
    if text.starts_with('"') {
        return quoted(text, '"');
    }
    let of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c| !of_word(c)).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_string(), &text[end..]))
}

/// A host, which needs no quotes for its dots, colons and hyphens.
fn host_word(text: &str) -> Option<(String, &str)> {
    if text.starts_with('"') {
        return quoted(text, '"');
    }
    let end = text.find(|c: char| BLANKS.contains(&c) || c == ';');
    let end = end.unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_string(), &text[end..]))
}

fn bounded(word: String, max: usize) -> Result<String, Unread> {
    if word.len() <= max {
        Ok(word)
    } else {
        Err(Unread::Arguments)
    }
}

/// True for a text with only blanks and `;`.
pub(super) fn is_empty(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_whitespace() || c == ';')
}
