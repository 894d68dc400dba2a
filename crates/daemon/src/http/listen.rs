//! Connections to the HTTP endpoint: few at a time, and each for a short time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use howdah_pooler::note::Level;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::{CONNECTIONS, Shared, answer};
use crate::log::{self, Log};

/// How long a request's head may take to arrive.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection is kept at most.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);
/// The greatest size of a request's head in bytes, and its greatest number of fields.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_FIELDS: usize = 64;
/// The pause before the next try, when the address is taken or no descriptor is left.
const RETRY: Duration = Duration::from_secs(1);

/// The tasks of connections. When this value is dropped, the tasks end.
#[derive(Default)]
struct Tasks(VecDeque<AbortHandle>);

impl Tasks {
    /// Makes room for one more task.
    fn make_room(&mut self) {
        self.0.retain(|task| !task.is_finished());
        while self.0.len() >= CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Listens until the task is aborted. If the address is taken, tries again: the predecessor in a
/// takeover may still have it.
pub(super) async fn listen(address: SocketAddr, shared: Shared, log: Log) {
    let mut told = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(why) if !told => {
                told = true;
                let why = log::text(&why);
                let text = format!("http: cannot listen on {address}: {why}; trying again");
                log.say(Level::Warning, text);
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    };
    log.say(Level::Log, format!("http: listening on {address}"));
    let mut tasks = Tasks::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tasks.make_room();
                let serve = serve(stream, shared.clone());
                let task = tokio::spawn(async move {
                    // After the limit the connection is closed.
                    let _ = tokio::time::timeout(CONNECTION_LIMIT, serve).await;
                });
                tasks.0.push_back(task.abort_handle());
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
        // Lets other tasks of this thread run before the next connection.
        tokio::task::yield_now().await;
    }
}

async fn serve(stream: TcpStream, shared: Shared) {
    let service = service_fn(move |request| {
        let response = answer::answer(&shared, &request);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    // A client's mistakes are answered, and are not logged.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS)
        // A client that shuts its sending side down still gets its answer.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
