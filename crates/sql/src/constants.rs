//! The constants of a text. PostgreSQL reads them when it parses the text, and settings may change
//! the result: `'01/02/2020'::date` depends on `DateStyle`.

use crate::token::{Token, Tokens};

/// True if PostgreSQL finds out at a Parse, from what the session has then, which columns a text
/// returns: FETCH and MOVE from its cursors, EXECUTE from its statements of SQL's PREPARE. A server
/// process crashes if such a statement is described after the cursor has gone.
pub fn is_of_one_session(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 3] = [b"execute", b"fetch", b"move"];
    match Tokens::new(text).next() {
        Some(Token::Word(first)) => WORDS.iter().any(|word| word.eq_ignore_ascii_case(first)),
        _ => false,
    }
}

/// Whether constants depend on the time of the Parse: `'now'`, `'today 10:00'`.
pub fn tells_time(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    let has = |inside: &[u8]| {
        let mut words = inside.split(|b| !b.is_ascii_alphabetic());
        words.any(|word| WORDS.iter().any(|one| word.eq_ignore_ascii_case(one)))
    };
    let quoted = |token| matches!(token, Token::Text { inside, .. } if has(inside));
    has(text) && (Tokens::new(text).any(quoted) || Tokens::escaping(text).any(quoted))
}

/// Whether settings may change the constants of a text: `'01/02/2020'::date` is in January or in
/// February. If in doubt, true. Settings change nothing outside of quotes, and no constants of
/// letters only (`status = 'open'`), except `'today'` and the like.
pub fn has_constants(text: &[u8]) -> bool {
    let (mut literals, mut inside, mut outside, mut unsure) = (false, false, false, false);
    let (mut before, mut quote, mut in_parameter) = (0, 0, false);
    for &byte in text {
        // `client_encoding` changes characters that are not ASCII, `standard_conforming_strings` a
        // backslash.
        if byte == b'\\' || !byte.is_ascii() {
            return true;
        }
        let digit = byte.is_ascii_digit();
        in_parameter = digit && (in_parameter || before == b'$');
        inside |= digit && quote == b'\'';
        outside |= digit && quote == 0 && !in_parameter;
        match (before, byte) {
            (_, quoted) if quote != 0 => quote = if quoted == quote { 0 } else { quote },
            (_, b'\'' | b'"') => quote = byte,
            // Comments may contain quotes. A dollar begins a quote, unless it begins a parameter.
            (b'-', b'-') | (b'/', b'*') => unsure = true,
            (b'$', _) if !digit => (literals, unsure) = (true, true),
            _ => {}
        }
        literals |= quote == b'\'';
        before = byte;
    }
    const WORDS: [&[u8]; 3] = [b"now", b"day", b"morrow"];
    let has = |word: &&[u8]| {
        let mut parts = text.windows(word.len());
        parts.any(|part| part.eq_ignore_ascii_case(word))
    };
    literals && (inside || unsure && (outside || quote != 0) || WORDS.iter().any(has))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_change_some_constants() {
        for (text, expected) in [
            ("select $1, t0.a from t0 limit 10", false),
            ("select * from t where status = 'open' and a = $12", false),
            ("select 1, 'it''s', \"it's\", t1.\"2\" from \"a'b1\"", false),
            ("select 1 -- don't\n, 'x', '1'", true),
            ("select /* ' */ 'x' || 1", true),
            ("select '01/02/2020'::date", true),
            ("select timestamptz 'Tomorrow'", true),
            ("select $a$2020-01-02$a$::date", true),
            ("select $$today$$::date", true),
            ("select 'a\\b'", true),
            ("select '\u{e4}'", true),
            ("", false),
        ] {
            assert_eq!(has_constants(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn some_constants_tell_the_time() {
        for (text, expected) in [
            ("select 'now'::timestamptz", true),
            ("select * from o where d >= ' Today'", true),
            ("select date 'yesterday', 1", true),
            ("select '[today,tomorrow)'::daterange", true),
            ("select $a$tomorrow 10:00$a$::timestamp", true),
            ("select 'today10:00'::timestamp", true),
            ("select now(), today from t where a = 'x'", false),
            ("select 'unknown', 'Monday', 'holiday' from t", false),
            ("select 'x' -- right now\n, 'it''s'", false),
        ] {
            assert_eq!(tells_time(text.as_bytes()), expected, "{text}");
        }
    }
}
