//! Texts that only read, and may run on a standby.
//!
//! A **read** is one SELECT, VALUES, TABLE or WITH without any word by which a command writes or
//! locks rows, without a name that tells of one host only (`pg_...`, a sequence's columns), and
//! without a call of a volatile function. PostgreSQL knows which functions are volatile; the text
//! only shows which names it calls. A text whose tokens are not certain is no read.
//!
//! No text shows what views, operators, casts and the functions that it calls do themselves.

use crate::called::{CalledName, VolatileNames};
use crate::limits;
use crate::token::{Token, Tokens};

/// True if a text is a read in a database with these volatile functions.
#[inline]
pub fn is_read(text: &[u8], volatile: &VolatileNames) -> bool {
    may_be(text) && reads(text, |name| !volatile.has(name))
}

/// The names that a text calls, sorted: the text is a read unless one of them is volatile. `None`
/// for a text that is no read in any database.
pub fn called_names(text: &[u8]) -> Option<Vec<CalledName>> {
    let mut names = Vec::new();
    let reads = may_be(text)
        && reads(text, |name| {
            names.push(name);
            true
        });
    names.sort_unstable();
    names.dedup();
    names.shrink_to_fit();
    reads.then_some(names)
}

/// A first look, in a few instructions: false for most texts that are no read.
#[inline]
fn may_be(text: &[u8]) -> bool {
    let begins = match text {
        [b's' | b'S', b'e' | b'E', ..] => true,
        [b'w' | b'W' | b'v' | b'V' | b't' | b'T', ..] => true,
        // Blanks, a comment, a parenthesis.
        [b' ' | b'\t'..=b'\r' | b'-' | b'/' | b'(', ..] => true,
        _ => false,
    };
    begins && text.len() <= limits::READ
}

/// What stands before a token, as far as it matters.
#[derive(Clone, Copy)]
enum Before<'a> {
    /// A name: a parenthesis behind it calls the function.
    Name(&'a [u8]),
    /// A dot: the name behind it may be a column, or call a function.
    Dot,
    /// FOR: a lock may follow.
    For,
    Other,
}

/// Reads a text. `may_call` hears of each name that is called, perhaps several times; if it says
/// false, the text is no read.
fn reads(text: &[u8], mut may_call: impl FnMut(CalledName) -> bool) -> bool {
    // An encoding may make other names of such characters.
    if !text.is_ascii() && !may_call(CalledName::FOREIGN) {
        return false;
    }
    let mut tokens = Tokens::new(text);
    if !begins(&mut tokens) {
        return false;
    }
    let (mut before, mut over) = (Before::Other, false);
    while let Some(token) = tokens.take_next() {
        if over && token != Token::Sign(b';') {
            return false;
        }
        let name = match token {
            Token::Word(word) => {
                match keyword(word) {
                    Keyword::Forbidden => return false,
                    Keyword::Lock if matches!(before, Before::For) => return false,
                    Keyword::For => {
                        before = Before::For;
                        continue;
                    }
                    Keyword::Lock | Keyword::None => word,
                }
            }
            Token::Quoted(name) => {
                if is_of_one_host(name) {
                    return false;
                }
                name
            }
            Token::Sign(sign) => {
                match sign {
                    b'(' => {
                        if let Before::Name(name) = before
                            && !may_call(CalledName::of(name))
                        {
                            return false;
                        }
                    }
                    b'.' => {
                        before = Before::Dot;
                        continue;
                    }
                    b';' => over = true,
                    // The dot of `$1.name` belongs to no number.
                    b'$' => tokens.pass_digits(),
                    0 => return false,
                    _ => {}
                }
                before = Before::Other;
                continue;
            }
            Token::Unicode => return false,
            Token::Text { .. } => {
                before = Before::Other;
                continue;
            }
        };
        before = match before {
            Before::Dot if !may_call(CalledName::of(name)) => return false,
            Before::Dot => Before::Other,
            _ => Before::Name(name),
        };
    }
    !tokens.is_cut() && !tokens.is_unsure()
}

/// Passes over the parentheses and the word that a read begins with.
#[inline(always)]
fn begins(tokens: &mut Tokens<'_>) -> bool {
    loop {
        match tokens.next() {
            Some(Token::Sign(b'(')) => {}
            Some(Token::Word(word)) => {
                return is(word, b"select")
                    || is(word, b"with")
                    || is(word, b"values")
                    || is(word, b"table");
            }
            _ => return false,
        }
    }
}

/// What a word without quotes says.
enum Keyword {
    /// No read has the word.
    Forbidden,
    For,
    /// No read has the word behind FOR.
    Lock,
    None,
}

#[inline(always)]
fn keyword(word: &[u8]) -> Keyword {
    let forbidden = match word[0] | 0x20 {
        // INTO creates a table, and `FOR UPDATE` locks rows.
        b'i' => is(word, b"insert") || is(word, b"into") || is_of_one_host(word),
        b'u' => is(word, b"update"),
        b'd' => is(word, b"delete"),
        b'm' => is(word, b"merge"),
        b'p' | b't' | b'c' | b'l' => is_of_one_host(word),
        b'f' if is(word, b"for") => return Keyword::For,
        // `FOR SHARE`, `FOR KEY SHARE`, `FOR NO KEY UPDATE`.
        b's' if is(word, b"share") => return Keyword::Lock,
        b'k' if is(word, b"key") => return Keyword::Lock,
        b'n' if is(word, b"no") => return Keyword::Lock,
        _ => false,
    };
    if forbidden {
        Keyword::Forbidden
    } else {
        Keyword::None
    }
}

/// A name of PostgreSQL that means something else on each host, or belongs to a sequence.
fn is_of_one_host(name: &[u8]) -> bool {
    match name.first().map_or(0, |byte| byte | 0x20) {
        b'p' => begins_with(name, b"pg_"),
        b't' => begins_with(name, b"txid_"),
        b'i' => {
            begins_with(name, b"inet_")
                || is(name, b"information_schema")
                || is(name, b"is_called")
        }
        b'c' => is(name, b"current_setting"),
        b'l' => is(name, b"last_value") || is(name, b"log_cnt"),
        _ => false,
    }
}

/// Whether a word is this one, in any case.
#[inline(always)]
fn is<const LENGTH: usize>(word: &[u8], other: &[u8; LENGTH]) -> bool {
    word.len() == LENGTH && begins_with(word, other)
}

/// Whether a word begins with this part, in any case.
#[inline(always)]
fn begins_with<const LENGTH: usize>(word: &[u8], part: &[u8; LENGTH]) -> bool {
    { word.first_chunk::<LENGTH>() }
        .is_some_and(|front| front.map(|byte| byte | 0x20) == part.map(|byte| byte | 0x20))
}
