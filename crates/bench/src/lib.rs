//! Shared by the bare pooler and the bench: a blocking PostgreSQL session with SCRAM and TLS.

pub mod scram;
pub mod session;
pub mod tls;
