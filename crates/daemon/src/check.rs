//! `howdah --check`: all mistakes of a configuration, and what it comes to.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use howdah_pooler::config::{
    Beyond, Config, Globals, Mistake, Place, Reading, SessionState, SslMode, Warning,
};
use nix::unistd::Uid;

use howdah_daemon::tls::Contexts;
use howdah_daemon::tls::contexts::TicketSeed;

use crate::boot::{self, Fatal, Source};
use crate::cli::Arguments;
use crate::machine::Machine;
use crate::print::{print, tell};
#[cfg(feature = "top")]
use crate::reach::try_all;
use crate::{listen, log, workers};

/// The exit code for a good configuration with a server that can't be reached.
const OUT_OF_REACH: u8 = 2;

/// A mistake or a warning.
pub struct Remark {
    /// The place; `None` if something is missing.
    pub place: Option<Place>,
    /// What is wrong, without the place.
    pub what: String,
    /// How to correct it; empty if `what` says so.
    pub remedy: String,
    /// All of it, with the place.
    pub text: String,
    /// The line with a caret; empty if it may not be shown.
    pub shown_line: String,
}

impl Remark {
    fn said(text: String) -> Remark {
        Remark {
            place: None,
            what: text.clone(),
            remedy: String::new(),
            text,
            shown_line: String::new(),
        }
    }

    fn warning(warning: Warning) -> Remark {
        Remark {
            shown_line: warning.shown_line,
            ..Remark::said(warning.text)
        }
    }
}

impl From<Mistake> for Remark {
    fn from(mistake: Mistake) -> Remark {
        Remark {
            text: mistake.to_string(),
            shown_line: mistake.shown_line(),
            place: mistake.place,
            what: mistake.text,
            remedy: mistake.remedy,
        }
    }
}

/// What a check finds.
pub struct Remarks {
    /// What stops the start.
    pub errors: Vec<Remark>,
    /// What stops nothing.
    pub warnings: Vec<Remark>,
    /// The configuration; `None` with errors.
    pub config: Option<Config>,
    /// What was read, and what it comes to; with a configuration.
    pub summary: Option<String>,
    /// Files with secrets that everybody may read. Kubernetes mounts them so.
    pub exposed: Vec<String>,
    /// What a user of PgBouncer may want to know.
    hints: String,
}

/// Reads and judges a configuration.
///
/// # Errors
/// The file can't be read.
pub fn remarks(arguments: &Arguments) -> Result<Remarks, String> {
    let path = match arguments.environment {
        true => "the environment",
        false => &arguments.config,
    };
    let mut machine = Machine::default();
    let Reading {
        config,
        mut mistakes,
        warnings,
        beyond_pgbouncer,
        files,
        ..
    } = Source::new(arguments).read(None, &mut machine)?;
    mistakes.extend(judge_machine(&config));
    Mistake::sort(&mut mistakes, path);
    let (broken, warnings): (Vec<Warning>, Vec<Warning>) =
        warnings.into_iter().partition(|warning| warning.broken);
    let mut errors: Vec<Remark> = mistakes.into_iter().map(Remark::from).collect();
    errors.extend(broken.into_iter().map(Remark::warning));
    let refused = boot::left_out(&config)
        .or_else(|| Source::new(arguments).open_to_others(&config, None, &machine));
    errors.extend(refused.map(Remark::said));
    let mut advice = boot::advice(&config);
    advice.extend(made_at_start(&config.globals));
    advice.extend(checked_as_root(&config.globals, arguments));
    let mut hints = needless(&config).map_or_else(String::new, |text| format!("HINT {text}\n"));
    hints.push_str(&way_back(&beyond_pgbouncer));
    let config = Source::new(arguments).with_arguments(config);
    let config = config.map_err(|why| errors.push(Remark::said(why)));
    let config = config.ok().filter(|_| errors.is_empty());
    let warnings = warnings.into_iter().map(Remark::warning);
    Ok(Remarks {
        errors,
        warnings: warnings
            .chain(advice.into_iter().map(Remark::said))
            .collect(),
        summary: config
            .as_ref()
            .map(|config| format!("{path}: {}", summary(config, files))),
        config,
        exposed: machine.exposed,
        hints,
    })
}

