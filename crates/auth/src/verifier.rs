//! SCRAM secrets: what PostgreSQL stores instead of a password, and the keys that a login leaves.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::scram::{self, ScramKey};

/// The longest salt accepted, in bytes. PostgreSQL makes 16, some managed services 32.
pub const SALT_MAX: usize = 1024;

/// The most iterations accepted. PostgreSQL's default is 4096; ten million take seconds.
pub const ITERATIONS_MAX: u32 = 10_000_000;

/// A SCRAM-SHA-256 secret (RFC 5802, section 3): enough to check a proof, not enough to make one.
///
/// The text form is `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey` with the last three in
/// base64, as in `pg_authid.rolpassword`.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// How often the hash is applied; 1 to [`ITERATIONS_MAX`].
    pub iterations: u32,
    /// 1 to [`SALT_MAX`] bytes.
    pub salt: Box<[u8]>,
    /// The hash of the ClientKey.
    pub stored_key: ScramKey,
    /// The key with which Howdah proves itself to a client.
    pub server_key: ScramKey,
}

impl Verifier {
    /// Reads a secret; `None` if the text has another form or a value is beyond its limit.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("SCRAM-SHA-256$")?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        Some(Self {
            iterations: scram::iterations(iterations.as_bytes())?,
            salt: scram::salt(salt.as_bytes())?,
            stored_key: scram::key(stored_key.as_bytes())?,
            server_key: scram::key(server_key.as_bytes())?,
        })
    }

    /// The secret of a password, from its [`scram::salted_password`].
    pub fn derive(salted: &ScramKey, salt: &[u8], iterations: u32) -> Self {
        let client_key = scram::client_key(salted);
        Self {
            iterations,
            salt: salt.into(),
            stored_key: scram::sha256(&client_key),
            server_key: scram::server_key(salted),
        }
    }
}

/// The form that [`Verifier::parse`] reads.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SCRAM-SHA-256${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(self.stored_key),
            STANDARD.encode(self.server_key),
        )
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({} iterations, ..)", self.iterations)
    }
}

/// The keys from a client's login with a SCRAM secret. With them Howdah can log in to any
/// PostgreSQL that stores the same secret, although Howdah does not know the password
/// (pass-through).
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    /// Proves the client to PostgreSQL.
    pub client_key: ScramKey,
    /// Checks PostgreSQL's proof.
    pub server_key: ScramKey,
    /// The salt that the keys belong to.
    pub salt: Box<[u8]>,
    /// The iteration count that the keys belong to.
    pub iterations: u32,
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramKeys({} iterations, ..)", self.iterations)
    }
}

#[cfg(test)]
mod tests {
    use super::super::saslprep;
    use super::*;
    use proptest::prelude::*;

    /// Secrets that PostgreSQL 15 made, with their passwords: ASCII, text that SASLprep changes,
    /// and text that SASLprep refuses.
    const MADE_BY_POSTGRESQL: &[(&str, &str)] = &[
        (
            "pencil",
            "SCRAM-SHA-256$4096:W7rlyLVkwGiV5i0YGKTiKA==$fg/d3AUjON6PulXjBFypS8ezSSZSgzdeI1dHovdU1/c=:wMWn0TX14FB7aJSEnN2K1lMfKohyxpjbETdj/G1X5Wk=",
        ),
        (
            "pässwörd ①",
            "SCRAM-SHA-256$4096:eLArRFWF2etpkbM35hBgmQ==$N9B9bJtP4CyxSVm1Y4dhW/IUduUmmyhj2pinkVPNOII=:RJpT3I/IXPd/3qoCmK37avNI/WYq3dZVgunnjExqmv8=",
        ),
        (
            "\u{ad}",
            "SCRAM-SHA-256$4096:FlGdtT5b9qxiF3U2d2lcng==$w+H9B+twiaEbHawYXDuljD6A7HzmXFhUXxyVGr5HNkw=:Ui7reyFs1TEaCkJ1JOVi9aCDf/wEGGB8eJ7QN3+1PRs=",
        ),
        (
            "a\u{340}b",
            "SCRAM-SHA-256$4096:GYaE19nEM9UGgPuoQGJ1Tw==$pDnUr513B0JjGZtXT6keAkexEkLI3drHzZmFWAgW5c4=:hox+sm5ruFHBegOEr51Q5hDbE95x5TcvnarV452nL3k=",
        ),
        (
            "I\u{ad}X",
            "SCRAM-SHA-256$4096:/GCKdAyjQv+tcrAiWlVNPg==$FtNfUM8HESJKAt8B8zZCSvert67JuAol5ihRy2vR190=:D7d1EnTdVY+YIBs4HhIy8PdpCw/Y8wDh6sxfEL+NPBI=",
        ),
        (
            "\u{627}1",
            "SCRAM-SHA-256$4096:fkmnkxFaZsg2aRad9KZO7Q==$HasUTBxM0bBHZZf2P/Pbh8vA/JgvzVB2Qu8HjMKisy8=:CsxroBT5ivQkXplS+SVzhAoEP6ACxiuJ1kMqvwl8U/U=",
        ),
        (
            "x\u{2000}y\u{fa70}",
            "SCRAM-SHA-256$4096:cJRPe05tKql9NS9StRwsfA==$eNDLXp0SgDYmVRIv/XDjfXU/3CVUZXw3f76fsHBV4Ls=:5s3SBpGz5YRhCO6G8KFhtgyzOPED+KJmYmP2PK2rI3Y=",
        ),
        (
            "ctl\u{7}é",
            "SCRAM-SHA-256$4096:hbRjhUTwOAnYppu9S7oBtA==$PuysqPQydkW8oc486wQkIIgXT7k9rh5jZVQIz/CgBCA=:mJ1kr+VdvpIBaZAxQRnPsijt+ZW1niv6aOXbsBUDb14=",
        ),
        (
            "tab\tz",
            "SCRAM-SHA-256$4096:+5m4kCqvseU279DX1y9xZg==$ACeke68FL6tddK7Xfkjh2XsuAfHfjEbOYj934nsLT/w=:XQk3EnCocQtNwWhfammjil6js0plFJnSckF3DC5DpN0=",
        ),
        (
            "\u{2168} \u{fb01}",
            "SCRAM-SHA-256$4096:gmzv+ms2MVDfCfaxMZ6Q6A==$UvdfvtgLEHowtAhCbJGLlijJGRg4y0NPDFrBpDWo5oc=:L3fFDUOdV04D+F7k9sm3y8Q2thVdcSo1ltpxbKw5qRk=",
        ),
    ];

