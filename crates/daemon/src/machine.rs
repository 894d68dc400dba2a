//! This machine's files and variables, for the reader of a configuration.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::ErrorKind;

use howdah_pooler::config::Surroundings;

use crate::watch::SeenFiles;
use crate::{boot, log};

/// This machine.
#[derive(Default)]
pub struct Machine {
    /// The files with secrets that everybody may read.
    pub exposed: Vec<String>,
    /// The files that were read, and the patterns.
    pub seen: SeenFiles,
    /// The states of the files that were read, by path: as they were under the very descriptors.
    pub states: HashMap<String, Vec<Metadata>>,
}

impl Surroundings for Machine {
    fn file(&mut self, path: &str) -> Result<String, String> {
        self.seen.file(path);
        let (text, state) = boot::read_with_state(path)?;
        self.states.entry(path.into()).or_default().push(state);
        Ok(text)
    }

    fn secret(&mut self, path: &str) -> Result<String, String> {
        use std::os::unix::fs::PermissionsExt;
        let text = self.file(path)?;
        let last = self.states.get(path).and_then(|states| states.last());
        if last.is_some_and(|state| state.permissions().mode() & 0o004 != 0) {
            self.exposed.push(path.into());
        }
        Ok(text)
    }

    fn files(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let found = behind(pattern);
        self.seen.pattern(pattern, &found);
        found
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn variables(&mut self, beginning: &str) -> Vec<(String, String)> {
        let all = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let value = value.to_string_lossy().into_owned();
            name.starts_with(beginning).then_some((name, value))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all
    }
}

/// The files that a pattern stands for.
fn behind(pattern: &str) -> Result<Vec<String>, String> {
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![root.to_owned()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = if part.contains(['*', '?']) {
            let mut all = Vec::new();
            for folder in &found {
                all.extend(matching(folder, part)?);
            }
            all
        } else {
            found.iter().map(|folder| joined(folder, part)).collect()
        };
    }
    // Behind a pattern for folders, some of them may not have the file.
    found.retain(|path| fs::metadata(path).is_ok_and(|what| what.is_file()));
    found.sort_unstable();
    Ok(found)
}

/// The entries of a folder whose names match a pattern. Like a shell's, a pattern leaves hidden ones
/// out. A folder that is missing has none.
fn matching(folder: &str, pattern: &str) -> Result<Vec<String>, String> {
    let place = if folder.is_empty() { "." } else { folder };
    let entries = match fs::read_dir(place) {
        Ok(entries) => entries,
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(why) => return Err(log::text(&why)),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let fits = |name: &String| !name.starts_with('.') && fits(name, pattern);
    Ok(names
        .filter(fits)
        .map(|name| joined(folder, &name))
        .collect())
}

fn joined(folder: &str, name: &str) -> String {
    match folder {
        "" => name.into(),
        "/" => format!("/{name}"),
        folder => format!("{folder}/{name}"),
    }
}

/// Whether a name matches a pattern, in which `*` stands for any text and `?` for one character.
fn fits(name: &str, pattern: &str) -> bool {
    let (name, pattern): (Vec<char>, Vec<char>) =
        (name.chars().collect(), pattern.chars().collect());
    let (mut at, mut of) = (0, 0);
    // Where the last `*` is, and up to where it stands for the name.
    let mut star = None;
    while at < name.len() {
        match pattern.get(of) {
            Some('*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(c) if *c == '?' || *c == name[at] => (at, of) = (at + 1, of + 1),
            _ => {
                let Some((place, until)) = star else {
                    return false;
                };
                star = Some((place, until + 1));
                (at, of) = (until + 1, place + 1);
            }
        }
    }
    pattern[of..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, does) in [
            ("*", "", true),
            ("*.toml", "a.toml", true),
            ("*.toml", "a.toml~", false),
            ("*a*b", "xaxab", true),
            ("*a*b", "xaxa", false),
            ("a?c", "aäc", true),
            ("a?c", "ac", false),
            ("**", "x", true),
            ("a", "a", true),
            ("a", "b", false),
        ] {
            assert_eq!(fits(name, pattern), does, "{pattern} {name}");
        }
    }
}
