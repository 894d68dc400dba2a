//! Where a secret comes from, if its text does not stand in the configuration.

use std::fmt;

use super::value::{Kind, Value};

/// The words that name a source in `{ source = "..." }`.
pub const SOURCES: [&str; 4] = ["aws-rds", "azure", "google", "vault"];

/// Where a secret comes from.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SecretSource {
    /// A file, whose text is the secret.
    File(String),
    /// A program and its arguments; the program prints the secret.
    Command(Vec<String>),
    /// Credentials of AWS, with which each login to RDS or Aurora signs a token.
    AwsRds(AwsSigning),
    /// A token of Microsoft Entra ID. With the client id of the identity; `None`: the environment's, or the
    /// machine's only one.
    Azure(Option<String>),
    /// A token of Google's metadata service.
    Google,
    /// What Vault has at a path: a new user (`database/creds/ROLE`), or a password that rotates
    /// (`database/static-creds/ROLE`).
    Vault(String),
}

/// What a login by AWS's IAM signs, where the configuration says so.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct AwsSigning {
    /// The region. `None`: the region in the host's name, else the environment's.
    pub region: Option<String>,
    /// The host's name in the token, if `host` is an alias of it.
    pub sign_host: Option<String>,
}

impl SecretSource {
    /// What is fetched: credentials of AWS serve all hosts.
    pub fn fetched(&self) -> SecretSource {
        match self {
            SecretSource::AwsRds(_) => SecretSource::AwsRds(AwsSigning::default()),
            own => own.clone(),
        }
    }

    /// A command of these words.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn command(words: &[&str]) -> Result<SecretSource, String> {
        match words.first() {
            Some(program) if program.starts_with('/') => {}
            _ => {
                return Err("a command begins with the whole path of a program: /opt/token".into());
            }
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err("there is a zero byte in it".into());
        }
        let words = words.iter().map(|word| (*word).to_owned());
        Ok(SecretSource::Command(words.collect()))
    }

    /// A source in the words of an ini file: a command, or a name with options, parted by blanks.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn of_words(is_command: bool, text: &str) -> Result<SecretSource, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if is_command {
            return SecretSource::command(&words);
        }
        let Some((name, options)) = words.split_first() else {
            return SecretSource::named("", &[]);
        };
        let options = options.iter().map(|word| word.split_once('='));
        let options: Option<Vec<_>> = options.collect();
        let options = options.ok_or("write the options as KEY=VALUE, parted by blanks")?;
        SecretSource::named(name, &options)
    }

    /// A source by its name, with its options.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn named(name: &str, options: &[(&str, &str)]) -> Result<SecretSource, String> {
        let keys: &[&str] = match name {
            "aws-rds" => &["region", "sign_host"],
            "azure" => &["client_id"],
            "google" => &[],
            "vault" => &["path"],
            _ => {
                let there = SOURCES.join(", ");
                return Err(format!(
                    "unknown source \"{name}\": there are {there}, files and commands"
                ));
            }
        };
        for (key, value) in options {
            let marks = if *key == "path" { "-._/" } else { "-._" };
            let is_name = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
            if !keys.contains(key) {
                let there = match keys {
                    [] => "it has none".to_owned(),
                    keys => format!("there is {}", keys.join(" and ")),
                };
                return Err(format!("{name} has no option {key}: {there}"));
            }
            if value.is_empty() || !value.chars().all(is_name) {
                return Err(format!(
                    "{key} must be a name of letters, digits and {marks}"
                ));
            }
        }
        let option = |name: &str| {
            let found = options.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Ok(match name {
            "azure" => SecretSource::Azure(option("client_id")),
            "google" => SecretSource::Google,
            "vault" => {
                let path = option("path").ok_or("vault needs path = \"database/creds/ROLE\"")?;
                let parts: Vec<&str> = path.split('/').collect();
                let is_whole = parts
                    .iter()
                    .all(|part| !part.is_empty() && !part.contains(".."));
                let kind = parts.iter().rev().nth(1);
                if !is_whole || !matches!(kind, Some(&"creds" | &"static-creds")) {
                    return Err(
                        "a path of Vault is database/creds/ROLE or database/static-creds/ROLE"
                            .into(),
                    );
                }
                SecretSource::Vault(path)
            }
            _ => SecretSource::AwsRds(AwsSigning {
                region: option("region"),
                sign_host: option("sign_host"),
            }),
        })
    }

    /// The name of a source that has one, and its options.
    pub(super) fn in_words(&self) -> Option<(&'static str, Vec<(&'static str, &str)>)> {
        Some(match self {
            SecretSource::File(_) | SecretSource::Command(_) => return None,
            SecretSource::AwsRds(signing) => {
                let region = signing.region.iter().map(|text| ("region", text.as_str()));
                let host = signing.sign_host.iter();
                let host = host.map(|text| ("sign_host", text.as_str()));
                ("aws-rds", region.chain(host).collect())
            }
            SecretSource::Azure(id) => {
                let id = id.iter().map(|id| ("client_id", id.as_str()));
                ("azure", id.collect())
            }
            SecretSource::Google => ("google", Vec::new()),
            SecretSource::Vault(path) => ("vault", vec![("path", path)]),
        })
    }

    /// True if the source gives users that are made for Howdah.
    pub fn makes_users(&self) -> bool {
        match self {
            SecretSource::Vault(path) => path.rsplit('/').nth(1) == Some("creds"),
            _ => false,
        }
    }

    /// True if the source gives tokens, which PostgreSQL takes in clear text.
    pub fn gives_tokens(&self) -> bool {
        matches!(
            self,
            SecretSource::AwsRds(_) | SecretSource::Azure(_) | SecretSource::Google
        )
    }
}

