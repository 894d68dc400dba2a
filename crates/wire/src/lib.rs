//! PostgreSQL messages over borrowed bytes.
#![forbid(unsafe_code)]
