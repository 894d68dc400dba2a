//! Names of settings in texts.

use crate::effect::token::{Token, Tokens};
use crate::harmless::is_harmless;
use crate::limits;

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
