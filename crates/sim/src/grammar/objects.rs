//! Messages about objects that outlive transactions: advisory locks, temporary tables, cursors WITH HOLD,
//! numbers of sequences. Each client has its own names, such as `cart3_1`.

use super::Speaker;

/// The number of kinds of units.
pub(super) const KINDS: usize = 9;

/// The most objects of one kind for each client.
const MOST: usize = 2;

/// The kind of an object.
#[derive(Clone, Copy)]
enum Kind {
    Lock,
    Table,
    Cursor,
}

impl Speaker<'_> {
    /// A unit of this kind.
    pub(super) fn about_objects(&mut self, kind: usize) {
        match kind {
            0 => self.hold_for_a_while(Kind::Lock),
            1 => self.hold_for_a_while(Kind::Table),
            2 => self.hold_for_a_while(Kind::Cursor),
            3 => self.block_of_objects(),
            4 => self.several_of_objects(),
            5 => self.clean(),
            6 => self.draw_and_ask(),
            7 => self.block_of_numbers(),
            _ => self.use_numbers(),
        }
    }

    /// Makes an object, and mostly removes it some statements later.
    fn hold_for_a_while(&mut self, kind: Kind) {
        let which = self.chance.within(0..=MOST - 1);
        self.pause_to_discard();
        let make = self.make(kind, which);
        self.run(&make);
        self.pause_to_discard();
        for _ in 0..self.chance.within(0..=2) {
            if self.chance.once_in(2) {
                self.await_answers();
            }
            match self.chance.within(0..=2) {
                0 => self.use_cursor(which),
                _ => self.unit_of_one(),
            }
        }
        if self.chance.once_in(8) {
            self.rest(3000);
        }
        if !self.chance.once_in(4) {
            let remove = self.remove(kind, which);
            self.run(&remove);
        }
    }

    /// With `session_state = discard`, objects are gone when a transaction is over. A message right
    /// after the transaction could still see them, so the client pauses.
    fn pause_to_discard(&mut self) {
        if self.tongue.discards {
            self.await_answers();
        }
    }

    fn kind(&mut self) -> Kind {
        [Kind::Lock, Kind::Table, Kind::Cursor][self.chance.within(0..=2)]
    }

    fn make(&mut self, kind: Kind, which: usize) -> String {
        let client = self.client;
        match kind {
            Kind::Lock => {
                let how = ["lock", "lock", "xact_lock"][self.chance.within(0..=2)];
                format!("select pg_advisory_{how}({client}{which})")
            }
            Kind::Table => {
                let end = ["", "", " on commit drop"][self.chance.within(0..=2)];
                format!("create temp table cart{client}_{which} (x int){end}")
            }
            Kind::Cursor => {
                let rows = self.chance.within(0..=5);
                format!("declare hand{client}_{which} cursor with hold for select {rows}")
            }
        }
    }

    fn remove(&mut self, kind: Kind, which: usize) -> String {
        let client = self.client;
        let all = self.chance.once_in(3);
        match kind {
            Kind::Lock if all => "select pg_advisory_unlock_all()".into(),
            Kind::Lock => format!("select pg_advisory_unlock({client}{which})"),
            Kind::Table if all => "discard temp".into(),
            Kind::Table => format!("drop table cart{client}_{which}"),
            Kind::Cursor if all => "close all".into(),
            Kind::Cursor => format!("close hand{client}_{which}"),
        }
    }

    /// The cursor's rows can only be described on the server that has it, so it is used by a Query.
    fn use_cursor(&mut self, which: usize) {
        let (client, count) = (self.client, self.chance.within(1..=3));
        self.query(&format!("fetch {count} from hand{client}_{which}"));
    }

    fn block_of_objects(&mut self) {
        self.pause_to_discard();
        self.run("begin");
        let mut saved = 0;
        for _ in 0..self.chance.within(1..=5) {
            if self.chance.once_in(3) {
                self.await_answers();
            }
            let (kind, which) = (self.kind(), self.chance.within(0..=MOST - 1));
            match self.chance.within(0..=8) {
                0..=2 => {
                    let make = self.make(kind, which);
                    self.run(&make);
                }
                3 => {
                    let remove = self.remove(kind, which);
                    self.run(&remove);
                }
                4 => self.use_cursor(which),
                5 => {
                    saved += 1;
                    self.run(&format!("savepoint s{saved}"));
                }
                6 if saved > 0 => {
                    let to = self.chance.within(1..=saved);
                    self.run(&format!("rollback to s{to}"));
                    saved = to;
                }
                _ => self.unit_of_one(),
            }
        }
        let end = ["rollback", "commit", "commit"][self.chance.within(0..=2)];
        self.run(end);
        self.pause_to_discard();
    }

    /// Several objects in one Query. If too many clients keep their servers, the whole Query waits
    /// or is refused.
    fn several_of_objects(&mut self) {
        self.await_answers();
        let mut parts = Vec::new();
        for _ in 0..self.chance.within(2..=4) {
            let (kind, which) = (self.kind(), self.chance.within(0..=MOST - 1));
            let part = match self.chance.within(0..=3) {
                0 => format!("select '{}'", self.token()),
                1 => self.remove(kind, which),
                _ => self.make(kind, which),
            };
            parts.push(part);
        }
        self.query(&parts.join(";"));
        self.pause_to_discard();
    }

    /// The statements that drivers send when a connection goes back to their own pool.
    fn clean(&mut self) {
        let texts = [
            "select pg_advisory_unlock_all();close all;reset all",
            "discard all",
            "discard temp",
            "discard sequences",
        ];
        let text = texts[self.chance.within(0..=texts.len() - 1)];
        self.query(text);
    }

    fn draw(&mut self) {
        let (client, token) = (self.client, self.token());
        self.run(&format!("select nextval('num{client}') /* {token} */"));
    }

    fn ask(&mut self) {
        let client = self.client;
        if self.chance.once_in(2) {
            self.run("select lastval()")
        } else {
            self.run(&format!("select currval('num{client}')"))
        }
    }

    /// Draws a number, and asks for it. Until a client has asked once, only a client that draws a
    /// number right before its question is sure not to get another client's number. So the first
    /// question follows a draw.
    fn draw_and_ask(&mut self) {
        self.draw();
        if self.chance.once_in(2) {
            self.await_answers();
        }
        self.ask();
        self.asks = true;
    }

    fn block_of_numbers(&mut self) {
        self.run("begin");
        if self.chance.once_in(2) {
            self.draw();
        }
        if self.asks && self.chance.once_in(2) {
            self.unit_of_one();
            self.ask();
        }
        self.unit_of_one();
        let end = ["rollback", "commit"][self.chance.within(0..=1)];
        self.run(end);
    }

    fn use_numbers(&mut self) {
        if self.asks { self.ask() } else { self.draw() }
    }
}
