//! A seeded world around Howdah's production code.
//!
//! [`world::World`] is the network and the clock; [`driver::SimDriver`] connects a worker to it.
//! Outside of Howdah are [`postgres::Postgres`], a PostgreSQL of few words, and
//! [`client::Client`]s. A [`session::Session`] is both what each of PostgreSQL's processes is and
//! what each client holds its replies against: a client behind a pooler must see what a session of
//! its own would have said. [`scenario::Scenario`] chooses from a seed what a run is like, and
//! [`run::run`] plays it. Everything runs in one thread, and the same seed gives the same run.
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
pub mod journal;
pub mod line;
pub mod postgres;
pub mod process;
pub mod reference;
pub mod run;
pub mod scenario;
pub mod schema;
pub mod session;
pub mod settings;
pub mod sql;
pub mod story;
pub mod successor;
pub mod tls;
pub mod view;
pub mod watched;
pub mod world;
