//! The extended protocol of a session: statements and portals.

use howdah_wire::frame::{cstr, u16_be, u32_be};
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use super::{Fault, Portal, Prepared, Session, Slow, conflict, no_statement};
use crate::schema::Shape;
use crate::sql::{Sql, Token, split};
use crate::view::{Outcome, Plan};

impl Session {
    pub(super) fn extended(&mut self, tag: u8, body: &[u8]) -> Result<(), Fault> {
        let garbled = || ("08P01", "garbled message".to_string());
        match tag {
            frontend::PARSE => {
                let (name, rest) = cstr(body).ok_or_else(garbled)?;
                let (text, _) = cstr(rest).ok_or_else(garbled)?;
                self.parse(name, &String::from_utf8_lossy(text))
            }
            frontend::BIND => self.bind(body).ok_or_else(garbled)?,
            frontend::EXECUTE => {
                let (name, rest) = cstr(body).ok_or_else(garbled)?;
                let (most, _) = u32_be(rest).ok_or_else(garbled)?;
                self.execute(name, most)
            }
            _ => {
                let (&kind, rest) = body.split_first().ok_or_else(garbled)?;
                let (name, _) = cstr(rest).ok_or_else(garbled)?;
                if tag == frontend::DESCRIBE {
                    return self.describe(kind, name);
                }
                if kind == b'S' {
                    self.statements.remove(name);
                } else {
                    self.portals.remove(name);
                }
                write::empty(&mut self.out, backend::CLOSE_COMPLETE);
                Ok(())
            }
        }
    }

    fn parse(&mut self, name: &[u8], text: &str) -> Result<(), Fault> {
        if name.is_empty() {
            self.statements.remove(name);
        }
        let parts = split(text);
        if parts.len() > 1 {
            let text = "cannot insert multiple commands into a prepared statement";
            return Err(("42601", text.into()));
        }
        let sql = parts.first().map_or(Sql::Empty, |part| Sql::read(part));
        if sql == Sql::Unreadable {
            return Err(("42601", "syntax error".into()));
        }
        // An empty text is allowed in a failed transaction, too.
        if sql != Sql::Empty {
            self.refuse_in_failed(&sql)?;
        }
        if sql.keeps_server() {
            self.may_keep(false);
        }
        let (mut text, by_sql) = (text.to_string(), false);
        if let Sql::Select { from: None, .. } = sql
            && text.contains('\'')
        {
            // The text has constants whose meaning depends on settings.
            text.push_str(&self.constants());
        }
        let (rows, unnamed) = (sql.has_rows(), name.is_empty());
        let table = sql.table();
        let plan = table.map(|at| self.view.parse(at, rows, unnamed));
        let prepared = Prepared {
            text,
            sql,
            by_sql,
            plan: plan.transpose()?,
            vague: self.unsettled,
        };
        self.keep(name, prepared)?;
        write::empty(&mut self.out, backend::PARSE_COMPLETE);
        Ok(())
    }

    /// The settings that constants depend on, as text.
    fn constants(&self) -> String {
        self.settings
            .read_by()
            .map(|value| format!(" ~{value}"))
            .collect()
    }

    /// The current message is about a statement. A pooler may be unable to parse it now with the
    /// right constants.
    fn needs_constants(&mut self, name: &[u8]) {
        let Some(prepared) = self.statements.get(name) else {
            return;
        };
        let constants = prepared.text.find(" ~").map(|at| &prepared.text[at..]);
        let others = constants.is_some_and(|has| has != self.constants());
        let unsure = constants.is_some() && (prepared.vague || self.unsettled);
        self.refusable = others || unsure;
    }

    fn bind(&mut self, body: &[u8]) -> Option<Result<(), Fault>> {
        let bind = Bind::read(body)?;
        self.view.record(bind.token);
        Some(self.bound(bind))
    }

