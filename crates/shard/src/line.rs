//! The text of a distribution: words, and rules of values and their shard.

use crate::map::MapError;

/// The unread rest of a line.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    text: &'a str,
    at: usize,
}

/// `eu,uk=prod_0`
#[derive(Debug)]
pub(crate) struct ShardRule {
    pub(crate) values: Vec<Item>,
    pub(crate) shard: String,
    pub(crate) shard_at: usize,
}

/// A value, and where the value stands.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) text: String,
    pub(crate) at: usize,
    quoted: bool,
}

impl Item {
    /// True for the star, which means all other values.
    pub(crate) fn is_star(&self) -> bool {
        self.text == "*" && !self.quoted
    }

    /// `first-last`, `first-` or one number.
    pub(crate) fn range(&self) -> Result<(i64, Option<i64>), MapError> {
        let bad = || {
            let message = format!("\"{}\" is no range of integers", self.text);
            MapError::new(self.at, message, "write 0-31, 32- or 7")
        };
        let number = |text: &str| text.parse::<i64>().map_err(|_| bad());
        // A minus at the beginning is a sign.
        let hyphen = self
            .text
            .char_indices()
            .skip(1)
            .find(|(_, character)| *character == '-');
        let Some((hyphen, _)) = hyphen else {
            let only = number(&self.text)?;
            return Ok((only, Some(only)));
        };
        let last = &self.text[hyphen + 1..];
        let last = if last.is_empty() {
            None
        } else {
            Some(number(last)?)
        };
        Ok((number(&self.text[..hyphen])?, last))
    }
}

impl<'a> Line<'a> {
    pub(crate) fn new(text: &'a str) -> Line<'a> {
        let at = text.len() - text.trim_start().len();
        Line {
            text: text.trim_end(),
            at: at.min(text.trim_end().len()),
        }
    }

    /// Where the rest begins.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn pass_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// The next word; empty at the end.
    pub(crate) fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.at += end;
        self.pass_blanks();
        &rest[..end]
    }

    /// The next rule; `None` at the end.
    pub(crate) fn rule(&mut self) -> Result<Option<ShardRule>, MapError> {
        if self.rest().is_empty() {
            return Ok(None);
        }
        let start = self.at;
        let mut values = Vec::new();
        loop {
            values.push(self.item()?);
            let next = self.rest().chars().next();
            self.at += usize::from(next.is_some_and(|next| next == ',' || next == '='));
            match next {
                Some(',') => {}
                Some('=') => break,
                _ => {
                    let remedy = "write values and their shard without blanks: eu,uk=prod_0";
                    return Err(MapError::new(start, "a value has no shard", remedy));
                }
            }
        }
        let shard_at = self.at;
        let shard = self.word().to_owned();
        Ok(Some(ShardRule {
            values,
            shard,
            shard_at,
        }))
    }

    /// A value, perhaps in single quotes.
    fn item(&mut self) -> Result<Item, MapError> {
        let at = self.at;
        if self.rest().starts_with('\'') {
            let text = self.quoted()?;
            return Ok(Item {
                text,
                at,
                quoted: true,
            });
        }
        let rest = self.rest();
        let end =
            rest.find(|character: char| ",=".contains(character) || character.is_whitespace());
        let text = &rest[..end.unwrap_or(rest.len())];
        if text.is_empty() {
            let remedy = "write a value on each side of a comma; quote an empty one: ''";
            return Err(MapError::new(at, "a value is missing", remedy));
        }
        self.at += text.len();
        Ok(Item {
            text: text.to_owned(),
            at,
            quoted: false,
        })
    }

    fn quoted(&mut self) -> Result<String, MapError> {
        let start = self.at;
        let mut value = String::new();
        loop {
            self.at += 1;
            let Some((part, _)) = self.rest().split_once('\'') else {
                let remedy = "end the value with a quote; double a quote inside";
                return Err(MapError::new(start, "a quoted value does not end", remedy));
            };
            value.push_str(part);
            self.at += part.len() + 1;
            if !self.rest().starts_with('\'') {
                return Ok(value);
            }
            value.push('\'');
        }
    }
}
