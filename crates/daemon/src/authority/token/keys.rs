//! The keys of an issuer: a JWK Set (RFC 7517). Keys that verify no token are skipped, among them all that
//! are shared secrets.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Verifier};

use super::json::{Json, JsonObject};

/// The lengths of RSA keys that are taken, in bits. Longer ones would cost too much.
const RSA_BITS: std::ops::RangeInclusive<i32> = 2048..=8192;

/// The keys of a set.
#[derive(Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

/// A key.
struct Key {
    id: Option<String>,
    /// The only signature that the key is for, if the set says so.
    algorithm: Option<String>,
    kind: Kind,
}

/// What a key can verify.
enum Kind {
    Rsa(PKey<Public>),
    /// With the length of a coordinate, in bytes.
    Elliptic(EcKey<Public>, usize),
    Edwards(PKey<Public>),
}

/// Why no key is chosen.
#[derive(PartialEq, Eq, Debug)]
pub enum NoKey {
    /// No key has the id, or the token names none and no key fits: newer keys may help.
    Unknown,
    /// The token names no key, and several fit.
    Several,
}

/// The bytes of a part of a token or key.
///
/// # Errors
/// It is not in base64url without padding.
pub fn unbase64(text: &str) -> Result<Vec<u8>, &'static str> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| "a part of it is not in base64url")
}

impl KeySet {
    /// Reads a set.
    ///
    /// # Errors
    /// The text is no set.
    pub fn read(text: &[u8]) -> Result<KeySet, String> {
        let set = Json::object(text)?;
        let Some(Json::Array(all)) = set.get("keys") else {
            return Err("there is no array \"keys\" in it".into());
        };
        let keys = all.iter().filter_map(|key| match key {
            Json::Object(key) => Key::read(key),
            _ => None,
        });
        Ok(KeySet {
            keys: keys.collect(),
        })
    }

    /// True if no key of the set verifies tokens: the issuer has withdrawn all of them.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True if one of the keys has made a signature of the text.
    ///
    /// # Errors
    /// No key can be chosen.
    pub fn verifies(
        &self,
        id: Option<&str>,
        algorithm: &str,
        text: &[u8],
        signature: &[u8],
    ) -> Result<bool, NoKey> {
        let fits = |key: &&Key| {
            let named = id.is_none_or(|id| key.id.as_deref() == Some(id));
            named && key.fits(algorithm)
        };
        let mut fitting = self.keys.iter().filter(fits);
        let key = fitting.next().ok_or(NoKey::Unknown)?;
        if fitting.next().is_some() {
            return Err(NoKey::Several);
        }
        // What the library calls an error is a wrong signature, too.
        Ok(key
            .kind
            .verifies(algorithm, text, signature)
            .unwrap_or(false))
    }
}

impl Key {
    fn read(key: &JsonObject) -> Option<Key> {
        let text = |name: &str| key.get(name).and_then(Json::text);
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |name: &str| unbase64(text(name)?).ok();
        let number = |name: &str| BigNum::from_slice(&bytes(name)?).ok();
        let kind = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let (modulus, exponent) = (number("n")?, number("e")?);
                if !RSA_BITS.contains(&modulus.num_bits()) {
                    return None;
                }
                let key = Rsa::from_public_components(modulus, exponent).ok()?;
                Kind::Rsa(PKey::from_rsa(key).ok()?)
            }
            ("EC", Some(curve @ ("P-256" | "P-384"))) => {
                let (name, length) = match curve {
                    "P-256" => (Nid::X9_62_PRIME256V1, 32),
                    _ => (Nid::SECP384R1, 48),
                };
                let group = EcGroup::from_curve_name(name).ok()?;
                let (x, y) = (number("x")?, number("y")?);
                // Fails for a point that is not on the curve.
                let key = EcKey::from_public_key_affine_coordinates(&group, &x, &y).ok()?;
                key.check_key().ok()?;
                Kind::Elliptic(key, length)
            }
            ("OKP", Some("Ed25519")) => {
                Kind::Edwards(PKey::public_key_from_raw_bytes(&bytes("x")?, Id::ED25519).ok()?)
            }
            _ => return None,
        };
        Some(Key {
            id: text("kid").map(String::from),
            algorithm: text("alg").map(String::from),
            kind,
        })
    }

    /// The key's type decides which signatures it verifies.
    fn fits(&self, algorithm: &str) -> bool {
        let fits = match (&self.kind, algorithm) {
            (Kind::Rsa(_), name) => name.starts_with("RS") || name.starts_with("PS"),
            (Kind::Elliptic(_, 32), name) => name == "ES256",
            (Kind::Elliptic(..), name) => name == "ES384",
            (Kind::Edwards(_), name) => name == "EdDSA",
        };
        fits && self.algorithm.as_deref().is_none_or(|own| own == algorithm)
    }
}

impl Kind {
    fn verifies(&self, algorithm: &str, text: &[u8], signature: &[u8]) -> Result<bool, ErrorStack> {
        let digest = match &algorithm[algorithm.len() - 3..] {
            "384" => MessageDigest::sha384(),
            "512" => MessageDigest::sha512(),
            _ => MessageDigest::sha256(),
        };
        match self {
            Kind::Rsa(key) => {
                let mut verifier = Verifier::new(digest, key)?;
                if algorithm.starts_with("PS") {
                    verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
                    verifier.set_rsa_mgf1_md(digest)?;
                    verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
                } else {
                    verifier.set_rsa_padding(Padding::PKCS1)?;
                }
                verifier.verify_oneshot(signature, text)
            }
            Kind::Elliptic(key, length) => {
                let Some((r, s)) = signature.split_at_checked(*length) else {
                    return Ok(false);
                };
                if s.len() != *length {
                    return Ok(false);
                }
                let (r, s) = (BigNum::from_slice(r)?, BigNum::from_slice(s)?);
                if r.num_bits() == 0 || s.num_bits() == 0 {
                    return Ok(false);
                }
                let mut order = BigNum::new()?;
                key.group().order(&mut order, &mut *BigNumContext::new()?)?;
                if r >= order || s >= order {
                    return Ok(false);
                }
                let signature = EcdsaSig::from_private_components(r, s)?;
                signature.verify(&hash(digest, text)?, key)
            }
            Kind::Edwards(key) => {
                Verifier::new_without_digest(key)?.verify_oneshot(signature, text)
            }
        }
    }
}
