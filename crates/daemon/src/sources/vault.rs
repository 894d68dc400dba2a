//! Passwords of Vault and OpenBao: users that are made for Howdah (`database/creds/ROLE`), and passwords that
//! rotate (`database/static-creds/ROLE`).
//!
//! A lease ends with the token that made it, so both are renewed. When one of them comes near its maximum,
//! there is a new login, and a new user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_pooler::auth::Secret;
use howdah_pooler::config::{FetchedValue, VaultAccess, VaultLogin};
use howdah_pooler::sources::{Lifetime, SourceAnswer};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::Outside;
use super::aws_endpoints::read;
use crate::https::{HttpsAnswer, HttpsRequest, ask};

/// A static role is read this long after its rotation.
const BEHIND_ROTATION: Duration = Duration::from_secs(1);
/// Where a token is looked up.
const LOOKUP: &str = "auth/token/lookup-self";
/// No life counts as longer: ten years, in seconds.
const LONGEST_LIFE: u64 = 10 * 366 * 86_400;
/// How much of Vault's own error the log shows, in characters.
const SHOWN: usize = 200;

/// What is known of Vault: a token, and the leases of users.
#[derive(Default)]
pub struct Vault {
    session: tokio::sync::Mutex<Option<Session>>,
    leases: Mutex<HashMap<String, Lease>>,
}

/// A login.
#[derive(Clone)]
struct Session {
    /// Tells sessions apart.
    number: u64,
    access: VaultAccess,
    token: Arc<Secret>,
    /// How long the token lives and until when; `None`: it has no end.
    life: Option<(Duration, Instant)>,
    renewable: bool,
}

/// A user that Vault has made.
#[derive(Clone)]
struct Lease {
    /// The session that made it.
    session: u64,
    id: String,
    life: Duration,
    renewable: bool,
    user: String,
    secret: Secret,
}

/// Why Vault gives nothing.
enum Denied {
    /// 403: the token is not good any more, or its policy does not allow this.
    Forbidden(String),
    /// 400 and 404: there is no such thing, or not any more.
    Gone(String),
    /// Vault can't be asked at present.
    Other(String),
}

impl Denied {
    fn text(self) -> String {
        match self {
            Denied::Forbidden(text) | Denied::Gone(text) | Denied::Other(text) => text,
        }
    }

    /// True if what was to be renewed is lost.
    fn is_final(&self) -> bool {
        !matches!(self, Denied::Other(_))
    }
}

impl Session {
    /// How long the token is still good; `None`: for ever.
    fn left(&self) -> Option<Duration> {
        let (_, ends) = self.life?;
        Some(ends.saturating_duration_since(Instant::now()))
    }

    /// True if the token has so many tenths of its life before it.
    fn has_left(&self, tenths: u32) -> bool {
        let life = self.life.map_or(Duration::ZERO, |(life, _)| life);
        self.left().is_none_or(|left| left * 10 > life * tenths)
    }

    /// Sends a request with the token.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        trust: &str,
    ) -> Result<Value, Denied> {
        call(
            &self.access,
            Some(self.token.text()),
            (method, path),
            body,
            trust,
        )
        .await
    }
}

