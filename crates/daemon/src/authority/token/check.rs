//! Whether a token is good, and whose it is (RFC 7519, RFC 8725, RFC 9068).
//!
//! Libraries for such tokens take ones without issuer or audience by default, and overlook `nbf` and `crit`.
//! All that is checked here stands in one place, and signatures are verified by the TLS library that is
//! linked already.

use howdah_pooler::config::TokenRules;
use howdah_pooler::event::Verified;

use super::json::{Json, JsonObject};
use super::keys::{KeySet, NoKey, unbase64};

/// The longest token, in bytes.
const LONGEST: usize = 65_535;
/// The longest name of a user in a token, in bytes.
const LONGEST_NAME: usize = 1024;

/// Why a token is refused. No part of the token is in it, but names and times.
#[derive(PartialEq, Eq, Debug)]
pub enum TokenRefusal {
    /// No key verifies it: there may be newer keys.
    UnknownKey,
    /// What is wrong.
    Wrong(String),
}

impl From<&str> for TokenRefusal {
    fn from(why: &str) -> TokenRefusal {
        TokenRefusal::Wrong(why.into())
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T, TokenRefusal> {
    Err(TokenRefusal::Wrong(why.into()))
}

/// Checks a token. `now` is in seconds since 1970.
///
/// # Errors
/// Why it is refused.
pub fn check(
    token: &str,
    rules: &TokenRules,
    keys: &KeySet,
    database: &str,
    now: i64,
) -> Result<Verified, TokenRefusal> {
    if token.len() > LONGEST {
        return wrong("it is too long");
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else {
        return wrong("it is no signed JWT: it has not three parts");
    };
    let signed = &token[..header.len() + 1 + claims.len()];
    let header = Json::object(&unbase64(header)?)?;
    let algorithm = algorithm(&header, rules)?;
    let id = match header.get("kid") {
        None => None,
        Some(id) => Some(id.text().ok_or("its kid is no text")?),
    };
    let verified = keys.verifies(id, algorithm, signed.as_bytes(), &unbase64(signature)?);
    match verified {
        Ok(true) => {}
        Ok(false) => return wrong("its signature is wrong"),
        Err(NoKey::Unknown) => return Err(TokenRefusal::UnknownKey),
        Err(NoKey::Several) => return wrong("it names no key, and several keys fit"),
    }
    let claims = Json::object(&unbase64(claims)?)?;
    let left = times(&claims, rules, now)?;
    parties(&claims, rules)?;
    scopes(&claims, rules)?;
    let identity = match claims.get(&rules.claim) {
        Some(Json::Text(text)) => Some(name(text)?),
        Some(_) if rules.roles.is_none() => {
            return wrong(format!("its claim {} is no text", rules.claim));
        }
        _ => None,
    };
    let names = match (&rules.roles, &identity) {
        (Some(path), _) => roles(&claims, path, database)?,
        (None, Some(identity)) => vec![identity.clone()],
        (None, None) => return wrong(format!("it has no claim {}", rules.claim)),
    };
    Ok(Verified {
        identity,
        names,
        lasts: Some(left),
    })
}

/// Checks the header, apart from its key.
fn algorithm<'a>(header: &'a JsonObject, rules: &TokenRules) -> Result<&'a str, TokenRefusal> {
    if header.contains_key("crit") {
        return wrong("it has critical extensions (crit)");
    }
    match header.get("typ") {
        None => {}
        Some(Json::Text(kind)) if is_kind(kind) => {}
        Some(_) => return wrong("its typ is neither JWT nor at+jwt: it is another kind of token"),
    }
    let algorithm = header
        .get("alg")
        .and_then(Json::text)
        .ok_or("it has no alg")?;
    match rules.algorithms.iter().any(|taken| taken == algorithm) {
        true => Ok(algorithm),
        false => wrong(format!(
            "signatures by {:?} are not taken",
            algorithm.chars().take(20).collect::<String>()
        )),
    }
}

fn is_kind(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    matches!(
        kind.strip_prefix("application/").unwrap_or(&kind),
        "jwt" | "at+jwt"
    )
}

/// Checks the times. How long the token is good, in nanoseconds.
fn times(claims: &JsonObject, rules: &TokenRules, now: i64) -> Result<u64, TokenRefusal> {
    let time = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(Json::Number(time)) if time.abs() < 1e12 => Ok(Some(*time)),
        Some(_) => wrong(format!("its {name} is no time")),
    };
    let (now, leeway) = (now as f64, f64::from(rules.leeway));
    let Some(end) = time("exp")? else {
        return wrong("it has no end (exp)");
    };
    if end + leeway <= now {
        return wrong(format!("it ended {} s ago", (now - end) as i64));
    }
    if let Some(begin) = time("nbf")?
        && begin - leeway > now
    {
        return wrong(format!("it begins in {} s (nbf)", (begin - now) as i64));
    }
    Ok(((end + leeway - now) * 1e9) as u64)
}