/// What may be shown: arguments of a command may be secrets.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "file {path}"),
            SecretSource::Command(words) => {
                write!(f, "command {}", words.first().map_or("", String::as_str))
            }
            SecretSource::AwsRds(_) => f.write_str("aws-rds"),
            SecretSource::Azure(_) => f.write_str("azure"),
            SecretSource::Google => f.write_str("google"),
            SecretSource::Vault(path) => write!(f, "vault {path}"),
        }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A secret text: as written, of a file, or fetched later. When printed, stars stand for the text.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText {
    text: String,
    /// Another password that is right, too.
    second: Option<String>,
    source: Option<SecretSource>,
}

impl SecretText {
    /// Where the secret comes from, if it does not stand in the configuration. The text of a file is
    /// here, too, as it was when the configuration was read.
    pub fn source(&self) -> Option<&SecretSource> {
        self.source.as_ref()
    }

    /// The second of two passwords.
    pub fn second(&self) -> Option<&str> {
        self.second.as_deref()
    }

    /// The line of the configuration's readers for a secret with a source. Written secrets never begin
    /// with a zero byte.
    pub(super) fn line_of(source: &SecretSource, text: &str) -> String {
        let words: Vec<&str> = match source {
            SecretSource::File(path) => vec!["file", path, text],
            SecretSource::Command(words) => {
                let words = words.iter().map(String::as_str);
                ["command"].into_iter().chain(words).collect()
            }
            named => {
                let (name, options) = named.in_words().unwrap_or_default();
                let options = options.into_iter();
                let options = options.map(|(key, value)| format!("\0{key}={value}"));
                return format!("\0source\0{name}{}", options.collect::<String>());
            }
        };
        format!("\0{}", words.join("\0"))
    }

    /// The line of the configuration's readers for two passwords.
    pub(super) fn line_of_two(first: &str, second: &str) -> String {
        format!("\0either\0{first}\0{second}")
    }

    /// The source in a line of the configuration's readers.
    pub(super) fn source_in(line: &str) -> Option<SecretSource> {
        SecretText::read(line)?.source
    }
}

impl std::ops::Deref for SecretText {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("****")
    }
}

impl Value for SecretText {
    const KIND: Kind = Kind::Secret;
    fn read(line: &str) -> Option<SecretText> {
        let Some(line) = line.strip_prefix('\0') else {
            return Some(SecretText {
                text: line.into(),
                second: None,
                source: None,
            });
        };
        let words: Vec<&str> = line.split('\0').collect();
        let (text, second, source) = match *words {
            ["file", path, text] => (text, None, Some(SecretSource::File(path.into()))),
            ["command", ref words @ ..] => ("", None, SecretSource::command(words).ok()),
            ["source", name, ref options @ ..] => {
                let options: Option<Vec<_>> = options.iter().map(|it| it.split_once('=')).collect();
                ("", None, SecretSource::named(name, &options?).ok())
            }
            ["either", first, second] => (first, Some(second.to_owned()), None),
            _ => return None,
        };
        Some(SecretText {
            text: text.into(),
            second,
            source,
        })
    }
    fn show(&self) -> Option<String> {
        Some(match &self.source {
            Some(source) => source.to_string(),
            None if self.text.is_empty() => String::new(),
            None => "****".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_source() {
        let signing = |region: Option<&str>, host: Option<&str>| {
            SecretSource::AwsRds(AwsSigning {
                region: region.map(String::from),
                sign_host: host.map(String::from),
            })
        };
        for source in [
            SecretSource::File("/run/a b".into()),
            SecretSource::Command(vec!["/bin/x".into(), String::new(), "a b".into()]),
            signing(None, None),
            signing(Some("eu-west-1"), None),
            signing(None, Some("db.example")),
            SecretSource::Azure(None),
            SecretSource::Azure(Some("7-f".into())),
            SecretSource::Google,
            SecretSource::Vault("database/creds/app".into()),
        ] {
            let line = SecretText::line_of(&source, "text");
            assert_eq!(SecretText::source_in(&line), Some(source.clone()));
            let shown = SecretText::read(&line).and_then(|it| it.show());
            assert!(!shown.unwrap().contains("text"), "{source}");
        }
        let two = SecretText::read(&SecretText::line_of_two("a", "b")).unwrap();
        assert_eq!((&*two, two.second()), ("a", Some("b")));
        assert_eq!(two.show().as_deref(), Some("****"));
        assert_eq!(SecretText::source_in("a\0b"), None);
    }

    #[test]
    fn what_no_source_is() {
        assert!(SecretSource::command(&["token"]).is_err());
        assert!(SecretSource::command(&[]).is_err());
        let unknown = SecretSource::named("gcp", &[]).unwrap_err();
        assert!(unknown.contains("google"), "{unknown}");
        assert!(SecretSource::named("google", &[("region", "x")]).is_err());
        for path in [
            "database/app",
            "creds/app/",
            "x/creds/../y",
            "/creds/x",
            "a/creds/b?c",
        ] {
            assert!(
                SecretSource::named("vault", &[("path", path)]).is_err(),
                "{path}"
            );
        }
        assert!(SecretSource::named("vault", &[]).is_err());
        assert!(SecretSource::named("aws-rds", &[("regoin", "x")]).is_err());
        assert!(SecretSource::named("aws-rds", &[("region", "a/b")]).is_err());
    }
}
