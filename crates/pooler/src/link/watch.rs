//! Watched queries, for the slow log, `SHOW QUERIES` and traces. Howdah notes each query as it
//! sends it.

use std::fmt::Write;
use std::sync::Arc;

use howdah_wire::frame::{HEADER, Header, cstr};
use howdah_wire::frontend::{Bind, BindNames, execute_rows, format_of};

use super::upstream::{Flow, Upstream, whole};
use crate::inbox::Chunk;
use crate::limits;
use crate::link::known::{Sql, Text, WatchedPortal};
use crate::queries::text::QueryText;
use crate::queries::watched::Watched;
use crate::statement::Statement;

/// The watched query of an entry, if queries are watched.
type Query = Option<Box<Watched>>;

impl Upstream<'_> {
    /// The part of a Query that Howdah reads as text, if queries are watched.
    pub(super) fn front_to_watch<'a>(
        &self,
        chunk: &Chunk<'a>,
        header: Header,
    ) -> Result<Option<&'a [u8]>, Flow> {
        match self.watch {
            Some(_) => front(chunk, header, limits::QUERY_TEXT_READ).map(Some),
            None => Ok(None),
        }
    }

    /// Makes the watched query of a Query that is about to be sent.
    pub(super) fn watch_query(&mut self, sql: &[u8]) -> Query {
        let watching = self.watch.as_mut()?;
        let text = watching.texts.of(sql);
        let values = watching.wanted.values.then(|| shown(sql));
        self.begin_query(text, sql, values)
    }

    fn begin_query(&mut self, text: Arc<QueryText>, sql: &[u8], values: Option<Box<str>>) -> Query {
        let watching = self.watch.as_mut()?;
        let waited = self.server.link.take_waited();
        let mut query = watching.begin(text, sql, waited);
        query.values = values;
        Some(Box::new(query))
    }

    /// A Parse is about to be relayed unchanged.
    pub(super) fn watch_parse(&mut self, chunk: &Chunk<'_>, header: Header) -> Result<(), Flow> {
        let Some(watching) = &mut self.watch else {
            return Ok(());
        };
        let body = front(chunk, header, limits::FRONT)?;
        let Some((name, sql)) = cstr(body) else {
            return Ok(());
        };
        let sql = cstr(sql).map_or(sql, |(sql, _)| sql);
        let kept = watching.wanted.values || watching.wanted.traces;
        let text = Text {
            query: watching.texts.of(sql),
            sql: if kept {
                Sql::Front(sql[..sql.len().min(limits::QUERY_TEXT_READ)].into())
            } else {
                Sql::Unknown
            },
        };
        let watch = self.server.link.watch_mut();
        if name.is_empty() {
            watch.unnamed = Some(text);
        } else {
            if watch.named.len() >= limits::WATCHED_NAMES {
                watch.named.clear();
            }
            watch.named.insert(name.into(), text);
        }
        Ok(())
    }

    /// A Bind is about to be relayed unchanged.
    pub(super) fn watch_bind_as_is(
        &mut self,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<(), Flow> {
        if self.watch.is_none() {
            return Ok(());
        }
        let body = front(chunk, header, limits::FRONT)?;
        if let Some(names) = BindNames::read(body) {
            let values = self.values(whole(chunk, header));
            let watch = self.server.link.watch_mut();
            let known = match names.statement {
                b"" => watch.unnamed.as_ref(),
                name => watch.named.get(name),
            };
            watch.bound = known.cloned().map(|text| WatchedPortal {
                portal: names.portal.into(),
                text,
                values,
            });
        }
        Ok(())
    }

    /// A Bind of a shared or unknown statement is about to be sent.
    pub(super) fn watch_bind(
        &mut self,
        portal: &[u8],
        statement: Option<&Arc<Statement>>,
        body: Option<&[u8]>,
    ) {
        let Some(watching) = &mut self.watch else {
            return;
        };
        let text = statement.map(|statement| Text {
            query: statement.query_text(watching.texts).clone(),
            sql: Sql::Of(statement.clone()),
        });
        let values = self.values(body);
        let watch = self.server.link.watch_mut();
        watch.bound = text.map(|text| WatchedPortal {
            portal: portal.into(),
            text,
            values,
        });
    }

    /// The values of a complete Bind, if they are wanted.
    fn values(&self, body: Option<&[u8]>) -> Option<Box<str>> {
        let wanted = self.watch.as_ref().is_some_and(|w| w.wanted.values);
        let bind = body.filter(|_| wanted).map(Bind::read)?.ok()?;
        let mut shown = String::new();
        for (at, value) in bind.values.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(shown, "{comma}${} = ", at + 1);
            match (value, format_of(&bind.formats, at)) {
                (None, _) => shown.push_str("NULL"),
                (Some(value), 0) => {
                    let text = String::from_utf8_lossy(value);
                    let _ = write!(shown, "'{}'", text.replace('\'', "''"));
                }
                (Some(value), _) => {
                    shown.push_str("'\\x");
                    for byte in value.iter().take(limits::QUERY_TEXT_KEPT) {
                        let _ = write!(shown, "{byte:02x}");
                    }
                    shown.push('\'');
                }
            }
            if shown.len() > limits::QUERY_TEXT_KEPT {
                break;
            }
        }
        Some(self::shown(shown.as_bytes()))
    }

    /// Makes the watched query of an Execute that is about to be sent, if queries are watched.
    pub(super) fn watch_execute(
        &mut self,
        chunk: &Chunk<'_>,
        header: Header,
    ) -> Result<Query, Flow> {
        if self.watch.is_none() {
            return Ok(None);
        }
        let body = front(chunk, header, limits::FRONT)?;
        let (portal, rest) = cstr(body).unwrap_or_default();
        let row_limit = execute_rows(rest);
        let bound = self
            .server
            .link
            .watch
            .as_ref()
            .and_then(|w| w.bound.as_ref());
        let bound = bound.filter(|bound| *bound.portal == *portal);
        let bound = bound.map(|bound| (bound.text.clone(), bound.values.clone()));
        let Some(watching) = &mut self.watch else {
            return Ok(None);
        };
        let (text, values) = bound.unwrap_or_else(|| {
            let text = Text {
                query: watching.texts.unknown(),
                sql: Sql::Unknown,
            };
            (text, None)
        });
        let mut query = self.begin_query(text.query, text.sql.bytes(), values);
        if let Some(query) = &mut query {
            query.row_limit = row_limit;
        }
        Ok(query)
    }
}

/// The first `most` + 1 bytes of a message's body, or all of a shorter one, once they have come.
fn front<'a>(chunk: &Chunk<'a>, header: Header, most: usize) -> Result<&'a [u8], Flow> {
    let end = header.total().min(HEADER + most + 1);
    chunk.rest().get(HEADER..end).ok_or(Flow::Partial)
}

/// A text as sent, cut to 1 KB.
fn shown(sql: &[u8]) -> Box<str> {
    let sql = sql.strip_suffix(b"\0").unwrap_or(sql);
    let cut = sql.len() > limits::QUERY_TEXT_KEPT;
    let mut text =
        String::from_utf8_lossy(&sql[..sql.len().min(limits::QUERY_TEXT_KEPT)]).into_owned();
    if cut {
        text.push_str(" ...");
    }
    text.into()
}
