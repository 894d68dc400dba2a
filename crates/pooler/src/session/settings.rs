//! A session's own settings that PostgreSQL does not report to Howdah.

use std::sync::Arc;

use crate::effect::name::setting_name;
use crate::literal;
use crate::login::key::Parameter;

/// Settings that affect a server without a client, or Howdah's own queries. (A deferrable
/// transaction may wait for all writers.) Howdah resets them as soon as the server is released.
const AT_ONCE: [&[u8]; 4] = [
    b"session_authorization",
    b"role",
    b"idle_session_timeout",
    b"default_transaction_deferrable",
];

/// Settings, sorted by name. Values are bytes in the encoding of the database.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Settings {
    values: Vec<Parameter>,
}

impl Settings {
    /// True if there are no settings.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many settings there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The total length of the values, in bytes.
    pub fn weight(&self) -> usize {
        self.values.iter().map(|(_, value)| value.len()).sum()
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of one setting.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.find(name).ok()?;
        Some(&self.values[at].1)
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.values.binary_search_by(|(n, _)| (**n).cmp(name))
    }

    /// Sets the value of one setting.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        match self.find(name) {
            Ok(at) => self.values[at].1 = value.into(),
            Err(at) => self.values.insert(at, (name.into(), value.into())),
        }
    }

    /// Sets the value of one setting, or removes the setting.
    pub fn put(&mut self, name: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => self.set(name, value),
            None => {
                if let Ok(at) = self.find(name) {
                    self.values.remove(at);
                }
            }
        }
    }

    /// Statements that set the settings chosen by `of`; role and session authorization come last.
    /// `local`: for the rest of the transaction.
    pub fn setting(&self, of: impl Fn(&[u8]) -> bool, local: bool) -> Vec<Vec<u8>> {
        let mut wanted: Vec<_> = self.iter().filter(|(name, _)| of(name)).collect();
        wanted.sort_by_key(|(name, _)| is_identity(name));
        let sql = |(name, value): (&[u8], &[u8])| {
            let mut sql = Vec::new();
            set(&mut sql, name, value, local);
            sql
        };
        wanted.into_iter().map(sql).collect()
    }

    /// The settings to reset as soon as a server is released. `role = none` and
    /// `default_transaction_deferrable = off` may stay.
    pub fn at_once(&self) -> impl Iterator<Item = &'static [u8]> {
        let acts = |name: &&[u8]| {
            let idle: &[u8] = match *name {
                name if name == AT_ONCE[1] => b"none",
                name if name == AT_ONCE[3] => b"off",
                _ => b"",
            };
            self.get(name).is_some_and(|value| value != idle)
        };
        AT_ONCE.into_iter().filter(acts)
    }

    /// The session authorization and the role, which decide the session's rights.
    pub fn identity(&self) -> [Option<&[u8]>; 2] {
        [AT_ONCE[0], AT_ONCE[1]].map(|name| self.get(name))
    }

    /// True if there are settings that decide the session's rights, and others.
    pub fn has_identity_and_more(&self) -> bool {
        let identity = self.iter().filter(|(name, _)| is_identity(name)).count();
        identity > 0 && identity < self.len()
    }

    /// The settings as a shared value; `None` if there are none.
    pub fn shared(self) -> Option<Arc<Settings>> {
        (!self.is_empty()).then(|| Arc::new(self))
    }
}

/// Shared settings; `None` if there are none.
pub type Maybe = Option<Arc<Settings>>;

/// The value of a name.
pub fn value<'a>(settings: &'a Maybe, name: &[u8]) -> Option<&'a [u8]> {
    settings.as_ref()?.get(name)
}

/// True if both have equal settings.
pub fn same(one: &Maybe, other: &Maybe) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
        _ => false,
    }
}

/// Whether `RESET ALL` resets a setting: it resets all but `role` and `session_authorization`.
pub fn reset_by_all(name: &[u8]) -> bool {
    !is_identity(name)
}

/// True if everybody may set this: a few common settings, and custom ones, except those of
/// stricter extensions. (Howdah asks PostgreSQL about others, where that matters.)
pub fn is_everybodys(name: &[u8]) -> bool {
    const STRICT: [&[u8]; 4] = [
        b"auto_explain.",
        b"pg_stat_statements.",
        b"pgaudit.",
        b"plpgsql.",
    ];
    const OFTEN: [&[u8]; 18] = [
        b"search_path",
        b"statement_timeout",
        b"lock_timeout",
        b"idle_in_transaction_session_timeout",
        b"idle_session_timeout",
        b"transaction_timeout",
        b"work_mem",
        b"maintenance_work_mem",
        b"client_min_messages",
        b"row_security",
        b"synchronous_commit",
        b"bytea_output",
        b"extra_float_digits",
        b"jit",
        b"default_transaction_isolation",
        b"default_transaction_read_only",
        b"default_transaction_deferrable",
        b"intervalstyle",
    ];
    let custom = name.contains(&b'.') && !STRICT.iter().any(|front| name.starts_with(front));
    custom || is_identity(name) || OFTEN.contains(&name)
}