/// Prints all mistakes of the configuration to standard error. If there are none, prints what was
/// read, and with `--connect` looks at the servers. The exit code is 1 if there are mistakes, and 2
/// if a server is out of reach.
pub fn check(arguments: &Arguments) -> ExitCode {
    let found = match remarks(arguments) {
        Ok(found) => found,
        Err(why) => {
            tell(&format!("ERROR {why}\n"));
            return ExitCode::FAILURE;
        }
    };
    let errors = found.errors.iter().map(|error| ("ERROR", error));
    let warnings = found.warnings.iter().map(|warning| ("WARNING", warning));
    for (level, remark) in errors.chain(warnings) {
        tell(&format!("{level} {}\n{}", remark.text, remark.shown_line));
    }
    if let Some(summary) = &found.summary {
        print(&format!("{summary}\n"));
    }
    print(&found.hints);
    match found.config {
        None => ExitCode::FAILURE,
        Some(config) if arguments.connect && !try_all(&config) => ExitCode::from(OUT_OF_REACH),
        Some(_) => ExitCode::SUCCESS,
    }
}

/// The client of PostgreSQL comes with the feature.
#[cfg(not(feature = "top"))]
fn try_all(_: &Config) -> bool {
    print("FAIL --connect is not part of this build: build with the Cargo feature top\n");
    false
}

/// What was read, and what it comes to.
fn summary(config: &Config, files: usize) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let needs = boot::descriptors(config, workers::count(&config.globals, cores));
    let databases = config.databases.len() + usize::from(config.fallback.is_some());
    let several = |count: usize, one: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{} {one}{plural}", grouped(count as u64))
    };
    format!(
        "configuration OK: {}, {}, {}; up to {} servers, {} descriptors",
        several(databases, "database"),
        several(config.users.len(), "user"),
        several(files, "file"),
        grouped(needs.servers),
        grouped(needs.all),
    )
}

/// A number with commas between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A warning: root has run the check, but the pooler will run as another user.
fn checked_as_root(globals: &Globals, arguments: &Arguments) -> Option<String> {
    let user = arguments.user.as_ref().or(globals.user.as_ref());
    let stays_root = user.is_none_or(String::is_empty);
    (Uid::effective().is_root() && stays_root).then(|| {
        "this check ran as root, who may read every file, and Howdah does not run as root: check as \
         the user that it will have (runuser -u USER -- howdah --check ...), or set user"
            .into()
    })
}

/// A warning: the folder of the unix socket is missing, directly below `/run`. There services' folders
/// come and go with them, so this is no mistake.
fn made_at_start(globals: &Globals) -> Option<String> {
    let folder = &globals.unix_socket_dir;
    let path = boot::is_file_path(folder)?;
    let parent = path.parent()?;
    let below_run = parent == Path::new("/run") || parent == Path::new("/var/run");
    let missing = fs::metadata(path).is_err_and(|why| why.kind() == ErrorKind::NotFound);
    (below_run && missing).then(|| {
        format!(
            "unix_socket_dir {folder} is not there: the packaged unit creates /run/howdah at start; for \
             another unit write RuntimeDirectory="
        )
    })
}

/// Settings that a user of PgBouncer can remove.
fn needless(config: &Config) -> Option<String> {
    let ignored = config.globals.ignore_startup_parameters.iter();
    let ignored: Vec<_> = ignored.map(String::as_str).collect();
    let place = config.written.get("ignore_startup_parameters")?;
    let kept = config.globals.session_state != SessionState::Share;
    (kept && !ignored.is_empty()).then(|| {
        format!(
            "ignore_startup_parameters ({place}) drops what clients ask for at connect: {}. Without that \
             line each client gets what it asks for",
            ignored.join(", ")
        )
    })
}

/// Settings that must be removed before PgBouncer accepts the file again.
fn way_back(beyond_pgbouncer: &[Beyond]) -> String {
    if beyond_pgbouncer.is_empty() {
        return String::new();
    }
    let mut text =
        "PgBouncer 1.25.2 refuses the file as long as these settings are in it:\n".to_string();
    let shown = |beyond: &Beyond| match beyond.section.split_once(' ') {
        Some((section, entry)) => format!("{} of {entry} in {section}", beyond.setting),
        None => beyond.setting.to_string(),
    };
    let names: Vec<_> = beyond_pgbouncer.iter().map(shown).collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    for (name, beyond) in names.iter().zip(beyond_pgbouncer) {
        let _ = writeln!(text, "  {name:width$}  {}", beyond.place);
    }
    text
}

