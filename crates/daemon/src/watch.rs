//! `reload_on_change`: whether a file of the configuration has changed since it was read.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::machine::Machine;
use howdah_pooler::config::Surroundings;

/// The files that were read, and what patterns stood for, each with its state before that.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeenFiles(Vec<(String, SeenState)>);

/// What a file or a pattern was.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SeenState {
    /// Of a file, behind symbolic links: device, inode, size, and the times of its last change: of its
    /// text, and of what else is known of it. The second one shows a changed mode, and an edit that keeps
    /// the first.
    File(u64, u64, u64, [i64; 4]),
    /// No such file, or one that may not be looked at.
    Missing,
    /// The files that a pattern stands for, or why they can't be found.
    Pattern(Result<Vec<String>, String>),
}

impl SeenFiles {
    /// A file is about to be read.
    pub fn file(&mut self, path: &str) {
        if !self.0.iter().any(|(other, _)| other == path) {
            self.0.push((path.into(), state(path)));
        }
    }

    /// A pattern stands for these files.
    pub fn pattern(&mut self, pattern: &str, files: &Result<Vec<String>, String>) {
        let state = SeenState::Pattern(files.clone());
        self.0.push((pattern.into(), state));
    }

    /// The same files and patterns as they are now.
    pub fn again(&self) -> SeenFiles {
        let all = self.0.iter().map(|(path, before)| {
            let now = match before {
                SeenState::Pattern(_) => SeenState::Pattern(Machine::default().files(path)),
                _ => state(path),
            };
            (path.clone(), now)
        });
        SeenFiles(all.collect())
    }
}

fn state(path: &str) -> SeenState {
    match fs::metadata(path) {
        Ok(file) => SeenState::File(
            file.dev(),
            file.ino(),
            file.size(),
            [
                file.mtime(),
                file.mtime_nsec(),
                file.ctime(),
                file.ctime_nsec(),
            ],
        ),
        Err(_) => SeenState::Missing,
    }
}

/// What is known of the files' changes.
#[derive(Debug, Default)]
pub struct FileWatch {
    /// A thread is looking at the files.
    pub is_looking: bool,
    /// What the last look has found, if that was a change. Files are written in parts, so the next look
    /// must find the same.
    changed: Option<SeenFiles>,
}

impl FileWatch {
    /// Takes a look at the files. True if they have changed, and no longer change.
    pub fn is_settled(&mut self, read: &SeenFiles, now: &SeenFiles) -> bool {
        self.is_looking = false;
        if now == read {
            self.changed = None;
            return false;
        }
        if self.changed.as_ref() == Some(now) {
            self.changed = None;
            return true;
        }
        self.changed = Some(now.clone());
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_once_it_lasts() {
        let of = |size| SeenFiles(vec![("a".into(), SeenState::File(0, 0, size, [0; 4]))]);
        let (read, half, whole) = (of(1), of(2), of(3));
        let mut watch = FileWatch::default();
        assert!(!watch.is_settled(&read, &read));
        assert!(!watch.is_settled(&read, &half));
        assert!(!watch.is_settled(&read, &whole));
        assert!(watch.is_settled(&read, &whole));
        assert!(!watch.is_settled(&whole, &whole));
        assert!(!watch.is_settled(&whole, &half));
        assert!(!watch.is_settled(&whole, &whole));
        assert!(!watch.is_settled(&whole, &half));
    }
}
