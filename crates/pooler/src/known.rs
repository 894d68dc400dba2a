//! The question that `auth_query` asks on a server ([`Lookup`]), and its recent answers
//! ([`Known`]).

use std::sync::Arc;

use hashbrown::HashMap;

use crate::auth::Secret;
use crate::ids::{ClientId, Time};
use crate::login::key::LoginKey;
use crate::{Seeded, limits};

/// A lookup that is running on a server.
pub struct Lookup {
    /// The client whose user is looked up.
    pub client: ClientId,
    /// The row that the query found.
    pub(crate) row: Option<Row>,
    /// PostgreSQL's error.
    pub(crate) error: Option<String>,
}

impl std::fmt::Debug for Lookup {
    /// Secrets don't belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lookup({:?})", self.client)
    }
}

/// A row of the query: name and secret. Each may be NULL.
type Row = (Option<String>, Option<String>);

/// Recent answers of auth_query: see the setting `auth_query_cache`.
#[derive(Debug)]
pub struct Known {
    /// Secrets by user and client's database, and until when each is valid.
    pub(crate) secrets: HashMap<Arc<LoginKey>, (Option<Secret>, Time), Seeded>,
}

impl Known {
    /// An empty cache.
    pub fn new(seeded: Seeded) -> Known {
        Known {
            secrets: HashMap::with_hasher(seeded),
        }
    }

    pub(crate) fn learn(
        &mut self,
        who: Arc<LoginKey>,
        secret: Option<Secret>,
        now: Time,
        until: Time,
    ) {
        if self.secrets.len() >= limits::KNOWN_USERS {
            self.secrets.retain(|_, (_, until)| *until > now);
        }
        if self.secrets.len() < limits::KNOWN_USERS {
            self.secrets.insert(who, (secret, until));
        }
    }

    pub(crate) fn find(&self, who: &LoginKey, now: Time) -> Option<LookedUp> {
        let (secret, until) = self.secrets.get(who)?;
        (*until > now).then(|| LookedUp::User(secret.clone()))
    }

    /// Forgets all answers: the query may have changed.
    pub fn clear(&mut self) {
        self.secrets.clear();
    }
}

/// The result of a look-up of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookedUp {
    /// There is no database to ask. The client goes through a login that can't succeed.
    Nobody,
    /// The user's secret; `None` if no password is right.
    User(Option<Secret>),
}

/// The two columns of a DataRow.
pub(crate) fn row(body: &[u8]) -> Option<Row> {
    let mut rest = body.strip_prefix(&[0, 2])?;
    let mut column = || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = i32::from_be_bytes(*length);
        rest = after;
        let Ok(length) = usize::try_from(length) else {
            return Some(None);
        };
        let (value, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(Some(String::from_utf8_lossy(value).into_owned()))
    };
    Some((column()?, column()?))
}