    fn bound(&mut self, bind: Bind<'_>) -> Result<(), Fault> {
        let (portal, name) = (bind.portal, bind.name);
        self.needs_constants(name);
        let Some(mut prepared) = self.statements.get(name).cloned() else {
            return Err(no_statement(name));
        };
        let (wanted, count) = (prepared.sql.parameters(), bind.count);
        if wanted != count {
            let text = format!("bind message supplies {count} parameters, {wanted} are required");
            return Err(("08P01", text));
        }
        self.refuse_in_failed(&prepared.sql)?;
        self.placed([&prepared.sql], bind.key)?;
        if prepared.sql.keeps_server() {
            self.may_keep(false);
        }
        if !portal.is_empty() && self.portals.contains_key(portal) {
            self.view.stir();
            let name = String::from_utf8_lossy(portal);
            return Err(("42P03", format!("cursor \"{name}\" already exists")));
        }
        let shape = self.rows_of(&mut prepared, &bind)?;
        if let Some(kept) = self.statements.get_mut(name) {
            kept.plan = prepared.plan.clone();
        }
        self.bound = (!name.is_empty()).then(|| (portal.to_vec(), name.to_vec()));
        let plan = prepared.plan.filter(Plan::has_rows);
        let entry = Portal {
            text: prepared.text,
            sql: prepared.sql,
            token: bind.token,
            key: bind.key,
            sent: None,
            done: false,
            shape: shape.filter(|_| plan.is_some()),
        };
        self.portals.insert(portal.to_vec(), entry);
        write::empty(&mut self.out, backend::BIND_COMPLETE);
        Ok(())
    }

    /// The table's shape that a statement's rows have.
    fn rows_of(
        &mut self,
        prepared: &mut Prepared,
        bind: &Bind<'_>,
    ) -> Result<Option<Shape>, Fault> {
        let Some(plan) = &mut prepared.plan else {
            return Ok(None);
        };
        let shape = match self.view.revalidate(plan, bind.token) {
            Outcome::Goes(shape) => shape,
            Outcome::Fails(fault) => return Err(fault),
        };
        let (formats, width) = (bind.results, shape.width());
        if formats > 1 && formats != width && plan.has_rows() {
            let text =
                format!("bind message has {formats} result formats but query has {width} columns");
            return Err(("08P01", text));
        }
        Ok(Some(shape))
    }

    fn describe(&mut self, kind: u8, name: &[u8]) -> Result<(), Fault> {
        if kind != b'S' {
            return self.describe_portal(name);
        }
        self.needs_constants(name);
        let Some(prepared) = self.statements.get(name) else {
            return Err(no_statement(name));
        };
        let sql = prepared.sql.clone();
        let planned = prepared.plan.as_ref().is_some_and(Plan::has_rows);
        if sql.has_rows() {
            self.refuse_in_failed(&sql)?;
        }
        let count = sql.parameters() as u16;
        write::message(&mut self.out, backend::PARAMETER_DESCRIPTION, |buf| {
            buf.extend_from_slice(&count.to_be_bytes());
            for _ in 0..count {
                buf.extend_from_slice(&25u32.to_be_bytes());
            }
        });
        if !planned {
            self.describe_rows(&sql, None);
            return Ok(());
        }
        if self.view.is_reference() {
            self.undecided = Some(name.to_vec());
            return Ok(());
        }
        self.describe_planned(name)
    }

    /// The second half of a statement's description, if its rows are a table's.
    pub(super) fn describe_planned(&mut self, name: &[u8]) -> Result<(), Fault> {
        let Some(prepared) = self.statements.get_mut(name) else {
            return Ok(());
        };
        let Some(plan) = &mut prepared.plan else {
            return Ok(());
        };
        match self.view.revalidate(plan, None) {
            Outcome::Goes(shape) => {
                self.view.describe(plan, shape);
                shape.describe(&mut self.out);
                Ok(())
            }
            Outcome::Fails(fault) => Err(fault),
        }
    }

    fn describe_portal(&mut self, name: &[u8]) -> Result<(), Fault> {
        let portal = self.portal(name)?.clone();
        if portal.sql.has_rows() {
            self.refuse_in_failed(&portal.sql)?;
        }
        if let (Some(shape), Some((_, of))) =
            (portal.shape, self.bound.take_if(|(last, _)| last == name))
            && let Some(prepared) = self.statements.get_mut(&of)
            && let Some(plan) = prepared.plan.as_mut().filter(|plan| plan.is_undescribed())
        {
            // If the statement was not described before, a pooler asks PostgreSQL for its
            // description. Only here can DDL of other sessions come in between.
            if self.view.hears_error()
                && let Outcome::Fails(fault) = self.view.revalidate(plan, None)
            {
                return Err(fault);
            }
            self.view.describe(plan, shape);
        }
        self.describe_rows(&portal.sql, portal.shape);
        Ok(())
    }

