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
    /// The text contains transaction commands, and if all of it succeeds, its UNLISTEN commands
    /// are committed at its end.
    pub commits: bool,
}

/// The transaction blocks of a text.
#[derive(Default)]
struct Blocks {
    /// An UNLISTEN has come.
    unlistened: bool,
    /// The last transaction command has begun a block (true), or ended one (false).
    open: Option<bool>,
    /// It is not certain whether UNLISTEN is committed.
    unclear: bool,
}

impl Blocks {
    fn read(&mut self, word: &[u8], behind: Tokens<'_>) {
        let is = |keywords: &[&[u8]]| keywords.iter().any(|k| word.eq_ignore_ascii_case(k));
        let commits = is(&[b"commit", b"end"]);
        let undoes = is(&[b"rollback", b"abort"]);
        if is(&[b"begin", b"start"]) {
            self.open = Some(true);
        } else if commits || undoes {
            let words = behind.take_while(|token| *token != Token::Sign(b';'));
            let odd = |token| matches!(token, Token::Word(word) if OTHER_ENDS.iter().any(|o| word.eq_ignore_ascii_case(o)));
            self.unclear |= words.into_iter().any(odd) || undoes && self.unlistened;
            self.open = Some(false);
        } else if is(&[b"prepare"]) {
            self.unclear = true;
        }
    }

    fn commit(&self) -> bool {
        self.open == Some(false) && !self.unclear
    }
}

/// Words after COMMIT or ROLLBACK that change their meaning: `COMMIT AND CHAIN`, `ROLLBACK TO s`.
const OTHER_ENDS: [&[u8]; 3] = [b"to", b"chain", b"prepared"];

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
    let mut blocks = Blocks::default();
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
            blocks.unlistened = true;
            match tokens.sign(b'*') {
                true => found.unlistens_all = true,
                false => found.unlistens.push(name(&mut tokens)?),
            }
        } else {
            blocks.read(word, tokens);
        }
        if found.listens.len() + found.unlistens.len() > limits::CHANNELS_TOLD {
            return None;
        }
    }
    found.commits = blocks.commit();
    let tells = |kind, told| !kinds.any(kind) || told;
    let listens = tells(Kinds::LISTENS, !found.listens.is_empty());
    let unlistens = found.unlistens_all || !found.unlistens.is_empty();
    let all = listens && tells(Kinds::UNLISTENS, unlistens) && !tokens.is_cut();
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
    fn whether_unlisten_is_committed_is_told_where_it_is_certain() {
        for (text, expected) in [
            ("rollback; unlisten *; reset all", true),
            ("COMMIT; unlisten a", true),
            ("begin; unlisten a; end", true),
            ("begin; select 'rollback'; unlisten a; commit work", true),
            ("unlisten a", false),
            ("begin; unlisten a", false),
            ("begin; unlisten a; rollback", false),
            (
                "begin; savepoint s; unlisten a; rollback to s; commit",
                false,
            ),
            ("unlisten a; commit and chain", false),
            ("unlisten a; commit prepared 'x'", false),
            ("commit; begin; unlisten a", false),
        ] {
            let channels = effects(text.as_bytes()).channels;
            assert_eq!(channels.map(|c| c.commits), Some(expected), "{text}");
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
