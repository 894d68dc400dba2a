//! Clients' tokens: their issuers' keys, and the check.

mod check;
mod json;
mod keys;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_pooler::auth::secret::SecretBytes;
use howdah_pooler::config::{Authority, Config, KeysAt, TokenRules};
use howdah_pooler::event::Verified;
use howdah_pooler::note::Level;
use tokio::sync::{Mutex as Turn, MutexGuard};

use crate::log::Log;
use crate::reload::now;

use check::{TokenRefusal, check};
use json::Json;
use keys::KeySet;

/// How old a set of keys may be: an older one serves only if a fetch has failed.
const FRESH: Duration = Duration::from_secs(15 * 60);
/// How old a set is when it is fetched anew while logins go on with it.
const AGEING: Duration = Duration::from_secs(10 * 60);
/// A file is looked at as often as this.
const FILE_FRESH: Duration = Duration::from_secs(2);
/// How long a set serves while fetches fail: a key that was withdrawn must not live for ever.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The same for a file, from the first failure on: it is beside Howdah, and should be there.
const FILE_LONGEST: Duration = Duration::from_secs(60);
/// A set is fetched because of unknown keys, or after a failure, at most once in this time.
const ONCE_IN: Duration = Duration::from_secs(60);
/// How long an old set serves after a failed fetch while the next one is under way.
const AFTER_FAILURE: Duration = Duration::from_secs(120);
/// The largest set of keys in a file, in bytes.
const LARGEST: u64 = 1 << 20;

/// The keys of all issuers.
pub struct TokenChecks {
    issuers: Mutex<HashMap<IssuerName, Arc<Issuer>>>,
    log: Log,
}

/// Where an issuer's keys are, and the issuer's name.
type IssuerName = (KeysAt, String);

/// An issuer's keys.
struct Issuer {
    known: Mutex<Known>,
    /// Whoever has it fetches the keys; others wait for that.
    turn: Turn<()>,
    log: Log,
}

#[derive(Default)]
struct Known {
    keys: Option<Arc<KeySet>>,
    /// When the keys came.
    at: Option<Instant>,
    /// When they were last asked for, or the last answer came.
    asked: Option<Instant>,
    /// Why the last fetch failed.
    error: Option<String>,
    /// Fetches in a row that failed.
    failures: u32,
    /// When the first of them failed.
    failing: Option<Instant>,
}

impl TokenChecks {
    /// No issuer is known yet.
    pub fn new(log: &Log) -> TokenChecks {
        TokenChecks {
            issuers: Mutex::default(),
            log: log.clone(),
        }
    }

    /// Forgets issuers that the configuration no longer names.
    pub fn keep(&self, config: &Config) {
        let named: HashSet<IssuerName> = config
            .authorities()
            .filter_map(|authority| match authority {
                Authority::Token(rules) => Some(name(rules)),
                _ => None,
            })
            .collect();
        let mut issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        issuers.retain(|name, _| named.contains(name));
    }

    /// Checks a token by rules, for a login to a database. `trust` is the file of authorities for https;
    /// empty: the system's.
    ///
    /// # Errors
    /// Why it is refused, for the log.
    pub async fn check(
        &self,
        rules: &TokenRules,
        token: &str,
        database: &str,
        trust: &str,
    ) -> Result<Verified, String> {
        let issuer = self.issuer(rules);
        let keys = issuer.keys(rules, trust, None).await?;
        let refusal = match check(token, rules, &keys, database, now()) {
            Ok(verified) => return Ok(verified),
            Err(TokenRefusal::Wrong(why)) => return Err(format!("token refused: {why}")),
            Err(TokenRefusal::UnknownKey) => "token refused: no key of the issuer fits it",
        };
        // The issuer may have a new key.
        let keys = issuer.keys(rules, trust, Some(&keys)).await?;
        match check(token, rules, &keys, database, now()) {
            Ok(verified) => Ok(verified),
            Err(TokenRefusal::Wrong(why)) => Err(format!("token refused: {why}")),
            Err(TokenRefusal::UnknownKey) => Err(refusal.into()),
        }
    }

