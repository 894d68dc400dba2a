//! A whole run: prepares, lets the clients work, checks the tables, prints.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::behaviours::bank::{ACCOUNTS, BALANCE};
use crate::behaviours::{ALL, Behaviour, check_books, check_lists, figures_of_lists};
use crate::client::{Books, Client, Run};
use crate::failure::Outcome;
use crate::lists::{Board, LISTS};
use crate::options::Options;
use crate::tally::{Counts, Report, Table, Tally};
use crate::url::Url;

/// A client's thread needs a small stack: large values are on the heap.
const STACK: usize = 256 * 1024;

fn prepare(run: &Run) -> Outcome {
    let mut client = Client::new(run, 0, 0);
    client.connect(&[])?;
    let last = ACCOUNTS - 1;
    for sql in [
        "drop schema if exists howdah_load cascade",
        "create schema howdah_load",
        "create table howdah_load.accounts (id int4 primary key, balance int8 not null)",
        "create table howdah_load.transfers (run text, client int4, n int4)",
        "create table howdah_load.vanished (run text, client int4, n int4)",
        "create table howdah_load.copied (run text, client int4, n int4, payload text)",
        "create table howdah_load.only (id int4 primary key check (id > 0))",
        "insert into howdah_load.only values (1)",
        "create sequence howdah_load.numbers",
        "create table howdah_load.lists (id int4 primary key, items int8[] not null)",
        "create view howdah_load.shown as select inet_server_port() as port, \
         pg_is_in_recovery() as recovers, id, items from howdah_load.lists",
        "create sequence howdah_load.marks",
        // A function that lies: it writes.
        "create function howdah_load.marks() returns bool language plpgsql stable as \
         'begin perform nextval(''howdah_load.marks''); return true; end'",
        "create view howdah_load.marked as select * from howdah_load.shown where howdah_load.marks()",
        &format!(
            "insert into howdah_load.lists select i, '{{}}' from generate_series(0, {LISTS} - 1) i"
        ),
        &format!(
            "insert into howdah_load.accounts select i, {BALANCE} from generate_series(0, {last}) i"
        ),
    ] {
        client.rows(sql)?;
    }
    client.quit();
    Ok(())
}

/// Lets `count` clients work on `behaviours` for `time`.
fn work(
    run: &Run,
    options: &Options,
    behaviours: &[(&'static Behaviour, usize)],
    time: Duration,
    first: usize,
) -> (Tally, Vec<(usize, Books)>, f64) {
    let ready = Barrier::new(options.clients);
    let mut total = Tally::default();
    let mut books = Vec::new();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let ready = &ready;
        let worker = move |id: usize| {
            let mut client = Client::new(run, id, options.seed);
            let mut tally = Tally::default();
            // If a login fails here, the first operation retries and counts it.
            if client.connect(&[]).is_err() {
                client.leave(crate::connection::Leave::Fin);
            }
            ready.wait();
            client.work(behaviours, Instant::now() + time, &mut tally);
            (tally, id, std::mem::take(&mut client.books))
        };
        let spawn = |id| {
            let builder = std::thread::Builder::new().stack_size(STACK);
            builder
                .spawn_scoped(scope, move || worker(id))
                .expect("a thread can be started")
        };
        let threads: Vec<_> = (first..first + options.clients).map(spawn).collect();
        for thread in threads {
            let (tally, id, kept) = thread.join().expect("a client's thread does not panic");
            total.add(&tally);
            books.push((id, kept));
        }
    });
    (total, books, began.elapsed().as_secs_f64())
}

