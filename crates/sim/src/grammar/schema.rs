//! Messages about tables: DDL, and statements that depend on it.

use howdah_wire::tag::frontend;

use super::Speaker;
use crate::schema::{Shape, TABLES};

/// The number of kinds of units.
pub(super) const KINDS: usize = 8;

/// Texts of prepared statements.
const TEXTS: [&str; 6] = [
    "select $1 from t0 v20",
    "select $1 from t1 rows 3 v21",
    "insert $1 into t0 v22",
    "select $1 from t0 slow 2 v23",
    "select $1 from t1 notice v24",
    "select $1 from t0 rows 2 v25",
];

/// Texts whose functions change a table.
const HIDDEN: [&str; 4] = [
    "select $1 alters table t0 1 v26",
    "select $1 alters table t0 0 v27",
    "select $1 alters table t1 2 v28",
    "select $1 drops table t1 v29",
];

impl Speaker<'_> {
    /// A unit of this kind.
    pub(super) fn about_tables(&mut self, kind: usize) {
        match kind {
            0 => self.name_statements(),
            1 => self.use_statements(),
            2 => {
                let text = self.ddl();
                self.run(&text);
            }
            3 if self.tongue.blocks => self.block_with_ddl(),
            4 => self.query_tables(),
            5 if self.tongue.blocks && self.tongue.named => self.try_out(),
            6 if self.tongue.named => self.migrate(),
            _ if self.tongue.blocks => self.portals_of_tables(),
            _ => self.use_statements(),
        }
    }

    fn ddl(&mut self) -> String {
        let token = self.token();
        let table = self.chance.within(0..=TABLES - 1);
        let shape = self.chance.within(0..=Shape::COUNT - 1);
        let kind = match self.chance.within(0..=9) {
            0 => 1,
            1..=2 => 2,
            _ => 0,
        };
        if self.tongue.hides_ddl && self.chance.once_in(3) {
            let verb = ["alters", "drops", "creates"][kind];
            return format!("select '{token}' {verb} table t{table} {shape}");
        }
        let verb = ["alter", "drop", "create"][kind];
        format!("{verb} table t{table} {shape} '{token}'")
    }

    /// A name that only statements about tables have, if named statements are allowed.
    fn table_name(&mut self) -> String {
        if self.tongue.named {
            format!("w{}", self.chance.within(0..=3))
        } else {
            String::new()
        }
    }

    fn table_text(&mut self) -> &'static str {
        if self.tongue.hides_ddl && self.chance.once_in(12) {
            return HIDDEN[self.chance.within(0..=HIDDEN.len() - 1)];
        }
        TEXTS[self.chance.within(0..=TEXTS.len() - 1)]
    }

    /// Parses a statement, perhaps again, and perhaps describes and runs it.
    fn name_statements(&mut self) {
        for _ in 0..self.chance.within(1..=2) {
            let name = self.table_name();
            if !name.is_empty() && !self.chance.once_in(3) {
                self.target(frontend::CLOSE, b'S', &name);
            }
            let text = self.table_text();
            self.parse(&name, text);
            if self.chance.once_in(2) {
                self.target(frontend::DESCRIBE, b'S', &name);
            }
            if self.chance.once_in(4) {
                // As drivers do that describe before they bind.
                self.sync();
            }
            if !name.is_empty() || self.tongue.unnamed {
                for _ in 0..self.chance.within(0..=2) {
                    self.bind_execute("", &name, true, 0);
                }
            }
        }
        self.sync();
    }

    /// Uses statements that were named before, perhaps long ago.
    fn use_statements(&mut self) {
        if !self.tongue.named {
            return self.name_statements();
        }
        for _ in 0..self.chance.within(1..=2) {
            self.use_statement("", 0);
        }
        self.sync();
    }

    fn use_statement(&mut self, portal: &str, most: u32) {
        let name = self.table_name();
        if self.chance.once_in(6) {
            self.target(frontend::DESCRIBE, b'S', &name);
        }
        let formats = if self.chance.once_in(8) { 2 } else { 0 };
        self.bind_as(portal, &name, true, formats);
        if self.chance.once_in(3) {
            self.target(frontend::DESCRIBE, b'P', portal);
        }
        self.execute(portal, most);
    }

    fn block_with_ddl(&mut self) {
        self.run("begin");
        for _ in 0..self.chance.within(1..=4) {
            match self.chance.within(0..=5) {
                0 => self.name_statements(),
                1 | 2 => self.use_statements(),
                3 => self.unit_of_one(),
                _ => {
                    let text = self.ddl();
                    self.run(&text);
                }
            }
            if self.chance.once_in(2) {
                self.await_answers();
            }
            if self.chance.once_in(10) {
                self.rest(40);
            }
        }
        let end = ["rollback", "commit"][self.chance.within(0..=1)];
        self.run(end);
    }

    /// Parses or uses a statement while a table is changed for a while, and before and after that.
    fn try_out(&mut self) {
        let (name, text) = (self.table_name(), self.table_text());
        if self.chance.once_in(2) {
            self.renew(&name, text);
        }
        self.run("begin");
        let ddl = self.ddl();
        self.run(&ddl);
        self.perhaps_await();
        if self.chance.once_in(2) {
            self.renew(&name, text);
        } else {
            self.use_one(&name);
        }
        self.perhaps_await();
        let end = ["rollback", "rollback", "commit"][self.chance.within(0..=2)];
        self.run(end);
        self.perhaps_await();
        if self.chance.once_in(2) {
            self.use_one(&name);
        }
        self.renew(&name, text);
        self.use_one(&name);
    }

    /// Changes a table, then parses earlier statements again, as drivers do.
    fn migrate(&mut self) {
        let (name, text) = (self.table_name(), self.table_text());
        for _ in 0..self.chance.within(1..=2) {
            let ddl = self.ddl();
            self.run(&ddl);
        }
        self.perhaps_await();
        self.use_one(&name);
        self.perhaps_await();
        self.renew(&name, text);
        self.perhaps_await();
        self.use_one(&name);
    }

    fn perhaps_await(&mut self) {
        if !self.chance.once_in(4) {
            self.await_answers();
        }
    }

    /// Closes a statement, parses it again, and mostly describes it.
    fn renew(&mut self, name: &str, text: &str) {
        self.target(frontend::CLOSE, b'S', name);
        self.parse(name, text);
        if !self.chance.once_in(3) {
            self.target(frontend::DESCRIBE, b'S', name);
        }
        self.sync();
    }

    fn use_one(&mut self, name: &str) {
        self.bind("", name, true);
        if self.chance.once_in(3) {
            self.target(frontend::DESCRIBE, b'P', "");
        }
        self.execute("", 0);
        self.sync();
    }

    fn query_tables(&mut self) {
        let mut parts = Vec::new();
        for _ in 0..self.chance.within(1..=3) {
            let part = match self.chance.within(0..=4) {
                0 => self.ddl(),
                1 => self.statement(),
                2 => format!("insert '{}' into t1", self.token()),
                _ => {
                    let table = self.chance.within(0..=TABLES - 1);
                    format!("select '{}' from t{table} rows 2", self.token())
                }
            };
            parts.push(part);
        }
        self.query(&parts.join(";"));
    }

    fn portals_of_tables(&mut self) {
        self.run("begin");
        if !self.tongue.named {
            let text = self.table_text();
            self.parse("", text);
            self.bind("p", "", true);
            self.target(frontend::DESCRIBE, b'P', "p");
            self.execute("p", 1);
        } else {
            self.use_statement("p", 1);
        }
        if self.chance.once_in(2) {
            self.execute("p", 0);
        }
        self.sync();
        if self.chance.once_in(3) {
            let text = self.ddl();
            self.query(&text);
        }
        if self.chance.once_in(2) {
            self.execute("p", 0);
            self.sync();
        }
        self.run("commit");
    }
}
