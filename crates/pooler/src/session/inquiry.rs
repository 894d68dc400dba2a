//! The question to PostgreSQL after a text that may have changed its session, and the answer.

use super::settings::{self, Maybe};
use super::{Session, Suspect};
use crate::effect::Kinds;
use crate::limits;
use crate::params::{Params, Tracked};

/// A question to PostgreSQL, and its answer so far.
#[derive(Debug, Default)]
pub struct Inquiry {
    /// The settings to ask about.
    pub names: Vec<Suspect>,
    /// The kinds of state to ask about.
    pub kinds: Kinds,
    /// Whether to ask for the channels that the session listens to.
    pub channels: bool,
    /// Reported settings, by position and name: do they have the value that they have without a
    /// SET?
    pub reported: Vec<(usize, String)>,
    /// Ask whether the session has a setting that its login may not set.
    pub rights: bool,
    /// The row with the answer.
    pub row: Option<Vec<u8>>,
    /// PostgreSQL has refused the question.
    pub failed: bool,
    /// The question was cancelled, or ran into the client's `statement_timeout`.
    pub cancelled: bool,
    /// How many earlier tries were cancelled.
    pub again: u8,
}

/// PostgreSQL's answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InquiryAnswer {
    /// Settings and their values, in the encoding of the database.
    pub settings: Vec<(Suspect, Option<Box<[u8]>>)>,
    /// The kinds that are left.
    pub left: Kinds,
    /// The channels that the session listens to, if asked.
    pub channels: Option<Vec<Box<[u8]>>>,
    /// Reported settings with the value that they have without a SET, by position.
    pub back: Vec<usize>,
    /// The session has a setting that its login may not set.
    pub rights: bool,
}

/// A condition for each kind that PostgreSQL can be asked about: is such state left?
const QUESTIONS: [(Kinds, &str); 5] = [
    (
        Kinds::TEMPORARY,
        "(SELECT FROM pg_catalog.pg_depend WHERE refclassid OPERATOR(pg_catalog.=) 2615 AND \
         refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())",
    ),
    (
        Kinds::LOCKS,
        "(SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND \
         pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
    ),
    (Kinds::HOLDS, "(SELECT FROM pg_catalog.pg_cursors)"),
    (
        Kinds::PREPARES,
        "(SELECT FROM pg_catalog.pg_prepared_statements WHERE from_sql)",
    ),
    (
        Kinds::LISTENS,
        "(SELECT FROM pg_catalog.pg_listening_channels())",
    ),
];

/// The channels that the session listens to, in hexadecimal digits with commas between.
const CHANNELS: &str = "(SELECT pg_catalog.string_agg(pg_catalog.encode(pg_catalog.convert_to(\
    channel,pg_catalog.getdatabaseencoding()),'hex'),',') \
    FROM pg_catalog.pg_listening_channels() AS listening(channel))";

/// True if a setting was set that not everybody may set, and the login is no superuser.
const RIGHTS: &str = "(EXISTS(SELECT FROM pg_catalog.pg_settings WHERE \
    source OPERATOR(pg_catalog.=) 'session' AND context OPERATOR(pg_catalog.<>) 'user') AND \
    NOT EXISTS(SELECT FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) session_user \
    AND rolsuper))";

