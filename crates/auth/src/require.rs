//! `require_auth`: the methods with which a server may ask Howdah for a proof, in libpq's words. Without this
//! setting, an attacker in PostgreSQL's place could ask for the password in clear text.

use std::fmt;

use super::code;

/// The methods that a server can ask for and libpq has words for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerMethod {
    /// `none`: the server asks for no proof.
    Nothing,
    /// `password`: the password in clear text.
    Password,
    /// `md5`: a hash of the password.
    Md5,
    /// `scram-sha-256`: with channel binding or without.
    Scram,
    /// `gss`, `sspi` and `oauth`, which Howdah does not support.
    Foreign,
}

/// libpq's words.
const WORDS: &[(&str, ServerMethod)] = &[
    ("password", ServerMethod::Password),
    ("md5", ServerMethod::Md5),
    ("gss", ServerMethod::Foreign),
    ("sspi", ServerMethod::Foreign),
    ("scram-sha-256", ServerMethod::Scram),
    ("oauth", ServerMethod::Foreign),
    ("none", ServerMethod::Nothing),
];

impl ServerMethod {
    /// The method that begins with this authentication request. `None` for an unknown request,
    /// which is refused anyway.
    pub fn of_request(request: u32) -> Option<Self> {
        Some(match request {
            code::OK => Self::Nothing,
            code::CLEARTEXT => Self::Password,
            code::MD5 => Self::Md5,
            code::SASL => Self::Scram,
            _ => return None,
        })
    }

    /// The text for error messages.
    pub fn what_the_server_did(self) -> &'static str {
        match self {
            Self::Nothing => "did not ask for a proof",
            Self::Password => "asked for the password in clear text",
            Self::Md5 => "asked for the password hashed by MD5",
            Self::Scram => "asked for SASL",
            Self::Foreign => "asked for GSSAPI or OAuth",
        }
    }
}

/// The allowed methods.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RequireAuth {
    /// The setting's text; empty allows every method.
    written: String,
}

impl RequireAuth {
    /// Reads methods separated by commas. Either all methods begin with `!` and are forbidden, or
    /// none does and only they are allowed.
    ///
    /// # Errors
    /// The mistake in the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut seen: Vec<&str> = Vec::new();
        let negated = text.trim_start().starts_with('!');
        for word in words(text) {
            let name = word.strip_prefix('!').unwrap_or(word);
            if word.starts_with('!') != negated {
                return Err("methods with ! and without it can't be mixed".into());
            }
            if !WORDS.iter().any(|(known, _)| *known == name) {
                let known: Vec<_> = WORDS.iter().map(|(word, _)| *word).collect();
                return Err(format!(
                    "\"{name}\" is no method: there are {}",
                    known.join(", ")
                ));
            }
            if seen.contains(&name) {
                return Err(format!("{name} stands in it twice"));
            }
            seen.push(name);
        }
        Ok(Self {
            written: text.into(),
        })
    }

    /// Whether a server may ask for this method.
    pub fn allows(&self, method: ServerMethod) -> bool {
        if self.written.is_empty() {
            return true;
        }
        let negated = self.written.trim_start().starts_with('!');
        let named = words(&self.written).any(|word| {
            let name = word.strip_prefix('!').unwrap_or(word);
            WORDS.contains(&(name, method))
        });
        named != negated
    }
}

/// An empty text has no words. An empty word between commas is a mistake: the error shows the list
/// of words.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let all = (!text.is_empty()).then(|| text.split(',').map(str::trim));
    all.into_iter().flatten()
}

/// The setting's text.
impl fmt::Display for RequireAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ServerMethod::*;

    #[test]
    fn words_as_libpq_reads_them() {
        for (text, allowed) in [
            ("", &[Nothing, Password, Md5, Scram][..]),
            ("scram-sha-256", &[Scram]),
            ("scram-sha-256,md5", &[Md5, Scram]),
            ("scram-sha-256, md5", &[Md5, Scram]),
            ("none", &[Nothing]),
            ("none,scram-sha-256", &[Nothing, Scram]),
            ("!password", &[Nothing, Md5, Scram]),
            ("!password,!md5", &[Nothing, Scram]),
            ("!none", &[Password, Md5, Scram]),
            ("gss", &[]),
            ("!gss,!sspi", &[Nothing, Password, Md5, Scram]),
        ] {
            let required = RequireAuth::parse(text).expect(text);
            for method in [Nothing, Password, Md5, Scram] {
                let allows = required.allows(method);
                assert_eq!(allows, allowed.contains(&method), "{text}: {method:?}");
            }
            assert_eq!(required.to_string(), text);
        }
    }

    #[test]
    fn what_libpq_refuses() {
        for (text, why) in [
            ("scram", "\"scram\" is no method"),
            ("SCRAM-SHA-256", "is no method"),
            ("scram-sha-256,", "\"\" is no method"),
            ("!", "\"\" is no method"),
            ("md5,!password", "mixed"),
            ("!password,md5", "mixed"),
            ("md5,md5", "md5 stands in it twice"),
            ("!md5,!md5", "twice"),
        ] {
            let refused = RequireAuth::parse(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
