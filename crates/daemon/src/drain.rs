//! Drain: a process leaves its balancer before it ends. First `/ready` fails, then the listening sockets
//! close and clients are ended one after the other, then the process ends as without a drain.

use std::time::Duration;

use howdah_daemon::driver::socket::clock;
use howdah_pooler::config::nanos;
use howdah_pooler::event::{Order, Time};

use crate::control::Control;
use crate::systemd;

/// What a service manager gives the transactions that are left behind a drain.
const AFTER_DRAIN: Duration = Duration::from_secs(60);

/// The state of a drain.
#[derive(Debug, Default)]
pub struct Drain {
    /// The next step, and when it is due.
    next: Option<(Time, DrainStep)>,
    /// The drain has begun.
    begun: bool,
}

#[derive(Clone, Copy, Debug)]
enum DrainStep {
    /// New clients are refused, and the others end.
    EndClients,
    /// The time for that is over.
    EndProcess,
}

impl Drain {
    /// When the next step is due.
    pub fn next_due(&self) -> Option<Time> {
        self.next.map(|(at, _)| at)
    }

    /// True from the first moment on.
    pub fn has_begun(&self) -> bool {
        self.begun
    }
}

impl Control {
    /// Ends the process behind its servers, with a drain before if the settings have one.
    pub fn begin_drain(&mut self) {
        if self.drain.begun {
            return;
        }
        if self.ending {
            // It waits for clients, and listens no more.
            self.asked_to_end = true;
            return self.order(&Order::ShutdownWaitForServers);
        }
        let globals = &self.config.globals;
        if globals.drain_time.is_zero() && globals.drain_delay.is_zero() {
            return self.end(Order::ShutdownWaitForServers);
        }
        let (delay, time) = (globals.drain_delay, globals.drain_time);
        self.say(&format!(
            "draining: new clients are taken for {} s, then all clients end within {} s",
            delay.as_secs_f64(),
            time.as_secs_f64()
        ));
        systemd::stopping();
        systemd::needs_longer(delay + time + AFTER_DRAIN);
        self.http.drains();
        self.asked_to_end = true;
        self.drain.begun = true;
        self.drain_later(nanos(delay), DrainStep::EndClients);
    }

    fn drain_later(&mut self, after: u64, step: DrainStep) {
        self.drain.next = Some((Time(clock().0 + after), step));
    }

    /// The next step is due.
    pub fn drain_on(&mut self) {
        let over = nanos(self.config.globals.drain_time);
        match self.drain.next.take() {
            Some((_, DrainStep::EndClients)) if over > 0 => {
                self.say("draining: the listening sockets are closed, clients end");
                self.end(Order::EndClients { over });
                self.drain_later(over, DrainStep::EndProcess);
            }
            Some((_, DrainStep::EndClients)) => self.end(Order::ShutdownWaitForServers),
            Some((_, DrainStep::EndProcess)) => {
                self.say("drain_time is over, waiting for all servers connections to be released");
                self.order(&Order::ShutdownWaitForServers);
            }
            None => {}
        }
    }
}
