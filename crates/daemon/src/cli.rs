//! The command line: PgBouncer's options, and a few of Howdah's own.

use std::ffi::OsString;

use howdah_pooler::config::near;
use lexopt::prelude::*;

/// The task of the process.
#[derive(PartialEq, Eq, Debug)]
pub enum Command {
    /// `-h`
    Help,
    /// `-V`; true with `-v`: with all about the build.
    Version(bool),
    /// `--settings`: the reference of settings.
    Settings,
    /// `top` and its arguments: watch a pooler in the terminal.
    Top(Vec<OsString>),
    /// `init` and its arguments: write a first configuration.
    Init(Vec<OsString>),
    /// `import` and its arguments: write a configuration from another pooler's files.
    Import(Vec<OsString>),
    /// `--metrics`: the reference of metrics.
    Metrics,
    /// `--man`: the same as a manual page.
    Manual,
    /// `--check`: read the configuration and print its mistakes.
    Check(Arguments),
    /// `config`: says what a configuration is.
    Config(ConfigCommand),
    /// `ready`: ask a running Howdah whether it takes clients.
    Ready(Arguments),
    /// Run the pooler.
    Run(Arguments),
}

/// The commands behind `config`.
#[derive(PartialEq, Eq, Debug)]
pub enum ConfigCommand {
    /// `check`: all mistakes, perhaps as JSON.
    Check(Arguments, bool),
    /// `convert`: the TOML for an ini file.
    Convert(String),
    /// `show`: the values in force.
    Show {
        /// Where the configuration is.
        arguments: Arguments,
        /// The values for this database.
        database: Option<String>,
        /// The values for this user.
        user: Option<String>,
    },
}

/// The options of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arguments {
    /// The configuration file; empty with `--environment`.
    pub config: String,
    /// `--environment`: variables have the configuration.
    pub environment: bool,
    /// `--container`: a mounted file has the configuration, or else the variables.
    pub container: bool,
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
    /// `--connect`: the check looks at the servers, too.
    pub connect: bool,
}

/// The subcommands.
const SUBCOMMANDS: [&str; 5] = ["config", "import", "init", "ready", "top"];

/// The long options.
const OPTIONS: [&str; 16] = [
    "--check",
    "--connect",
    "--container",
    "--daemon",
    "--environment",
    "--help",
    "--io-driver",
    "--man",
    "--metrics",
    "--quiet",
    "--reboot",
    "--settings",
    "--user",
    "--verbose",
    "--version",
    "--workers",
];

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
  howdah [OPTION]... CONFIG_FILE    the file is TOML if its name ends with .toml, else pgbouncer.ini's syntax
  howdah [OPTION]... --environment  variables have the configuration: HOWDAH_DATABASE_URL, HOWDAH_POOL_MODE, ...
  howdah [OPTION]... --container    what the image runs: a mounted file, or else the variables
  howdah config check FILE [--json]                      say what is wrong in a configuration, and where
  howdah config convert FILE.ini                         print the same configuration as TOML
  howdah config show FILE [--database=NAME] [--user=NAME]  print the values in force, and where they stand
  howdah import FILE... [--out=FOLDER]                   write howdah.toml from the files of PgCat, PgDog, Odyssey
                                    or PgDoorman; see howdah import --help
  howdah init [OPTION]... [URL]     write a first configuration for a PostgreSQL; see howdah init --help
  howdah ready [FILE]               ask a running Howdah whether it takes clients: exit code 0 or 1
  howdah top [OPTION]... [URL]      watch a running pooler; see howdah top --help

Options:
  -d, --daemon           run in the background
  -q, --quiet            print nothing to standard error
  -R, --reboot           take over from a running process
  -u, --user=NAME        become this system user
  -v, --verbose          log more; may be repeated
      --check            read the configuration, say what is wrong, and exit
      --environment      no file: variables of the environment have the configuration
      --container        a file that is mounted where images have it, or else --environment
      --connect          with --check: look also whether the servers can be reached
      --settings         print the reference of all settings and exit
      --man              print it as a manual page and exit
      --metrics          print the reference of all metrics and exit
      --workers=N        number of worker threads (0: one per core)
      --io-driver=NAME   auto, io_uring or epoll
  -V, --version          show the version and exit; with -v all about the build
  -h, --help             show this help and exit

