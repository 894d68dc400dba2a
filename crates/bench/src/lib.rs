//! What the bare pooler and the bench share: a blocking PostgreSQL session with SCRAM.

pub mod scram;
pub mod session;
