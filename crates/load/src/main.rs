//! `howdah-load`: many PostgreSQL clients that know every reply they must get.
//!
//! It runs against PostgreSQL, or a pooler in front of it. It mixes frequent and rare behaviours of
//! real drivers, compares every byte of every reply with PostgreSQL's, and prints a table of
//! operations and differences for each behaviour. It exits with 1 if there was any difference.

mod behaviours;
mod client;
mod connection;
mod expect;
mod failure;
mod lists;
mod login;
mod messages;
mod notification;
mod options;
mod random;
mod run;
mod session;
mod statement;
mod tally;
mod transport;
mod url;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let options = options::Options::parse();
    match run::run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("howdah-load: {message}");
            ExitCode::from(2)
        }
    }
}
