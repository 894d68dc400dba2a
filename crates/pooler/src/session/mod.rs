//! A client's session: its own settings, and the state that it has left on its server.
//!
//! In transaction mode a server serves many clients. The classifier ([`crate::effect`]) says how
//! each text may change its session. Before a server is released after such a text, Howdah asks
//! PostgreSQL for the result ([`inquiry`]). So savepoints, rollbacks, errors and functions need no
//! rules here.
//!
//! - *Settings* that a text changes belong to the client. Before the client's next transaction on a
//!   server with other settings, Howdah sets the client's there ([`settings`]).
//! - State that can't move to another server (temporary tables, advisory locks, LISTEN) *pins* the
//!   client: it keeps the server until PostgreSQL says that no such state is left.
//! - If a pinned client leaves, its server is *soiled*. DISCARD ALL cleans the server.
//!
//! A client without any of this has no [`Session`]. Only the reading of its texts costs time.

pub(crate) mod changes;
pub mod inquiry;
mod keep;
pub(crate) mod note;
mod pin_line;
mod pins;
pub(crate) mod server;
pub mod settings;
pub mod ticket;

pub(crate) use ticket::Permission;

use std::sync::Arc;

use crate::effect::{Effects, Kinds, LongText, Mention};
use crate::event::Time;
use crate::limits;
use settings::{Maybe, Settings};

/// A client's session.
#[derive(Debug, Default)]
pub struct Session {
    /// Its own settings.
    pub settings: Maybe,
    /// The settings that the client asked for at login. RESET goes back to these.
    pub login: Maybe,
    /// The question for PostgreSQL before the server is released.
    pub pending: Pending,
    /// The kinds of state that pin it.
    pub pinned: Kinds,
    /// Since when it is pinned.
    pub since: Time,
    /// When PostgreSQL was last asked about the pinning state.
    pub asked: Time,
    /// What came so far of a text that is too long to be held.
    pub long: Option<Box<LongText>>,
    /// Its request for permission to keep a server.
    pub ticket: Option<ticket::Ticket>,
    /// The channels that the listener hears for it.
    pub channels: Option<Box<crate::listen::Channels>>,
    /// The client ends with its transaction.
    pub is_over: bool,
}

/// Possible changes since PostgreSQL was last asked.
#[derive(Debug, Default)]
pub struct Pending {
    /// Kinds of effects.
    pub kinds: Kinds,
    /// Settings that may have changed.
    pub names: Vec<Suspect>,
    /// All settings may have been reset.
    pub all_back: bool,
    /// A reported parameter that the client asked for at login may have been reset to PostgreSQL's
    /// own default.
    pub login_back: bool,
    /// DISCARD ALL ran.
    pub discarded: bool,
    /// A command failed or was rolled back, so a SET in it may have had no effect.
    pub doubtful: bool,
}

/// A setting that may have changed. After `SET a.b = 1; RESET a.b`, `set` and `back` are true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspect {
    /// Its name.
    pub name: Box<[u8]>,
    /// A command may have set it.
    pub set: bool,
    /// The last command about it was a reset.
    pub back: bool,
    /// The server may have its own login's value, because the SET failed or was undone. This value
    /// must not become the client's.
    pub unsure: bool,
}

impl Pending {
    /// True if there is nothing to ask.
    pub fn is_empty(&self) -> bool {
        let back = self.all_back || self.login_back || self.discarded;
        self.kinds.is_empty() && self.names.is_empty() && !back
    }

    /// A command has failed, or was rolled back.
    pub fn fails(&mut self) {
        self.doubtful |= !self.is_empty();
    }

    /// Adds the effects that a text may have, with these kinds.
    pub fn add(&mut self, effects: &Effects, kinds: Kinds) {
        self.kinds.add(kinds);
        for mention in &effects.settings {
            match mention {
                Mention::Set(name) => self.suspect(name, true),
                Mention::Back(name) => self.suspect(name, false),
                Mention::AllBack => {
                    self.all_back = true;
                    self.names
                        .iter_mut()
                        .for_each(|suspect| suspect.back = true);
                }
            }
        }
    }

    fn suspect(&mut self, name: &[u8], set: bool) {
        if name == b"session_authorization" {
            // SET SESSION AUTHORIZATION resets the role, too.
            self.suspect(b"role", true);
            let role = self.names.iter_mut().find(|known| &*known.name == b"role");
            if let Some(role) = role {
                role.back = true;
            }
        }
        if let Some(known) = self.names.iter_mut().find(|known| *known.name == *name) {
            known.set |= set;
            known.back = !set;
        } else if self.names.len() < limits::SETTINGS_ASKED {
            self.names.push(Suspect {
                name: name.into(),
                set,
                back: !set,
                unsure: false,
            });
        } else {
            self.kinds.add(Kinds::SETS_ANY);
        }
    }
}

