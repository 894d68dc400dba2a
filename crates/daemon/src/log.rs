//! The log: PgBouncer's lines, to standard error and a file, and to syslog.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use howdah_pooler::config::{Globals, LogFormat};
use howdah_pooler::limits::LOG_LINE;
use howdah_pooler::note::{Cause, Level, Note};
use howdah_pooler::queries::slow::{LogValue, SlowQuery};
use jiff::tz::TimeZone;

use crate::syslog::{self, Syslog};
use crate::writer::{LogLine, Writer};

/// The destination of log lines. Cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    verbose: AtomicU32,
    json: AtomicBool,
    unauthenticated: Mutex<Unauthenticated>,
    zone: TimeZone,
    /// Writes to the file.
    file: Writer,
    /// There is a file.
    has_file: AtomicBool,
    /// Writes to standard error. A reader that stops there must not stop the file.
    stderr: Option<Writer>,
    syslog: Mutex<Option<Syslog>>,
}

/// Lines that an unauthenticated client can cause. Only a limited number is written each second, so that nobody
/// can fill a disk with them or delay others. The number of lines left out is logged later.
#[derive(Default)]
struct Unauthenticated {
    /// The greatest number of lines each second; 0 means no limit.
    most: u32,
    /// The current second, and the lines written in it.
    second: i64,
    written: Lines<u32>,
    /// Lines that were left out and not reported yet.
    left_out: Lines<u64>,
}

/// Two counts: of lines about refused logins, and of all other lines. So neither kind crowds the
/// other out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Lines<T> {
    refused: T,
    others: T,
}

impl Unauthenticated {
    /// A line comes in this second. `None`: the line must be left out. Otherwise returns the number
    /// of lines left out before, if it must be reported now.
    fn admits(&mut self, second: i64, cause: Cause) -> Option<Lines<u64>> {
        let begins = second != self.second;
        if begins {
            (self.second, self.written) = (second, Lines::default());
        }
        let counts = match cause {
            Cause::Known => None,
            Cause::Unauthenticated => Some((&mut self.written.others, &mut self.left_out.others)),
            Cause::Refused => Some((&mut self.written.refused, &mut self.left_out.refused)),
        };
        if let Some((written, left_out)) = counts {
            if self.most > 0 && *written >= self.most {
                *left_out += 1;
                return None;
            }
            *written += 1;
        }
        Some(if begins {
            std::mem::take(&mut self.left_out)
        } else {
            Lines::default()
        })
    }
}

impl Log {
    /// A log to standard error, unless `quiet`.
    pub fn new(quiet: bool, verbose: u32) -> Log {
        let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
        let verbose = AtomicU32::new(verbose);
        Log {
            shared: Arc::new(Shared {
                verbose,
                json: AtomicBool::new(false),
                unauthenticated: Mutex::default(),
                zone,
                file: Writer::new(false, tell),
                has_file: AtomicBool::new(false),
                stderr: (!quiet).then(|| Writer::new(true, tell)),
                syslog: Mutex::new(None),
            }),
        }
    }

    /// Sets how much is logged: 0 for everyday use, 1 with debug lines, 2 with noise.
    pub fn set_verbose(&self, verbose: u32) {
        self.shared.verbose.store(verbose, Ordering::Relaxed);
    }

    /// Sets the format of lines in the file and on standard error.
    pub fn set_format(&self, format: LogFormat) {
        let json = format == LogFormat::Json;
        self.shared.json.store(json, Ordering::Relaxed);
    }

    /// Sets how many lines each second are written about clients that have not proved their
    /// identity; 0 means no limit.
    pub fn set_unauthenticated(&self, most: u32) {
        self.unauthenticated().most = most;
    }

