//! Values of metrics by a word, their additional label.

use crate::tls::Handshakes;

/// Values by an additional label.
pub(super) type ByWord = Vec<(&'static str, f64)>;

/// 1 or 0.
pub(super) fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// The three ends of handshakes.
pub(super) fn handshakes(counts: &Handshakes) -> ByWord {
    vec![
        ("full", counts.full as f64),
        ("resumed", counts.resumed as f64),
        ("failed", counts.failed as f64),
    ]
}

/// Counts by their words.
pub(super) fn by_word(words: &[&'static str], counts: &[u64]) -> ByWord {
    let counts = counts.iter().map(|count| *count as f64);
    words.iter().copied().zip(counts).collect()
}

/// Counts, without those that are 0: most pools have none of them.
pub(super) fn told(counts: impl Iterator<Item = (&'static str, u64)>) -> ByWord {
    let counts = counts.filter(|(_, count)| *count > 0);
    counts.map(|(word, count)| (word, count as f64)).collect()
}
