//! What a setting is, and the macro that makes fields, readers and lists of the table's rows.

use std::time::Duration;

use super::source::SecretText;
use super::value::{Kind, Value, read_number, read_seconds};
use super::{Database, Globals, HostEntry, PeerProcess, User};

/// A place in which a setting is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// In `[pgbouncer]`.
    Global,
    /// In an entry of `[databases]`.
    Database,
    /// In an entry of `[users]`.
    User,
    /// In an entry of `[peers]`.
    Peer,
    /// In an entry of `[hosts]`.
    Host,
    /// In a user's entry of one database: `[databases.NAME.users]` of `howdah.toml`.
    Member,
}

impl Scope {
    /// All places.
    pub const ALL: [Scope; 6] = [
        Scope::Global,
        Scope::Database,
        Scope::User,
        Scope::Peer,
        Scope::Host,
        Scope::Member,
    ];

    /// The section of the file.
    pub fn section(self) -> &'static str {
        match self {
            Scope::Global => "pgbouncer",
            Scope::Database => "databases",
            Scope::User => "users",
            Scope::Peer => "peers",
            Scope::Host => "hosts",
            Scope::Member => "databases.NAME.users",
        }
    }

    /// The scope of the entries of a section; `None` if a section has none.
    pub(super) fn of_entries(section: &str) -> Option<Scope> {
        let mut scopes = Scope::ALL
            .into_iter()
            .filter(|scope| *scope != Scope::Global);
        scopes.find(|scope| scope.section() == section)
    }

    /// What an entry of the section describes, for messages.
    pub fn noun(self) -> &'static str {
        match self {
            Scope::Global => "setting",
            Scope::Database => "database",
            Scope::User | Scope::Member => "user",
            Scope::Peer => "peer",
            Scope::Host => "host",
        }
    }
}

/// The values of its kind that a setting takes, if it does not take all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    /// A number from one to another.
    Numbers(i64, i64),
    /// The values that a function accepts. The text goes behind "must be" and the kind.
    Such(fn(&str) -> bool, &'static str),
    /// The values that a function accepts. The text is the whole advice.
    Only(fn(&str) -> bool, &'static str),
}

impl Range {
    /// True if the range has this value.
    pub(super) fn has(self, text: &str) -> bool {
        match self {
            Range::Numbers(least, most) => {
                read_number(text).is_some_and(|number| (least..=most).contains(&number))
            }
            Range::Such(accepts, _) | Range::Only(accepts, _) => accepts(text),
        }
    }
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The setting's name.
    pub name: &'static str,
    /// The chapter of the reference.
    pub topic: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The default; `None` if "unset" differs from empty.
    pub default: Option<&'static str>,
    /// The places in which PgBouncer 1.25.2 accepts the setting. In other places PgBouncer refuses
    /// the file.
    pub known_to_pgbouncer: &'static [Scope],
    /// Whether a reload or SET changes the setting.
    pub reloadable: bool,
    /// What the setting does.
    pub prose: &'static str,
    /// The field: two settings of one field are two names of a setting.
    pub(super) field: &'static str,
    pub(super) range: Option<Range>,
    pub(super) global: Option<Field>,
    pub(super) database: Option<Assign<Database>>,
    pub(super) user: Option<Assign<User>>,
    pub(super) peer: Option<Assign<PeerProcess>>,
    pub(super) host: Option<Assign<HostEntry>>,
    pub(super) member: Option<Assign<User>>,
    /// In entries of an ini file, zero means "as in the next scope".
    pub(super) zero_inherits: bool,
    /// No message, answer or hash has a value of it.
    pub(super) is_secret: bool,
}

/// Assigns a text to a setting's field; false if the text is not of the setting's kind.
pub(super) type Assign<T> = fn(&mut T, &str) -> bool;

/// Access to a setting's field of [`Globals`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) assign: Assign<Globals>,
    /// The value as SHOW CONFIG prints it.
    pub(super) show: fn(&Globals) -> Option<String>,
    /// Copies the value from other settings.
    pub(super) copy: fn(&mut Globals, &Globals),
}

