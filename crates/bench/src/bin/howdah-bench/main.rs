//! `howdah-bench`: what Howdah costs, against PostgreSQL itself, the floor and PgBouncer.

mod clock;
mod crowd;
mod load;
mod machine;
mod measure;
mod postgres;
mod process;
mod report;
mod run;
mod target;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::machine::Machine;
use crate::postgres::Postgres;
use crate::report::Results;
use crate::run::{Plan, Run};
use crate::target::{POOL, Programs};

/// Measures Howdah against PostgreSQL itself, a pooler without features, and PgBouncer, all in
/// turn inside each cell, in one run.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// One round of short cells, about four minutes
    #[arg(long)]
    quick: bool,
    /// Rounds in turn [default: 5, quick: 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds per cell, logins not included [default: 4, quick: 2]
    #[arg(long)]
    seconds: Option<u64>,
    /// Only these rows: cpu, cpu-8, cpu-prepared, cpu-two, tps-two, tps-one-client, cpu-epoll,
    /// cpu-floor, active, memory, login
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The clients of the rows with 10,000 of them
    #[arg(long, default_value_t = 10_000)]
    crowd: usize,
    /// The Howdah under test [default: the one built beside this program]
    #[arg(long)]
    howdah: Option<PathBuf>,
    /// The PgBouncer to compare with. A fair peer is 1.24 or newer; before 1.21, rows with prepared
    /// statements fail, as it had none in transaction mode
    #[arg(long, default_value = "pgbouncer")]
    pgbouncer: PathBuf,
    /// The folder of initdb, postgres and pgbench [default: the newest that is found]
    #[arg(long)]
    pg_bin: Option<PathBuf>,
    /// Writes everything there as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Writes the tables there as Markdown
    #[arg(long)]
    markdown: Option<PathBuf>,
}

fn main() -> ExitCode {
    match bench(&Flags::parse()) {
        Ok(results) => {
            let (passed, rows) = results.score();
            println!("\n{passed} of {rows} rows pass");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("howdah-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(flags: &Flags) -> io::Result<Results> {
    let plan = Plan::new(
        &flags.only,
        flags.rounds.unwrap_or(if flags.quick { 1 } else { 5 }),
        flags.seconds.unwrap_or(if flags.quick { 2 } else { 4 }),
        flags.crowd,
    )?;
    let machine = Machine::new()?;
    let programs = install(flags, &machine)?;
    eprintln!("starting PostgreSQL in {}", machine.folder().display());
    let postgres = Postgres::start(&machine, flags.pg_bin.as_deref(), 10)?;
    let mut results = Results {
        facts: facts(&machine, &postgres, &programs, &plan),
        ..plan.empty()
    };
    Run {
        machine: &machine,
        postgres: &postgres,
        programs: &programs,
        plan: &plan,
    }
    .everything(&mut results);
    println!("{}", results.terminal(io::stdout().is_terminal()));
    if let Some(path) = &flags.json {
        std::fs::write(path, format!("{:#}\n", results.json()))?;
    }
    if let Some(path) = &flags.markdown {
        std::fs::write(path, results.markdown())?;
    }
    Ok(results)
}

fn install(flags: &Flags, machine: &Machine) -> io::Result<Programs> {
    let beside = std::env::current_exe()?;
    let howdah = flags
        .howdah
        .clone()
        .unwrap_or_else(|| beside.with_file_name("howdah"));
    Ok(Programs {
        howdah: machine.install(&howdah)?,
        floor: machine.install(&beside.with_file_name("howdah-floor"))?,
        pgbouncer: machine.install(&in_path(&flags.pgbouncer))?,
    })
}

/// A bare name is looked for in PATH, and where Debian keeps PgBouncer.
fn in_path(program: &Path) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders
        .map(|folder| folder.join(program))
        .find(|path| path.exists());
    found.unwrap_or_else(|| program.to_owned())
}

fn facts(
    machine: &Machine,
    postgres: &Postgres,
    programs: &Programs,
    plan: &Plan,
) -> Vec<(&'static str, String)> {
    let version = |program: &Path| {
        let output = machine.command(program).arg("-V").output();
        let output = output.map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&output);
        text.lines().next().unwrap_or("version unknown").to_owned()
    };
    vec![
        ("machine", machine::describe()),
        ("PostgreSQL", postgres.version().to_owned()),
        ("Howdah", version(&programs.howdah)),
        ("PgBouncer", version(&programs.pgbouncer)),
        (
            "set-up",
            format!(
                "pgbench -S, scale 10, -j 2, loopback TCP, SCRAM on both sides, transaction \
                 mode, pool of {POOL}; {} rounds in turn, {} s a cell",
                plan.rounds(),
                plan.seconds()
            ),
        ),
    ]
}
