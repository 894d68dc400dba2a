//! Tracked parameters: settings that PostgreSQL reports. Howdah keeps their values for each client,
//! and sets them on each server that the client gets.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use crate::{Seeded, literal};

/// The parameters that are tracked always, as in PgBouncer. `track_extra_parameters` adds more.
const ALWAYS: [&str; 5] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "application_name",
];

/// The position of `client_encoding`.
pub const ENCODING: usize = 0;

/// The position of `standard_conforming_strings`.
pub const STANDARD_STRINGS: usize = 3;

/// The position of `application_name`, without meaning for texts.
const WITHOUT_MEANING: usize = 4;

/// Settings that change the meaning of texts, as hashes of their values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meaning {
    /// How PostgreSQL resolves names (`search_path`; after a change PostgreSQL itself resolves names
    /// anew), and all else that may change what it makes of a text and that it does not report.
    pub names: u64,
    /// How constants are read (`DateStyle`, `TimeZone`, `client_encoding` and so on): once, when
    /// PostgreSQL parses a text.
    pub constants: u64,
}

impl Meaning {
    /// Adds to `names` the hash of further state that decides how names are resolved.
    #[must_use]
    pub fn looking(self, hash: u64) -> Meaning {
        Meaning {
            names: FixedState::default().hash_one((self.names, hash)),
            ..self
        }
    }

    /// One hash of both.
    pub fn both(self) -> u64 {
        FixedState::default().hash_one((self.names, self.constants))
    }
}

/// The tracked parameters, by position.
#[derive(Debug)]
pub struct Tracked {
    names: Vec<String>,
    search_path: Option<usize>,
}

impl Tracked {
    /// The five parameters that are always tracked, and these.
    pub fn new<'a>(extra: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<String> = ALWAYS.iter().map(ToString::to_string).collect();
        for name in extra {
            if !names.iter().any(|n| n.eq_ignore_ascii_case(name)) {
                names.push(name.to_string());
            }
        }
        let search_path = names
            .iter()
            .position(|name| name.eq_ignore_ascii_case("search_path"));
        Tracked { names, search_path }
    }

    /// The position of `search_path`, if it is tracked.
    pub fn search_path(&self) -> Option<usize> {
        self.search_path
    }

    /// A parameter's position. Upper and lower case are equal.
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        self.names
            .iter()
            .position(|n| n.as_bytes().eq_ignore_ascii_case(name))
    }

    /// All names by position.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// Values of the tracked parameters, by position. Equal sets are shared: compare pointers first.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Params {
    values: Box<[Option<Box<[u8]>>]>,
}

impl Params {
    /// A set without known values.
    pub fn unknown(tracked: &Tracked) -> Self {
        Params {
            values: vec![None; tracked.names.len()].into(),
        }
    }

    /// True if no value is known.
    pub fn is_unknown(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }

    /// All values, by position.
    pub fn known(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let values = self.values.iter().enumerate();
        values.filter_map(|(position, value)| Some((position, value.as_deref()?)))
    }

    /// A set without positions.
    pub fn none() -> Self {
        Params {
            values: Box::default(),
        }
    }

    /// The value at a position.
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        self.values.get(position)?.as_deref()
    }

    /// The set with one value changed.
    #[must_use]
    pub fn with(&self, position: usize, value: &[u8]) -> Self {
        let mut values = self.values.clone();
        values[position] = Some(value.into());
        Params { values }
    }

    /// The set with the values of `over` in place of its own, where `over` has one.
    #[must_use]
    pub fn overlaid(&self, over: &Params) -> Self {
        let both = self.values.iter().zip(&over.values);
        Params {
            values: both
                .map(|(below, above)| above.as_ref().or(below.as_ref()).cloned())
                .collect(),
        }
    }

    /// `client_encoding` as an SQL expression: the encoding of the values.
    fn encoding(&self) -> Vec<u8> {
        let mut sql = Vec::new();
        match self.get(ENCODING).filter(|value| value.is_ascii()) {
            Some(value) => literal::ascii(&mut sql, value),
            None => sql.extend_from_slice(b"pg_catalog.pg_client_encoding()"),
        }
        sql
    }

    /// The parameters to set on a server with the values `server`, so that it gets these values. A
    /// parameter that the server never reported can't be tracked, and is left alone.
    pub fn missing_on<'a>(&'a self, server: &'a Params) -> impl Iterator<Item = (usize, &'a [u8])> {
        self.values
            .iter()
            .zip(&server.values)
            .enumerate()
            .filter_map(|(position, (ours, theirs))| match (ours, theirs) {
                (Some(ours), Some(theirs)) if ours != theirs => Some((position, &**ours)),
                _ => None,
            })
    }

    /// The meaning of a statement's text under these values. `hasher` is
    /// [`crate::cancel::Keys::meaning`], and `path` is further session state that decides how names
    /// are resolved.
    pub fn meaning(&self, tracked: &Tracked, hasher: Seeded, path: Option<&[u8]>) -> Meaning {
        let (mut names, mut constants) = (Vec::new(), Vec::new());
        names.extend_from_slice(path.unwrap_or_default());
        for (position, value) in self.values.iter().enumerate() {
            if !Self::has_meaning(position) {
                continue;
            }
            let into = if tracked.names[position].eq_ignore_ascii_case("search_path") {
                &mut names
            } else {
                &mut constants
            };
            match value {
                Some(value) => {
                    into.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    into.extend_from_slice(value);
                }
                None => into.extend_from_slice(&u32::MAX.to_be_bytes()),
            }
        }
        Meaning {
            names: hasher.hash_one(&names),
            constants: hasher.hash_one(&constants),
        }
    }

    /// True if the parameter at this position changes the meaning of texts.
    pub fn has_meaning(position: usize) -> bool {
        position != WITHOUT_MEANING
    }
}

