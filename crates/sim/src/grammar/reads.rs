//! Units about reads that may run at a standby.

use howdah_wire::tag::frontend;

use super::Speaker;

/// How many kinds there are.
pub const KINDS: usize = 7;

/// What begins a transaction that only reads.
const BEGINS: [&str; 6] = [
    "begin read only",
    "BEGIN READ ONLY",
    "start transaction read only",
    "begin isolation level repeatable read, read only",
    "begin isolation level serializable, read only",
    "/* howdah.route=primary */ begin read only",
];

/// Where a single statement is to run. Each is a read.
const HINTS: [&str; 5] = [
    "prefer-standby",
    "prefer-standby",
    "standby",
    "primary",
    "auto",
];

/// Texts of prepared statements that only read.
const TEXTS: [&str; 3] = [
    "select $1 w0",
    "/* howdah.route=prefer-standby */ select $1 w1",
    "/* howdah.route=standby */ select $1 rows 2 w2",
];

impl Speaker<'_> {
    pub(super) fn about_reads(&mut self, kind: usize) {
        let tongue = self.tongue;
        match kind {
            0 if tongue.blocks => self.read_block(),
            1 if tongue.single && self.chance.once_in(2) => self.single_reads(),
            1 => self.hinted(),
            2 => self.read_group(),
            3 if tongue.reads_by_default => self.reads_by_default(),
            4 if tongue.session && tongue.blocks => self.routes_all(),
            5 => self.written_to_standby(),
            6 if tongue.blocks && tongue.sure && !tongue.discards => self.keeps_standby(),
            _ => self.write_and_read(),
        }
        if self.chance.once_in(2) {
            self.rest(300);
        }
    }

    /// What is written must be read, in a transaction or in a statement of its own.
    fn write_and_read(&mut self) {
        let token = self.token();
        let insert = format!("insert '{token}'");
        if self.tongue.blocks && self.chance.once_in(2) {
            self.query("begin");
            self.query(&insert);
            self.rest(200);
            self.query("commit");
        } else {
            self.query(&insert);
        }
        if self.chance.once_in(2) {
            self.await_answers();
        }
        if self.tongue.blocks && self.chance.once_in(2) {
            self.read_block();
        } else {
            self.hinted();
        }
    }

    fn read_block(&mut self) {
        let begin = BEGINS[self.chance.within(0..=BEGINS.len() - 1)];
        self.run(begin);
        for _ in 0..self.chance.within(1..=3) {
            if self.chance.once_in(3) {
                self.await_answers();
            }
            match self.chance.within(0..=7) {
                0 => self.unit_of_one(),
                1 => self.group(false),
                2 => self.rest(60),
                _ => self.reads(""),
            }
        }
        let end = ["commit", "commit", "rollback"][self.chance.within(0..=2)];
        self.run(end);
    }

    fn reads(&mut self, before: &str) {
        let token = self.token();
        let text = match self.chance.within(0..=5) {
            0 => format!("{before}select '{token}' rows 3"),
            1 => format!(
                "{before}select '{token}' slow {}",
                self.chance.within(1..=20)
            ),
            _ => format!("{before}select '{token}'"),
        };
        self.run(&text);
    }

    fn hinted(&mut self) {
        let hint = HINTS[self.chance.within(0..=HINTS.len() - 1)];
        for _ in 0..self.chance.within(1..=3) {
            self.reads(&format!("/* howdah.route={hint} */ "));
            if self.chance.once_in(2) {
                self.await_answers();
            }
        }
    }

    /// Reads without a hint, and what looks like one.
    fn single_reads(&mut self) {
        for _ in 0..self.chance.within(1..=4) {
            match self.chance.within(0..=5) {
                0 if self.tongue.named => self.group_of_reads(),
                1 => {
                    let token = self.token();
                    self.run(&format!("with w as (insert '{token}') select 1"));
                }
                _ => self.reads(""),
            }
            if !self.chance.once_in(3) {
                // Nothing is behind it.
                self.await_answers();
            }
        }
    }

    /// Several statements up to a Sync. The last one may write.
    fn group_of_reads(&mut self) {
        let name = |at| format!("r0_{at}");
        for (at, text) in TEXTS.iter().enumerate().take(2) {
            self.target(frontend::CLOSE, b'S', &name(at));
            self.parse(&name(at), text);
            self.sync();
        }
        self.await_answers();
        for _ in 0..self.chance.within(2..=4) {
            let at = self.chance.within(0..=1);
            self.bind_execute("", &name(at), true, 0);
        }
        if self.chance.once_in(3) {
            self.parse("", "insert $1 w3");
            self.bind_execute("", "", true, 0);
        }
        self.sync();
    }

    fn read_group(&mut self) {
        let at = self.chance.within(0..=TEXTS.len() - 1);
        let name = if self.tongue.named {
            format!("r{}_{at}", self.chance.within(0..=1))
        } else {
            String::new()
        };
        self.target(frontend::CLOSE, b'S', &name);
        self.parse(&name, TEXTS[at]);
        self.bind_execute("", &name, true, 0);
        self.sync();
        if self.tongue.named {
            for _ in 0..self.chance.within(0..=2) {
                self.bind_execute("", &name, true, 0);
                self.sync();
            }
        }
    }

    /// Transactions only read for a while.
    fn reads_by_default(&mut self) {
        self.run("set default_transaction_read_only='on'");
        for _ in 0..self.chance.within(1..=4) {
            match self.chance.within(0..=6) {
                0 => self.unit_of_one(),
                1 if self.tongue.blocks => self.read_block(),
                2 if self.tongue.blocks => {
                    self.run("begin read write");
                    self.unit_of_one();
                    self.run("commit");
                }
                _ => self.reads(""),
            }
            if self.chance.once_in(2) {
                self.await_answers();
            }
        }
        if !self.chance.once_in(6) {
            self.run("set default_transaction_read_only='off'");
        }
    }

    /// A standby refuses writes. If it was promoted meanwhile, or none is there, they may be carried out.
    fn written_to_standby(&mut self) {
        let hint = HINTS[self.chance.within(0..=2)];
        if self.chance.once_in(2) {
            let token = self.token();
            return self.run(&format!("/* howdah.route={hint} */ insert '{token}'"));
        }
        self.parse("", &format!("/* howdah.route={hint} */ insert $1 w3"));
        self.bind_execute("", "", true, 0);
        self.sync();
    }

    /// What a read leaves at a standby keeps the standby's server. Then writes go to the primary again.
    fn keeps_standby(&mut self) {
        let token = self.token();
        let name = format!("q{}_{}", token.client, token.number);
        self.query("begin read only");
        self.query(&format!("prepare {name} as select 1"));
        self.query("commit");
        for _ in 0..self.chance.within(0..=2) {
            let run = self.token();
            self.query(&format!("execute {name} '{run}'"));
        }
        if self.chance.once_in(2) {
            self.await_answers();
        }
        self.query(&format!("deallocate {name}"));
        self.write_and_read();
    }

    /// All reads go to the primary for a while.
    fn routes_all(&mut self) {
        let to = ["primary", "auto"][self.chance.within(0..=1)];
        self.run(&format!("set howdah.route='{to}'"));
        for _ in 0..self.chance.within(1..=2) {
            self.read_block();
        }
        if self.chance.once_in(2) {
            self.run("reset howdah.route");
        }
    }
}
