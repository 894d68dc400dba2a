//! A temporary PostgreSQL with pgbench's tables.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use howdah_bench::scram::Credentials;
use howdah_bench::session::{Session, message};

use crate::contender::Certificate;
use crate::machine::{Machine, free_port, succeed};
use crate::process::{Process, wait_until};

/// The main user, and the name of the database.
pub const USER: &str = "bench";
/// The password. The database exists for minutes and listens only on loopback.
pub const PASSWORD: &str = "bench-secret";
/// A user without a password, as in published benchmarks.
pub const OPEN_USER: &str = "open";
/// Iterations of key derivation. Poolers have the secret in their user files and derive nothing, so
/// their cost does not depend on this. pgbench derives for each of up to 10,000 logins, and a small
/// count keeps this to seconds.
const ITERATIONS: u32 = 64;

/// The settings that figures depend on.
pub const SETTINGS: [&str; 6] = [
    // Every target keeps its pool of 40. Direct runs, and pools of 1,000 databases, need 1,000 more.
    "max_connections=1300",
    "shared_buffers=256MB",
    "fsync=off",
    "synchronous_commit=off",
    "autovacuum=off",
    "jit=off",
];

/// A running PostgreSQL.
pub struct Postgres {
    port: u16,
    version: String,
    scale: u32,
    secret: String,
    tools: PathBuf,
    process: Process,
}

impl Postgres {
    /// Makes a cluster, starts it and fills it. With a certificate it accepts TLS, too.
    ///
    /// # Errors
    /// PostgreSQL's programs are missing or fail.
    pub fn start(
        machine: &Machine,
        tools: Option<&Path>,
        scale: u32,
        certificate: Option<&Certificate>,
    ) -> io::Result<Self> {
        let tools = self::tools(tools)?;
        let data = machine.folder().join("data");
        let password = machine.write("password", PASSWORD)?;
        let mut initdb = machine.command(tools.join("initdb"));
        initdb.arg("--pwfile").arg(password).arg("-D").arg(&data);
        initdb.args([
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            "-N",
            "-E",
            "UTF8",
            "--locale=C",
        ]);
        succeed(&mut initdb)?;
        let access = "local all open trust\n\
            local all all scram-sha-256\n\
            host all open 127.0.0.1/32 trust\n\
            host all all 127.0.0.1/32 scram-sha-256\n";
        machine.write("data/pg_hba.conf", access)?;
        let port = free_port()?;
        let mut server = machine.command(tools.join("postgres"));
        server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        // For servers over unix sockets. Only we use this folder.
        server.arg("-k").arg(machine.folder());
        server.args(["-c", "listen_addresses=127.0.0.1"]);
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        if let Some(certificate) = certificate {
            let file = |name, path: &Path| format!("{name}={}", path.display());
            server.args(["-c", "ssl=on"]);
            server.args(["-c", &file("ssl_key_file", &certificate.key)]);
            server.args(["-c", &file("ssl_cert_file", &certificate.chain)]);
        }
        let mut process = Process::start(&mut server, &machine.folder().join("postgres.log"))?;
        let mut credentials = Credentials::new(PASSWORD);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut session = None;
        wait_until(Duration::from_secs(30), || {
            session = Session::connect(address, USER, "postgres", &mut credentials).ok();
            session.is_some() || process.has_ended()
        });
        let mut session = session.ok_or_else(|| {
            io::Error::other(format!(
                "PostgreSQL does not start: {}",
                process.last_words()
            ))
        })?;
        let secret = credentials.secret(b"howdah-bench-salt", ITERATIONS);
        query(
            &mut session,
            &format!("ALTER ROLE {USER} PASSWORD '{secret}'"),
        )?;
        query(&mut session, &format!("CREATE DATABASE {USER}"))?;
        query(
            &mut session,
            &format!("CREATE ROLE {OPEN_USER} SUPERUSER LOGIN"),
        )?;
        let version = session
            .parameters()
            .iter()
            .find(|(name, _)| name == "server_version");
        let version = version.map_or_else(String::new, |(_, value)| value.clone());
        session.terminate()?;
        let postgres = Self {
            port,
            version,
            scale,
            secret,
            tools,
            process,
        };
        let mut fill = postgres.pgbench(machine, port);
        succeed(fill.args(["-i", "-q", "-s", &scale.to_string()]))?;
        Ok(postgres)
    }

    /// A pgbench command for `port`, without further flags.
    pub fn pgbench(&self, machine: &Machine, port: u16) -> Command {
        let mut command = machine.command(self.tools.join("pgbench"));
        command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", USER]);
        command
            .env("PGDATABASE", USER)
            .env("PGPASSWORD", PASSWORD)
            .env("PGSSLMODE", "disable");
        command.env("PGGSSENCMODE", "disable");
        // Ignores the certificates and passwords of the user.
        command.env("HOME", machine.folder());
        command
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The last output of a PostgreSQL that takes no connections any more. None while it does.
    pub fn end(&self) -> Option<String> {
        let refused = TcpStream::connect(("127.0.0.1", self.port))
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        refused.then(|| self.process.last_words())
    }

    /// The reported version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The scale of pgbench's tables.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// The user's SCRAM secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

fn query(session: &mut Session, text: &str) -> io::Result<usize> {
    session.send(&message(b'Q', format!("{text}\0").as_bytes()))?;
    session.read_until_ready()
}

/// The folder of PostgreSQL's programs: the named one, or the newest.
///
/// # Errors
/// A program is missing.
pub fn tools(named: Option<&Path>) -> io::Result<PathBuf> {
    let Some(folder) = named else {
        return find_tools();
    };
    match TOOLS.iter().find(|tool| !folder.join(tool).exists()) {
        None => Ok(folder.to_owned()),
        Some(missing) => Err(io::Error::other(format!(
            "there is no {}",
            folder.join(missing).display()
        ))),
    }
}

const TOOLS: [&str; 3] = ["initdb", "postgres", "pgbench"];

/// The folder of the newest PostgreSQL with all needed programs.
fn find_tools() -> io::Result<PathBuf> {
    let mut folders: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
    {
        let version = entry.file_name().to_string_lossy().parse().unwrap_or(0);
        folders.push((version, entry.path().join("bin")));
    }
    folders.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = folders
        .into_iter()
        .map(|(_, folder)| folder)
        .rev()
        .chain(std::env::split_paths(&path));
    let complete = |folder: &PathBuf| TOOLS.iter().all(|tool| folder.join(tool).exists());
    found.into_iter().find(complete).ok_or_else(|| {
        io::Error::other("no initdb, postgres and pgbench found; name their folder with --pg-bin")
    })
}
