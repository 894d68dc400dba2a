//! Sends spans of traced queries to a collector (OpenTelemetry's protocol, by HTTP).
//!
//! ```text
//! workers --try_send--> queue of 2048 queries --> a thread of its own --POST--> collector
//! ```
//!
//! No worker waits for the collector. If the collector is slow or away, the queue fills, and further queries
//! are counted and dropped. The thread starts when tracing is first switched on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_pooler::config::Config;
use howdah_pooler::note::Level;
use howdah_pooler::queries::trace::Traced;
use tokio::runtime::Runtime;

use crate::log::Log;

/// How many queries may wait.
const QUEUE: usize = 2048;

/// The most queries in one request, and how long the first one waits for others.
const BATCH: usize = 256;
const BATCH_TIME: Duration = Duration::from_secs(1);

/// The error for a configuration or an order that this build can't serve.
const LEFT_OUT: &str = "traces are not part of this build: build with the Cargo feature traces";

/// The error for a configuration that this build can't serve.
pub fn missing(config: &Config) -> Option<String> {
    let asked = !config.globals.trace_endpoint.as_str().is_empty();
    (asked && !cfg!(feature = "traces")).then(|| format!("trace_endpoint: {LEFT_OUT}"))
}

/// Takes spans from any thread. Cheap to clone.
#[derive(Clone)]
pub struct Tracer {
    queue: SyncSender<Traced>,
    shared: Arc<Shared>,
}

struct Shared {
    log: Log,
    /// The collector's URL; empty: none.
    endpoint: Mutex<String>,
    /// The queue's receiver, until the thread starts.
    waiting: Mutex<Option<Receiver<Traced>>>,
    sent: AtomicU64,
    lost: AtomicU64,
    /// The collector did not accept the last spans.
    away: AtomicBool,
}

impl Tracer {
    /// A tracer without a collector.
    pub fn new(log: &Log) -> Tracer {
        let (queue, waiting) = sync_channel(QUEUE);
        Tracer {
            queue,
            shared: Arc::new(Shared {
                log: log.clone(),
                endpoint: Mutex::new(String::new()),
                waiting: Mutex::new(Some(waiting)),
                sent: AtomicU64::new(0),
                lost: AtomicU64::new(0),
                away: AtomicBool::new(false),
            }),
        }
    }

    /// Queues a query, or counts it as lost. Never waits.
    pub fn offer(&self, traced: Traced) {
        let spans = span_count(&traced);
        if self.queue.try_send(traced).is_err() {
            self.shared.lost.fetch_add(spans, Ordering::Relaxed);
        }
    }

    /// Sets the collector's URL; empty: none.
    pub fn set(&self, endpoint: &str) {
        let shared = &self.shared;
        endpoint.clone_into(&mut lock(&shared.endpoint));
        if endpoint.is_empty() {
            return;
        }
        if let Some(queue) = lock(&shared.waiting).take() {
            let shared = shared.clone();
            let log = shared.log.clone();
            let thread = std::thread::Builder::new().name("howdah-traces".into());
            if let Err(why) = thread.spawn(move || shared.run(&queue)) {
                let why = crate::log::text(&why);
                log.say(
                    Level::Error,
                    format!("traces: cannot start a thread: {why}"),
                );
            }
        }
    }

    /// The number of spans that the collector has accepted, and of those that were lost.
    pub fn counts(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.shared.sent), count(&self.shared.lost))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Runs the thread. It ends when all senders are dropped.
    fn run(&self, queue: &Receiver<Traced>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(why) => {
                let why = crate::log::text(&why);
                return self
                    .log
                    .say(Level::Error, format!("traces: no runtime: {why}"));
            }
        };
        while let Some(batch) = batch(queue) {
            let count = batch.iter().map(span_count).sum();
            let endpoint = lock(&self.endpoint).clone();
            if endpoint.is_empty() {
                self.lost.fetch_add(count, Ordering::Relaxed);
                continue;
            }
            let result = post(&runtime, &endpoint, &batch);
            self.done(&endpoint, count, result);
        }
    }

    /// Logs one line when the collector is lost, and one when it is back.
    fn done(&self, endpoint: &str, count: u64, result: Result<(), String>) {
        let away = result.is_err();
        let before = self.away.swap(away, Ordering::Relaxed);
        let counter = if away { &self.lost } else { &self.sent };
        counter.fetch_add(count, Ordering::Relaxed);
        match result {
            Err(why) if !before => self.log.say(
                Level::Warning,
                format!("traces: {endpoint} takes no spans: {why}; they are dropped until it does"),
            ),
            Ok(()) if before => {
                let lost = self.lost.load(Ordering::Relaxed);
                let text = format!("traces: {endpoint} takes spans again; {lost} were lost so far");
                self.log.say(Level::Log, text);
            }
            _ => {}
        }
    }
}

/// The next queries for one request.
fn batch(queue: &Receiver<Traced>) -> Option<Vec<Traced>> {
    let mut batch = vec![queue.recv().ok()?];
    let due = Instant::now() + BATCH_TIME;
    while batch.len() < BATCH {
        match queue.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(traced) => batch.push(traced),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Some(batch)
}

/// The number of a query's spans: the whole query, its wait for a server if it waited, and its run.
fn span_count(traced: &Traced) -> u64 {
    if traced.wait_ns > 0 { 3 } else { 2 }
}

#[cfg(feature = "traces")]
fn post(runtime: &Runtime, endpoint: &str, queries: &[Traced]) -> Result<(), String> {
    runtime.block_on(crate::collector::post(
        endpoint,
        crate::otlp::request(queries),
    ))
}

#[cfg(not(feature = "traces"))]
fn post(_: &Runtime, _: &str, _: &[Traced]) -> Result<(), String> {
    Err(LEFT_OUT.into())
}
