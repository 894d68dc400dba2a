//! What a run needs, for the script `./bench`, which installs and builds it.

use std::ffi::OsString;
use std::io;

use clap::Parser;

use crate::contender::Kind;
use crate::{AnswersFlags, DesignFlags, Flags, ProgramFlags, What};

/// The answer for runs that need no other program.
const NOTHING: &str = "nothing";

/// The packages that a run with these arguments needs, or one word if not even Howdah takes part.
///
/// # Errors
/// An argument is wrong. The text is for people.
pub fn of(arguments: &[OsString]) -> Result<String, String> {
    let name = OsString::from("howdah-bench");
    let flags = Flags::try_parse_from([&name].into_iter().chain(arguments));
    let flags = flags.map_err(|error| error.render().to_string())?;
    let names_pgbouncer = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        let value = argument.strip_prefix("--pooler=").unwrap_or(&argument);
        value.starts_with("pgbouncer=")
    };
    let needs = packages(&flags, arguments.iter().any(names_pgbouncer));
    let needs = needs.map_err(|error| format!("howdah-bench: {error}\n"))?;
    Ok(needs.join(" "))
}

fn packages(flags: &Flags, names_pgbouncer: bool) -> io::Result<Vec<&'static str>> {
    match &flags.what {
        None => {
            crate::plan(&flags.table)?;
            Ok(compared(&flags.table.programs))
        }
        Some(What::Tls(flags)) => {
            crate::tls_choice(flags)?;
            Ok(compared(&flags.programs))
        }
        Some(What::Decisions { .. } | What::Growth) => Ok(vec!["valgrind"]),
        Some(What::Against { .. } | What::Needs { .. }) => Ok(vec![NOTHING]),
        Some(What::Million(flags)) => Ok(wanted(flags.pg_bin.is_none(), false)),
        Some(What::Answers(AnswersFlags { only, pg_bin, .. })) => {
            played(only, pg_bin.is_none(), names_pgbouncer)
        }
        Some(
            What::Matrix(flags)
            | What::Classic(flags)
            | What::Threads(flags)
            | What::Scaling(flags)
            | What::Login(flags)
            | What::Latency(flags)
            | What::Memory(flags)
            | What::Shapes(flags)
            | What::Copy(flags)
            | What::Pools(flags)
            | What::Published(flags),
        ) => {
            crate::check_lengths(flags)?;
            let DesignFlags { only, pg_bin, .. } = flags;
            played(only, pg_bin.is_none(), names_pgbouncer)
        }
    }
}

/// Of a run that compares Howdah with PgBouncer.
fn compared(flags: &ProgramFlags) -> Vec<&'static str> {
    let finds_pgbouncer = flags.pgbouncer.as_os_str() == Kind::PgBouncer.name();
    wanted(flags.pg_bin.is_none(), finds_pgbouncer)
}

/// Of a run with all poolers that are found, or `only` some.
fn played(
    only: &[String],
    finds_postgresql: bool,
    names_pgbouncer: bool,
) -> io::Result<Vec<&'static str>> {
    let is_known = |name: &&String| Kind::ALL.iter().any(|kind| kind.name() == *name);
    if let Some(name) = only.iter().find(|name| !is_known(name)) {
        let known: Vec<_> = Kind::ALL[1..].iter().map(|kind| kind.name()).collect();
        return Err(io::Error::other(format!(
            "{name:?} is none of {}",
            known.join(", ")
        )));
    }
    let takes_part = only.is_empty() || only.iter().any(|name| name == Kind::PgBouncer.name());
    Ok(wanted(finds_postgresql, takes_part && !names_pgbouncer))
}

fn wanted(postgresql: bool, pgbouncer: bool) -> Vec<&'static str> {
    let mut packages = Vec::new();
    packages.extend(postgresql.then_some("postgresql"));
    packages.extend(pgbouncer.then_some("pgbouncer"));
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(arguments: &str) -> Result<String, String> {
        let arguments: Vec<_> = arguments.split_whitespace().map(OsString::from).collect();
        of(&arguments)
    }

    #[test]
    fn a_run_needs_pgbouncer_only_if_it_takes_part_and_is_not_named() {
        for (arguments, told) in [
            ("", "postgresql pgbouncer"),
            ("--quick --only cpu-8", "postgresql pgbouncer"),
            ("--pgbouncer /opt/pgbouncer --pg-bin /opt", ""),
            ("tls --quick", "postgresql pgbouncer"),
            ("matrix", "postgresql pgbouncer"),
            ("matrix --only howdah", "postgresql"),
            ("matrix --only howdah,pgbouncer", "postgresql pgbouncer"),
            ("copy --pooler pgbouncer=/bin/true", "postgresql"),
            ("answers --pooler=pgbouncer=/bin/true --pg-bin /opt", ""),
            ("decisions --bounds", "valgrind"),
            ("growth", "valgrind"),
            ("million --clients 5000", "postgresql"),
            ("against a b", NOTHING),
        ] {
            assert_eq!(needs(arguments).as_deref(), Ok(told), "{arguments}");
        }
    }

    #[test]
    fn a_wrong_argument_is_told() {
        for (arguments, told) in [
            ("--rounds 0", "begin at 1"),
            ("--only cpu-9", "there is no row \"cpu-9\""),
            ("tls --only cpu-9", "there is no row \"cpu-9\""),
            ("matrix --secs 0", "begin at 1"),
            ("matrix --only pgpool", "\"pgpool\" is none of howdah"),
            ("mattrix", "unrecognized subcommand"),
            ("decisions --quick", "unexpected argument '--quick'"),
            ("decisions --secs 3", "unexpected argument '--secs'"),
            (
                "decisions --pooler howdah=/bin/true",
                "unexpected argument '--pooler'",
            ),
        ] {
            let error = needs(arguments).unwrap_err();
            assert!(error.contains(told), "{arguments}: {error}");
        }
    }
}
