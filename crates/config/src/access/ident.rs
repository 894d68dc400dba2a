//! Ident maps: which system user may log in as which database user.

use std::collections::HashMap;
use std::sync::Arc;

use super::tokens::RuleTokens;
use super::{Findings, Wrong};
use crate::{Mistake, Place};

/// The maps of an `auth_ident_file`, by their names.
pub(crate) type IdentMaps = HashMap<String, Arc<IdentMap>>;

/// The lines of one map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IdentMap {
    /// The name that rules use.
    pub name: String,
    mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Mapping {
    system: String,
    /// `None` means `all`.
    user: Option<String>,
}

impl IdentMap {
    /// Whether a system user may log in as this database user.
    pub fn allows(&self, system: &str, user: &str) -> bool {
        self.allows_any(|name| name == system, user)
    }

    /// The same for a client with several names, such as those of a certificate.
    pub fn allows_any(&self, is_named: impl Fn(&str) -> bool, user: &str) -> bool {
        self.mappings.iter().any(|mapping| {
            is_named(&mapping.system) && mapping.user.as_ref().is_none_or(|name| name == user)
        })
    }
}

/// Reads a file with lines `map system-user database-user`.
pub(super) fn parse(path: &str, text: &str, findings: &mut Findings) -> IdentMaps {
    let mut maps: HashMap<String, IdentMap> = HashMap::new();
    let file: Arc<str> = path.into();
    for (number, line) in (1..).zip(text.lines()) {
        let place = Place::line(file.clone(), number);
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some((name, mapping))) => {
                doubt(&mapping, &place, findings);
                let fresh = || IdentMap {
                    name: name.clone(),
                    mappings: Vec::new(),
                };
                let map = maps.entry(name.clone()).or_insert_with(fresh);
                map.mappings.push(mapping);
            }
            Err(wrong) => findings.unreadable("ident", &place, wrong),
        }
    }
    let share = |(name, map)| (name, Arc::new(map));
    maps.into_iter().map(share).collect()
}

fn parse_line(line: &str) -> Result<Option<(String, Mapping)>, Wrong> {
    let wrong = |text: &str| {
        let remedy = "write `map system-user database-user`, or all for the last";
        (text.to_owned(), remedy.to_owned())
    };
    let mut tokens = RuleTokens::of(line)?;
    if tokens.is_empty() {
        return Ok(None);
    }
    let name = tokens.word();
    let name = name.ok_or_else(|| wrong("it does not begin with a map's name, unquoted"))?;
    let system = tokens.text().ok_or_else(|| wrong("no system user"))?;
    let user = match tokens.word() {
        Some(word) if word == "all" => None,
        Some(word) => Some(word),
        None => Some(tokens.text().ok_or_else(|| wrong("no database user"))?),
    };
    if !tokens.is_empty() {
        return Err(wrong("something follows the database user"));
    }
    Ok(Some((name, Mapping { system, user })))
}

/// Notes a mapping that PostgreSQL would read in another way.
fn doubt(mapping: &Mapping, place: &Place, findings: &mut Findings) {
    let user = mapping.user.as_deref().unwrap_or("");
    let (what, name) = match (&*mapping.system, user) {
        (system, _) if system.starts_with('/') => ("regular expressions", system),
        (_, user) if user.starts_with('/') => ("regular expressions", user),
        (_, user) if user.starts_with('+') => ("groups", user),
        _ => return,
    };
    let text = format!("{what} are not supported, here or in PgBouncer");
    let remedy = format!("write a line for each user; this one is for a user named {name}");
    findings
        .doubtful
        .push(Mistake::new(Some(place), text, remedy));
}
