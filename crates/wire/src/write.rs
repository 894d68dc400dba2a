//! Writers: each appends one complete message to a buffer.

use crate::backend::Status;
use crate::startup::{CANCEL_REQUEST, SSL_REQUEST};
use crate::tag::{backend, frontend};

/// Appends a message: the tag, the length, and the bytes that `body` appends. The length is filled
/// in last.
pub fn message(buf: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    buf.push(tag);
    untagged(buf, body);
}

/// Appends a length-prefixed packet without a tag.
fn untagged(buf: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = buf.len();
    // A length that no reader accepts, in case an incomplete message is ever sent.
    buf.extend_from_slice(&[0xff; 4]);
    body(buf);
    let length = (buf.len() - at) as u32;
    buf[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a zero-terminated string. Text after a zero byte is cut off: a reader would not see it.
fn string(buf: &mut Vec<u8>, text: &[u8]) {
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
    buf.extend_from_slice(&text[..end]);
    buf.push(0);
}

/// StartupMessage of protocol 3.`minor`.
pub fn startup<N, V>(buf: &mut Vec<u8>, minor: u16, parameters: impl IntoIterator<Item = (N, V)>)
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    untagged(buf, |buf| {
        buf.extend_from_slice(&(3 << 16 | u32::from(minor)).to_be_bytes());
        for (name, value) in parameters {
            string(buf, name.as_ref());
            string(buf, value.as_ref());
        }
        buf.push(0);
    });
}

/// SSLRequest.
pub fn ssl_request(buf: &mut Vec<u8>) {
    buf.extend_from_slice(&8u32.to_be_bytes());
    buf.extend_from_slice(&SSL_REQUEST.to_be_bytes());
}

/// CancelRequest.
pub fn cancel_request(buf: &mut Vec<u8>, pid: u32, secret: &[u8]) {
    untagged(buf, |buf| {
        buf.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
        buf.extend_from_slice(&pid.to_be_bytes());
        buf.extend_from_slice(secret);
    });
}

/// Query.
pub fn query(buf: &mut Vec<u8>, text: &[u8]) {
    message(buf, frontend::QUERY, |buf| string(buf, text));
}

/// Parse, from a name and the rest of the body (text and types as on the wire).
pub fn parse(buf: &mut Vec<u8>, name: &[u8], definition: &[u8]) {
    message(buf, frontend::PARSE, |buf| {
        string(buf, name);
        buf.extend_from_slice(definition);
    });
}

/// Describe or Close (by `tag`) of a statement.
pub fn of_statement(buf: &mut Vec<u8>, tag: u8, name: &[u8]) {
    message(buf, tag, |buf| {
        buf.push(b'S');
        string(buf, name);
    });
}

/// The start of a Bind. The caller appends the last `rest` bytes of the body.
pub fn bind_head(buf: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest: usize) {
    let length = 4 + portal.len() + 1 + statement.len() + 1 + rest;
    buf.reserve(1 + length - rest);
    buf.push(frontend::BIND);
    buf.extend_from_slice(&(length as u32).to_be_bytes());
    // Names from a reader have no zero inside.
    for name in [portal, statement] {
        buf.extend_from_slice(name);
        buf.push(0);
    }
}

/// A message without a body: Sync, Flush, Terminate, ParseComplete and the like.
pub fn empty(buf: &mut Vec<u8>, tag: u8) {
    buf.extend_from_slice(&[tag, 0, 0, 0, 4]);
}

/// PasswordMessage or SASLResponse: the body as given.
pub fn password(buf: &mut Vec<u8>, body: &[u8]) {
    message(buf, frontend::PASSWORD, |buf| buf.extend_from_slice(body));
}

/// CopyFail, on behalf of a client that has left.
pub fn copy_fail(buf: &mut Vec<u8>) {
    message(buf, frontend::COPY_FAIL, |buf| {
        string(buf, b"client disconnected")
    });
}

/// ReadyForQuery.
pub fn ready(buf: &mut Vec<u8>, status: Status) {
    buf.extend_from_slice(&[backend::READY, 0, 0, 0, 5, status.byte()]);
}

/// ParameterStatus.
pub fn parameter_status(buf: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    message(buf, backend::PARAMETER_STATUS, |buf| {
        string(buf, name);
        string(buf, value);
    });
}

/// BackendKeyData.
pub fn key_data(buf: &mut Vec<u8>, pid: u32, secret: &[u8]) {
    message(buf, backend::BACKEND_KEY_DATA, |buf| {
        buf.extend_from_slice(&pid.to_be_bytes());
        buf.extend_from_slice(secret);
    });
}

/// An authentication request: its code and the bytes after the code.
pub fn authentication(buf: &mut Vec<u8>, code: u32, rest: &[u8]) {
    message(buf, backend::AUTHENTICATION, |buf| {
        buf.extend_from_slice(&code.to_be_bytes());
        buf.extend_from_slice(rest);
    });
}

/// NegotiateProtocolVersion: the newest minor version that Howdah speaks, and the options that
/// Howdah does not know.
pub fn negotiate<'a>(buf: &mut Vec<u8>, minor: u16, options: impl Iterator<Item = &'a [u8]>) {
    message(buf, backend::NEGOTIATE, |buf| {
        buf.extend_from_slice(&(3 << 16 | u32::from(minor)).to_be_bytes());
        let at = buf.len();
        buf.extend_from_slice(&[0; 4]);
        let mut count = 0u32;
        for option in options {
            string(buf, option);
            count += 1;
        }
        buf[at..at + 4].copy_from_slice(&count.to_be_bytes());
    });
}

/// ErrorResponse with severity, SQLSTATE and message.
pub fn error(buf: &mut Vec<u8>, severity: &str, sqlstate: &str, text: &str) {
    error_with(buf, severity, sqlstate, text, [None, None]);
}

