//! What the sources of secrets have given.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use howdah_auth::Secret;
use howdah_auth::aws::{AwsCredentials, AwsLogin, region_of};

use super::{AwsSigning, Config, Database, SecretSource};

/// What all sources have given, by source. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Fetched(Arc<BTreeMap<SecretSource, Arc<FetchedSecret>>>);

/// What is known of one source.
#[derive(Clone, Debug, Default)]
pub struct FetchedSecret {
    /// How often the source has given a value. Servers are told apart by it.
    pub generation: u64,
    /// The last value.
    pub value: Option<FetchedValue>,
    /// When it came, in nanoseconds of the process's clock.
    pub at: u64,
    /// When it came for the first time, before it was prolonged.
    pub made: u64,
    /// When it ends, in nanoseconds of the process's clock; `None`: never.
    pub until: Option<u64>,
    /// The user before, if PostgreSQL knows that user no more: its servers must end.
    pub gone: Option<String>,
    /// Why the last call failed, if it did.
    pub error: Option<String>,
    /// How many calls gave a value, and how many failed. Those that bring no news count, too.
    pub calls: Arc<[AtomicU64; 2]>,
    /// How often servers have logged in with it.
    pub logins: Arc<AtomicU64>,
}

impl FetchedSecret {
    /// The value, if it has not ended at a time in nanoseconds.
    pub fn valid(&self, now: u64) -> Option<&FetchedValue> {
        let ended = self.until.is_some_and(|until| until <= now);
        self.value.as_ref().filter(|_| !ended)
    }

    /// The user that the source has given, if that user vanishes when the value ends.
    pub fn vanishing_user(&self) -> Option<&String> {
        match &self.value {
            Some(FetchedValue::Password {
                user,
                vanishes: true,
                ..
            }) => user.as_ref(),
            _ => None,
        }
    }

    /// Why there is no valid value.
    pub fn why_none(&self) -> &str {
        let ended = match self.value {
            Some(_) => "the password has ended",
            None => "it has not answered yet",
        };
        self.error.as_deref().unwrap_or(ended)
    }

    /// True if the source has answered, be it with a failure.
    pub fn has_answered(&self) -> bool {
        self.value.is_some() || self.error.is_some()
    }
}

/// A value. Its secrets are overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub enum FetchedValue {
    /// A password, perhaps with the user that it belongs to.
    Password {
        /// The user; `None`: the one that the configuration names.
        user: Option<String>,
        /// The password.
        secret: Secret,
        /// The user vanishes when the value ends: its servers must end before.
        vanishes: bool,
    },
    /// Credentials that sign a password for each login.
    Aws {
        /// The credentials.
        credentials: AwsCredentials,
        /// The region of the environment.
        region: Option<String>,
        /// The seconds since 1970 at the zero of the process's clock, by the machine's clock when the
        /// credentials came.
        zero: i64,
    },
}

impl FetchedValue {
    /// A password of the user that the configuration names.
    pub fn password(secret: Secret) -> FetchedValue {
        FetchedValue::Password {
            user: None,
            secret,
            vanishes: false,
        }
    }
}

/// Prints nothing of it.
impl fmt::Debug for FetchedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FetchedValue(..)")
    }
}

/// What metrics tell of all sources.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SecretsTold {
    /// Calls that gave a value, and calls that failed.
    pub calls: [u64; 2],
    /// When the first value ends, in seconds.
    pub expires_in: Option<f64>,
    /// The least part of its life that a value has left.
    pub life_left: Option<f64>,
}

/// What a server logs in with.
#[derive(Debug)]
pub enum ServerSecret<'a> {
    /// The secret in the configuration, if there is one.
    Written(Option<Secret>),
    /// What a source has given.
    Fetched {
        /// The source.
        source: &'a SecretSource,
        /// What is known of it; `None`: it has not been asked yet.
        known: Option<&'a Arc<FetchedSecret>>,
    },
}

impl Fetched {
    /// What is known of a source.
    pub fn get(&self, source: &SecretSource) -> Option<&Arc<FetchedSecret>> {
        match source {
            SecretSource::AwsRds(_) => self.0.get(&source.fetched()),
            source => self.0.get(source),
        }
    }

