//! Settings of PostgreSQL that servers' sessions start with: `parameters` of `howdah.toml`, `options` of
//! an ini file's entry.

use super::value::{Kind, Value};

/// Parameters of the start-up packet that are no settings of a session.
const REFUSED: [&str; 4] = ["user", "database", "replication", "options"];

/// Settings of PostgreSQL by their names, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// True without a setting.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a setting is among them. Names have no case.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
    }

    /// The value of a setting, if it is among them.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.iter();
        let found = all.find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Sets a setting, in place of its earlier value.
    fn set(&mut self, name: &str, value: &str) {
        self.0.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self.0.push((name.into(), value.into()));
    }

    /// These, and others that go before them.
    pub(super) fn under(&self, others: &Parameters) -> Parameters {
        let mut all = self.clone();
        for (name, value) in others.iter() {
            all.set(name, value);
        }
        all
    }

    /// The settings as `options` of a start-up packet.
    pub fn options(&self) -> String {
        options(self.iter())
    }
}

/// Settings in the form of `options`.
pub(super) fn options<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let words = settings.map(|(name, value)| {
        let mut word = format!("{name}=");
        for c in value.chars() {
            if c == '\\' || c.is_ascii_whitespace() || c == '\x0b' {
                word.push('\\');
            }
            word.push(c);
        }
        format!("-c {word}")
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The words of `options`: blanks part them, and a backslash takes the next character as it is.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\t'..='\r' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(characters.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

impl Value for Parameters {
    const KIND: Kind = Kind::Parameters;
    fn read(text: &str) -> Option<Parameters> {
        let mut all = Parameters::default();
        let words = words(text);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let setting = match word.as_str() {
                "-c" => words.next()?,
                word => word
                    .strip_prefix("-c")
                    .or_else(|| word.strip_prefix("--"))?,
            };
            let (name, value) = setting.split_once('=')?;
            let name = name.replace('-', "_");
            let plain = |c: char| c.is_alphanumeric() || "_.$".contains(c);
            let refused = REFUSED
                .iter()
                .any(|other| other.eq_ignore_ascii_case(&name));
            if name.is_empty() || refused || name.starts_with("_pq_.") || !name.chars().all(plain) {
                return None;
            }
            all.set(&name, value);
        }
        Some(all)
    }
    fn show(&self) -> Option<String> {
        Some(self.options())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_written() {
        for (text, options) in [
            ("", ""),
            ("-c a=b", "-c a=b"),
            ("-ca=b --c-d=e", "-c a=b -c c_d=e"),
            ("-c a=b\\ c\\\\ -c a.x=", "-c a=b\\ c\\\\ -c a.x="),
            ("-c a=1 -c A=2", "-c A=2"),
        ] {
            let seen = Parameters::read(text).unwrap();
            assert_eq!(seen.options(), options, "{text}");
            assert_eq!(Parameters::read(options).unwrap(), seen);
        }
        for text in [
            "a=b",
            "-c",
            "-c a",
            "-c =b",
            "-d a=b",
            "-c user=x",
            "-c Database=x",
            "-c options=x",
            "-c replication=1",
            "-c _pq_.x=1",
            "-c a'=1",
        ] {
            assert_eq!(Parameters::read(text), None, "{text}");
        }
    }
}
