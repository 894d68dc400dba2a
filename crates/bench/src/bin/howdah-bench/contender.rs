//! The poolers in a published design, and their configs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::machine::{Machine, free_port, succeed};
use crate::postgres::{OPEN_USER, Postgres, USER};
use crate::target::{PATIENCE, Running};
use crate::{how_compiled, in_path};

/// More time for a pooler to start, for each of its databases: some poolers connect to all of them.
const EACH_DATABASE: Duration = Duration::from_millis(200);

/// The program of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No pooler: PostgreSQL itself.
    PostgreSql,
    /// Howdah.
    Howdah,
    /// PgBouncer.
    PgBouncer,
    /// Odyssey.
    Odyssey,
    /// PgCat.
    PgCat,
    /// PgDoorman.
    PgDoorman,
    /// PgDog.
    PgDog,
}

impl Kind {
    /// All kinds, in the order of the columns.
    pub const ALL: [Self; 7] = [
        Self::PostgreSql,
        Self::Howdah,
        Self::PgBouncer,
        Self::Odyssey,
        Self::PgDoorman,
        Self::PgCat,
        Self::PgDog,
    ];

    /// The name in reports and in `--pooler`.
    pub fn name(self) -> &'static str {
        match self {
            Self::PostgreSql => "postgresql",
            Self::Howdah => "howdah",
            Self::PgBouncer => "pgbouncer",
            Self::Odyssey => "odyssey",
            Self::PgCat => "pgcat",
            Self::PgDoorman => "pg_doorman",
            Self::PgDog => "pgdog",
        }
    }

    /// The default config: the file's name and text.
    fn config(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::PostgreSql => return None,
            Self::Howdah => ("howdah.ini", include_str!("../../../configs/howdah.ini")),
            Self::PgBouncer => (
                "pgbouncer.ini",
                include_str!("../../../configs/pgbouncer.ini"),
            ),
            Self::Odyssey => (
                "odyssey.conf",
                include_str!("../../../configs/odyssey.conf"),
            ),
            Self::PgCat => ("pgcat.toml", include_str!("../../../configs/pgcat.toml")),
            Self::PgDoorman => (
                "pg_doorman.toml",
                include_str!("../../../configs/pg_doorman.toml"),
            ),
            Self::PgDog => ("pgdog.toml", include_str!("../../../configs/pgdog.toml")),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The value of `--pooler NAME=BINARY[:CONFIG]`.
#[derive(Clone, Debug)]
pub struct Named {
    kind: Kind,
    program: PathBuf,
    config: Option<PathBuf>,
}

/// Reads a `--pooler`.
///
/// # Errors
/// The name is unknown, or the binary is missing.
pub fn named(text: &str) -> Result<Named, String> {
    let (name, rest) = text
        .split_once('=')
        .ok_or("say NAME=BINARY or NAME=BINARY:CONFIG")?;
    let kind = Kind::ALL[1..].iter().find(|kind| kind.name() == name);
    let kind = *kind.ok_or_else(|| {
        let known: Vec<_> = Kind::ALL[1..].iter().map(|kind| kind.name()).collect();
        format!("{name:?} is none of {}", known.join(", "))
    })?;
    let (program, config) = match rest.split_once(':') {
        Some((program, config)) => (program, Some(PathBuf::from(config))),
        None => (rest, None),
    };
    if let Some(config) = config.as_ref().filter(|config| !config.is_file()) {
        return Err(format!("there is no config {}", config.display()));
    }
    let program = in_path(Path::new(program));
    if !program.is_file() {
        return Err(format!("there is no program {}", program.display()));
    }
    Ok(Named {
        kind,
        program,
        config,
    })
}

/// A pooler that takes part.
#[derive(Clone, Debug)]
pub struct Contender {
    /// The kind.
    pub kind: Kind,
    /// The answer to `--version`; empty for PostgreSQL itself.
    pub version: String,
    program: PathBuf,
    /// The template of its config.
    pub config: String,
    config_name: String,
}

/// PostgreSQL itself, Howdah, and every other pooler that is named or in PATH.
///
/// # Errors
/// A pooler is named twice, its config can't be read, or a program can't be copied.
pub fn find(named: &[Named], howdah: &Path, machine: &Machine) -> io::Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    for kind in Kind::ALL {
        if named.iter().filter(|named| named.kind == kind).count() > 1 {
            return Err(io::Error::other(format!(
                "--pooler {kind}= is said twice, and a run has room for one; records of both can be \
                 compared by `against`"
            )));
        }
        let given = named.iter().find(|named| named.kind == kind);
        let program = match (given, kind) {
            (Some(named), _) => Some(named.program.clone()),
            (None, Kind::Howdah) => Some(howdah.to_owned()),
            (None, _) => Some(in_path(Path::new(kind.name()))).filter(|path| path.is_file()),
        };
        let Some((file, text)) = kind.config() else {
            contenders.push(Contender {
                kind,
                version: String::new(),
                program: PathBuf::new(),
                config: String::new(),
                config_name: String::new(),
            });
            continue;
        };
        let Some(program) = program else { continue };
        let config = match given.and_then(|named| named.config.as_ref()) {
            Some(path) => std::fs::read_to_string(path)?,
            None => text.to_owned(),
        };
        let program = machine.install(&program)?;
        contenders.push(Contender {
            kind,
            version: version(machine, &program),
            program,
            config,
            config_name: file.to_owned(),
        });
    }
    Ok(contenders)
}

