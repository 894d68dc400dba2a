//! One socket: sends bytes, receives whole messages, limits every wait, keeps a short history.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::{Failure, Kind, Outcome};
use crate::messages::{Message, show_got, show_sent};
use crate::transport::{Attempt, Transport};
use crate::url::Url;

const READ: usize = 64 * 1024;
const HISTORY: usize = 150;
const HEAD: usize = 160;

/// An entry of a connection's history.
enum Past {
    Operation(String),
    Sent {
        tag: u8,
        head: Vec<u8>,
        length: usize,
    },
    Got {
        tag: u8,
        head: Vec<u8>,
        length: usize,
    },
}

/// How a connection ends without Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// An orderly close of the socket.
    Fin,
    /// A reset: unread input and unsent output are lost.
    Reset,
}

/// A slow reader: at most `bytes` in a read, with a `pause` between reads.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The most bytes in a read.
    pub bytes: usize,
    /// The time between reads.
    pub pause: Duration,
}

/// One connection to the address under test.
pub struct Connection {
    socket: Transport,
    input: Vec<u8>,
    start: usize,
    past: VecDeque<Past>,
    /// How long a reply may take.
    pub limit: Duration,
    /// Set while the client reads slowly.
    pub pace: Option<Pace>,
    /// Set while the client writes in small pieces of at most this many bytes.
    pub pieces: Option<usize>,
}

fn lost(error: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Unexpected, format!("the connection broke: {error}"))
}

impl Connection {
    /// Connects to `url`.
    pub fn open(url: &Url, limit: Duration) -> Outcome<Connection> {
        let socket = Transport::open(url, limit).map_err(|error| {
            Failure::new(
                Kind::Unexpected,
                format!("cannot connect to {}: {error}", url.shown()),
            )
        })?;
        Ok(Connection {
            socket,
            input: Vec::new(),
            start: 0,
            past: VecDeque::new(),
            limit,
            pace: None,
            pieces: None,
        })
    }

    fn remember(&mut self, past: Past) {
        if self.past.len() == HISTORY {
            self.past.pop_front();
        }
        self.past.push_back(past);
    }

    /// Marks the start of an operation in the history.
    pub fn note(&mut self, operation: String) {
        self.remember(Past::Operation(operation));
    }

    fn remember_sent(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while rest.len() >= 5 {
            let length = u32::from_be_bytes([rest[1], rest[2], rest[3], rest[4]]) as usize;
            if !rest[0].is_ascii_alphabetic() || length < 4 {
                break;
            }
            let body = &rest[5..rest.len().min(length + 1)];
            let head = body[..body.len().min(HEAD)].to_vec();
            self.remember(Past::Sent {
                tag: rest[0],
                head,
                length: length - 4,
            });
            if rest.len() < length + 1 {
                return;
            }
            rest = &rest[length + 1..];
        }
        if !rest.is_empty() {
            let head = rest[..rest.len().min(HEAD)].to_vec();
            self.remember(Past::Sent {
                tag: 0,
                head,
                length: rest.len(),
            });
        }
    }

