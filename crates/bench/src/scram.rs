//! SCRAM-SHA-256 as a client. Derived keys are kept, so that thousands of logins cost little here.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

type Key = [u8; 32];

/// A user's password, and the keys derived so far.
#[derive(Clone, Debug)]
pub struct Credentials {
    password: String,
    keys: HashMap<(Vec<u8>, u32), ClientKeys>,
}

#[derive(Clone, Debug)]
struct ClientKeys {
    client: Key,
    stored: Key,
    server: Key,
}

/// One exchange: begins with [`Exchange::start`], continues with [`Exchange::answer`].
#[derive(Debug)]
pub struct Exchange {
    bare: String,
    nonce: String,
    signature: Key,
}

impl Credentials {
    /// Credentials without derived keys.
    pub fn new(password: &str) -> Self {
        Self {
            password: password.to_owned(),
            keys: HashMap::new(),
        }
    }

    /// The password in clear text.
    pub fn password(&self) -> &str {
        &self.password
    }

    fn keys(&mut self, salt: &[u8], iterations: u32) -> &ClientKeys {
        let Self { password, keys } = self;
        keys.entry((salt.to_vec(), iterations)).or_insert_with(|| {
            let salted = salted_password(password.as_bytes(), salt, iterations);
            let client = keyed_hash(&salted, b"Client Key");
            let server = keyed_hash(&salted, b"Server Key");
            ClientKeys {
                client,
                stored: Sha256::digest(client).into(),
                server,
            }
        })
    }

    /// The secret in RFC 5803's form, as PostgreSQL and poolers' user files store it.
    pub fn secret(&mut self, salt: &[u8], iterations: u32) -> String {
        let keys = self.keys(salt, iterations);
        format!(
            "SCRAM-SHA-256${iterations}:{}${}:{}",
            STANDARD.encode(salt),
            STANDARD.encode(keys.stored),
            STANDARD.encode(keys.server)
        )
    }
}

impl Exchange {
    /// A new exchange and its first message.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn start() -> io::Result<(Self, String)> {
        let mut random = [0; 18];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let nonce = STANDARD.encode(random);
        // PostgreSQL takes the user from the startup packet and ignores the name here.
        let bare = format!("n=,r={nonce}");
        let first = format!("n,,{bare}");
        Ok((
            Self {
                bare,
                nonce,
                signature: [0; 32],
            },
            first,
        ))
    }

    /// The final message, in answer to the server's first one.
    ///
    /// # Errors
    /// The server's message is not SCRAM, or not an answer to ours.
    pub fn answer(&mut self, credentials: &mut Credentials, first: &str) -> io::Result<String> {
        let field = |name: &str| {
            first
                .split(',')
                .find_map(|part| part.strip_prefix(name))
                .ok_or_else(|| io::Error::other(format!("SCRAM: no {name} in {first:?}")))
        };
        let nonce = field("r=")?;
        if !nonce.starts_with(&self.nonce) {
            return Err(io::Error::other("SCRAM: a nonce that is not ours"));
        }
        let salt = STANDARD.decode(field("s=")?).map_err(io::Error::other)?;
        let iterations = field("i=")?.parse().map_err(io::Error::other)?;
        let keys = credentials.keys(&salt, iterations);
        let unproved = format!("c=biws,r={nonce}");
        let message = format!("{},{first},{unproved}", self.bare);
        let mut proof = keyed_hash(&keys.stored, message.as_bytes());
        proof
            .iter_mut()
            .zip(keys.client)
            .for_each(|(byte, key)| *byte ^= key);
        self.signature = keyed_hash(&keys.server, message.as_bytes());
        Ok(format!("{unproved},p={}", STANDARD.encode(proof)))
    }

    /// Verifies that the server knows the secret, too.
    ///
    /// # Errors
    /// The server does not.
    pub fn verify(&self, last: &str) -> io::Result<()> {
        match last.strip_prefix("v=") {
            Some(value) if value == STANDARD.encode(self.signature) => Ok(()),
            _ => Err(io::Error::other("SCRAM: a wrong signature")),
        }
    }
}

fn keyed_hash(key: &[u8], message: &[u8]) -> Key {
    // HMAC accepts keys of any length, so this can't fail.
    let mut hash = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    hash.update(message);
    hash.finalize().into_bytes().into()
}

/// PBKDF2 with one block (RFC 5802's `Hi`).
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let mut block = keyed_hash(password, &[salt, &1u32.to_be_bytes()].concat());
    let mut salted = block;
    for _ in 1..iterations {
        block = keyed_hash(password, &block);
        salted
            .iter_mut()
            .zip(block)
            .for_each(|(sum, byte)| *sum ^= byte);
    }
    salted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3, without the user name, as in PostgreSQL. Only the parts
    /// that do not depend on the name are used.
    #[test]
    fn keys_are_those_of_the_standard() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let mut credentials = Credentials::new("pencil");
        let keys = credentials.keys(&salt, 4096).clone();
        let message = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let mut proof = keyed_hash(&keys.stored, message.as_bytes());
        proof
            .iter_mut()
            .zip(keys.client)
            .for_each(|(byte, key)| *byte ^= key);
        assert_eq!(
            STANDARD.encode(proof),
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        let signature = keyed_hash(&keys.server, message.as_bytes());
        assert_eq!(
            STANDARD.encode(signature),
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }

    #[test]
    fn a_foreign_nonce_is_refused() {
        let (mut exchange, first) = Exchange::start().unwrap();
        assert!(first.starts_with("n,,n=,r="));
        let mut credentials = Credentials::new("pencil");
        assert!(
            exchange
                .answer(&mut credentials, "r=other,s=AAAA,i=1")
                .is_err()
        );
    }
}