/// The statements that set parameters, in one Query. `of` is the set with the values.
pub fn set_statement<'a>(
    tracked: &Tracked,
    of: &Params,
    missing: impl Iterator<Item = (usize, &'a [u8])>,
) -> Vec<u8> {
    let mut sql = Vec::new();
    for (position, value) in missing {
        set_one(&mut sql, &tracked.names[position], value, of, false);
    }
    sql
}

/// Appends the statement that sets one parameter, with `local` for the rest of the transaction. A
/// value that is not ASCII has the `client_encoding` of the set `of`.
pub fn set_one(sql: &mut Vec<u8>, name: &str, value: &[u8], of: &Params, local: bool) {
    // PostgreSQL reports a list such as search_path quoted, and SET would quote it again.
    if value.is_ascii() && !name.eq_ignore_ascii_case("search_path") {
        sql.extend_from_slice(if local { b"SET LOCAL " } else { b"SET " });
        sql.extend_from_slice(name.as_bytes());
        sql.push(b'=');
        literal::ascii(sql, value);
        sql.push(b';');
        return;
    }
    sql.extend_from_slice(b"SELECT pg_catalog.set_config('");
    sql.extend_from_slice(name.as_bytes());
    sql.extend_from_slice(b"',");
    literal::expression(sql, value, &of.encoding());
    sql.extend_from_slice(if local { b",true);" } else { b",false);" });
}

/// Equal sets of parameters.
pub type ParamsInterner = SetInterner<Params>;

/// The table that makes equal sets one shared value.
#[derive(Debug)]
pub struct SetInterner<T> {
    sets: HashMap<Arc<T>, (), Seeded>,
    purge_at: usize,
}

impl<T: std::hash::Hash + Eq> SetInterner<T> {
    /// An empty table.
    pub fn new(seeded: Seeded) -> Self {
        SetInterner {
            sets: HashMap::with_hasher(seeded),
            purge_at: 64,
        }
    }

    /// The shared copy of a set.
    pub fn intern(&mut self, params: T) -> Arc<T> {
        if let Some((shared, ())) = self.sets.get_key_value(&params) {
            return shared.clone();
        }
        if self.sets.len() >= self.purge_at {
            self.sets.retain(|set, ()| Arc::strong_count(set) > 1);
            self.purge_at = (self.sets.len() * 2).max(64);
        }
        let shared = Arc::new(params);
        self.sets.insert(shared.clone(), ());
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_become_one_statement() {
        let tracked = Tracked::new(["IntervalStyle", "search_path", "timezone"]);
        assert_eq!(tracked.names().len(), 7);
        let at = |name: &str| tracked.position(name.as_bytes()).unwrap();
        let base = Params::unknown(&tracked);
        let server = base
            .with(at("DATESTYLE"), b"ISO, MDY")
            .with(at("search_path"), b"public");
        let client = server
            .with(at("datestyle"), b"O'Hara\\")
            .with(at("search_path"), b"\"$user\", public")
            .with(at("TimeZone"), b"never reported by the server");
        let sql = set_statement(&tracked, &client, client.missing_on(&server));
        assert_eq!(
            String::from_utf8(sql).unwrap(),
            "SET DateStyle=E'O''Hara\\\\';\
             SELECT pg_catalog.set_config('search_path','\"$user\", public',false);"
        );
        let foreign = client
            .with(at("client_encoding"), b"SJIS")
            .with(at("search_path"), b"\x95\x5c");
        let sql = set_statement(&tracked, &foreign, foreign.missing_on(&client));
        assert_eq!(
            String::from_utf8(sql).unwrap(),
            "SELECT pg_catalog.set_config('search_path',pg_catalog.convert_from(\
             pg_catalog.decode('955c','hex'),'SJIS'),false);"
        );
        assert_eq!(server.overlaid(&client), client);
        assert_eq!(client.missing_on(&client).count(), 0);
    }
}
