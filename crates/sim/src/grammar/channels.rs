//! Messages about channels: LISTEN, UNLISTEN, NOTIFY, and statements that only look for news.

use super::{Act, Speaker};

/// The number of kinds of units.
pub(super) const KINDS: usize = 8;

/// Names of channels, as they are written in SQL.
const NAMES: [&str; 4] = ["news", "jobs", "\"A b\"", "x1"];

impl Speaker<'_> {
    /// A unit of this kind.
    pub(super) fn about_channels(&mut self, kind: usize) {
        match kind {
            0 | 1 => {
                let text = self.listen();
                self.run(&text);
            }
            2 => {
                let text = self.unlisten(true);
                self.run(&text);
            }
            3 => {
                let text = self.notify();
                self.run(&text);
            }
            4 => self.several_of_channels(),
            5 => self.look(),
            6 => self.hark(),
            _ => self.block_of_channels(),
        }
    }

    fn channel(&mut self) -> &'static str {
        NAMES[self.chance.within(0..=NAMES.len() - 1)]
    }

    fn listen(&mut self) -> String {
        let (token, name) = (self.token(), self.channel());
        format!("listen {name} /* {token} */")
    }

    fn unlisten(&mut self, all: bool) -> String {
        let token = self.token();
        let name = if all && self.chance.once_in(4) {
            "*"
        } else {
            self.channel()
        };
        format!("unlisten {name} /* {token} */")
    }

    fn notify(&mut self) -> String {
        let (token, name) = (self.token(), self.channel());
        let plain = name.trim_matches('"');
        match self.chance.within(0..=3) {
            0 => format!("select pg_notify('{plain}', '{token}')"),
            // A function notifies.
            1 => format!("select '{token}' tells {name}"),
            _ => format!("notify {name}, '{token}'"),
        }
    }

    fn several_of_channels(&mut self) {
        let mut parts = Vec::new();
        for _ in 0..self.chance.within(2..=4) {
            let part = match self.chance.within(0..=4) {
                0 => self.listen(),
                1 => self.unlisten(true),
                2 => self.statement(),
                _ => self.notify(),
            };
            parts.push(part);
        }
        self.query(&parts.join(";"));
    }

    /// The statement of a polling client.
    fn look(&mut self) {
        let token = self.token();
        self.run(&format!("select '{token}'"));
        self.await_answers();
    }

    /// The client sends nothing, and must receive all notifications.
    fn hark(&mut self) {
        self.await_answers();
        let rest = self.chance.within(1..=2500) as u64;
        self.script.push_back(Act::Hark(rest));
    }

    fn block_of_channels(&mut self) {
        self.run("begin");
        let (mut saved, mut undoes) = (0, false);
        for _ in 0..self.chance.within(1..=5) {
            if self.chance.once_in(3) {
                self.await_answers();
            }
            match self.chance.within(0..=8) {
                0 | 1 => {
                    let text = self.listen();
                    self.run(&text);
                }
                // Behind a ROLLBACK TO, Howdah may not count an UNLISTEN.
                2 if !undoes => {
                    let text = self.unlisten(false);
                    self.run(&text);
                }
                3 | 4 => {
                    let text = self.notify();
                    self.run(&text);
                }
                5 => {
                    saved += 1;
                    self.run(&format!("savepoint s{saved}"));
                }
                6 if saved > 0 => {
                    let to = self.chance.within(1..=saved);
                    self.run(&format!("rollback to s{to}"));
                    (saved, undoes) = (to, true);
                }
                7 if self.chance.once_in(3) => self.rest(300),
                _ => self.unit_of_one(),
            }
        }
        let end = if self.chance.once_in(3) {
            "rollback"
        } else {
            "commit"
        };
        self.run(end);
    }
}
