//! Which channels a text listens to, where that is certain.

use super::Kinds;
use super::token::{Reading, Token, Tokens};

/// The longest name of a channel, in bytes; PostgreSQL cuts off what is longer.
const NAME_MAX: usize = 63;

/// How many channels one text may tell by name.
const CHANNELS_MAX: usize = 1000;

/// The channels of a text's LISTEN and UNLISTEN commands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Channels {
    /// It listens to these.
    pub listens: Vec<Box<[u8]>>,
    /// It listens to these no longer.
    pub unlistens: Vec<Box<[u8]>>,
    /// It listens to none of before any longer.
    pub unlistens_all: bool,
}

/// The channels of a text of these kinds. `None` where a name, or what runs at all, is not certain:
/// in the body of a DO, in a PREPARE, in names that are not plain ASCII or are cut off, and where a
/// string may end at two places.
pub(super) fn channels(text: &[u8], kinds: Kinds) -> Option<Box<Channels>> {
    if !kinds.any(Kinds::LISTENS.and(Kinds::UNLISTENS)) || kinds.any(Kinds::PREPARES) {
        return None;
    }
    if memchr::memchr(b'\\', text).is_some() {
        return None;
    }
    let mut found = Channels::default();
    let mut tokens = Tokens::new(text, Reading::default());
    let mut begins = true;
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
            match tokens.sign(b'*') {
                true => found.unlistens_all = true,
                false => found.unlistens.push(name(&mut tokens)?),
            }
        }
        if found.listens.len() + found.unlistens.len() > CHANNELS_MAX {
            return None;
        }
    }
    let tells = |kind, told| !kinds.any(kind) || told;
    let listens = tells(Kinds::LISTENS, !found.listens.is_empty());
    let unlistens = found.unlistens_all || !found.unlistens.is_empty();
    let all = listens && tells(Kinds::UNLISTENS, unlistens) && !tokens.is_cut();
    all.then(|| Box::new(found))
}

/// A channel's name as PostgreSQL knows it.
fn name(tokens: &mut Tokens<'_>) -> Option<Box<[u8]>> {
    let name: Box<[u8]> = match tokens.next()? {
        Token::Word(name) => name.to_ascii_lowercase().into(),
        Token::Quoted(name) => super::first::unquoted(name),
        _ => return None,
    };
    let plain = name.is_ascii() && !name.is_empty() && name.len() <= NAME_MAX;
    // Behind a name nothing follows but the next command.
    let mut ahead = *tokens;
    let ends = matches!(ahead.next(), None | Some(Token::Sign(b';')));
    (plain && ends).then_some(name)
}

#[cfg(test)]
mod tests {
    use crate::effect::effects;

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
