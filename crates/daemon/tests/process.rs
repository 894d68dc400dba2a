//! The howdah process as operators see it: flags, files, signals, log lines.
//!
//! No PostgreSQL is needed. If root runs the tests, the process runs as an unprivileged user.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const NOBODY: u32 = 65534;

/// A new directory with a copy of the program that an unprivileged user can run.
struct Place {
    folder: PathBuf,
    port: u16,
}

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("howdah-process-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_howdah"), folder.join("howdah")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        Place { folder, port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes a configuration that listens, with additional lines in `[pgbouncer]`.
    fn configure(&self, more: &str) {
        let folder = self.folder.display();
        let text = format!(
            "[databases]\nd = host=127.0.0.1 port=1\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir = {folder}\nlogfile = {folder}/log\n\
             pidfile = {folder}/pid\nauth_type = any\nworkers = 2\n{more}\n",
            self.port
        );
        fs::write(self.path("h.ini"), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("howdah"));
        command
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        if rustix::process::getuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        once_free(|| self.command(arguments).output())
    }

    fn start(&self) -> Running<'_> {
        let child = once_free(|| self.command(&["-q", "h.ini"]).spawn());
        let running = Running { place: self, child };
        self.await_log("process up");
        running
    }

    fn await_log(&self, text: &str) {
        wait_for(text, || self.read("log").contains(text));
    }

    fn unix_socket(&self) -> PathBuf {
        self.path(&format!(".s.PGSQL.{}", self.port))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Running<'a> {
    place: &'a Place,
    child: Child,
}