impl Session {
    /// True if the session differs in nothing from a new one.
    pub fn is_blank(&self) -> bool {
        self.settings.is_none()
            && self.login.is_none()
            && self.pinned.is_empty()
            && self.pending.is_empty()
            && self.long.is_none()
            && self.ticket.is_none()
            && self.channels.is_none()
            && !self.is_over
    }

    /// True if the client has reset settings to the values of its login, but its server, which has
    /// the settings `there`, lacks some of these values.
    fn misses_login(&self, there: &Maybe) -> bool {
        let login = self.login.iter().flat_map(|login| login.iter());
        let mut missed = login.filter(|(name, _)| {
            let own = settings::value(&self.settings, name);
            own.is_some() && own != settings::value(there, name)
        });
        !self.pinned.any(Kinds::SETS_ANY) && missed.next().is_some()
    }

    /// Takes in PostgreSQL's answers about settings. `there` holds the settings that the server
    /// had, and is updated to the present ones.
    pub fn learn(&mut self, there: &mut Maybe, answers: &[(Suspect, Option<Box<[u8]>>)]) {
        let mut own = self.settings.as_deref().cloned().unwrap_or_default();
        let mut server = there.as_deref().cloned().unwrap_or_default();
        for (suspect, now) in answers {
            let name = &*suspect.name;
            // `none` counts as a role only if the client has set it: the login may have another
            // role.
            let none = name == b"role" && now.as_deref() == Some(b"none");
            let none = none && (suspect.back || !suspect.set);
            let now = now.as_deref().filter(|_| !none);
            let before = value_of(there, name);
            // After a SET and a RESET, PostgreSQL says that the setting is not set or is empty.
            let custom = name.contains(&b'.') && now == Some(b"");
            if suspect.set && suspect.back && (now.is_none() || custom) {
                own.put(name, settings::value(&self.login, name));
            } else if before != now {
                // A rollback may have undone the SET or the RESET.
                let own_value = if suspect.back && (none || !suspect.set) {
                    settings::value(&self.login, name)
                } else {
                    now
                };
                own.put(name, own_value);
            }
            let only_reset = before.is_none() && !suspect.set;
            server.put(name, now.filter(|_| !only_reset));
        }
        share(&mut self.settings, own);
        share(there, server);
    }
}

fn value_of<'a>(settings: &'a Maybe, name: &[u8]) -> Option<&'a [u8]> {
    settings::value(settings, name)
}

fn share(old: &mut Maybe, new: Settings) {
    if old.as_deref() != Some(&new) {
        *old = new.shared();
    }
}

/// The table that makes equal settings one shared value.
pub type Shelf = crate::params::SetInterner<Settings>;

/// The reasons to keep a server, as text.
pub fn reasons(kinds: Kinds) -> String {
    let reasons = PIN_REASONS.iter().filter(|(kind, ..)| kinds.any(*kind));
    let texts: Vec<&str> = reasons.map(|(.., text)| *text).collect();
    texts.join(", ")
}

/// The reasons to keep a server: kind, word for metrics, text.
pub const PIN_REASONS: [(Kinds, &str, &str); 8] = [
    (Kinds::TEMPORARY, "temporary", "temporary objects"),
    (Kinds::PREPARES, "prepare", "SQL PREPARE"),
    (Kinds::HOLDS, "hold", "cursor WITH HOLD"),
    (Kinds::LOCKS, "lock", "advisory locks"),
    (Kinds::LISTENS, "listen", "LISTEN"),
    (Kinds::SEQUENCES, "currval", "currval"),
    (Kinds::STAYS, "load", "LOAD or the like"),
    (Kinds::SETS_ANY, "settings", "settings that can't move"),
];

/// The shared value equal to these settings.
pub(crate) fn intern(shelf: &mut Shelf, settings: Maybe) -> Maybe {
    settings.map(|settings| match Arc::try_unwrap(settings) {
        Ok(settings) => shelf.intern(settings),
        Err(settings) => shelf.intern((*settings).clone()),
    })
}

