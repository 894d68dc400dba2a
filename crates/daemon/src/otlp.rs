//! The message of OTLP that takes spans to a collector: `ExportTraceServiceRequest`, in protobuf.
//!
//! ```text
//! request 1: resource 1: attributes        (howdah, its version, its process)
//!                     2: scope 1: name
//!                              2: span ... (see `write_span`)
//! ```

use howdah_pooler::queries::trace::Traced;

/// Who or what a span stands for, by OTLP's numbers.
#[derive(Clone, Copy)]
enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// The code of a status that is an error.
const ERROR: u64 = 2;
/// The flags of a span: sampled; it is known whether the parent is in another process; it is.
const SAMPLED: u32 = 1;
const PARENT_IS_KNOWN: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;

/// The longest word that names a span.
const NAME_MAX: usize = 16;

/// The request with the spans of some queries.
pub fn request(queries: &[Traced]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |resource| {
            resource.attribute(1, "service.name", Value::Text("howdah"));
            let version = env!("CARGO_PKG_VERSION");
            resource.attribute(1, "service.version", Value::Text(version));
            let process = u64::from(std::process::id());
            resource.attribute(1, "process.pid", Value::Number(process));
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| scope.bytes(1, b"howdah"));
            for traced in queries {
                write_spans(scope_spans, traced);
            }
        });
    });
    request.0
}

/// A query's spans: the whole query, its wait for a server if it waited, and its run.
fn write_spans(scope_spans: &mut Message, traced: &Traced) {
    let place = &traced.place;
    let (began, runs) = (traced.began, traced.began + traced.wait_ns);
    let ended = runs + traced.run_ns;
    // Two span numbers that no other span has: the query's own number is random.
    let (wait, run) = (place.span ^ (1 << 63), place.span ^ (1 << 62));
    let name = operation(traced);
    let whole = Span {
        trace: place.trace,
        id: place.span,
        parent: place.parent,
        remote: place.parent.is_some(),
        name: &name,
        kind: Kind::Server,
        times: (began, ended),
    };
    let part = |id: u64, name, kind, times| Span {
        trace: place.trace,
        id: id.max(1),
        parent: Some(place.span),
        remote: false,
        name,
        kind,
        times,
    };
    scope_spans.message(2, |message| {
        whole.write(message);
        write_attributes(message, traced, &name);
        write_status(message, traced);
    });
    if traced.wait_ns > 0 {
        let span = part(wait, "wait for server", Kind::Internal, (began, runs));
        scope_spans.message(2, |message| span.write(message));
    }
    scope_spans.message(2, |message| {
        part(run, "run", Kind::Client, (runs, ended)).write(message);
        write_status(message, traced);
    });
}

/// The first word of a query's text, which names its span.
fn operation(traced: &Traced) -> String {
    let word = traced.text.text.split([' ', ';', '(']).next();
    let word = word.filter(|word| {
        word.bytes().all(|byte| byte.is_ascii_alphabetic()) && word.len() <= NAME_MAX
    });
    word.unwrap_or("query").to_ascii_uppercase()
}

fn write_attributes(span: &mut Message, traced: &Traced, name: &str) {
    let fingerprint = traced.text.shown();
    let milliseconds = |ns: u64| Value::Fraction(ns as f64 / 1e6);
    let attributes = [
        ("db.system.name", Value::Text("postgresql")),
        ("db.namespace", Value::Text(&traced.database)),
        ("db.operation.name", Value::Text(name)),
        ("db.query.text", Value::Text(&traced.text.text)),
        ("db.query.fingerprint", Value::Text(&fingerprint)),
        ("db.user", Value::Text(&traced.user)),
        ("client.address", Value::Text(&traced.address)),
        ("application.name", Value::Text(&traced.application)),
        ("db.response.returned_rows", Value::Number(traced.rows)),
        ("howdah.wait_ms", milliseconds(traced.wait_ns)),
        ("howdah.run_ms", milliseconds(traced.run_ns)),
    ];
    for (key, value) in attributes {
        span.attribute(9, key, value);
    }
    if let Some(sqlstate) = &traced.sqlstate {
        span.attribute(9, "db.response.status_code", Value::Text(sqlstate));
    }
}

/// A query that failed, or whose end was not seen, has a status that says why.
fn write_status(span: &mut Message, traced: &Traced) {
    if let Some(why) = traced.broken_off.or(traced.sqlstate.as_deref()) {
        span.message(15, |status| {
            status.bytes(2, why.as_bytes());
            status.number(3, ERROR);
        });
    }
}

/// The fields that all spans have.
struct Span<'a> {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    /// The parent is in another process.
    remote: bool,
    name: &'a str,
    kind: Kind,
    /// Begin and end, in nanoseconds since 1970.
    times: (u64, u64),
}

impl Span<'_> {
    fn write(&self, span: &mut Message) {
        span.bytes(1, &self.trace.to_be_bytes());
        span.bytes(2, &self.id.to_be_bytes());
        if let Some(parent) = self.parent {
            span.bytes(4, &parent.to_be_bytes());
        }
        span.bytes(5, self.name.as_bytes());
        span.number(6, self.kind as u64);
        span.fixed64(7, self.times.0);
        span.fixed64(8, self.times.1);
        let remote = if self.remote { PARENT_IS_REMOTE } else { 0 };
        span.fixed32(16, SAMPLED | PARENT_IS_KNOWN | remote);
    }
}

/// The value of an attribute.
enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Fraction(f64),
}

/// A message of protobuf: fields, each with its number.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// The field's number and its wire type.
    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// Seven bits a byte, the lowest first; the top bit says that more follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u64, value: u64) {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, value: u32) {
        self.key(field, 5);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Bytes, or a text.
    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A message within this one.
    fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        let mut message = Message::default();
        write(&mut message);
        self.bytes(field, &message.0);
    }

    fn attribute(&mut self, field: u64, key: &str, value: Value<'_>) {
        self.message(field, |attribute| {
            attribute.bytes(1, key.as_bytes());
            attribute.message(2, |any| match value {
                Value::Text(text) => any.bytes(1, text.as_bytes()),
                Value::Number(number) => any.number(3, number),
                Value::Fraction(fraction) => any.fixed64(4, fraction.to_bits()),
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_protobuf_has_them() {
        let mut message = Message::default();
        message.number(1, 150);
        message.bytes(2, b"testing");
        message.message(3, |within| within.number(1, 150));
        message.fixed32(16, 1);
        message.attribute(9, "k", Value::Fraction(1.0));
        let expected = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01\x85\x01\x01\0\0\0\
            \x4a\x0e\x0a\x01k\x12\x09\x21\0\0\0\0\0\0\xf0\x3f";
        assert_eq!(message.0, expected);
    }
}
