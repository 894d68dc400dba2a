//! What servers log in with where a source gives it: a file, a command, a cloud. And what follows if
//! PostgreSQL refuses that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::auth::Secret;
use crate::config::{
    Config, Fetched, FetchedValue, SecretSource, ServerSecret, SslMode, aws_token,
};
use crate::event::{Action, Address, Out, Question, ServerId};
use crate::fault::Fault;
use crate::ids::Time;
use crate::pool::failure::SecretWait;
use crate::pool::key::{PoolId, Purpose};
use crate::pooler::Pooler;
use crate::server::ServerState;

/// How long the pool waits for a source's next value after a refusal, or for its first one. Control
/// answers sooner.
const PATIENCE_NS: u64 = 20_000_000_000;
/// A pool's next login after a refusal may be refused again for this long before clients get the error.
const ONCE_IN_NS: u64 = 5_000_000_000;

/// How long a standby may need to know a new user.
const NEW_NS: u64 = 60_000_000_000;

/// What a login uses.
pub(super) struct LoginSecret {
    /// The secret.
    pub secret: Option<Secret>,
    /// The user, if the source names one.
    pub user: Option<String>,
    /// The source, and which of its values this is.
    pub fetched: Option<(SecretSource, u64)>,
}

/// Why a server has no password.
pub(super) struct LackedSecret {
    /// The source and its error.
    pub why: String,
    /// What the pool waits for.
    pub wait: SecretWait,
}

impl LoginSecret {
    /// A secret without a source.
    pub(super) fn of(secret: Option<Secret>) -> LoginSecret {
        LoginSecret {
            secret,
            user: None,
            fetched: None,
        }
    }
}

impl Pooler {
    /// The source of the password with which servers of a pool log in, if they use one.
    pub(super) fn password_source(&self, id: PoolId) -> Option<&SecretSource> {
        let pool = self.pools.at(id);
        let login = self.logins.at(pool.login);
        let (database, user) = (&*login.terms.database, &*login.key.user);
        let own = matches!(pool.key.purpose, Purpose::Lookups | Purpose::Checks);
        let is_forced = database.forced_user.as_deref() == Some(user);
        let lends = !is_forced && (own || database.lends_secrets(user));
        let shown = match pool.key.purpose {
            Purpose::Clients | Purpose::Catalogue => &login.secrets,
            _ => &pool.secrets,
        };
        // Look-ups and checks log in as other users, too.
        match own && !is_forced {
            _ if lends && shown.found.is_some() => None,
            true => self.config.listed_source(&database.name, user),
            false => self.config.server_source(database, user),
        }
    }