    /// How old the oldest keys are that tokens are checked with; `None`: there are none. Old keys that
    /// nobody needs count only if fetching newer ones has failed.
    pub fn keys_age(&self) -> Option<Duration> {
        let issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        let ages = issuers.values().filter_map(|issuer| {
            let known = issuer.known();
            let age = known.at?.elapsed();
            let counts = age < FRESH || age < LONGEST && known.error.is_some();
            counts.then_some(age)
        });
        ages.max()
    }

    fn issuer(&self, rules: &TokenRules) -> Arc<Issuer> {
        let mut issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        let issuer = issuers.entry(name(rules)).or_insert_with(|| {
            Arc::new(Issuer {
                known: Mutex::default(),
                turn: Turn::default(),
                log: self.log.clone(),
            })
        });
        issuer.clone()
    }
}

fn name(rules: &TokenRules) -> IssuerName {
    (rules.keys.clone(), rules.issuer.clone())
}

impl Issuer {
    /// The keys; `unfit` is a set in which a key was missing.
    async fn keys(
        self: &Arc<Self>,
        rules: &TokenRules,
        trust: &str,
        unfit: Option<&Arc<KeySet>>,
    ) -> Result<Arc<KeySet>, String> {
        let is_file = matches!(rules.keys, KeysAt::File(_));
        let fresh = if is_file { FILE_FRESH } else { FRESH };
        let at_hand = self.usable(fresh, unfit);
        let at_hand = at_hand.or_else(|| self.old().filter(|_| unfit.is_none() && !is_file));
        if let Some(keys) = at_hand {
            if !is_file && self.usable(AGEING, None).is_none() {
                let (issuer, rules, trust) = (self.clone(), rules.clone(), trust.to_owned());
                tokio::spawn(async move {
                    if let Ok(turn) = issuer.turn.try_lock() {
                        issuer.renew(turn, &rules, &trust, AGEING, None).await;
                    }
                });
            }
            return Ok(keys);
        }
        let turn = match unfit {
            None => self.turn.lock().await,
            // Anybody can invent the name of a key: no line forms for the sake of such names.
            Some(unfit) => match self.turn.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(unfit.clone()),
            },
        };
        self.renew(turn, rules, trust, fresh, unfit).await;
        let known = self.known();
        match (&known.keys, &known.error) {
            (Some(keys), _) if known.serve(is_file) => Ok(keys.clone()),
            (_, Some(why)) => Err(format!("no keys of the issuer: {why}")),
            (_, None) => Err("no keys of the issuer".into()),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys, if they are not older, and not those that were `unfit`.
    fn usable(&self, oldest: Duration, unfit: Option<&Arc<KeySet>>) -> Option<Arc<KeySet>> {
        let known = self.known();
        let keys = known.keys.as_ref()?;
        let fits = unfit.is_none_or(|unfit| !Arc::ptr_eq(unfit, keys));
        (fits && known.at?.elapsed() < oldest).then(|| keys.clone())
    }

    /// The last keys, if a fetch of newer ones has just failed.
    fn old(&self) -> Option<Arc<KeySet>> {
        let known = self.known();
        let lately = known.asked.is_some_and(|at| at.elapsed() < AFTER_FAILURE);
        let serves = known.error.is_some() && lately && known.at?.elapsed() < LONGEST;
        known.keys.clone().filter(|_| serves)
    }

    /// Fetches the keys, unless somebody has just done so, or tried.
    async fn renew(
        &self,
        _turn: MutexGuard<'_, ()>,
        rules: &TokenRules,
        trust: &str,
        fresh: Duration,
        unfit: Option<&Arc<KeySet>>,
    ) {
        if self.usable(fresh, unfit).is_some() || self.known().pauses(rules) {
            return;
        }
        self.known().asked = Some(Instant::now());
        let fetched = fetch(rules, trust).await;
        let mut known = self.known();
        known.asked = Some(Instant::now());
        match fetched {
            Ok(keys) => {
                self.say_fetched(&known, &keys, rules);
                known.keys = Some(Arc::new(keys));
                known.at = known.asked;
                known.error = None;
                known.failures = 0;
                known.failing = None;
            }
            Err(why) => {
                if known.failures == 0 {
                    let name = rules.token_issuer();
                    let text = format!("no new keys of the token issuer {name}: {why}");
                    self.log.say(Level::Warning, text);
                }
                known.error = Some(why);
                known.failures = known.failures.saturating_add(1);
                known.failing = known.failing.or(known.asked);
            }
        }
    }

    /// Logs that fetching works again, or that an issuer has withdrawn all keys.
    fn say_fetched(&self, before: &Known, keys: &KeySet, rules: &TokenRules) {
        let name = rules.token_issuer();
        if before.failures > 0 {
            let text = format!("the keys of the token issuer {name} are here again");
            self.log.say(Level::Log, text);
        }
        let was_empty = before.keys.as_ref().is_some_and(|keys| keys.is_empty());
        if keys.is_empty() && !was_empty {
            let text = format!(
                "the token issuer {name} has no key that verifies tokens: all its tokens are refused"
            );
            self.log.say(Level::Warning, text);
        }
    }
}

impl Known {
    /// True if the keys may serve although they are not fresh.
    fn serve(&self, is_file: bool) -> bool {
        let late = |since: Instant| is_file && since.elapsed() >= FILE_LONGEST;
        self.at.is_some_and(|at| at.elapsed() < LONGEST) && !self.failing.is_some_and(late)
    }