impl Vault {
    /// The user and password at a path. `is_refused`: PostgreSQL has refused the last ones.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn ask(
        &self,
        path: &str,
        is_refused: bool,
        outside: &Outside,
    ) -> Result<SourceAnswer, String> {
        let (access, trust) = (outside.vault.as_ref(), outside.trust.as_str());
        let access = access.ok_or("vault_address is not set, or there is no login")?;
        let session = self.session(access, trust).await?;
        match self.read(&session, path, is_refused, trust).await {
            Err(Denied::Forbidden(why)) => {
                let known = session.call(Method::GET, LOOKUP, None, trust).await;
                match known {
                    Ok(_) => {
                        return Err(format!("{why}; the policy of the token does not allow it"));
                    }
                    Err(Denied::Forbidden(_)) => {}
                    Err(other) => return Err(other.text()),
                }
                // The token has been revoked.
                self.forget(session.number).await;
                let session = self.session(access, trust).await?;
                let again = self.read(&session, path, true, trust).await;
                again.map_err(Denied::text)
            }
            answer => answer.map_err(Denied::text),
        }
    }

    async fn read(
        &self,
        session: &Session,
        path: &str,
        is_refused: bool,
        trust: &str,
    ) -> Result<SourceAnswer, Denied> {
        let is_static = path.rsplit('/').nth(1) == Some("static-creds");
        if is_static {
            let answer = session.call(Method::GET, path, None, trust).await?;
            return rotating(&answer).map_err(Denied::Other);
        }
        let leases = || self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        // It stays there until there is another one: Vault may be away for a moment.
        let before = leases()
            .get(path)
            .filter(|lease| !is_refused && lease.renewable && lease.session == session.number)
            .cloned();
        let mut renewed = None;
        if let Some(lease) = before {
            let wish = json!({"lease_id": lease.id, "increment": lease.life.as_secs()});
            let answer = session
                .call(Method::PUT, "sys/leases/renew", Some(wish), trust)
                .await;
            let life = match answer {
                Ok(answer) => seconds(&answer, "lease_duration"),
                Err(why) if why.is_final() => None,
                Err(why) => return Err(why),
            };
            // Near its maximum a lease is not renewed by much: the next user comes now.
            renewed = life
                .filter(|life| *life * 2 > lease.life)
                .map(|life| (lease, life));
        }
        let (lease, life) = match renewed {
            Some(renewed) => renewed,
            None => {
                let answer = session.call(Method::GET, path, None, trust).await?;
                let lease = Lease::read(&answer, session.number).map_err(Denied::Other)?;
                let life = lease.life;
                (lease, life)
            }
        };
        let value = FetchedValue::Password {
            user: Some(lease.user.clone()),
            secret: lease.secret.clone(),
            vanishes: true,
        };
        leases().insert(path.to_owned(), lease);
        let life = session.left().map_or(life, |left| left.min(life));
        Ok(SourceAnswer::Value(
            value,
            Lifetime {
                ends: Some(nanos(life)),
                again: None,
            },
        ))
    }

    /// A session whose token is not near its end.
    async fn session(&self, access: &VaultAccess, trust: &str) -> Result<Session, String> {
        let mut kept = self.session.lock().await;
        if let Some(session) = kept.as_mut().filter(|session| session.access == *access) {
            if session.has_left(7) || !session.renewable && session.has_left(2) {
                return Ok(session.clone());
            }
            if session.renewable {
                let path = "auth/token/renew-self";
                let answer = session
                    .call(Method::POST, path, Some(json!({})), trust)
                    .await;
                let life = match answer {
                    Ok(answer) => seconds(&answer["auth"], "lease_duration"),
                    Err(why) if why.is_final() || !session.has_left(0) => None,
                    Err(why) => return Err(why.text()),
                };
                if let Some((life, (whole, ends))) = life.zip(session.life.as_mut())
                    && life * 2 > *whole
                {
                    *ends = Instant::now() + life;
                    return Ok(session.clone());
                }
            }
        }
        let number = kept.as_ref().map_or(0, |session| session.number) + 1;
        let mut session = log_in(access, number, trust).await?;
        if let Some(before) = kept.as_ref()
            && before.access == *access
            && before.token.text() == session.token.text()
        {
            // The file has the same token: its leases go on.
            session.number = before.number;
        }
        *kept = Some(session.clone());
        Ok(session)
    }

    /// The token of a session is not good any more.
    async fn forget(&self, number: u64) {
        let mut kept = self.session.lock().await;
        if let Some(session) = kept.as_mut().filter(|session| session.number == number) {
            // The next login has another number.
            session.life = Some((Duration::ZERO, Instant::now()));
            session.renewable = false;
        }
    }
}

/// Logs in.
async fn log_in(access: &VaultAccess, number: u64, trust: &str) -> Result<Session, String> {
    let (mount, body) = match &access.login {
        VaultLogin::Token { file } => {
            let token = Arc::new(Secret::Plain(read(file).await?));
            let mut session = Session {
                number,
                access: access.clone(),
                token,
                life: None,
                renewable: false,
            };
            let known = session
                .call(Method::GET, LOOKUP, None, trust)
                .await
                .map_err(Denied::text)?;
            let life = token_life(&known["data"])?;
            session.life = life.map(|life| (life, Instant::now() + life));
            session.renewable = known["data"]["renewable"].as_bool() == Some(true);
            return Ok(session);
        }
        VaultLogin::AppRole {
            mount,
            role_id,
            secret_id_file,
        } => {
            let secret = read(secret_id_file).await?;
            (mount, json!({"role_id": role_id, "secret_id": secret}))
        }
        VaultLogin::Kubernetes {
            mount,
            role,
            token_file,
        } => {
            let token = read(token_file).await?;
            (mount, json!({"role": role, "jwt": token}))
        }
    };
    let path = format!("auth/{mount}/login");
    let answer = call(access, None, (Method::POST, &path), Some(body), trust).await;
    let auth = &answer.map_err(Denied::text)?["auth"];
    let token = auth["client_token"]
        .as_str()
        .filter(|token| !token.is_empty());
    let token = token.ok_or("Vault's answer to the login has no token")?;
    let life = seconds(auth, "lease_duration").filter(|life| !life.is_zero());
    Ok(Session {
        number,
        access: access.clone(),
        token: Arc::new(Secret::Plain(token.to_owned())),
        life: life.map(|life| (life, Instant::now() + life)),
        renewable: auth["renewable"].as_bool() == Some(true),
    })
}

/// How long a token lives that was looked up; `None`: for ever.
fn token_life(data: &Value) -> Result<Option<Duration>, String> {
    let life = seconds(data, "ttl").ok_or("Vault's answer has no ttl of the token")?;
    let is_endless = life.is_zero() && data["expire_time"].is_null();
    Ok((!is_endless).then_some(life))
}

