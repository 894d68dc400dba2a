//! Settings: text in, one immutable value out, swapped whole on reload.

/// Everything the configuration says.
#[derive(Debug)]
pub struct Config {}