    /// True if it is too early for another fetch. Without any keys, the pause doubles from 1 second on.
    fn pauses(&self, rules: &TokenRules) -> bool {
        let pause = match rules.keys {
            KeysAt::File(_) => FILE_FRESH,
            _ if self.keys.is_some() => ONCE_IN,
            _ => Duration::from_secs(1 << self.failures.saturating_sub(1).min(6)).min(ONCE_IN),
        };
        self.asked.is_some_and(|at| at.elapsed() < pause)
    }
}

async fn fetch(rules: &TokenRules, trust: &str) -> Result<KeySet, String> {
    match &rules.keys {
        KeysAt::File(path) => {
            let file = path.clone();
            let read = tokio::task::spawn_blocking(move || read_file(&file));
            let text = read.await.map_err(|why| why.to_string())?;
            let named = |why: String| format!("{path}: {why}");
            let text = text.map_err(|why| named(why.into()))?;
            KeySet::read(&text).map_err(named)
        }
        KeysAt::Url(address) => fetch_set(address, trust).await,
        KeysAt::Discovery => {
            let address = rules.discovery();
            let text = get(&address, trust).await?;
            let named = |why| format!("{address}: {why}");
            let about = Json::object(&text).map_err(named)?;
            if about.get("issuer").and_then(Json::text) != Some(rules.token_issuer()) {
                return Err(named("it describes another issuer"));
            }
            let keys = about.get("jwks_uri").and_then(Json::text);
            let keys = keys.ok_or_else(|| named("it has no jwks_uri"))?;
            if !howdah_pooler::config::is_fetchable(keys) {
                return Err(named("its jwks_uri is no https address"));
            }
            fetch_set(keys, trust).await
        }
    }
}

fn read_file(path: &str) -> Result<Vec<u8>, &'static str> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|_| "can't be read")?;
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|_| "can't be read")?;
    match bytes.len() as u64 > LARGEST {
        true => Err("is larger than 1 MB"),
        false => Ok(bytes),
    }
}

async fn fetch_set(address: &str, trust: &str) -> Result<KeySet, String> {
    let text = get(address, trust).await?;
    KeySet::read(&text).map_err(|why| format!("{address}: {why}"))
}

#[cfg(feature = "cloud")]
async fn get(address: &str, trust: &str) -> Result<SecretBytes, String> {
    let request = crate::https::HttpsRequest::get(address);
    crate::https::fetch(request, trust).await
}

#[cfg(not(feature = "cloud"))]
async fn get(address: &str, _: &str) -> Result<SecretBytes, String> {
    Err(format!(
        "{address}: this build fetches nothing: build with the Cargo feature cloud"
    ))
}