    fn unauthenticated(&self) -> std::sync::MutexGuard<'_, Unauthenticated> {
        let lines = self.shared.unauthenticated.lock();
        lines.unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the log file, or opens it again. With an empty path, there is no file.
    ///
    /// # Errors
    /// The file can't be opened; then nothing changes.
    pub fn open(&self, path: &str) -> Result<(), String> {
        let opened = if path.is_empty() {
            None
        } else {
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                // Lines have names of users and databases, texts of queries and addresses.
                .mode(0o640)
                // A FIFO without a reader is an error.
                .custom_flags(nix::libc::O_NONBLOCK)
                .open(Path::new(path))
                // The thread of the log waits for who reads a FIFO.
                .and_then(|file| {
                    rustix::io::ioctl_fionbio(&file, false)?;
                    Ok(file)
                });
            Some(file.map_err(|why| format!("Cannot open logfile: '{path}': {}", text(&why)))?)
        };
        self.shared
            .has_file
            .store(opened.is_some(), Ordering::Relaxed);
        self.shared.file.open(opened);
        Ok(())
    }

    /// From now on, threads of the log write to standard error and the file, so that no other thread
    /// waits for them.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn detach(&self) -> io::Result<()> {
        self.shared.file.start()?;
        self.shared.stderr.as_ref().map_or(Ok(()), Writer::start)
    }

    /// Begins, continues or stops logging to syslog, by the settings.
    pub fn set_syslog(&self, globals: &Globals) {
        let mut slot = self
            .shared
            .syslog
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !globals.syslog {
            *slot = None;
            return;
        }
        if slot.is_none() {
            match Syslog::start(syslog::SOCKET) {
                Ok(started) => *slot = Some(started),
                Err(why) => {
                    drop(slot);
                    let text = format!("cannot log to syslog: {}", text(&why));
                    return self.say(Level::Warning, text);
                }
            }
        }
        if let Some(syslog) = &mut *slot {
            syslog.name(globals.syslog_facility, &globals.syslog_ident);
        }
    }

    /// Waits a moment for lines that are not written yet. Called at the end of the process. If
    /// syslog's lock is held, does not wait for syslog.
    pub fn flush(&self) {
        self.shared.file.flush();
        if let Some(stderr) = &self.shared.stderr {
            stderr.flush();
        }
        if let Ok(slot) = self.shared.syslog.try_lock()
            && let Some(syslog) = &*slot
        {
            syslog.flush();
        }
    }

    /// Logs a note, if `verbose` allows its level.
    pub fn note(&self, note: &Note) {
        self.write(note, |time, pid| object(time, pid, note));
    }

    /// Logs a slow query.
    pub fn slow(&self, slow: &SlowQuery) {
        let note = slow.note();
        self.write(&note, |time, pid| slow_object(time, pid, &note, slow));
    }

    /// Writes a line. `object` makes the JSON line from time and process id.
    fn write(&self, note: &Note, object: impl Fn(&str, u32) -> String) {
        let verbose = self.shared.verbose.load(Ordering::Relaxed);
        let wanted = match note.level {
            Level::Debug => verbose >= 1,
            Level::Noise => verbose >= 2,
            _ => true,
        };
        if !wanted {
            return;
        }
        let now = jiff::Timestamp::now();
        let Some(left_out) = self.unauthenticated().admits(now.as_second(), note.cause) else {
            return;
        };
        let now = now.to_zoned(self.shared.zone.clone());
        if left_out != Lines::default() {
            let all = left_out.refused + left_out.others;
            let text = format!(
                "{all} lines about clients that were not logged in were left out, {} of them about \
                 refused logins (log_unauthenticated_rate)",
                left_out.refused
            );
            let left_out = Note::new(Level::Warning, text);
            self.write_at(&now, &left_out, |time, pid| {
                self::object(time, pid, &left_out)
            });
        }
        self.write_at(&now, note, object);
    }

    fn write_at(&self, now: &jiff::Zoned, note: &Note, object: impl Fn(&str, u32) -> String) {
        if let Some(syslog) = &*self
            .shared
            .syslog
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
        {
            let time = now.strftime(syslog::TIME).to_string();
            syslog.send(&time, std::process::id(), note);
        }
        let json = self.shared.json.load(Ordering::Relaxed);
        let pattern = if json {
            "%Y-%m-%dT%H:%M:%S%.3f%:z"
        } else {
            "%Y-%m-%d %H:%M:%S%.3f %Z"
        };
        let time = now.strftime(pattern).to_string();
        let text = if json {
            object(&time, std::process::id())
        } else {
            line(&time, std::process::id(), note)
        };
        let line = LogLine { text, time, json };
        if self.shared.has_file.load(Ordering::Relaxed) {
            self.shared.file.line(line.clone());
        }
        if let Some(stderr) = &self.shared.stderr {
            stderr.line(line);
        }
    }

    /// Logs a text at a level.
    pub fn say(&self, level: Level, text: impl Into<String>) {
        self.note(&Note::new(level, text));
    }
}

