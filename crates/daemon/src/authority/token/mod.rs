//! Clients' tokens: their issuers' keys, and the check.

mod check;
mod json;
mod keys;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_pooler::config::{KeysAt, TokenRules};
use howdah_pooler::event::Verified;
use tokio::sync::Mutex as Turn;

use crate::reload::now;

use check::{TokenRefusal, check};
use json::Json;
use keys::KeySet;

/// How old a set of keys may be before it is fetched anew.
const FRESH: Duration = Duration::from_secs(15 * 60);
/// A file is looked at as often as this.
const FILE_FRESH: Duration = Duration::from_secs(2);
/// How long a set serves while fetches fail: a key that was withdrawn must not live for ever.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// A set is fetched because of unknown keys, or after a failure, at most once in this time.
const ONCE_IN: Duration = Duration::from_secs(60);
/// The same, while there are no keys at all.
const WITHOUT_KEYS: Duration = Duration::from_secs(1);
/// The largest set of keys in a file, in bytes.
const LARGEST: u64 = 1 << 20;

/// The keys of all issuers.
#[derive(Default)]
pub struct TokenChecks {
    issuers: Mutex<HashMap<(KeysAt, String), Arc<Issuer>>>,
}

/// An issuer's keys.
#[derive(Default)]
struct Issuer {
    known: Mutex<Known>,
    /// Whoever has it fetches the keys; others wait for that.
    turn: Turn<()>,
}

#[derive(Default)]
struct Known {
    keys: Option<Arc<KeySet>>,
    /// When the keys came.
    at: Option<Instant>,
    /// When they were last asked for.
    asked: Option<Instant>,
    /// Why the last fetch failed.
    error: Option<String>,
}

impl TokenChecks {
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

    fn issuer(&self, rules: &TokenRules) -> Arc<Issuer> {
        let mut issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (rules.keys.clone(), rules.issuer.clone());
        issuers.entry(name).or_default().clone()
    }
}

impl Issuer {
    /// The keys; `unfit` is a set in which a key was missing.
    async fn keys(
        self: &Arc<Self>,
        rules: &TokenRules,
        trust: &str,
        unfit: Option<&Arc<KeySet>>,
    ) -> Result<Arc<KeySet>, String> {
        let fresh = match rules.keys {
            KeysAt::File(_) => FILE_FRESH,
            _ => FRESH,
        };
        if let Some(keys) = self.usable(fresh, unfit) {
            return Ok(keys);
        }
        if unfit.is_none()
            && let Some(keys) = self.usable(LONGEST, None)
        {
            // Nobody waits for newer keys.
            let (issuer, rules, trust) = (self.clone(), rules.clone(), trust.to_owned());
            tokio::spawn(async move { issuer.renew(&rules, &trust, fresh, None).await });
            return Ok(keys);
        }
        self.renew(rules, trust, fresh, unfit).await;
        let known = self.known();
        let aged = known.at.is_some_and(|at| at.elapsed() < LONGEST);
        match (&known.keys, &known.error) {
            (Some(keys), _) if aged => Ok(keys.clone()),
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

    /// Fetches the keys, unless somebody has just done so, or tried.
    async fn renew(
        &self,
        rules: &TokenRules,
        trust: &str,
        fresh: Duration,
        unfit: Option<&Arc<KeySet>>,
    ) {
        let _turn = self.turn.lock().await;
        let pause = match rules.keys {
            _ if self.known().keys.is_none() => WITHOUT_KEYS,
            KeysAt::File(_) => FILE_FRESH,
            _ => ONCE_IN,
        };
        let lately = self.known().asked.is_some_and(|at| at.elapsed() < pause);
        if self.usable(fresh, unfit).is_some() || lately {
            return;
        }
        self.known().asked = Some(Instant::now());
        let fetched = fetch(rules, trust).await;
        let mut known = self.known();
        match fetched {
            Ok(keys) => {
                known.keys = Some(Arc::new(keys));
                known.at = Some(Instant::now());
                known.error = None;
            }
            Err(why) => known.error = Some(why),
        }
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
            if about.get("issuer").and_then(Json::text) != Some(&rules.issuer) {
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
async fn get(address: &str, trust: &str) -> Result<Vec<u8>, String> {
    let request = crate::https::HttpsRequest::get(address);
    crate::https::fetch(request, trust).await
}

#[cfg(not(feature = "cloud"))]
async fn get(address: &str, _: &str) -> Result<Vec<u8>, String> {
    Err(format!(
        "{address}: this build fetches nothing: build with the Cargo feature cloud"
    ))
}