/// Mistakes in settings that depend on this machine and would stop the start.
fn judge_machine(config: &Config) -> Vec<Mistake> {
    let globals = &config.globals;
    let mut mistakes = Vec::new();
    let mut wrong = |setting: &str, text: String, remedy: &str| {
        mistakes.push(Mistake {
            place: config.written.get(setting).cloned(),
            text,
            remedy: remedy.into(),
            excerpt: config.excerpt(setting),
        });
    };
    if globals.listen_addr.is_empty() && globals.unix_socket_dir.is_empty() {
        let text = "nowhere to listen on".into();
        wrong(
            "listen_addr",
            text,
            "set listen_addr, unix_socket_dir or both",
        );
    }
    if let Err(Fatal(text)) = listen::tcp_addresses(globals) {
        let remedy = "write addresses of this machine, or * for all, separated by commas";
        wrong("listen_addr", text, remedy);
    }
    if let Err(Fatal(text)) = boot::unix_address(globals) {
        wrong("unix_socket_dir", text, "name a folder with a shorter path");
    }
    if let Err(text) = listen::unix_group(globals) {
        let remedy = "name a group of this machine, or its number";
        wrong("unix_socket_group", text, remedy);
    }
    for (setting, path) in [("logfile", &globals.logfile), ("pidfile", &globals.pidfile)] {
        if let Err(why) = may_write(path) {
            let remedy = "name a file in a folder that is there and that Howdah may write to";
            wrong(
                setting,
                format!("could not open {setting} {path}: {why}"),
                remedy,
            );
        }
    }
    let folder = &globals.unix_socket_dir;
    if !folder.is_empty()
        && made_at_start(globals).is_none()
        && let Some(path) = boot::is_file_path(folder)
        && let Err(why) = may_create_in(path)
    {
        let text = format!("could not open unix_socket_dir {folder}: {why}");
        let remedy = "name a folder that is there and that Howdah may write to, or none";
        wrong("unix_socket_dir", text, remedy);
    }
    if let Err(bad) = Contexts::build(config, TicketSeed::default()) {
        let remedy = "put it right, or switch TLS off on that side (sslmode = disable)";
        let clients_side = bad.setting.starts_with("client_tls");
        wrong(bad.setting, bad.text, remedy);
        // Mistakes on the servers' side are found without the clients' side.
        if clients_side
            && let Err(bad) =
                Contexts::build(&without_tls_to_clients(config), TicketSeed::default())
        {
            wrong(bad.setting, bad.text, remedy);
        }
    }
    if let Err(Fatal(text)) = boot::find_user(globals.user.as_deref()) {
        wrong("user", text, "name a user of this machine");
    }
    mistakes
}

fn without_tls_to_clients(config: &Config) -> Config {
    let mut config = config.clone();
    config.globals.client_tls_sslmode = SslMode::Disable;
    let databases = config.databases.values_mut().chain(&mut config.fallback);
    for database in databases {
        Arc::make_mut(database).client_tls_sslmode = None;
    }
    config
}

/// Whether a file can be opened for writing or created. Changes nothing.
fn may_write(written: &str) -> Result<(), String> {
    if written.is_empty() {
        return Ok(());
    }
    let path = Path::new(written);
    let opened = match fs::OpenOptions::new().append(true).open(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => may_create_in(folder),
            _ => may_create_in(Path::new(".")),
        },
        opened => opened.map(drop).map_err(|why| log::text(&why)),
    };
    opened.map_err(|why| why + &boot::looked_in(written))
}

/// Whether files can be created in a directory.
fn may_create_in(folder: &Path) -> Result<(), String> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let what = fs::metadata(folder).map_err(|why| log::text(&why))?;
    if !what.is_dir() {
        return Err("Not a directory".into());
    }
    let allowed = accessat(
        CWD,
        folder,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    );
    allowed.map_err(|why| log::text(&why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (2169, "2,169"),
            (1_000_000, "1,000,000"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