impl Inquiry {
    /// The question about a session: the settings that may have changed, except reported ones, and
    /// the kinds that may be left. `there` are the settings that the server had before, `asked`
    /// the reported ones that the client asked for at login.
    pub fn of(
        session: &Session,
        there: &Maybe,
        tracked: &Tracked,
        reported: &Params,
        asked: Option<&Params>,
    ) -> Inquiry {
        let is_reported = |name: &[u8]| {
            let position = tracked.position(name);
            position.is_some_and(|position| reported.get(position).is_some())
        };
        let pending = &session.pending;
        let mut names: Vec<Suspect> = pending.names.clone();
        if pending.all_back && !pending.discarded {
            let own = session.settings.iter().flat_map(|own| own.iter());
            for (name, _) in own.filter(|(name, _)| settings::reset_by_all(name)) {
                if !names.iter().any(|known| *known.name == *name) {
                    names.push(Suspect {
                        name: name.into(),
                        set: false,
                        back: true,
                        unsure: false,
                    });
                }
            }
        }
        names.retain(|suspect| !is_reported(&suspect.name));
        for suspect in &mut names {
            let fresh = settings::value(there, &suspect.name).is_none();
            suspect.unsure = suspect.set && (suspect.back || fresh && pending.doubtful);
        }
        let rights = may_lack_rights(session, &names);
        if session.pinned.any(Kinds::SETS_ANY) {
            if !pending.all_back {
                // A pinned client's settings need not move, so only settings that RESET ALL leaves
                // alone are followed.
                names.retain(|suspect| !settings::reset_by_all(&suspect.name));
            } else if !names.iter().any(|suspect| *suspect.name == *b"role") {
                // Any setting may have been set, including the role.
                names.push(Suspect {
                    name: b"role"[..].into(),
                    set: true,
                    back: true,
                    unsure: false,
                });
            }
        }
        // DISCARD ALL has removed all earlier state.
        let before = if pending.discarded {
            Kinds::NOTHING
        } else {
            session.pinned
        };
        let askable = QUESTIONS
            .iter()
            .fold(Kinds::NOTHING, |all, (kind, _)| all.and(*kind));
        let kinds = pending.kinds.and(before).only(askable);
        // If the listener hears channels for the client, their names are needed.
        let channels = session.channels.is_some() && kinds.any(Kinds::LISTENS);
        let without = if channels {
            Kinds::LISTENS
        } else {
            Kinds::NOTHING
        };
        let asked = asked.filter(|_| pending.login_back && !pending.discarded);
        let asked = asked.into_iter().flat_map(Params::known);
        let asked = asked.map(|(position, _)| (position, tracked.names()[position].to_lowercase()));
        Inquiry {
            names,
            kinds: kinds.without(without),
            channels,
            reported: asked.collect(),
            rights,
            ..Inquiry::default()
        }
    }

    /// True if there is nothing to ask.
    pub fn is_empty(&self) -> bool {
        let settings = self.names.is_empty() && self.reported.is_empty();
        settings && self.kinds.is_empty() && !self.channels
    }

    /// The SQL for another try, safe from `statement_timeout`. `None` if the last try was not
    /// cancelled, or after too many tries.
    pub fn once_more(&mut self) -> Option<Vec<u8>> {
        const TIMES: u8 = 3;
        let passing = std::mem::take(&mut self.cancelled) && self.again < TIMES;
        passing.then(|| {
            self.again += 1;
            self.failed = false;
            self.row = None;
            [b"SET LOCAL statement_timeout=0;", &self.sql()[..]].concat()
        })
    }

    /// The question as SQL: one row, with a column for each setting, then one for each kind.
    /// Values are hexadecimal digits of their bytes in the database's encoding, so that nothing
    /// converts them. Example: `SELECT
    /// encode(...current_setting('a.b',true)...,'hex'),EXISTS(...)`.
    pub fn sql(&self) -> Vec<u8> {
        let mut columns = Vec::new();
        for suspect in &self.names {
            let name = String::from_utf8_lossy(&suspect.name);
            let value = format!(
                "pg_catalog.encode(pg_catalog.substr(pg_catalog.convert_to(\
                 pg_catalog.current_setting('{name}',true),\
                 pg_catalog.getdatabaseencoding()),1,{}),'hex')",
                limits::SETTING_VALUE + 1
            );
            // This condition takes about a millisecond, so it is used only where it may matter.
            columns.push(if suspect.unsure {
                format!(
                    "CASE WHEN (SELECT source OPERATOR(pg_catalog.<>) 'session' FROM \
                     pg_catalog.pg_settings WHERE pg_catalog.lower(name) \
                     OPERATOR(pg_catalog.=) '{name}') THEN NULL ELSE {value} END"
                )
            } else {
                value
            });
        }
        for (_, question) in self.asked() {
            columns.push(format!("EXISTS{question}"));
        }
        if self.channels {
            columns.push(CHANNELS.to_string());
        }
        for (_, name) in &self.reported {
            columns.push(format!(
                "EXISTS(SELECT FROM pg_catalog.pg_settings WHERE pg_catalog.lower(name) \
                 OPERATOR(pg_catalog.=) {} AND source OPERATOR(pg_catalog.<>) 'session')",
                constant(name)
            ));
        }
        if self.rights {
            columns.push(RIGHTS.to_string());
        }
        format!("SELECT {}", columns.join(",")).into_bytes()
    }

