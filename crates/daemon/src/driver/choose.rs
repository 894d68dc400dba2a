//! The choice of the driver, with its reason.

use std::fmt;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use howdah_pooler::event::{LooseSocket, Time};

use super::uring::Uring;
use super::{Completion, Driver, Errno, Key, error_text};

/// The setting `io_driver`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoDriver {
    /// io_uring where it works, else epoll.
    #[default]
    Auto,
    /// io_uring, or fail.
    IoUring,
    /// epoll.
    Epoll,
}

/// A driver that works here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Use [`Uring`].
    IoUring,
    /// Use [`super::epoll::Epoll`].
    Epoll,
}

impl IoDriver {
    /// Reads the setting's value.
    pub fn parse(text: &str) -> Option<IoDriver> {
        match text {
            "auto" => Some(IoDriver::Auto),
            "io_uring" => Some(IoDriver::IoUring),
            "epoll" => Some(IoDriver::Epoll),
            _ => None,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Choice::IoUring => "io_uring",
            Choice::Epoll => "epoll",
        })
    }
}

/// Chooses a driver. Returns the reason, too, for the log.
///
/// # Errors
/// The setting demands io_uring, which does not work here; the text says why.
pub fn choose(setting: IoDriver) -> Result<(Choice, String), String> {
    if setting == IoDriver::Epoll {
        return Ok((Choice::Epoll, "epoll, as configured".to_owned()));
    }
    match (try_uring(), setting) {
        (Ok(()), IoDriver::Auto) => Ok((Choice::IoUring, "io_uring".to_owned())),
        (Ok(()), _) => Ok((Choice::IoUring, "io_uring, as configured".to_owned())),
        (Err(why), IoDriver::Auto) => Ok((
            Choice::Epoll,
            format!("epoll, because io_uring does not work here: {why}"),
        )),
        (Err(why), _) => Err(format!("io_driver = io_uring does not work here: {why}")),
    }
}

/// Tries every operation of io_uring that the driver needs: set up, register buffers, receive by
/// multishot, send, stop.
fn try_uring() -> Result<(), String> {
    let setup = |error: std::io::Error| match Errno::from_io_error(&error) {
        Some(errno) => error_text(errno),
        None => error.to_string(),
    };
    let mut driver = Uring::new(Vec::new(), None).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                " (forbidden by kernel.io_uring_disabled or a container's profile)"
            }
            std::io::ErrorKind::InvalidInput => " (Linux 6.1 or later is needed)",
            std::io::ErrorKind::OutOfMemory => " (see the limit on locked memory, ulimit -l)",
            _ => "",
        };
        format!("setting it up: {}{hint}", setup(error))
    })?;
    let (mut ours, theirs) = UnixStream::pair().map_err(setup)?;
    let key = Key {
        slot: 0,
        generation: 1,
    };
    driver.attach(key, LooseSocket::new(OwnedFd::from(theirs)));
    driver.receive(key, true);
    ours.write_all(b"ping").map_err(setup)?;
    let (mut received, mut sent) = (0, false);
    while received < 8 || !sent {
        let deadline = Time(driver.now().0 + 2_000_000_000);
        driver.wait(Some(deadline));
        while let Some(completion) = driver.next() {
            match completion {
                Completion::Received { chunk, .. } => {
                    received += chunk.len();
                    let block = driver.bytes(&chunk).to_vec();
                    driver.release(chunk);
                    if received == 4 {
                        sent = driver.send(key, block, true).is_some();
                    }
                }
                Completion::Sent { result, .. } => {
                    result.map_err(|error| format!("sending: {}", error_text(error)))?;
                    sent = true;
                    // These bytes arrive only if the receive is still armed.
                    ours.write_all(b"pong").map_err(setup)?;
                }
                Completion::Ended { error, .. } => {
                    let why = error.map_or("end of file".to_owned(), error_text);
                    return Err(format!("receiving by multishot: {why}"));
                }
                _ => {}
            }
        }
        if driver.now() >= deadline {
            return Err("receiving by multishot: nothing arrived".to_owned());
        }
    }
    let mut back = [0; 4];
    ours.read_exact(&mut back).map_err(setup)?;
    // More bytes than the kernel accepts at once: the driver must not report them as sent.
    driver.send(key, vec![0; 16 << 20], false);
    driver.wait(Some(Time(0)));
    while let Some(completion) = driver.next() {
        if let Completion::Sent { result: Ok(()), .. } = completion {
            return Err("a send that would block is told as done".to_owned());
        }
    }
    driver.close(key);
    let deadline = Time(driver.now().0 + 2_000_000_000);
    while driver.now() < deadline {
        driver.wait(Some(deadline));
        while let Some(completion) = driver.next() {
            if let (Completion::Closed { .. }, b"ping") = (completion, &back) {
                return Ok(());
            }
        }
    }
    Err("stopping a receive: it does not end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_leads_somewhere_or_says_why() {
        assert_eq!(choose(IoDriver::Epoll).unwrap().0, Choice::Epoll);
        let (choice, why) = choose(IoDriver::Auto).unwrap();
        assert!(why.starts_with(&choice.to_string()), "{why}");
        match (choice, choose(IoDriver::IoUring)) {
            (Choice::IoUring, Ok((Choice::IoUring, _))) | (Choice::Epoll, Err(_)) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(IoDriver::parse("io_uring"), Some(IoDriver::IoUring));
        assert_eq!(IoDriver::parse("kqueue"), None);
    }
}
