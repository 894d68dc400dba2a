//! `howdah import`: writes `howdah.toml` and `secrets.toml` from the files of another pooler, and
//! prints what became of each key.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use howdah_import::{Finding, ForeignFile, Format, Report, SECRETS, Written, import, page};
use howdah_pooler::config::near;
use lexopt::prelude::*;
use serde_json::{Value as Json, json};

use crate::boot;

/// The output of `howdah import --help`.
pub const USAGE: &str = "\
howdah import writes howdah.toml, and secrets.toml with mode 0600, from the files of another pooler.

Usage:
  howdah import FILE... [--from=NAME] [--out=FOLDER] [--json | --markdown]

  howdah import pgcat.toml
  howdah import pgdog.toml users.toml
  howdah import odyssey.conf
  howdah import pg_doorman.yaml

Options:
      --from=NAME    whose files they are: pgcat, pgdog, odyssey or pg_doorman; else their content tells
      --out=FOLDER   where to write; else into the present folder. No file is overwritten
      --json         print the report as JSON
      --markdown     print the report as Markdown
      --keys         print what becomes of each key of each pooler, and exit
  -h, --help         show this help and exit

Exit codes: 0 done, 1 something was lost that decides who gets in or where writes go, 2 nothing was
written: a file can't be read, or one would be overwritten.
";

/// How the report is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Text,
    Json,
    Markdown,
}

/// What the command line asks for.
struct Order {
    files: Vec<String>,
    from: Option<Format>,
    out: String,
    shape: Shape,
}

/// What the command does.
enum Wish {
    Print(String),
    Import(Order),
}

/// Runs the command.
pub fn run(arguments: &[std::ffi::OsString]) -> ExitCode {
    let done = match order(arguments) {
        Ok(Wish::Print(text)) => {
            print(&text);
            return ExitCode::SUCCESS;
        }
        Ok(Wish::Import(order)) => carry_out(&order),
        Err(why) => Err(format!(
            "{why}\nTry \"howdah import --help\" for more information."
        )),
    };
    match done {
        Ok(report) if report.loses_what_decides() => ExitCode::from(1),
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("howdah: {why}");
            ExitCode::from(2)
        }
    }
}

/// Reads the arguments.
fn order(arguments: &[std::ffi::OsString]) -> Result<Wish, String> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let text = |value: Result<std::ffi::OsString, lexopt::Error>| {
        let value = value.and_then(|value| value.string());
        value.map_err(|why| why.to_string())
    };
    let mut order = Order {
        files: Vec::new(),
        from: None,
        out: ".".into(),
        shape: Shape::Text,
    };
    while let Some(argument) = parser.next().map_err(|why| why.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(Wish::Print(USAGE.into())),
            Long("keys") => return Ok(Wish::Print(page())),
            Long("from") => order.from = Some(format_of(&text(parser.value())?)?),
            Long("out") => order.out = text(parser.value())?,
            Long("json") => order.shape = Shape::Json,
            Long("markdown") => order.shape = Shape::Markdown,
            Value(path) => order.files.push(text(Ok(path))?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    if order.files.is_empty() {
        return Err("howdah import needs the files of another pooler".into());
    }
    Ok(Wish::Import(order))
}

fn format_of(word: &str) -> Result<Format, String> {
    let names = Format::ALL.map(Format::word);
    let found = Format::ALL.into_iter().find(|format| format.word() == word);
    found.ok_or_else(|| {
        let near = near::nearest(word, names);
        let near = near.map_or_else(String::new, |name| format!("; did you mean {name}?"));
        format!("--from={word}: write {}{near}", names.join(", "))
    })
}

fn carry_out(order: &Order) -> Result<Report, String> {
    let mut files = Vec::new();
    for path in &order.files {
        let text = boot::read_file(path).map_err(|why| boot::not_read(path, &why))?;
        files.push(ForeignFile {
            path: path.clone(),
            text,
        });
    }
    let imported =
        import(&files, order.from, &mut boot::read_file).map_err(|why| why.to_string())?;
    write(Path::new(&order.out), &imported.written)?;
    let report = imported.report;
    print(&match order.shape {
        Shape::Text => report.text() + &format!("\n{}\n", next_step(order)),
        Shape::Markdown => report.markdown(),
        Shape::Json => format!("{}\n", as_json(&report)),
    });
    Ok(report)
}

/// What to do with the output.
fn next_step(order: &Order) -> String {
    let path = Path::new(&order.out).join("howdah.toml");
    format!(
        "howdah --check --connect {0} looks at the servers; howdah {0} starts.",
        path.display()
    )
}

/// Writes both files, or none.
fn write(folder: &Path, written: &Written) -> Result<(), String> {
    let mut files = vec![("howdah.toml", 0o640, &written.main)];
    if !written.secrets.is_empty() {
        files.push((SECRETS, 0o600, &written.secrets));
    }
    for (name, ..) in &files {
        let path = folder.join(name);
        if path.symlink_metadata().is_ok() {
            let path = path.display();
            return Err(format!(
                "{path} is there already, and is not overwritten: name another --out"
            ));
        }
    }
    for (name, mode, text) in files {
        let path = folder.join(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path);
        let done = file.and_then(|mut file| file.write_all(text.as_bytes()));
        done.map_err(|why| format!("could not write {}: {why}", path.display()))?;
    }
    Ok(())
}

/// The report as JSON.
fn as_json(report: &Report) -> Json {
    let findings = report.findings.iter().map(|finding: &Finding| {
        let place = finding.place.as_ref();
        json!({
            "key": finding.key,
            "file": place.map(|place| place.file.to_string()),
            "line": place.map(|place| place.line),
            "column": place.map(|place| place.column),
            "verdict": finding.verdict.word(),
            "text": finding.text,
            "decides": finding.decides,
            "doubtful": finding.is_doubtful,
        })
    });
    json!({
        "from": report.pooler,
        "files": report.files,
        "loses_what_decides": report.loses_what_decides(),
        "keys": findings.collect::<Vec<_>>(),
    })
}

/// Prints a text. Who reads it may stop before its end.
fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
