//! Removes what must not outlive the process: the pid file, the unix socket, listening sockets, and programs
//! that print passwords.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use howdah_daemon::driver::socket::Listener;
use howdah_daemon::survive::is_asked;
use howdah_pooler::note::Level;
use rustix::process::Pid;

use crate::boot::Fatal;
use crate::log::{self, Log};
use crate::sources::command;

/// A file that this process made. It is removed only if it is still the same file.
struct Trace {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Trace {
    fn remove_if(&self, wanted: impl Fn(&fs::Metadata) -> bool) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|seen| {
            (seen.dev(), seen.ino()) == (self.device, self.inode) && wanted(&seen)
        });
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

static TRACES: Mutex<Vec<Trace>> = Mutex::new(Vec::new());

static LOG: Mutex<Option<Log>> = Mutex::new(None);

static LISTENERS: Mutex<Vec<Listener>> = Mutex::new(Vec::new());

/// A listening socket that must be shut down when the process ends. The kernel itself would close
/// the socket only later, when it has undone io_uring's accepts. Clients that connect in between
/// would be cut off. Shut down, the socket refuses them, or another process on the same port
/// accepts them.
pub fn remember_listener(listener: &Listener) {
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.push(listener.clone());
}

/// A successor has the listening sockets and the unix socket's file, and will write its own pid
/// file. Removes the pid file now, and leaves the successor's files alone.
pub fn hand_over() {
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.clear();
    let mut traces = TRACES.lock().unwrap_or_else(PoisonError::into_inner);
    for trace in traces.drain(..) {
        trace.remove_if(|seen| seen.file_type().is_file());
    }
}

/// A file that must be removed when the process ends, unless it has been replaced.
pub fn remember(path: &Path) {
    if let Ok(seen) = fs::symlink_metadata(path) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let trace = Trace {
            path,
            device: seen.dev(),
            inode: seen.ino(),
        };
        TRACES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(trace);
    }
}

/// Calls a function for each listening socket.
pub fn each_listener(mut call: impl FnMut(&OwnedFd)) {
    let listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.iter().for_each(|listener| call(&listener.socket));
}

/// A log that must be flushed when the process ends.
pub fn remember_log(log: &Log) {
    *LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some(log.clone());
}

/// Removes everything that was remembered, and ends the process.
pub fn leave(code: i32) -> ! {
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    for listener in listeners.drain(..) {
        listener.stop();
    }
    drop(listeners);
    for trace in TRACES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .drain(..)
    {
        trace.remove_if(|_| true);
    }
    command::kill_all();
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(log) = log {
        log.flush();
    }
    std::process::exit(code)
}

/// After a panic on any thread, logs the panic and ends the process, unless the panic will be
/// caught. (Without its worker, a client would wait for ever.)
pub fn leave_on_panic(log: &Log) {
    let log = log.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a thread").to_owned();
        let place = panic
            .location()
            .map_or_else(String::new, |place| format!(" at {place}"));
        let payload = panic.payload();
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no reason given");
        if is_asked() {
            log.say(
                Level::Warning,
                format!("{name} survives a panic{place}: {text}"),
            );
            return;
        }
        log.say(Level::Fatal, format!("{name} panicked{place}: {text}"));
        leave(1);
    }));
}

/// Makes sure that no other process runs with this pid file. Removes the pid file of a dead
/// process.
///
/// # Errors
/// Another process runs, or the file can't be read.
pub fn check_pidfile(path: &str, log: &Log) -> Result<(), Fatal> {
    if path.is_empty() {
        return Ok(());
    }
    let written = match fs::read_to_string(path) {
        Ok(written) => written,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
        Err(why) => {
            return Err(Fatal(format!(
                "could not read pidfile '{path}': {}",
                log::text(&why)
            )));
        }
    };
    let pid = written
        .trim()
        .parse()
        .ok()
        .filter(|&pid: &i32| pid > 0)
        .and_then(Pid::from_raw);
    let stale = pid.is_some_and(|pid| {
        // In a container, the dead process may well have had the same number as this process.
        pid == rustix::process::getpid()
            || rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
    });
    if !stale {
        return Err(Fatal(format!(
            "pidfile '{path}' exists, another instance running?"
        )));
    }
    log.say(Level::Log, "stale pidfile, removing");
    fs::remove_file(path).map_err(|why| {
        Fatal(format!(
            "could not remove stale pidfile: {}",
            log::text(&why)
        ))
    })
}

/// Writes the process id into the pid file, and remembers to remove the file.
///
/// # Errors
/// The file can't be made, or exists already.
pub fn write_pidfile(path: &str) -> Result<(), Fatal> {
    if path.is_empty() {
        return Ok(());
    }
    let fail = |doing: &str, why: &std::io::Error| {
        Fatal(format!(
            "could not {doing} pidfile '{path}': {}",
            log::text(why)
        ))
    };
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
        .map_err(|why| fail("open", &why))?;
    remember(Path::new(path));
    writeln!(file, "{}", std::process::id()).map_err(|why| fail("write", &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfile_tells_the_living_from_the_dead() {
        let folder = std::env::temp_dir().join(format!("howdah-pid-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("pid");
        let name = path.to_str().unwrap();
        let log = Log::new(true, 0);
        let judge = |text: &str| {
            fs::write(&path, text).unwrap();
            check_pidfile(name, &log)
        };
        assert_eq!(check_pidfile("", &log), Ok(()));
        assert_eq!(check_pidfile(name, &log), Ok(()));
        let exists = Fatal(format!(
            "pidfile '{name}' exists, another instance running?"
        ));
        assert_eq!(judge("1\n"), Err(exists));
        assert!(judge("").is_err() && judge("x").is_err() && judge("-1").is_err());
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        assert_eq!(judge(&dead.id().to_string()), Ok(()));
        assert!(!path.exists());
        assert_eq!(judge(&std::process::id().to_string()), Ok(()));
        assert!(!path.exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Run by the next test, in a process of its own.
    #[test]
    #[ignore = "it ends the process"]
    fn panics() {
        leave_on_panic(&Log::new(false, 0));
        #[cfg(feature = "ldap")]
        assert_eq!(
            howdah_daemon::survive::survive::<()>(|| panic!("at a stranger's answer")),
            None
        );
        let worker = std::thread::Builder::new().name("worker 7".into());
        let _ = worker
            .spawn(|| panic!("the ledger is {}", "broken"))
            .unwrap()
            .join();
        std::process::exit(99);
    }

    #[test]
    fn a_panic_on_any_thread_ends_the_process_with_a_clear_line() {
        let seen = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["leave::tests::panics", "--exact", "--ignored"])
            .output()
            .unwrap();
        assert_eq!(seen.status.code(), Some(1));
        let said = String::from_utf8_lossy(&seen.stderr).into_owned();
        let place = format!("FATAL worker 7 panicked at {}:", file!());
        assert!(
            said.contains(&place) && said.contains(": the ledger is broken\n"),
            "{said}"
        );
        #[cfg(feature = "ldap")]
        assert!(said.contains("survives a panic"), "{said}");
    }
}
