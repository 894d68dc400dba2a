//! The messages of clients, by weighted grammars. The weights differ from seed to seed, so each run has
//! another emphasis.

mod channels;
mod objects;
mod reads;
mod schema;
mod shards;

use std::collections::VecDeque;

use howdah_wire::tag::frontend;

use crate::chance::Chance;
use crate::reference::Message;
use crate::sql::Token;

/// A client's next act.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Sends messages.
    Send(Vec<Message>),
    /// Waits until everything is answered.
    Await,
    /// Waits until a COPY begins, or everything is answered.
    AwaitCopy,
    /// Does nothing for this many milliseconds.
    Rest(u64),
    /// Does nothing for this many milliseconds. By their end, the client must have received all
    /// earlier notifications.
    Hark(u64),
    /// Reads nothing for this many milliseconds, but goes on sending.
    Deafen(u64),
}

/// How a client ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Sends Terminate when everything is answered.
    Terminate,
    /// Sends Terminate at once. Its earlier messages must be carried out.
    TerminateAtOnce,
    /// Closes its socket when everything is answered.
    Close,
    /// Vanishes in the middle of its messages, after this many bytes. True: with a reset.
    Vanish(usize, bool),
}

/// What a client may use, by the pool's mode and the settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tongue {
    /// Named statements, which outlive their transaction.
    pub named: bool,
    /// The unnamed statement outlives its transaction.
    pub unnamed: bool,
    /// Transaction blocks.
    pub blocks: bool,
    /// No statement is cancelled, so it is known what a transaction block has done.
    pub sure: bool,
    /// Untracked settings, and SQL's PREPARE.
    pub session: bool,
    /// DDL, and statements that depend on it.
    pub schema: bool,
    /// DDL in functions.
    pub hides_ddl: bool,
    /// LISTEN and NOTIFY.
    pub channels: bool,
    /// Objects that outlive transactions.
    pub objects: bool,
    /// Nothing outlives transactions (`session_state = discard`).
    pub discards: bool,
    /// Reads may run at standbys.
    pub reads: bool,
    /// All transactions of the client may be reads. (It keeps no server, which could be a standby's.)
    pub reads_by_default: bool,
    /// Single reads may run at standbys.
    pub single: bool,
    /// The database is sharded.
    pub sharded: bool,
}

const KINDS: usize = TABLES + schema::KINDS;
/// The first kind about tables.
const TABLES: usize = 27;
/// The first kind about objects that outlive transactions.
const OBJECTS: usize = KINDS + channels::KINDS;
/// The first kind about reads.
const READS: usize = OBJECTS + objects::KINDS;
/// The kind of slow statements.
const SLOW: usize = 18;

/// The weight of each kind of unit; 0 for never.
#[derive(Clone, Debug)]
pub struct Weights(
    [u32; KINDS],
    [u32; channels::KINDS],
    [u32; objects::KINDS],
    [u32; reads::KINDS],
);

impl Weights {
    /// Random weights: some kinds are left out, some are frequent.
    pub fn choose(chance: &mut Chance) -> Weights {
        let mut weights = [0; KINDS];
        let left_out = chance.within(1..=4);
        for weight in &mut weights {
            if !chance.once_in(left_out) || left_out == 1 {
                *weight = 1 + (chance.number() % 8) as u32;
            }
        }
        weights[0] += 1;
        let (channels, objects) = ([0; channels::KINDS], [0; objects::KINDS]);
        Weights(weights, channels, objects, [0; reads::KINDS])
    }

    /// Makes slow statements more frequent, by this weight.
    pub fn favour_slow(&mut self, by: usize) {
        self.0[SLOW] += by as u32;
    }

    /// Leaves tables out, or makes them more frequent by this weight.
    pub fn weigh_tables(&mut self, by: Option<usize>) {
        for weight in &mut self.0[TABLES..] {
            *weight = by.map_or(0, |by| *weight + by as u32);
        }
    }

    /// Adds units about channels.
    pub fn weigh_channels(&mut self, chance: &mut Chance) {
        weigh(&mut self.1, chance);
    }

    /// Adds units about objects that outlive transactions.
    pub fn weigh_objects(&mut self, chance: &mut Chance) {
        weigh(&mut self.2, chance);
    }

