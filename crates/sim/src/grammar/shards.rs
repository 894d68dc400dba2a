//! The messages of clients of a sharded database. All texts are PostgreSQL's SQL, because Howdah reads them.

use std::collections::VecDeque;

use howdah_wire::tag::frontend;

use super::{Act, Speaker};
use crate::sharding::KEYS;

/// How many kinds of units there are.
const KINDS: usize = 12;

/// Texts of prepared statements. Each has a token and a key.
const TEXTS: [&str; 4] = [
    "select $1 from items where account = $2 /* y0 */",
    "insert into items values ($2, $1) /* y1 */",
    "select $1 from items where account = $2 /* rows 3 slow 2 y2 */",
    "insert into items values ($2, $1) /* fails y3 */",
];

/// What begins a transaction.
const BEGINS: [&str; 4] = [
    "begin",
    "BEGIN",
    "begin isolation level serializable",
    "begin read write",
];

impl Speaker<'_> {
    /// A unit of a client of a sharded database. Each client has a kind that it likes.
    pub(super) fn sharded_unit(&mut self) {
        let kind = match self.chance.once_in(3) {
            true => self.client as usize % KINDS,
            false => self.chance.within(0..=KINDS - 1),
        };
        match kind {
            0 => self.keyed(None),
            1 => self.prepared(),
            2 => self.known(),
            3..=6 => self.sharded_block(),
            7 => self.says_shard(),
            8 => self.without_shard(),
            9 => self.several_of_shards(),
            10 => self.sharded_setting(),
            _ => self.sharded_oddment(),
        }
    }

    /// The same as [`Speaker::broken_script`].
    pub(super) fn broken_sharded_script(mut self, units: usize) -> VecDeque<Act> {
        self.open_block();
        for _ in 0..self.chance.within(0..=2) {
            self.without_key();
        }
        if self.chance.once_in(2) {
            self.keyed(None);
        }
        if self.chance.once_in(2) {
            self.await_answers();
        }
        self.pause();
        let last = std::mem::take(&mut self.script);
        self.block = None;
        let mut script = self.script(units);
        script.extend(last);
        script
    }

    fn key(&mut self) -> u8 {
        self.chance.within(0..=usize::from(KEYS) - 1) as u8
    }

    /// The remark of a statement: how it runs, and what its client knows for sure.
    fn remark(&self, how: &str, shard: Option<u8>) -> String {
        let mut remark = how.to_string();
        if self.hinted {
            remark += " hinted ";
        }
        if self.tongue.sure {
            if let Some(shard) = shard {
                remark += &format!(" at {shard} ");
            }
            if let Some(block) = self.block {
                remark += &format!(" block {block} ");
            }
        }
        match remark.is_empty() {
            true => remark,
            false => format!(" /* {remark} */"),
        }
    }

    /// How a statement runs.
    fn manner(&mut self) -> String {
        match self.chance.within(0..=7) {
            0 => format!("rows {} ", self.chance.within(0..=4)),
            1 => format!("slow {} ", self.chance.within(1..=4)),
            2 => {
                let most = if self.tongue.sure { 60 } else { 400 };
                format!("slow {} ", self.chance.within(1..=most))
            }
            3 => format!("notice size {} ", self.chance.within(0..=2000)),
            _ => String::new(),
        }
    }

    /// A statement with a key.
    fn keyed_text(&mut self, key: u8) -> String {
        let token = self.token();
        match self.chance.within(0..=8) {
            0..=3 => {
                let remark = self.remark("", None);
                format!("insert into items values ({key}, '{token}'){remark}")
            }
            4 => {
                let remark = self.remark("fails ", None);
                format!("insert into items values ({key}, '{token}'){remark}")
            }
            _ => {
                let how = self.manner();
                let remark = self.remark(&how, None);
                format!("select '{token}' from items where account = {key}{remark}")
            }
        }
    }

    fn keyed(&mut self, key: Option<u8>) {
        let key = match key {
            Some(key) => key,
            None => self.key(),
        };
        let text = self.keyed_text(key);
        self.run(&text);
    }

    /// A statement that any shard may run, or with `shard` this one only.
    fn keyless(&mut self, shard: Option<u8>) {
        let token = self.token();
        let how = self.manner();
        let remark = self.remark(&how, shard);
        self.run(&format!("select '{token}'{remark}"));
    }

    /// A statement that reads any rows of a shard.
    fn open(&mut self, before: &str, shard: Option<u8>) {
        let token = self.token();
        let how = self.manner();
        let remark = self.remark(&how, shard);
        self.run(&format!("{before}select '{token}' from items{remark}"));
    }

    fn bind_key(&mut self, name: &str, key: u8) {
        if self.chance.once_in(3) {
            self.target(frontend::DESCRIBE, b'S', name);
        }
        let token = self.token().to_string();
        let mut body = Vec::new();
        for text in ["", name] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        body.extend_from_slice(&[0, 0, 0, 2]);
        for value in [token, key.to_string()] {
            body.extend_from_slice(&(value.len() as u32).to_be_bytes());
            body.extend_from_slice(value.as_bytes());
        }
        body.extend_from_slice(&[0, 0]);
        self.say(frontend::BIND, body);
        if self.chance.once_in(3) {
            self.target(frontend::DESCRIBE, b'P', "");
        }
        self.execute("", 0);
    }

    /// A statement is parsed and bound, perhaps several times, mostly with one key.
    fn prepared(&mut self) {
        let key = self.key();
        self.prepared_of(key);
    }

    fn prepared_of(&mut self, key: u8) {
        let name = match self.tongue.named && self.chance.once_in(2) {
            true => format!("y{}", self.chance.within(0..=2)),
            false => String::new(),
        };
        if !name.is_empty() {
            self.target(frontend::CLOSE, b'S', &name);
        }
        let text = TEXTS[self.chance.within(0..=TEXTS.len() - 1)];
        self.parse(&name, text);
        if self.chance.once_in(4) {
            // As drivers do that want the types before they bind.
            self.target(frontend::DESCRIBE, b'S', &name);
            self.sync();
            if self.chance.once_in(2) {
                self.await_answers();
            }
            // A failed transaction does not parse it.
            if name.is_empty() && (self.block.is_some() || !self.tongue.unnamed) {
                self.parse(&name, text);
            }
        }
        for _ in 0..self.chance.within(1..=3) {
            let other = self.chance.once_in(8).then(|| self.key());
            self.bind_key(&name, other.unwrap_or(key));
        }
        self.sync();
    }

    /// Statements that were parsed before, or were not.
    fn known(&mut self) {
        if !self.tongue.named {
            return self.keyed(None);
        }
        for _ in 0..self.chance.within(1..=3) {
            let (name, key) = (self.chance.within(0..=2), self.key());
            self.bind_key(&format!("y{name}"), key);
            if self.chance.once_in(2) {
                self.sync();
            }
        }
        self.sync();
    }

    fn open_block(&mut self) {
        let begin = BEGINS[self.chance.within(0..=BEGINS.len() - 1)];
        self.run(begin);
        self.block = Some(*self.number);
        if self.chance.once_in(3) {
            self.await_answers();
        }
    }

    fn close_block(&mut self) {
        let end = ["commit", "commit", "end", "rollback"][self.chance.within(0..=3)];
        self.run(end);
        self.block = None;
    }

    /// What comes before the first statement that shows the shard.
    fn without_key(&mut self) {
        match self.chance.within(0..=7) {
            0 => {
                let megabytes = self.chance.within(1..=9);
                self.run(&format!("set local work_mem='{megabytes}MB'"));
            }
            1 | 2 => self.savepoint(),
            3 => self.query("show TimeZone"),
            4 => self.query("set local statement_timeout=0"),
            5 if self.chance.once_in(3) => {
                let text = self.set("local ");
                self.run(&text);
            }
            6 if self.tongue.named => {
                self.parse("", TEXTS[0]);
                self.target(frontend::DESCRIBE, b'S', "");
                self.sync();
            }
            _ => self.keyless(None),
        }
        if self.chance.once_in(3) {
            self.await_answers();
        }
    }

    /// A savepoint, perhaps with the way back.
    fn savepoint(&mut self) {
        let token = self.token();
        let name = format!("p{}_{}", token.client, token.number);
        self.run(&format!("savepoint {name}"));
        if self.chance.once_in(2) {
            if self.chance.once_in(2) {
                self.keyless(None);
            }
            self.run(&format!("rollback to {name}"));
        }
    }

    fn sharded_block(&mut self) {
        self.open_block();
        let key = self.key();
        for _ in 0..self.chance.within(0..=2) {
            self.without_key();
        }
        if self.chance.once_in(6) {
            return self.close_block();
        }
        if self.chance.once_in(6) {
            return self.hinted_block();
        }
        for _ in 0..self.chance.within(1..=4) {
            match self.chance.within(0..=9) {
                0 => self.keyed(None),
                1 => self.keyless(None),
                2 => self.savepoint(),
                3 => self.prepared_of(key),
                4 => {
                    let other = self.chance.once_in(3).then(|| self.key());
                    let texts = [self.keyed_text(key), self.keyed_text(other.unwrap_or(key))];
                    self.query(&texts.join(";"));
                }
                5 if self.chance.once_in(4) => self.run("begin"),
                _ => self.keyed(Some(key)),
            }
            if self.chance.once_in(3) {
                self.await_answers();
            }
            if self.chance.once_in(15) {
                self.rest(400);
            }
        }
        self.close_block();
    }

    /// The shard is said for the open transaction, and not behind it.
    fn hinted_block(&mut self) {
        let shard = self.chance.within(0..=1) as u8;
        self.run(&format!("set local howdah.shard='d{shard}'"));
        self.hinted = true;
        for _ in 0..self.chance.within(1..=2) {
            match self.chance.within(0..=3) {
                0 => self.keyed(None),
                1 => self.keyless(Some(shard)),
                _ => self.open("", Some(shard)),
            }
        }
        self.close_block();
        // What takes the hint back may be cancelled.
        self.hinted = !self.tongue.sure;
        if self.chance.once_in(2) {
            self.open("", None);
        }
    }

    /// The shard is said for the session or for a statement.
    fn says_shard(&mut self) {
        let shard = self.chance.within(0..=1) as u8;
        if self.chance.once_in(3) {
            let hint = format!("/*howdah.shard='d{shard}'*/ ");
            return self.open(&hint, Some(shard));
        }
        if self.chance.once_in(8) {
            return self.run("set howdah.shard='d7'");
        }
        self.run(&format!("set howdah.shard='d{shard}'"));
        self.hinted = true;
        for _ in 0..self.chance.within(1..=3) {
            match self.chance.within(0..=4) {
                0 => self.keyed(None),
                1 => self.keyless(Some(shard)),
                2 => {
                    self.open_block();
                    self.open("", Some(shard));
                    if self.chance.once_in(6) {
                        self.run("set howdah.shard='d0'");
                    }
                    self.close_block();
                }
                _ => self.open("", Some(shard)),
            }
            if self.chance.once_in(2) {
                self.await_answers();
            }
        }
        let reset = ["reset howdah.shard", "reset howdah.shard", "discard all"];
        let reset = reset[self.chance.within(0..=2)];
        self.run(reset);
        // What takes the hint back may be cancelled.
        self.hinted = !self.tongue.sure;
    }

    /// Nothing says the shard.
    fn without_shard(&mut self) {
        match self.chance.within(0..=3) {
            0 => self.query("no words"),
            1 => self.open("", None),
            _ => self.keyless(None),
        }
    }

    /// Several statements in a text: of one shard, or perhaps of several.
    fn several_of_shards(&mut self) {
        let key = self.key();
        let mut texts = Vec::new();
        for _ in 0..self.chance.within(2..=3) {
            let other = self.chance.once_in(6).then(|| self.key());
            texts.push(self.keyed_text(other.unwrap_or(key)));
        }
        if self.chance.once_in(4) {
            texts.insert(0, "begin".into());
            texts.push("commit".into());
        }
        self.query(&texts.join(";"));
        if texts[0] == "begin" {
            // If a statement has failed.
            self.query("rollback");
        }
    }

    fn sharded_setting(&mut self) {
        let text = self.set("");
        self.run(&text);
        self.keyed(None);
    }

    fn sharded_oddment(&mut self) {
        match self.chance.within(0..=6) {
            0 => self.query(""),
            1 => self.sync(),
            2 => self.query("commit"),
            3 => self.query("rollback"),
            4 => self.query("show DateStyle"),
            5 if self.tongue.named => self.run("deallocate all"),
            _ => self.run("set local howdah.shard='d1'"),
        }
    }
}
