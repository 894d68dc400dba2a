//! `docs/moving-from-others.md`, printed from the tables of keys.

/// The page.
pub fn page() -> String {
    String::new()
}
