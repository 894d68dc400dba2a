//! A worker's mailbox. Any thread may post; posting never blocks. The mailbox is unbounded, and keeps the
//! order of each sender's letters.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use howdah_pooler::config::Config;
use howdah_pooler::event::Answer;
use howdah_pooler::mail::Mail;
use rustix::event::{EventfdFlags, eventfd};

use crate::driver::socket::SocketOptions;
use crate::helper::Shaken;
use crate::tls::TlsLibrary;

/// A letter in a worker's mailbox.
#[derive(Debug)]
pub enum Letter {
    /// From a worker.
    Mail(Mail),
    /// From the control thread.
    Answer(Answer),
    /// From the control thread, after a reload.
    Settings(Arc<Config>),
    /// From the control thread, after a signal.
    Operator(howdah_pooler::event::Order),
    /// From the process to the worker's loop; `Pooler` never sees it.
    Instruction(Instruction),
}

/// An instruction of the process to a worker's loop.
#[derive(Debug)]
pub enum Instruction {
    /// Close the listening sockets.
    StopListening {
        /// Keep unix sockets open.
        keep_unix: bool,
    },
    /// Stop or start accepting. (A process that is taking over may not be ready yet.)
    Accept(bool),
    /// Options for new connections.
    SocketOptions(SocketOptions),
    /// The TLS library and contexts for new sessions.
    Tls(Arc<dyn TlsLibrary>),
    /// The helper thread has taken a step of a handshake.
    Shaken(Box<Shaken>),
    /// Leave the loop. Connections are dropped.
    Stop,
}

/// The sending side; cheap to clone.
#[derive(Clone)]
pub struct PostBox {
    sender: mpsc::Sender<Letter>,
    bell: Bell,
}

/// The receiving side, owned by the worker.
pub struct Mailbox {
    receiver: mpsc::Receiver<Letter>,
    /// Letters from the worker to itself: without atomics and system calls.
    own: VecDeque<Letter>,
    bell: Bell,
}

/// Wakes the worker's driver. While a ring is unanswered, `rung` saves further system calls.
#[derive(Clone)]
struct Bell {
    rung: Arc<AtomicBool>,
    /// `None` in the simulation, which looks into mailboxes itself.
    wire: Option<Arc<OwnedFd>>,
}

/// A mailbox that wakes a kernel driver.
///
/// # Errors
/// No descriptor is left.
pub fn mailbox() -> io::Result<(PostBox, Mailbox)> {
    let wire = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(mailbox_with(Some(Arc::new(wire))))
}

/// A mailbox that wakes no driver.
pub fn silent_mailbox() -> (PostBox, Mailbox) {
    mailbox_with(None)
}

fn mailbox_with(wire: Option<Arc<OwnedFd>>) -> (PostBox, Mailbox) {
    let (sender, receiver) = mpsc::channel();
    let bell = Bell {
        rung: Arc::default(),
        wire,
    };
    let mailbox = Mailbox {
        receiver,
        own: VecDeque::new(),
        bell: bell.clone(),
    };
    (PostBox { sender, bell }, mailbox)
}

impl PostBox {
    /// Posts a letter. After the worker has ended, the letter is dropped.
    pub fn post(&self, letter: Letter) {
        if self.sender.send(letter).is_ok() && !self.bell.rung.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    /// As [`PostBox::post`], for the mailbox's own worker. No wake-up is needed: a worker opens its
    /// mail before it waits.
    pub fn post_awake(&self, letter: Letter) {
        if self.sender.send(letter).is_ok() {
            self.bell.rung.store(true, Ordering::Release);
        }
    }
}

impl Bell {
    fn ring(&self) {
        if let Some(wire) = &self.wire {
            // This fails only if the counter is full. Then the worker is awake anyway.
            let _ = rustix::io::write(wire, &1u64.to_ne_bytes());
        }
    }
}

impl Mailbox {
    /// The descriptor that becomes readable when mail arrives. Drivers watch its edges, and need
    /// not read it.
    pub fn wire(&self) -> Option<Arc<OwnedFd>> {
        self.bell.wire.clone()
    }

    /// Posts a letter from the worker to itself.
    pub fn post_own(&mut self, letter: Letter) {
        self.own.push_back(letter);
    }

    /// True if [`Mailbox::open`] would find a letter.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && !self.bell.rung.load(Ordering::Acquire)
    }

    /// Takes all letters out, in the order of each sender. Costs two loads if there are none.
    pub fn open(&mut self, into: &mut VecDeque<Letter>) {
        into.append(&mut self.own);
        // The bell is reset first: a later letter rings again.
        if self.bell.rung.load(Ordering::Relaxed) && self.bell.rung.swap(false, Ordering::AcqRel) {
            into.extend(self.receiver.try_iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(letter: &Letter) -> bool {
        matches!(letter, Letter::Instruction(Instruction::Accept(true)))
    }

    #[test]
    fn every_letter_arrives_from_many_threads() {
        let (post, mut mailbox) = mailbox().unwrap();
        let wire = mailbox.wire().unwrap();
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let post = post.clone();
                std::thread::spawn(move || {
                    for _ in 0..5000 {
                        post.post(Letter::Instruction(Instruction::Accept(true)));
                    }
                })
            })
            .collect();
        let (mut seen, mut letters) = (0, VecDeque::new());
        while seen < 20_000 {
            // A lost wake-up would hang here, because only the wire is awaited.
            let mut count = [0; 8];
            let mut fds = [rustix::event::PollFd::new(
                &*wire,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, None).unwrap();
            rustix::io::read(&*wire, &mut count).unwrap();
            mailbox.open(&mut letters);
            assert!(letters.iter().all(order));
            seen += letters.drain(..).count();
        }
        senders
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(seen == 20_000 && mailbox.own.is_empty());
    }

    #[test]
    fn who_is_awake_needs_no_bell() {
        let (post, mut mailbox) = mailbox().unwrap();
        post.post_awake(Letter::Instruction(Instruction::Accept(true)));
        assert!(!mailbox.is_empty());
        let mut count = [0; 8];
        let wire = mailbox.wire().unwrap();
        assert!(rustix::io::read(&*wire, &mut count).is_err(), "no ring");
        let mut letters = VecDeque::new();
        mailbox.open(&mut letters);
        assert_eq!(letters.len(), 1);
        post.post(Letter::Instruction(Instruction::Accept(true)));
        assert!(rustix::io::read(&*wire, &mut count).is_ok(), "a ring");
    }

    #[test]
    fn own_mail_comes_without_a_bell() {
        let (_post, mut mailbox) = silent_mailbox();
        assert!(mailbox.is_empty());
        mailbox.post_own(Letter::Instruction(Instruction::Accept(true)));
        assert!(!mailbox.is_empty());
        let mut letters = VecDeque::new();
        mailbox.open(&mut letters);
        assert_eq!(letters.len(), 1);
    }
}
