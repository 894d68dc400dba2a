//! What an import says of each key.

use howdah_config::Place;

/// What became of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Howdah has a setting of this name, and it means the same.
    Same,
    /// Howdah says it in another way.
    Mapped,
    /// Howdah has no counterpart.
    Lost,
    /// The key has no effect there, or needs none here.
    Unused,
    /// The key is not in the file. Its default there is not Howdah's, and the output states it.
    Default,
}

impl Verdict {
    /// The verdict in a word, for reports.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Mapped => "mapped",
            Verdict::Lost => "lost",
            Verdict::Unused => "without effect",
            Verdict::Default => "their default",
        }
    }
}

/// What an import says of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Where the key stands; `None` for what the file does not say.
    pub place: Option<Place>,
    /// The key, with its sections.
    pub key: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Why, and what helps. No value of a secret is in it.
    pub text: String,
    /// True for what was lost and decides who gets in or where writes go.
    pub decides: bool,
    /// True for a value that probably means something else.
    pub is_doubtful: bool,
}
