//! Where a secret comes from, if its text does not stand in the configuration.

use std::fmt;

use super::value::{Kind, Value};

/// The words that name a source in `{ source = "..." }`.
pub const SOURCES: [&str; 1] = ["aws-rds"];

/// Where a secret comes from.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SecretSource {
    /// A file, whose text is the secret.
    File(String),
    /// A program and its arguments; the program prints the secret.
    Command(Vec<String>),
    /// Credentials of AWS, with which each login to RDS or Aurora signs a token.
    AwsRds(AwsSigning),
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
        let options = options.ok_or("write the options as region=NAME sign_host=NAME")?;
        SecretSource::named(name, &options)
    }

    /// A source by its name, with its options.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn named(name: &str, options: &[(&str, &str)]) -> Result<SecretSource, String> {
        if name != "aws-rds" {
            let there = SOURCES.join(", ");
            return Err(format!(
                "unknown source \"{name}\": there are {there}, files and commands"
            ));
        }
        let mut signing = AwsSigning::default();
        for (key, value) in options {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if value.is_empty() || !value.chars().all(is_name) {
                return Err(format!("{key} must be a name of letters, digits and -._"));
            }
            match *key {
                "region" => signing.region = Some((*value).into()),
                "sign_host" => signing.sign_host = Some((*value).into()),
                _ => {
                    return Err(format!(
                        "aws-rds has no option {key}: there are region and sign_host"
                    ));
                }
            }
        }
        Ok(SecretSource::AwsRds(signing))
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
            SecretSource::AwsRds(signing) => {
                let option = |option: &Option<String>| option.clone().unwrap_or_default();
                let (region, host) = (option(&signing.region), option(&signing.sign_host));
                return format!("\0aws-rds\0{region}\0{host}");
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
        let given = |word: &str| (!word.is_empty()).then(|| word.to_owned());
        let (text, second, source) = match *words {
            ["file", path, text] => (text, None, Some(SecretSource::File(path.into()))),
            ["command", ref words @ ..] => ("", None, SecretSource::command(words).ok()),
            ["aws-rds", region, host] => {
                let signing = AwsSigning {
                    region: given(region),
                    sign_host: given(host),
                };
                ("", None, Some(SecretSource::AwsRds(signing)))
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
        let unknown = SecretSource::named("vault", &[]).unwrap_err();
        assert!(unknown.contains("aws-rds"), "{unknown}");
        assert!(SecretSource::named("aws-rds", &[("regoin", "x")]).is_err());
        assert!(SecretSource::named("aws-rds", &[("region", "a/b")]).is_err());
    }
}
