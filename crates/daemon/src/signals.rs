//! The signals, and what each asks for.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What an operator wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperatorRequest {
    /// HUP: read the configuration anew.
    Reload,
    /// TERM: end when all clients have left; the second time at once.
    EndAfterClients,
    /// INT: end when all servers are released; the second time at once.
    EndAfterServers,
    /// QUIT: end at once.
    EndNow,
    /// USR1: PAUSE.
    Pause,
    /// USR2: RESUME.
    Resume,
}

/// The signals we listen to.
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    user1: Signal,
    user2: Signal,
    /// A log at the largest size a file may have: the write says so, nobody need die of it.
    _file_too_large: Signal,
}

impl Signals {
    /// Begins to listen, inside a runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn install() -> io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            _file_too_large: signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> OperatorRequest {
        tokio::select! {
            _ = self.hangup.recv() => OperatorRequest::Reload,
            _ = self.terminate.recv() => OperatorRequest::EndAfterClients,
            _ = self.interrupt.recv() => OperatorRequest::EndAfterServers,
            _ = self.quit.recv() => OperatorRequest::EndNow,
            _ = self.user1.recv() => OperatorRequest::Pause,
            _ = self.user2.recv() => OperatorRequest::Resume,
        }
    }
}