/// The first hexadecimal digits of the bytes' SHA-256.
pub fn fingerprint(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The first line of a program's answer to `--version`.
fn version(machine: &Machine, program: &Path) -> String {
    let output = machine.command(program).arg("--version").output();
    let output = output.map(|output| [output.stdout, output.stderr].concat());
    let text = String::from_utf8_lossy(&output.unwrap_or_default()).into_owned();
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or("version unknown").trim().to_owned()
}

/// Parameters of a contender's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// The pool size.
    pub pool: usize,
    /// Worker threads of poolers that have several.
    pub workers: usize,
    /// Servers use a unix socket.
    pub unix: bool,
    /// Servers use TLS.
    pub server_tls: bool,
    /// Howdah's servers keep statements without a name.
    pub shares_unnamed: bool,
    /// The number of databases in the config. All lead to one database.
    pub databases: usize,
}

impl Shape {
    /// Servers use loopback TCP.
    pub fn new(pool: usize, workers: usize) -> Self {
        Self {
            pool,
            workers,
            unix: false,
            server_tls: false,
            shares_unnamed: false,
            databases: 1,
        }
    }

    /// The names of the databases for clients.
    pub fn names(self) -> Vec<String> {
        let others = (1..self.databases).map(|number| format!("{USER}{number}"));
        [USER.to_owned()].into_iter().chain(others).collect()
    }
}

impl Contender {
    /// The version, and for programs in C whether their compiler optimised them.
    pub fn describe(&self) -> String {
        match self.kind {
            Kind::PgBouncer | Kind::Odyssey => {
                format!("{}, {}", self.version, how_compiled(&self.program))
            }
            _ => self.version.clone(),
        }
    }

    /// Identifies the build by program and config. `None` for PostgreSQL itself.
    ///
    /// # Errors
    /// The program can't be read.
    pub fn build(&self) -> io::Result<Option<String>> {
        if self.version.is_empty() {
            return Ok(None);
        }
        let config = fingerprint(self.config.as_bytes());
        let program = fingerprint(&std::fs::read(&self.program)?);
        Ok(Some(format!("program {program} with config {config}")))
    }

    /// Starts the pooler, and waits until a client gets through to PostgreSQL.
    ///
    /// # Errors
    /// The pooler does not start. The error has its last output.
    pub fn start(
        &self,
        shape: Shape,
        machine: &Machine,
        postgres: &Postgres,
        certificate: &Certificate,
    ) -> io::Result<Running> {
        if self.kind == Kind::PostgreSql {
            return Ok(Running::direct(postgres));
        }
        if shape.unix && !self.config.contains("{server_host}") {
            return Err(io::Error::other(
                "not played: its config names no host for servers over unix sockets",
            ));
        }
        if shape.server_tls && !self.config.contains("{server_tls}") {
            return Err(io::Error::other(
                "not played: its config says nothing of TLS to servers",
            ));
        }
        let folder = machine.folder().display();
        let server_host = match (shape.unix, self.kind) {
            (false, _) => "127.0.0.1".to_owned(),
            (true, Kind::Odyssey) => format!("unix://{folder}/.s.PGSQL.{}", postgres.port()),
            (true, _) => folder.to_string(),
        };
        let port = free_port()?;
        let users = machine.write("open-userlist.txt", &format!("\"{OPEN_USER}\" \"\"\n"))?;
        let values = [
            ("{port}", port.to_string()),
            ("{server_host}", server_host),
            ("{server_port}", postgres.port().to_string()),
            ("{pool}", shape.pool.to_string()),
            ("{workers}", shape.workers.to_string()),
            ("{users}", users.display().to_string()),
            (
                "{server_tls}",
                if shape.server_tls {
                    "require"
                } else {
                    "disable"
                }
                .into(),
            ),
            (
                "{unnamed}",
                if shape.shares_unnamed {
                    "share"
                } else {
                    "pass"
                }
                .into(),
            ),
            ("{key}", certificate.key.display().to_string()),
            ("{certificate}", certificate.chain.display().to_string()),
        ];
        let names = shape.names();
        let mut text = for_each_database(&self.config, &names).map_err(io::Error::other)?;
        for (word, value) in values {
            text = text.replace(word, &value);
        }
        let config = machine.write(&format!("{port}-{}", self.config_name), &text)?;
        let mut command = machine.command(&self.program);
        self.arguments(&mut command, machine, &config, &names)?;
        let mut running = Running::of(&mut command, port, machine)?;
        running.await_login(OPEN_USER, PATIENCE + EACH_DATABASE * names.len() as u32)?;
        Ok(running)
    }

