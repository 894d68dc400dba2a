//! `howdah config`: what is wrong in a configuration, what is in force, and the same as TOML. No
//! connection is opened.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use howdah_pooler::config::{Mistake, Place, to_toml};
use serde_json::{Value, json};

use crate::boot::{self, Source};
use crate::check::{Remark, remarks};
use crate::cli::{Arguments, ConfigCommand};
use crate::container;
use crate::machine::Machine;
use crate::print::{print, tell};

/// Runs the command. The exit code is 1 if there are mistakes.
pub fn run(command: ConfigCommand) -> ExitCode {
    let done = match command {
        ConfigCommand::Check(arguments, as_json) => {
            let arguments = container::placed(arguments);
            match as_json {
                false => check(&arguments),
                true => check_as_json(&arguments),
            }
        }
        ConfigCommand::Convert(path) => convert(&path),
        ConfigCommand::Show {
            arguments,
            database,
            user,
        } => show(
            &container::placed(arguments),
            database.as_deref(),
            user.as_deref(),
        ),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("howdah: {why}");
            ExitCode::FAILURE
        }
    }
}

/// `file:line:column: what: remedy`, or how a level of remarks is marked.
fn line(remark: &Remark, level: &str) -> String {
    let place = remark.place.as_ref();
    let place = place.map_or(String::new(), |place| format!("{place}: "));
    let remedy = match remark.remedy.as_str() {
        "" => String::new(),
        remedy => format!(": {remedy}"),
    };
    format!("{place}{level}{}{remedy}", remark.what)
}

/// Prints mistakes and warnings, one a line. A terminal gets their lines, too. True without mistakes.
fn check(arguments: &Arguments) -> Result<bool, String> {
    let found = remarks(arguments)?;
    let errors = found.errors.iter().map(|error| ("", error));
    let warnings = found.warnings.iter().map(|warning| ("warning: ", warning));
    let mut out = String::new();
    for (level, remark) in errors.chain(warnings) {
        out.push_str(&line(remark, level));
        out.push('\n');
        if io::stdout().is_terminal() {
            out.push_str(&remark.shown_line);
        }
    }
    for path in &found.exposed {
        out.push_str(&format!(
            "warning: everybody may read {path}, which has a secret: chmod 640\n"
        ));
    }
    if let Some(summary) = &found.summary {
        out.push_str(&format!("{summary}\n"));
    }
    print(&out);
    Ok(found.errors.is_empty())
}

/// The same as one JSON object.
fn check_as_json(arguments: &Arguments) -> Result<bool, String> {
    let found = remarks(arguments)?;
    let of = |remarks: &[Remark]| {
        let remarks = remarks.iter().map(|remark| {
            let place = remark.place.as_ref();
            let number = |of: fn(&Place) -> u32| place.map(of).filter(|number| *number > 0);
            json!({
                "file": place.map(|place| place.file.to_string()),
                "line": number(|place| place.line),
                "column": number(|place| place.column),
                "what": remark.what,
                "remedy": remark.remedy,
            })
        });
        remarks.collect::<Value>()
    };
    let text = json!({
        "ok": found.errors.is_empty(),
        "errors": of(&found.errors),
        "warnings": of(&found.warnings),
    });
    print(&format!("{text}\n"));
    Ok(found.errors.is_empty())
}

/// Prints the TOML for an ini file.
fn convert(path: &str) -> Result<bool, String> {
    let text = boot::read_file(path).map_err(|why| boot::not_read(path, &why))?;
    if path.ends_with(".toml") {
        return Err(format!("{path} is TOML already: name an ini file"));
    }
    match to_toml(path, &text, &mut boot::read_file) {
        Ok(toml) => print(&toml),
        Err(mistakes) => {
            let mistakes = mistakes.into_iter().map(Remark::from);
            mistakes.for_each(|mistake| tell(&(line(&mistake, "") + "\n")));
            return Err(format!("{path} has mistakes: correct them first"));
        }
    }
    Ok(true)
}

/// Prints the values in force with their places.
fn show(arguments: &Arguments, database: Option<&str>, user: Option<&str>) -> Result<bool, String> {
    let reading = Source::new(arguments).read(None, &mut Machine::default())?;
    if !reading.mistakes.is_empty() {
        let mistakes: Vec<_> = reading.mistakes.iter().map(Mistake::to_string).collect();
        return Err(format!(
            "the configuration has mistakes:\n{}",
            mistakes.join("\n")
        ));
    }
    if let Some(name) = database.filter(|name| reading.config.entry(name).is_none()) {
        return Err(format!("there is no database {name}, and no *"));
    }
    let mut out = String::new();
    for of in reading.in_force(database, user) {
        let value = of.value.map_or(String::new(), |value| format!(" {value}"));
        let place = of.place.map_or("default".into(), |place| place.to_string());
        out.push_str(&format!("{} ={value}  ({place})\n", of.name));
    }
    print(&out);
    Ok(true)
}