fn rows_of(
    behaviours: &[(&'static Behaviour, usize)],
    tally: &Tally,
    seconds: f64,
) -> Vec<(String, Counts, f64)> {
    let of = |behaviour: &Behaviour| tally.0.get(behaviour.name).copied().unwrap_or_default();
    behaviours
        .iter()
        .map(|(b, _)| (b.name.to_owned(), of(b), seconds))
        .collect()
}

/// Adds the rows about the tables, if any behaviour wrote to them.
fn add_checks(table: &mut Table, run: &Run, wrote: &[&str], books: &[(usize, Books)]) {
    let mut client = Client::new(run, 0, 0);
    let has_lists = wrote.iter().any(|name| name.starts_with("list_"));
    let checked = client.connect(&[]).and_then(|()| {
        let rows = check_books(&mut client, books)?;
        let lists = has_lists.then(|| check_lists(&mut client, books));
        Ok((rows, lists.transpose()?))
    });
    match checked {
        Ok((rows, lists)) => {
            if let Some(counts) = lists {
                table.rows.push(("end: lists".to_owned(), counts, 0.0));
                table.lists = Some(figures_of_lists(books));
            }
            for (name, counts) in rows {
                let concerns = match name {
                    "end: vanished" => wrote.contains(&"disconnect"),
                    _ => wrote.contains(&"bank"),
                };
                if concerns {
                    table.rows.push((name.to_owned(), counts, 0.0));
                }
            }
        }
        Err(failure) => {
            run.report.print("end", 0, &failure, &[]);
            let counts = Counts {
                operations: 1,
                unexpected: 1,
                ..Counts::default()
            };
            table.rows.push(("end".to_owned(), counts, 0.0));
        }
    }
    client.quit();
}

/// Runs as the options say. True if no reply differed.
pub fn run(options: &Options) -> Result<bool, String> {
    if options.list {
        for behaviour in ALL {
            println!(
                "{:18} {:3}  {}",
                behaviour.name, behaviour.weight, behaviour.about
            );
        }
        return Ok(true);
    }
    let behaviours = options.behaviours()?;
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let make = |url: &Url| Run {
        url: url.clone(),
        version: if options.protocol_3_2 {
            196_610
        } else {
            196_608
        },
        limit: Duration::from_secs_f64(options.hang),
        pause: Duration::from_secs_f64(options.pause / 1000.0),
        name: format!("r{:x}", since.as_millis()),
        stop: AtomicBool::new(false),
        report: Report::new(options.show, options.faults),
        board: Board::default(),
    };
    let run = make(&Url {
        tls: options.tls,
        ..options.url.clone()
    });
    let direct = make(options.prepare_url.as_ref().unwrap_or(&options.url));
    if options.prepare {
        prepare(&direct).map_err(|failure| format!("cannot prepare: {}", failure.what))?;
        eprintln!("The tables are made.");
    }
    let seconds = options
        .minutes
        .map_or(options.seconds, |minutes| minutes * 60.0);
    let time = Duration::from_secs_f64(seconds);
    let title = format!(
        "{}: {} clients, {} s{}, seed {}",
        options.url.shown(),
        options.clients,
        seconds,
        if options.each { " each" } else { "" },
        options.seed
    );
    let mut table = Table {
        title,
        rows: Vec::new(),
        lists: None,
        faults: options.faults,
    };
    let mut books: BTreeMap<usize, Books> = BTreeMap::new();
    let sets: Vec<Vec<_>> = if options.each {
        behaviours
            .iter()
            .map(|(behaviour, _)| vec![(*behaviour, 1)])
            .collect()
    } else {
        vec![behaviours.clone()]
    };
    for (round, set) in sets.iter().enumerate() {
        // Each round has its own client numbers, so that no serial is used twice.
        let (tally, kept, took) = work(&run, options, set, time, round * options.clients);
        books.extend(kept);
        let rows = rows_of(set, &tally, took);
        if options.each {
            let one = Table {
                title: String::new(),
                rows: rows.clone(),
                lists: None,
                faults: options.faults,
            };
            eprint!(
                "{}",
                one.text()
                    .lines()
                    .skip(3)
                    .map(|l| format!("{l}\n"))
                    .collect::<String>()
            );
        }
        table.rows.extend(rows);
    }
    let wrote: Vec<&str> = behaviours
        .iter()
        .map(|(behaviour, _)| behaviour.name)
        .collect();
    let books: Vec<(usize, Books)> = books.into_iter().collect();
    add_checks(&mut table, &direct, &wrote, &books);
    println!("{}\n{}", table.text(), table.json());
    Ok(table.clean())
}