/// The system's text of an error, without Rust's "(os error 5)".
pub fn text(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.rfind(" (os error") {
        text.truncate(end);
    }
    text
}

/// `TIME [PID] LEVEL text`.
fn line(time: &str, pid: u32, note: &Note) -> String {
    format!("{time} [{pid}] {} {}\n", note.level, note.line())
}

/// A line of the log about the log itself.
fn tell(time: &str, json: bool, text: String) -> String {
    let line = if json { object } else { line };
    line(time, std::process::id(), &Note::new(Level::Warning, text))
}

/// The line as a JSON object. A connection's prefix (`C-0x1: `) becomes a field of its own: the
/// `ptr` of SHOW CLIENTS and SHOW SERVERS.
fn object(time: &str, pid: u32, note: &Note) -> String {
    let text = bounded(note.text.trim_end());
    let text = text.as_str();
    let (connection, text) = match text.split_once(": ") {
        Some((name, rest)) if is_connection(name) => (Some(name), rest),
        _ => (None, text),
    };
    let mut fields = serde_json::Map::new();
    fields.insert("time".into(), time.into());
    fields.insert("pid".into(), pid.into());
    fields.insert("level".into(), note.level.to_string().into());
    if let Some(connection) = connection {
        fields.insert("connection".into(), connection.into());
    }
    if let Some(about) = &note.about {
        let named = [
            ("user", &about.user),
            ("database", &about.database),
            ("address", &about.address),
        ];
        let fault = about.fault.iter();
        let fault =
            fault.flat_map(|(sqlstate, reason)| [("sqlstate", sqlstate), ("reason", reason)]);
        for (name, value) in named.into_iter().chain(fault) {
            fields.insert(name.into(), bounded(value).into());
        }
    }
    fields.insert("text".into(), text.into());
    format!("{}\n", serde_json::Value::Object(fields))
}

/// A slow query as a JSON object with a field for each value.
fn slow_object(time: &str, pid: u32, note: &Note, slow: &SlowQuery) -> String {
    let mut fields = serde_json::Map::new();
    fields.insert("time".into(), time.into());
    fields.insert("pid".into(), pid.into());
    fields.insert("level".into(), note.level.to_string().into());
    for (name, value) in slow.fields() {
        let value = match value {
            LogValue::Text(text) => text.into(),
            LogValue::Number(number) => number.into(),
            LogValue::Count(count) => count.into(),
        };
        fields.insert(name.into(), value);
    }
    format!("{}\n", serde_json::Value::Object(fields))
}

