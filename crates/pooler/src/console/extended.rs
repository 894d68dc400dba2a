//! The console over the extended protocol, which drivers use by default. A statement is read at its Parse,
//! described by the columns of its SHOW, and run at its Execute.
//!
//! A parameter `$1` stands for a word of a command, or for the value of a SET.

use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::frontend::{self, Bind, Parse, Subject, format_of};
use howdah_wire::tag::{backend, frontend as tag};
use howdah_wire::{WireError, write};

use super::rows::wire_column;
use crate::console::drivers::refusal;
use crate::console::prepared::{
    ConsoleError, ConsolePortal, Extended, Prepared, no_statement, types, word,
};
use crate::console::sentence::{Unread, is_empty, split, without_comments};
use crate::event::{ClientId, Out, Peer};
use crate::limits;
use crate::pooler::Pooler;

impl Pooler {
    /// A message of the extended protocol.
    pub(super) fn console_extended(
        &mut self,
        id: ClientId,
        message: u8,
        body: &[u8],
        out: &mut Out,
    ) {
        let done = match message {
            tag::PARSE => self.console_parse(id, body, out),
            tag::BIND => self.console_bind(id, body, out),
            tag::DESCRIBE => self.console_describe(id, body, out),
            tag::EXECUTE => self.console_execute(id, body, out),
            tag::CLOSE => self.console_close(id, body, out),
            _ => {
                self.console_sync(id, out);
                Ok(())
            }
        };
        if let Err((sqlstate, text)) = done {
            self.refuse_as(id, sqlstate, &text, out);
        }
    }

    fn extended(&mut self, id: ClientId) -> Result<&mut Extended, ConsoleError> {
        match self.session(id) {
            Some(session) => Ok(&mut session.extended),
            None => Err(("08P01", "no console".into())),
        }
    }

    fn console_parse(
        &mut self,
        id: ClientId,
        body: &[u8],
        out: &mut Out,
    ) -> Result<(), ConsoleError> {
        let parse = Parse::read(body).map_err(malformed)?;
        let text = without_comments(&String::from_utf8_lossy(parse.text()));
        if split(&text).len() > 1 {
            let why = "cannot insert multiple commands into a prepared statement";
            return Err(("42601", why.into()));
        }
        let told = types(parse.definition);
        let parameters = fill(&text, &mut |_| "0".into()).1.max(told.len());
        if parameters > 16 {
            return Err(("08P01", "bad arguments".into()));
        }
        let mut types: Vec<u32> = told
            .into_iter()
            .map(|oid| if oid == 0 { 25 } else { oid })
            .collect();
        types.resize(parameters, 25);
        let columns = if is_empty(&text) {
            Vec::new()
        } else {
            let (filled, _) = fill(&text, &mut |_| "0".into());
            match self.columns_of(id, &filled) {
                Ok(columns) => columns,
                Err(Unread::Arguments) => return Err(("08P01", "bad arguments".into())),
                Err(Unread::Syntax) => return Err(refusal(&text)),
            }
        };
        let extended = self.extended(id)?;
        if !parse.name.is_empty() {
            let name = String::from_utf8_lossy(parse.name);
            if extended.statements.contains_key(parse.name) {
                let why = format!("prepared statement \"{name}\" already exists");
                return Err(("42P05", why));
            }
            if extended.statements.len() >= limits::CONSOLE_STATEMENTS {
                return Err(("53400", "too many prepared statements".into()));
            }
        }
        let prepared = Prepared {
            text,
            types,
            columns,
        };
        extended
            .statements
            .insert(parse.name.into(), Arc::new(prepared));
        out.send_with(Peer::Client(id), |buf| {
            write::empty(buf, backend::PARSE_COMPLETE)
        });
        Ok(())
    }