    /// The last messages of this connection, oldest first, a line each.
    pub fn history(&self) -> Vec<String> {
        let line = |past: &Past| match past {
            Past::Operation(name) => format!("== {name}"),
            Past::Sent { tag, head, length } => format!("-> {}", show_sent(*tag, head, *length)),
            Past::Got { tag, head, length } => format!("<- {}", show_got(*tag, head, *length)),
        };
        self.past.iter().map(line).collect()
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) -> Outcome<PollFlags> {
        if flags.contains(PollFlags::IN) && self.socket.has_read_ahead() {
            return Ok(PollFlags::IN);
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::new(
                    Kind::Hang,
                    "no complete reply within the limit",
                ));
            }
            let mut fds = [PollFd::new(&self.socket, flags)];
            let time = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut fds, Some(&time)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(fds[0].revents()),
                Err(error) => return Err(lost(error)),
            }
        }
    }

    /// Receives bytes, if there are any; false at the end of the stream.
    fn take(&mut self) -> Outcome<bool> {
        if self.start > 0 && (self.start == self.input.len() || self.start > READ) {
            self.input.drain(..self.start);
            self.start = 0;
        }
        let want = self.pace.map_or(READ, |pace| pace.bytes);
        let end = self.input.len();
        self.input.resize(end + want, 0);
        let taken = self.socket.receive(&mut self.input[end..]);
        let came = match &taken {
            Ok(Attempt::Done(count)) => *count,
            _ => 0,
        };
        self.input.truncate(end + came);
        match taken {
            Ok(Attempt::Done(0)) => Ok(false),
            Ok(Attempt::Wait(_)) => Ok(true),
            Ok(Attempt::Done(_)) => {
                if let Some(pace) = self.pace {
                    std::thread::sleep(pace.pause);
                }
                Ok(true)
            }
            Err(error) => Err(lost(error)),
        }
    }

    /// Sends all of `bytes`. Receives meanwhile, so that two full sockets can't deadlock.
    pub fn send(&mut self, bytes: &[u8]) -> Outcome {
        self.remember_sent(bytes);
        let deadline = Instant::now() + self.limit;
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = match self.pieces {
                Some(size) if rest.len() <= 4096 => &rest[..rest.len().min(size)],
                _ => rest,
            };
            match self.socket.send(piece) {
                Ok(Attempt::Done(count)) => {
                    rest = &rest[count..];
                    if self.pieces.is_some() {
                        std::thread::yield_now();
                    }
                }
                Ok(Attempt::Wait(wanted)) => {
                    let ready = self.wait(PollFlags::IN | wanted, deadline)?;
                    if ready.contains(PollFlags::IN) && !self.take()? {
                        return Err(lost("closed by the other side while sending"));
                    }
                }
                Err(error) => {
                    // The other side's last messages say more than EPIPE.
                    while let Ok(true) = self.take() {
                        if self
                            .wait(PollFlags::IN, Instant::now() + Duration::from_millis(50))
                            .is_err()
                        {
                            break;
                        }
                    }
                    return Err(lost(error));
                }
            }
        }
        Ok(())
    }

    fn buffered(&mut self) -> Outcome<Option<Message>> {
        let have = &self.input[self.start..];
        if have.len() < 5 {
            return Ok(None);
        }
        let length = u32::from_be_bytes([have[1], have[2], have[3], have[4]]) as usize;
        if !(4..=1 << 30).contains(&length) {
            let what = format!("a message {:?} with length {length}", have[0] as char);
            return Err(Failure::new(Kind::Wrong, what));
        }
        if have.len() < length + 1 {
            if self.input.capacity() < self.start + length + 1 + READ {
                self.input.reserve(length + READ);
            }
            return Ok(None);
        }
        let message = Message {
            tag: have[0],
            body: have[5..=length].to_vec(),
        };
        self.start += length + 1;
        let head = message.body[..message.body.len().min(HEAD)].to_vec();
        self.remember(Past::Got {
            tag: message.tag,
            head,
            length: message.body.len(),
        });
        Ok(Some(message))
    }

    /// The next message; `None` at a clean end of the stream.
    pub fn next_until(&mut self, deadline: Instant) -> Outcome<Option<Message>> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(Some(message));
            }
            self.wait(PollFlags::IN, deadline)?;
            if !self.take()? {
                if self.start < self.input.len() {
                    return Err(lost("it ended in the middle of a message"));
                }
                return Ok(None);
            }
        }
    }

    /// The next message within the limit. The end of the stream is a failure.
    pub fn next(&mut self) -> Outcome<Message> {
        let deadline = Instant::now() + self.limit;
        self.next_until(deadline)?
            .ok_or_else(|| lost("closed by the other side"))
    }

    /// Receives until about `bytes` came, the stream is quiet for `patience`, or it ended.
    pub fn skim(&mut self, bytes: usize, patience: Duration) {
        let mut taken = 0;
        while taken < bytes {
            if self.wait(PollFlags::IN, Instant::now() + patience).is_err() {
                return;
            }
            let before = self.input.len() - self.start;
            if !matches!(self.take(), Ok(true)) {
                return;
            }
            taken += (self.input.len() - self.start).saturating_sub(before);
        }
    }

    /// Whole messages that have come or come within `patience`, for printing.
    pub fn leftovers(&mut self, patience: Duration) -> Vec<Message> {
        let mut messages = Vec::new();
        let deadline = Instant::now() + patience;
        self.pace = None;
        while messages.len() < 12 {
            match self.next_until(deadline) {
                Ok(Some(message)) => messages.push(message),
                _ => break,
            }
        }
        messages
    }

    /// True if there are bytes that belong to no reply, or the stream has ended.
    pub fn has_surplus(&mut self) -> bool {
        self.start < self.input.len()
            || self
                .wait(PollFlags::IN, Instant::now() + Duration::from_micros(1))
                .is_ok()
    }

    /// Waits for the end of the stream.
    pub fn wait_for_end(&mut self, limit: Duration) -> Outcome {
        let deadline = Instant::now() + limit;
        loop {
            match self.next_until(deadline) {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => {}
                // A reset also ends the stream.
                Err(failure) if failure.kind == Kind::Unexpected => return Ok(()),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Ends the connection abruptly.
    pub fn leave(self, how: Leave) {
        if how == Leave::Reset {
            // A unix socket may refuse this. Then the close is orderly.
            let _ = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }
}
