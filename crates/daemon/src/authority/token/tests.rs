//! Good tokens, and bad ones: each has its refusal, without a byte of the token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use howdah_pooler::config::{Config, TokenOffer, TokenRules};
use howdah_pooler::event::Verified;
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::{MessageDigest, hash};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer};

use super::check::{TokenRefusal, check};
use super::keys::KeySet;
use super::{AFTER_FAILURE, FILE_LONGEST, FRESH, Known, TokenChecks};
use crate::log::Log;

const NOW: i64 = 1_000_000;

/// Keys of one of each kind, and the set of their public halves.
struct Issuer {
    rsa: PKey<Private>,
    elliptic: EcKey<Private>,
    edwards: PKey<Private>,
}

impl Issuer {
    fn new() -> Issuer {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        Issuer {
            rsa: PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap(),
            elliptic: EcKey::generate(&group).unwrap(),
            edwards: PKey::generate_ed25519().unwrap(),
        }
    }

    /// The set, with a shared secret and a key for encryption among the keys.
    fn set(&self) -> String {
        let rsa = self.rsa.rsa().unwrap();
        let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
        let mut context = BigNumContext::new().unwrap();
        let point = self.elliptic.public_key();
        point
            .affine_coordinates(self.elliptic.group(), &mut x, &mut y, &mut context)
            .unwrap();
        let padded = |number: &BigNum| BASE64.encode(number.to_vec_padded(32).unwrap());
        let (n, e) = (
            BASE64.encode(rsa.n().to_vec()),
            BASE64.encode(rsa.e().to_vec()),
        );
        let edwards = BASE64.encode(self.edwards.raw_public_key().unwrap());
        format!(
            r#"{{"keys": [
                {{"kty": "oct", "kid": "shared", "k": "AAAA"}},
                {{"kty": "RSA", "kid": "enc", "use": "enc", "n": "{n}", "e": "{e}"}},
                {{"kty": "RSA", "kid": "r", "n": "{n}", "e": "{e}"}},
                {{"kty": "RSA", "kid": "only256", "alg": "RS256", "n": "{n}", "e": "{e}"}},
                {{"kty": "EC", "kid": "e", "crv": "P-256", "x": "{}", "y": "{}"}},
                {{"kty": "OKP", "kid": "d", "crv": "Ed25519", "x": "{edwards}"}}
            ]}}"#,
            padded(&x),
            padded(&y)
        )
    }

    fn sign(&self, algorithm: &str, text: &[u8]) -> Vec<u8> {
        let digest = match &algorithm[algorithm.len().saturating_sub(3)..] {
            "384" => MessageDigest::sha384(),
            "512" => MessageDigest::sha512(),
            _ => MessageDigest::sha256(),
        };
        match algorithm {
            "ES256" => {
                let digest = hash(digest, text).unwrap();
                let signature = EcdsaSig::sign(&digest, &self.elliptic).unwrap();
                let part = |number: &openssl::bn::BigNumRef| number.to_vec_padded(32).unwrap();
                [part(signature.r()), part(signature.s())].concat()
            }
            "EdDSA" => {
                let mut signer = Signer::new_without_digest(&self.edwards).unwrap();
                signer.sign_oneshot_to_vec(text).unwrap()
            }
            _ => {
                let mut signer = Signer::new(digest, &self.rsa).unwrap();
                if algorithm.starts_with("PS") {
                    signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
                    signer
                        .set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)
                        .unwrap();
                    signer.set_rsa_mgf1_md(digest).unwrap();
                }
                signer.sign_oneshot_to_vec(text).unwrap()
            }
        }
    }

    /// A token with a header and claims, signed by an algorithm.
    fn token(&self, algorithm: &str, header: &str, claims: &str) -> String {
        let text = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
        let signature = self.sign(algorithm, text.as_bytes());
        format!("{text}.{}", BASE64.encode(signature))
    }
}

fn rules(more: &str) -> TokenRules {
    let text = format!("issuer=https://i scope=\"openid pg\" audience=\"pg other\" keys=/k {more}");
    TokenRules::parse(TokenOffer::Jwt, &text, |_| None).unwrap()
}

const CLAIMS: &str =
    r#""iss": "https://i", "aud": ["x", "pg"], "exp": 1000100, "scope": "pg openid""#;

