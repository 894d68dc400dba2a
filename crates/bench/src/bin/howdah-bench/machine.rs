//! The machine's resources: an unprivileged user, a folder, ports, descriptors.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use crate::cores::{Awake, wake_up};

/// A new folder and its user. Dropping the value removes the folder.
pub struct Machine {
    folder: PathBuf,
    /// If we are root, the user and group for PostgreSQL and poolers, which refuse root.
    become_user: Option<(u32, u32)>,
    awake: Option<Awake>,
}

impl Machine {
    /// Makes the folder, and keeps the cores awake if that is wanted.
    ///
    /// # Errors
    /// The folder can't be made, or we are root and there is no unprivileged user; [`Awake::keep`].
    pub fn new(awake: bool) -> io::Result<Self> {
        let become_user = geteuid().is_root().then(unprivileged_user).transpose()?;
        let mut folder = std::env::temp_dir();
        folder.push(format!("howdah-bench-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let machine = Self {
            folder,
            become_user,
            awake: awake.then(Awake::keep).transpose()?,
        };
        machine.hand_over(&machine.folder)?;
        Ok(machine)
    }

    /// The folder in which everything runs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the cores are kept awake.
    pub fn cores(&self) -> &'static str {
        match self.awake {
            Some(_) => "kept awake",
            None => "left to sleep",
        }
    }

    /// What the cores do when they have nothing to do, and how long it takes to wake a thread.
    pub fn describe_cores(&self) -> String {
        let cores = self.cores();
        match wake_up() {
            Ok(took) => format!(
                "{cores}; a thread is awake {:.1} us after it was woken",
                took.as_secs_f64() * 1e6
            ),
            Err(error) => format!("{cores}; how long a thread takes to wake is not known: {error}"),
        }
    }

    fn hand_over(&self, path: &Path) -> io::Result<()> {
        match self.become_user {
            Some((user, group)) => chown(path, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    /// Writes a file that the unprivileged user can read. Returns its path.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        self.hand_over(&path)?;
        Ok(path)
    }

    /// Copies a program to a place where the unprivileged user can run it. Returns the copy's path.
    ///
    /// # Errors
    /// The program does not exist.
    pub fn install(&self, program: &Path) -> io::Result<PathBuf> {
        let name = program.file_name().unwrap_or_default();
        let copy = self.folder.join(name);
        fs::copy(program, &copy).map_err(|error| {
            io::Error::other(format!("{} cannot be copied: {error}", program.display()))
        })?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        Ok(copy)
    }

    /// A command that runs as the unprivileged user, in the folder. When the bench ends, the kernel
    /// sends SIGINT to it, on which all our programs stop quickly.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        if let Some((user, group)) = self.become_user {
            command.args([format!("--reuid={user}"), format!("--regid={group}")]);
            command.arg("--clear-groups");
        }
        command
            .args(["--pdeathsig", "INT", "--"])
            .arg(program)
            .current_dir(&self.folder);
        command.env("LC_ALL", "C");
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("{} stays behind: {error}", self.folder.display());
        }
    }
}

fn unprivileged_user() -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres")
        .or_else(|| find("nobody"))
        .ok_or_else(|| io::Error::other("we are root, and there is no user postgres or nobody"))
}

/// A free port.
///
/// # Errors
/// None is left.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Raises the limit of descriptors for this process and its children to `wanted`, or as far as
/// possible. Returns the limit.
pub fn raise_descriptor_limit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if !enough(limit.current) {
        let higher = Rlimit {
            current: Some(wanted),
            maximum: if enough(limit.maximum) {
                limit.maximum
            } else {
                Some(wanted)
            },
        };
        // Only root may exceed the hard limit.
        if setrlimit(Resource::Nofile, higher).is_err() {
            let _ = setrlimit(
                Resource::Nofile,
                Rlimit {
                    current: limit.maximum,
                    maximum: limit.maximum,
                },
            );
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A line about this machine: kernel, processor, cores, memory.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(':').nth(1))
            .unwrap_or("?")
            .trim()
            .to_owned()
    };
    let processor = value(&read("/proc/cpuinfo"), "model name");
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let kilobytes: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "Linux {}, {processor}, {cores} cores, {:.0} GB",
        read("/proc/sys/kernel/osrelease").trim(),
        kilobytes / 1e6
    )
}

/// Runs a command and waits for its end.
///
/// # Errors
/// The command can't be started or fails. The error has its output.
pub fn succeed(command: &mut Command) -> io::Result<Output> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{:?}: {}",
        command.get_args().last(),
        words.trim()
    )))
}