    fn console_bind(
        &mut self,
        id: ClientId,
        body: &[u8],
        out: &mut Out,
    ) -> Result<(), ConsoleError> {
        let bind = Bind::read(body).map_err(malformed)?;
        let extended = self.extended(id)?;
        let prepared = extended.prepared(bind.names.statement)?;
        if bind.values.len() != prepared.types.len() {
            let why = format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
                bind.values.len(),
                String::from_utf8_lossy(bind.names.statement),
                prepared.types.len()
            );
            return Err(("08P01", why));
        }
        if bind.wanted.len() > 1 && bind.wanted.len() != prepared.columns.len() {
            let why = format!(
                "bind message has {} result formats but query has {} columns",
                bind.wanted.len(),
                prepared.columns.len()
            );
            return Err(("08P01", why));
        }
        let mut values = Vec::new();
        for (position, value) in bind.values.iter().enumerate() {
            let format = format_of(&bind.formats, position);
            let value = value.and_then(|value| word(prepared.types[position], format, value));
            let Some(value) = value else {
                let why = format!("parameter ${} is not a word", position + 1);
                return Err(("22023", why));
            };
            values.push(value);
        }
        let (text, _) = fill(&prepared.text, &mut |number| values[number - 1].clone());
        let portal = ConsolePortal {
            text,
            columns: prepared.columns.clone(),
            wanted: bind.wanted,
            left: None,
        };
        let name = bind.names.portal;
        if !name.is_empty() && extended.portals.contains_key(name) {
            let name = String::from_utf8_lossy(name);
            return Err(("42P03", format!("cursor \"{name}\" already exists")));
        }
        if extended.portals.len() >= limits::CONSOLE_STATEMENTS {
            return Err(("53400", "too many portals".into()));
        }
        extended.portals.insert(name.into(), portal);
        out.send_with(Peer::Client(id), |buf| {
            write::empty(buf, backend::BIND_COMPLETE)
        });
        Ok(())
    }

    fn console_describe(
        &mut self,
        id: ClientId,
        body: &[u8],
        out: &mut Out,
    ) -> Result<(), ConsoleError> {
        let subject = Subject::read(tag::DESCRIBE, body).map_err(malformed)?;
        let extended = self.extended(id)?;
        let (columns, wanted, types) = match subject {
            Subject::Statement(name) => {
                let prepared = extended.prepared(name)?;
                (
                    prepared.columns.clone(),
                    Vec::new(),
                    Some(prepared.types.clone()),
                )
            }
            Subject::Portal(name) => {
                let portal = extended.portal(name)?;
                (portal.columns.clone(), portal.wanted.clone(), None)
            }
        };
        out.send_with(Peer::Client(id), |buf| {
            if let Some(types) = types {
                write::message(buf, backend::PARAMETER_DESCRIPTION, |buf| {
                    buf.extend_from_slice(&(types.len() as u16).to_be_bytes());
                    for oid in types {
                        buf.extend_from_slice(&oid.to_be_bytes());
                    }
                });
            }
            if columns.is_empty() {
                return write::empty(buf, backend::NO_DATA);
            }
            let columns: Vec<_> = columns.into_iter().map(wire_column).collect();
            let binary = |position| format_of(&wanted, position) != 0;
            write::row_description_as(buf, &columns, &binary);
        });
        Ok(())
    }

    fn console_execute(
        &mut self,
        id: ClientId,
        body: &[u8],
        out: &mut Out,
    ) -> Result<(), ConsoleError> {
        let name = frontend::execute_portal(body).map_err(malformed)?;
        let most = frontend::execute_rows(body) as usize;
        let extended = self.extended(id)?;
        let portal = extended.portal(name)?;
        if portal.left.is_some() {
            out.send_with(Peer::Client(id), |buf| portal.write(most, buf));
            return Ok(());
        }
        let text = portal.text.clone();
        if is_empty(&text) {
            out.send_with(Peer::Client(id), |buf| {
                write::empty(buf, backend::EMPTY_QUERY)
            });
            return Ok(());
        }
        extended.running = Some((name.into(), most));
        self.console_statement(id, &text, out);
        Ok(())
    }

    fn console_close(
        &mut self,
        id: ClientId,
        body: &[u8],
        out: &mut Out,
    ) -> Result<(), ConsoleError> {
        let subject = Subject::read(tag::CLOSE, body).map_err(malformed)?;
        let extended = self.extended(id)?;
        match subject {
            Subject::Statement(name) => drop(extended.statements.remove(name)),
            Subject::Portal(name) => drop(extended.portals.remove(name)),
        }
        out.send_with(Peer::Client(id), |buf| {
            write::empty(buf, backend::CLOSE_COMPLETE)
        });
        Ok(())
    }

    fn console_sync(&mut self, id: ClientId, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        let status = session.status();
        if status == Status::Idle {
            session.extended.end_block();
        }
        out.send_with(Peer::Client(id), |buf| write::ready(buf, status));
    }

    /// `DEALLOCATE name`.
    pub(super) fn deallocate(&mut self, id: ClientId, name: &str, out: &mut Out) {
        let Ok(extended) = self.extended(id) else {
            return;
        };
        if extended.statements.remove(name.as_bytes()).is_none() {
            let (sqlstate, why) = no_statement(name.as_bytes());
            return self.refuse_as(id, sqlstate, &why, out);
        }
        self.complete(id, "DEALLOCATE", out);
    }
}

fn malformed(_: WireError) -> ConsoleError {
    ("08P01", "invalid message format".into())
}

/// Replaces each `$1` outside of quotes by a quoted value. Returns the text, and the highest
/// parameter number.
fn fill(text: &str, value: &mut dyn FnMut(usize) -> String) -> (String, usize) {
    let mut filled = String::new();
    let mut highest = 0;
    let mut quote = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            _ => {}
        }
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = rest[..digits].parse::<u16>().map_or(0, usize::from);
        if c == '$' && quote.is_none() && number > 0 {
            rest = &rest[digits..];
            highest = highest.max(number);
            filled.push('"');
            filled.push_str(&value(number).replace('"', "\"\""));
            filled.push('"');
        } else {
            filled.push(c);
        }
    }
    (filled, highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_words() {
        let mut values = |number: usize| ["a", "b\"c"][number - 1].to_string();
        assert_eq!(fill("pause $1", &mut values), ("pause \"a\"".into(), 1));
        assert_eq!(
            fill("set $1 = $2;", &mut values),
            ("set \"a\" = \"b\"\"c\";".into(), 2)
        );
        for text in [
            "pause '$1'",
            "pause \"$1\"",
            "pause $0",
            "pause $",
            "$99999",
        ] {
            assert_eq!(fill(text, &mut |_| panic!()), (text.into(), 0));
        }
        assert_eq!(word(25, 0, b"x").as_deref(), Some("x"));
        assert_eq!(word(23, 1, &[0, 0, 1, 0]).as_deref(), Some("256"));
        assert_eq!(word(20, 1, &[0xff; 8]).as_deref(), Some("-1"));
        assert_eq!(word(23, 1, b"1"), None);
        assert_eq!(word(25, 0, b"\xff"), None);
        assert_eq!(types(b"show pools\0\0\x01\0\0\0\x17"), [23]);
    }
}