    /// Adds units about reads at standbys.
    pub fn weigh_reads(&mut self, chance: &mut Chance) {
        weigh(&mut self.3, chance);
        let least = chance.within(2..=20) as u32;
        for weight in &mut self.3 {
            *weight += least;
        }
    }

    fn all(&self) -> impl Iterator<Item = &u32> {
        let more = self.1.iter().chain(&self.2).chain(&self.3);
        self.0.iter().chain(more)
    }

    fn pick(&self, chance: &mut Chance) -> usize {
        let sum: u32 = self.all().sum();
        let mut at = (chance.number() % u64::from(sum)) as u32;
        for (kind, weight) in self.all().enumerate() {
            if at < *weight {
                return kind;
            }
            at -= weight;
        }
        0
    }
}

/// Some weights become zero, some high.
fn weigh(weights: &mut [u32], chance: &mut Chance) {
    let left_out = chance.within(1..=3);
    let most = chance.within(1..=30);
    for weight in weights {
        if !chance.once_in(left_out) || left_out == 1 {
            *weight = chance.within(1..=most) as u32;
        }
    }
}

/// Values of settings that clients choose from. Some are hard to quote.
const VALUES: [(&str, &[&str]); 4] = [
    ("application_name", &["a", "it''s", "b c", "\\"]),
    ("TimeZone", &["Europe/Berlin", "Asia/Tokyo", "GMT"]),
    ("DateStyle", &["German, DMY", "ISO, YMD"]),
    ("client_encoding", &["LATIN1", "UTF8"]),
];

/// Texts of prepared statements. They are few, so that clients share them.
const TEXTS: [&str; 9] = [
    "select $1 v0",
    "select $1 rows 3 v1 '1/2'",
    "insert $1 v2",
    "select $1 slow 2 v3",
    "select $1 size 300 notice v4",
    "fail $1 v5",
    "insert $1 v6",
    "select 7 v7 '1/2'",
    "select $1 rows 2 v8 '1/2'",
];

/// Writes the script of one client.
pub struct Speaker<'a> {
    /// The client.
    pub client: u32,
    /// The number of its next statement.
    pub number: &'a mut u32,
    /// What the client may use.
    pub tongue: Tongue,
    /// The weight of each kind of unit.
    pub weights: &'a Weights,
    /// The source of randomness.
    pub chance: &'a mut Chance,
    script: VecDeque<Act>,
    batch: Vec<Message>,
    /// The script has asked for the last number of a sequence.
    asks: bool,
    /// The number of the open transaction block, of a client of a sharded database.
    block: Option<u32>,
    /// It says its shard.
    hinted: bool,
}

