//! What workers tell each other.

/// A message between workers of one process.
#[derive(Debug)]
pub enum Mail {}
