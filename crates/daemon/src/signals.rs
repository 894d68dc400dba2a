//! The signals, and their meanings.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// An operator's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperatorRequest {
    /// HUP: read the configuration again.
    Reload,
    /// TERM: end when all clients have left; the second time, end at once.
    EndAfterClients,
    /// INT: end when all servers are released; the second time, end at once.
    EndAfterServers,
    /// QUIT: end at once.
    EndNow,
    /// USR1: PAUSE.
    Pause,
    /// USR2: RESUME.
    Resume,
}

/// The handled signals.
pub struct Signals {
    hangup: Signal,
    stops: Option<Stops>,
    user1: Signal,
    user2: Signal,
    /// Sent when a log has reached the greatest file size. The failing write reports this; the
    /// process must not end.
    _file_too_large: Signal,
}

/// The signals that end the process.
struct Stops {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Stops {
    async fn next(&mut self) -> OperatorRequest {
        tokio::select! {
            _ = self.terminate.recv() => OperatorRequest::EndAfterClients,
            _ = self.interrupt.recv() => OperatorRequest::EndAfterServers,
            _ = self.quit.recv() => OperatorRequest::EndNow,
        }
    }
}

impl Signals {
    /// Begins to handle signals, but for those that end the process: these do so at once until
    /// [`Signals::install_stops`]. Must be called inside a runtime.
    ///
    /// # Errors
    /// The system's error.
    pub fn install() -> io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            stops: None,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            _file_too_large: signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?,
        })
    }

    /// Begins to handle the signals that end the process, too. Must be called inside a runtime.
    ///
    /// # Errors
    /// The system's error.
    pub fn install_stops(&mut self) -> io::Result<()> {
        self.stops = Some(Stops {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        });
        Ok(())
    }

    /// The next request.
    pub async fn next(&mut self) -> OperatorRequest {
        let stops = async {
            match &mut self.stops {
                Some(stops) => stops.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.hangup.recv() => OperatorRequest::Reload,
            wish = stops => wish,
            _ = self.user1.recv() => OperatorRequest::Pause,
            _ = self.user2.recv() => OperatorRequest::Resume,
        }
    }
}
