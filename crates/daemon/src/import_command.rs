//! `howdah import`: writes `howdah.toml` and `secrets.toml` from the files of another pooler, and
//! prints what became of each key.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use howdah_import::{Finding, ForeignFile, Format, Report, SECRETS, Written, import, page};
use howdah_pooler::config::near;
use lexopt::prelude::*;
use serde_json::{Value as Json, json};

use crate::boot;
use crate::print::print;

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
        let text = read_foreign(path).map_err(|why| boot::not_read(path, &why))?;
        files.push(ForeignFile {
            path: path.clone(),
            text,
        });
    }
    let imported = import(&files, order.from, &mut read_foreign).map_err(|why| why.to_string())?;
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
    // The first file that a server reads comes last.
    let mut files = vec![("howdah.toml", 0o640, &written.main)];
    if !written.secrets.is_empty() {
        files.insert(0, (SECRETS, 0o600, &written.secrets));
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
    let mut created = Vec::new();
    for (name, mode, text) in files {
        let path = folder.join(name);
        if let Err(why) = write_file(&path, mode, text, &mut created) {
            for path in created {
                // What can't be removed either is named by the error below.
                let _ = fs::remove_file(path);
            }
            return Err(format!("could not write {}: {why}", path.display()));
        }
    }
    Ok(())
}

/// Writes a file that is not there yet, and remembers that it is there then.
fn write_file(path: &Path, mode: u32, text: &str, created: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    created.push(path.to_owned());
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// How long a file may be.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a file of another pooler. What is no UTF-8 is refused: a password would not be the same.
fn read_foreign(path: &str) -> Result<String, String> {
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return Err("it is no regular file".into());
    }
    let file = fs::File::open(path).map_err(|why| why.to_string() + &boot::looked_in(path))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|why| why.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8: convert the file, for example by iconv")
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_text_are_refused() {
        let why = read_foreign("/dev/zero").unwrap_err();
        assert_eq!(why, "it is no regular file");
        let path = std::env::temp_dir().join(format!("howdah-import-{}", std::process::id()));
        fs::write(&path, b"listen {}\npassword \"\xe9\"\n").expect("to write");
        let why = read_foreign(&path.display().to_string()).unwrap_err();
        fs::remove_file(&path).expect("to remove");
        assert!(why.starts_with("line 2 is not UTF-8"), "{why}");
    }

    #[test]
    fn both_files_are_written_or_none() {
        let folder = std::env::temp_dir().join(format!("howdah-import-{}.d", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let written = Written {
            main: "a".into(),
            secrets: "b".into(),
        };
        let path = folder.join("howdah.toml");
        let mut created = Vec::new();
        write_file(&path, 0o640, "x", &mut created).expect("to write");
        assert!(write(&folder, &written).is_err());
        assert!(!folder.join(SECRETS).exists());
        fs::remove_file(&path).expect("to remove");
        assert_eq!(write(&folder, &written), Ok(()));
        assert!(folder.join(SECRETS).exists() && path.exists());
        fs::remove_dir_all(&folder).expect("to remove");
    }
}
