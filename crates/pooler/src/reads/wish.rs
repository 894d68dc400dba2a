//! Where a request may go: what is a read.

use howdah_wire::tag::frontend as tag;

use crate::client::Client;
use crate::config::ReadTarget;
use crate::effect::{RouteHint, Routing};
use crate::opening::Opening;
use crate::session::settings::value;

/// The setting by which clients choose: `SET howdah.route = 'primary'`.
const ROUTE: &[u8] = b"howdah.route";

/// Where a client's request may go besides its login's own target; `None` if it is no read. `usual`
/// is the login's `read_target`.
pub fn wish(client: &Client, opening: Opening<'_>, usual: ReadTarget) -> Option<ReadTarget> {
    let said = said(client, opening);
    let settings = client.session.as_ref().map(|session| &session.settings);
    let set = |name: &[u8]| settings.and_then(|settings| value(settings, name));
    let by_setting = || RouteHint::of(set(ROUTE)?);
    match said.hint.or_else(by_setting) {
        Some(RouteHint::Primary) => return None,
        Some(RouteHint::Standby) => return Some(ReadTarget::Standby),
        Some(RouteHint::PreferStandby) => return Some(ReadTarget::PreferStandby),
        Some(RouteHint::Auto) | None => {}
    }
    let is_on = |name: &[u8]| set(name).is_some_and(|value| value.eq_ignore_ascii_case(b"on"));
    let begin = said.begin.unwrap_or_default();
    let is_known = !matches!(opening, Opening::Unread);
    let reads_only = begin
        .read_only
        .unwrap_or_else(|| is_known && is_on(b"default_transaction_read_only"));
    // A standby has no serializable transactions.
    let is_serializable = begin.serializable.unwrap_or_else(|| {
        let level = set(b"default_transaction_isolation");
        level.is_some_and(|level| level.eq_ignore_ascii_case(b"serializable"))
    });
    (reads_only && !is_serializable).then_some(usual)
}

/// What the beginning of a request says.
fn said(client: &Client, opening: Opening<'_>) -> Routing {
    match opening {
        Opening::Unread => Routing::default(),
        Opening::Query(gist) => gist.routing,
        Opening::Group(bytes) => {
            first_text(client, bytes).map_or_else(Routing::default, Routing::read)
        }
    }
}

/// The text of the first statement of a group: of its Parse, or of the statement that it binds or
/// describes. `None` if that is not clear.
fn first_text<'a>(client: &'a Client, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (header, body) = bytes.split_first_chunk::<5>()?;
    let mut parts = body.split(|byte| *byte == 0);
    let (first, second) = (parts.next()?, parts.next());
    let name = match header[0] {
        tag::PARSE => return second,
        // The portal's name comes first.
        tag::BIND => second?,
        tag::DESCRIBE => first.strip_prefix(b"S")?,
        _ => return None,
    };
    let statement = match name {
        b"" => client.statements.unnamed(),
        name => client.statements.get(name).map(|named| &named.statement),
    };
    statement.map(|statement| statement.text())
}
