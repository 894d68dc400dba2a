//! Where figures come from: builds, settings, machine, date.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contender::{self, Contender, Kind};
use crate::design::Design;
use crate::machine::{self, Machine};
use crate::postgres::{Postgres, SETTINGS};
use crate::record::Record;

/// Facts that must be the same in all runs of a record.
///
/// # Errors
/// A program can't be read.
pub fn stamp(
    contenders: &[Contender],
    tools: &Path,
    seconds: u64,
    scale: u32,
    cores: &str,
) -> io::Result<BTreeMap<String, String>> {
    let file = |path: PathBuf| Ok::<_, io::Error>(contender::fingerprint(&std::fs::read(path)?));
    let mut stamp = BTreeMap::from([
        ("machine".to_owned(), machine::describe()),
        ("cores".to_owned(), cores.to_owned()),
        ("bench".to_owned(), file(std::env::current_exe()?)?),
        ("PostgreSQL".to_owned(), file(tools.join("postgres"))?),
        ("seconds of a run".to_owned(), seconds.to_string()),
        ("scale".to_owned(), scale.to_string()),
    ]);
    for contender in contenders {
        let build = contender.build()?;
        stamp.extend(build.map(|build| (contender.kind.name().to_owned(), build)));
    }
    Ok(stamp)
}

/// Describes the design and all contenders, also those of earlier runs.
///
/// # Errors
/// The path of this program is not known.
pub fn describe(
    record: &mut Record,
    design: Design,
    machine: &Machine,
    postgres: &Postgres,
    contenders: &[Contender],
) -> io::Result<()> {
    record.design = design.name().to_owned();
    record.about = design.about().to_owned();
    let program = std::env::current_exe()?;
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("date", date(record.fact("date"), &now())),
        fact("sources", sources(program.parent().unwrap_or(&program))),
        fact("machine", machine::describe()),
        fact("cores", machine.describe_cores()),
        fact("PostgreSQL", postgres.version().to_owned()),
        fact("settings of PostgreSQL", SETTINGS.join(", ")),
    ];
    let (mut names, mut configs) = (Vec::new(), Vec::new());
    for kind in Kind::ALL {
        let name = kind.name();
        if let Some(now) = contenders.iter().find(|contender| contender.kind == kind) {
            if !now.version.is_empty() {
                facts.push(fact(name, now.describe()));
                configs.push((name.to_owned(), now.config.clone()));
            }
        } else if record.contenders.iter().any(|earlier| earlier == name) {
            let of = |pairs: &[(String, String)]| {
                let pair = pairs.iter().find(|(whose, _)| whose == name);
                pair.cloned()
            };
            facts.extend(of(&record.facts));
            configs.extend(of(&record.configs));
        } else {
            continue;
        }
        names.push(name.to_owned());
    }
    record.facts = facts;
    record.contenders = names;
    record.configs = configs;
    Ok(())
}

/// The date of a record's first runs, and of the last ones if these are others.
fn date(earlier: Option<&str>, now: &str) -> String {
    let first = earlier.map(|dates| dates.split(", gone on with ").next().unwrap_or(dates));
    match first {
        Some(first) if first != now => format!("{first}, gone on with {now}"),
        _ => now.to_owned(),
    }
}

fn now() -> String {
    let date = |command: &mut Command| line_of(command).unwrap_or_else(|| "unknown".to_owned());
    date(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))
}

/// The commit of the sources around the folder of this program; `unknown` if there is none.
fn sources(folder: &Path) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder);
    line_of(git.args(["describe", "--always", "--dirty"])).unwrap_or_else(|| "unknown".to_owned())
}

/// What a command writes, if it succeeds.
fn line_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_when_it_began_and_was_gone_on_with() {
        let first = date(None, "Monday");
        assert_eq!(first, "Monday");
        assert_eq!(date(Some(&first), "Monday"), "Monday");
        let second = date(Some(&first), "Tuesday");
        assert_eq!(second, "Monday, gone on with Tuesday");
        assert_eq!(date(Some(&second), "Friday"), "Monday, gone on with Friday");
    }

    #[test]
    fn without_a_repository_sources_are_unknown() {
        assert_eq!(sources(Path::new("/")), "unknown");
    }
}
