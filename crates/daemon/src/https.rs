//! The one HTTPS client: for keys of identity providers and credentials of clouds. It trusts the system's
//! authorities or those of a file, follows no redirect, uses no proxy, and has limits of time and size.

use std::time::Duration;

use howdah_daemon::tls::contexts::SYSTEM_BUNDLES;
use howdah_daemon::tls::directory::DirectoryTls;
use howdah_pooler::auth::secret::SecretBytes;
use howdah_pooler::config::OWN_NAMES;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper::http::Uri;
use hyper::rt::{Read, Write};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::log;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const LONGEST: usize = 1 << 20;

/// Where clouds tell credentials to their machines. Plain http is spoken there, and with this machine.
const METADATA: [&str; 7] = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "[fd00:ec2::254]",
    "[fd00:ec2::23]",
    "metadata.google.internal",
    "[fd20:ce::254]",
];

/// A request.
#[derive(Debug)]
pub struct HttpsRequest<'a> {
    /// GET, PUT or POST.
    pub method: Method,
    /// The address.
    pub address: &'a str,
    /// Headers besides the host.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: String,
}

impl<'a> HttpsRequest<'a> {
    /// A request without a body.
    pub fn get(address: &'a str) -> HttpsRequest<'a> {
        HttpsRequest {
            method: Method::GET,
            address,
            headers: Vec::new(),
            body: String::new(),
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct HttpsAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: SecretBytes,
}

/// Sends a request, and reads the answer, which may be a refusal. `trust` is a file of authorities; empty:
/// the system's.
///
/// # Errors
/// There is no answer; the text is for the log.
pub async fn ask(request: HttpsRequest<'_>, trust: &str) -> Result<HttpsAnswer, String> {
    let address = request.address.to_owned();
    let named = |why: String| format!("{address}: {why}");
    match tokio::time::timeout(PATIENCE, exchange(request, trust)).await {
        Ok(answer) => answer.map_err(named),
        Err(_) => Err(named(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

/// Sends a request, and reads the answer.
///
/// # Errors
/// There is no answer, or it is no success; the text is for the log.
pub async fn fetch(request: HttpsRequest<'_>, trust: &str) -> Result<SecretBytes, String> {
    let address = request.address.to_owned();
    let HttpsAnswer { status, body } = ask(request, trust).await?;
    match status.is_success() {
        true => Ok(body),
        false => Err(format!("{address}: it answers {status}")),
    }
}

/// The host that an address names, and whether https is spoken with it.
///
/// # Errors
/// The address may not be asked.
fn asked(uri: &Uri) -> Result<(&str, bool), &'static str> {
    let host = uri.host().filter(|host| !host.is_empty());
    let host = host.ok_or("there is no host in it")?;
    let authority = uri.authority().map_or("", |named| named.as_str());
    if authority.contains('@') {
        return Err("there is a user before the host: leave that out");
    }
    match uri.scheme_str() {
        Some("https") => Ok((host, true)),
        Some("http") if OWN_NAMES.contains(&host) || METADATA.contains(&host) => Ok((host, false)),
        _ => Err("plain http is spoken with this machine and metadata services only"),
    }
}

async fn exchange(request: HttpsRequest<'_>, trust: &str) -> Result<HttpsAnswer, String> {
    let uri: Uri = request.address.parse().map_err(|_| "it is no address")?;
    let (host, is_https) = asked(&uri)?;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let stream = TcpStream::connect((name, port)).await;
    let stream = stream.map_err(|why| format!("it can't be reached: {}", log::text(&why)))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut message = Request::builder()
        .method(request.method)
        .uri(path)
        .header(HOST, uri.authority().map_or(host, |named| named.as_str()));
    for (name, value) in request.headers {
        message = message.header(name, value);
    }
    let message = message.body(Full::new(Bytes::from(request.body)));
    let message = message.map_err(|_| "a header has characters that none may have")?;
    if !is_https {
        return talk(TokioIo::new(stream), message).await;
    }
    let trusted = match trust {
        "" => {
            let there = |path: &&&str| std::fs::metadata(path).is_ok();
            let system = SYSTEM_BUNDLES.iter().find(there);
            system.ok_or("the system has no authorities: set https_ca_file")?
        }
        file => file,
    };
    let tls = DirectoryTls::trusting(&[trusted.to_owned()])
        .map_err(|why| format!("TLS: {}", why.split(':').next().unwrap_or_default()))?;
    let stream = tls
        .connect(name, stream)
        .await
        .map_err(|why| format!("TLS: {why}"))?;
    talk(TokioIo::new(stream), message).await
}

async fn talk(
    stream: impl Read + Write + Unpin,
    message: Request<Full<Bytes>>,
) -> Result<HttpsAnswer, String> {
    let broken = |why: hyper::Error| format!("its answer can't be read: {why}");
    let shaken = hyper::client::conn::http1::handshake(stream).await;
    let (mut sender, connection) = shaken.map_err(broken)?;
    let answered = async {
        let answer = sender.send_request(message).await.map_err(broken)?;
        let status = answer.status();
        if status.is_redirection() {
            return Err(format!("it answers {status}: redirects are not followed"));
        }
        let body = Limited::new(answer.into_body(), LONGEST).collect().await;
        let body = body.map_err(|_| "its answer is broken, or larger than 1 MB")?;
        let body = SecretBytes(body.to_bytes().to_vec());
        Ok(HttpsAnswer { status, body })
    };
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        ended = connection => {
            ended.map_err(broken)?;
            answered.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked() {
        for (address, said) in [
            ("https://id.example/x", Ok(("id.example", true))),
            ("http://localhost:80/x", Ok(("localhost", false))),
            ("http://169.254.169.254/x", Ok(("169.254.169.254", false))),
            ("http://[fd20:ce::254]/x", Ok(("[fd20:ce::254]", false))),
            ("http://id.example/x", Err("plain http")),
            ("http://localhost:80@id.example/", Err("there is a user")),
            ("https://user@id.example/", Err("there is a user")),
            ("/x", Err("there is no host")),
        ] {
            let uri: Uri = address.parse().unwrap();
            match (asked(&uri), said) {
                (Ok(host), Ok(said)) => assert_eq!(host, said, "{address}"),
                (Err(why), Err(said)) => assert!(why.starts_with(said), "{address}: {why}"),
                (is, _) => panic!("{address}: {is:?}"),
            }
        }
        assert!(
            "http://localhost:x@id.example/"
                .parse::<Uri>()
                .map_or(true, |uri| asked(&uri).is_err())
        );
    }
}