    fn arguments(
        &self,
        command: &mut Command,
        machine: &Machine,
        config: &Path,
        names: &[String],
    ) -> io::Result<()> {
        if self.kind == Kind::PgDog {
            let users = include_str!("../../../configs/pgdog-users.toml");
            let users = for_each_database(users, names).map_err(io::Error::other)?;
            let users = machine.write("pgdog-users.toml", &users)?;
            command.arg("--config").arg(config);
            command.arg("--users").arg(users);
        } else {
            command.arg(config);
        }
        Ok(())
    }
}

/// Repeats the text between the lines `{each database}` and `{end}` for each of these names.
///
/// # Errors
/// There are several names, and the text has no such lines.
fn for_each_database(text: &str, names: &[String]) -> Result<String, String> {
    let mut filled = String::new();
    let (mut block, mut blocks) = (None, 0);
    for line in text.split_inclusive('\n') {
        match (
            line.trim_start_matches([';', '#', ' ']).trim_end(),
            &mut block,
        ) {
            ("{each database}", None) => block = Some(String::new()),
            ("{end}", Some(lines)) => {
                let each = names.iter().map(|name| lines.replace("{database}", name));
                filled.extend(each);
                (block, blocks) = (None, blocks + 1);
            }
            (_, Some(lines)) => lines.push_str(line),
            (_, None) => filled.push_str(line),
        }
    }
    match (block, blocks) {
        (Some(_), _) => Err("its config has {each database} without {end}".to_owned()),
        (None, 0) if names.len() > 1 => {
            Err("not played: its config has no {each database}".to_owned())
        }
        _ => Ok(filled),
    }
}

/// A self-signed certificate and its key, the same for all contenders.
pub struct Certificate {
    /// The file of the key.
    pub key: PathBuf,
    /// The file of the certificate.
    pub chain: PathBuf,
}

impl Certificate {
    /// Makes an RSA-2048 certificate with `openssl`.
    ///
    /// # Errors
    /// There is no `openssl`, or it fails.
    pub fn make(machine: &Machine) -> io::Result<Self> {
        let key = machine.folder().join("tls.key");
        let chain = machine.folder().join("tls.crt");
        let mut openssl = machine.command("openssl");
        openssl.args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ]);
        openssl.args(["-subj", "/CN=localhost"]);
        openssl.arg("-keyout").arg(&key).arg("-out").arg(&chain);
        succeed(&mut openssl)?;
        Ok(Self { key, chain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_must_be_known_and_there() {
        assert!(named("pgbouncer").unwrap_err().contains("NAME=BINARY"));
        assert!(
            named("pgpool=/bin/true")
                .unwrap_err()
                .contains("is none of")
        );
        assert!(
            named("odyssey=/no/such")
                .unwrap_err()
                .contains("no program")
        );
        let error = named("odyssey=/bin/true:/no/such").unwrap_err();
        assert!(error.contains("no config"));
        assert_eq!(named("odyssey=/bin/true").unwrap().kind, Kind::Odyssey);
    }

    #[test]
    fn every_config_names_what_is_filled_in() {
        for (_, text) in Kind::ALL.iter().filter_map(|kind| kind.config()) {
            for word in [
                "{port}",
                "{server_port}",
                "{pool}",
                "{key}",
                "{certificate}",
                "{each database}",
            ] {
                assert!(text.contains(word), "{word} in {text}");
            }
        }
    }

    #[test]
    fn what_is_marked_is_there_for_each_database() {
        let names = Shape {
            databases: 3,
            ..Shape::new(20, 1)
        }
        .names();
        assert_eq!(names, ["bench", "bench1", "bench2"]);
        let text = "[a]\n; {each database}\n{database} = host=h\n; {end}\n[b]\n";
        assert_eq!(
            for_each_database(text, &names).unwrap(),
            "[a]\nbench = host=h\nbench1 = host=h\nbench2 = host=h\n[b]\n"
        );
        assert_eq!(for_each_database("[a]\n", &names[..1]).unwrap(), "[a]\n");
        let error = for_each_database("[a]\n", &names).unwrap_err();
        assert!(error.starts_with("not played"), "{error}");
        assert!(for_each_database("# {each database}\n", &names).is_err());
        for (name, text) in Kind::ALL.iter().filter_map(|kind| kind.config()) {
            let text = for_each_database(text, &names).unwrap();
            assert!(
                text.contains("bench2") && !text.contains("{database}"),
                "{name}"
            );
        }
    }
}
