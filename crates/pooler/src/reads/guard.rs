//! The guard of a single read at a standby: the read's answer is held back until PostgreSQL shows a
//! row or the end. If the standby can't carry the read out, Howdah runs it once more at the primary,
//! and the client sees nothing of the first run.
//!
//! A BEGIN has a guard, too. If its standby is lost before it has answered, the BEGIN goes to another
//! host: it has done nothing.

use howdah_wire::backend::Fields;
use howdah_wire::frame::{HEADER, header};
use howdah_wire::tag::backend as tag;

use crate::limits;

/// A SQLSTATE.
pub type Sqlstate = [u8; 5];

/// A read that a standby carries out, until its first row; or a BEGIN, until its answer.
#[derive(Debug)]
pub struct Guard {
    /// The client's messages.
    request: Box<[u8]>,
    /// How many bytes of the answer are known to decide nothing.
    passed: usize,
    is_begin: bool,
}

/// What a standby has answered so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstAnswer {
    /// Nothing that decides.
    Awaited,
    /// A row, the end, or an error that the primary would not heal: the client gets the answer.
    Shown,
    /// An error that the primary may not have.
    Refused(Sqlstate),
}

impl Guard {
    /// Guards these messages of a client, a whole request.
    pub fn new(request: &[u8]) -> Guard {
        Guard {
            request: request.into(),
            passed: 0,
            is_begin: false,
        }
    }

    /// Guards these messages of a client, which begin a transaction and do nothing else.
    pub fn of_begin(request: &[u8]) -> Guard {
        Guard {
            is_begin: true,
            ..Guard::new(request)
        }
    }

    /// True if the messages begin a transaction and do nothing else.
    pub fn is_begin(&self) -> bool {
        self.is_begin
    }

    /// The client's messages.
    pub fn into_request(self) -> Box<[u8]> {
        self.request
    }

    /// Looks at the answer, from its first byte on.
    pub fn hears(&mut self, answer: &[u8]) -> FirstAnswer {
        loop {
            let rest = &answer[self.passed..];
            let Some(first) = rest.first() else {
                return FirstAnswer::Awaited;
            };
            if !is_preliminary(*first) && *first != tag::ERROR {
                return FirstAnswer::Shown;
            }
            let Some(header) = header(rest) else {
                return FirstAnswer::Awaited;
            };
            let most = limits::GUARDED.saturating_sub(self.passed);
            let Some(header) = header.ok().filter(|header| header.total() <= most) else {
                return FirstAnswer::Shown;
            };
            let Some(body) = rest.get(HEADER..header.total()) else {
                return FirstAnswer::Awaited;
            };
            match *first {
                // PostgreSQL goes, and says so.
                tag::ERROR if self.is_begin && Fields::new(body).severity() == b"FATAL" => {}
                tag::ERROR if self.is_begin => return FirstAnswer::Shown,
                tag::ERROR => return judge(Fields::new(body)),
                _ => {}
            }
            self.passed += header.total();
        }
    }
}

/// True for messages that come before the first row, whatever the end will be.
fn is_preliminary(first: u8) -> bool {
    matches!(
        first,
        tag::PARSE_COMPLETE
            | tag::BIND_COMPLETE
            | tag::CLOSE_COMPLETE
            | tag::PARAMETER_DESCRIPTION
            | tag::ROW_DESCRIPTION
            | tag::NO_DATA
            | tag::NOTICE
            | tag::PARAMETER_STATUS
    )
}

fn judge(error: Fields<'_>) -> FirstAnswer {
    let sqlstate = error.sqlstate().and_then(|code| code.try_into().ok());
    match sqlstate {
        // After a fatal error the server is lost: perhaps because of this very read.
        // A plan is out of date: Howdah learns this, and drivers prepare the statement again.
        Some(_) if error.routine() == b"RevalidateCachedQuery" => FirstAnswer::Shown,
        Some(sqlstate) if error.severity() == b"ERROR" && is_of_standby(sqlstate) => {
            FirstAnswer::Refused(sqlstate)
        }
        _ => FirstAnswer::Shown,
    }
}

