//! The events of a run, for people, and its violation.

use std::fmt;

use howdah_pooler::event::Time;

/// The actor that a line of the story is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Who {
    /// A simulated client.
    Client(u32),
    /// One of PostgreSQL's processes, by its process id.
    Backend(u32),
    /// One of Howdah's workers.
    Worker(u16),
    /// The world as a whole.
    World,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Client(id) => write!(f, "client {id}"),
            Who::Backend(pid) => write!(f, "postgres {pid}"),
            Who::Worker(id) => write!(f, "worker {id}"),
            Who::World => f.write_str("world"),
        }
    }
}

/// Something that a checker does not accept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The checker's short name.
    pub checker: &'static str,
    /// What the checker has seen.
    pub text: String,
    /// The actors concerned.
    pub who: Vec<Who>,
}

/// The story of a run.
#[derive(Default)]
pub struct Story {
    /// Lines are recorded.
    pub told: bool,
    lines: Vec<(Time, Who, String)>,
    /// The first violation; the run ends with it.
    pub violation: Option<Violation>,
}

impl Story {
    /// Adds a line. The line is made only if the story is recorded.
    pub fn tell(&mut self, now: Time, who: Who, line: impl FnOnce() -> String) {
        if self.told {
            self.lines.push((now, who, line()));
        }
    }

    /// Records a violation.
    pub fn violate(&mut self, checker: &'static str, who: &[Who], text: String) {
        if self.violation.is_none() {
            let who = who.to_vec();
            self.violation = Some(Violation { checker, text, who });
        }
    }

    /// The last `most` lines about the violation's actors and the world.
    pub fn about(&self, most: usize) -> Vec<String> {
        let whom = self.violation.as_ref().map_or(&[][..], |v| &v.who);
        let wanted = |who: &Who| whom.is_empty() || *who == Who::World || whom.contains(who);
        let mut lines: Vec<String> = self
            .lines
            .iter()
            .rev()
            .filter(|(_, who, _)| wanted(who))
            .take(most)
            .map(|(at, who, line)| {
                let micros = at.0 / 1000;
                format!(
                    "{:>5}.{:06} {:<14} {line}",
                    micros / 1_000_000,
                    micros % 1_000_000,
                    who.to_string()
                )
            })
            .collect();
        lines.reverse();
        lines
    }

    /// All lines.
    pub fn all(&self) -> Vec<String> {
        self.lines
            .iter()
            .map(|(at, who, line)| format!("{:>13} {:<14} {line}", at.0 / 1000, who.to_string()))
            .collect()
    }
}

/// A stream's bytes as a few words: tags, and the beginnings of texts.
pub fn words(bytes: &[u8]) -> String {
    let mut words = String::new();
    for &byte in bytes.iter().take(160) {
        if byte.is_ascii_graphic() || byte == b' ' {
            words.push(char::from(byte));
        } else if !words.ends_with('.') {
            words.push('.');
        }
    }
    if bytes.len() > 160 {
        words.push_str(&format!("... ({} bytes)", bytes.len()));
    }
    words
}
