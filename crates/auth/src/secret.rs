//! A user's stored password, in one of three kinds.

use std::fmt;

use super::verifier::Verifier;

/// A stored password from `userlist.txt`, `auth_query` or a `password=`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Secret {
    /// The password itself.
    Plain(String),
    /// `md5` and 32 lower-case hexadecimal digits: the MD5 of password and user name.
    Md5(String),
    /// `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, see [`Verifier`].
    Scram(String),
}

impl Secret {
    /// Finds the kind of a text by PostgreSQL's rules: a text that is neither a well-formed MD5
    /// secret nor a well-formed SCRAM secret is a password.
    pub fn classify(text: impl Into<String>) -> Self {
        let text = text.into();
        if is_md5(&text) {
            Self::Md5(text)
        } else if Verifier::parse(&text).is_some() {
            Self::Scram(text)
        } else {
            Self::Plain(text)
        }
    }

    /// The text that [`Secret::classify`] took.
    pub fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Md5(text) | Self::Scram(text) => text,
        }
    }
}

/// Overwrites a text, so that no secret stays in freed memory.
pub fn wipe(text: &mut String) {
    let mut bytes = std::mem::take(text).into_bytes();
    bytes.fill(0);
    std::hint::black_box(&bytes);
}

/// Bytes that hold a secret. They are overwritten when they are dropped.
pub struct SecretBytes(pub Vec<u8>);

impl std::ops::Deref for SecretBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&self.0);
    }
}

/// Prints none of them.
impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        match self {
            Self::Plain(text) | Self::Md5(text) | Self::Scram(text) => wipe(text),
        }
    }
}

/// Prints only the kind: a secret that is logged by mistake does no harm.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Md5(_) => "Md5(..)",
            Self::Scram(_) => "Scram(..)",
        })
    }
}

fn is_md5(text: &str) -> bool {
    text.len() == 35
        && text.starts_with("md5")
        && text
            .bytes()
            .skip(3)
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        let md5 = "md5c1add164b782f19e776b4181b75d298e";
        let scram = "SCRAM-SHA-256$4096:W7rlyLVkwGiV5i0YGKTiKA==\
            $fg/d3AUjON6PulXjBFypS8ezSSZSgzdeI1dHovdU1/c=\
            :wMWn0TX14FB7aJSEnN2K1lMfKohyxpjbETdj/G1X5Wk=";
        assert_eq!(Secret::classify(md5), Secret::Md5(md5.into()));
        assert_eq!(Secret::classify(scram), Secret::Scram(scram.into()));
        for plain in [
            "",
            "pencil",
            "md5",
            "md5C1ADD164B782F19E776B4181B75D298E",
            "md5c1add164b782f19e776b4181b75d298",
            "md5c1add164b782f19e776b4181b75d298e0",
            "SCRAM-SHA-256$4096:W7rlyLVkwGiV5i0YGKTiKA==",
            &scram[..scram.len() - 1],
        ] {
            assert_eq!(
                Secret::classify(plain),
                Secret::Plain(plain.into()),
                "{plain}"
            );
        }
    }

    #[test]
    fn debug_hides_the_text() {
        assert_eq!(format!("{:?}", Secret::classify("pencil")), "Plain(..)");
    }
}
