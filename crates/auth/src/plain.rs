//! The plain method: the client sends the password itself.

use subtle::ConstantTimeEq;

use super::scram::ScramKey;
use super::{Derivation, ScramKeys, Secret, Verifier, md5, saslprep, scram};

/// The result of comparing a clear-text password with a stored secret.
#[derive(Debug)]
pub enum Check {
    /// Right or wrong.
    Known(bool),
    /// The stored secret is a SCRAM secret: derive the key, then call [`check_derived`].
    Derive(Derivation, Verifier),
}

/// Reads a password message: a C string that fills the whole body and is not empty.
pub fn read(body: &[u8]) -> Result<&[u8], &'static str> {
    match body {
        [0] => Err("empty password"),
        [password @ .., 0] if !password.contains(&0) => Ok(password),
        _ => Err("malformed password message"),
    }
}

/// Compares a password with the stored secret. An empty stored password matches nothing.
pub fn check(user: &str, known: &Secret, password: &[u8]) -> Check {
    match known {
        Secret::Plain(expected) => {
            let equal: bool = expected.as_bytes().ct_eq(password).into();
            Check::Known(equal && !expected.is_empty())
        }
        Secret::Md5(expected) => {
            let given = md5::secret(user, password);
            Check::Known(expected.as_bytes().ct_eq(&given).into())
        }
        Secret::Scram(text) => match Verifier::parse(text) {
            None => Check::Known(false),
            Some(verifier) => {
                let derivation = Derivation {
                    password: saslprep::prepare(password).into_owned(),
                    salt: verifier.salt.to_vec(),
                    iterations: verifier.iterations,
                };
                Check::Derive(derivation, verifier)
            }
        },
    }
}

/// The keys for pass-through, if the salted password matches the stored secret.
pub fn check_derived(verifier: &Verifier, salted: &ScramKey) -> Option<ScramKeys> {
    let client_key = scram::client_key(salted);
    let equal: bool = scram::sha256(&client_key)
        .ct_eq(&verifier.stored_key)
        .into();
    equal.then(|| ScramKeys {
        client_key,
        server_key: verifier.server_key,
        salt: verifier.salt.clone(),
        iterations: verifier.iterations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        assert_eq!(read(b"x\0"), Ok(&b"x"[..]));
        for body in [&b""[..], b"\0", b"x", b"x\0y", b"x\0y\0", b"x\0\0", b"\0\0"] {
            assert!(read(body).is_err(), "{body:?}");
        }
    }

    fn right(known: &Secret, password: &[u8]) -> bool {
        match check("m2", known, password) {
            Check::Known(right) => right,
            Check::Derive(derivation, verifier) => {
                check_derived(&verifier, &derivation.compute()).is_some()
            }
        }
    }

    #[test]
    fn every_kind_of_secret() {
        let salted = scram::salted_password(b"sekret", b"salt", 2);
        for known in [
            Secret::classify("sekret"),
            Secret::classify("md5c1add164b782f19e776b4181b75d298e"),
            Secret::classify(Verifier::derive(&salted, b"salt", 2).to_string()),
        ] {
            assert!(right(&known, b"sekret"), "{known:?}");
            for wrong in [
                &b""[..],
                b"sekre",
                b"sekret ",
                b"Sekret",
                known.text().as_bytes(),
            ] {
                assert!(
                    wrong == b"sekret" || !right(&known, wrong),
                    "{known:?} {wrong:?}"
                );
            }
        }
        assert!(!right(&Secret::Plain(String::new()), b""));
        assert!(!right(&Secret::Scram("nonsense".into()), b"sekret"));
    }
}
