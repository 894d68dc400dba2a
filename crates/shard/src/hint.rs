//! What a client says about the shard: `/*howdah.key='tenant:17'*/`, `/*howdah.shard='prod_1'*/`.

use std::ops::Range;

use crate::lexer::Lexer;
use crate::map::{Map, Shard};
use crate::refusal::Refusal;
use crate::value::KeyValue;

/// The shard of a statement, by a client's word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hint {
    /// `howdah.shard`: the name of a shard.
    Shard(String),
    /// `howdah.key`: a distribution and a value, `tenant:17`.
    Key(String),
}

/// A hint in a text, and the comment that has the hint. Blanks take the comment's place before a
/// text is shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommentHint {
    /// The hint.
    pub hint: Hint,
    /// The comments with hints: one, or two that say the same.
    pub comments: Vec<Range<usize>>,
}

impl Hint {
    /// The hint of a text, which stands in a comment at its beginning or end.
    ///
    /// A comment has items, with commas between. Other items than Howdah's are passed over:
    /// `/*app='web',howdah.key='tenant%3A17'*/`. Values may be written as in URLs.
    pub fn read(text: &[u8], escapes: bool) -> Result<Option<CommentHint>, Refusal> {
        // Hints stand in comments with a slash.
        let slash = memchr::memchr(b'/', text);
        match slash.and_then(|_| memchr::memmem::find(text, b"howdah.")) {
            Some(_) => read_comments(text, escapes),
            None => Ok(None),
        }
    }

    /// The shard that the hint means.
    pub fn shard(&self, map: &Map) -> Result<Shard, Refusal> {
        match self {
            Hint::Shard(name) => map.shard_named(name).ok_or_else(|| {
                let known = map.shards().join(", ");
                Refusal::no_shard(format!("\"{name}\" is no shard of this database"))
                    .hint(format!("Set howdah.shard to one of {known}."))
                    .firm()
            }),
            Hint::Key(text) => shard_of_key(text, map),
        }
    }
}

/// The shard of `distribution:value`.
fn shard_of_key(text: &str, map: &Map) -> Result<Shard, Refusal> {
    let form = "Write howdah.key as distribution:value, such as tenant:17.";
    let (name, value) = text.split_once(':').ok_or_else(|| {
        Refusal::no_shard(format!("howdah.key has no colon: \"{text}\""))
            .hint(form)
            .firm()
    })?;
    let by = map.distribution_named(name).ok_or_else(|| {
        Refusal::no_shard(format!("there is no distribution \"{name}\""))
            .hint(form)
            .firm()
    })?;
    let distribution = map.distribution(by);
    let key = distribution.map(|distribution| distribution.key());
    let key = key.ok_or_else(|| Refusal::no_shard("there is no such distribution").firm())?;
    let value = KeyValue::of_literal(key, value.as_bytes()).map_err(|error| {
        Refusal::no_shard(format!("howdah.key can't be read: {error}"))
            .hint(form)
            .firm()
    })?;
    map.shard_of(by, &value).map_err(|error| {
        let remedy = "Give the value to a shard in the distribution.";
        Refusal::no_shard(error.to_string()).hint(remedy).firm()
    })
}

fn read_comments(text: &[u8], escapes: bool) -> Result<Option<CommentHint>, Refusal> {
    let mut found: Option<CommentHint> = None;
    for comment in comments_at_ends(text, escapes) {
        let inside = &text[comment.start + 2..comment.end - 2];
        let Some(hint) = read_items(inside)? else {
            continue;
        };
        match &mut found {
            Some(first) if first.hint != hint => {
                return Err(Refusal::no_shard("the text has two hints about its shard")
                    .hint("Write one comment with howdah.key or howdah.shard.")
                    .firm());
            }
            Some(first) => first.comments.push(comment),
            None => {
                found = Some(CommentHint {
                    hint,
                    comments: vec![comment],
                });
            }
        }
    }
    Ok(found)
}

/// The comment that a text begins with, and the one that a text ends with.
fn comments_at_ends(text: &[u8], escapes: bool) -> Vec<Range<usize>> {
    let mut comments = Vec::new();
    let start = text.len() - text.trim_ascii_start().len();
    let mut lexer = Lexer::new(text, escapes);
    if text[start..].starts_with(b"/*") {
        let mut first = Lexer::new(text, escapes);
        // Where the first comment ends.
        first.pass_first_comment();
        comments.extend(
            first
                .last_comment()
                .filter(|comment| comment.start == start),
        );
    }
    let mut end = 0;
    while let Some(token) = lexer.next() {
        if lexer.bytes(&token) != b";" {
            end = token.range.end;
        }
    }
    let last = lexer
        .last_comment()
        .filter(|last| last.start >= end && !lexer.is_cut());
    comments.extend(last.filter(|last| comments.first() != Some(last)));
    comments
}

