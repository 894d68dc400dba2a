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

/// The number of letters to add, remove, change, or exchange with the next one.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut older: Vec<usize> = Vec::new();
    let mut old: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let change = old[j] + usize::from(a[i] != b[j]);
            let mut least = change.min(old[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(older[j - 1] + 1);
            }
            row.push(least);
        }
        older = std::mem::replace(&mut old, row);
    }
    old[b.len()]
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
            ("fsd", Some("fds")),
            ("foo", None),
            ("elephants", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, known), near, "{text}");
        }
    }
}
