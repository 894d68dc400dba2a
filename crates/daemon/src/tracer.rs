//! Sends spans of traced queries to a collector (OpenTelemetry's protocol, by HTTP).
//!
//! ```text
//! workers --try_send--> queue of 2048 queries --> a thread of its own --POST--> collector
//! ```
//!
//! No worker waits for the collector. If the collector is slow or away, the queue fills, and further queries
//! are counted and dropped. The thread starts when tracing is first switched on.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use howdah_pooler::note::Level;
use howdah_pooler::queries::trace::Traced;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter, SpanLinks};

use crate::log::Log;

/// How many queries may wait.
const QUEUE: usize = 2048;

/// The most queries in one request, and how long the first one waits for others.
const BATCH: usize = 256;
const BATCH_TIME: Duration = Duration::from_secs(1);

/// How long the collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer of the collector that is read, in bytes.
const ANSWER_MAX: usize = 64 << 10;

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
        let mut exporter: Option<(String, opentelemetry_otlp::SpanExporter)> = None;
        while let Some(batch) = batch(queue) {
            let spans: Vec<SpanData> = batch.iter().flat_map(spans).collect();
            let count = spans.len() as u64;
            let endpoint = lock(&self.endpoint).clone();
            if endpoint.is_empty() {
                self.lost.fetch_add(count, Ordering::Relaxed);
                continue;
            }
            if exporter.as_ref().is_none_or(|(to, _)| *to != endpoint) {
                exporter = make(&endpoint).map(|made| (endpoint.clone(), made)).ok();
            }
            let result = match &exporter {
                Some((_, exporter)) => runtime.block_on(async {
                    match tokio::time::timeout(PATIENCE, exporter.export(spans)).await {
                        Ok(result) => result.map_err(|why| why.to_string()),
                        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
                    }
                }),
                None => Err("no URL that can be spoken to".to_string()),
            };
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

fn make(endpoint: &str) -> Result<opentelemetry_otlp::SpanExporter, String> {
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Poster)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .with_timeout(PATIENCE)
        .build()
        .map_err(|why| why.to_string())?;
    let attributes = [
        KeyValue::new("service.name", "howdah"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    exporter.set_resource(
        &Resource::builder_empty()
            .with_attributes(attributes)
            .build(),
    );
    Ok(exporter)
}

/// Sends requests without TLS, each on its own connection.
#[derive(Clone, Copy)]
struct Poster;

impl fmt::Debug for Poster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poster")
    }
}

#[async_trait::async_trait]
impl HttpClient for Poster {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (mut parts, body) = request.into_parts();
        let uri = parts.uri.clone();
        let host = uri.host().ok_or("the URL has no host")?;
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let stream = tokio::net::TcpStream::connect((name, uri.port_u16().unwrap_or(80))).await?;
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        parts.headers.insert(HOST, authority.parse()?);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path.parse()?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let exchange = async {
            let request = Request::from_parts(parts, Full::new(body));
            let (parts, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            ended = connection => {
                ended?;
                exchange.await
            }
        }
    }
}

fn span_count(traced: &Traced) -> u64 {
    if traced.wait_ns > 0 { 3 } else { 2 }
}

/// A query's spans: the whole query, its wait for a server if it waited, and its run.
fn spans(traced: &Traced) -> Vec<SpanData> {
    let place = &traced.place;
    let at = |ns: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
    let (began, runs) = (traced.began, traced.began + traced.wait_ns);
    let ended = runs + traced.run_ns;
    let word = traced.text.text.split([' ', ';', '(']).next();
    let word =
        word.filter(|word| word.bytes().all(|b| b.is_ascii_alphabetic()) && word.len() <= 16);
    let name = word.unwrap_or("query").to_ascii_uppercase();
    let text = |key: &'static str, value: &str| KeyValue::new(key, value.to_string());
    let mut attributes = vec![
        text("db.system.name", "postgresql"),
        text("db.namespace", &traced.database),
        text("db.operation.name", &name),
        text("db.query.text", &traced.text.text),
        text("db.query.fingerprint", &traced.text.shown()),
        text("db.user", &traced.user),
        text("client.address", &traced.address),
        text("application.name", &traced.application),
        KeyValue::new(
            "db.response.returned_rows",
            i64::try_from(traced.rows).unwrap_or(i64::MAX),
        ),
        KeyValue::new("howdah.wait_ms", traced.wait_ns as f64 / 1e6),
        KeyValue::new("howdah.run_ms", traced.run_ns as f64 / 1e6),
    ];
    let mut status = Status::Unset;
    if let Some(sqlstate) = &traced.sqlstate {
        attributes.push(text("db.response.status_code", sqlstate));
        status = Status::error(sqlstate.clone());
    }
    if let Some(why) = traced.broken_off {
        status = Status::error(why);
    }
    let span = |id: u64, parent: Option<u64>, name: String, kind, times: (u64, u64)| SpanData {
        span_context: SpanContext::new(
            TraceId::from(place.trace),
            SpanId::from(id),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: parent.is_some() && id == place.span,
        span_kind: kind,
        name: Cow::Owned(name),
        start_time: at(times.0),
        end_time: at(times.1),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("howdah").build(),
    };
    let mut whole = span(
        place.span,
        place.parent,
        name,
        SpanKind::Server,
        (began, ended),
    );
    whole.attributes = attributes;
    whole.status = status.clone();
    // Two span numbers that no other span has: the query's own number is random.
    let (wait, run) = (place.span ^ (1 << 63), place.span ^ (1 << 62));
    let within = Some(place.span);
    let mut all = vec![whole];
    if traced.wait_ns > 0 {
        let name = "wait for server".to_string();
        all.push(span(
            wait.max(1),
            within,
            name,
            SpanKind::Internal,
            (began, runs),
        ));
    }
    let mut query = span(
        run.max(1),
        within,
        "run".into(),
        SpanKind::Client,
        (runs, ended),
    );
    query.status = status;
    all.push(query);
    all
}
