//! A thread of each worker for the one slow step of a TLS handshake: signing with an RSA key. If the worker
//! signed, all of its connections would wait for the signature. Also, the kernel's scheduler puts off a
//! thread that never sleeps.

use std::cell::OnceCell;
use std::fmt;
use std::sync::mpsc;

use crate::driver::Key;
use crate::mailbox::{Instruction, Letter, PostBox};
use crate::tls::TlsSession;
use crate::tls::session::HandshakeStep;

/// The niceness of the thread. If all cores are busy, the thread gets a tenth of the CPU of other
/// processes such as PostgreSQL's backends. That is enough for some 300 signatures with RSA-2048 a
/// second.
const NICE: i32 = 10;

/// A worker's handle of its helper thread. The thread starts with the first job and ends with the
/// worker.
pub(crate) struct Helper {
    /// The worker's own mailbox, where results arrive.
    to: PostBox,
    /// `None` inside: no thread could be started.
    jobs: OnceCell<Option<mpsc::Sender<Job>>>,
}

struct Job {
    key: Key,
    session: Box<dyn TlsSession>,
}

/// A session after one step of its handshake.
pub struct Shaken {
    pub(crate) key: Key,
    pub(crate) session: Box<dyn TlsSession>,
    pub(crate) step: HandshakeStep,
}

impl fmt::Debug for Shaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shaken({:?})", self.step)
    }
}

impl Helper {
    /// A helper whose results go to this mailbox.
    pub(crate) fn new(to: PostBox) -> Helper {
        let jobs = OnceCell::new();
        Helper { to, jobs }
    }

    /// Lets the thread take the next step of a session's handshake; [`Instruction::Shaken`] brings
    /// the session back. `Err` if there is no thread: returns the session.
    pub(crate) fn shake(
        &self,
        key: Key,
        session: Box<dyn TlsSession>,
    ) -> Result<(), Box<dyn TlsSession>> {
        match self.jobs.get_or_init(|| begin(self.to.clone())) {
            Some(jobs) => jobs
                .send(Job { key, session })
                .map_err(|unsent| unsent.0.session),
            None => Err(session),
        }
    }
}

/// Starts the thread.
fn begin(to: PostBox) -> Option<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel();
    let thread = std::thread::Builder::new().name("handshakes".to_owned());
    thread.spawn(move || work(&jobs, &to)).ok().map(|_| sender)
}

fn work(jobs: &mpsc::Receiver<Job>, to: &PostBox) {
    // Without this, a storm of handshakes would take the cores from clients that are logged in.
    let _ = rustix::process::nice(NICE);
    for Job { key, mut session } in jobs {
        let step = session.handshake();
        let shaken = Box::new(Shaken { key, session, step });
        to.post(Letter::Instruction(Instruction::Shaken(shaken)));
    }
}
