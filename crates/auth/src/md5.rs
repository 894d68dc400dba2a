//! The md5 method: `md5` and MD5(MD5(password, user), salt), in hexadecimal.

use ::md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use super::Secret;

/// A password message of this method: `md5` and 32 hexadecimal digits.
pub type Response = [u8; 35];

/// The secret that PostgreSQL stores for a user with this password.
pub fn secret(user: &str, password: &[u8]) -> Response {
    response_of(password, user.as_bytes())
}

/// The answer to a challenge, from a secret (`md5` and 32 digits).
pub fn response(secret: &[u8], salt: [u8; 4]) -> Response {
    response_of(secret.get(3..).unwrap_or_default(), &salt)
}

/// The answer to a challenge for a user whose password or MD5 secret is known; `None` from a SCRAM
/// secret.
pub fn answer(user: &str, known: &Secret, salt: [u8; 4]) -> Option<Response> {
    match known {
        Secret::Plain(password) => Some(response(&secret(user, password.as_bytes()), salt)),
        Secret::Md5(text) => Some(response(text.as_bytes(), salt)),
        Secret::Scram(_) => None,
    }
}

/// Whether `given` answers the challenge.
pub fn check(user: &str, known: &Secret, salt: [u8; 4], given: &[u8]) -> bool {
    answer(user, known, salt).is_some_and(|expected| expected.as_slice().ct_eq(given).into())
}

fn response_of(first: &[u8], second: &[u8]) -> Response {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = Md5::new()
        .chain_update(first)
        .chain_update(second)
        .finalize();
    let mut text = *b"md5................................";
    for (i, byte) in hash.iter().enumerate() {
        text[3 + 2 * i] = DIGITS[usize::from(byte >> 4)];
        text[4 + 2 * i] = DIGITS[usize::from(byte & 15)];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by PostgreSQL 15: `create role m2 password 'sekret'` under `password_encryption=md5`.
    const SECRET: &str = "md5c1add164b782f19e776b4181b75d298e";

    #[test]
    fn postgresql_and_we_agree() {
        assert_eq!(secret("m2", b"sekret"), SECRET.as_bytes());
    }

    #[test]
    fn password_and_secret_give_the_same_answer() {
        let salt = [1, 2, 0, 255];
        let plain = Secret::Plain("sekret".into());
        let md5 = Secret::classify(SECRET);
        let answer = answer("m2", &plain, salt).unwrap();
        assert!(check("m2", &md5, salt, &answer));
        assert!(check("m2", &plain, salt, &answer));
        assert!(!check("m3", &plain, salt, &answer));
        assert!(!check("m2", &md5, [1, 2, 0, 254], &answer));
        assert!(!check("m2", &md5, salt, &answer[..34]));
        assert!(!check("m2", &md5, salt, b""));
        assert!(!check("m2", &Secret::Scram(String::new()), salt, &answer));
    }
}