impl Running<'_> {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(&mut self) -> Option<i32> {
        let mut code = None;
        wait_for("the end", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        let nothing_left = !self.place.path("pid").exists() && !self.place.unix_socket().exists();
        assert!(nothing_left, "the pid file and the unix socket are gone");
        code.unwrap().code()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program that was just copied. If another thread starts a process at this moment, that
/// process has the copy open for writing until it executes its own program.
fn once_free<T>(mut run: impl FnMut() -> std::io::Result<T>) -> T {
    let mut ran = None;
    wait_for("the program", || {
        let result = run();
        let busy = result
            .as_ref()
            .is_err_and(|why| why.kind() == ErrorKind::ExecutableFileBusy);
        if !busy {
            ran = Some(result);
        }
        !busy
    });
    ran.unwrap().unwrap()
}

fn wait_for(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !reached() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        // Leaves the cores to the processes that the test waits for.
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_refused(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port))
        .is_err_and(|why| why.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn flags_that_only_print() {
    let place = Place::new();
    let version = place.output(&["-V"]);
    assert!(version.status.success());
    assert_eq!(
        text(&version.stdout).lines().next(),
        Some("Howdah 0.1.0 (PgBouncer 1.25.2 compatible)")
    );
    let help = place.output(&["--help"]);
    assert!(help.status.success() && text(&help.stdout).contains("CONFIG_FILE"));
    let nothing = place.output(&[]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).contains("no configuration file specified"));
}

#[test]
fn a_wrong_configuration_is_told_whole() {
    let place = Place::new();
    place.configure("pool_mode = x\nlisten_prot = 1");
    for arguments in [&["h.ini"][..], &["--check", "h.ini"]] {
        let seen = place.output(arguments);
        let said = text(&seen.stderr);
        assert_eq!(seen.status.code(), Some(1));
        assert!(
            said.contains("invalid value \"x\" for parameter pool_mode"),
            "{said}"
        );
        assert!(
            said.contains("(h.ini:12)") && said.contains("did you mean listen_port"),
            "{said}"
        );
    }
    place.configure("client_tls_dheparams = legacy");
    let seen = place.output(&["--check", "h.ini"]);
    assert!(seen.status.success() && text(&seen.stderr).contains("WARNING client_tls_dheparams"));
    let gone = place.output(&["gone.ini"]);
    let said = text(&gone.stderr);
    assert!(
        said.contains("ERROR could not load file \"gone.ini\": No such file"),
        "{said}"
    );
    assert!(said.contains("FATAL cannot load config file"), "{said}");
}

#[test]
fn a_takeover_needs_a_unix_socket() {
    let place = Place::new();
    place.configure("unix_socket_dir =\n");
    let seen = place.output(&["-R", "h.ini"]);
    assert_eq!(seen.status.code(), Some(1));
    assert!(text(&seen.stderr).contains("-R needs unix_socket_dir"));
}

#[test]
fn root_is_refused_and_another_user_assumed() {
    if !rustix::process::getuid().is_root() {
        return; // Only root can become somebody else.
    }
    let place = Place::new();
    place.configure("");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(place.path("howdah"));
        once_free(|| command.args(arguments).current_dir(&place.folder).output())
    };
    let seen = run(&["h.ini"]);
    assert_eq!(seen.status.code(), Some(1));
    assert!(text(&seen.stderr).contains("should not run as root"));
    let seen = run(&["-u", "nosuchuser", "h.ini"]);
    assert!(text(&seen.stderr).contains("could not find user 'nosuchuser'"));
    let mut command = Command::new(place.path("howdah"));
    let child = command
        .args(["-q", "-u", "nobody", "h.ini"])
        .current_dir(&place.folder)
        .spawn();
    let mut running = Running {
        place: &place,
        child: child.unwrap(),
    };
    place.await_log("process up");
    let status = fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
    let uids = format!("Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}");
    assert!(status.contains(&uids), "{status}");
    running.signal(Signal::QUIT);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn it_listens_writes_its_pid_and_keeps_a_second_one_out() {
    let place = Place::new();
    place.configure("unix_socket_mode = 0770\nverbose = 1");
    let mut running = place.start();
    assert_eq!(place.read("pid").trim(), running.child.id().to_string());
    TcpStream::connect(("127.0.0.1", place.port)).unwrap();
    let mode = fs::metadata(place.unix_socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o770);
    let log = place.read("log");
    assert!(
        log.contains(&format!("LOG listening on 127.0.0.1:{}\n", place.port)),
        "{log}"
    );
    assert!(log.contains("LOG kernel file descriptor limit: "), "{log}");
    let second = place.output(&["h.ini"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("FATAL unix socket is in use, cannot continue"));
    running.signal(Signal::QUIT);
    assert_eq!(running.end(), Some(0));
    assert!(place.read("log").contains("LOG got SIGQUIT, fast exit\n"));
}

#[test]
fn a_pid_file_of_a_living_process_is_respected() {
    let place = Place::new();
    place.configure("");
    fs::write(place.path("pid"), std::process::id().to_string()).unwrap();
    fs::set_permissions(place.path("pid"), fs::Permissions::from_mode(0o644)).unwrap();
    let seen = place.output(&["h.ini"]);
    assert!(text(&seen.stderr).contains("exists, another instance running?"));
    assert!(place.path("pid").exists());
}

#[test]
fn a_reload_opens_the_log_anew_and_a_bad_one_changes_nothing() {
    let place = Place::new();
    place.configure("");
    let mut running = place.start();
    fs::rename(place.path("log"), place.path("old")).unwrap();
    place.configure("pool_mode = x");
    running.signal(Signal::HUP);
    wait_for("the new log", || place.path("log").exists());
    for said in [
        "got SIGHUP, re-reading config",
        "ERROR invalid value \"x\" for parameter pool_mode",
        "WARNING config file loading failed",
    ] {
        wait_for(said, || place.read("old").contains(said));
    }
    place.configure("client_tls_dheparams = legacy");
    running.signal(Signal::HUP);
    place.await_log("WARNING client_tls_dheparams = legacy");
    running.signal(Signal::QUIT);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn term_refuses_new_clients_and_waits_for_the_others() {
    let place = Place::new();
    place.configure("client_login_timeout = 1000");
    let mut running = place.start();
    // A client that is connected, but not logged in. Whether Howdah waits for it or not, the
    // listener is closed first.
    let _client = UnixStream::connect(place.unix_socket()).unwrap();
    running.signal(Signal::TERM);
    place.await_log("got SIGTERM, shutting down, waiting for all clients disconnect");
    wait_for("TCP refused", || is_refused(place.port));
    if running.child.try_wait().unwrap().is_none() {
        // Howdah may end by itself meanwhile, because no client is logged in.
        let _ = kill_process(Pid::from_child(&running.child), Signal::TERM);
    }
    assert_eq!(running.end(), Some(0));
}

#[test]
fn int_ends_it_when_no_server_is_in_use() {
    let place = Place::new();
    place.configure("");
    let mut running = place.start();
    running.signal(Signal::USR1);
    place.await_log("got SIGUSR1, pausing all activity");
    running.signal(Signal::USR2);
    place.await_log("got SIGUSR2, continuing from PAUSE");
    running.signal(Signal::INT);
    assert_eq!(running.end(), Some(0));
    assert!(
        place
            .read("log")
            .contains("waiting for all servers connections to be released")
    );
}

#[test]
fn a_daemon_lives_on_in_the_background() {
    let place = Place::new();
    place.configure("");
    let seen = place.output(&["-d", "h.ini"]);
    assert!(seen.status.success(), "{}", text(&seen.stderr));
    place.await_log("process up");
    let pid: i32 = place.read("pid").trim().parse().unwrap();
    let stderr = fs::read_link(format!("/proc/{pid}/fd/2")).unwrap();
    assert_eq!(stderr, Path::new("/dev/null"));
    kill_process(Pid::from_raw(pid).unwrap(), Signal::QUIT).unwrap();
    wait_for("the end", || !place.path("pid").exists());
    for (more, said) in [
        ("pidfile =", "daemon needs pidfile"),
        ("logfile =", "daemon needs logging"),
    ] {
        place.configure(more);
        let seen = place.output(&["-d", "h.ini"]);
        assert!(!seen.status.success() && text(&seen.stderr).contains(said));
    }
}

#[test]
fn an_abstract_socket_leaves_no_file() {
    let place = Place::new();
    place.configure(&format!(
        "unix_socket_dir = @howdah-{}\nlisten_addr =",
        place.port
    ));
    let mut running = place.start();
    let second = place.output(&["h.ini"]);
    assert!(text(&second.stderr).contains("unix socket is in use"));
    running.signal(Signal::QUIT);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn an_address_in_use_is_told() {
    let place = Place::new();
    place.configure("");
    let _taken = TcpListener::bind(("127.0.0.1", place.port)).unwrap();
    let seen = place.output(&["h.ini"]);
    let said = text(&seen.stderr);
    let warned = format!(
        "WARNING cannot listen on 127.0.0.1:{}: bind(): Address",
        place.port
    );
    assert!(said.contains(&warned), "{said}");
    assert!(
        said.contains("FATAL failed to listen on any address"),
        "{said}"
    );
}
