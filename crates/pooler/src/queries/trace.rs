//! Traces: which queries have spans, and what the spans contain.
//!
//! If a query's text has a `traceparent` (W3C) in a comment, as sqlcommenter writes it, the
//! query's span is a child of that span, and is sampled if that span is. `trace_ratio` is the
//! share of the other queries that are sampled.
//!
//! ```text
//! select 1 /*traceparent='00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'*/
//! ```

use std::sync::Arc;

use super::text::QueryText;

/// How many spans a worker begins in a second, at most. So no client can make Howdah send endless
/// spans.
pub const RATE: u32 = 1000;

/// The place of a query in a trace, as ids of OpenTelemetry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanIds {
    /// The id of the trace.
    pub trace: u128,
    /// The id of the parent span.
    pub parent: Option<u64>,
    /// The id of the query's own span.
    pub span: u64,
}

/// A traced query: one span for all of it, with one child span for its wait for a server and one
/// for its run.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The place in the trace.
    pub place: SpanIds,
    /// When the query began, wait included, in nanoseconds since 1970.
    pub began: u64,
    /// How long the query waited for a server, in nanoseconds.
    pub wait_ns: u64,
    /// How long the query ran, in nanoseconds.
    pub run_ns: u64,
    /// Number of rows returned or changed.
    pub rows: u64,
    /// The SQLSTATE, if the query failed.
    pub sqlstate: Option<String>,
    /// The reason, if Howdah did not see the end of the query.
    pub broken_off: Option<&'static str>,
    /// The database.
    pub database: Arc<str>,
    /// The user.
    pub user: Arc<str>,
    /// The address of the client.
    pub address: String,
    /// The client's `application_name`.
    pub application: String,
    /// The text, without constants.
    pub text: Arc<QueryText>,
}

/// The trace, the span and the sampled flag that a comment in the text names.
pub fn traceparent(sql: &[u8]) -> Option<(u128, u64, bool)> {
    const KEY: &[u8] = b"traceparent";
    comments(sql).find_map(|comment| {
        let at = memchr::memmem::find(comment, KEY)?;
        let behind = &comment[at + KEY.len()..];
        let behind = behind.strip_prefix(b"=")?;
        let behind = behind.strip_prefix(b"'").unwrap_or(behind);
        let value = std::str::from_utf8(behind.get(..55)?).ok()?;
        let mut parts = value.split('-');
        let mut hex = |length: usize| {
            let part = parts.next()?;
            let digits = part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit());
            u128::from_str_radix(part, 16).ok().filter(|_| digits)
        };
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let span = u64::try_from(span).ok()?;
        let valid = version != 0xff && trace != 0 && span != 0;
        valid.then_some((trace, span, flags & 1 == 1))
    })
}

/// The contents of comments, in one pass. (Strings are not recognised: a client that puts a
/// comment in a string affects only its own queries.)
fn comments(sql: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = sql;
    std::iter::from_fn(move || {
        let open = memchr::memmem::find(rest, b"/*")?;
        let inside = &rest[open + 2..];
        let end = memchr::memmem::find(inside, b"*/").unwrap_or(inside.len());
        rest = &inside[end..];
        Some(&inside[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_names_the_parent() {
        let at = |text: &str| traceparent(text.as_bytes());
        let value = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
        let found = (
            0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            0xb7ad_6b71_6920_3331,
        );
        let (trace, span) = found;
        for (text, expected) in [
            (
                format!("select 1 /*a='b',traceparent='{value}-01'*/"),
                Some((trace, span, true)),
            ),
            (
                format!("/* traceparent={value}-00 */ select 1"),
                Some((trace, span, false)),
            ),
            (format!("select 'traceparent={value}-01'"), None),
            (format!("/* x */ select 'traceparent={value}-01'"), None),
            (format!("/*traceparent='{value}'*/"), None),
            (
                format!("/*traceparent='{}-01'*/", value.replace("af", "+f")),
                None,
            ),
            (format!("/*traceparent='ff{}-01'*/", &value[2..]), None),
            (
                format!(
                    "/*traceparent='00-{}-{}-01'*/",
                    "0".repeat(32),
                    "1".repeat(16)
                ),
                None,
            ),
            ("/*traceparent='00".into(), None),
            ("select 1".into(), None),
        ] {
            assert_eq!(at(&text), expected, "{text}");
        }
    }
}