Exit codes: 0 done, 1 something is wrong; --check --connect: 2 if the configuration is right, but a
server can't be reached.
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
    if arguments.next_if(|first| first == "init").is_some() {
        return Ok(Command::Init(arguments.collect()));
    }
    if arguments.next_if(|first| first == "import").is_some() {
        return Ok(Command::Import(arguments.collect()));
    }
    if arguments.next_if(|first| first == "config").is_some() {
        return config(arguments).map(Command::Config);
    }
    if arguments.next_if(|first| first == "ready").is_some() {
        return ready(arguments).map(Command::Ready);
    }
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut seen = Arguments::default();
    let (mut check, mut version, mut config) = (false, false, None);
    while let Some(argument) = parser.next().map_err(|why| why.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => version = true,
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
            Long("environment") => seen.environment = true,
            Long("container") => seen.container = true,
            Long("connect") => seen.connect = true,
            Value(path) if config.is_none() => {
                config = Some(path.string().map_err(|why| why.to_string())?)
            }
            other => {
                let near = option_like(&other, config.as_deref());
                return Err(other.unexpected().to_string() + &near);
            }
        }
    }
    if version {
        return Ok(Command::Version(seen.verbose > 0));
    }
    if seen.connect && !check {
        return Err("--connect needs --check".into());
    }
    seen.place(config)?;
    if seen.config.starts_with("postgres://") || seen.config.starts_with("postgresql://") {
        let text = "a configuration file is needed, not a URL: howdah init URL writes one";
        return Err(text.into());
    }
    Ok(if check {
        Command::Check(seen)
    } else {
        Command::Run(seen)
    })
}

impl Arguments {
    /// Sets the configuration's place: a file, or one of the options that stand for a file.
    fn place(&mut self, file: Option<String>) -> Result<(), String> {
        let option = match (self.environment, self.container) {
            (true, true) => return Err("--container has --environment in it".into()),
            (true, _) => Some("--environment"),
            (_, true) => Some("--container"),
            _ => None,
        };
        self.config = match (file, option) {
            (Some(_), Some(option)) => {
                return Err(format!(
                    "{option} takes the place of a configuration file: leave one of them out"
                ));
            }
            (None, Some(_)) => String::new(),
            (file, None) => file.ok_or("no configuration file specified")?,
        };
        Ok(())
    }
}

