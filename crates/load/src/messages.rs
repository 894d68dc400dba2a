//! PostgreSQL's messages: writes, reads and prints them.
//!
//! This file deliberately uses none of the pooler's own code: a checker that shared its framing
//! with the checked program would share its bugs.

use std::fmt::Write as _;

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The tag byte.
    pub tag: u8,
    /// The bytes after the length.
    pub body: Vec<u8>,
}

/// Type oids used by the load.
pub mod oid {
    /// `bool`
    pub const BOOL: u32 = 16;
    /// `bytea`
    pub const BYTEA: u32 = 17;
    /// `int8`
    pub const INT8: u32 = 20;
    /// `int4`
    pub const INT4: u32 = 23;
    /// `text`
    pub const TEXT: u32 = 25;
    /// `void`
    pub const VOID: u32 = 2278;
}

/// A result column: its name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The column's name.
    pub name: String,
    /// The type's oid.
    pub oid: u32,
}

/// A column named `name` of type `oid`.
pub fn column(name: &str, oid: u32) -> Column {
    Column {
        name: name.to_owned(),
        oid,
    }
}

/// A row's values, encoded; `None` is NULL.
pub type Row = Vec<Option<Vec<u8>>>;

/// Appends a message with this tag. `body` writes the body.
pub fn put(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a string and a zero byte.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn put_i16(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&(value as u16).to_be_bytes());
}

fn put_values(out: &mut Vec<u8>, values: &[Option<Vec<u8>>]) {
    put_i16(out, values.len());
    for value in values {
        match value {
            None => out.extend_from_slice(&(-1i32).to_be_bytes()),
            Some(bytes) => {
                out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }
}

fn put_formats(out: &mut Vec<u8>, formats: &[u16]) {
    put_i16(out, formats.len());
    for format in formats {
        out.extend_from_slice(&format.to_be_bytes());
    }
}

/// Query.
pub fn query(out: &mut Vec<u8>, sql: &str) {
    put(out, b'Q', |out| put_text(out, sql));
}

/// Parse.
pub fn parse(out: &mut Vec<u8>, name: &str, sql: &str, types: &[u32]) {
    put(out, b'P', |out| {
        put_text(out, name);
        put_text(out, sql);
        put_i16(out, types.len());
        for oid in types {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// The content of a Bind, except the two names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The parameters' formats.
    pub formats: Vec<u16>,
    /// The parameters, encoded.
    pub values: Row,
    /// The requested formats of the result columns.
    pub results: Vec<u16>,
}

/// Bind.
pub fn bind(out: &mut Vec<u8>, portal: &str, name: &str, arguments: &Arguments) {
    put(out, b'B', |out| {
        put_text(out, portal);
        put_text(out, name);
        put_formats(out, &arguments.formats);
        put_values(out, &arguments.values);
        put_formats(out, &arguments.results);
    });
}

/// Describe (`b'S'`: a statement, `b'P'`: a portal).
pub fn describe(out: &mut Vec<u8>, kind: u8, name: &str) {
    put(out, b'D', |out| {
        out.push(kind);
        put_text(out, name);
    });
}

/// Close (`b'S'`: a statement, `b'P'`: a portal).
pub fn close(out: &mut Vec<u8>, kind: u8, name: &str) {
    put(out, b'C', |out| {
        out.push(kind);
        put_text(out, name);
    });
}

/// Execute. Zero rows means all rows.
pub fn execute(out: &mut Vec<u8>, portal: &str, rows: u32) {
    put(out, b'E', |out| {
        put_text(out, portal);
        out.extend_from_slice(&rows.to_be_bytes());
    });
}

/// A message without a body: Sync, Flush, CopyDone, Terminate.
pub fn bare(out: &mut Vec<u8>, tag: u8) {
    put(out, tag, |_| {});
}

/// CopyData.
pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    put(out, b'd', |out| out.extend_from_slice(data));
}

/// FunctionCall with binary arguments and result.
pub fn function_call(out: &mut Vec<u8>, function: u32, arguments: &[Vec<u8>]) {
    put(out, b'F', |out| {
        out.extend_from_slice(&function.to_be_bytes());
        put_formats(out, &[1]);
        put_i16(out, arguments.len());
        for argument in arguments {
            out.extend_from_slice(&(argument.len() as u32).to_be_bytes());
            out.extend_from_slice(argument);
        }
        out.extend_from_slice(&1u16.to_be_bytes());
    });
}

/// The body of a RowDescription. `formats` is empty (all text), one for all, or one each.
pub fn row_description(columns: &[Column], formats: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    put_i16(&mut out, columns.len());
    for (index, column) in columns.iter().enumerate() {
        put_text(&mut out, &column.name);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&column.oid.to_be_bytes());
        let size: i16 = match column.oid {
            oid::BOOL => 1,
            oid::INT8 => 8,
            oid::INT4 | oid::VOID => 4,
            _ => -1,
        };
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&(-1i32).to_be_bytes());
        out.extend_from_slice(&format_of(formats, index).to_be_bytes());
    }
    out
}

/// The format of column or parameter `index` in a list of formats.
pub fn format_of(formats: &[u16], index: usize) -> u16 {
    match formats.len() {
        0 => 0,
        1 => formats[0],
        _ => formats[index],
    }
}

/// The body of a DataRow.
pub fn data_row(values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut out = Vec::new();
    put_values(&mut out, values);
    out
}

/// The values of a DataRow, as text.
pub fn values(body: &[u8]) -> Vec<Option<String>> {
    let mut values = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let bytes = length.map(|length| &tail[..length.min(tail.len())]);
        values.push(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()));
        rest = &tail[bytes.map_or(0, <[u8]>::len)..];
    }
    values
}

