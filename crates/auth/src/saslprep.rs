//! Passwords in the form that SCRAM hashes: SASLprep (RFC 4013) as PostgreSQL applies it.
//!
//! PostgreSQL differs from the RFC in three ways. They decide whether a login succeeds, so Howdah does the
//! same: plain ASCII is never checked; text that SASLprep refuses is hashed unchanged; and prohibited
//! characters are looked for before normalisation, not after.
//! characters are looked for before, not after, normalisation.

use std::borrow::Cow;

use stringprep::tables;
use unicode_normalization::UnicodeNormalization;

/// The bytes of a password that go into the key derivation.
///
/// Never fails: text that is not UTF-8, or that SASLprep refuses, is returned unchanged.
pub fn prepare(password: &[u8]) -> Cow<'_, [u8]> {
    if password.is_ascii() {
        return Cow::Borrowed(password);
    }
    let prepared = str::from_utf8(password).ok().and_then(saslprep);
    match prepared {
        Some(text) => Cow::Owned(text.into_bytes()),
        None => Cow::Borrowed(password),
    }
}

fn saslprep(text: &str) -> Option<String> {
    let mapped: Vec<char> = text.chars().filter_map(mapped).collect();
    if mapped.is_empty() || mapped.iter().any(|&c| refused(c)) || !bidi_allowed(&mapped) {
        return None;
    }
    Some(mapped.into_iter().nfkc().collect())
}

/// RFC 4013, section 2.1. U+200B is in both tables; PostgreSQL makes it a space.
fn mapped(c: char) -> Option<char> {
    if tables::non_ascii_space_character(c) {
        Some(' ')
    } else if tables::commonly_mapped_to_nothing(c) {
        None
    } else {
        Some(c)
    }
}

/// RFC 4013, sections 2.3 and 2.5.
fn refused(c: char) -> bool {
    tables::ascii_control_character(c)
        || tables::non_ascii_control_character(c)
        || tables::private_use(c)
        || tables::non_character_code_point(c)
        || tables::surrogate_code(c)
        || tables::inappropriate_for_plain_text(c)
        || tables::inappropriate_for_canonical_representation(c)
        || tables::change_display_properties_or_deprecated(c)
        || tables::tagging_character(c)
        || tables::unassigned_code_point(c)
}

/// RFC 3454, section 6: right-to-left text begins and ends with right-to-left characters, and has
/// no left-to-right ones.
fn bidi_allowed(text: &[char]) -> bool {
    let right_to_left = |c: Option<&char>| c.is_some_and(|&c| tables::bidi_r_or_al(c));
    if !text.iter().any(|&c| tables::bidi_r_or_al(c)) {
        return true;
    }
    right_to_left(text.first())
        && right_to_left(text.last())
        && !text.iter().any(|&c| tables::bidi_l(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        for (password, expected) in [
            ("", ""),
            ("pencil", "pencil"),
            ("tab\tz", "tab\tz"),
            ("I\u{ad}X", "IX"),
            ("\u{aa}", "a"),
            ("\u{2168}", "IX"),
            ("a\u{a0}b", "a b"),
            ("a\u{200b}b", "a b"),
            // Text that SASLprep refuses stays unchanged.
            ("\u{ad}", "\u{ad}"),
            ("\u{627}1", "\u{627}1"),
            ("\u{627}a\u{627}\u{aa}", "\u{627}a\u{627}\u{aa}"),
            ("ctl\u{7}\u{aa}", "ctl\u{7}\u{aa}"),
            ("\u{340}\u{aa}", "\u{340}\u{aa}"),
            ("\u{fa70}\u{aa}", "\u{fa70}\u{aa}"),
            // Well-formed right-to-left text is normalised.
            ("\u{627}1\u{fe8d}", "\u{627}1\u{627}"),
        ] {
            assert_eq!(
                prepare(password.as_bytes()),
                expected.as_bytes(),
                "{password:?}"
            );
        }
        assert_eq!(*prepare(b"\xff\xaa"), *b"\xff\xaa");
    }
}
