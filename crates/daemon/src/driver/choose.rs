//! Which driver the process uses.
