//! Howdah.
fn main() {}