impl Setting {
    /// Whether the setting is allowed in a place.
    pub fn is_allowed_in(&self, scope: Scope) -> bool {
        match scope {
            Scope::Global => self.global.is_some(),
            Scope::Database => self.database.is_some(),
            Scope::User => self.user.is_some(),
            Scope::Peer => self.peer.is_some(),
            Scope::Host => self.host.is_some(),
            Scope::Member => self.member.is_some(),
        }
    }

    /// Whether PgBouncer 1.25.2 accepts the setting in a place.
    pub fn is_known_to_pgbouncer(&self, scope: Scope) -> bool {
        self.known_to_pgbouncer.contains(&scope)
    }

    /// Whether the value is in the setting's range, if it is of the setting's kind.
    pub(super) fn can_be(&self, text: &str) -> bool {
        self.range.is_none_or(|range| range.has(text))
    }

    /// Whether the value is a secret, which no message shows.
    pub fn is_secret(&self) -> bool {
        self.is_secret || self.kind == Kind::Secret
    }

    /// Whether the secret may come from a source that is asked again and again.
    pub(super) fn takes_sources(&self) -> bool {
        matches!(self.name, "password" | "server_password")
    }

    /// A value for people: stars stand for a secret.
    pub(super) fn shown(&self, text: &str) -> String {
        if let Some(source) = SecretText::source_in(text) {
            return source.to_string();
        }
        match self.is_secret() && !text.is_empty() {
            true => "****".into(),
            false => text.into(),
        }
    }

    /// The text of a value in an entry of an ini file. There, as in PgBouncer, a negative number or a
    /// time of zero may mean "as in the next scope": the empty text.
    pub(super) fn in_entry_of_ini<'a>(&self, text: &'a str) -> &'a str {
        let is_number = |number: &str| number.trim().parse::<i64>().is_ok_and(|n| n < 0);
        let inherits = match self.kind {
            Kind::Number => is_number(text),
            Kind::Seconds if self.zero_inherits => {
                read_seconds(text).is_some_and(|time| time.is_zero())
            }
            _ => false,
        };
        if inherits { "" } else { text }
    }

    /// The kind of the values and their range, for messages and the reference.
    pub(super) fn values(&self) -> String {
        match self.range {
            Some(Range::Such(_, range)) => format!("{}{range}", self.kind),
            Some(Range::Numbers(least, most)) => {
                format!("{} from {least} to {most}", self.kind)
            }
            Some(Range::Only(..)) | None => self.kind.to_string(),
        }
    }
}

// How a text becomes the value of a field: the words of the rows.

/// The field always has a value.
pub(super) fn own<V: Value>(text: &str) -> Option<V> {
    V::read(text)
}

/// Without a value, the next scope counts.
pub(super) fn value<V: Value>(text: &str) -> Option<Option<V>> {
    V::read(text).map(Some)
}

/// A decimal number; nothing means "as in the next scope".
pub(super) fn limit(text: &str) -> Option<Option<u32>> {
    match text.trim() {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// A time; nothing means "as in the next scope". In an ini file, zero means that, too.
pub(super) fn time(text: &str) -> Option<Option<Duration>> {
    match text {
        "" => Some(None),
        time => Duration::read(time).map(Some),
    }
}

/// Fills a field; false without a value.
pub(super) fn fill<T>(field: &mut T, value: Option<T>) -> bool {
    let Some(value) = value else { return false };
    *field = value;
    true
}

/// The default of a field that always has a value. Never panics: a test reads every default.
pub(super) fn default_value<V: Value>(name: &str, text: Option<&str>) -> V {
    text.map_or_else(V::unset, V::read)
        .unwrap_or_else(|| panic!("the default of {name} cannot be read"))
}

/// What stands in a row or not: `None`, or `Some`.
macro_rules! optional {
    () => {
        None
    };
    ($it:expr) => {
        Some($it)
    };
}

/// Something that is made only if a row has the word.
macro_rules! if_given {
    ($word:ident $($it:tt)*) => {
        $($it)*
    };
}

/// The name of a setting: its field's, or the one that is written.
macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $written:literal) => {
        $written
    };
}