fn said(result: Result<Verified, TokenRefusal>) -> String {
    match result {
        Ok(verified) => format!("{:?} {:?}", verified.identity, verified.names),
        Err(TokenRefusal::UnknownKey) => "unknown key".into(),
        Err(TokenRefusal::Wrong(why)) => why,
    }
}

#[test]
fn every_signature() {
    let issuer = Issuer::new();
    let keys = KeySet::read(issuer.set().as_bytes()).unwrap();
    let claims = format!("{{{CLAIMS}, \"sub\": \"ann\"}}");
    let check = |token: &str| said(check(token, &rules(""), &keys, "d", NOW));
    for (algorithm, key) in [
        ("RS256", "r"),
        ("RS384", "r"),
        ("RS512", "r"),
        ("PS256", "r"),
        ("PS384", "r"),
        ("RS256", "only256"),
        ("ES256", "e"),
        ("EdDSA", "d"),
    ] {
        let header = format!("{{\"alg\": \"{algorithm}\", \"kid\": \"{key}\"}}");
        let token = issuer.token(algorithm, &header, &claims);
        assert_eq!(check(&token), "Some(\"ann\") [\"ann\"]", "{algorithm}");
        // One other bit of the claims.
        let (text, signature) = token.rsplit_once('.').unwrap();
        let changed = text.replace('.', ".x");
        assert_ne!(
            check(&format!("{changed}.{signature}")),
            "Some(\"ann\") [\"ann\"]"
        );
        let mut bytes = BASE64.decode(signature).unwrap();
        bytes[3] ^= 1;
        let forged = format!("{text}.{}", BASE64.encode(bytes));
        assert_eq!(check(&forged), "its signature is wrong", "{algorithm}");
    }
    let alone = issuer.token(
        "EdDSA",
        "{\"alg\": \"EdDSA\", \"typ\": \"at+jwt\"}",
        &claims,
    );
    assert_eq!(check(&alone), "Some(\"ann\") [\"ann\"]", "one key fits");
}

