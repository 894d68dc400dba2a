//! Posts spans to a collector, without TLS, each request on its own connection.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long the collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The longest answer of the collector that is read, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// Posts a request of OTLP.
///
/// # Errors
/// The collector can't be reached, does not answer in time, or refuses; the text is for the log.
pub async fn post(endpoint: &str, request: Vec<u8>) -> Result<(), String> {
    match tokio::time::timeout(PATIENCE, exchange(endpoint, request)).await {
        Ok(result) => result.map_err(|why| why.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

async fn exchange(endpoint: &str, request: Vec<u8>) -> Result<(), Failure> {
    let uri: Uri = endpoint.parse()?;
    let host = uri.host().ok_or("the URL has no host")?;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((name, uri.port_u16().unwrap_or(80))).await?;
    let request = Request::post(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, uri.authority().map_or(host, |named| named.as_str()))
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Full::new(Bytes::from(request)))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let answered = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        Limited::new(answer.into_body(), ANSWER_MAX)
            .collect()
            .await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(format!("it answers {status}").into())
        }
    };
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        ended = connection => {
            ended?;
            answered.await
        }
    }
}