/// Checks who has made the token, and for whom.
fn parties(claims: &JsonObject, rules: &TokenRules) -> Result<(), TokenRefusal> {
    match claims.get("iss") {
        Some(Json::Text(issuer)) if issuer == rules.token_issuer() => {}
        Some(Json::Text(_)) => return wrong("another issuer made it (iss)"),
        _ => return wrong("it has no issuer (iss)"),
    }
    let audiences = claims.get("aud").and_then(Json::texts);
    let audiences = audiences.ok_or("it has no audience (aud)")?;
    if !audiences
        .iter()
        .any(|aud| rules.audiences.iter().any(|own| own == aud))
    {
        return wrong("it is for another audience (aud)");
    }
    if claims.contains_key("cnf") {
        return wrong("it is bound to a key of its holder (cnf)");
    }
    if claims.contains_key("events") {
        return wrong("it tells of an event, such as a logout (events)");
    }
    Ok(())
}

/// Checks that the token has all scopes that are asked for.
fn scopes(claims: &JsonObject, rules: &TokenRules) -> Result<(), TokenRefusal> {
    let given = ["scope", "scp"].map(|name| claims.get(name).and_then(Json::texts));
    let given: Vec<&str> = given
        .iter()
        .flatten()
        .flatten()
        .flat_map(|words| words.split(' '))
        .collect();
    let missing = rules.scope.split(' ').filter(|word| !word.is_empty());
    match missing.into_iter().find(|word| !given.contains(word)) {
        Some(word) => wrong(format!("the scope {word} is not in it")),
        None => Ok(()),
    }
}

/// The roles at a path of claims. `{database}` stands for the database that the client asks for: it is
/// put in after the path is split, because clients choose it.
fn roles(claims: &JsonObject, path: &str, database: &str) -> Result<Vec<String>, TokenRefusal> {
    const DATABASE: &str = "{database}";
    let found = match claims.get(path).filter(|_| !path.contains(DATABASE)) {
        Some(found) => Some(found),
        None => {
            let mut parts = path.split('.').map(|part| part.replace(DATABASE, database));
            let first = parts.next().and_then(|part| claims.get(&part));
            parts
                .try_fold(first, |at, part| match at {
                    Some(Json::Object(object)) => Some(object.get(&part)),
                    _ => None,
                })
                .flatten()
        }
    };
    let names = found.and_then(Json::texts);
    let names = names.ok_or_else(|| TokenRefusal::Wrong(format!("it has no roles at {path}")))?;
    names.into_iter().map(name).collect()
}

/// A name in a token.
fn name(text: &str) -> Result<String, TokenRefusal> {
    let fits =
        !text.is_empty() && text.len() <= LONGEST_NAME && !text.chars().any(char::is_control);
    match fits {
        true => Ok(text.to_owned()),
        false => wrong("a name in it is empty, too long, or has control characters"),
    }
}
