//! What the bare pooler and the bench share: a blocking PostgreSQL session with SCRAM and TLS.

pub mod scram;
pub mod session;
pub mod tls;