    /// The SQLSTATE with which a server fails that has no password. Clients of a pool go on waiting, one
    /// with a server of its own does not, and a check tells nothing of its host.
    pub(super) fn lack_sqlstate(&self, id: ServerId) -> &'static str {
        let server = self.servers.at(id);
        match self.pools.at(server.pool).key.purpose {
            Purpose::Checks => "08001",
            _ if server.is_reserved() => "28P01",
            _ => "08006",
        }
    }

    /// Why a new server of a pool would have no password, if its source has no valid value.
    pub(super) fn lacks_secret(&self, id: PoolId) -> Option<LackedSecret> {
        let source = self.password_source(id)?;
        let known = self.config.fetched.get(source);
        if known.is_some_and(|known| known.valid(self.now.0).is_some()) {
            return None;
        }
        let why = known.map_or("it has not answered yet", |known| known.why_none());
        let answered = known.is_some_and(|known| known.has_answered());
        let generation = known.map_or(0, |known| known.generation);
        Some(LackedSecret {
            why: format!("{source}: {why}"),
            wait: match answered {
                true => SecretWait::Lacks(generation),
                false => SecretWait::Awaits(generation),
            },
        })
    }

    /// Marks a pool's failure as one that the next value of its source may end.
    pub(super) fn awaits_secret(&mut self, id: PoolId, wait: SecretWait, sqlstate: Option<&str>) {
        let until = Time(self.now.0 + PATIENCE_NS);
        self.pools.at_mut(id).awaits_secret(wait, until, sqlstate);
    }

    /// What a server of a client's pool logs in with.
    pub(super) fn login_secret(&self, id: ServerId) -> Result<LoginSecret, String> {
        let server = self.servers.at(id);
        let login = self.logins.at(server.login);
        let (database, pooled) = (&*login.terms.database, &*login.key.user);
        let Some(source) = self.password_source(server.pool) else {
            let second = self.pools.at(server.pool).takes_second_secret();
            if let Some(secret) = self.second_of(server.pool).filter(|_| second) {
                return Ok(LoginSecret::of(Some(secret.clone())));
            }
            return Ok(LoginSecret::of(
                match self.config.server_secret(database, pooled) {
                    ServerSecret::Written(secret) => secret,
                    ServerSecret::Fetched { .. } => None,
                },
            ));
        };
        let known = self.config.fetched.get(source);
        let lacks = || format!("{source}: the password has ended");
        let known = known.ok_or_else(lacks)?;
        let fetched = Some((source.clone(), known.generation));
        match (known.valid(self.now.0).ok_or_else(lacks)?, source) {
            (FetchedValue::Password { user, secret, .. }, _) => Ok(LoginSecret {
                secret: Some(secret.clone()),
                user: user.clone(),
                fetched,
            }),
            (
                FetchedValue::Aws {
                    credentials,
                    region,
                    zero,
                },
                SecretSource::AwsRds(signing),
            ) => {
                let (host, port) = match (&server.connection.host, server.connection.remote()) {
                    (Some(host), Some(Address::Tcp(_, port))) => (host.to_string(), *port),
                    (None, Some(Address::Tcp(ip, port))) => (ip.to_string(), *port),
                    _ => return Err("aws-rds needs a host that is reached by TCP".into()),
                };
                let user = database.server_user(pooled);
                let now = zero.saturating_add_unsigned(self.now.0 / 1_000_000_000);
                let (by, at) = ((credentials, region.as_deref()), (host.as_str(), port));
                let secret = aws_token(signing, by, at, user, now)?;
                Ok(LoginSecret {
                    secret: Some(secret),
                    user: None,
                    fetched,
                })
            }
            (FetchedValue::Aws { .. }, _) => Err(lacks()),
        }
    }

    /// True if a fetched password may go to a server in clear text: nobody else can read it there.
    pub(super) fn may_send_in_clear(&self, id: ServerId) -> bool {
        let server = self.servers.at(id);
        let database = &self.logins.at(server.login).terms.database;
        let mode = database.sslmode.unwrap_or(self.config.tls.servers);
        let verified = matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull);
        match server.connection.remote() {
            Some(Address::Tcp(ip, _)) => {
                ip.is_loopback() || verified && server.connection.tls.is_some()
            }
            Some(Address::Unix(..)) => true,
            None => false,
        }
    }

    /// A server has logged in: counts the login for its source.
    pub(super) fn secret_served(&self, fetched: Option<&(SecretSource, u64)>) {
        let known = fetched.and_then(|(source, _)| self.config.fetched.get(source));
        if let Some(known) = known {
            known.logins.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True if PostgreSQL refuses a user that a source has just had made: a standby may be behind, so the
    /// host counts as one that is not ready yet. Another user would be as new.
    pub(super) fn refuses_new_user(&self, id: ServerId, sqlstate: &str) -> bool {
        let server = self.servers.at(id);
        let fetched = match server.state() {
            ServerState::Login(login) => login.fetched.as_ref(),
            _ => None,
        };
        let known = fetched.and_then(|(source, generation)| {
            let known = self.config.fetched.get(source)?;
            (known.generation == *generation).then_some(known)
        });
        sqlstate == "28P01"
            && self.pools.at(server.pool).key.purpose != Purpose::Checks
            && known.is_some_and(|known| {
                known.vanishing_user().is_some() && self.now.0 < known.made + NEW_NS
            })
    }

    /// PostgreSQL refuses a login. True if another secret may do better: then the pool's clients go on
    /// waiting, and this refusal is dealt with.
    pub(super) fn tries_other_secret(
        &mut self,
        id: ServerId,
        (sqlstate, text): (&str, &str),
        out: &mut Out,
    ) -> bool {
        if !matches!(sqlstate, "28P01" | "28000") {
            return false;
        }
        let server = gone!(self.servers.get_mut(id));
        let (pool_id, reserved) = (server.pool, server.is_reserved());
        let login = server.login_mut();
        let (fetched, second) =
            login.map_or((None, false), |login| (login.fetched.take(), login.second));
        if let Some((source, generation)) = &fetched {
            let known = self.config.fetched.get(source);
            if known.is_some_and(|known| known.vanishing_user().is_some()) {
                // Each refusal that counts makes a user. So only a wrong password or user does, and no check.
                let is_check = self.pools.at(pool_id).key.purpose == Purpose::Checks;
                if sqlstate != "28P01" || is_check {
                    return false;
                }
            }
            let (source, generation) = (source.clone(), *generation);
            let question = Question::SecretRefused { source, generation };
            out.push(Action::Ask(question));
        }
        let has_other = fetched.is_none() && self.second_of(pool_id).is_some();
        let now = self.now;
        let key = &self.pools.at(pool_id).key;
        let comes_again = key.purpose == Purpose::Checks || key.listens();
        // A client with a server of its own waits for no other one; a check or a listener comes again.
        if fetched.is_none() && !has_other || reserved || comes_again {
            return false;
        }
        let pool = self.pools.at(pool_id);
        let waits_for = pool.failure.as_ref().and_then(|failure| failure.secret);
        // Another secret's turn may have come since this login began.
        let (newer, is_awaited) = match &fetched {
            Some((source, generation)) => {
                let known = self.config.fetched.get(source);
                let newer = known.is_some_and(|known| known.generation > *generation);
                let awaits = matches!(waits_for, Some(SecretWait::Awaits(of)) if of >= *generation);
                (newer, awaits)
            }
            None => (second != pool.takes_second_secret(), false),
        };
        if is_awaited || newer && waits_for.is_some() {
            return true;
        }
        let since = Time(now.0.saturating_sub(ONCE_IN_NS));
        let pool = self.pools.at_mut(pool_id);
        if !newer && !pool.turns_secret(now, since, has_other) {
            return false;
        }
        // An error for which clients wait; the true one replaces it below.
        self.pool_fails(id, "08006", text);
        match fetched {
            Some((_, generation)) => {
                let wait = match newer {
                    true => SecretWait::Lacks(generation),
                    false => SecretWait::Awaits(generation),
                };
                self.awaits_secret(pool_id, wait, Some(sqlstate));
            }
            None => self.awaits_secret(pool_id, SecretWait::Other, Some(sqlstate)),
        }
        true
    }

    /// The other password of the user whose listed password a pool's servers log in with.
    pub(super) fn second_of(&self, id: PoolId) -> Option<&Secret> {
        let login = self.logins.at(self.pools.at(id).login);
        let (database, pooled) = (&login.terms.database, &*login.key.user);
        let purpose = self.pools.at(id).key.purpose;
        if matches!(purpose, Purpose::Lookups | Purpose::Checks) {
            return None;
        }
        let written = database.server_password(pooled).is_some();
        let user = database.server_user(pooled);
        (!written).then(|| self.config.second_secret(&database.name, user))?
    }

    /// Sources have given new values, or have failed. Pools whose logins wait for that go on, or their
    /// clients get the error.
    pub(crate) fn new_secrets(&mut self, config: Arc<Config>, out: &mut Out) {
        self.config = config;
        self.renew_vanishing();
        for id in self.logins.ids() {
            let login = self.logins.at_mut(id);
            login.relist(&self.config);
        }
        for id in self.pools.ids() {
            let failure = self.pools.at(id).failure.as_ref();
            let waits = failure.and_then(|failure| Some((failure.secret?, failure.clone())));
            let Some((wait, failure)) = waits else {
                continue;
            };
            let (SecretWait::Awaits(then) | SecretWait::Lacks(then)) = wait else {
                continue;
            };
            let Some(known) = self.secret_known_of(id) else {
                continue;
            };
            let has_value = known.valid(self.now.0).is_some() && known.generation > then;
            let error = known.error.clone();
            if has_value {
                self.pools.at_mut(id).login_may_succeed();
                self.need_anew(id, out);
            } else if let (SecretWait::Awaits(_), Some(error)) = (wait, error) {
                self.awaited_in_vain(id, &failure.sqlstate, &error, out);
            }
        }
    }

    fn secret_known_of(&self, id: PoolId) -> Option<&Arc<crate::config::FetchedSecret>> {
        let fetched: &Fetched = &self.config.fetched;
        fetched.get(self.password_source(id)?)
    }

    /// The source has failed while a pool's clients waited for its value.
    fn awaited_in_vain(&mut self, id: PoolId, sqlstate: &str, error: &str, out: &mut Out) {
        let source = self.password_source(id).map(ToString::to_string);
        let text = format!(
            "no password for the server: {}: {error}",
            source.unwrap_or_default()
        );
        let now = self.now;
        self.pools.at_mut(id).secret_fails(&text, now);
        self.janitor.retry_at(self.now);
        if sqlstate != "08006" && !self.has_usable_server(id) {
            // PostgreSQL refuses the old value, and there is no other.
            let fault = Fault::ServerLogin(sqlstate.to_owned(), text);
            self.drop_waiters(id, &fault, out);
        } else {
            self.nobody_is_there(id);
        }
    }
}
