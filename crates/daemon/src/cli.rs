//! The command line: PgBouncer's options, and a few of Howdah's own.

use std::ffi::OsString;

use lexopt::prelude::*;

/// The task of the process.
#[derive(PartialEq, Eq, Debug)]
pub enum Command {
    /// `-h`
    Help,
    /// `-V`
    Version,
    /// `--settings`: the reference of settings.
    Settings,
    /// `top` and its arguments: watch a pooler in the terminal.
    Top(Vec<OsString>),
    /// `--metrics`: the reference of metrics.
    Metrics,
    /// `--man`: the same as a manual page.
    Manual,
    /// `--check`: read the configuration and print its mistakes.
    Check(Arguments),
    /// Run the pooler.
    Run(Arguments),
}

/// The options of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arguments {
    /// The configuration file.
    pub config: String,
    /// `-d`: go into the background.
    pub daemon: bool,
    /// `-R`: take over from a running process.
    pub reboot: bool,
    /// `-q`: print nothing to standard error.
    pub quiet: bool,
    /// How often `-v` was given.
    pub verbose: u32,
    /// `-u`: the system user to become.
    pub user: Option<String>,
    /// `--workers`: overrides the setting `workers`.
    pub workers: Option<String>,
    /// `--io-driver`: overrides the setting `io_driver`.
    pub io_driver: Option<String>,
}

/// The output of `-V`.
pub const VERSION: &str = concat!(
    "Howdah ",
    env!("CARGO_PKG_VERSION"),
    " (PgBouncer 1.25.2 compatible)"
);

/// The output of `-h`.
pub const USAGE: &str = "\
Howdah is a connection pooler for PostgreSQL.

Usage:
  howdah [OPTION]... CONFIG_FILE
  howdah top [OPTION]... [URL]      watch a running pooler; see howdah top --help

Options:
  -d, --daemon           run in the background
  -q, --quiet            print nothing to standard error
  -R, --reboot           take over from a running process
  -u, --user=NAME        become this system user
  -v, --verbose          log more; may be repeated
      --check            read the configuration, say what is wrong, and exit
      --settings         print the reference of all settings and exit
      --man              print it as a manual page and exit
      --metrics          print the reference of all metrics and exit
      --workers=N        number of worker threads (0: one per core)
      --io-driver=NAME   auto, io_uring or epoll
  -V, --version          show the version and exit
  -h, --help             show this help and exit
";

/// Reads the arguments, without the program's name.
///
/// # Errors
/// What is wrong with the arguments.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut arguments = arguments.into_iter().peekable();
    // For a configuration file with the name `top`, write `./top`.
    if arguments.next_if(|first| first == "top").is_some() {
        return Ok(Command::Top(arguments.collect()));
    }
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut seen = Arguments::default();
    let (mut check, mut config) = (false, None);
    while let Some(argument) = parser.next().map_err(|why| why.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Long("man") => return Ok(Command::Manual),
            Long("metrics") => return Ok(Command::Metrics),
            Long("settings") => return Ok(Command::Settings),
            Short('d') | Long("daemon") => seen.daemon = true,
            Short('R') | Long("reboot") => seen.reboot = true,
            Short('q') | Long("quiet") => seen.quiet = true,
            Short('v') | Long("verbose") => seen.verbose += 1,
            Short('u') | Long("user") => seen.user = Some(value(&mut parser)?),
            Long("workers") => seen.workers = Some(value(&mut parser)?),
            Long("io-driver") => seen.io_driver = Some(value(&mut parser)?),
            Long("check") => check = true,
            Value(path) if config.is_none() => {
                config = Some(path.string().map_err(|why| why.to_string())?)
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    seen.config = config.ok_or("no configuration file specified")?;
    Ok(if check {
        Command::Check(seen)
    } else {
        Command::Run(seen)
    })
}

fn value(parser: &mut lexopt::Parser) -> Result<String, String> {
    parser
        .value()
        .and_then(|value| value.string())
        .map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(
            line.split(' ')
                .filter(|word| !word.is_empty())
                .map(OsString::from),
        )
    }

    #[test]
    fn options_are_pgbouncers() {
        let config = || Arguments {
            config: "a.ini".into(),
            ..Arguments::default()
        };
        let user = Some("pg".to_owned());
        for (line, expected) in [
            ("a.ini", config()),
            (
                "--quiet a.ini",
                Arguments {
                    quiet: true,
                    ..config()
                },
            ),
            (
                "a.ini -q",
                Arguments {
                    quiet: true,
                    ..config()
                },
            ),
            (
                "--reboot --quiet a.ini",
                Arguments {
                    reboot: true,
                    quiet: true,
                    ..config()
                },
            ),
            (
                "-dvv a.ini",
                Arguments {
                    daemon: true,
                    verbose: 2,
                    ..config()
                },
            ),
            (
                "-u pg a.ini",
                Arguments {
                    user: user.clone(),
                    ..config()
                },
            ),
            ("--user=pg a.ini", Arguments { user, ..config() }),
            (
                "--workers 3 a.ini",
                Arguments {
                    workers: Some("3".into()),
                    ..config()
                },
            ),
            (
                "--io-driver=epoll a.ini",
                Arguments {
                    io_driver: Some("epoll".into()),
                    ..config()
                },
            ),
        ] {
            assert_eq!(parsed(line), Ok(Command::Run(expected)), "{line}");
        }
        assert_eq!(parsed("--check a.ini"), Ok(Command::Check(config())));
        assert_eq!(parsed("--settings"), Ok(Command::Settings));
        assert_eq!(parsed("-V"), Ok(Command::Version));
        assert_eq!(parsed("-vh a.ini"), Ok(Command::Help));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, said) in [
            ("", "no configuration file specified"),
            ("-v", "no configuration file specified"),
            ("a.ini b.ini", "unexpected argument"),
            ("--frobnicate a.ini", "invalid option '--frobnicate'"),
            ("a.ini -u", "missing argument for option '-u'"),
        ] {
            let seen = parsed(line).unwrap_err();
            assert!(seen.starts_with(said), "{line}: {seen}");
        }
    }

    #[test]
    fn every_option_is_in_the_help() {
        for option in [
            "-d, --daemon",
            "-q, --quiet",
            "-R, --reboot",
            "-u, --user",
            "-v, --verbose",
            "--check",
            "--settings",
            "--metrics",
            "--man",
            "--workers",
            "--io-driver",
            "-V, --version",
            "-h, --help",
        ] {
            assert!(USAGE.contains(option), "{option}");
        }
    }
}
