//! Log lines to syslog: datagrams to /dev/log, as the C library's `syslog()` writes them (RFC 3164).
//!
//! A thread sends the lines, so a syslog daemon that is slow, stopped or restarted delays no other thread.
//! Lines that the daemon does not take are counted, and the count is reported when it takes lines again.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use howdah_pooler::config::Facility;
use howdah_pooler::note::{Level, Note};

/// The socket of syslog daemons.
pub const SOCKET: &str = "/dev/log";

/// How many lines may wait for the thread.
const QUEUE: usize = 4096;
/// How long the daemon may delay a line.
const SEND_LIMIT: Duration = Duration::from_secs(1);
/// How long the end of the process may wait for the last lines.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A job for the thread.
enum Job {
    Line(String),
    /// Reports when all earlier lines are sent or lost.
    Flush(SyncSender<()>),
}

/// The sender to syslog.
pub struct Syslog {
    jobs: SyncSender<Job>,
    lost: Arc<AtomicU64>,
    facility: Facility,
    ident: String,
}

impl Syslog {
    /// Starts the thread. No daemon needs to listen at the path yet.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(path: impl Into<PathBuf>) -> std::io::Result<Syslog> {
        let (jobs, queue) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let mut carrier = Carrier {
            path: path.into(),
            socket: None,
            lost: lost.clone(),
        };
        std::thread::Builder::new()
            .name("syslog".into())
            .spawn(move || carrier.serve(&queue))?;
        Ok(Syslog {
            jobs,
            lost,
            facility: Facility::Daemon,
            ident: String::new(),
        })
    }

    /// Sets the facility and the program name of further lines.
    pub fn name(&mut self, facility: Facility, ident: &str) {
        self.facility = facility;
        ident.clone_into(&mut self.ident);
    }

    /// Sends a line, and never waits. `time` has the form of [`TIME`].
    pub fn send(&self, time: &str, pid: u32, note: &Note) {
        let line = line(self.facility, &self.ident, time, pid, note);
        if self.jobs.try_send(Job::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits a moment until the lines are sent.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.jobs.try_send(Job::Flush(done)).is_ok() {
            let _: Result<(), RecvTimeoutError> = is_done.recv_timeout(LAST_WORDS);
        }
    }
}

/// The format of a line's time, for strftime: local time, without a year.
pub const TIME: &str = "%b %e %H:%M:%S";

/// `<PRIORITY>TIME IDENT[PID]: TEXT`.
fn line(facility: Facility, ident: &str, time: &str, pid: u32, note: &Note) -> String {
    let facility = match facility {
        Facility::User => 1,
        Facility::Daemon => 3,
        Facility::Auth => 4,
        Facility::Authpriv => 10,
        Facility::Local0 => 16,
        Facility::Local1 => 17,
        Facility::Local2 => 18,
        Facility::Local3 => 19,
        Facility::Local4 => 20,
        Facility::Local5 => 21,
        Facility::Local6 => 22,
        Facility::Local7 => 23,
    };
    let severity = match note.level {
        Level::Fatal => 2,
        Level::Error => 3,
        Level::Warning => 4,
        Level::Log => 6,
        Level::Debug | Level::Noise => 7,
    };
    let text = note.line();
    format!("<{}>{time} {ident}[{pid}]: {text}", facility * 8 + severity)
}

/// The state of the thread.
struct Carrier {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    lost: Arc<AtomicU64>,
}

impl Carrier {
    fn serve(&mut self, queue: &Receiver<Job>) {
        for job in queue {
            match job {
                Job::Line(line) => self.carry(&line),
                // The waiting thread may be gone.
                Job::Flush(done) => drop(done.try_send(())),
            }
        }
    }

    fn carry(&mut self, line: &str) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let (head, _) = line.split_once(": ").unwrap_or((line, ""));
            let lines = if lost == 1 { "line" } else { "lines" };
            if !self.send(&format!(
                "{head}: {lost} {lines} could not be sent to syslog"
            )) {
                self.lost.fetch_add(lost + 1, Ordering::Relaxed);
                return;
            }
        }
        if !self.send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a line. A restarted daemon listens on a new socket with the old name, so a failed send
    /// connects once more.
    fn send(&mut self, line: &str) -> bool {
        for _ in 0..2 {
            if self.socket.is_none() {
                self.socket = self.connect().ok();
            }
            let Some(socket) = &self.socket else {
                return false;
            };
            match socket.send(line.as_bytes()) {
                Ok(_) => return true,
                // The daemon is there, but slow.
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => return false,
                Err(_) => self.socket = None,
            }
        }
        false
    }

    fn connect(&self) -> std::io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_LIMIT))?;
        socket.connect(&self.path)?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(level: Level, text: &str) -> Note {
        Note::new(level, text)
    }

    #[test]
    fn a_line_is_the_c_librarys() {
        let time = "Nov  1 09:05:00";
        for (facility, level, start) in [
            (Facility::Daemon, Level::Log, "<30>"),
            (Facility::Daemon, Level::Fatal, "<26>"),
            (Facility::User, Level::Error, "<11>"),
            (Facility::Auth, Level::Warning, "<36>"),
            (Facility::Authpriv, Level::Debug, "<87>"),
            (Facility::Local0, Level::Noise, "<135>"),
            (Facility::Local7, Level::Log, "<190>"),
        ] {
            let line = line(facility, "pool", time, 7, &note(level, "two\nlines\n"));
            assert_eq!(line, format!("{start}{time} pool[7]: two\\nlines"));
        }
    }

    #[test]
    fn lines_arrive_and_go_on_when_the_daemon_was_away() {
        let folder = std::env::temp_dir().join(format!("howdah-syslog-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        let mut syslog = Syslog::start(&path).unwrap();
        syslog.name(Facility::Daemon, "h");
        let say = |text: &str| {
            syslog.send("T", 1, &note(Level::Log, text));
            syslog.flush();
        };
        let listen = || {
            let _ = std::fs::remove_file(&path);
            let socket = UnixDatagram::bind(&path).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            socket
        };
        let hear = |socket: &UnixDatagram| {
            let mut bytes = [0; 200];
            let count = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        };
        say("nobody is there");
        let daemon = listen();
        say("first");
        assert_eq!(
            hear(&daemon),
            "<30>T h[1]: 1 line could not be sent to syslog"
        );
        assert_eq!(hear(&daemon), "<30>T h[1]: first");
        drop(daemon);
        let daemon = listen();
        say("second");
        assert_eq!(hear(&daemon), "<30>T h[1]: second");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_daemon_that_does_not_read_holds_nobody_up() {
        let folder = std::env::temp_dir().join(format!("howdah-slow-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        let _deaf = UnixDatagram::bind(&path).unwrap();
        let syslog = Syslog::start(&path).unwrap();
        // More lines than the kernel and the queue hold. If `send` waited, this would hang or
        // exceed the test's time.
        for _ in 0..QUEUE * 3 {
            syslog.send("T", 1, &note(Level::Log, "line"));
        }
        assert!(syslog.lost.load(Ordering::Relaxed) > 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
