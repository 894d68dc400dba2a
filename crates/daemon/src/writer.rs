//! Writes log lines to standard error or to the file, on a thread of its own. So a pipe without a reader, or a
//! slow disk, delays no other thread, nor the other of the two.
//!
//! Lines wait in a queue. If the queue is full, lines are dropped and counted; the count is reported before
//! the next line that fits. Until the thread starts, lines are written at once.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::log::text;

/// The most lines that may wait for the thread; and the most bytes of such lines.
const QUEUE: usize = 8192;
/// See [`QUEUE`].
const QUEUE_BYTES: usize = 4 << 20;
/// How long the end of the process may wait for the last lines.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The reason why lines are dropped.
const SLOW: &str = "standard error or the log file is too slow";

/// Makes a line about the log at a time: as JSON, or as text.
pub type Tell = fn(time: &str, json: bool, text: String) -> String;

/// A line of the log.
#[derive(Clone)]
pub struct LogLine {
    /// The complete text, with the line's end.
    pub text: String,
    /// The line's time, as it is in the text.
    pub time: String,
    /// The line is a JSON object.
    pub json: bool,
}

/// The sender to standard error or the log file; usable from any thread.
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    tell: Tell,
    queue: Mutex<Queue>,
    /// The queue is not empty.
    filled: Condvar,
    /// Nothing is left to write.
    done: Condvar,
    /// Held by the thread that writes.
    sink: Mutex<Sink>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The bytes of the lines in the queue.
    bytes: usize,
    /// Lines dropped since the last line that fitted.
    lost: u64,
    thread: Thread,
}

/// The state of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Thread {
    /// There is no thread.
    #[default]
    None,
    Waits,
    Writes,
}

/// A job of the thread; jobs are done in order.
enum Job {
    Line(LogLine),
    /// Further lines go to this file.
    Open(Option<File>),
}

/// The destination of lines.
struct Sink {
    /// Lines go to standard error.
    stderr: bool,
    /// A descriptor of its own for standard error, once the process is where it stays: PostgreSQL's
    /// grammar turns the usual one elsewhere while it reads a statement.
    own: Option<File>,
    file: LogFile,
}

impl Writer {
    /// A writer to standard error, if `stderr`, and to no file yet.
    pub fn new(stderr: bool, tell: Tell) -> Writer {
        let file = LogFile::default();
        Writer {
            shared: Arc::new(Shared {
                tell,
                queue: Mutex::default(),
                filled: Condvar::new(),
                done: Condvar::new(),
                sink: Mutex::new(Sink {
                    stderr,
                    own: None,
                    file,
                }),
            }),
        }
    }

    /// From now on a thread writes. (A fork would lose it.)
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(&self) -> io::Result<()> {
        self.shared.owns_stderr();
        let mut queue = self.shared.queue();
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("log".into());
        thread.spawn(move || shared.serve())?;
        queue.thread = Thread::Writes;
        Ok(())
    }

    /// Writes a line. Never waits once the thread runs.
    pub fn line(&self, line: LogLine) {
        let mut queue = self.shared.queue();
        if queue.thread == Thread::None {
            drop(queue);
            return self.shared.done_at_once(Job::Line(line));
        }
        if queue.jobs.len() >= QUEUE || queue.bytes + line.text.len() > QUEUE_BYTES {
            queue.lost += 1;
            return;
        }
        let lost = std::mem::take(&mut queue.lost);
        if lost > 0 {
            let text = (self.shared.tell)(&line.time, line.json, lost_lines(lost, SLOW));
            let (time, json) = (line.time.clone(), line.json);
            queue.put(LogLine { text, time, json });
        }
        queue.put(line);
        self.shared.has_more(queue);
    }

    /// Further lines go to this file, or to none.
    pub fn open(&self, file: Option<File>) {
        let mut queue = self.shared.queue();
        if queue.thread == Thread::None {
            drop(queue);
            return self.shared.done_at_once(Job::Open(file));
        }
        queue.jobs.push_back(Job::Open(file));
        self.shared.has_more(queue);
    }

    /// Waits a moment until all lines are written.
    pub fn flush(&self) {
        let busy = |queue: &mut Queue| queue.thread == Thread::Writes;
        let queue = self.shared.queue();
        let waited = self.shared.done.wait_timeout_while(queue, LAST_WORDS, busy);
        drop(waited);
    }
}

impl Queue {
    fn put(&mut self, line: LogLine) {
        self.bytes += line.text.len();
        self.jobs.push_back(Job::Line(line));
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a job without the thread. The lock is taken even without a file: lines of two threads
    /// must not mix.
    fn done_at_once(&self, job: Job) {
        let sink = self.sink.lock();
        sink.unwrap_or_else(PoisonError::into_inner)
            .does(job, self.tell);
    }

    /// Standard error gets a descriptor of its own. Only a process that stays may have it: whoever reads
    /// the standard error of a daemon's parent waits until nobody has it open.
    fn owns_stderr(&self) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if sink.stderr {
            let own = io::stderr().as_fd().try_clone_to_owned();
            sink.own = own.ok().map(File::from);
        }
    }

    /// Wakes the thread if the queue was empty.
    fn has_more(&self, mut queue: MutexGuard<'_, Queue>) {
        if queue.thread == Thread::Waits {
            queue.thread = Thread::Writes;
            drop(queue);
            self.filled.notify_one();
        }
    }

