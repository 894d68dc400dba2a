//! `./prove sim`: many seeds, or one. The last line is JSON.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use howdah_sim::cores;
use howdah_sim::run::{Outcome, run};
use howdah_sim::scenario::Scenario;

const HELP: &str = "\
usage: ./prove sim [--seed N] [--runs N] [--minutes N] [--all]
  --seed N      the first seed (1); a failure tells its story
  --runs N      so many seeds (1000; 1 with --seed)
  --minutes N   for so long instead
  --all         the whole story of a failure
  --keep-on     go on after a failure, and tell each in one line
  --brief       end at the first failure without its story
  --shards      only the seeds with a sharded database
";

struct Options {
    seed: u64,
    runs: Option<u64>,
    minutes: Option<u64>,
    all: bool,
    keep_on: bool,
    brief: bool,
    shards: bool,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("cores") {
        return match cores::command(std::env::args().skip(2)) {
            Ok(passes) => ExitCode::from(u8::from(!passes)),
            Err(text) => {
                eprint!("{text}");
                ExitCode::from(2)
            }
        };
    }
    let options = match read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}{HELP}");
            return ExitCode::from(2);
        }
    };
    // A panic is a violation, and is reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let (mut seed, mut runs, mut statements, mut turns) = (options.seed, 0, 0, 0);
    let (mut reads, mut lends, mut moves) = (0, 0, 0);
    let mut failures = Vec::new();
    loop {
        let over = match (options.minutes, options.runs) {
            (Some(minutes), _) => begun.elapsed() >= Duration::from_secs(60 * minutes),
            (None, wanted) => runs >= wanted.unwrap_or(1000),
        };
        if over {
            break;
        }
        if options.shards && Scenario::new(seed).sharding.is_none() {
            seed += 1;
            continue;
        }
        let outcome = run(seed, false);
        runs += 1;
        statements += outcome.statements;
        reads += outcome.reads;
        turns += outcome.turns;
        lends += outcome.lends;
        moves += outcome.moves;
        if let Some(violation) = outcome.violation {
            failures.push((seed, violation.checker));
            if options.brief {
                break;
            }
            if options.keep_on {
                println!("seed {seed}: {}: {}", violation.checker, violation.text);
            } else {
                tell(seed, &options);
                break;
            }
        }
        seed += 1;
    }
    let seconds = begun.elapsed().as_secs();
    let ok = failures.is_empty();
    let failed: Vec<String> = failures
        .iter()
        .map(|(seed, checker)| format!("{{\"seed\":{seed},\"checker\":\"{checker}\"}}"))
        .collect();
    println!(
        "{{\"machine\":\"sim\",\"ok\":{ok},\"runs\":{runs},\"statements\":{statements},\
         \"reads\":{reads},\"turns\":{turns},\"lends\":{lends},\"moves\":{moves},\"failures\":[{}],\
         \"seconds\":{seconds}}}",
        failed.join(",")
    );
    ExitCode::from(u8::from(!ok))
}

/// Plays a failed seed again, and prints its story.
fn tell(seed: u64, options: &Options) {
    let Outcome {
        violation,
        story,
        whole,
        ..
    } = run(seed, true);
    for line in if options.all { whole } else { story } {
        println!("{line}");
    }
    match violation {
        Some(violation) => {
            println!("seed {seed}: {}: {}", violation.checker, violation.text);
        }
        None => println!("seed {seed}: did not fail the second time"),
    }
    println!("again: ./prove sim --seed {seed} [--all]");
}

fn read(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        seed: 1,
        runs: None,
        minutes: None,
        all: false,
        keep_on: false,
        brief: false,
        shards: false,
    };
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("{arg} wants a number\n"))
        };
        match arg.as_str() {
            "--seed" => {
                options.seed = number()?;
                options.runs.get_or_insert(1);
            }
            "--runs" => options.runs = Some(number()?),
            "--minutes" => options.minutes = Some(number()?),
            "--all" => options.all = true,
            "--keep-on" => options.keep_on = true,
            "--brief" => options.brief = true,
            "--shards" => options.shards = true,
            "--help" | "-h" => return Err(String::new()),
            _ => return Err(format!("unknown: {arg}\n")),
        }
    }
    Ok(options)
}