    /// All sources, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&SecretSource, &Arc<FetchedSecret>)> {
        self.0.iter()
    }

    /// What metrics tell, at a time in nanoseconds.
    pub fn told(&self, now: u64) -> SecretsTold {
        let mut told = SecretsTold::default();
        for known in self.0.values() {
            for (sum, count) in told.calls.iter_mut().zip(known.calls.iter()) {
                *sum += count.load(Ordering::Relaxed);
            }
            if let Some(until) = known.until {
                let left = until.saturating_sub(now) as f64;
                let life = until.saturating_sub(known.at).max(1) as f64;
                let least = |sum: &mut Option<f64>, new: f64| {
                    *sum = Some(sum.map_or(new, |old| old.min(new)));
                };
                least(&mut told.expires_in, left / 1e9);
                least(&mut told.life_left, left / life);
            }
        }
        told
    }

    /// Replaces what is known.
    pub fn of(all: BTreeMap<SecretSource, Arc<FetchedSecret>>) -> Fetched {
        Fetched(Arc::new(all))
    }
}

/// The password of AWS's IAM for a login.
///
/// # Errors
/// Why it can't be signed.
pub fn aws_token(
    signing: &AwsSigning,
    (credentials, region): (&AwsCredentials, Option<&str>),
    (host, port): (&str, u16),
    user: &str,
    now: i64,
) -> Result<Secret, &'static str> {
    let host = signing.sign_host.as_deref().unwrap_or(host);
    let region = signing
        .region
        .as_deref()
        .or_else(|| region_of(host))
        .or(region);
    let region = region.ok_or("aws-rds: the region is not known: write region = \"...\"")?;
    let login = AwsLogin {
        host,
        port,
        user,
        region,
    };
    Ok(Secret::Plain(credentials.token(login, now)))
}

impl Config {
    /// What the servers of a user's pool log in with, if the configuration says so.
    pub fn server_secret<'a>(&'a self, database: &'a Database, pooled: &str) -> ServerSecret<'a> {
        if let Some(source) = self.server_source(database, pooled) {
            let known = self.fetched.get(source);
            return ServerSecret::Fetched { source, known };
        }
        let own = database.server_password(pooled);
        let own = own.map(|password| Secret::classify(password.to_string()));
        ServerSecret::Written(own.or_else(|| {
            let user = database.server_user(pooled);
            self.listed(&database.name, user).flatten().cloned()
        }))
    }