    /// Runs the thread.
    fn serve(&self) {
        loop {
            let mut queue = self.queue();
            while queue.jobs.is_empty() {
                queue.thread = Thread::Waits;
                self.done.notify_all();
                let woken = self.filled.wait(queue);
                queue = woken.unwrap_or_else(PoisonError::into_inner);
            }
            queue.thread = Thread::Writes;
            queue.bytes = 0;
            let jobs = std::mem::take(&mut queue.jobs);
            drop(queue);
            let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.into_iter().for_each(|job| sink.does(job, self.tell));
        }
    }
}

impl Sink {
    fn does(&mut self, job: Job, tell: Tell) {
        match job {
            Job::Open(file) => self.file.open(file),
            Job::Line(line) => {
                // An error of standard error can't be reported anywhere.
                let _ = match &mut self.own {
                    Some(own) => own.write_all(line.text.as_bytes()),
                    None if self.stderr => io::stderr().write_all(line.text.as_bytes()),
                    None => Ok(()),
                };
                let tell = |text| tell(&line.time, line.json, text);
                self.file.write(&line.text, tell);
            }
        }
    }
}

fn lost_lines(count: u64, why: &str) -> String {
    let lines = if count == 1 { "line" } else { "lines" };
    format!("{count} {lines} of the log could not be written: {why}")
}

/// The log file, and the lines that could not be written to it.
#[derive(Default)]
struct LogFile {
    file: Option<File>,
    /// Lines lost since the last line that was written, and the last reason.
    lost: u64,
    why: String,
    /// A line was written in part.
    torn: bool,
}

impl LogFile {
    fn open(&mut self, file: Option<File>) {
        self.file = file;
        self.torn = false;
    }

    /// Writes a line. If that fails, counts the line as lost. Before the next line that can be
    /// written comes a line about the loss, which `tell` makes from the text.
    fn write(&mut self, line: &str, tell: impl Fn(String) -> String) {
        let mut whole = String::new();
        if self.torn {
            whole.push('\n');
        }
        if self.lost > 0 {
            whole += &tell(lost_lines(self.lost, &self.why));
        }
        whole += line;
        let Some(file) = &mut self.file else {
            return;
        };
        let mut left = whole.as_bytes();
        while !left.is_empty() {
            match file.write(left) {
                Ok(count) if count > 0 => left = &left[count..],
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                failed => {
                    let why = failed.err().unwrap_or(io::ErrorKind::WriteZero.into());
                    self.why = text(&why);
                    self.lost += 1;
                    self.torn |= left.len() < whole.len();
                    return;
                }
            }
        }
        self.lost = 0;
        self.torn = false;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{BufRead, BufReader};

    use super::*;

    fn line(number: usize) -> LogLine {
        LogLine {
            text: format!("{number}\n"),
            time: "T".into(),
            json: false,
        }
    }

    fn told(time: &str, json: bool, text: String) -> String {
        format!("{time} {json} {text}\n")
    }

    #[test]
    fn who_does_not_read_holds_nobody_up_and_what_is_lost_is_told() {
        let (reader, pipe) = io::pipe().unwrap();
        let writer = Writer::new(false, told);
        writer.start().unwrap();
        writer.open(Some(File::from(std::os::fd::OwnedFd::from(pipe))));
        // More lines than the kernel and the queue hold: if a line waited, this would hang.
        let count = 40_000;
        (0..count).for_each(|number| writer.line(line(number)));
        let reads = std::thread::spawn(move || {
            let lines = BufReader::new(reader).lines().map(Result::unwrap);
            let (mut next, mut lost) = (0, 0);
            for line in lines.take_while(|line| *line != count.to_string()) {
                let told = line.strip_prefix("T false ");
                let told = told.and_then(|line| line.strip_suffix(SLOW));
                let number = told.and_then(|told| told.split(' ').next());
                if let Some(number) = number {
                    lost += number.parse::<usize>().unwrap();
                } else {
                    assert_eq!(line, (next + lost).to_string(), "in order");
                    next += 1;
                }
            }
            (next, lost)
        });
        while writer.shared.queue().thread != Thread::Waits {
            writer.flush();
        }
        writer.line(line(count));
        let (read, lost) = reads.join().unwrap();
        assert!(lost > 0);
        assert_eq!(read + lost, count);
    }

    #[test]
    fn what_was_said_stands_there_at_the_end_in_the_file_of_its_time() {
        let folder = std::env::temp_dir().join(format!("howdah-writer-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let create = |name| Some(File::create(folder.join(name)).unwrap());
        let read = |name| std::fs::read_to_string(folder.join(name)).unwrap();
        let writer = Writer::new(false, told);
        writer.open(create("a"));
        writer.line(line(1));
        assert_eq!(read("a"), "1\n", "at once, without the thread");
        writer.start().unwrap();
        writer.line(line(2));
        writer.open(create("b"));
        writer.line(line(3));
        writer.flush();
        assert_eq!((&*read("a"), &*read("b")), ("1\n2\n", "3\n"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn lost_lines_are_told_of() {
        let path = std::env::temp_dir().join(format!("howdah-lost-{}", std::process::id()));
        let tell = |text: String| format!("told: {text}\n");
        let mut log = LogFile {
            file: Some(File::open("/dev/full").unwrap()),
            ..LogFile::default()
        };
        // Opened for reading: even a line about the loss can't be written.
        log.write("a\n", tell);
        log.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        log.write("b\n", tell);
        assert_eq!((log.lost, log.torn), (2, false));
        log.file = Some(File::create(&path).unwrap());
        log.torn = true;
        log.write("c\n", tell);
        log.write("d\n", tell);
        let why = "told: 2 lines of the log could not be written: No space left on device";
        let seen = std::fs::read_to_string(&path).unwrap();
        assert_eq!(seen, format!("\n{why}\nc\nd\n"));
        std::fs::remove_file(&path).unwrap();
    }
}