#[test]
fn bad_headers_and_signatures() {
    let issuer = Issuer::new();
    let keys = KeySet::read(issuer.set().as_bytes()).unwrap();
    let claims = format!("{{{CLAIMS}, \"sub\": \"ann\"}}");
    for (header, why) in [
        (r#"{"alg": "none"}"#, "signatures by \"none\" are not taken"),
        (
            r#"{"alg": "HS256", "kid": "r"}"#,
            "signatures by \"HS256\" are not taken",
        ),
        (
            r#"{"alg": "HS256", "kid": "shared"}"#,
            "signatures by \"HS256\"",
        ),
        (r#"{"alg": "ES256", "kid": "r"}"#, "unknown key"),
        (r#"{"alg": "RS256", "kid": "e"}"#, "unknown key"),
        (r#"{"alg": "RS256", "kid": "enc"}"#, "unknown key"),
        (r#"{"alg": "RS512", "kid": "only256"}"#, "unknown key"),
        (r#"{"alg": "RS256", "kid": "gone"}"#, "unknown key"),
        (r#"{"alg": "RS256"}"#, "several keys fit"),
        (r#"{"alg": "RS256", "kid": 1}"#, "its kid is no text"),
        (r#"{"alg": ["RS256"], "kid": "r"}"#, "it has no alg"),
        (r#"{"kid": "r"}"#, "it has no alg"),
        (
            r#"{"alg": "RS256", "kid": "r", "alg": "RS256"}"#,
            "a name stands twice",
        ),
        (
            r#"{"alg": "RS256", "kid": "r", "crit": ["exp"]}"#,
            "critical extensions",
        ),
        (
            r#"{"alg": "RS256", "kid": "r", "crit": []}"#,
            "critical extensions",
        ),
        (
            r#"{"alg": "RS256", "kid": "r", "typ": "logout+jwt"}"#,
            "another kind of token",
        ),
        (
            r#"{"alg": "RS256", "kid": "r", "typ": "dpop+jwt"}"#,
            "another kind of token",
        ),
        (
            r#"{"alg": "RS256", "kid": "r", "typ": null}"#,
            "another kind of token",
        ),
        (r#"["RS256"]"#, "it is no JSON object"),
        ("", "its JSON can't be read"),
    ] {
        let token = issuer.token("RS256", header, &claims);
        let seen = said(check(&token, &rules(""), &keys, "d", NOW));
        assert!(seen.contains(why), "{header}: {seen}");
    }
    // An address of other keys in the header is not followed.
    let header =
        r#"{"alg": "RS256", "kid": "r", "jku": "https://evil", "jwk": {"kty": "oct"}, "x5c": []}"#;
    let token = issuer.token("RS256", header, &claims);
    assert_eq!(
        said(check(&token, &rules(""), &keys, "d", NOW)),
        "Some(\"ann\") [\"ann\"]"
    );
    let good = issuer.token("ES256", r#"{"alg": "ES256", "kid": "e"}"#, &claims);
    let (text, _) = good.rsplit_once('.').unwrap();
    for (signature, why) in [
        (BASE64.encode([0; 64]), "its signature is wrong"),
        (BASE64.encode([255; 64]), "its signature is wrong"),
        (BASE64.encode([0; 63]), "its signature is wrong"),
        (String::new(), "its signature is wrong"),
        ("====".into(), "not in base64url"),
        ("a b".into(), "not in base64url"),
        ("AA.AA".into(), "three parts"),
    ] {
        let token = format!("{text}.{signature}");
        let seen = said(check(&token, &rules(""), &keys, "d", NOW));
        assert!(seen.contains(why), "{signature}: {seen}");
    }
    for token in ["", ".", "..", "a.b", "a.b.c.d.e", &"x".repeat(65_536)] {
        assert!(check(token, &rules(""), &keys, "d", NOW).is_err());
    }
    let taken = rules("algorithms=ES256");
    let token = issuer.token("RS256", r#"{"alg": "RS256", "kid": "r"}"#, &claims);
    assert!(check(&token, &taken, &keys, "d", NOW).is_err());
}

#[test]
fn bad_claims() {
    let issuer = Issuer::new();
    let keys = KeySet::read(issuer.set().as_bytes()).unwrap();
    let seen = |claims: &str, rules: &TokenRules, database: &str| {
        let token = issuer.token("EdDSA", r#"{"alg": "EdDSA", "kid": "d"}"#, claims);
        said(check(&token, rules, &keys, database, NOW))
    };
    let (iss, aud) = (r#""iss": "https://i""#, r#""aud": "pg""#);
    let (exp, scope) = (r#""exp": 1000100"#, r#""scp": ["openid", "pg"]"#);
    let sub = r#""sub": "ann""#;
    for (claims, why) in [
        (
            format!("{iss}, {aud}, {exp}, {scope}, {sub}"),
            "Some(\"ann\")",
        ),
        (format!("{iss}, {aud}, {scope}, {sub}"), "it has no end"),
        (
            format!("{iss}, {aud}, \"exp\": \"1000100\", {scope}, {sub}"),
            "its exp is no time",
        ),
        (
            format!("{iss}, {aud}, \"exp\": 1e300, {scope}, {sub}"),
            "its exp is no time",
        ),
        (
            format!("{iss}, {aud}, \"exp\": 999970, {scope}, {sub}"),
            "it ended 30 s ago",
        ),
        (
            format!("{iss}, {aud}, \"exp\": 999971.5, {scope}, {sub}"),
            "Some(\"ann\")",
        ),
        (
            format!("{iss}, {aud}, {exp}, \"nbf\": 1000031, {scope}, {sub}"),
            "it begins in 31 s",
        ),
        (
            format!("{iss}, {aud}, {exp}, \"nbf\": 1000030, {scope}, {sub}"),
            "Some(\"ann\")",
        ),
        (
            format!("{iss}, {aud}, {exp}, \"nbf\": true, {scope}, {sub}"),
            "its nbf is no time",
        ),
        (format!("{aud}, {exp}, {scope}, {sub}"), "it has no issuer"),
        (
            format!("\"iss\": \"https://i/\", {aud}, {exp}, {scope}, {sub}"),
            "another issuer",
        ),
        (
            format!("\"iss\": [\"https://i\"], {aud}, {exp}, {scope}, {sub}"),
            "it has no issuer",
        ),
        (
            format!("{iss}, {exp}, {scope}, {sub}"),
            "it has no audience",
        ),
        (
            format!("{iss}, \"aud\": \"PG\", {exp}, {scope}, {sub}"),
            "another audience",
        ),
        (
            format!("{iss}, \"aud\": [\"pg\", 1], {exp}, {scope}, {sub}"),
            "it has no audience",
        ),
        (
            format!("{iss}, \"aud\": [], {exp}, {scope}, {sub}"),
            "another audience",
        ),
        (
            format!("{iss}, {aud}, {exp}, {sub}"),
            "the scope openid is not in it",
        ),
        (
            format!("{iss}, {aud}, {exp}, \"scope\": \"openidpg\", {sub}"),
            "the scope openid",
        ),
        (
            format!("{iss}, {aud}, {exp}, \"scope\": \"openid pgx\", {sub}"),
            "the scope pg",
        ),
        (
            format!("{iss}, {aud}, {exp}, {scope}"),
            "it has no claim sub",
        ),
        (
            format!("{iss}, {aud}, {exp}, {scope}, \"sub\": [\"ann\"]"),
            "its claim sub is no text",
        ),
        (
            format!("{iss}, {aud}, {exp}, {scope}, \"sub\": \"\""),
            "a name in it is empty",
        ),
        (
            format!("{iss}, {aud}, {exp}, {scope}, \"sub\": \"a\\u0000\""),
            "control characters",
        ),
        (
            format!("{iss}, {aud}, {exp}, {scope}, {sub}, {sub}"),
            "a name stands twice",
        ),
        (
            format!("{iss}, {aud}, {exp}, {scope}, {sub}, \"cnf\": {{}}"),
            "bound to a key",
        ),
        (
            format!("{iss}, {aud}, {exp}, {scope}, {sub}, \"events\": {{}}"),
            "tells of an event",
        ),
    ] {
        let seen = seen(&format!("{{{claims}}}"), &rules(""), "d");
        assert!(seen.contains(why), "{claims}: {seen}");
    }
    let roles = r#""realm": {"roles": ["r", "w"]}, "access": {"d": {"roles": "x"}, "a.roles": 1}"#;
    let claims = format!("{{{CLAIMS}, {roles}, \"https://n/roles\": [\"n\"]}}");
    for (path, database, why) in [
        ("realm.roles", "d", "[\"r\", \"w\"]"),
        ("https://n/roles", "d", "[\"n\"]"),
        ("access.{database}.roles", "d", "[\"x\"]"),
        ("access.{database}.roles", "e", "it has no roles"),
        // A database's name is one name, whatever is in it.
        ("access.{database}", "a.roles", "it has no roles"),
        ("{database}", "realm.roles", "it has no roles"),
        ("realm", "d", "it has no roles"),
    ] {
        let seen = seen(&claims, &rules(&format!("roles={path}")), database);
        assert!(seen.contains(why), "{path} {database}: {seen}");
    }
}

#[test]
fn what_no_set_of_keys_is() {
    let small = Rsa::generate(1024).unwrap();
    let small = BASE64.encode(small.n().to_vec());
    let weak = format!(r#"{{"keys": [{{"kty": "RSA", "n": "{small}", "e": "AQAB"}}]}}"#);
    for text in ["", "[]", "{}", r#"{"keys": {}}"#] {
        assert!(KeySet::read(text.as_bytes()).is_err(), "{text}");
    }
    for text in [
        r#"{"keys": []}"#,
        r#"{"keys": [1, {"kty": "oct", "k": "AAAA"}]}"#,
        r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}]}"#,
        r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AQ"}]}"#,
        &weak,
    ] {
        assert!(KeySet::read(text.as_bytes()).unwrap().is_empty(), "{text}");
    }
}

/// An issuer with its set in a file, a token of a key, and the checks of a process.
struct Checked {
    folder: std::path::PathBuf,
    rules: TokenRules,
    checks: TokenChecks,
    runtime: tokio::runtime::Runtime,
}

impl Checked {
    fn new(name: &str) -> Checked {
        let folder = std::env::temp_dir().join(format!("howdah-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let keys = folder.join("keys");
        Checked {
            rules: rules(&format!("keys={}", keys.display())),
            folder,
            checks: TokenChecks::new(&Log::new(true, 0)),
            runtime: { runtime }.enable_all().build().unwrap(),
        }
    }

    fn set(&self, set: &str) {
        std::fs::write(self.folder.join("keys"), set).unwrap();
    }

    fn check(&self, token: &str) -> Result<(), String> {
        let checked = self.checks.check(&self.rules, token, "d", "");
        self.runtime.block_on(checked).map(drop)
    }

    /// Changes what is known of the issuer.
    fn known(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.checks.issuer(&self.rules).known());
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn lasting(issuer: &Issuer, key: &str) -> String {
    let claims = CLAIMS.replace("1000100", "99000000000");
    let header = format!("{{\"alg\": \"EdDSA\", \"kid\": \"{key}\"}}");
    issuer.token("EdDSA", &header, &format!("{{{claims}, \"sub\": \"ann\"}}"))
}

/// A time so long ago.
fn ago(time: std::time::Duration) -> Option<std::time::Instant> {
    Some(std::time::Instant::now().checked_sub(time).unwrap())
}

#[test]
fn a_withdrawn_key_serves_no_login_after_its_time() {
    let (of, issuer, other) = (Checked::new("withdrawn"), Issuer::new(), Issuer::new());
    let token = lasting(&issuer, "d");
    of.set(&issuer.set());
    assert_eq!(of.check(&token), Ok(()));
    of.set(&other.set());
    let aged = |known: &mut Known| (known.at, known.asked) = (ago(FRESH), ago(FRESH));
    of.known(aged);
    let refused = of.check(&token).unwrap_err();
    assert!(refused.ends_with("its signature is wrong"), "{refused}");
    // The last set serves while fetches fail, but no longer than it may.
    std::fs::remove_file(of.folder.join("keys")).unwrap();
    of.known(aged);
    assert_eq!(of.check(&lasting(&other, "d")), Ok(()));
    of.known(|known| {
        known.at = ago(FRESH);
        assert!(known.error.is_some());
    });
    assert!(of.checks.issuer(&of.rules).old().is_some());
    of.known(|known| known.asked = ago(AFTER_FAILURE));
    assert!(of.checks.issuer(&of.rules).old().is_none());
    // A file may be missing for a short while only.
    of.known(|known| known.failing = ago(FILE_LONGEST));
    assert!(of.check(&lasting(&other, "d")).is_err());
    of.known(|known| assert_eq!(known.failures, 2));
    // A set without keys withdraws all of them.
    of.set(&other.set());
    of.known(aged);
    assert_eq!(of.check(&lasting(&other, "d")), Ok(()));
    of.known(|known| assert!(known.failing.is_none()));
    of.set("{\"keys\": []}");
    of.known(aged);
    let refused = of.check(&lasting(&other, "d")).unwrap_err();
    assert!(refused.contains("no key of the issuer fits"), "{refused}");
}

#[test]
fn who_is_no_issuer_any_more_is_forgotten_and_old_keys_count_only_when_fetching_fails() {
    let (of, issuer) = (Checked::new("forgotten"), Issuer::new());
    of.set(&issuer.set());
    assert_eq!(of.check(&lasting(&issuer, "d")), Ok(()));
    assert!(of.checks.keys_age().is_some());
    of.known(|known| known.at = ago(FRESH));
    assert_eq!(of.checks.keys_age(), None, "nobody has logged in since");
    of.known(|known| known.error = Some("gone".into()));
    assert!(of.checks.keys_age() >= Some(FRESH));
    of.checks.keep(&Config::default());
    assert_eq!(of.checks.keys_age(), None);
}

#[test]
fn without_keys_there_are_pauses() {
    let (of, issuer) = (Checked::new("pauses"), Issuer::new());
    let token = lasting(&issuer, "d");
    assert!(of.check(&token).is_err());
    of.set(&issuer.set());
    assert!(of.check(&token).unwrap_err().contains("can't be read"));
    of.known(|known| known.asked = ago(super::FILE_FRESH));
    assert_eq!(of.check(&token), Ok(()));
    let rules = TokenRules::parse(TokenOffer::Jwt, "issuer=https://i audience=a", |_| None);
    let rules = rules.unwrap();
    for (failures, pause) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (u32::MAX, 60)] {
        let at = |early: u64| {
            let ago = std::time::Duration::from_millis(pause * 1000 - early);
            let known = Known {
                failures,
                asked: self::ago(ago),
                ..Known::default()
            };
            known.pauses(&rules)
        };
        assert!(at(900) && !at(0), "{failures}");
    }
}

#[test]
fn an_invented_key_waits_in_no_line() {
    let (of, issuer) = (Checked::new("invented"), Issuer::new());
    of.set(&issuer.set());
    assert_eq!(of.check(&lasting(&issuer, "d")), Ok(()));
    let known = of.checks.issuer(&of.rules);
    let _turn = known.turn.try_lock().unwrap();
    let refused = of.check(&lasting(&issuer, "invented")).unwrap_err();
    assert!(refused.contains("no key of the issuer fits"), "{refused}");
}