    #[test]
    fn postgresql_and_we_agree() {
        for (password, secret) in MADE_BY_POSTGRESQL {
            let verifier = Verifier::parse(secret).expect(secret);
            let prepared = saslprep::prepare(password.as_bytes());
            let salted = scram::salted_password(&prepared, &verifier.salt, verifier.iterations);
            let derived = Verifier::derive(&salted, &verifier.salt, verifier.iterations);
            assert_eq!(derived.to_string(), *secret, "{password:?}");
        }
    }

    #[test]
    fn refused() {
        let good = MADE_BY_POSTGRESQL[0].1;
        let key = "wMWn0TX14FB7aJSEnN2K1lMfKohyxpjbETdj/G1X5Wk=";
        let long_salt = "A".repeat(4 * SALT_MAX / 3 + 5);
        for text in [
            String::new(),
            "SCRAM-SHA-256".into(),
            "SCRAM-SHA-256$".into(),
            good.replace("SCRAM-SHA-256", "SCRAM-SHA-1"),
            good.replace("SCRAM-SHA-256", "scram-sha-256"),
            good.replace("4096", ""),
            good.replace("4096", "0"),
            good.replace("4096", "-1"),
            good.replace("4096", "+1"),
            good.replace("4096", " 4096"),
            good.replace("4096", "4096x"),
            good.replace("4096", "10000001"),
            good.replace("4096", "99999999999999999999"),
            good.replace("W7rlyLVkwGiV5i0YGKTiKA==", ""),
            good.replace("W7rlyLVkwGiV5i0YGKTiKA==", "W7rlyLVkwGiV5i0YGKTiKA"),
            good.replace("W7rlyLVkwGiV5i0YGKTiKA==", "W7rly!VkwGiV5i0YGKTiKA=="),
            good.replace("W7rlyLVkwGiV5i0YGKTiKA==", &long_salt),
            good.replace(key, ""),
            good.replace(key, "AAAA"),
            good.replace(key, &format!("{key}AAAA")),
            format!("{good} "),
            format!("{good}:x"),
            format!("{good}$x"),
        ] {
            assert_eq!(Verifier::parse(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn print_then_parse(
            iterations in 1..=ITERATIONS_MAX,
            salt in prop::collection::vec(any::<u8>(), 1..=SALT_MAX),
            stored_key: ScramKey,
            server_key: ScramKey,
        ) {
            let verifier = Verifier { iterations, salt: salt.into(), stored_key, server_key };
            prop_assert_eq!(Verifier::parse(&verifier.to_string()), Some(verifier));
        }

        #[test]
        fn any_text(text: String) {
            if let Some(verifier) = Verifier::parse(&text) {
                prop_assert_eq!(verifier.to_string(), text);
            }
        }
    }
}
