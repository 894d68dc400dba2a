//! The HTTP endpoint: metrics, probes and a page. It runs on the control thread and touches no worker. Its
//! figures are sampled once a second, however many requests come.

mod answer;
mod listen;
mod sample;

pub use sample::Sampler;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use howdah_pooler::config::Globals;
use howdah_pooler::metrics::Sight;
use howdah_pooler::note::Level;
use tokio::task::JoinHandle;

use crate::log::Log;

/// The most connections at a time. A further connection ends the oldest one, so that slow clients
/// can't keep probes out.
pub const CONNECTIONS: usize = 32;

/// The greatest age of a sample at which the process still counts as alive and ready.
const STALE: Duration = Duration::from_secs(10);

/// The settings of the endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Terms {
    address: Option<SocketAddr>,
    page: bool,
    token: String,
    ready_fails_when: Vec<String>,
}

impl Terms {
    fn of(globals: &Globals) -> Terms {
        let ip: Option<IpAddr> = globals.http_listen_addr.parse().ok();
        Terms {
            address: ip
                .filter(|_| globals.http_listen_port != 0)
                .map(|ip| SocketAddr::new(ip, globals.http_listen_port)),
            page: globals.http_page,
            token: globals.http_token.to_string(),
            ready_fails_when: globals.ready_fails_when.to_vec(),
        }
    }

    /// True if the endpoint can be reached from this machine only.
    fn is_local(&self) -> bool {
        self.address
            .is_some_and(|address| address.ip().is_loopback())
    }
}

/// The data for answers.
struct Latest {
    terms: Terms,
    sight: Option<Arc<Sight>>,
    at: Instant,
    /// The texts that were already made from this sample: Prometheus, OpenMetrics, JSON.
    made: [Option<hyper::body::Bytes>; 3],
}

impl Latest {
    /// True if a worker has not answered for too long.
    fn is_stale(&self) -> bool {
        self.at.elapsed() >= STALE
    }

    /// Samples are wanted from now on.
    fn begins(&mut self) {
        self.sight = None;
        self.at = Instant::now();
        self.made = Default::default();
    }
}

/// Shared by the control thread's loop and the tasks of connections.
#[derive(Clone)]
struct Shared(Arc<Mutex<Latest>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The endpoint, if it is configured.
pub struct Http {
    shared: Shared,
    listening: Option<JoinHandle<()>>,
    log: Log,
}

impl Http {
    /// The endpoint with these settings. Must be called inside the runtime.
    pub fn start(globals: &Globals, log: &Log) -> Http {
        let latest = Latest {
            terms: Terms {
                address: None,
                ..Terms::of(globals)
            },
            sight: None,
            at: Instant::now(),
            made: Default::default(),
        };
        let mut http = Http {
            shared: Shared(Arc::new(Mutex::new(latest))),
            listening: None,
            log: log.clone(),
        };
        http.set(globals);
        http
    }

    /// Applies new settings.
    pub fn set(&mut self, globals: &Globals) {
        let terms = Terms::of(globals);
        if terms.page && terms.address.is_some() && !terms.is_local() && terms.token.is_empty() {
            let text = "http_page: the page is not served, because http_listen_addr is not \
                        loopback and there is no http_token";
            self.log.say(Level::Warning, text);
        }
        let mut latest = self.shared.lock();
        let before = std::mem::replace(&mut latest.terms, terms.clone());
        if before.address != terms.address {
            if before.address.is_none() {
                // No sample was taken while the endpoint was off.
                latest.begins();
            }
            drop(latest);
            self.stop();
            self.listening = terms.address.map(|address| {
                tokio::spawn(listen::listen(
                    address,
                    self.shared.clone(),
                    self.log.clone(),
                ))
            });
        }
    }

    /// Releases the address for a successor.
    pub fn stop(&mut self) {
        if let Some(task) = self.listening.take() {
            task.abort();
        }
    }

    /// True if samples are wanted.
    pub fn is_on(&self) -> bool {
        self.listening.is_some()
    }

    /// From now on the process counts as draining, whatever the last sample says.
    pub fn drains(&self) {
        let mut latest = self.shared.lock();
        if let Some(sight) = &mut latest.sight {
            Arc::make_mut(sight).process.draining = true;
        }
        latest.made = Default::default();
    }

    /// Sets the sample for further answers.
    pub fn publish(&self, sight: Sight) {
        let mut latest = self.shared.lock();
        latest.sight = Some(Arc::new(sight));
        latest.at = Instant::now();
        latest.made = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_begins_late_is_alive() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        let mut globals = Globals::default();
        let mut http = Http::start(&globals, &Log::new(true, 0));
        http.publish(Sight::default());
        http.shared.lock().at = Instant::now().checked_sub(2 * STALE).unwrap();
        // The task does not listen before the runtime runs.
        globals.http_listen_port = 1;
        http.set(&globals);
        let latest = http.shared.lock();
        assert!(latest.at.elapsed() < STALE && latest.sight.is_none());
    }
}
