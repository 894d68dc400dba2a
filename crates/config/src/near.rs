//! Words that are nearly right.

/// The known word that is most like a text, if one is like it.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = match text.len() {
        ..4 => 1,
        length => 2.max(length / 4),
    };
    let near = known.into_iter().map(|word| (distance(word, text), word));
    let near = near.min().filter(|&(distance, _)| distance <= allowed);
    near.map(|(_, word)| word)
}

/// The Levenshtein distance: the number of letters to add, remove or change.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_like_a_word_is_near() {
        let known = ["pools", "fds", "clients", "stats"];
        for (text, near) in [
            ("pool", Some("pools")),
            ("cleints", Some("clients")),
            ("fd", Some("fds")),
            ("foo", None),
            ("elephants", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, known), near, "{text}");
        }
    }
}