/// The same names with a value that no client wants, so that each is set again: a zero byte, which
/// no value in PostgreSQL has.
pub fn doubted(settings: &Maybe) -> Maybe {
    let settings = settings.as_ref()?;
    let values = settings
        .iter()
        .map(|(name, _)| (name.into(), b"\0"[..].into()));
    Some(Arc::new(Settings {
        values: values.collect(),
    }))
}

/// The name of a setting in a startup packet, if the setting can also be set later.
pub fn at_login(name: &[u8]) -> Option<Box<[u8]>> {
    setting_name(name)
}

/// Appends commands that reset what the server has and the client does not want. The role comes
/// first: other resets may need the rights of the login.
pub fn take_back(sql: &mut Vec<u8>, there: &Maybe, wanted: &Maybe) {
    let Some(there) = there else { return };
    for name in [AT_ONCE[0], AT_ONCE[1]] {
        // A wanted value is set again after everything else.
        if there.get(name).is_some() {
            reset(sql, name);
        }
    }
    for (name, _) in there.iter() {
        if !is_identity(name) && value(wanted, name).is_none() {
            reset(sql, name);
        }
    }
}

/// Appends commands that set the wanted settings that the server lacks. `identity_first`: role and
/// session authorization come first.
pub fn give(sql: &mut Vec<u8>, there: &Maybe, wanted: &Maybe, identity_first: bool) {
    let Some(wanted) = wanted else { return };
    let identity = |sql: &mut Vec<u8>| {
        for name in [AT_ONCE[0], AT_ONCE[1]] {
            if let Some(wish) = wanted.get(name) {
                set(sql, name, wish, false);
            }
        }
    };
    if identity_first {
        identity(sql);
    }
    for (name, wish) in wanted.iter() {
        if !is_identity(name) && value(there, name) != Some(wish) {
            set(sql, name, wish, false);
        }
    }
    if !identity_first {
        identity(sql);
    }
}

/// Whether one statement, sent with the client's first messages, can change the settings.
/// Everybody may set them, none affects that statement, and none is `reported`: PostgreSQL would
/// tell the client. Only PostgreSQL's own settings are reset, which can't fail: so the statement
/// can only fail because of this client's wishes. (An extension may have claimed a custom name
/// meanwhile. A client that does not want this setting must not be disconnected for it.)
pub fn go_along(there: &Maybe, wanted: &Maybe, reported: &[Parameter]) -> bool {
    let plain = |(name, _): (&[u8], &[u8])| {
        let told = |(known, _): &Parameter| known.eq_ignore_ascii_case(name);
        let transactions = name.ends_with(b"timeout") || name.starts_with(b"default_transaction_");
        let acts = AT_ONCE.contains(&name) || transactions;
        is_everybodys(name) && !acts && !reported.iter().any(told)
    };
    let stays = |name: &[u8]| !name.contains(&b'.') || value(wanted, name).is_some();
    let mut all = [there, wanted].into_iter().flatten();
    all.all(|settings| settings.iter().all(plain))
        && there
            .iter()
            .flat_map(|there| there.iter())
            .all(|(name, _)| stays(name))
}

/// One statement that resets unwanted settings and sets wanted ones, which must not be role or
/// session authorization: `SELECT pg_catalog.set_config('a.b',NULL,false), ...`.
pub fn change(there: &Maybe, wanted: &Maybe) -> Vec<u8> {
    let mut sql = b"SELECT ".to_vec();
    let (there_all, wanted_all) = (there.iter(), wanted.iter());
    for (name, _) in there_all.flat_map(|there| there.iter()) {
        if value(wanted, name).is_none() {
            call(&mut sql, name, |sql| sql.extend_from_slice(b"NULL"), false);
            sql.push(b',');
        }
    }
    for (name, wish) in wanted_all.flat_map(|wanted| wanted.iter()) {
        if value(there, name) != Some(wish) {
            call(&mut sql, name, |sql| constant(sql, wish), false);
            sql.push(b',');
        }
    }
    sql.pop();
    sql
}

/// True for role and session authorization: normally set last, and reset first.
fn is_identity(name: &[u8]) -> bool {
    name == AT_ONCE[0] || name == AT_ONCE[1]
}

/// Appends a command that resets a setting to its value at login.
pub fn reset(sql: &mut Vec<u8>, name: &[u8]) {
    sql.extend_from_slice(b"RESET ");
    match name {
        b"session_authorization" => sql.extend_from_slice(b"SESSION AUTHORIZATION"),
        _ => quoted_name(sql, name),
    }
    sql.push(b';');
}

/// Appends a quoted name, as a part of it may be a keyword.
fn quoted_name(sql: &mut Vec<u8>, name: &[u8]) {
    for (at, part) in name.split(|b| *b == b'.').enumerate() {
        if at > 0 {
            sql.push(b'.');
        }
        sql.push(b'"');
        sql.extend_from_slice(part);
        sql.push(b'"');
    }
}