/// The hint among the items of a comment.
fn read_items(inside: &[u8]) -> Result<Option<Hint>, Refusal> {
    let mut found = None;
    let mut rest = inside.trim_ascii();
    while !rest.is_empty() {
        let Some(equals) = memchr::memchr2(b'=', b',', rest) else {
            return Ok(found);
        };
        let name = rest[..equals].trim_ascii();
        if rest[equals] == b',' {
            rest = rest[equals + 1..].trim_ascii_start();
            continue;
        }
        let (value, behind) = item_value(rest[equals + 1..].trim_ascii_start());
        let make: fn(String) -> Hint = match name {
            b"howdah.shard" => Hint::Shard,
            b"howdah.key" => Hint::Key,
            _ => {
                rest = behind;
                continue;
            }
        };
        let value = value.and_then(decoded).ok_or_else(|| {
            Refusal::no_shard("the hint in the comment can't be read")
                .hint("Write /*howdah.key='distribution:value'*/ or /*howdah.shard='name'*/.")
                .firm()
        })?;
        if found.replace(make(value)).is_some() {
            return Err(
                Refusal::no_shard("the comment has two hints about its shard")
                    .hint("Write howdah.key or howdah.shard, once.")
                    .firm(),
            );
        }
        rest = behind;
    }
    Ok(found)
}

/// The value of an item, perhaps in single quotes, and the items behind.
fn item_value(text: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let comma = |text: &[u8]| memchr::memchr(b',', text).unwrap_or(text.len());
    let (value, behind) = match text.strip_prefix(b"'") {
        Some(inside) => match memchr::memchr(b'\'', inside) {
            Some(end) => (Some(&inside[..end]), &inside[end + 1..]),
            None => (None, &text[text.len()..]),
        },
        None => {
            let end = comma(text);
            (Some(text[..end].trim_ascii()), &text[end..])
        }
    };
    let gap = comma(behind);
    // Something between the closing quote and the comma: not a whole item.
    let value = value.filter(|_| behind[..gap].trim_ascii().is_empty());
    let behind = behind[gap..].strip_prefix(b",").unwrap_or_default();
    (value, behind.trim_ascii_start())
}

/// A value without the escapes of URLs: `tenant%3A17`.
fn decoded(value: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [byte, after @ ..] = rest {
        rest = after;
        let code = match (byte, after) {
            (b'%', [high, low, ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                Some(digit(high)? << 4 | digit(low)?)
            }
            (b'%', _) => return None,
            _ => None,
        };
        bytes.push(code.map_or(*byte, |code| code as u8));
        rest = if code.is_some() { &rest[2..] } else { rest };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match Hint::read(text.as_bytes(), false) {
            Ok(None) => "none".into(),
            Ok(Some(found)) => match found.hint {
                Hint::Shard(name) => format!("shard {name}"),
                Hint::Key(value) => format!("key {value}"),
            },
            Err(refusal) => refusal.code.into(),
        }
    }

    #[test]
    fn at_either_end() {
        for (text, expected) in [
            ("/*howdah.key='tenant:17'*/ select 1", "key tenant:17"),
            ("select 1 /*howdah.shard='prod_1'*/", "shard prod_1"),
            ("select 1 /* howdah.shard = prod_1 */ ; ", "shard prod_1"),
            (" \n/*howdah.shard='a'*/ select 1 /* b */", "shard a"),
            ("/* b */ select 1 /*howdah.shard='a'*/", "shard a"),
            (
                "/*app='x',howdah.key='tenant%3A17',b='c'*/ select 1",
                "key tenant:17",
            ),
            ("/*howdah.key='region:a b'*/ select 1", "key region:a b"),
            (
                "/*howdah.shard='a'*/ select 1 /*howdah.shard='a'*/",
                "shard a",
            ),
            ("/*howdah.shard='a'*/", "shard a"),
            ("/* x */ /*howdah.shard='a'*/ select 1", "none"),
            ("select /*howdah.shard='a'*/ 1", "none"),
            ("select '/*howdah.shard=''a''*/'", "none"),
            ("select 1 -- /*howdah.shard='a'*/", "none"),
            ("select $$ /*howdah.shard='a'*/", "none"),
            ("/* see howdah.shard */ select 1", "none"),
            ("/* x.howdah.shard='a' */ select 1", "none"),
            ("/*x='howdah.shard=a'*/ select 1", "none"),
            ("select 1", "none"),
            ("/*howdah.shard='a", "none"),
            (
                "/*howdah.shard='a'*/ select 1 /*howdah.shard='b'*/",
                "22023",
            ),
            ("/*howdah.shard='a',howdah.key='b:1'*/ select 1", "22023"),
            ("/*howdah.shard='a*/ select 1", "22023"),
            ("/*howdah.shard='a'b*/ select 1", "22023"),
            ("/*howdah.shard='a%4'*/ select 1", "22023"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_are_found_whole() {
        let text = b" /*howdah.shard='a'*/ select 1 /*howdah.shard='a'*/;";
        let found = Hint::read(text, false).expect("no error").expect("a hint");
        assert_eq!(found.comments, [1..21, 31..51]);
    }

    #[test]
    fn shards_of_hints() {
        let mut builder = Map::builder(["a", "b"]).expect("shards");
        let text = "list bigint 17=a 18=b";
        builder
            .distribution("tenant", text)
            .expect("a distribution");
        let map = builder.finish();
        let shard = |hint: Hint| hint.shard(&map).map_err(|refusal| refusal.code);
        assert_eq!(shard(Hint::Shard("b".into())), Ok(Shard(1)));
        assert_eq!(shard(Hint::Key("tenant:18".into())), Ok(Shard(1)));
        for hint in ["tenant", "tenant:19", "tenant:x", "other:17"] {
            assert_eq!(shard(Hint::Key(hint.into())), Err("22023"), "{hint}");
        }
        assert_eq!(shard(Hint::Shard("c".into())), Err("22023"));
    }
}
