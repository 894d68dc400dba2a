//! The tree of a YAML file.

use std::iter::Peekable;
use std::sync::Arc;

use howdah_config::Place;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

use crate::Unreadable;
use crate::tree::{Branch, Fruit};

/// How deep lists and tables may nest.
const MAX_DEPTH: usize = 32;

/// Reads a file, which has one document. Anchors are refused: a few lines of them can stand for
/// gigabytes.
///
/// # Errors
/// The first syntax error. Its line is not shown, because it may have a password.
pub(crate) fn read(path: &str, text: &str) -> Result<Fruit, Unreadable> {
    let mut reader = Reader {
        file: path.into(),
        events: Parser::new_from_str(text).peekable(),
    };
    let mut tree = Fruit::Table(Vec::new());
    let mut documents = 0;
    while let Some((event, place)) = reader.next()? {
        match event {
            Event::DocumentStart(_) if documents == 1 => {
                return Err(wrong(place, "a second document: write one"));
            }
            Event::DocumentStart(_) => documents += 1,
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => {}
            event => tree = reader.fruit(event, place, 0)?,
        }
    }
    match tree {
        Fruit::Nothing => Ok(Fruit::Table(Vec::new())),
        tree => Ok(tree),
    }
}

struct Reader<'i, I: Iterator<Item = Result<(Event<'i>, Span), ScanError>>> {
    file: Arc<str>,
    events: Peekable<I>,
}

impl<'i, I: Iterator<Item = Result<(Event<'i>, Span), ScanError>>> Reader<'i, I> {
    fn place(&self, marker: &Marker) -> Place {
        Place {
            file: self.file.clone(),
            line: marker.line() as u32,
            column: marker.col() as u32 + 1,
        }
    }

    fn next(&mut self) -> Result<Option<(Event<'i>, Place)>, Unreadable> {
        match self.events.next() {
            None => Ok(None),
            Some(Ok((event, span))) => {
                let place = self.place(&span.start);
                Ok(Some((event, place)))
            }
            Some(Err(error)) => {
                let place = self.place(error.marker());
                Err(wrong(place, "look at this line and the one above"))
            }
        }
    }

    /// The next event inside of a list or table that begins at a place.
    fn inside(&mut self, start: &Place) -> Result<(Event<'i>, Place), Unreadable> {
        self.next()?
            .ok_or_else(|| wrong(start.clone(), "it has no end"))
    }

    fn fruit(&mut self, event: Event<'i>, place: Place, depth: usize) -> Result<Fruit, Unreadable> {
        if depth > MAX_DEPTH {
            return Err(wrong(place, "lists and tables nest too deep"));
        }
        match event {
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                Err(wrong(place, "anchors are not read: write the value out"))
            }
            Event::Alias(_) => Err(wrong(place, "anchors are not read: write the value out")),
            Event::Scalar(text, style, ..) => Ok(scalar(&text, style)),
            Event::SequenceStart(..) => {
                let mut all = Vec::new();
                loop {
                    match self.inside(&place)? {
                        (Event::SequenceEnd, _) => return Ok(Fruit::List(all)),
                        (event, place) => all.push(self.fruit(event, place, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut all = Vec::new();
                let mut seen = std::collections::HashSet::new();
                loop {
                    let (name, key) = match self.inside(&place)? {
                        (Event::MappingEnd, _) => return Ok(Fruit::Table(all)),
                        (Event::Scalar(name, ..), key) => (name.into_owned(), key),
                        (_, key) => return Err(wrong(key, "here a key must stand")),
                    };
                    if !seen.insert(name.clone()) {
                        return Err(wrong(key, "a key stands there twice"));
                    }
                    let (event, at) = self.inside(&key)?;
                    all.push(Branch {
                        name,
                        words: Vec::new(),
                        place: key,
                        fruit: self.fruit(event, at, depth + 1)?,
                    });
                }
            }
            _ => Err(wrong(place, "here a value must stand")),
        }
    }
}

fn wrong(place: Place, what: &str) -> Unreadable {
    Unreadable {
        place: Some(place),
        why: format!("syntax error in YAML: {what}"),
    }
}

/// The value of a scalar: without quotes it may be a number, true or false.
fn scalar(text: &str, style: ScalarStyle) -> Fruit {
    if style != ScalarStyle::Plain {
        return Fruit::Text(text.into());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Fruit::Nothing,
        "true" | "True" | "TRUE" => Fruit::Flag(true),
        "false" | "False" | "FALSE" => Fruit::Flag(false),
        _ if text.starts_with('0') && text.len() > 1 && !text.contains('.') => {
            Fruit::Text(text.into())
        }
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => Fruit::Integer(number),
            (_, Ok(number)) if number.is_finite() => Fruit::Fraction(text.into()),
            _ => Fruit::Text(text.into()),
        },
    }
}
