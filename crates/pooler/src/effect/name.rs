//! Names of settings in texts.

use crate::effect::token::{Token, Tokens};
use crate::limits;

/// The settings that end with the transaction, however they are set.
pub(super) const OF_TRANSACTIONS: [&[u8]; 3] = [
    b"transaction_isolation",
    b"transaction_read_only",
    b"transaction_deferrable",
];

/// A name as it is kept, if it is one whose spelling is certain.
pub(super) fn name_of(name: &[u8]) -> Option<Box<[u8]>> {
    let sure = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$');
    // `set_config` takes longer names, which no RESET can name.
    let short = name
        .split(|b| *b == b'.')
        .all(|part| part.len() <= limits::NAME);
    let sure = !name.is_empty() && name.len() <= 4 * limits::NAME && short && name.iter().all(sure);
    sure.then(|| name.to_ascii_lowercase().into())
}

/// The name of a setting; `TIME ZONE` is one. `None` if it can't be read for sure.
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

/// The name of a setting as it is kept, if it is one whose spelling is certain.
pub fn setting_name(name: &[u8]) -> Option<Box<[u8]>> {
    name_of(name)
}

/// By this setting, names are looked for.
pub(super) fn is_naming(name: &[u8]) -> bool {
    const NAMING: [&[u8]; 3] = [b"search_path", b"role", b"session_authorization"];
    NAMING.contains(&name)
}