/// A text for JSON. JSON escapes most control characters, but not C1 characters, which can also
/// control terminals.
fn bounded(text: &str) -> String {
    let mut end = text.len().min(LOG_LINE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let shown = |c: char| match c {
        '\u{7f}'..='\u{9f}' => '\u{fffd}',
        c => c,
    };
    let mut line: String = text[..end].chars().map(shown).collect();
    if end < text.len() {
        line.push_str("...");
    }
    line
}

fn is_connection(name: &str) -> bool {
    let number = name.strip_prefix("C-0x").or(name.strip_prefix("S-0x"));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_pgbouncers() {
        let note = |text: &str| Note::new(Level::Log, text);
        let seen = line(
            "2026-01-01 00:00:00.000 UTC",
            7,
            &note("C-0x1: a/b@c: hello"),
        );
        assert_eq!(
            seen,
            "2026-01-01 00:00:00.000 UTC [7] LOG C-0x1: a/b@c: hello\n"
        );
        assert_eq!(line("t", 1, &note("a\nb\nc \n")), "t [1] LOG a\\nb\\nc\n");
    }

    #[test]
    fn a_line_can_be_json() {
        let note = |text: &str| Note::new(Level::Warning, text);
        let seen = object("t", 7, &note("C-0x1f: a/b@c:1 say \"hi\"\n\u{1b}[2J\n"));
        assert_eq!(
            seen,
            "{\"connection\":\"C-0x1f\",\"level\":\"WARNING\",\"pid\":7,\
             \"text\":\"a/b@c:1 say \\\"hi\\\"\\n\\u001b[2J\",\"time\":\"t\"}\n"
        );
        let seen = object("t", 7, &note(&format!("\u{9b}2J{}", "x".repeat(10_000))));
        assert!(
            !seen.contains('\u{9b}') && seen.len() < LOG_LINE + 100,
            "{seen}"
        );
        let seen = object("t", 7, &note("C-0xno: such prefix"));
        assert!(seen.contains("\"text\":\"C-0xno: such prefix\"") && !seen.contains("connection"));
    }

    #[test]
    fn a_file_is_written_at_once_filtered_and_opened_anew() {
        let folder = std::env::temp_dir().join(format!("howdah-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.log");
        let path_text = path.to_str().unwrap();
        let log = Log::new(true, 0);
        log.open(path_text).unwrap();
        log.say(Level::Debug, "hidden");
        log.say(Level::Warning, "one");
        let read = || std::fs::read_to_string(&path).unwrap();
        assert!(
            read().ends_with(&format!("[{}] WARNING one\n", std::process::id())),
            "{}",
            read()
        );
        assert_eq!(read().lines().count(), 1);
        log.set_verbose(1);
        log.say(Level::Debug, "shown");
        log.say(Level::Noise, "hidden");
        assert_eq!(read().lines().count(), 2);
        std::fs::rename(&path, folder.join("b.log")).unwrap();
        log.open(path_text).unwrap();
        log.say(Level::Log, "two");
        assert_eq!(read().lines().count(), 1);
        assert!(
            log.open("/nonexistent/x")
                .unwrap_err()
                .contains("No such file or directory")
        );
        log.say(Level::Log, "three");
        assert_eq!(read().lines().count(), 2, "the old file stays in use");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn unauthenticated_clients_lines_are_counted_beyond_a_rate() {
        let mut bound = Unauthenticated {
            most: 2,
            ..Unauthenticated::default()
        };
        use Cause::{Known, Refused, Unauthenticated as Unknown};
        let lines = [
            (1, Unknown),
            (1, Unknown),
            (1, Unknown),
            (1, Refused),
            (1, Unknown),
            (1, Refused),
            (1, Refused),
            (1, Known),
            (2, Known),
            (2, Unknown),
        ];
        let seen = lines.map(|(second, cause)| bound.admits(second, cause));
        let none = Some(Lines::default());
        let told = Some(Lines {
            refused: 1,
            others: 2,
        });
        assert_eq!(
            seen,
            [none, none, None, none, None, none, None, none, told, none]
        );
        bound.most = 0;
        assert_eq!([0; 9].map(|_| bound.admits(3, Unknown)), [none; 9]);
    }

    #[test]
    fn the_time_has_milliseconds_and_a_zone() {
        let time = jiff::Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
        let seen = time.strftime("%Y-%m-%d %H:%M:%S%.3f %Z").to_string();
        assert_eq!(seen, "1970-01-01 00:00:00.000 UTC");
    }
}
