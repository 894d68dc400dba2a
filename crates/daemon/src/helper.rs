//! A thread for the one step of a handshake that takes long: signing with a large private key. A worker
//! would keep all its connections waiting meanwhile.

use std::fmt;
use std::sync::{OnceLock, mpsc};

use crate::driver::Key;
use crate::mailbox::{Letter, Order, PostBox};
use crate::tls::TlsSession;
use crate::tls::session::Step;

/// A worker's way to the thread, which all workers share.
pub(crate) struct Helper {
    /// The worker's own mailbox: what came of a step arrives there.
    to: PostBox,
}

struct Job {
    key: Key,
    session: Box<dyn TlsSession>,
    to: PostBox,
}

/// A session that has taken a step of its handshake.
pub struct Shaken {
    pub(crate) key: Key,
    pub(crate) session: Box<dyn TlsSession>,
    pub(crate) step: Step,
}

impl fmt::Debug for Shaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shaken({:?})", self.step)
    }
}

impl Helper {
    /// The steps' results go to this mailbox.
    pub(crate) fn new(to: PostBox) -> Helper {
        Helper { to }
    }

    /// Has a session take the next step of its handshake; [`Order::Shaken`] brings it back. `Err`: there is no
    /// thread, here it is again.
    pub(crate) fn shake(
        &self,
        key: Key,
        session: Box<dyn TlsSession>,
    ) -> Result<(), Box<dyn TlsSession>> {
        let to = self.to.clone();
        let job = Job { key, session, to };
        match jobs() {
            Some(jobs) => jobs.send(job).map_err(|unsent| unsent.0.session),
            None => Err(job.session),
        }
    }
}

/// To the thread, which begins with the first job.
fn jobs() -> Option<&'static mpsc::Sender<Job>> {
    static JOBS: OnceLock<Option<mpsc::Sender<Job>>> = OnceLock::new();
    let begin = || {
        let (sender, jobs) = mpsc::channel();
        let thread = std::thread::Builder::new().name("handshakes".to_owned());
        thread.spawn(move || work(&jobs)).ok().map(|_| sender)
    };
    JOBS.get_or_init(begin).as_ref()
}

fn work(jobs: &mpsc::Receiver<Job>) {
    for Job {
        key,
        mut session,
        to,
    } in jobs
    {
        let step = session.handshake();
        let shaken = Box::new(Shaken { key, session, step });
        to.post(Letter::Order(Order::Shaken(shaken)));
    }
}
