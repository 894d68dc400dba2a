//! The slow query log: one line for each query slower than `slow_query_time`, and at most
//! `slow_query_rate` lines per second, of which each login has a share.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use super::text::QueryText;
use crate::event::Time;
use crate::login::key::LoginId;
use crate::note::{Level, Note};

/// A slow query.
#[derive(Clone, Debug)]
pub struct SlowQuery {
    /// The client's connection: `C-0x1f`.
    pub connection: String,
    /// The client's address.
    pub address: String,
    /// The database, by the name that the client uses.
    pub database: Arc<str>,
    /// The client's user.
    pub user: Arc<str>,
    /// The client's `application_name`.
    pub application: String,
    /// How long the query waited for a server, in nanoseconds.
    pub wait_ns: u64,
    /// How long the query ran, in nanoseconds.
    pub run_ns: u64,
    /// Number of rows returned or changed.
    pub rows: u64,
    /// The SQLSTATE, if the query failed.
    pub sqlstate: Option<String>,
    /// The reason, if Howdah did not see the end of the query.
    pub broken_off: Option<&'static str>,
    /// The text, without constants.
    pub text: Arc<QueryText>,
    /// The text as sent, and values of parameters, with `slow_query_values`.
    pub values: Option<String>,
}

/// A value in a log line.
#[derive(Clone, PartialEq, Debug)]
pub enum LogValue {
    /// Text.
    Text(String),
    /// A number.
    Number(f64),
    /// A count.
    Count(u64),
}

impl SlowQuery {
    /// The log line as text.
    pub fn note(&self) -> Note {
        let mut text = format!(
            "{}: {}/{}@{} slow query: wait {:.3} ms, run {:.3} ms, rows {}",
            self.connection,
            self.database,
            self.user,
            self.address,
            self.wait_ns as f64 / 1e6,
            self.run_ns as f64 / 1e6,
            self.rows,
        );
        if let Some(sqlstate) = &self.sqlstate {
            let _ = write!(text, ", error {sqlstate}");
        }
        if let Some(why) = self.broken_off {
            let _ = write!(text, ", {why}");
        }
        let _ = write!(
            text,
            ", application {:?}, fingerprint {}: {}",
            self.application,
            self.text.shown(),
            self.text.text
        );
        if let Some(values) = &self.values {
            let _ = write!(text, " [{values}]");
        }
        Note::new(Level::Log, text)
    }

    /// The log line as fields, for JSON.
    pub fn fields(&self) -> Vec<(&'static str, LogValue)> {
        let text = |text: &str| LogValue::Text(text.into());
        let milliseconds = |ns: u64| LogValue::Number((ns / 1000) as f64 / 1000.0);
        let mut fields = vec![
            ("connection", text(&self.connection)),
            ("text", text("slow query")),
            ("address", text(&self.address)),
            ("database", text(&self.database)),
            ("user", text(&self.user)),
            ("application_name", text(&self.application)),
            ("wait_ms", milliseconds(self.wait_ns)),
            ("run_ms", milliseconds(self.run_ns)),
            ("rows", LogValue::Count(self.rows)),
            ("fingerprint", text(&self.text.shown())),
            ("query", text(&self.text.text)),
        ];
        fields.extend(self.sqlstate.iter().map(|code| ("sqlstate", text(code))));
        fields.extend(self.broken_off.map(|why| ("broken_off", text(why))));
        fields.extend(self.values.iter().map(|values| ("values", text(values))));
        fields
    }
}

/// Limits the number of lines per second. A login gets at most half of what the other logins leave,
/// so that no login takes the lines of all others.
#[derive(Debug, Default)]
pub struct Quota {
    second: u64,
    used: u32,
    /// The lines of each login in this second.
    of_logins: BTreeMap<LoginId, u32>,
    /// Number of queries without a line since the last line.
    missed: u64,
    /// Number of all queries without a line.
    pub unlogged: u64,
}

impl Quota {
    /// Whether a line may be written now, and how many were left out since the last.
    pub fn take(&mut self, now: Time, rate: u32, login: LoginId) -> Option<u64> {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            (self.second, self.used) = (second, 0);
            self.of_logins.clear();
        }
        let own = self.of_logins.get(&login).copied().unwrap_or(0);
        let others = self.used - own;
        if own >= rate.saturating_sub(others).div_ceil(2) {
            self.missed += 1;
            self.unlogged += 1;
            return None;
        }
        self.used += 1;
        self.of_logins.insert(login, own + 1);
        Some(std::mem::take(&mut self.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines() {
        let mut quota = Quota::default();
        let at = |ms: u64| Time(ms * 1_000_000);
        let one = LoginId(1);
        assert_eq!(quota.take(at(1000), 4, one), Some(0));
        assert_eq!(quota.take(at(1001), 4, one), Some(0));
        assert_eq!(quota.take(at(1002), 4, one), None);
        assert_eq!(quota.take(at(1999), 4, one), None);
        assert_eq!(quota.take(at(2000), 4, one), Some(2));
        assert_eq!((quota.take(at(2001), 0, one), quota.unlogged), (None, 3));
        assert_eq!(quota.take(at(9000), 4, one), Some(1));
    }

    #[test]
    fn each_pool_has_a_share() {
        let mut quota = Quota::default();
        let mut lines = |second: u64, pool: u32, tries: u32| {
            let mut take = || quota.take(Time(second * 1_000_000_000), 10, LoginId(pool));
            (0..tries).filter(|_| take().is_some()).count()
        };
        assert_eq!(lines(1, 1, 100), 5, "half");
        assert_eq!(lines(1, 2, 100), 3, "half of what is left, rounded up");
        assert_eq!((lines(1, 1, 9), lines(1, 3, 9), lines(1, 4, 9)), (0, 1, 1));
        assert_eq!(lines(1, 5, 9), 0, "no more than the rate in all");
        assert_eq!((lines(2, 1, 1), lines(2, 5, 9)), (1, 5));
    }

    #[test]
    fn a_line_has_all_and_no_value() {
        let mut texts = super::super::text::Texts::new(crate::seeded(1));
        let slow = SlowQuery {
            connection: "C-0x1".into(),
            address: "127.0.0.1:5".into(),
            database: "d".into(),
            user: "u".into(),
            application: "a\"b".into(),
            wait_ns: 1_500_000,
            run_ns: 2_000_000_000,
            rows: 3,
            sqlstate: Some("57014".into()),
            broken_off: None,
            text: texts.of(b"select 'secret'"),
            values: None,
        };
        let line = slow.note().text;
        let front = "C-0x1: d/u@127.0.0.1:5 slow query: wait 1.500 ms, run 2000.000 ms, rows 3, \
                     error 57014, application \"a\\\"b\", fingerprint ";
        assert!(
            line.starts_with(front) && line.ends_with(": select ?"),
            "{line}"
        );
        let fields = slow.fields();
        let field = |name| {
            fields
                .iter()
                .find(|(field, _)| *field == name)
                .map(|(_, v)| v.clone())
        };
        assert_eq!(field("wait_ms"), Some(LogValue::Number(1.5)));
        assert_eq!(field("sqlstate"), Some(LogValue::Text("57014".into())));
        assert_eq!(field("query"), Some(LogValue::Text("select ?".into())));
        assert!(field("values").is_none() && field("broken_off").is_none());
    }
}
