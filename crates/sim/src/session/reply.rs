//! What a session replies: rows, errors and warnings, and ReadyForQuery.

use howdah_wire::backend::Status;
use howdah_wire::tag::backend;
use howdah_wire::write;

use super::{Block, Session};
use crate::schema::Shape;
use crate::sql::{Asked, Sql, Token};

pub(super) const COLUMN: write::Column<'static> = write::Column {
    name: "x",
    type_oid: 25,
    type_size: -1,
};

impl Session {
    /// Answers the pooler's questions about the session.
    pub(super) fn answer(&mut self, asked: &[Asked]) {
        let hex = |value: &str| {
            value
                .bytes()
                .map(|b| format!("{b:02x}"))
                .collect::<String>()
        };
        let prepared = self.statements(true).next().is_some();
        let objects = &self.objects;
        let flag = |is: bool| Some(if is { "t" } else { "f" }.to_string());
        let values = asked.iter().map(|one| match one {
            Asked::Setting(name) => self.settings.get(name).map(hex),
            Asked::Prepared => flag(prepared),
            Asked::Locks => flag(objects.has_locks()),
            Asked::Tables => flag(objects.has_tables()),
            Asked::Cursors => flag(objects.has_cursors()),
            Asked::Other => flag(false),
            Asked::Listens => flag(self.listened().next().is_some()),
            Asked::Channels => {
                let names: Vec<String> = self.listened().map(hex).collect();
                (!names.is_empty()).then(|| names.join(","))
            }
        });
        let values: Vec<Option<String>> = values.collect();
        write::row_description(&mut self.out, &vec![COLUMN; values.len()]);
        let values = values
            .iter()
            .map(|value| value.as_deref().map(str::as_bytes));
        write::data_row(&mut self.out, values.collect::<Vec<_>>().into_iter());
    }

    pub(super) fn warn(&mut self, sqlstate: &str, text: &str) {
        write::notice(&mut self.out, "WARNING", sqlstate, text, None);
        self.flushed = self.out.len();
    }

    /// A row contains its client and statement, the settings, and the session's objects.
    pub(super) fn row_of(
        &self,
        token: Option<Token>,
        row: u32,
        size: u32,
        text: &str,
        shape: Option<Shape>,
    ) -> Vec<u8> {
        let token = token.map_or_else(|| "nobody".into(), |token| token.to_string());
        let mut value = format!("{token}/{row} {text}");
        for setting in self.settings.values() {
            value.push('|');
            value.push_str(setting);
        }
        value.push_str(&self.objects.to_string());
        if let Some(shown) = self.shows {
            value.push_str(&shown.to_string());
        }
        while value.len() < size as usize {
            value.push(' ');
            value.push_str(&token);
        }
        if let Some(shape) = shape {
            value.push_str(&format!("|{shape:?}"));
        }
        let more = shape.map_or(0, |shape| shape.width() - 1);
        let values = [value.as_bytes()].into_iter();
        let values: Vec<_> = values.chain(vec![&b"more"[..]; more]).map(Some).collect();
        let mut out = Vec::new();
        write::data_row(&mut out, values.into_iter());
        out
    }

    pub(super) fn row(
        &mut self,
        token: Option<Token>,
        row: u32,
        size: u32,
        text: &str,
        shape: Option<Shape>,
    ) {
        let row = self.row_of(token, row, size, text, shape);
        self.out.extend_from_slice(&row);
    }

    pub(super) fn describe_rows(&mut self, sql: &Sql, shape: Option<Shape>) {
        if let Some(shape) = shape.filter(|_| sql.has_rows()) {
            shape.describe(&mut self.out);
        } else if sql.has_rows() {
            write::row_description(&mut self.out, &[COLUMN]);
        } else {
            write::empty(&mut self.out, backend::NO_DATA);
        }
    }

    pub(super) fn error(&mut self, sqlstate: &str, text: &str) {
        write::message(&mut self.out, backend::ERROR, |buf| {
            let front = [
                (b'S', "ERROR"),
                (b'V', "ERROR"),
                (b'C', sqlstate),
                (b'M', text),
            ];
            let place = place(sqlstate, text);
            for (code, value) in front.into_iter().chain(place) {
                buf.push(code);
                buf.extend_from_slice(value.as_bytes());
                buf.push(0);
            }
            buf.push(0);
        });
        // PostgreSQL sends errors and notices at once.
        self.flushed = self.out.len();
    }

    pub(super) fn ready(&mut self) {
        self.unsettled = false;
        self.bound = None;
        if self.block == Block::None {
            self.permitted = false;
            self.tell_notes();
        }
        for (name, value) in self.settings.report() {
            write::parameter_status(&mut self.out, name.as_bytes(), value.as_bytes());
        }
        let status = match self.block {
            Block::None => Status::Idle,
            Block::Open => Status::Transaction,
            Block::Failed => Status::Failed,
        };
        write::ready(&mut self.out, status);
        self.flushed = self.out.len();
    }
}

/// The place in PostgreSQL's sources, for errors that poolers look at.
fn place(sqlstate: &str, text: &str) -> Vec<(u8, &'static str)> {
    let (file, routine) = match sqlstate {
        "0A000" if text.starts_with("cached") => ("plancache.c", "RevalidateCachedQuery"),
        "08P01" if text.contains("formats") => ("pquery.c", "PortalSetResultFormat"),
        "26000" if text.starts_with("unnamed") => ("postgres.c", "exec_bind_message"),
        "26000" => ("prepare.c", "FetchPreparedStatement"),
        _ => return Vec::new(),
    };
    vec![(b'F', file), (b'R', routine)]
}