    fn asked(&self) -> impl Iterator<Item = &'static (Kinds, &'static str)> {
        let kinds = self.kinds;
        QUESTIONS.iter().filter(move |(kind, _)| kinds.any(*kind))
    }

    /// The answer; `None` if there is none that Howdah can read.
    pub fn answer(self) -> Option<InquiryAnswer> {
        if self.is_empty() {
            return Some(InquiryAnswer::default());
        }
        let row = self.row.as_deref().filter(|_| !self.failed)?;
        let mut columns = columns(row)?;
        let mut answer = InquiryAnswer::default();
        for suspect in &self.names {
            let value = match columns.next()?? {
                Some(digits) => {
                    Some(decoded(digits).filter(|value| value.len() <= limits::SETTING_VALUE)?)
                }
                None => None,
            };
            answer.settings.push((suspect.clone(), value));
        }
        for (kind, _) in self.asked() {
            if columns.next()?? != Some(b"f") {
                answer.left.add(*kind);
            }
        }
        if self.channels {
            let all = columns.next()??.unwrap_or_default().split(|b| *b == b',');
            let names = all.filter(|digits| !digits.is_empty()).map(decoded);
            answer.channels = Some(names.collect::<Option<_>>()?);
        }
        for (position, _) in &self.reported {
            if columns.next()?? == Some(b"t") {
                answer.back.push(*position);
            }
        }
        if self.rights {
            answer.rights = columns.next()?? != Some(b"f");
        }
        Some(answer)
    }
}

/// True if the role changes, and the session has or had settings that may need special rights.
fn may_lack_rights(session: &Session, names: &[Suspect]) -> bool {
    let changes = names
        .iter()
        .any(|suspect| !settings::reset_by_all(&suspect.name));
    let own = session.settings.iter().flat_map(|own| own.iter());
    let own = own.map(|(name, _)| name);
    let set = names.iter().filter(|suspect| suspect.set);
    let mut all = own.chain(set.map(|suspect| &*suspect.name));
    changes && all.any(|name| !settings::is_everybodys(name))
}