/// Sends a request.
async fn call(
    access: &VaultAccess,
    token: Option<&str>,
    (method, path): (Method, &str),
    body: Option<Value>,
    trust: &str,
) -> Result<Value, Denied> {
    let address = format!("{}/v1/{path}", access.address);
    let mut headers = vec![("x-vault-request", "true".to_owned())];
    headers.extend(token.map(|token| ("x-vault-token", token.to_owned())));
    if !access.namespace.is_empty() {
        headers.push(("x-vault-namespace", access.namespace.clone()));
    }
    let request = HttpsRequest {
        method,
        headers,
        body: body.map_or_else(String::new, |body| body.to_string()),
        ..HttpsRequest::get(&address)
    };
    let HttpsAnswer { status, body } = ask(request, trust).await.map_err(Denied::Other)?;
    let answer: Option<Value> = serde_json::from_slice(&body).ok();
    if status.is_success() {
        return answer.ok_or_else(|| Denied::Other(format!("{address}: its answer is no JSON")));
    }
    let said = answer
        .as_ref()
        .and_then(|answer| answer["errors"][0].as_str());
    let said = said.map_or_else(String::new, |said| {
        let line: String = said.trim().chars().take(SHOWN).collect();
        format!(": {}", line.escape_debug())
    });
    let text = format!("{address}: it answers {status}{said}");
    Err(match status {
        StatusCode::FORBIDDEN => Denied::Forbidden(text),
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Denied::Gone(text),
        _ => Denied::Other(text),
    })
}

impl Lease {
    fn read(answer: &Value, session: u64) -> Result<Lease, String> {
        let (user, secret) = named(answer)?;
        let life = seconds(answer, "lease_duration").filter(|life| !life.is_zero());
        Ok(Lease {
            session,
            id: answer["lease_id"].as_str().unwrap_or_default().to_owned(),
            life: life.ok_or("Vault's answer has no lease")?,
            renewable: answer["renewable"].as_bool() == Some(true),
            user,
            secret,
        })
    }
}

/// What a static role has now. Read before its rotation, it would be the same again.
fn rotating(answer: &Value) -> Result<SourceAnswer, String> {
    let (user, secret) = named(answer)?;
    let rotates = seconds(&answer["data"], "ttl").ok_or("Vault's answer has no ttl")?;
    let value = FetchedValue::Password {
        user: Some(user),
        secret,
        vanishes: false,
    };
    // If Vault is away, it does not rotate either: the password has no end.
    let life = Lifetime {
        ends: None,
        again: Some(nanos(rotates + BEHIND_ROTATION)),
    };
    Ok(SourceAnswer::Value(value, life))
}

/// The user and password in an answer.
fn named(answer: &Value) -> Result<(String, Secret), String> {
    let text = |name: &str| {
        let text = answer["data"][name].as_str();
        text.filter(|text| !text.is_empty() && !text.contains('\0'))
    };
    let (user, password) = (text("username"), text("password"));
    let (user, password) = user
        .zip(password)
        .ok_or("Vault's answer has no username and password")?;
    Ok((user.to_owned(), Secret::Plain(password.to_owned())))
}

fn seconds(answer: &Value, name: &str) -> Option<Duration> {
    let seconds = answer[name].as_u64()?;
    Some(Duration::from_secs(seconds.min(LONGEST_LIFE)))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let made = json!({"lease_id": "database/creds/app/x", "lease_duration": 3600,
            "renewable": true, "data": {"username": "v-app-1", "password": "p"}});
        let lease = Lease::read(&made, 7).ok().unwrap();
        assert_eq!(
            (lease.user.as_str(), lease.session, lease.renewable),
            ("v-app-1", 7, true)
        );
        assert_eq!(lease.life, Duration::from_secs(3600));
        let fixed = json!({"lease_duration": 0, "renewable": false, "data": {"username": "app",
            "password": "p", "ttl": 12, "rotation_period": 86400}});
        assert!(Lease::read(&fixed, 7).is_err());
        let Ok(SourceAnswer::Value(_, life)) = rotating(&fixed) else {
            panic!()
        };
        assert_eq!((life.ends, life.again), (None, Some(13_000_000_000)));
        for (token, life) in [
            (json!({"ttl": 0, "expire_time": null}), Ok(None)),
            (
                json!({"ttl": 0, "expire_time": "2026-01-01T00:00:00Z"}),
                Ok(Some(0)),
            ),
            (
                json!({"ttl": 60, "expire_time": "2026-01-01T00:00:00Z"}),
                Ok(Some(60)),
            ),
            (json!({}), Err(())),
        ] {
            let is = token_life(&token).map_err(|_| ());
            assert_eq!(is, life.map(|life| life.map(Duration::from_secs)));
        }
        let huge = json!({"ttl": u64::MAX});
        let huge = seconds(&huge, "ttl").unwrap();
        assert!(huge.as_secs() == LONGEST_LIFE && Instant::now() + huge > Instant::now());
        for bad in [json!({}), json!({"data": {"username": "u"}}), json!([])] {
            assert!(rotating(&bad).is_err() && Lease::read(&bad, 0).is_err());
        }
    }
}
