//! Cores that are kept awake, and what it takes to wake a thread.
//!
//! A core of a virtual machine with nothing to do is given back to the host, and takes up to a tenth of
//! a millisecond to come back. With few clients such pauses hide what a pooler costs. `--awake`
//! has a loop of the idle class run on each core: any other thread takes the core from it at once.
//!
//! The loops have a session of their own, with the least weight. Linux shares a core between
//! sessions first (autogroups) and looks at the class of a thread only inside a session: in the
//! session of the bench, a loop took a sixth of the core from PostgreSQL.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a loop runs: it gives its session the least weight (a kernel without autogroups has no such
/// file), says that it runs, and goes round.
const LOOP: &str = "echo 19 2>/dev/null >/proc/self/autogroup; printf . && while :; do :; done";

/// Processes of the idle class, one for each core; they end with this value.
pub struct Awake(Vec<Child>);

impl Awake {
    /// Starts them.
    ///
    /// # Errors
    /// `chrt` or `taskset` (util-linux) is missing or refused.
    pub fn keep() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut awake = Self(Vec::new());
        for core in 0..cores {
            let core = core.to_string();
            let child = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--", "setsid"])
                .args(["taskset", "-c", &core, "chrt", "--idle", "0"])
                .args(["sh", "-c", LOOP])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| io::Error::other(format!("--awake: setpriv: {error}")))?;
            awake.0.push(child);
        }
        awake.started()?;
        Ok(awake)
    }

    /// Waits until each loop runs: its shell has written a byte.
    fn started(&mut self) -> io::Result<()> {
        for child in &mut self.0 {
            let began = match &mut child.stdout {
                Some(output) => output.read_exact(&mut [0]),
                None => Ok(()),
            };
            if began.is_err() {
                let status = child.wait()?;
                return Err(io::Error::other(format!(
                    "--awake: a process of the idle class ended at once ({status}): it needs setsid, \
                     taskset and chrt, and every core"
                )));
            }
        }
        Ok(())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How long it takes to wake a thread that waits for a byte: the mean of many, as they come.
///
/// # Errors
/// There is no socket to be had.
pub fn wake_up() -> io::Result<Duration> {
    const ROUNDS: u32 = 5000;
    let (mut here, mut there) = UnixStream::pair()?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let began = Instant::now();
    let mut byte = [0];
    for _ in 0..ROUNDS {
        here.write_all(&byte)?;
        here.read_exact(&mut byte)?;
    }
    let took = began.elapsed();
    drop(here);
    let _ = echo.join();
    Ok(took / (2 * ROUNDS))
}
