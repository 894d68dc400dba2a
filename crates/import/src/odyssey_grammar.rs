//! The grammar of `odyssey.conf`: keys with a value or a block, white space between them.

use std::sync::Arc;

use howdah_config::Place;

use crate::Unreadable;
use crate::tree::{BlockWord, Branch, Fruit};

/// How deep blocks and included files may nest.
const MAX_DEPTH: usize = 16;

/// Reads a file and those that it includes.
///
/// # Errors
/// The first syntax error, or why a file can't be read.
pub(crate) fn read(
    path: &str,
    text: &str,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Fruit, Unreadable> {
    let mut branches = Vec::new();
    file(path, text, read_file, 0, &mut branches)?;
    Ok(Fruit::Table(branches))
}

fn file(
    path: &str,
    text: &str,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    depth: usize,
    out: &mut Vec<Branch>,
) -> Result<(), Unreadable> {
    let mut reader = Reader {
        words: words(path, text)?,
        at: 0,
    };
    for branch in reader.block(0, false)? {
        let included = match &branch.fruit {
            Fruit::Text(included) if branch.name == "include" => included.clone(),
            _ => {
                out.push(branch);
                continue;
            }
        };
        let fails = |why: String| Unreadable {
            place: Some(branch.place.clone()),
            why,
        };
        if depth == MAX_DEPTH {
            return Err(fails(format!(
                "files include each other more than {MAX_DEPTH} deep"
            )));
        }
        let text = read_file(&included)
            .map_err(|why| fails(format!("could not load file \"{included}\": {why}")))?;
        file(&included, &text, read_file, depth + 1, out)?;
    }
    Ok(())
}

/// A word of the file.
#[derive(Clone, PartialEq, Debug)]
enum Token {
    /// A key, or a keyword such as `default`.
    Name(String),
    Text(String),
    Number(i64),
    Open,
    Close,
}

struct Reader {
    words: Vec<(Token, Place)>,
    at: usize,
}

impl Reader {
    fn next(&mut self) -> Option<(Token, Place)> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    fn peek(&self) -> Option<&Token> {
        self.words.get(self.at).map(|(token, _)| token)
    }

    /// The branches up to the end of a block, or of the file.
    fn block(&mut self, depth: usize, is_quoted: bool) -> Result<Vec<Branch>, Unreadable> {
        let mut branches = Vec::new();
        let mut last = None;
        loop {
            let (token, place) = match self.next() {
                Some(next) => next,
                None if depth == 0 => return Ok(branches),
                None => return Err(wrong(last, "a block has no end: a } is missing")),
            };
            last = Some(place.clone());
            let name = match token {
                Token::Close if depth > 0 => return Ok(branches),
                // The names of settings in `options { "name" "value" }` stand in quotes.
                Token::Text(name) if is_quoted => name,
                Token::Name(name) => name,
                _ => return Err(wrong(last, "here a key must stand")),
            };
            if depth == MAX_DEPTH {
                return Err(wrong(last, "blocks nest too deep"));
            }
            branches.push(self.behind(name, place, depth)?);
        }
    }

    /// What stands behind a key: a value, or words and a block.
    fn behind(&mut self, name: String, place: Place, depth: usize) -> Result<Branch, Unreadable> {
        let takes_words = ["user", "group"].contains(&name.as_str());
        let mut words = Vec::new();
        let mut fruit = None;
        loop {
            match self.peek() {
                Some(Token::Open) => {
                    self.at += 1;
                    let is_quoted = ["options", "backend_startup_options"].contains(&name.as_str());
                    let fruit = Fruit::Table(self.block(depth + 1, is_quoted)?);
                    return Ok(Branch {
                        name,
                        words,
                        place,
                        fruit,
                    });
                }
                Some(Token::Close) | None => break,
                Some(_) if words.len() == 1 && !takes_words => break,
                Some(_) if words.len() > 8 => break,
                Some(token) => {
                    let (word, value, is_quoted) = match token {
                        Token::Text(text) => (text.clone(), Fruit::Text(text.clone()), true),
                        Token::Number(number) => {
                            (number.to_string(), Fruit::Integer(*number), false)
                        }
                        Token::Name(word) => {
                            let value = match word.as_str() {
                                "yes" => Fruit::Flag(true),
                                "no" => Fruit::Flag(false),
                                _ => Fruit::Text(word.clone()),
                            };
                            (word.clone(), value, false)
                        }
                        Token::Open | Token::Close => break,
                    };
                    fruit.get_or_insert(value);
                    words.push(BlockWord {
                        text: word,
                        is_quoted,
                    });
                    self.at += 1;
                }
            }
        }
        match fruit {
            Some(fruit) if !takes_words => Ok(Branch {
                name,
                words: Vec::new(),
                place,
                fruit,
            }),
            Some(_) => Err(wrong(Some(place), "a block must follow")),
            None => Err(wrong(Some(place), "a value must follow")),
        }
    }
}

fn wrong(place: Option<Place>, what: &str) -> Unreadable {
    Unreadable {
        place,
        why: format!("syntax error in Odyssey's file: {what}"),
    }
}

/// The words of a file, without comments.
fn words(path: &str, text: &str) -> Result<Vec<(Token, Place)>, Unreadable> {
    let file: Arc<str> = path.into();
    let mut words = Vec::new();
    let (mut line, mut column) = (1, 1);
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        let place = Place {
            file: file.clone(),
            line,
            column,
        };
        let mut taken = String::new();
        let mut take = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let c = chars.next()?;
            (line, column) = if c == '\n' {
                (line + 1, 1)
            } else {
                (line, column + 1)
            };
            Some(c)
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        match c {
            '#' => {
                while chars.peek().is_some_and(|c| *c != '\n') {
                    take(&mut chars);
                }
            }
            '"' => {
                take(&mut chars);
                loop {
                    match take(&mut chars) {
                        Some('"') => break,
                        Some('\\') if chars.peek() == Some(&'"') => {
                            taken.extend(take(&mut chars));
                        }
                        Some(c) => taken.push(c),
                        None => {
                            return Err(wrong(Some(place), "a text has no end: a \" is missing"));
                        }
                    }
                }
                let ends = |c: &char| c.is_whitespace() || "{};#".contains(*c);
                if !chars.peek().is_none_or(ends) {
                    return Err(wrong(Some(place), "behind a text a blank must stand"));
                }
                words.push((Token::Text(taken), place));
            }
            '{' | '}' => {
                take(&mut chars);
                words.push((if c == '{' { Token::Open } else { Token::Close }, place));
            }
            c if is_word(c) => {
                while chars.peek().is_some_and(|c| is_word(*c)) {
                    taken.extend(take(&mut chars));
                }
                let is_number = c.is_ascii_digit() || c == '-';
                words.push(match taken.parse() {
                    Ok(number) => (Token::Number(number), place),
                    // A size with its unit.
                    Err(_) if is_number => (Token::Text(taken), place),
                    Err(_) => (Token::Name(taken), place),
                });
            }
            c if c.is_whitespace() || c == ';' => {
                take(&mut chars);
            }
            _ => return Err(wrong(Some(place), "a character that stands in no word")),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Fruit {
        read("a.conf", text, &mut |_| Ok("stats_interval 9".into()))
            .expect("a file that can be read")
    }

    #[test]
    fn values_and_blocks_have_their_words() {
        let tree = read_text(
            "workers \"auto\" # two\ninclude \"b\"\nlisten{port 6432 tls \"require\"}\nclient_max 7\
             \ndatabase default { user \"a \\\"b\" \"10.0.0.0/8\" hostssl { pool_discard no size 750MB } }",
        );
        assert_eq!(tree.get_text("workers").as_deref(), Some("auto"));
        assert_eq!(tree.get_text("stats_interval").as_deref(), Some("9"));
        assert_eq!(tree.get_text("client_max").as_deref(), Some("7"));
        let listen = tree.get("listen").expect("a block");
        assert_eq!(listen.get_text("tls").as_deref(), Some("require"));
        let [database] = &tree.table()[4..] else {
            panic!("{tree:?}");
        };
        let word = |text: &str, is_quoted| BlockWord {
            text: text.into(),
            is_quoted,
        };
        assert_eq!(database.words, [word("default", false)]);
        let user = &database.fruit.table()[0];
        let selected = [
            word("a \"b", true),
            word("10.0.0.0/8", true),
            word("hostssl", false),
        ];
        assert_eq!(user.words, selected);
        assert_eq!(user.fruit.get_flag("pool_discard"), Some(false));
        assert_eq!(user.fruit.get_text("size").as_deref(), Some("750MB"));
        assert_eq!((user.place.line, user.place.column), (5, 20));
    }
}