/// The body of a ParameterDescription.
pub fn parameter_description(types: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    put_i16(&mut out, types.len());
    for oid in types {
        out.extend_from_slice(&oid.to_be_bytes());
    }
    out
}

/// A zero-terminated body, as in CommandComplete.
pub fn text_body(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_text(&mut out, text);
    out
}

/// Field `field` of an ErrorResponse or NoticeResponse.
pub fn field(body: &[u8], field: u8) -> Option<String> {
    let mut rest = body;
    while let [tag, tail @ ..] = rest {
        if *tag == 0 {
            return None;
        }
        let end = tail.iter().position(|byte| *byte == 0)?;
        if *tag == field {
            return Some(String::from_utf8_lossy(&tail[..end]).into_owned());
        }
        rest = &tail[end + 1..];
    }
    None
}

/// The name and value in a ParameterStatus.
pub fn parameter_status(body: &[u8]) -> Option<(String, String)> {
    let mut parts = body.split(|byte| *byte == 0);
    let name = String::from_utf8_lossy(parts.next()?).into_owned();
    let value = String::from_utf8_lossy(parts.next()?).into_owned();
    Some((name, value))
}

const SHOWN: usize = 120;

fn show(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN) {
        match byte {
            b' '..=b'~' => text.push(*byte as char),
            _ => write!(text, "\\x{byte:02x}").expect("a String takes all"),
        }
    }
    if bytes.len() > SHOWN {
        write!(text, "... ({} bytes)", bytes.len()).expect("a String takes all");
    }
    text
}

/// One line for a client's message.
pub fn show_sent(tag: u8, body: &[u8], length: usize) -> String {
    let name = match tag {
        b'Q' => "Query",
        b'P' => "Parse",
        b'B' => "Bind",
        b'D' => "Describe",
        b'E' => "Execute",
        b'C' => "Close",
        b'S' => "Sync",
        b'H' => "Flush",
        b'd' => "CopyData",
        b'c' => "CopyDone",
        b'f' => "CopyFail",
        b'F' => "FunctionCall",
        b'X' => "Terminate",
        b'p' => "Password",
        0 => "(raw)",
        _ => "?",
    };
    format!("{name}[{length}] {}", show(body))
}

/// One line for a server's message of this whole `length`; `body` may be its beginning.
pub fn show_got(tag: u8, body: &[u8], length: usize) -> String {
    let name = match tag {
        b'1' => "ParseComplete",
        b'2' => "BindComplete",
        b'3' => "CloseComplete",
        b'A' => "NotificationResponse",
        b'C' => "CommandComplete",
        b'D' => "DataRow",
        b'E' | b'N' => {
            let of = |tag| field(body, tag).unwrap_or_default();
            let name = if tag == b'E' {
                "ErrorResponse"
            } else {
                "NoticeResponse"
            };
            return format!(
                "{name} {} {} {}",
                of(b'S'),
                of(b'C'),
                show(of(b'M').as_bytes())
            );
        }
        b'G' => "CopyInResponse",
        b'H' => "CopyOutResponse",
        b'I' => "EmptyQueryResponse",
        b'K' => "BackendKeyData",
        b'R' => "Authentication",
        b'S' => "ParameterStatus",
        b'T' => "RowDescription",
        b'V' => "FunctionCallResponse",
        b'Z' => "ReadyForQuery",
        b'c' => "CopyDone",
        b'd' => "CopyData",
        b'n' => "NoData",
        b's' => "PortalSuspended",
        b't' => "ParameterDescription",
        b'v' => "NegotiateProtocolVersion",
        _ => "?",
    };
    format!("{name}[{length}] {}", show(body))
}
