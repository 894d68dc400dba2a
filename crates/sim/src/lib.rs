//! A seeded world around Howdah's production code.
//!
//! [`world::World`] is the network and the clock; [`driver::SimDriver`] connects a worker to it. Outside of
//! Howdah are [`postgres::Postgres`], a PostgreSQL with a small vocabulary, and [`client::Client`]s. A
//! [`session::Session`] has two uses: each process of PostgreSQL is one, and each client has one as the
//! reference for its replies. For a client behind a pooler must receive what a session of its own would send.
//! [`scenario::Scenario`] chooses from a seed what kind of run it is, and [`run::run`] plays it. Everything
//! runs in one thread, and the same seed gives the same run.
#![forbid(unsafe_code)]

pub mod board;
pub mod chance;
pub mod client;
pub mod control;
pub mod cores;
pub mod driver;
pub mod forwarder;
pub mod grammar;
pub mod hearing;
pub mod host;
pub mod journal;
pub mod line;
pub mod mishap;
pub mod postgres;
pub mod process;
pub mod reference;
pub mod run;
pub mod scenario;
pub mod schema;
pub mod seen;
pub mod session;

pub mod settings;
pub mod sharding;
pub mod sql;
pub mod story;
pub mod successor;
pub mod tls;
pub mod verdict;
pub mod view;
pub mod wal;
pub mod watched;
pub mod world;
