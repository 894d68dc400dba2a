//! Names in texts.

use crate::harmless::is_harmless;
use crate::limits;
use crate::token::{Token, Tokens, undoubled};

/// Settings that always end with the transaction.
pub(super) const OF_TRANSACTIONS: [&[u8]; 3] = [
    b"transaction_isolation",
    b"transaction_read_only",
    b"transaction_deferrable",
];

/// The stored form of a setting's name; `None` if its spelling is not certain.
pub(super) fn name_of(name: &[u8]) -> Option<Box<[u8]>> {
    let sure = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$');
    // `set_config` accepts longer names, which RESET can't name.
    let short = name
        .split(|b| *b == b'.')
        .all(|part| part.len() <= limits::NAME);
    let sure = !name.is_empty() && name.len() <= 4 * limits::NAME && short && name.iter().all(sure);
    sure.then(|| name.to_ascii_lowercase().into())
}

/// Reads the name of a setting; `TIME ZONE` is `timezone`. `None` if the name is not certain.
pub(super) fn setting(tokens: &mut Tokens<'_>) -> Option<Box<[u8]>> {
    let mut name = Vec::new();
    loop {
        match tokens.next()? {
            Token::Word(word) => {
                let bare = name.is_empty() && word.eq_ignore_ascii_case(b"time");
                if bare && tokens.word(b"zone") {
                    return Some(b"timezone"[..].into());
                }
                name.extend_from_slice(&word[..word.len().min(limits::NAME)]);
            }
            Token::Quoted(word) => name.extend_from_slice(&word[..word.len().min(limits::NAME)]),
            _ => return None,
        }
        if !tokens.sign(b'.') {
            return name_of(&name);
        }
        name.push(b'.');
    }
}

/// The stored form of a setting's name; `None` if its spelling is not certain.
pub fn setting_name(name: &[u8]) -> Option<Box<[u8]>> {
    name_of(name)
}

/// True for settings that change what PostgreSQL makes of a text: where names are looked up, and
/// all others that are not known to be harmless. PostgreSQL reports the changes of a few.
pub(super) fn is_naming(name: &[u8]) -> bool {
    const REPORTED: [&[u8]; 4] = [
        b"client_encoding",
        b"datestyle",
        b"standard_conforming_strings",
        b"timezone",
    ];
    !is_harmless(name) && !REPORTED.contains(&name)
}

/// Reads an identifier: in lower case unless quoted, and not longer than PostgreSQL's names.
pub(super) fn identifier(tokens: &mut Tokens<'_>) -> Option<Box<[u8]>> {
    let mut name = match tokens.next()? {
        Token::Word(name) => name.to_ascii_lowercase(),
        Token::Quoted(name) if !tokens.is_cut() => undoubled(name, b'"'),
        _ => return None,
    };
    if name.len() > limits::NAME {
        // PostgreSQL cuts between two characters.
        let fits = name.is_ascii();
        name.truncate(limits::NAME);
        return fits.then(|| name.into());
    }
    Some(name.into())
}

/// The prefix of Howdah's names of statements on servers.
pub const PREFIX: &[u8] = b"howdah_";

/// A statement on servers that takes the place of a client's statement, where PostgreSQL must
/// deallocate one, or must report that it already exists.
pub const VOID: &[u8] = b"howdah_void";

/// A name on servers that no statement ever has.
pub const UNKNOWN: &[u8] = b"howdah_unknown";

/// True if a name has the form of Howdah's names on servers. Other names with the same prefix are
/// ordinary names.
pub fn is_ours(name: &[u8]) -> bool {
    let hex = |b: &u8| b.is_ascii_digit() || matches!(b, b'a'..=b'f');
    match name.strip_prefix(PREFIX) {
        Some(rest) => name == VOID || name == UNKNOWN || (rest.len() == 32 && rest.iter().all(hex)),
        None => false,
    }
}