fn constant(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The columns of a DataRow; `None` if the row is damaged.
fn columns(row: &[u8]) -> Option<impl Iterator<Item = Option<Option<&[u8]>>>> {
    let (count, mut rest) = row.split_first_chunk::<2>()?;
    let count = u16::from_be_bytes(*count);
    Some((0..count).map(move |_| {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            return Some(None);
        };
        let (value, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(Some(value))
    }))
}

/// The bytes that hexadecimal digits stand for.
fn decoded(digits: &[u8]) -> Option<Box<[u8]>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Pending;

    fn inquiry(text: &str, session: Session) -> Inquiry {
        let mut session = session;
        let mut pending = Pending::default();
        let found = crate::effect::effects(text.as_bytes());
        pending.add(&found, found.kinds);
        session.pending = pending;
        let tracked = Tracked::new([]);
        let reported = Params::unknown(&tracked).with(1, b"ISO");
        Inquiry::of(&session, &None, &tracked, &reported, None)
    }

    #[test]
    fn a_set_that_may_have_failed_is_asked_for() {
        let asked = |text: &str, doubtful: bool, there: &str| {
            let mut session = Session::default();
            session.pending.add(
                &crate::effect::effects(text.as_bytes()),
                crate::effect::effects(text.as_bytes()).kinds,
            );
            session.pending.doubtful = doubtful;
            let mut own = settings::Settings::default();
            own.set(there.as_bytes(), b"1");
            let tracked = Tracked::new([]);
            let reported = Params::unknown(&tracked);
            let inquiry = Inquiry::of(&session, &own.shared(), &tracked, &reported, None);
            inquiry.names.iter().any(|suspect| suspect.unsure)
        };
        assert!(asked("set log_statement = 'all'", true, "x"));
        assert!(asked("set work_mem = 1; reset work_mem", false, "x"));
        assert!(!asked("set log_statement = 'all'", false, "x"));
        assert!(!asked("reset work_mem", true, "x"));
        // The server had a value before, so the plain question is enough.
        assert!(!asked("set work_mem = 1", true, "work_mem"));
    }

    #[test]
    fn whether_a_setting_needs_the_rights_of_a_role_is_asked_where_it_may() {
        let asks = |text: &str| inquiry(text, Session::default()).rights;
        assert!(asks("set role x; set log_statement = 'all'; reset role"));
        assert!(asks("set pg_stat_statements.track = 'all'; set role x"));
        assert!(!asks(
            "set role x; set search_path = y; set app.tenant = 'z'"
        ));
        assert!(!asks("set log_statement = 'all'"));
        let mut own = settings::Settings::default();
        own.set(b"log_statement", b"all");
        let session = Session {
            settings: own.shared(),
            ..Session::default()
        };
        assert!(inquiry("reset role", session).rights);
    }

    #[test]
    fn what_is_reported_is_asked_for_where_it_may_have_been_reset() {
        let tracked = Tracked::new([]);
        let asked = Params::unknown(&tracked).with(2, b"Europe/Berlin");
        let mut session = Session::default();
        session.pending.login_back = true;
        let inquiry = Inquiry::of(&session, &None, &tracked, &asked, Some(&asked));
        assert!(!inquiry.is_empty());
        assert_eq!(
            String::from_utf8(inquiry.sql()).unwrap(),
            "SELECT EXISTS(SELECT FROM pg_catalog.pg_settings WHERE pg_catalog.lower(name) \
             OPERATOR(pg_catalog.=) 'timezone' AND source OPERATOR(pg_catalog.<>) 'session')"
        );
        let answer = |told: &[u8]| {
            let row = [&[0, 1, 0, 0, 0, 1][..], told].concat();
            let mut inquiry = Inquiry::of(&session, &None, &tracked, &asked, Some(&asked));
            inquiry.row = Some(row);
            inquiry.answer().unwrap().back
        };
        assert_eq!((answer(b"t"), answer(b"f")), (vec![2], vec![]));
    }

    #[test]
    fn what_reset_all_leaves_is_asked_for_beside_unknown_settings() {
        let session = || Session {
            pinned: Kinds::SETS_ANY,
            ..Session::default()
        };
        let names = |text: &str| {
            let names = inquiry(text, session()).names;
            let names = names
                .iter()
                .map(|s| String::from_utf8_lossy(&s.name).into_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names("set work_mem = 1; set role x"), ["role"]);
        assert_eq!(names("reset all"), ["role"]);
        assert_eq!(names("select 1"), [""; 0]);
    }

    #[test]
    fn what_is_asked() {
        let asks = |text: &str| inquiry(text, Session::default());
        // PostgreSQL reports this setting.
        assert!(asks("set datestyle = iso").is_empty());
        assert!(asks("reset all; unlisten *; close all").is_empty());
        assert!(asks("load 'x'").is_empty());
        let one = asks("set a.b = 1; set datestyle = iso; listen x");
        assert_eq!(
            String::from_utf8(one.sql()).unwrap(),
            "SELECT pg_catalog.encode(pg_catalog.substr(pg_catalog.convert_to(\
             pg_catalog.current_setting('a.b',true),pg_catalog.getdatabaseencoding()),1,65537),'hex'),\
             EXISTS(SELECT FROM pg_catalog.pg_listening_channels())"
        );
        // PostgreSQL is asked again whether pinning state exists.
        let pinned = Session {
            pinned: Kinds::LOCKS.and(Kinds::STAYS),
            ..Session::default()
        };
        assert_eq!(inquiry("select 1", pinned).kinds, Kinds::LOCKS);
    }

    #[test]
    fn answers() {
        let row = |values: &[Option<&str>]| {
            let mut row = (values.len() as u16).to_be_bytes().to_vec();
            for value in values {
                let length = value.map_or(-1, |value| value.len() as i32);
                row.extend(length.to_be_bytes());
                row.extend_from_slice(value.unwrap_or("").as_bytes());
            }
            row
        };
        let answer = |values: &[Option<&str>]| {
            let mut asked = inquiry(
                "set a = 1; listen x; prepare y as select 1",
                Session::default(),
            );
            asked.row = Some(row(values));
            let answer = asked.answer()?;
            let value = answer.settings[0].1.as_deref().map(<[u8]>::to_vec);
            Some((value, answer.left))
        };
        let all = [Some("6162"), Some("t"), Some("f")];
        assert_eq!(answer(&all), Some((Some(b"ab".to_vec()), Kinds::PREPARES)));
        let none = [None, Some("f"), Some("f")];
        assert_eq!(answer(&none), Some((None, Kinds::NOTHING)));
        for damaged in [
            &all[..2],
            &[Some("616"), None, None],
            &[Some("zz"), None, None],
        ] {
            assert_eq!(answer(damaged), None);
        }
        assert_eq!(inquiry("listen x", Session::default()).answer(), None);
    }
}