/// How Howdah treats state that clients leave in sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tracking {
    /// Not at all: the server belongs to one client, or clients share its state.
    #[default]
    Nothing,
    /// Howdah cleans the server.
    Cleans,
    /// Settings follow the client; other state pins it to the server.
    Keeps,
    /// Settings follow the client. Howdah refuses statements that would pin it (statement mode).
    KeepsSettings,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;
    use crate::session::server::{Numbers, ServerSession};

    fn settings(values: &[(&str, &str)]) -> Maybe {
        let mut settings = Settings::default();
        for (name, value) in values {
            settings.set(name.as_bytes(), value.as_bytes());
        }
        settings.shared()
    }

    fn told(text: &str, values: &[(&str, Option<&str>)]) -> Vec<(Suspect, Option<Box<[u8]>>)> {
        let mut pending = Pending::default();
        let found = crate::effect::effects(text.as_bytes());
        pending.add(&found, found.kinds);
        let value = |suspect: &Suspect| {
            let known = values
                .iter()
                .find(|(name, _)| name.as_bytes() == &*suspect.name);
            known.and_then(|(_, value)| value.map(|v| v.as_bytes().into()))
        };
        let names = pending.names.iter();
        names.map(|s| (s.clone(), value(s))).collect()
    }

    #[test]
    fn what_postgresql_says_counts() {
        let mut session = Session::default();
        let mut there = None;
        session.learn(
            &mut there,
            &told("set a = 1; set b = 2", &[("a", Some("1")), ("b", None)]),
        );
        assert_eq!(session.settings, settings(&[("a", "1")]));
        assert_eq!(there, settings(&[("a", "1")]));
        // Rolled back.
        session.learn(&mut there, &told("reset a", &[("a", Some("1"))]));
        assert_eq!(session.settings, settings(&[("a", "1")]));
        session.learn(&mut there, &told("reset a", &[("a", Some("0"))]));
        assert_eq!(session.settings, None);
        // The server still has a value that the text has set.
        assert_eq!(there, settings(&[("a", "0")]));
        let mut there = None;
        let text = "set role x; reset role";
        session.learn(&mut there, &told(text, &[("role", Some("none"))]));
        assert_eq!((session.settings.clone(), there.clone()), (None, None));
        // The login may have a default role.
        session.learn(
            &mut there,
            &told("set role none", &[("role", Some("none"))]),
        );
        let none = settings(&[("role", "none")]);
        assert_eq!((session.settings.clone(), there), (none.clone(), none));
    }

    #[test]
    fn a_reset_goes_back_to_the_login() {
        let login = settings(&[("a", "7")]);
        let mut session = Session {
            login: login.clone(),
            settings: settings(&[("a", "8")]),
            ..Session::default()
        };
        let mut there = settings(&[("a", "8")]);
        session.learn(&mut there, &told("reset a", &[("a", Some("0"))]));
        assert_eq!(session.settings, login);
        assert_ne!(there, login);
    }

    #[test]
    fn a_reset_behind_a_set_goes_back_to_the_login_too() {
        let login = settings(&[("a", "7"), ("b.c", "x")]);
        let session = || Session {
            login: login.clone(),
            settings: login.clone(),
            ..Session::default()
        };
        let (mut back, mut there) = (session(), login.clone());
        let text = "set a = 8; set b.c = 'y'; reset a; reset b.c";
        back.learn(&mut there, &told(text, &[("a", None), ("b.c", Some(""))]));
        assert_eq!(back.settings, login);
        assert_eq!(there, settings(&[("b.c", "")]));
        // The reset was undone.
        let (mut set, mut there) = (session(), login.clone());
        let values = [("a", Some("8")), ("b.c", Some("y"))];
        set.learn(&mut there, &told(text, &values));
        assert_eq!(set.settings, settings(&[("a", "8"), ("b.c", "y")]));
    }

    #[test]
    fn a_reset_that_was_undone_takes_nothing_back() {
        let mut session = Session::default();
        let mut there = None;
        let text = "set a = 1; savepoint b; reset a; rollback to b";
        session.learn(&mut there, &told(text, &[("a", Some("1"))]));
        assert_eq!(session.settings, settings(&[("a", "1")]));
        assert_eq!(there, settings(&[("a", "1")]));
        // After a RESET that took effect, the role is that of the login.
        let login = settings(&[("role", "app")]);
        let mut session = Session {
            login: login.clone(),
            settings: login.clone(),
            ..Session::default()
        };
        let mut there = login.clone();
        let text = "set role x; reset role";
        session.learn(&mut there, &told(text, &[("role", Some("none"))]));
        assert_eq!((session.settings, there), (login, None));
    }

    #[test]
    fn values_of_sequences_are_their_clients() {
        let mut there = ServerSession::new(Arc::new(Params::none()), None, Numbers::default());
        let mut takes = |client, asked_for| there.give_numbers(client, true, asked_for);
        assert!(!takes(1, true) && !takes(1, false));
        // No client has called `currval` yet.
        assert!(!takes(2, false) && !takes(2, false));
        // The server has values of both clients, whichever client used it last.
        assert!(takes(2, true) && !takes(2, true));
        assert!(takes(1, true) && !takes(1, true));
        assert!(takes(2, true));
        // The client has used another server since, and may have drawn values there.
        assert!(there.give_numbers(2, false, true));
        assert!(!there.give_numbers(2, true, true));
    }

    #[test]
    fn what_is_asked_is_bounded() {
        let mut pending = Pending::default();
        for at in 0..1000 {
            pending.suspect(format!("a{at}").as_bytes(), true);
        }
        assert_eq!(pending.names.len(), limits::SETTINGS_ASKED);
        assert!(pending.kinds.any(Kinds::SETS_ANY));
    }
}
