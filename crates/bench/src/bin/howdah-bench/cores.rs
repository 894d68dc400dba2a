//! Cores that are kept awake, and what it takes to wake a thread.
//!
//! A core of a virtual machine with nothing to do is given back to the host, and takes up to a tenth of
//! a millisecond to come back. With few clients such pauses hide what a pooler costs. `--awake`
//! has a thread of the idle class run on each core: any other thread takes the core from it at once.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
            let spin = ["sh", "-c", "while :; do :; done"];
            let child = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--", "taskset", "-c", &core])
                .args(["chrt", "--idle", "0"])
                .args(spin)
                .stdin(Stdio::null())
                .spawn()
                .map_err(|error| io::Error::other(format!("--awake: setpriv: {error}")))?;
            awake.0.push(child);
        }
        awake.started()?;
        Ok(awake)
    }

    /// Waits for a moment in which one that can't run would have ended.
    fn started(&mut self) -> io::Result<()> {
        thread::sleep(Duration::from_millis(200));
        for child in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!(
                    "--awake: a process of the idle class ended at once ({status}): it needs taskset \
                     and chrt, and every core"
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
