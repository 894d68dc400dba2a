//! Answers to HTTP requests.

use howdah_pooler::metrics::{Format, page, readiness, text};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE,
    HOST, HeaderName, LOCATION, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use sha2::{Digest, Sha256};

use super::{Latest, Shared, Terms};

type Answer = Response<Full<Bytes>>;

/// The answer of both probes if a worker hangs.
const HANGS: &str = "a worker has not answered for some time\n";

/// The page, with everything that it needs.
const PAGE: &str = include_str!("page.html");
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
/// The page may run its own script and talk to Howdah, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; frame-ancestors 'none'; \
                      base-uri 'none'; form-action 'none'";

/// Answers a request. The request's body is ignored.
pub(super) fn answer(shared: &Shared, request: &Request<Incoming>) -> Answer {
    let mut latest = shared.lock();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = "only GET and HEAD are answered here\n";
        let answer = plain(StatusCode::METHOD_NOT_ALLOWED, text);
        return with(answer, ALLOW, "GET, HEAD");
    }
    match request.uri().path() {
        "/live" => live(&latest),
        "/ready" => ready(&latest),
        "/metrics" => match refusal(&latest.terms, request) {
            None => metrics(&mut latest, request),
            Some(refusal) => refusal,
        },
        "/" if shows_token(&latest.terms, request) => {
            let cookie = format!(
                "howdah_token={}; HttpOnly; SameSite=Strict; Path=/",
                latest.terms.token
            );
            let answer = plain(StatusCode::SEE_OTHER, "");
            with(with(answer, LOCATION, "/"), SET_COOKIE, &cookie)
        }
        path @ ("/" | "/page.json") => match page_refusal(&latest.terms, request) {
            None if path == "/" => {
                let answer = of(StatusCode::OK, HTML, Bytes::from_static(PAGE.as_bytes()));
                with(answer, CONTENT_SECURITY_POLICY, POLICY)
            }
            None => page_json(&mut latest),
            Some(refusal) => refusal,
        },
        _ => plain(
            StatusCode::NOT_FOUND,
            "there is /metrics, /live and /ready, and / if http_page is on\n",
        ),
    }
}

/// True if all workers have answered a short while ago.
fn live(latest: &Latest) -> Answer {
    if latest.is_stale() {
        plain(StatusCode::SERVICE_UNAVAILABLE, HANGS)
    } else {
        plain(StatusCode::OK, "live\n")
    }
}

fn ready(latest: &Latest) -> Answer {
    let Some(sight) = &latest.sight else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "starting\n");
    };
    if latest.is_stale() {
        return plain(StatusCode::SERVICE_UNAVAILABLE, HANGS);
    }
    let policy = &latest.terms.ready_fails_when;
    let causes = readiness(sight, |cause| policy.iter().any(|word| word == cause));
    if causes.is_empty() {
        return plain(StatusCode::OK, "ready\n");
    }
    let text = format!("{}\n", causes.join(", "));
    of(StatusCode::SERVICE_UNAVAILABLE, PLAIN, text.into())
}

fn metrics(latest: &mut Latest, request: &Request<Incoming>) -> Answer {
    let accept = field(request, &ACCEPT).unwrap_or("");
    let format = Format::accepted(accept);
    let at = match format {
        Format::Prometheus => 0,
        Format::OpenMetrics => 1,
    };
    made(latest, at, format.content_type(), |sight| {
        text(sight, format)
    })
}

fn page_json(latest: &mut Latest) -> Answer {
    made(latest, 2, JSON, page)
}

/// Formats a sample, once for each format.
fn made(
    latest: &mut Latest,
    at: usize,
    kind: &'static str,
    make: impl FnOnce(&howdah_pooler::metrics::Sight) -> String,
) -> Answer {
    let Some(sight) = latest.sight.clone() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "nothing is sampled yet\n");
    };
    let body = latest.made[at].get_or_insert_with(|| make(&sight).into());
    of(StatusCode::OK, kind, body.clone())
}