/// True for errors that a primary may not have: it does what standbys can't, knows newer objects, and
/// has no conflicts with recovery.
fn is_of_standby(sqlstate: Sqlstate) -> bool {
    const SYNTAX_ERROR: Sqlstate = *b"42601";
    let by_class = matches!(&sqlstate[..2], b"3F" | b"40" | b"42" | b"58" | b"XX");
    is_beyond_standbys(sqlstate) || by_class && sqlstate != SYNTAX_ERROR
}

/// True for errors of texts that no standby can carry out.
pub fn is_beyond_standbys(sqlstate: Sqlstate) -> bool {
    matches!(&sqlstate, b"0A000" | b"25006" | b"55000")
}

#[cfg(test)]
mod tests {
    use howdah_wire::write;

    use super::*;

    fn error(severity: &str, sqlstate: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        write::error(&mut bytes, severity, sqlstate, "what");
        bytes
    }

    const NOTICE: &[u8] = b"N\0\0\0\x06S\0";
    const DESCRIPTION: &[u8] = b"T\0\0\0\x06\0\0";
    const ROW: &[u8] = b"D\0\0\0\x06\0\0";

    #[test]
    fn a_row_or_the_end_shows_the_answer() {
        for end in [
            ROW,
            b"C\0\0\0\x0dSELECT 0\0",
            b"I\0\0\0\x04",
            b"Z\0\0\0\x05I",
            b"G",
        ] {
            let answer = [NOTICE, DESCRIPTION, b"1\0\0\0\x04", end].concat();
            let begins = answer.len() - end.len();
            for there in 0..=answer.len() {
                let expected = if there > begins {
                    FirstAnswer::Shown
                } else {
                    FirstAnswer::Awaited
                };
                let heard = Guard::new(b"").hears(&answer[..there]);
                assert_eq!(heard, expected, "{there} bytes before {end:?}");
            }
        }
    }

    #[test]
    fn an_answer_may_come_byte_by_byte() {
        let answer = [DESCRIPTION, &error("ERROR", "25006")].concat();
        let mut guard = Guard::new(b"");
        for there in 0..answer.len() {
            assert_eq!(guard.hears(&answer[..there]), FirstAnswer::Awaited);
        }
        assert_eq!(guard.hears(&answer), FirstAnswer::Refused(*b"25006"));
    }

    #[test]
    fn a_begin_has_no_answer_until_it_has_one() {
        let heard = |answer: &[u8]| Guard::of_begin(b"").hears(answer);
        assert_eq!(heard(&error("FATAL", "57P01")), FirstAnswer::Awaited);
        assert_eq!(heard(&error("ERROR", "25006")), FirstAnswer::Shown);
        assert_eq!(heard(b"C\0\0\0\x0aBEGIN\0"), FirstAnswer::Shown);
    }

    #[test]
    fn only_errors_of_standbys_are_healed() {
        for (severity, sqlstate, heals) in [
            ("ERROR", "25006", true),
            ("ERROR", "40001", true),
            ("ERROR", "42P01", true),
            ("ERROR", "3F000", true),
            ("ERROR", "58P01", true),
            ("ERROR", "XX000", true),
            ("ERROR", "0A000", true),
            ("ERROR", "55000", true),
            ("ERROR", "22012", false),
            ("ERROR", "57014", false),
            ("ERROR", "53200", false),
            ("ERROR", "25001", false),
            ("ERROR", "42601", false),
            ("FATAL", "40001", false),
            ("FATAL", "57P01", false),
        ] {
            let heard = Guard::new(b"").hears(&error(severity, sqlstate));
            let refused = matches!(heard, FirstAnswer::Refused(_));
            assert_eq!(refused, heals, "{severity} {sqlstate}");
        }
    }

    #[test]
    fn what_is_held_back_has_a_limit() {
        let long = |size: usize| {
            let mut notice = vec![tag::NOTICE];
            notice.extend_from_slice(&(size as u32 - 1).to_be_bytes());
            notice.resize(size, 0);
            notice
        };
        let mut guard = Guard::new(b"");
        let answer = long(limits::GUARDED - 10);
        assert_eq!(guard.hears(&answer), FirstAnswer::Awaited);
        let more = [&answer[..], &long(11)[..HEADER]].concat();
        assert_eq!(guard.hears(&more), FirstAnswer::Shown);
    }
}
