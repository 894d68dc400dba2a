//! `howdah-bench`: Howdah's cost, compared with PostgreSQL itself, the floor and PgBouncer.

mod against;
mod answers;
mod check;
mod clock;
mod compiled;
mod contender;
mod contest;
mod cores;
mod crowd;
mod decisions;
mod design;
mod estimate;
mod figure;
mod growth;
mod load;
mod machine;
mod measure;
mod million;
mod needs;
mod origin;
mod pace;
mod page;
mod plot;
mod postgres;
mod process;
mod record;
mod report;
mod run;
mod schedule;
mod sessions;
mod target;
mod tls;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use crate::contender::{Certificate, Contender, Kind, Named};
use crate::contest::Contest;
use crate::design::{Cell, Choice, Design};
use crate::estimate::{Estimate, left_out, minutes};
use crate::machine::Machine;
use crate::postgres::Postgres;
use crate::record::Record;
use crate::report::Results;
use crate::run::{Plan, Run};
use crate::target::{POOL, Programs};

/// Measures Howdah against PostgreSQL itself, a pooler without features, and PgBouncer, all in
/// turn inside each cell, in one run. With the name of a design: the benchmark that other poolers
/// publish, for all poolers that are found.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Flags {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    table: TableFlags,
}

#[derive(Debug, Subcommand)]
enum What {
    /// PgDoorman's matrix: three protocols, 1 to 10,000 clients, plain, reconnecting, TLS, both
    Matrix(DesignFlags),
    /// PgDoorman's older table: 80 clients, ten minutes a cell, cores used beside transactions
    Classic(DesignFlags),
    /// PgDog's: a pool of 10, 1 to 100 clients, one worker thread and several
    Threads(DesignFlags),
    /// A community's: extended protocol, 16 to 512 clients, scale 50 (--quick: 10)
    Scaling(DesignFlags),
    /// What a login costs, plain and over TLS
    Login(DesignFlags),
    /// Waiting times at a fixed rate, 50 to 100 % of capacity
    Latency(DesignFlags),
    /// Memory of a pooler with many clients
    Memory(DesignFlags),
    /// Writes, pipelines, large rows, many rows, servers over unix sockets
    Shapes(DesignFlags),
    /// COPY in both directions
    Copy(DesignFlags),
    /// A thousand databases beside one: transactions, logins, memory
    Pools(DesignFlags),
    /// Cells that others have published: rows of 4 KB over TLS on both sides, ten servers, TPC-B,
    /// statements without a name
    Published(DesignFlags),
    /// As many idle clients as wanted, a thousand at work among them: memory, processor time at rest,
    /// waits of those at work
    Million(MillionFlags),
    /// What TLS costs: transactions, logins, storms and memory, against PgBouncer and the floor
    Tls(TlsFlags),
    /// Replies that are not PostgreSQL's: the self-checking load through each pooler
    Answers(AnswersFlags),
    /// Instructions, atomic operations and bytes of the decision ring per transaction, by callgrind
    /// (needs valgrind)
    Decisions {
        /// Fails if a row needs over 1 % more instructions than crates/bench/decisions.json says
        #[arg(long)]
        bounds: bool,
        /// Writes that file
        #[arg(long, conflicts_with = "bounds")]
        keep: bool,
    },
    /// Fails if twice the input takes more than 2.5 times the instructions, by callgrind (needs
    /// valgrind)
    Growth,
    /// Tells what moved between two records of a design, beyond the spread of both
    Against {
        /// The record from before: a record.json
        before: PathBuf,
        /// The record from now
        now: PathBuf,
    },
    /// What a run with these arguments needs, for the script ./bench
    #[command(hide = true)]
    Needs {
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
}

/// Flags of the published designs.
#[derive(Args, Debug)]
struct DesignFlags {
    /// Fewer cells, and short ones
    #[arg(long)]
    quick: bool,
    /// Seconds for each run [default: the design's own]
    #[arg(long)]
    secs: Option<u64>,
    /// Rounds, for the spread [default: 3; of memory --quick: 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// A pooler that takes part, NAME=BINARY or NAME=BINARY:CONFIG; again for each. NAME is howdah,
    /// pgbouncer, odyssey, pgcat, pg_doorman or pgdog. Those in PATH take part by themselves
    #[arg(long, value_parser = contender::named)]
    pooler: Vec<Named>,
    /// Only these of all that are found; PostgreSQL itself is always there
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Worker threads of the poolers that have some [default: the design's own]
    #[arg(long)]
    workers: Option<usize>,
    /// No cells with fewer clients than this
    #[arg(long, default_value_t = 1)]
    least_clients: usize,
    /// No cells with more clients than this
    #[arg(long, default_value_t = 10_000)]
    most_clients: usize,
    /// The folder for record.json, report.md and report.html; a record of the same builds, configs and
    /// lengths that is there already is gone on with, failed runs again [default: target/bench/DESIGN]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Tells at the end what moved since this earlier record of the design, as `against` does
    #[arg(long, value_name = "RECORD")]
    against: Option<PathBuf>,
    /// Begins anew in place of a record that is there already
    #[arg(long)]
    fresh: bool,
    /// For how many seconds longer than its time a run may take, and a fiftieth of a second for each
    /// client, until it counts as hung
    #[arg(long, default_value_t = load::PATIENCE.as_secs())]
    patience: u64,
    /// Keeps all cores awake with loops of the idle class: on a virtual machine whose cores take
    /// long to wake, results with few clients are of the host and not of the poolers
    #[arg(long)]
    awake: bool,
    /// The folder of initdb, postgres and pgbench [default: the newest that is found]
    #[arg(long)]
    pg_bin: Option<PathBuf>,
}

/// Flags of [`What::Answers`].
#[derive(Args, Debug)]
struct AnswersFlags {
    /// Clients at a time
    #[arg(long, default_value_t = 60)]
    clients: usize,
    /// For how long each pooler is asked
    #[arg(long, default_value_t = 20)]
    secs: u64,
    /// A pooler that takes part, as in the designs
    #[arg(long, value_parser = contender::named)]
    pooler: Vec<Named>,
    /// Only these of all that are found; PostgreSQL itself is always there
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Worker threads of the poolers that have some
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// For machines
    #[arg(long)]
    json: bool,
    /// The folder of initdb, postgres and pgbench [default: the newest that is found]
    #[arg(long)]
    pg_bin: Option<PathBuf>,
}

/// Flags of [`What::Million`].
#[derive(Args, Debug)]
struct MillionFlags {
    /// All clients
    #[arg(long, default_value_t = 1_000_000)]
    clients: usize,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// On epoll instead of io_uring
    #[arg(long)]
    epoll: bool,
    /// The length of each of the two phases of work
    #[arg(long, default_value_t = 20)]
    secs: u64,
    /// For machines
    #[arg(long)]
    json: bool,
    /// The Howdah under test [default: the one built beside this program]
    #[arg(long)]
    howdah: Option<PathBuf>,
    /// The folder of initdb, postgres and pgbench [default: the newest that is found]
    #[arg(long)]
    pg_bin: Option<PathBuf>,
}

/// Flags of [`What::Tls`].
#[derive(Args, Debug)]
struct TlsFlags {
    /// One round of short cells, about four minutes
    #[arg(long)]
    quick: bool,
    /// Rounds in turn [default: 3, quick: 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of pgbench per cell [default: 4, quick: 2]
    #[arg(long)]
    seconds: Option<u64>,
    /// Logins per cell [default: 2000, quick: 300]
    #[arg(long)]
    logins: Option<usize>,
    /// Idle clients whose memory is looked at [default: 10000, quick: 1000]
    #[arg(long)]
    crowd: Option<usize>,
    /// Handshakes of a storm
    #[arg(long, default_value_t = 1000)]
    handshakes: usize,
    /// Only these rows: cpu, cpu-both, tps, login-ecdsa, login-rsa, login-rsa4096, resumed,
    /// reconnect, storm, memory
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    programs: ProgramFlags,
}

/// Which programs are measured, and where results go.
#[derive(Args, Debug)]
struct ProgramFlags {
    /// The Howdah under test [default: the one built beside this program]
    #[arg(long)]
    howdah: Option<PathBuf>,
    /// The PgBouncer to compare with
    #[arg(long, default_value = "pgbouncer")]
    pgbouncer: PathBuf,
    /// Keeps all cores awake with loops of the idle class, for a virtual machine whose cores take
    /// long to wake
    #[arg(long)]
    awake: bool,
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

/// Flags of the table of what is to be reached.
#[derive(Args, Debug)]
struct TableFlags {
    /// One round of short cells, about four minutes
    #[arg(long)]
    quick: bool,
    /// Rounds in turn [default: 5, quick: 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds per cell, logins not included [default: 4, quick: 2]
    #[arg(long)]
    seconds: Option<u64>,
    /// Only these rows: cpu, cpu-8, cpu-prepared, cpu-two, tps-two, tps-one-client, cpu-1,
    /// tps-few, tps-few-epoll, cpu-epoll, cpu-floor, active, memory, login; PostgreSQL itself is always there
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The clients of the rows with 10,000 of them
    #[arg(long, default_value_t = 10_000)]
    crowd: usize,
    #[command(flatten)]
    programs: ProgramFlags,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let begun = Instant::now();
    let done = match &flags.what {
        None => bench(&flags.table).map(|results| {
            println!("\n{}", results.score());
        }),
        Some(What::Against { before, now }) => against(before, now),
        Some(What::Needs { arguments }) => match needs::of(arguments) {
            Ok(needs) => {
                println!("{needs}");
                Ok(())
            }
            Err(error) => {
                eprint!("{error}");
                return ExitCode::from(2);
            }
        },
        Some(What::Decisions { bounds, keep }) => decisions::count().and_then(|counts| {
            println!("{}", decisions::shown(&counts));
            if *keep {
                decisions::keep(&counts)?;
            }
            let held = bounds.then(|| decisions::hold(&counts)).unwrap_or(Ok(()));
            let seconds = begun.elapsed().as_secs();
            println!("{}", decisions::json(&counts, held.is_ok(), seconds));
            held
        }),
        Some(What::Growth) => growth::count().and_then(|counts| {
            println!("{}", growth::shown(&counts));
            let held = growth::hold(&counts);
            let seconds = begun.elapsed().as_secs();
            println!("{}", growth::json(&counts, held.is_ok(), seconds));
            held
        }),
        Some(What::Answers(flags)) => ask(flags),
        Some(What::Tls(flags)) => measure_tls(flags),
        Some(What::Million(flags)) => gather(flags),
        Some(What::Matrix(flags)) => play(Design::Matrix, flags),
        Some(What::Classic(flags)) => play(Design::Classic, flags),
        Some(What::Threads(flags)) => play(Design::Threads, flags),
        Some(What::Scaling(flags)) => play(Design::Scaling, flags),
        Some(What::Login(flags)) => play(Design::Login, flags),
        Some(What::Latency(flags)) => play(Design::Latency, flags),
        Some(What::Memory(flags)) => play(Design::Memory, flags),
        Some(What::Shapes(flags)) => play(Design::Shapes, flags),
        Some(What::Copy(flags)) => play(Design::Copy, flags),
        Some(What::Pools(flags)) => play(Design::Pools, flags),
        Some(What::Published(flags)) => play(Design::Published, flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("howdah-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The parameters of a run of TLS.
///
/// # Errors
/// There is no such row.
fn tls_choice(flags: &TlsFlags) -> io::Result<tls::Choice> {
    if let Some(key) = flags
        .only
        .iter()
        .find(|key| !tls::KEYS.contains(&key.as_str()))
    {
        let known = tls::KEYS.join(", ");
        return Err(io::Error::other(format!(
            "there is no row {key:?}, only {known}"
        )));
    }
    let or = |whole, quick| if flags.quick { quick } else { whole };
    Ok(tls::Choice {
        rounds: flags.rounds.unwrap_or(or(3, 1)).max(1),
        seconds: flags.seconds.unwrap_or(or(4, 2) as u64).max(1),
        logins: flags.logins.unwrap_or(or(2000, 300)).max(1),
        crowd: flags.crowd.unwrap_or(or(10_000, 1000)).max(1),
        handshakes: flags.handshakes.max(1),
    })
}

/// Measures the rows of TLS, and prints them.
fn measure_tls(flags: &TlsFlags) -> io::Result<()> {
    let choice = tls_choice(flags)?;
    let machine = Machine::new(flags.programs.awake)?;
    let programs = install(&flags.programs, &machine)?;
    let certificates = tls::Certificates::make(&machine)?;
    let of_postgres = certificates.of(tls::Key::Ecdsa);
    let pg_bin = flags.programs.pg_bin.as_deref();
    let postgres = Postgres::start(&machine, pg_bin, 10, Some(of_postgres))?;
    let run = tls::Run {
        machine: &machine,
        postgres: &postgres,
        programs: &programs,
        certificates: &certificates,
        choice,
    };
    let mut facts = versions(&machine, &postgres, &programs);
    facts.push((
        "set-up",
        format!(
            "pgbench -S over loopback, SCRAM on both sides, transaction mode, pool of {POOL}; TLS 1.3, \
             TLS_AES_256_GCM_SHA384, X25519 and ECDSA P-256 where nothing else is said; {} rounds in \
             turn, {} s a cell, {} logins, {} idle clients, storms of {}",
            choice.rounds, choice.seconds, choice.logins, choice.crowd, choice.handshakes
        ),
    ));
    let wanted =
        |row: &tls::Row| flags.only.is_empty() || flags.only.iter().any(|key| key == row.key);
    let rows = tls::rows().into_iter().filter(wanted);
    let measured = run.rows(rows);
    let report = tls::markdown(&facts, &measured);
    println!("{report}");
    let (passed, of) = tls::score(&measured);
    let with_goal = tls::rows().iter().filter(|row| row.bound.is_some()).count();
    println!("{}", report::score(passed, of, with_goal - of));
    if let Some(path) = &flags.programs.json {
        std::fs::write(path, format!("{:#}\n", tls::json(&facts, &measured)))?;
    }
    if let Some(path) = &flags.programs.markdown {
        std::fs::write(path, report)?;
    }
    Ok(())
}

/// Plays a crowd of idle clients, and prints the results.
fn gather(flags: &MillionFlags) -> io::Result<()> {
    if flags.workers == 0 || flags.clients == 0 || flags.secs == 0 {
        return Err(io::Error::other(
            "--clients, --workers and --secs begin at 1",
        ));
    }
    let machine = Machine::new(false)?;
    let howdah = machine.install(&built_howdah(flags.howdah.as_deref())?)?;
    let choice = million::Choice {
        clients: flags.clients,
        workers: flags.workers,
        epoll: flags.epoll,
        seconds: flags.secs,
    };
    let postgres = Postgres::start(&machine, flags.pg_bin.as_deref(), 1, None)?;
    let outcome = million::measure(&machine, &postgres, &howdah, choice)?;
    if flags.json {
        println!("{}", million::json(&outcome));
    } else {
        println!("{}", million::shown(&outcome));
    }
    Ok(())
}

/// Runs the load through each pooler, and prints the results.
fn ask(flags: &AnswersFlags) -> io::Result<()> {
    if flags.workers == 0 {
        return Err(io::Error::other("--workers begins at 1"));
    }
    let machine = Machine::new(false)?;
    let contenders = contenders(&flags.pooler, &flags.only, &machine)?;
    let certificate = Certificate::make(&machine)?;
    let postgres = Postgres::start(&machine, flags.pg_bin.as_deref(), 1, Some(&certificate))?;
    let choice = answers::Choice {
        clients: flags.clients,
        seconds: flags.secs,
        workers: flags.workers,
    };
    let all = answers::ask(&contenders, &machine, &postgres, &certificate, choice)?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&all)?)
    } else {
        println!("{}", answers::markdown(&all, choice))
    }
    Ok(())
}

impl DesignFlags {
    fn choice(&self, quick: bool) -> Choice {
        Choice {
            quick,
            workers: self.workers,
            least_clients: self.least_clients,
            most_clients: self.most_clients,
        }
    }
}

const NO_WORKERS: &str = "--workers begins at 1; leave it out for the number of the design";

/// The clients of the cells in `overview.svg`.
const OVERVIEW_CLIENTS: &str = "40";

/// # Errors
/// A length is 0.
fn check_lengths(flags: &DesignFlags) -> io::Result<()> {
    let least = [flags.most_clients as u64, flags.patience];
    let given = flags
        .secs
        .into_iter()
        .chain(flags.rounds.map(|rounds| rounds as u64));
    match least.into_iter().chain(given).min() {
        Some(0) => Err(io::Error::other(
            "--rounds, --secs, --most-clients and --patience begin at 1",
        )),
        _ if flags.workers == Some(0) => Err(io::Error::other(NO_WORKERS)),
        _ => Ok(()),
    }
}

/// Plays a design and writes its report, even if the record is incomplete.
fn play(design: Design, flags: &DesignFlags) -> io::Result<()> {
    let seconds = flags.secs.unwrap_or(design.seconds(flags.quick));
    let rounds = flags.rounds.unwrap_or(design.rounds(flags.quick));
    check_lengths(flags)?;
    let cells = design.cells(flags.choice(flags.quick));
    if cells.is_empty() {
        return Err(io::Error::other(format!(
            "no cell of {} has {} to {} clients; say another --least-clients or --most-clients",
            design.name(),
            flags.least_clients,
            flags.most_clients
        )));
    }
    let before = flags.against.as_deref();
    let before = before
        .map(|path| Record::load_of(path, design.name()))
        .transpose()?;
    let default = || Path::new("target/bench").join(design.name());
    let out = flags.out.clone().unwrap_or_else(default);
    std::fs::create_dir_all(&out)
        .map_err(|error| io::Error::other(format!("{}: {error}", out.display())))?;
    let file = out.join("record.json");
    let mut record = contest::resume(design, &file, flags.fresh)?;
    let machine = Machine::new(flags.awake)?;
    let contenders = contenders(&flags.pooler, &flags.only, &machine)?;
    let tools = postgres::tools(flags.pg_bin.as_deref())?;
    let scale = design.scale(flags.quick);
    let stamp = origin::stamp(&contenders, &tools, seconds, scale, machine.cores())?;
    contest::same_builds(&record, &stamp, &file)?;
    let kinds: Vec<_> = contenders.iter().map(|contender| contender.kind).collect();
    let estimate = Estimate {
        cells: &cells,
        kinds: &kinds,
        rounds,
        seconds,
    };
    eprintln!(
        "{}: {} cells, {} contenders, {rounds} rounds of {seconds} s: about {}",
        design.name(),
        cells.len(),
        contenders.len(),
        minutes(estimate.duration()),
    );
    for slow in contenders.iter().map(Contender::describe) {
        if slow.contains("WITHOUT optimisation") {
            eprintln!("warning: {slow}");
        }
    }
    let certificate = Certificate::make(&machine)?;
    if flags.quick {
        tell_whole(design, flags, &cells, &kinds);
    }
    let postgres = Postgres::start(&machine, Some(&tools), scale, Some(&certificate))?;
    origin::describe(&mut record, design, &machine, &postgres, &contenders)?;
    record.stamp.extend(stamp);
    let contest = Contest {
        cells,
        contenders: &contenders,
        certificate,
        machine: &machine,
        postgres: &postgres,
        rounds,
        seconds,
        patience: Duration::from_secs(flags.patience),
        file,
    };
    let played = contest.play(&mut record);
    let report = page::markdown(&record);
    println!("{report}");
    if let Some(before) = &before {
        println!("{}", against::against(&record, before));
    }
    let mut pages = vec![("report.md", report), ("report.html", page::html(&record))];
    pages.extend(plot::overview(&record, OVERVIEW_CLIENTS).map(|svg| ("overview.svg", svg)));
    let written = pages.into_iter().try_for_each(|(name, text)| {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(|error| {
            io::Error::other(format!("{} can't be written: {error}", path.display()))
        })
    });
    eprintln!("\n{}", out.join("report.html").display());
    played.and(written)
}

/// Tells what `--quick` leaves out.
fn tell_whole(design: Design, flags: &DesignFlags, quick: &[Cell], kinds: &[Kind]) {
    let cells = design.cells(flags.choice(false));
    let estimate = Estimate {
        cells: &cells,
        kinds,
        rounds: flags.rounds.unwrap_or(design.rounds(false)),
        seconds: flags.secs.unwrap_or(design.seconds(false)),
    };
    eprintln!(
        "without --quick: {} cells, {} rounds of {} s, scale {}: about {}",
        cells.len(),
        estimate.rounds,
        estimate.seconds,
        design.scale(false),
        minutes(estimate.duration()),
    );
    for line in left_out(quick, &cells) {
        eprintln!("  it adds {line}");
    }
}

/// PostgreSQL itself, Howdah, and the other chosen poolers.
fn contenders(pooler: &[Named], only: &[String], machine: &Machine) -> io::Result<Vec<Contender>> {
    let howdah = std::env::current_exe()?.with_file_name("howdah");
    let mut found = contender::find(pooler, &howdah, machine)?;
    if only.is_empty() {
        return Ok(found);
    }
    for name in only {
        if !found.iter().any(|found| found.kind.name() == name) {
            return Err(io::Error::other(format!(
                "{name:?} is not in PATH; say --pooler {name}=BINARY"
            )));
        }
    }
    found.retain(|found| {
        let name = found.kind.name();
        found.version.is_empty() || only.iter().any(|wanted| *wanted == name)
    });
    Ok(found)
}

fn against(before: &Path, now: &Path) -> io::Result<()> {
    let (before, now) = (Record::load(before)?, Record::load(now)?);
    if before.design != now.design {
        return Err(io::Error::other(format!(
            "these are records of two designs: {} and {}",
            before.design, now.design
        )));
    }
    println!("{}", against::against(&now, &before));
    Ok(())
}

/// The plan of the default table.
///
/// # Errors
/// As [`Plan::new`].
fn plan(flags: &TableFlags) -> io::Result<Plan> {
    Plan::new(
        &flags.only,
        flags.rounds.unwrap_or(if flags.quick { 1 } else { 5 }),
        flags.seconds.unwrap_or(if flags.quick { 2 } else { 4 }),
        flags.crowd,
    )
}

fn bench(flags: &TableFlags) -> io::Result<Results> {
    let plan = plan(flags)?;
    let machine = Machine::new(flags.programs.awake)?;
    let programs = install(&flags.programs, &machine)?;
    eprintln!("starting PostgreSQL in {}", machine.folder().display());
    let postgres = Postgres::start(&machine, flags.programs.pg_bin.as_deref(), 10, None)?;
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
    if let Some(path) = &flags.programs.json {
        std::fs::write(path, format!("{:#}\n", results.json()))?;
    }
    if let Some(path) = &flags.programs.markdown {
        std::fs::write(path, results.markdown())?;
    }
    Ok(results)
}

fn install(flags: &ProgramFlags, machine: &Machine) -> io::Result<Programs> {
    let beside = std::env::current_exe()?;
    Ok(Programs {
        howdah: machine.install(&built_howdah(flags.howdah.as_deref())?)?,
        floor: machine.install(&beside.with_file_name("howdah-floor"))?,
        echo: machine.install(&beside.with_file_name("howdah-echo"))?,
        pgbouncer: machine.install(&in_path(&flags.pgbouncer))?,
    })
}

/// The Howdah under test: the one named, or the one built beside this program.
fn built_howdah(named: Option<&Path>) -> io::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("howdah");
    Ok(named.map_or(beside, Path::to_owned))
}

/// Searches for a bare name in PATH, and in Debian's folder of PgBouncer.
pub fn in_path(program: &Path) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders
        .map(|folder| folder.join(program))
        .find(|path| path.exists());
    found.unwrap_or_else(|| program.to_owned())
}

/// Whether a compiler optimised a program.
pub fn how_compiled(program: &Path) -> &'static str {
    match std::fs::read(program)
        .ok()
        .and_then(|bytes| compiled::is_optimised(&bytes))
    {
        Some(true) => "optimised by its compiler",
        Some(false) => {
            "compiled WITHOUT optimisation: no fair peer, build it with CFLAGS=-O2 ./configure"
        }
        None => "not known whether optimised by its compiler",
    }
}

fn facts(
    machine: &Machine,
    postgres: &Postgres,
    programs: &Programs,
    plan: &Plan,
) -> Vec<(&'static str, String)> {
    let mut facts = versions(machine, postgres, programs);
    facts.push((
        "set-up",
        format!(
            "pgbench -S, scale 10, -j 2, loopback TCP, SCRAM on both sides, transaction mode, pool of \
             {POOL}; {} rounds in turn, {} s a cell; answers were compared before and after each run; configs \
             in crates/bench/configs/table",
            plan.rounds(),
            plan.seconds()
        ),
    ));
    facts
}

/// The versions of all programs, and the machine.
fn versions(
    machine: &Machine,
    postgres: &Postgres,
    programs: &Programs,
) -> Vec<(&'static str, String)> {
    let version = |program: &Path| {
        let output = machine.command(program).arg("-V").output();
        let output = output.map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&output);
        text.lines().next().unwrap_or("version unknown").to_owned()
    };
    vec![
        ("machine", machine::describe()),
        ("cores", machine.describe_cores()),
        ("PostgreSQL", postgres.version().to_owned()),
        ("Howdah", version(&programs.howdah)),
        (
            "PgBouncer",
            format!(
                "{}, {}",
                version(&programs.pgbouncer),
                how_compiled(&programs.pgbouncer)
            ),
        ),
    ]
}