    fn portal(&mut self, name: &[u8]) -> Result<&mut Portal, Fault> {
        self.portals.get_mut(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            ("34000", format!("portal \"{name}\" does not exist"))
        })
    }

    fn execute(&mut self, name: &[u8], most: u32) -> Result<(), Fault> {
        let portal = self.portal(name)?;
        let (sql, started) = (portal.sql.clone(), portal.sent.is_some());
        self.refuse_in_failed(&sql)?;
        if let Sql::Select { slow, .. } = sql
            && slow > 0
            && !started
        {
            self.slow = Some(Slow::Portal(name.to_vec(), most, slow));
            return Ok(());
        }
        self.run_portal(name, most)
    }

    pub(super) fn run_portal(&mut self, name: &[u8], most: u32) -> Result<(), Fault> {
        let portal = self.portal(name)?.clone();
        let Sql::Select {
            author,
            rows,
            size,
            notice,
            place,
            ..
        } = portal.sql
        else {
            if portal.done {
                let name = String::from_utf8_lossy(name);
                return Err(("55000", format!("portal \"{name}\" cannot be run")));
            }
            self.portal(name)?.done = true;
            self.unsettled |= portal.sql.sets();
            self.key = portal.key;
            self.run(&portal.sql, portal.token, &portal.text, portal.shape)?;
            return Ok(());
        };
        let mut gives_up = false;
        if portal.sent.is_none() {
            gives_up = self.ails()?;
            self.transaction.does(&portal.sql);
            let token = self.ran(author, portal.token);
            self.key = portal.key;
            self.notes_place(token, place);
            if notice {
                write::notice(&mut self.out, "NOTICE", "00000", "noted", None);
                self.flushed = self.out.len();
            }
        }
        let from = portal.sent.unwrap_or(0);
        let left = rows.saturating_sub(from);
        let now = if most == 0 { left } else { left.min(most) };
        for row in from..from + now {
            let said = self.row_of(portal.token, row, size, &portal.text, portal.shape);
            self.out.extend_from_slice(&said);
            if gives_up {
                return Err(conflict("40001"));
            }
        }
        self.portal(name)?.sent = Some(from + now);
        if most > 0 && now == most {
            write::empty(&mut self.out, backend::PORTAL_SUSPENDED);
        } else {
            write::command_complete(&mut self.out, &format!("SELECT {now}"));
        }
        Ok(())
    }
}

/// A Bind message.
pub(super) struct Bind<'a> {
    portal: &'a [u8],
    /// The name of the statement.
    pub name: &'a [u8],
    /// The number of parameters.
    count: usize,
    /// The first parameter that is a token.
    token: Option<Token>,
    /// The second parameter, if it is a key.
    pub key: Option<u8>,
    /// The number of columns for which the Bind has formats.
    results: usize,
}

impl Bind<'_> {
    /// Reads a Bind.
    pub fn read(body: &[u8]) -> Option<Bind<'_>> {
        let (portal, rest) = cstr(body)?;
        let (name, rest) = cstr(rest)?;
        let (formats, rest) = u16_be(rest)?;
        let (count, mut rest) = u16_be(rest.get(2 * usize::from(formats)..)?)?;
        let (mut token, mut key) = (None, None);
        for at in 0..count {
            let (length, value) = u32_be(rest)?;
            let value = value.split_at_checked(length as usize)?;
            // Filler may follow the token.
            let text = String::from_utf8_lossy(value.0);
            token = token.or(text.split(' ').next().and_then(Token::read));
            if at == 1 {
                key = text.parse().ok();
            }
            rest = value.1;
        }
        let (results, _) = u16_be(rest)?;
        Some(Bind {
            portal,
            name,
            count: usize::from(count),
            token,
            key,
            results: usize::from(results),
        })
    }
}