/// Reads the arguments of `ready`: where the configuration is, as in a container if nothing is said.
fn ready(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, String> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut seen, mut file) = (Arguments::default(), None);
    while let Some(argument) = parser.next().map_err(|why| why.to_string())? {
        match argument {
            Long("environment") => seen.environment = true,
            Long("container") => seen.container = true,
            Value(path) if file.is_none() => {
                file = Some(path.string().map_err(|why| why.to_string())?);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    seen.container |= !seen.environment && file.is_none();
    seen.place(file)?;
    Ok(seen)
}

/// Reads the arguments of `config`.
fn config(arguments: impl IntoIterator<Item = OsString>) -> Result<ConfigCommand, String> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut words = Vec::new();
    let mut seen = Arguments::default();
    let (mut json, mut database, mut user) = (false, None, None);
    while let Some(argument) = parser.next().map_err(|why| why.to_string())? {
        match argument {
            Long("json") => json = true,
            Long("environment") => seen.environment = true,
            Long("container") => seen.container = true,
            Long("database") => database = Some(value(&mut parser)?),
            Long("user") => user = Some(value(&mut parser)?),
            Value(word) if words.len() < 2 => {
                words.push(word.string().map_err(|why| why.to_string())?);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    let mut words = words.into_iter();
    let (command, file) = (words.next().unwrap_or_default(), words.next());
    let has_file = file.is_some();
    seen.place(file)
        .map_err(|_| format!("howdah config {command} needs one FILE, or --environment"))?;
    let is_shown = database.is_some() || user.is_some();
    let arguments = seen;
    match command.as_str() {
        "check" if !is_shown => Ok(ConfigCommand::Check(arguments, json)),
        "convert" if !json && has_file && !is_shown => Ok(ConfigCommand::Convert(arguments.config)),
        "show" if !json => Ok(ConfigCommand::Show {
            arguments,
            database,
            user,
        }),
        "check" => Err("--database and --user are for howdah config show".into()),
        "convert" => Err("howdah config convert takes a file and no options".into()),
        "show" => Err("--json is for howdah config check".into()),
        other => {
            let near = near::nearest(other, ["check", "convert", "show"]);
            let near = near.map_or_else(String::new, |name| format!("; did you mean {name}?"));
            Err(format!(
                "there is no howdah config {other}: write check, convert or show{near}"
            ))
        }
    }
}

/// The subcommand that was probably meant by a word.
pub fn subcommand_like(word: &str) -> Option<&'static str> {
    near::nearest(word, SUBCOMMANDS)
}

/// `; did you mean X?` if an option is like this argument. Behind a word that is no file, the word
/// may be a subcommand, or an option without its dashes.
fn option_like(argument: &lexopt::Arg<'_>, config: Option<&str>) -> String {
    if let Some(name) = config.and_then(subcommand_like) {
        return format!("; did you mean howdah {name}?");
    }
    let option = match (argument, config) {
        (Long(name), _) => format!("--{name}"),
        (_, Some(word)) => format!("--{word}"),
        _ => return String::new(),
    };
    let near = near::nearest(&option, OPTIONS);
    near.map_or_else(String::new, |name| format!("; did you mean {name}?"))
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
        let environment = Arguments {
            environment: true,
            ..Arguments::default()
        };
        assert_eq!(parsed("--environment"), Ok(Command::Run(environment)));
        let container = || Arguments {
            container: true,
            ..Arguments::default()
        };
        assert_eq!(parsed("--container"), Ok(Command::Run(container())));
        assert_eq!(parsed("ready"), Ok(Command::Ready(container())));
        assert_eq!(parsed("ready a.ini"), Ok(Command::Ready(config())));
        assert_eq!(parsed("--settings"), Ok(Command::Settings));
        let check = ConfigCommand::Check(config(), true);
        assert_eq!(
            parsed("config check a.ini --json"),
            Ok(Command::Config(check))
        );
        let show = ConfigCommand::Show {
            arguments: config(),
            database: Some("d".into()),
            user: None,
        };
        assert_eq!(
            parsed("config show a.ini --database=d"),
            Ok(Command::Config(show))
        );
        assert_eq!(parsed("-V"), Ok(Command::Version(false)));
        assert_eq!(parsed("-V -v"), Ok(Command::Version(true)));
        assert_eq!(parsed("init a"), Ok(Command::Init(vec!["a".into()])));
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
            (
                "--chek a.ini",
                "invalid option '--chek'; did you mean --check?",
            ),
            (
                "check a.ini",
                "unexpected argument \"a.ini\"; did you mean --check?",
            ),
            (
                "tpo --once",
                "invalid option '--once'; did you mean howdah top?",
            ),
            (
                "inti a",
                "unexpected argument \"a\"; did you mean howdah init?",
            ),
            ("--environment a.ini", "--environment takes the place"),
            ("--container a.ini", "--container takes the place"),
            ("ready a.ini b.ini", "unexpected argument \"b.ini\""),
            ("config", "howdah config  needs one FILE"),
            (
                "config chek a.ini",
                "there is no howdah config chek: write check, convert or show; did you mean check?",
            ),
            (
                "config convert a.ini --json",
                "howdah config convert takes a file",
            ),
            ("config show a.ini b.ini c.ini", "unexpected argument"),
            ("--connect a.ini", "--connect needs --check"),
            (
                "postgres://u@h",
                "a configuration file is needed, not a URL",
            ),
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
            "--connect",
            "--environment",
            "--container",
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