/// Whether zero means "as in the next scope" in entries of an ini file, by the word of the setting.
macro_rules! zero_inherits {
    (time) => {
        true
    };
    ($word:ident) => {
        false
    };
}

macro_rules! default_text {
    (unset) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

/// The type of a field of an entry, by the word of the setting: `own` alone always has a value.
macro_rules! kept {
    (own $type:ty) => { $type };
    ($word:ident $type:ty) => { Option<$type> };
}

/// The value of an entry's field before its setting is read, by the word of the setting.
macro_rules! initial {
    (own $field:ident $default:tt) => {
        default_value(stringify!($field), default_text!($default))
    };
    ($word:ident $field:ident $default:tt) => {
        None
    };
}

/// A struct for entries, with fields for settings, and others.
macro_rules! holder {
    (
        $(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $other:ident: $other_type:ty,)* }
        $({ $field:ident: [$type:ty] = $default:tt, by $word:ident, $prose:literal })*
    ) => {
        $(#[$about])*
        pub struct $name {
            $($(#[$doc])* pub $other: $other_type,)*
            $(#[doc = $prose] pub $field: kept!($word $type),)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name {
                    $($other: Default::default(),)*
                    $($field: initial!($word $field $default),)*
                }
            }
        }
    };
}

/// The reader of a setting: the value of the user in the database, else the user's, else the
/// database's, else the global one. The lists have what the row has: `global`, `user`, `database`,
/// `member` and `else`. A setting with a global value and no other scope is read as a field, and so is
/// one without a global value.
macro_rules! reader {
    ($prose:literal $field:ident $type:ty [$($global:ident)?] [] [] [] []) => {};
    ($prose:literal $field:ident $type:ty [] $user:tt $database:tt $member:tt []) => {};
    ($prose:literal $field:ident $type:ty [$global:ident] $user:tt $database:tt $member:tt []) => {
        reader!($prose $field $type [] $user $database $member [$field]);
    };
    ($prose:literal $field:ident $type:ty [] [$($user:ident)?] [$($database:ident)?] [$($member:ident)?]
        [$next:ident]) => {
        impl Scopes<'_> {
            #[doc = $prose]
            pub fn $field(self) -> $type {
                $(if let Some(own) = self.member.and_then(|user| if_given!($member user.$field.clone())) {
                    return own;
                })?
                $(if let Some(own) = self.member.and_then(|user| if_given!($user user.$field.clone())) {
                    return own;
                })?
                $(if let Some(own) = self.user.and_then(|user| if_given!($user user.$field.clone())) {
                    return own;
                })?
                $(if let Some(own) = self.database.and_then(|entry| if_given!($database entry.$field.clone())) {
                    return own;
                })?
                self.globals.$next.clone()
            }
        }
    };
}

/// Makes the structs with their fields and defaults, the readers of [`Scopes`](super::Scopes), and
/// `SETTINGS`. The structs are written with the fields that are no settings. A row with all of its
/// parts, in their order, is
///
/// ```text
/// field as "name": Type = "default" in RANGE;
///     global(reload) user(limit) database(limit replaces) member(limit) else other_field peer(limit)
///         host(limit) alias(limit) secret(always);
///     known SCOPES;
///     "What the setting does.";
/// ```
///
/// A row leaves out what it does not need:
/// - `as`: the name in the file, if the field has another;
/// - `global`: the field of `[pgbouncer]`, changed by a `reload` or `fixed`;
/// - `user`, `database`, `peer`, `host`: the field in entries, with the word that reads the text;
/// - `member`: the field of a user in one database; users' settings need no such word;
/// - `replaces`: a change of the setting takes other servers;
/// - `else`: the global field that counts without a value, if it has another name;
/// - `alias`: the name is another one for a field of the database;
/// - `secret`: no message shows a value, although it is of another kind than secrets.
macro_rules! settings {
    (
        $(#[$of_globals:meta])* pub struct Globals {}
        $(#[$of_database:meta])* pub struct Database {
            $($(#[$database_doc:meta])* pub $database_field:ident: $database_type:ty,)*
        }
        $(#[$of_user:meta])* pub struct User {
            $($(#[$user_doc:meta])* pub $user_field:ident: $user_type:ty,)*
        }
        $(#[$of_peer:meta])* pub struct PeerProcess {
            $($(#[$peer_doc:meta])* pub $peer_field:ident: $peer_type:ty,)*
        }
        $(#[$of_host:meta])* pub struct HostEntry {}
        $(topic $topic:literal {$(
            $field:ident $(as $written:literal)?: $type:ty = $default:tt $(in $range:expr)?;
            $(global($global:ident))? $(user($user:ident))?
            $(database($database:ident $($replaces:ident)?))? $(member($member:ident))?
            $(else $next:ident)? $(peer($peer:ident))? $(host($host:ident))?
            $(alias($alias:ident))? $(secret($secret:ident))?;
            known $known:ident;
            $prose:literal;
        )*})*
    ) => {
        $(#[$of_globals])*
        pub struct Globals {
            $($($(#[doc = $prose] pub $field: if_given!($global $type),)?)*)*
        }

        impl Default for Globals {
            fn default() -> Globals {
                Globals {$($($($field: if_given!(
                    $global default_value(stringify!($field), default_text!($default))
                ),)?)*)*}
            }
        }

        holder! { $(#[$of_database])* Database {
            $($(#[$database_doc])* $database_field: $database_type,)*
        } $($($({ $field: [$type] = $default, by $database, $prose })?)*)* }
        holder! { $(#[$of_user])* User {
            $($(#[$user_doc])* $user_field: $user_type,)*
        } $($(
            $({ $field: [$type] = $default, by $user, $prose })?
            $({ $field: [$type] = $default, by $member, $prose })?
        )*)* }
        holder! { $(#[$of_peer])* PeerProcess {
            $($(#[$peer_doc])* $peer_field: $peer_type,)*
        } $($($({ $field: [$type] = $default, by $peer, $prose })?)*)* }
        holder! { $(#[$of_host])* HostEntry {}
            $($($({ $field: [$type] = $default, by $host, $prose })?)*)* }

        impl Database {
            /// The settings whose change takes other servers, by the field's name, without those
            /// that have their defaults.
            pub(super) fn replacing(&self) -> BTreeMap<&'static str, String> {
                let default = Database::default();
                let all = [$($($($(if_given!($replaces (
                    stringify!($field),
                    Value::show(&self.$field),
                    Value::show(&default.$field),
                )),)?)?)*)*];
                let changed = all.into_iter().filter(|(_, own, default)| own != default);
                changed.filter_map(|(name, own, _)| Some((name, own?))).collect()
            }
        }

        $($(reader!($prose $field $type [$($global)?] [$($user)?] [$($database)?] [$($member)?] [$($next)?]);)*)*

        /// All settings, in the order of the reference.
        pub static SETTINGS: &[Setting] = &[$($(Setting {
            name: name!($field $($written)?),
            topic: $topic,
            kind: <$type as Value>::KIND,
            default: default_text!($default),
            known_to_pgbouncer: $known,
            reloadable: true $(&& $global)?,
            prose: $prose,
            field: stringify!($field),
            range: optional!($($range)?),
            global: optional!($(if_given!($global Field {
                assign: |globals, text| fill(&mut globals.$field, own(text)),
                show: |globals| Value::show(&globals.$field),
                copy: |to, from| to.$field.clone_from(&from.$field),
            }))?),
            database: optional!(
                $(|entry, text| fill(&mut entry.$field, $database(text)))?
                $(|entry, text| fill(&mut entry.$field, $alias(text)))?
            ),
            user: optional!($(|entry, text| fill(&mut entry.$field, $user(text)))?),
            peer: optional!($(|entry, text| fill(&mut entry.$field, $peer(text)))?),
            host: optional!($(|entry, text| fill(&mut entry.$field, $host(text)))?),
            member: optional!(
                $(|entry, text| fill(&mut entry.$field, $member(text)))?
                $(|entry, text| fill(&mut entry.$field, $user(text)))?
            ),
            zero_inherits: false $(|| zero_inherits!($user))? $(|| zero_inherits!($database))?,
            is_secret: false $(|| if_given!($secret true))?,
        },)*)*];
    };
}