    /// Where the password comes from with which the servers of a pool log in, if it is fetched: that of
    /// the database's entry, else that of the user.
    pub fn server_source<'a>(
        &'a self,
        database: &'a Database,
        pooled: &str,
    ) -> Option<&'a SecretSource> {
        if !self.has_sources {
            return None;
        }
        match database.server_password(pooled) {
            Some(password) => password.source(),
            None => self.listed_source(&database.name, database.server_user(pooled)),
        }
    }

    /// Where the password of [`Config::listed`] comes from, if it is fetched.
    pub fn listed_source(&self, database: &str, user: &str) -> Option<&SecretSource> {
        if !self.has_sources {
            return None;
        }
        let member = self.entry(database).and_then(|entry| entry.member(user));
        let mut members = member
            .into_iter()
            .chain(self.users.get(user).map(|user| &**user));
        let password = members.find(|user| user.listed)?.password.as_ref()?;
        password.source()
    }

    /// The source of a user's password, if it has no valid value at a time in nanoseconds; and why.
    pub fn lacks_listed(&self, database: &str, user: &str, now: u64) -> Option<String> {
        let source = self.listed_source(database, user)?;
        let known = self.fetched.get(source);
        if known.is_some_and(|known| known.valid(now).is_some()) {
            return None;
        }
        let why = known.map_or("it has not answered yet", |known| known.why_none());
        Some(format!("{source}: {why}"))
    }

    /// True if users' passwords have sources that have not answered yet.
    pub fn users_await_passwords(&self) -> bool {
        let members = self.databases.values().chain(&self.fallback);
        let members = members.flat_map(|database| database.users.values());
        let mut sources = self.users.values().chain(members).filter_map(|user| {
            let password = user.password.as_ref().filter(|_| user.listed);
            password?.source()
        });
        sources.any(|source| {
            !self
                .fetched
                .get(source)
                .is_some_and(|known| known.has_answered())
        })
    }

    /// The other password of a user with two.
    pub fn second_secret(&self, database: &str, user: &str) -> Option<&Secret> {
        if !self.has_second_passwords {
            return None;
        }
        let member = self.entry(database).and_then(|entry| entry.member(user));
        let mut members = member
            .into_iter()
            .chain(self.users.get(user).map(|user| &**user));
        members.find(|user| user.listed)?.second.as_ref()
    }

    /// Notes what logins have to look for.
    pub(super) fn note_secrets(&mut self) {
        let is_sourced = |password: &Option<super::SecretText>| {
            let source = password.as_ref().and_then(|password| password.source());
            source.is_some()
        };
        let (mut sources, mut seconds, mut scram) = (false, false, false);
        for database in self.databases.values().chain(&self.fallback) {
            sources |= is_sourced(&database.server_password);
        }
        let members = self.databases.values().chain(&self.fallback);
        let members = members.flat_map(|database| database.users.values());
        for user in self.users.values().chain(members) {
            sources |= is_sourced(&user.password) || is_sourced(&user.server_password);
            seconds |= user.second.is_some();
            scram |= user.listed && matches!(user.secret, Some(Secret::Scram(_)));
        }
        (self.has_sources, self.has_second_passwords) = (sources, seconds);
        self.has_scram_secrets = scram;
    }

    /// The sources that somebody uses, each with who uses it and, for a file, its text.
    pub fn secret_sources(&self) -> BTreeMap<SecretSource, SourceUse> {
        let mut all: BTreeMap<SecretSource, SourceUse> = BTreeMap::new();
        let mut uses = |password: Option<&super::SecretText>, who: String| {
            if let Some(password) = password
                && let Some(source) = password.source()
            {
                let text = matches!(source, SecretSource::File(_));
                let entry = all.entry(source.fetched()).or_insert_with(|| SourceUse {
                    text: text.then(|| Secret::classify(password.to_string())),
                    users: Vec::new(),
                });
                entry.users.push(who);
            }
        };
        for database in self.databases.values().chain(&self.fallback) {
            let name = &database.name;
            uses(
                database.server_password.as_ref(),
                format!("database {name}"),
            );
            for (user, member) in &database.users {
                let who = format!("database {name}, user {user}");
                uses(member.server_password.as_ref(), who.clone());
                uses(member.password.as_ref(), who);
            }
        }
        let mut users: Vec<_> = self.users.iter().collect();
        users.sort_unstable_by_key(|(name, _)| *name);
        for (name, user) in users {
            uses(user.password.as_ref(), format!("user {name}"));
        }
        all
    }

    /// Takes over what the sources have given, users' passwords included.
    pub fn take_fetched(&mut self, fetched: &Fetched) {
        self.fetched = fetched.clone();
        let of_user = |user: &mut Arc<super::User>| {
            let source = user
                .password
                .as_ref()
                .and_then(|password| password.source());
            let known = source.and_then(|source| fetched.get(source));
            if let Some(FetchedValue::Password { secret, .. }) =
                known.and_then(|known| known.value.as_ref())
                && user.secret.as_ref() != Some(secret)
            {
                Arc::make_mut(user).secret = Some(secret.clone());
            }
        };
        self.users.values_mut().for_each(of_user);
        for database in self.databases.values_mut().chain(&mut self.fallback) {
            let is_sourced = |user: &Arc<super::User>| {
                user.password
                    .as_ref()
                    .is_some_and(|of| of.source().is_some())
            };
            if database.users.values().any(is_sourced) {
                Arc::make_mut(database).users.values_mut().for_each(of_user);
            }
        }
    }
}

/// Who uses a source.
#[derive(Debug)]
pub struct SourceUse {
    /// The text of a file when the configuration was read.
    pub text: Option<Secret>,
    /// The entries that use it.
    pub users: Vec<String>,
}

impl Database {
    /// Where the password comes from with which the servers of a pool log in, if it is fetched.
    pub fn password_source(&self, pooled: &str) -> Option<&SecretSource> {
        self.server_password(pooled)?.source()
    }
}