/// ErrorResponse with a detail and a hint.
pub fn error_with(
    buf: &mut Vec<u8>,
    severity: &str,
    sqlstate: &str,
    text: &str,
    [detail, hint]: [Option<&str>; 2],
) {
    let more = [(b'D', detail), (b'H', hint)];
    fields(buf, backend::ERROR, [severity, sqlstate, text], &more);
}

/// NoticeResponse with severity, SQLSTATE, message and perhaps a detail.
pub fn notice(buf: &mut Vec<u8>, severity: &str, sqlstate: &str, text: &str, detail: Option<&str>) {
    let more = [(b'D', detail)];
    fields(buf, backend::NOTICE, [severity, sqlstate, text], &more);
}

fn fields(
    buf: &mut Vec<u8>,
    tag: u8,
    [severity, sqlstate, text]: [&str; 3],
    more: &[(u8, Option<&str>)],
) {
    message(buf, tag, |buf| {
        let mut field = |code: u8, value: &str| {
            buf.push(code);
            string(buf, value.as_bytes());
        };
        field(b'S', severity);
        field(b'V', severity);
        field(b'C', sqlstate);
        field(b'M', text);
        for (code, value) in more {
            if let Some(value) = value {
                field(*code, value);
            }
        }
        buf.push(0);
    });
}

/// CommandComplete.
pub fn command_complete(buf: &mut Vec<u8>, tag: &str) {
    message(buf, backend::COMMAND_COMPLETE, |buf| {
        string(buf, tag.as_bytes())
    });
}

/// One column of a RowDescription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column<'a> {
    /// The column's name.
    pub name: &'a str,
    /// The type's object id.
    pub type_oid: u32,
    /// The type's size in bytes; negative for a variable size.
    pub type_size: i16,
}

/// RowDescription, all columns in text format.
pub fn row_description(buf: &mut Vec<u8>, columns: &[Column<'_>]) {
    row_description_as(buf, columns, &|_| false);
}

/// RowDescription; `binary` says which columns are in binary format.
pub fn row_description_as(
    buf: &mut Vec<u8>,
    columns: &[Column<'_>],
    binary: &dyn Fn(usize) -> bool,
) {
    message(buf, backend::ROW_DESCRIPTION, |buf| {
        buf.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (position, column) in columns.iter().enumerate() {
            string(buf, column.name.as_bytes());
            buf.extend_from_slice(&[0; 6]);
            buf.extend_from_slice(&column.type_oid.to_be_bytes());
            buf.extend_from_slice(&column.type_size.to_be_bytes());
            buf.extend_from_slice(&(-1i32).to_be_bytes());
            buf.extend_from_slice(&[0, u8::from(binary(position))]);
        }
    });
}

/// DataRow with values as given; `None` is NULL.
pub fn data_row<'a>(buf: &mut Vec<u8>, values: impl ExactSizeIterator<Item = Option<&'a [u8]>>) {
    message(buf, backend::DATA_ROW, |buf| {
        buf.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            match value {
                Some(value) => {
                    buf.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    buf.extend_from_slice(value);
                }
                None => buf.extend_from_slice(&(-1i32).to_be_bytes()),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Fields, key_data as read_key, parameter_status as read_parameter};
    use crate::frame::{HEADER, header};
    use crate::frontend::{BindNames, Parse, Subject};

    fn body(buf: &[u8], tag: u8) -> &[u8] {
        let header = header(buf).unwrap().unwrap();
        assert_eq!((header.tag, header.total()), (tag, buf.len()));
        &buf[HEADER..]
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut buf = Vec::new();
        write(&mut buf);
        buf
    }

    #[test]
    fn round_trips() {
        let buf = written(|b| parse(b, b"s", b"select 1\0\0\0"));
        assert_eq!(Parse::read(body(&buf, b'P')).unwrap().name, b"s");
        let buf = written(|b| of_statement(b, b'D', b"s"));
        assert_eq!(
            Subject::read(b'D', body(&buf, b'D')),
            Ok(Subject::Statement(b"s"))
        );
        let buf = written(|b| {
            bind_head(b, b"p", b"s", 3);
            b.extend_from_slice(b"xyz");
        });
        let names = BindNames {
            portal: b"p",
            statement: b"s",
        };
        assert_eq!(BindNames::read(body(&buf, b'B')), Some(names));
        let buf = written(|b| parameter_status(b, b"a", b"b"));
        assert_eq!(read_parameter(body(&buf, b'S')), Ok((&b"a"[..], &b"b"[..])));
        let buf = written(|b| key_data(b, 9, &[1; 32]));
        assert_eq!(read_key(body(&buf, b'K')), Ok((9, &[1u8; 32][..])));
        let buf = written(|b| error(b, "FATAL", "3D000", "no such\0thing"));
        let fields = Fields::new(body(&buf, b'E'));
        assert_eq!(
            (fields.severity(), fields.message()),
            (&b"FATAL"[..], &b"no such"[..])
        );
        assert_eq!(written(|b| ready(b, Status::Failed)), b"Z\0\0\0\x05E");
        assert_eq!(written(|b| empty(b, b'S')), b"S\0\0\0\x04");
        assert_eq!(
            written(|b| negotiate(b, 2, [&b"_pq_.x"[..]].into_iter())),
            b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.x\0"
        );
        assert_eq!(
            written(|b| data_row(b, [Some(&b"a"[..]), None].into_iter())),
            b"D\0\0\0\x0f\0\x02\0\0\0\x01a\xff\xff\xff\xff"
        );
        assert_eq!(written(|b| cancel_request(b, 1, b"abcd")).len(), 16);
    }
}
