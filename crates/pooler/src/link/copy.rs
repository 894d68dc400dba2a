//! A COPY on a link, and the Syncs that PostgreSQL ignores ("eats") during the COPY.
//!
//! ```text
//!          CopyInResponse         CopyDone, CopyFail,
//!   None -----------------> Open --------------------> Over
//!    ^  `-- CopyBothResponse: Both     an error          |
//!    `------------------- ReadyForQuery -----------------'
//! ```

/// How far a COPY on a link has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyPhase {
    /// No COPY since the last ReadyForQuery.
    #[default]
    None,
    /// PostgreSQL reads rows from the client.
    Open(Inside),
    /// The client has ended the COPY, or the COPY has failed.
    Over(Inside),
    /// Both sides send data (replication).
    Both(Inside),
}

/// Messages that the client has sent during a COPY and that do not belong to the COPY.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Inside {
    /// The number of Syncs. PostgreSQL ignores them, or answers them if the COPY had failed before.
    eaten: u32,
    /// The client has sent a message at which PostgreSQL fails the COPY.
    broken: bool,
}

impl CopyPhase {
    /// True while PostgreSQL reads rows from the client.
    pub fn is_open(self) -> bool {
        matches!(self, CopyPhase::Open(_))
    }

    /// True while both sides send data.
    pub fn is_both(self) -> bool {
        matches!(self, CopyPhase::Both(_))
    }

    /// The number of Syncs that PostgreSQL ignores, or answers if the COPY had failed before.
    pub fn eaten(self) -> u32 {
        self.inside().eaten
    }

    /// True if the client has sent a message at which PostgreSQL fails the COPY.
    pub fn is_broken(self) -> bool {
        self.inside().broken
    }

    fn inside(self) -> Inside {
        match self {
            CopyPhase::None => Inside::default(),
            CopyPhase::Open(inside) | CopyPhase::Over(inside) | CopyPhase::Both(inside) => inside,
        }
    }

    /// PostgreSQL begins to read. `eaten` counts the Syncs already sent. `ended`: the end of the
    /// COPY was already sent. `broken`: a message that makes the COPY fail was already sent.
    pub fn begin(&mut self, eaten: u32, ended: bool, broken: bool) {
        let inside = Inside {
            eaten: self.eaten() + eaten,
            broken,
        };
        *self = if ended {
            CopyPhase::Over(inside)
        } else {
            CopyPhase::Open(inside)
        };
    }

    /// PostgreSQL begins to stream in both directions.
    pub fn begin_both(&mut self) {
        *self = CopyPhase::Both(self.inside());
    }

    /// The client sends a Sync during the COPY.
    pub fn eat(&mut self) {
        if let CopyPhase::Open(inside) | CopyPhase::Over(inside) | CopyPhase::Both(inside) = self {
            inside.eaten += 1;
        }
    }

    /// The client sends a message that makes the COPY fail.
    pub fn break_off(&mut self) {
        if let CopyPhase::Open(inside) = self {
            inside.broken = true;
        }
    }

    /// The client ends the COPY.
    pub fn end(&mut self) {
        if let CopyPhase::Open(inside) = *self {
            *self = CopyPhase::Over(inside);
        }
    }

    /// PostgreSQL fails the COPY. Only ReadyForQuery will show how many Syncs PostgreSQL ignored.
    pub fn fail(&mut self) {
        let eaten = self.eaten();
        if !self.is_both() {
            *self = match eaten {
                0 => CopyPhase::None,
                _ => CopyPhase::Over(Inside {
                    eaten,
                    broken: false,
                }),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_eaten_until_all_is_answered() {
        let mut copy = CopyPhase::None;
        copy.eat();
        assert_eq!(copy, CopyPhase::None, "no COPY eats nothing");
        copy.begin(1, false, false);
        copy.eat();
        assert!(copy.is_open() && copy.eaten() == 2);
        copy.end();
        assert!(!copy.is_open() && copy.eaten() == 2 && !copy.is_broken());
        copy.fail();
        assert_eq!(copy.eaten(), 2, "whether PostgreSQL ate them is not known");
    }

    #[test]
    fn what_has_no_place_in_it_breaks_it() {
        let mut copy = CopyPhase::None;
        copy.break_off();
        assert!(!copy.is_broken());
        copy.begin(0, false, false);
        copy.break_off();
        assert!(copy.is_open() && copy.is_broken());
        copy.end();
        assert!(copy.is_broken());
        copy.fail();
        assert_eq!(copy, CopyPhase::None);
        copy.begin_both();
        copy.end();
        assert!(copy.is_both() && !copy.is_open());
    }
}