/// The reason why this request does not get the page; `None` if it may.
fn page_refusal(terms: &Terms, request: &Request<Incoming>) -> Option<Answer> {
    if !terms.page {
        let text = "the page is off: set http_page = 1\n";
        return Some(plain(StatusCode::NOT_FOUND, text));
    }
    if terms.token.is_empty() && !terms.is_local() {
        let text = "the page needs http_token, because http_listen_addr is not loopback\n";
        return Some(plain(StatusCode::FORBIDDEN, text));
    }
    refusal(terms, request)
}

fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok()
}

/// The answer to a request without the right token; `None` if the token is right, or not needed.
fn refusal(terms: &Terms, request: &Request<Incoming>) -> Option<Answer> {
    if terms.token.is_empty() {
        // Another site's page, under a host name that leads here, must not read the metrics.
        let foreign = field(request, &HOST).is_some_and(|host| !names_this_machine(host));
        let text = "call this by localhost or an address, or set http_token\n";
        return (terms.is_local() && foreign).then(|| plain(StatusCode::FORBIDDEN, text));
    }
    let bearer = field(request, &AUTHORIZATION).and_then(of_bearer);
    let cookies = field(request, &COOKIE).unwrap_or("").split(';');
    let mut cookies = cookies.filter_map(|cookie| cookie.trim().strip_prefix("howdah_token="));
    if bearer.is_some_and(|shown| is_token(terms, shown))
        || cookies.any(|shown| is_token(terms, shown))
    {
        return None;
    }
    let text = "show http_token: Authorization: Bearer ..., or /?token=... for the page\n";
    let answer = plain(StatusCode::UNAUTHORIZED, text);
    Some(with(answer, WWW_AUTHENTICATE, "Bearer"))
}

/// The token in `Bearer TOKEN`. HTTP has names of schemes in any case.
fn of_bearer(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start())
}

/// `/?token=...` is exchanged for a cookie, so that the token does not stay in the address.
fn shows_token(terms: &Terms, request: &Request<Incoming>) -> bool {
    let query = request.uri().query().unwrap_or("");
    let shown = query.strip_prefix("token=");
    terms.page && !terms.token.is_empty() && shown.is_some_and(|shown| is_token(terms, shown))
}

/// Compares hashes, so that the time says nothing about the token.
fn is_token(terms: &Terms, shown: &str) -> bool {
    Sha256::digest(shown) == Sha256::digest(&terms.token)
}

fn field<'a>(request: &'a Request<Incoming>, name: &HeaderName) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    of(status, PLAIN, Bytes::from_static(text.as_bytes()))
}

fn of(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let answer = with(answer, CONTENT_TYPE, kind);
    let answer = with(answer, CACHE_CONTROL, "no-store");
    with(answer, X_CONTENT_TYPE_OPTIONS, "nosniff")
}

fn with(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    if let Ok(value) = value.parse() {
        answer.headers_mut().insert(name, value);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use howdah_pooler::config::Globals;

    use super::super::STALE;
    use super::*;

    #[test]
    fn a_worker_that_hangs_fails_both_probes() {
        let at = |age| Latest {
            terms: Terms::of(&Globals::default()),
            sight: Some(Arc::default()),
            at: Instant::now().checked_sub(age).unwrap(),
            made: Default::default(),
        };
        for (age, status) in [
            (Duration::ZERO, StatusCode::OK),
            (STALE, StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let latest = at(age);
            assert_eq!(live(&latest).status(), status, "{age:?}");
            assert_eq!(ready(&latest).status(), status, "{age:?}");
        }
    }

    #[test]
    fn only_names_of_this_machine_pass_without_a_token() {
        for (host, passes) in [
            ("localhost:9127", true),
            ("127.0.0.1:9127", true),
            ("[::1]:9127", true),
            ("10.1.2.3", true),
            ("evil.example:9127", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            assert_eq!(names_this_machine(host), passes, "{host}");
        }
    }
}
