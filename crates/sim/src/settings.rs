//! A session's settings, and how transactions change them.

/// All settings, with their values in a new cluster.
pub const KNOWN: [(&str, &str); 10] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("IntervalStyle", "postgres"),
    ("application_name", ""),
    ("search_path", "public"),
    ("work_mem", "4MB"),
    ("default_transaction_read_only", "off"),
    ("howdah.route", "auto"),
];

/// How many of these settings change the meaning of constants.
const READ_BY: usize = 5;

/// How many of these settings are in each row.
const SHOWN: usize = 8;

/// How many of these settings are reported to clients when they change.
const REPORTED: usize = 7;

/// The values of one setting.
#[derive(Clone, Debug)]
struct Value {
    default: String,
    /// The value before the transaction.
    before: String,
    now: String,
    /// The value of SET LOCAL.
    local: Option<String>,
    reported: String,
}

/// All settings of a session.
#[derive(Clone, Debug)]
pub struct Settings(Vec<Value>);

impl Settings {
    /// The settings of a new session: the cluster's, with these values instead.
    pub fn new<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Settings {
        let start = |(_, value): &(&str, &str)| Value {
            default: value.to_string(),
            before: value.to_string(),
            now: value.to_string(),
            local: None,
            reported: value.to_string(),
        };
        let mut settings = Settings(KNOWN.iter().map(start).collect());
        for (name, value) in given {
            if let Some(at) = position(name) {
                settings.0[at] = start(&(name, value));
            }
        }
        settings
    }

    /// Sets the value in force, without changing the default.
    pub fn begin_with(&mut self, name: &str, value: &str) {
        if let Some(at) = position(name) {
            let entry = &mut self.0[at];
            entry.before = value.into();
            entry.now = value.into();
            entry.reported = value.into();
        }
    }

    /// SET. False if the setting or the value does not exist.
    pub fn set(&mut self, name: &str, value: &str, local: bool) -> bool {
        // Nothing in this world takes as long as this timeout. What is said of shards is Howdah's.
        if ["statement_timeout", "howdah.shard"].contains(&name) {
            return true;
        }
        let Some(at) = position(name).filter(|_| value != "invalid") else {
            return false;
        };
        let entry = &mut self.0[at];
        if local {
            entry.local = Some(value.into());
        } else {
            entry.now = value.into();
            entry.local = None;
        }
        true
    }

    /// RESET of one setting, or of all.
    pub fn reset(&mut self, name: Option<&str>) -> bool {
        match name {
            None => self.0.iter_mut().for_each(reset),
            Some(name) => match position(name) {
                Some(at) => reset(&mut self.0[at]),
                None => return false,
            },
        }
        true
    }

    /// The transaction is committed.
    pub fn commit(&mut self) {
        for value in &mut self.0 {
            value.local = None;
            value.before.clone_from(&value.now);
        }
    }

    /// The transaction is rolled back.
    pub fn undo(&mut self) {
        for value in &mut self.0 {
            value.local = None;
            value.now.clone_from(&value.before);
        }
    }

    /// Transactions only read, unless they say otherwise.
    pub fn read_only(&self) -> bool {
        self.get("default_transaction_read_only") == Some("on")
    }

    /// A setting's value in force.
    pub fn get(&self, name: &str) -> Option<&str> {
        position(name).map(|at| effective(&self.0[at]))
    }

    /// The values in force that are in each row.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().take(SHOWN).map(effective)
    }

    /// The values that constants depend on.
    pub fn read_by(&self) -> impl Iterator<Item = &str> {
        self.values().take(READ_BY)
    }

    /// The settings that are reported, with their values.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let pairs = KNOWN.iter().zip(&self.0).take(REPORTED);
        pairs.map(|((name, _), value)| (*name, effective(value)))
    }

    /// The settings that have changed since their last report.
    pub fn report(&mut self) -> Vec<(&'static str, String)> {
        let mut changed = Vec::new();
        for ((name, _), value) in KNOWN.iter().zip(&mut self.0).take(REPORTED) {
            if effective(value) != value.reported {
                value.reported = effective(value).to_string();
                changed.push((*name, value.reported.clone()));
            }
        }
        changed
    }
}

fn effective(value: &Value) -> &str {
    value.local.as_deref().unwrap_or(&value.now)
}

fn reset(value: &mut Value) {
    value.now.clone_from(&value.default);
    value.local = None;
}

/// The position of a setting. Names do not depend on case.
pub fn position(name: &str) -> Option<usize> {
    KNOWN
        .iter()
        .position(|(known, _)| known.eq_ignore_ascii_case(name))
}
