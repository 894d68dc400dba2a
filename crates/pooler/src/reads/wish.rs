//! Where a request may go: what is a read.

use howdah_wire::frame::HEADER;
use howdah_wire::frame::header;
use howdah_wire::tag::frontend as tag;

use crate::client::Client;
use crate::config::ReadTarget;
use crate::effect::{RouteHint, Routing};
use crate::opening::Opening;
use crate::reads::group::named;
use crate::reads::mark::ReadWish;
use crate::session::settings::value;

/// The setting by which clients choose: `SET howdah.route = 'primary'`.
pub const ROUTE: &[u8] = b"howdah.route";

/// libpq's words for `target_session_attrs`, another name of `howdah.route` at login.
pub const SESSION_ATTRS: &str = "any, read-write, read-only, primary, standby, prefer-standby";

/// The value of `howdah.route` that a word of `target_session_attrs` stands for; `None` for a word
/// that is none of libpq's. A client that wants sessions which only read wants no primary.
pub fn route_of(session_attrs: &[u8]) -> Option<&'static [u8]> {
    Some(match &*session_attrs.to_ascii_lowercase() {
        b"any" => b"auto",
        b"primary" | b"read-write" => b"primary",
        b"standby" | b"read-only" => b"standby",
        b"prefer-standby" => b"prefer-standby",
        _ => return None,
    })
}

/// Where a client's request may go besides its login's own target; `None` if it is no read. `usual`
/// is the login's `read_target`.
pub fn wish(client: &Client, opening: Opening<'_>, usual: ReadTarget) -> Option<ReadWish> {
    let said = said(client, opening);
    let settings = client.session.as_ref().map(|session| &session.settings);
    let set = |name: &[u8]| settings.and_then(|settings| value(settings, name));
    let by_setting = || RouteHint::of(set(ROUTE)?);
    let asked = |target| {
        Some(ReadWish {
            target,
            is_guarded: false,
            is_begin: said.begin.is_some(),
        })
    };
    match said.hint.or_else(by_setting) {
        Some(RouteHint::Primary) => return None,
        // It shows what the standby says.
        Some(RouteHint::Standby) => return asked(ReadTarget::Standby),
        Some(RouteHint::PreferStandby) => return asked(ReadTarget::PreferStandby),
        Some(RouteHint::Auto) | None => {}
    }
    let is_single = is_single_read(opening);
    let is_on = |name: &[u8]| set(name).is_some_and(|value| value.eq_ignore_ascii_case(b"on"));
    let begin = said.begin.unwrap_or_default();
    let is_known = !matches!(opening, Opening::Unread);
    let reads_only = || {
        let by_default = || is_known && is_on(b"default_transaction_read_only");
        begin.read_only.unwrap_or_else(by_default)
    };
    // A standby has no serializable transactions.
    let is_serializable = || {
        begin.serializable.unwrap_or_else(|| {
            let level = set(b"default_transaction_isolation");
            level.is_some_and(|level| level.eq_ignore_ascii_case(b"serializable"))
        })
    };
    let is_read = (is_single || reads_only()) && !is_serializable();
    is_read.then_some(ReadWish {
        target: usual,
        is_guarded: is_single,
        is_begin: said.begin.is_some(),
    })
}

/// True if the request is one read, and nothing has come behind it.
fn is_single_read(opening: Opening<'_>) -> bool {
    match opening {
        Opening::Unread => false,
        Opening::Query(gist, bytes) => {
            let header = || header(bytes).and_then(Result::ok);
            gist.routing.is_read && header().is_some_and(|header| header.total() == bytes.len())
        }
        Opening::Group { is_read, .. } => is_read,
    }
}

/// What the beginning of a request says.
fn said(client: &Client, opening: Opening<'_>) -> Routing {
    match opening {
        Opening::Unread => Routing::default(),
        Opening::Query(gist, _) => gist.routing,
        // A read begins no transaction.
        Opening::Group {
            bytes,
            is_read: true,
        } => Routing {
            hint: first_text(client, bytes).and_then(RouteHint::read),
            ..Routing::default()
        },
        Opening::Group { bytes, .. } => {
            first_text(client, bytes).map_or_else(Routing::default, Routing::read)
        }
    }
}

/// The text of a Query, or of the first statement of a group: of its Parse, or of the statement that
/// it binds or describes. `None` if that is not clear.
pub fn first_text<'a>(client: &'a Client, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (header, body) = bytes.split_first_chunk::<HEADER>()?;
    let mut parts = body.split(|byte| *byte == 0);
    let (first, second) = (parts.next()?, parts.next());
    let name = match header[0] {
        tag::QUERY => return Some(first),
        tag::PARSE => return second,
        // The portal's name comes first.
        tag::BIND => second?,
        tag::DESCRIBE => first.strip_prefix(b"S")?,
        _ => return None,
    };
    named(client, name).map(|statement| statement.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_libpqs_words_names_a_route() {
        for word in SESSION_ATTRS.split(", ") {
            let route = route_of(word.as_bytes()).and_then(RouteHint::of);
            assert!(route.is_some(), "{word}");
        }
        assert_eq!(route_of(b"Read-Write"), Some(&b"primary"[..]));
        assert_eq!((route_of(b"auto"), route_of(b"")), (None, None));
    }
}