impl<'a> Speaker<'a> {
    /// An empty script.
    pub fn new(
        client: u32,
        number: &'a mut u32,
        tongue: Tongue,
        weights: &'a Weights,
        chance: &'a mut Chance,
    ) -> Speaker<'a> {
        Speaker {
            client,
            number,
            tongue,
            weights,
            chance,
            script: VecDeque::new(),
            batch: Vec::new(),
            asks: false,
            block: None,
            hinted: false,
        }
    }

    /// A script with this many units.
    pub fn script(mut self, units: usize) -> VecDeque<Act> {
        let hasty = self.chance.within(1..=6);
        for _ in 0..units {
            self.unit();
            if !self.chance.once_in(hasty) {
                self.pause();
                self.script.push_back(Act::Await);
            } else if self.chance.once_in(2) {
                self.pause();
            }
            if self.chance.once_in(12) {
                self.pause();
                let most = if self.chance.once_in(4) { 3000 } else { 20 };
                let rest = self.chance.within(1..=most) as u64;
                self.script.push_back(Act::Rest(rest));
            }
            if self.chance.once_in(40) {
                self.pause();
                let rest = self.chance.within(1..=200) as u64;
                self.script.push_back(Act::Deafen(rest));
            }
        }
        self.pause();
        self.script
    }

    /// The same, followed by something that is begun and not ended.
    pub fn broken_script(mut self, units: usize) -> VecDeque<Act> {
        if self.tongue.sharded {
            return self.broken_sharded_script(units);
        }
        let patient = self.chance.once_in(2);
        match self.chance.within(0..=4) {
            4 => {
                // More bytes than the pooler keeps for a client that does not read. The client then
                // leaves.
                let text = format!("select {} rows 20 size 40000", self.token());
                self.query(&text);
                self.script.push_back(Act::Deafen(10_000));
                self.pause();
                let rest = self.chance.within(1..=100) as u64;
                self.script.push_back(Act::Rest(rest));
            }
            0 => {
                let text = format!("copyin {}", self.token());
                self.query(&text);
                if patient {
                    self.pause();
                    self.script.push_back(Act::AwaitCopy);
                }
                self.copy_data();
            }
            1 => {
                self.parse("", TEXTS[2]);
                self.bind_execute("", "", true, 0);
                if patient {
                    self.await_answers_or_flush();
                }
            }
            2 if self.tongue.blocks => {
                self.query("begin");
                self.unit_of_one();
                if patient {
                    self.await_answers();
                }
            }
            _ => {
                let text = format!("insert {};select 1 slow 20", self.token());
                self.query(&text);
            }
        }
        self.pause();
        let last = std::mem::take(&mut self.script);
        let mut script = self.script(units);
        script.extend(last);
        script
    }

    /// Sends the messages collected so far.
    fn pause(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.script.push_back(Act::Send(batch));
        }
    }

    fn rest(&mut self, most: usize) {
        self.pause();
        let rest = self.chance.within(1..=most) as u64;
        self.script.push_back(Act::Rest(rest));
    }

    fn await_answers(&mut self) {
        self.pause();
        self.script.push_back(Act::Await);
    }

    fn unit(&mut self) {
        let tongue = self.tongue;
        if tongue.sharded {
            return self.sharded_unit();
        }
        match self.weights.pick(self.chance) {
            1 => self.several(),
            2 if tongue.blocks => self.block(),
            3 => self.group(false),
            4 if tongue.named => self.group(true),
            5 if tongue.named => self.bind_known(),
            6 if tongue.named => self.close(),
            7 if tongue.named => {
                let text = format!("deallocate s{}", self.chance.within(0..=3));
                self.run(&text);
            }
            8 if tongue.named => {
                let text = ["deallocate all", "discard all", "DISCARD ALL"];
                let text = text[self.chance.within(0..=2)];
                self.run(text);
            }
            9 if self.chance.once_in(4) => self.run("create function"),
            9 => {
                let text = self.set("");
                self.run(&text);
            }
            10 if tongue.blocks => self.set_in_block(),
            11 => self.copy_in(true),
            12 => self.copy_in(false),
            13 => {
                let (rows, size) = (self.chance.within(0..=9), self.chance.within(1..=400));
                let text = format!("copyout {} rows {rows} size {size}", self.token());
                self.run(&text);
            }
            14 if tongue.blocks => self.portals(),
            15 => self.failing_group(),
            16 => self.flushed(),
            17 => self.oddment(),
            SLOW => {
                // A statement that may be cancelled may take long.
                let slow = match self.chance.within(0..=2) {
                    0 if !tongue.sure => 4000,
                    1 if !tongue.sure => self.chance.within(20..=400),
                    _ => self.chance.within(1..=60),
                };
                let text = format!("select {} slow {slow}", self.token());
                self.run(&text);
            }
            19 if tongue.blocks && tongue.sure && !tongue.discards && !tongue.reads_by_default => {
                self.sql_prepare();
            }
            20 => self.large(),
            21 if tongue.blocks => self.query_in_group(),
            22 if tongue.unnamed => {
                let text = TEXTS[self.chance.within(0..=1)];
                self.parse("", text);
                self.sync();
                if self.chance.once_in(2) {
                    self.unit_of_one();
                }
                self.bind_execute("", "", true, 0);
                self.sync();
            }
            23 => self.copy_extended(),
            24 => {
                let name = VALUES[self.chance.within(0..=3)].0;
                self.query(&format!("show {name}"));
            }
            26 if tongue.named => self.forget_in_group(),
            25 if tongue.session => self.session_things(),
            kind if kind >= READS && tongue.reads => self.about_reads(kind - READS),
            kind if kind >= READS => self.unit_of_one(),
            kind if kind >= OBJECTS && tongue.objects && tongue.sure => {
                self.about_objects(kind - OBJECTS);
            }
            kind if kind >= OBJECTS => self.unit_of_one(),
            kind if kind >= KINDS => self.about_channels(kind - KINDS),
            kind if kind >= TABLES && tongue.schema => self.about_tables(kind - TABLES),
            _ => self.unit_of_one(),
        }
    }

    fn unit_of_one(&mut self) {
        let text = self.statement();
        self.query(&text);
    }

    fn token(&mut self) -> Token {
        *self.number += 1;
        Token {
            client: self.client,
            number: *self.number,
        }
    }

    fn say(&mut self, tag: u8, body: Vec<u8>) {
        self.batch.push(Message { tag, body });
    }

    fn query(&mut self, text: &str) {
        let mut body = text.as_bytes().to_vec();
        body.push(0);
        self.say(frontend::QUERY, body);
    }

    /// Runs a text as a Query, or by the extended protocol.
    fn run(&mut self, text: &str) {
        if self.chance.once_in(3) {
            self.parse("", text);
            self.bind_execute("", "", false, 0);
            self.sync();
        } else {
            self.query(text);
        }
    }

    fn sync(&mut self) {
        self.say(frontend::SYNC, Vec::new());
    }

    fn parse(&mut self, name: &str, text: &str) {
        let mut body = Vec::new();
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(text.as_bytes());
        body.extend_from_slice(&[0, 0, 0]);
        self.say(frontend::PARSE, body);
    }

    fn bind(&mut self, portal: &str, name: &str, parameter: bool) {
        self.bind_as(portal, name, parameter, 0);
    }

    /// A Bind with `formats` result formats.
    fn bind_as(&mut self, portal: &str, name: &str, parameter: bool, formats: u16) {
        let mut body = Vec::new();
        for name in [portal, name] {
            body.extend_from_slice(name.as_bytes());
            body.push(0);
        }
        body.extend_from_slice(&[0, 0, 0, u8::from(parameter)]);
        if parameter {
            let mut value = self.token().to_string().into_bytes();
            if self.chance.once_in(10) {
                let filler = self.chance.within(1..=3000);
                value.push(b' ');
                value.resize(value.len() + filler, b'f');
            }
            body.extend_from_slice(&(value.len() as u32).to_be_bytes());
            body.extend_from_slice(&value);
        }
        body.extend_from_slice(&formats.to_be_bytes());
        body.resize(body.len() + 2 * usize::from(formats), 0);
        self.say(frontend::BIND, body);
    }

    fn execute(&mut self, portal: &str, most: u32) {
        let mut body = portal.as_bytes().to_vec();
        body.push(0);
        body.extend_from_slice(&most.to_be_bytes());
        self.say(frontend::EXECUTE, body);
    }

    fn target(&mut self, tag: u8, kind: u8, name: &str) {
        let mut body = vec![kind];
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        self.say(tag, body);
    }

    fn bind_execute(&mut self, portal: &str, name: &str, parameter: bool, most: u32) {
        if self.chance.once_in(3) {
            self.target(frontend::DESCRIBE, b'S', name);
        }
        self.bind(portal, name, parameter);
        if self.chance.once_in(3) {
            self.target(frontend::DESCRIBE, b'P', portal);
        }
        self.execute(portal, most);
    }

    /// A statement with its token in the text.
    fn statement(&mut self) -> String {
        let token = self.token();
        match self.chance.within(0..=11) {
            0..=3 => format!("select '{token}'"),
            4 => format!("select '{token}' rows {}", self.chance.within(0..=5)),
            5 => format!(
                "select '{token}' notice size {}",
                self.chance.within(0..=2000)
            ),
            6 => format!("select '{token}' slow {}", self.chance.within(1..=4)),
            7 => format!("fail '{token}'"),
            _ => format!("insert '{token}'"),
        }
    }

    fn several(&mut self) {
        let count = self.chance.within(2..=4);
        let mut parts: Vec<String> = (0..count).map(|_| self.statement()).collect();
        if self.chance.once_in(6) {
            parts.push("no words".into());
        }
        if self.tongue.blocks && self.chance.once_in(4) {
            parts.insert(1, "begin".into());
            if self.chance.once_in(2) {
                parts.push("commit".into());
            } else {
                self.query(&parts.join(";"));
                self.unit_of_one();
                parts = vec!["rollback".into()];
            }
        }
        self.query(&parts.join(";"));
    }

    fn block(&mut self) {
        self.run("begin");
        for _ in 0..self.chance.within(0..=3) {
            if self.chance.once_in(2) {
                self.await_answers();
            }
            if self.chance.once_in(3) {
                let named = self.tongue.named && self.chance.once_in(2);
                self.group(named);
            } else {
                self.unit_of_one();
            }
            if self.chance.once_in(15) {
                self.rest(400);
            }
        }
        let end = if self.chance.once_in(3) {
            "rollback"
        } else {
            "commit"
        };
        self.run(end);
    }

    /// Statements up to a Sync.
    fn group(&mut self, named: bool) {
        for _ in 0..self.chance.within(1..=3) {
            let text = TEXTS[self.chance.within(0..=TEXTS.len() - 1)];
            let name = if named {
                format!("s{}", self.chance.within(0..=3))
            } else {
                String::new()
            };
            if named && self.chance.once_in(4) {
                self.target(frontend::CLOSE, b'S', &name);
            }
            self.parse(&name, text);
            for _ in 0..self.chance.within(0..=2) {
                // It is not known for sure which text the name has.
                self.bind_execute("", &name, text.contains("$1"), 0);
            }
        }
        self.sync();
    }

    /// Forgets statements within a group. The rest of the group can't use them.
    fn forget_in_group(&mut self) {
        let forgotten = self.chance.within(0..=3);
        // DEALLOCATE of a single named statement is not supported here.
        let (text, holder) = match self.chance.within(0..=3) {
            0 => ("deallocate all".into(), "s4"),
            1 => ("deallocate all".into(), ""),
            _ => (format!("deallocate s{forgotten}"), ""),
        };
        self.parse("s2", TEXTS[0]);
        self.parse(holder, &text);
        self.bind_execute("", holder, false, 0);
        if self.chance.once_in(3) {
            self.sync();
        }
        if self.chance.once_in(2) {
            self.parse("s1", TEXTS[1]);
        }
        let name = format!("s{}", self.chance.within(1..=2));
        self.bind_execute("", &name, true, 0);
        self.sync();
    }

    fn bind_known(&mut self) {
        for _ in 0..self.chance.within(1..=3) {
            let name = format!("s{}", self.chance.within(0..=3));
            self.bind_execute("", &name, true, 0);
        }
        self.sync();
    }

    fn close(&mut self) {
        let name = format!("s{}", self.chance.within(0..=3));
        self.target(frontend::CLOSE, b'S', &name);
        if self.chance.once_in(2) {
            self.parse(&name, TEXTS[0]);
            self.bind_execute("", &name, true, 0);
        }
        self.sync();
    }

    fn set(&mut self, local: &str) -> String {
        let (name, values) = VALUES[self.chance.within(0..=3)];
        if self.chance.once_in(8) {
            return format!("set {local}{name}='invalid'");
        }
        if self.chance.once_in(8) {
            return format!("reset {name}");
        }
        let value = values[self.chance.within(0..=values.len() - 1)];
        format!("set {local}{name}='{value}'")
    }

    fn set_in_block(&mut self) {
        self.query("begin");
        for _ in 0..self.chance.within(1..=2) {
            let local = if self.chance.once_in(2) { "local " } else { "" };
            let text = self.set(local);
            self.run(&text);
        }
        if self.chance.once_in(2) {
            self.await_answers();
        }
        self.unit_of_one();
        let end = if self.chance.once_in(2) {
            "rollback"
        } else {
            "commit"
        };
        self.query(end);
    }

    fn copy_data(&mut self) {
        for _ in 0..self.chance.within(0..=4) {
            let most = if self.chance.once_in(6) { 40_000 } else { 200 };
            let size = self.chance.within(0..=most);
            let byte = b'a' + (self.chance.number() % 26) as u8;
            self.say(frontend::COPY_DATA, vec![byte; size]);
        }
    }

    fn copy_end(&mut self) {
        if self.chance.once_in(4) {
            self.say(frontend::COPY_FAIL, b"no more\0".to_vec());
        } else {
            self.say(frontend::COPY_DONE, Vec::new());
        }
    }

    fn copy_in(&mut self, patient: bool) {
        let token = self.token();
        let mut text = format!("copyin {token}");
        if self.chance.once_in(5) {
            let before = self.statement();
            text = format!("{before};{text}");
        }
        if self.chance.once_in(5) {
            text = format!("{text};{}", self.statement());
        }
        self.query(&text);
        if patient {
            self.pause();
            self.script.push_back(Act::AwaitCopy);
        }
        self.copy_data();
        if self.chance.once_in(10) {
            self.say(frontend::FLUSH, Vec::new());
        }
        self.copy_end();
    }

    fn copy_extended(&mut self) {
        self.parse("", "copyin $1");
        self.bind_execute("", "", true, 0);
        if self.chance.once_in(2) {
            // As libpq does: the COPY eats the Sync.
            self.sync();
        } else {
            self.say(frontend::FLUSH, Vec::new());
        }
        self.pause();
        self.script.push_back(Act::AwaitCopy);
        self.copy_data();
        self.copy_end();
        self.sync();
    }

    fn portals(&mut self) {
        self.query("begin");
        self.parse("", "select $1 rows 5 v9");
        self.bind_execute("p", "", true, 2);
        if self.chance.once_in(2) {
            self.sync();
        }
        if self.chance.once_in(3) {
            self.await_answers_or_flush();
        }
        for _ in 0..self.chance.within(1..=3) {
            self.execute("p", 2);
        }
        if self.chance.once_in(3) {
            self.target(frontend::CLOSE, b'P', "p");
        }
        self.sync();
        self.query("commit");
    }

    fn await_answers_or_flush(&mut self) {
        self.say(frontend::FLUSH, Vec::new());
        self.await_answers();
    }

    fn failing_group(&mut self) {
        let name = if self.tongue.named { "s1" } else { "" };
        self.parse("", TEXTS[2]);
        self.bind_execute("", "", true, 0);
        match self.chance.within(0..=3) {
            0 => self.parse(name, "no words"),
            1 => {
                self.parse("", TEXTS[5]);
                self.bind_execute("", "", true, 0);
            }
            2 => self.execute("nowhere", 0),
            _ => self.bind_execute("", "nothing", true, 0),
        }
        self.parse(name, TEXTS[0]);
        self.bind_execute("", name, true, 0);
        if self.chance.once_in(2) {
            self.await_answers_or_flush();
            self.parse("", TEXTS[6]);
            self.bind_execute("", "", true, 0);
        }
        self.sync();
    }

    /// Waits for answers before the Sync.
    fn flushed(&mut self) {
        self.parse("", TEXTS[1]);
        self.await_answers_or_flush();
        self.bind_execute("", "", true, 0);
        self.await_answers_or_flush();
        if self.chance.once_in(3) {
            self.parse("", TEXTS[2]);
            self.bind_execute("", "", true, 0);
        }
        self.sync();
    }

    fn oddment(&mut self) {
        match self.chance.within(0..=5) {
            0 => self.query(""),
            1 => self.query(" ; ;"),
            2 => self.sync(),
            3 => self.say(frontend::FLUSH, Vec::new()),
            4 => {
                self.say(frontend::COPY_DATA, b"stray".to_vec());
                self.copy_end();
            }
            _ => self.query("no words"),
        }
    }

    fn sql_prepare(&mut self) {
        let token = self.token();
        let name = format!("q{}_{}", token.client, token.number);
        if self.chance.once_in(3) {
            // If too many clients keep a server, this one waits, and lets the others have theirs.
            self.query(&format!("prepare {name} as select 1"));
            let run = self.token();
            self.query(&format!("execute {name} '{run}'"));
            return self.query(&format!("deallocate {name}"));
        }
        self.query("begin");
        self.query(&format!("prepare {name} as select 1"));
        let run = self.token();
        self.query(&format!("execute {name} '{run}'"));
        if self.chance.once_in(2) {
            self.query(&format!("deallocate {name}"));
        }
        self.query("commit");
    }

    fn large(&mut self) {
        let token = self.token();
        let most = if self.chance.once_in(5) {
            400_000
        } else {
            30_000
        };
        let size = self.chance.within(1000..=most);
        let text = if self.chance.once_in(25) {
            format!("select '{token}' rows 100 size 40000")
        } else if self.chance.once_in(2) {
            format!("select '{token}' size {size}")
        } else {
            format!("insert '{token}' {}", "x".repeat(size))
        };
        self.run(&text);
    }

    fn query_in_group(&mut self) {
        self.parse("", TEXTS[2]);
        self.bind_execute("", "", true, 0);
        self.unit_of_one();
    }

    fn session_things(&mut self) {
        match self.chance.within(0..=2) {
            0 => {
                let value = self.chance.within(1..=9);
                self.query(&format!("set work_mem='{value}MB'"));
            }
            1 => self.query("set IntervalStyle='iso_8601'"),
            _ => self.query("set search_path='elsewhere'"),
        }
    }
}
