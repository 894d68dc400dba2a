//! The channels that a text listens to, if the text shows them for certain.

use super::Kinds;
use super::token::{Token, Tokens, undoubled};
use crate::limits;

/// The channels of a text's LISTEN and UNLISTEN commands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListenCommands {
    /// Channels of LISTEN.
    pub listens: Vec<Box<[u8]>>,
    /// Channels of UNLISTEN.
    pub unlistens: Vec<Box<[u8]>>,
    /// `UNLISTEN *` ends all earlier LISTENs.
    pub unlistens_all: bool,
    /// All UNLISTEN commands follow the COMMIT or ROLLBACK of an earlier transaction, and the text
    /// has no other transaction command.
    pub outside: bool,
}

impl ListenCommands {
    fn unlistens(&self) -> bool {
        self.unlistens_all || !self.unlistens.is_empty()
    }
}

/// The first words of transaction commands. The first four end a transaction if nothing follows
/// them.
const TRANSACTION: [&[u8]; 8] = [
    b"commit",
    b"end",
    b"rollback",
    b"abort",
    b"begin",
    b"start",
    b"savepoint",
    b"release",
];

/// The channels of a text with these kinds. `None` if a name, or whether a command runs at all, is
/// not certain: in the body of a DO, in a PREPARE, for names that are not plain ASCII or too long,
/// and where a string may end in two places.
pub(super) fn channels(text: &[u8], kinds: Kinds) -> Option<Box<ListenCommands>> {
    if !kinds.any(Kinds::LISTENS.and(Kinds::UNLISTENS)) || kinds.any(Kinds::PREPARES) {
        return None;
    }
    if memchr::memchr(b'\\', text).is_some() {
        return None;
    }
    let mut found = ListenCommands::default();
    let mut tokens = Tokens::new(text);
    let mut begins = true;
    let mut transactions = 0;
    while let Some(token) = tokens.next() {
        let first = std::mem::replace(&mut begins, token == Token::Sign(b';'));
        let Token::Word(word) = token else { continue };
        if !first {
            continue;
        }
        let is = |keyword: &[u8]| word.eq_ignore_ascii_case(keyword);
        if is(b"do") {
            return None;
        }
        if is(b"listen") {
            found.listens.push(name(&mut tokens)?);
        } else if is(b"unlisten") {
            if tokens.sign(b'*') {
                found.unlistens_all = true
            } else {
                found.unlistens.push(name(&mut tokens)?)
            }
        } else if let Some(at) = TRANSACTION.iter().position(|keyword| is(keyword)) {
            let mut behind = tokens;
            let _ = behind.word(b"work") || behind.word(b"transaction");
            let ends = at < 4 && behind.next() == Some(Token::Sign(b';'));
            transactions += 1;
            found.outside = ends && transactions == 1 && !found.unlistens();
        }
        if found.listens.len() + found.unlistens.len() > limits::CHANNELS_TOLD {
            return None;
        }
    }
    let tells = |kind, told| !kinds.any(kind) || told;
    let listens = tells(Kinds::LISTENS, !found.listens.is_empty());
    let all = listens && tells(Kinds::UNLISTENS, found.unlistens()) && !tokens.is_cut();
    all.then(|| Box::new(found))
}

fn name(tokens: &mut Tokens<'_>) -> Option<Box<[u8]>> {
    let name: Box<[u8]> = match tokens.next()? {
        Token::Word(name) => name.to_ascii_lowercase().into(),
        Token::Quoted(name) => undoubled(name, b'"').into(),
        _ => return None,
    };
    let plain = name.is_ascii() && !name.is_empty() && name.len() <= limits::NAME;
    // Only the next command may follow a name.
    let mut ahead = *tokens;
    let ends = matches!(ahead.next(), None | Some(Token::Sign(b';')));
    (plain && ends).then_some(name)
}

#[cfg(test)]
mod tests {
    use crate::effects;

    fn told(text: &str) -> Option<(String, String)> {
        let channels = effects(text.as_bytes()).channels?;
        let join = |names: &[Box<[u8]>]| {
            let names = names.iter().map(|name| String::from_utf8_lossy(name));
            names.collect::<Vec<_>>().join(" ")
        };
        let mut gone = join(&channels.unlistens);
        if channels.unlistens_all {
            gone.push('*');
        }
        Some((join(&channels.listens), gone))
    }

    #[test]
    fn whether_unlisten_is_outside_of_a_block() {
        for (text, expected) in [
            ("rollback; unlisten *; reset all", true),
            ("COMMIT; unlisten a; unlisten b", true),
            ("select 1; end; unlisten a", true),
            ("unlisten a", false),
            ("begin; unlisten a; end", false),
            ("unlisten a; rollback", false),
            ("rollback to s; unlisten a", false),
            ("commit and chain; unlisten a", false),
            ("commit; begin; unlisten a", false),
            ("commit; unlisten a; begin", false),
        ] {
            let channels = effects(text.as_bytes()).channels;
            assert_eq!(channels.map(|c| c.outside), Some(expected), "{text}");
        }
    }

    #[test]
    fn names_are_told_where_they_are_certain() {
        for (text, listens, unlistens) in [
            ("listen a", "a", ""),
            ("LISTEN News;", "news", ""),
            ("/* x */ listen \"A\"\"b c\"", "A\"b c", ""),
            (
                "begin; listen a; select 'listen b'; listen c; commit",
                "a c",
                "",
            ),
            ("unlisten a", "", "a"),
            ("select 1; UNLISTEN *; reset all", "", "*"),
            ("unlisten *; listen b", "b", "*"),
        ] {
            let expected = Some((listens.to_string(), unlistens.to_string()));
            assert_eq!(told(text), expected, "{text}");
        }
        for text in [
            "select 1",
            "do $$ begin listen a; end $$",
            "listen a; do $$ begin execute 'listen b'; end $$",
            "listen \u{e4}",
            "listen u&\"a\"",
            "listen 'a'",
            "listen a b",
            "listen \"a",
            "listen",
            "prepare x as select 1; listen a",
            "select '\\'; listen a; --'",
            &format!("listen {}", "x".repeat(64)),
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }
}