fn set(sql: &mut Vec<u8>, name: &[u8], value: &[u8], local: bool) {
    sql.extend_from_slice(b"SELECT ");
    call(sql, name, |sql| constant(sql, value), local);
    sql.push(b';');
}

fn call(sql: &mut Vec<u8>, name: &[u8], value: impl FnOnce(&mut Vec<u8>), local: bool) {
    sql.extend_from_slice(b"pg_catalog.set_config('");
    sql.extend_from_slice(name);
    sql.extend_from_slice(b"',");
    value(sql);
    sql.extend_from_slice(if local { b",true)" } else { b",false)" });
}

fn constant(sql: &mut Vec<u8>, value: &[u8]) {
    literal::expression(sql, value, b"pg_catalog.getdatabaseencoding()");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(values: &[(&str, &str)]) -> Maybe {
        let mut settings = Settings::default();
        for (name, value) in values {
            settings.set(name.as_bytes(), value.as_bytes());
        }
        settings.shared()
    }

    fn change(there: &Maybe, wanted: &Maybe) -> String {
        let mut sql = Vec::new();
        take_back(&mut sql, there, wanted);
        give(&mut sql, there, wanted, false);
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn a_server_gets_what_is_wanted_and_loses_the_rest() {
        let there = settings(&[("a.b", "1"), ("work_mem", "4MB"), ("x", "y")]);
        let wanted = settings(&[("work_mem", "5MB"), ("x", "y")]);
        assert_eq!(
            change(&there, &wanted),
            "RESET \"a\".\"b\";SELECT pg_catalog.set_config('work_mem','5MB',false);"
        );
        assert_eq!(change(&None, &None), "");
        assert_eq!(change(&wanted, &wanted), "");
        assert_eq!(change(&None, &settings(&[])), "");
    }

    #[test]
    fn what_acts_on_an_idle_server_goes_at_once() {
        let at_once = |values| settings(values).unwrap().at_once().count();
        assert_eq!(
            at_once(&[("role", "none"), ("default_transaction_deferrable", "off")]),
            0
        );
        assert_eq!(
            at_once(&[("role", "r"), ("default_transaction_deferrable", "on")]),
            2
        );
        assert_eq!(at_once(&[("work_mem", "4MB")]), 0);
    }

    #[test]
    fn identity_is_taken_back_first_and_given_last() {
        let there = settings(&[("role", "r"), ("session_authorization", "s"), ("a", "1")]);
        let wanted = settings(&[("role", "q"), ("z", "1")]);
        assert_eq!(
            change(&there, &wanted),
            "RESET SESSION AUTHORIZATION;RESET \"role\";RESET \"a\";\
             SELECT pg_catalog.set_config('z','1',false);\
             SELECT pg_catalog.set_config('role','q',false);"
        );
    }

    #[test]
    fn one_statement_changes_settings_of_everybody() {
        let there = settings(&[("a.b", "1"), ("work_mem", "4MB"), ("x.y", "y")]);
        let wanted = settings(&[("search_path", "it's"), ("work_mem", "5MB"), ("x.y", "y")]);
        let text = |there, wanted| String::from_utf8(super::change(there, wanted)).unwrap();
        assert_eq!(
            text(&there, &wanted),
            "SELECT pg_catalog.set_config('a.b',NULL,false),\
             pg_catalog.set_config('search_path','it''s',false),\
             pg_catalog.set_config('work_mem','5MB',false)"
        );
        assert_eq!(
            text(&there, &None),
            "SELECT pg_catalog.set_config('a.b',NULL,false),\
             pg_catalog.set_config('work_mem',NULL,false),pg_catalog.set_config('x.y',NULL,false)"
        );
        let path: Parameter = (b"search_path"[..].into(), b"public"[..].into());
        let both = settings(&[("a.b", "2"), ("search_path", "it's"), ("x.y", "y")]);
        assert!(go_along(&there, &both, &[]), "work_mem is taken back");
        assert!(!go_along(&there, &both, &[path]));
        assert!(
            !go_along(&there, &wanted, &[]),
            "a.b is not PostgreSQL's own"
        );
        assert!(go_along(&None, &wanted, &[]));
        let strict = ["log_statement", "pgaudit.log", "plpgsql.variable_conflict"];
        let acts = ["role", "statement_timeout", "default_transaction_isolation"];
        for name in strict.into_iter().chain(acts) {
            let other = settings(&[(name, "1")]);
            assert!(!go_along(&there, &other, &[]), "{name}");
            assert!(!go_along(&other, &None, &[]), "{name}");
        }
    }

    #[test]
    fn values_travel_as_they_are() {
        let wanted = settings(&[("a", "it's\\"), ("b", "\u{8868}")]);
        assert_eq!(
            change(&None, &wanted),
            "SELECT pg_catalog.set_config('a',E'it''s\\\\',false);\
             SELECT pg_catalog.set_config('b',pg_catalog.convert_from(pg_catalog.decode(\
             'e8a1a8','hex'),pg_catalog.getdatabaseencoding()),false);"
        );
    }
}
