//! Fuzz bodies: each takes any bytes and panics if a promise is broken. The targets in `fuzz/` are
//! one line each; the unit tests below run the same functions.

use crate::backend::{Fields, Status, command_tag, key_data, parameter_status};
use crate::frame::{HEADER, LENGTH_MAX, header};
use crate::frontend::{BindNames, Parse, Subject, execute_portal, string};
use crate::proxy;
use crate::startup::{self, FirstPacket};
use crate::tag::{backend, frontend};
use crate::write;

/// Cuts a stream into messages as both directions do, reads every body with its readers, and writes
/// the results again: the same bytes must come out.
pub fn messages(stream: &[u8]) {
    let mut rest = stream;
    while let Some(Ok(header)) = header(rest) {
        assert!(header.body <= LENGTH_MAX - 4);
        for end in 0..HEADER {
            assert_eq!(crate::frame::header(&rest[..end]), None);
        }
        // A message that is cut short is read as far as it goes: readers must not panic.
        let end = header.total().min(rest.len());
        let (message, after) = rest.split_at(end);
        from_client(header.tag, message);
        from_server(header.tag, message);
        rest = after;
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut buf = Vec::new();
    write(&mut buf);
    buf
}

/// The same message, with the right length for its body.
fn whole(message: &[u8]) -> Vec<u8> {
    written(|buf| {
        write::message(buf, message[0], |buf| {
            buf.extend_from_slice(&message[HEADER..])
        })
    })
}

fn from_client(tag: u8, message: &[u8]) {
    let body = &message[HEADER..];
    match tag {
        frontend::PARSE => {
            let Ok(read) = Parse::read(body) else { return };
            assert!(!read.name.contains(&0) && !read.text().contains(&0));
            let again = written(|buf| write::parse(buf, read.name, read.definition));
            assert_eq!(again, whole(message));
        }
        frontend::BIND => {
            let Some(read) = BindNames::read(body) else {
                return;
            };
            let rest = &body[read.size()..];
            let again = written(|buf| {
                write::bind_head(buf, read.portal, read.statement, rest.len());
                buf.extend_from_slice(rest);
            });
            assert_eq!(again, whole(message));
        }
        frontend::DESCRIBE | frontend::CLOSE => {
            if let Ok(Subject::Statement(name)) = Subject::read(tag, body) {
                let again = written(|buf| write::of_statement(buf, tag, name));
                assert_eq!(again, whole(message));
            }
        }
        frontend::EXECUTE => {
            if let Ok(portal) = execute_portal(body) {
                assert_eq!(portal.len() + 5, body.len());
            }
        }
        frontend::QUERY => {
            if let Ok(text) = string(tag, body) {
                assert_eq!(written(|buf| write::query(buf, text)), whole(message));
            }
        }
        _ => {}
    }
}

fn from_server(tag: u8, message: &[u8]) {
    let body = &message[HEADER..];
    match tag {
        backend::READY => {
            if let Ok(status) = Status::read(body) {
                assert_eq!(written(|buf| write::ready(buf, status)), whole(message));
            }
        }
        backend::PARAMETER_STATUS => {
            if let Ok((name, value)) = parameter_status(body) {
                let again = written(|buf| write::parameter_status(buf, name, value));
                assert_eq!(again, whole(message));
            }
        }
        backend::BACKEND_KEY_DATA => {
            if let Ok((pid, secret)) = key_data(body) {
                assert_eq!(
                    written(|buf| write::key_data(buf, pid, secret)),
                    whole(message)
                );
            }
        }
        backend::COMMAND_COMPLETE => {
            if let Ok(tag) = command_tag(body) {
                assert_eq!(tag.len() + 1, body.len());
            }
        }
        backend::ERROR | backend::NOTICE => {
            let fields = Fields::new(body);
            let size: usize = fields.iter().map(|(_, value)| value.len() + 2).sum();
            assert!(size <= body.len());
            let _ = (fields.severity(), fields.sqlstate(), fields.message());
        }
        _ => {}
    }
}

/// Reads a first packet and writes the result again. Reading that must give the same result.
pub fn first_packet(bytes: &[u8]) {
    let length = match startup::length(bytes) {
        None => return assert!(bytes.len() < 4),
        Some(Err(_)) => return,
        Some(Ok(length)) => length,
    };
    assert!((8..=startup::PACKET_MAX as usize).contains(&length));
    let packet = &bytes[..length.min(bytes.len())];
    match startup::read(packet) {
        Err(_) | Ok(FirstPacket::Ssl | FirstPacket::GssEnc | FirstPacket::Unsupported(..)) => {}
        Ok(FirstPacket::Cancel { pid, secret }) => {
            let again = written(|buf| write::cancel_request(buf, pid, secret));
            assert_eq!(again[4..], packet[4..]);
        }
        Ok(FirstPacket::Startup(startup)) => {
            let again = written(|buf| write::startup(buf, startup.minor, startup.parameters()));
            assert_eq!(again[4..], packet[4..]);
            for (name, _) in startup.parameters() {
                let name = str::from_utf8(name).ok();
                assert!(name.is_none_or(|name| startup.get(name).is_some()));
            }
        }
    }
}

/// Reads a header of the PROXY protocol. What more bytes would bring must not change what fewer bytes
/// have shown, and what follows the header must not count.
pub fn proxy_header(bytes: &[u8]) {
    let whole = proxy::read(bytes);
    let sizes = (0..=bytes.len()).map(|end| proxy::read(&bytes[..end]));
    let first = sizes.flatten().next();
    match (first, whole) {
        (Some(Err(_)), Some(Err(_))) | (None, None) => {}
        (Some(Ok(first)), Some(Ok(whole))) => {
            assert_eq!(first, whole);
            assert!(first.size <= proxy::HEADER_MAX && proxy::is_header(bytes));
        }
        (first, whole) => panic!("{first:?}, then {whole:?}"),
    }
    let most = bytes.len().min(proxy::HEADER_MAX);
    assert!(whole.is_some() || bytes.len() == most, "it waits for ever");
    if whole.is_some_and(|read| read != Err(proxy::ProxyError::Missing)) && bytes.len() >= 4 {
        assert!(proxy::is_header(bytes) && startup::length(bytes).is_some_and(|it| it.is_err()));
    }
}

/// Writes a row of a console's answer from any bytes. The row must be one message, and its values
/// must come back.
pub fn data_row(bytes: &[u8]) {
    let values: Vec<Option<&[u8]>> = bytes
        .split(|&b| b == 0xff)
        .map(|value| (value != b"\0").then_some(value))
        .collect();
    if values.len() > usize::from(u16::MAX) {
        return;
    }
    let row = written(|buf| write::data_row(buf, values.iter().copied()));
    let header = header(&row)
        .expect("five bytes")
        .expect("a length within bounds");
    assert_eq!((header.tag, header.total()), (backend::DATA_ROW, row.len()));
    let mut rest = &row[HEADER + 2..];
    for value in values {
        let (length, after) = rest.split_first_chunk::<4>().expect("a length");
        let length = i32::from_be_bytes(*length);
        let taken = value.map_or(0, <[u8]>::len);
        assert_eq!(length, value.map_or(-1, |value| value.len() as i32));
        assert_eq!(&after[..taken], value.unwrap_or_default());
        rest = &after[taken..];
    }
    assert!(rest.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One good message of each kind that has a reader, and first packets.
    const SEEDS: &[&[u8]] = &[
        b"",
        b"P\0\0\0\x18s1\0select $1\0\0\x01\0\0\0\x17",
        b"B\0\0\0\x14p\0s1\0\0\0\0\x01\xff\xff\xff\xff\0\0",
        b"D\0\0\0\x08Ss1\0",
        b"C\0\0\0\x06P\0",
        b"E\0\0\0\x09\0\0\0\0\0",
        b"Q\0\0\0\x0dselect 1\0S\0\0\0\x04",
        b"Z\0\0\0\x05T",
        b"S\0\0\0\x16TimeZone\0Etc/UTC\0\0",
        b"S\0\0\0\x15TimeZone\0Etc/UTC\0",
        b"K\0\0\0\x0c\0\0\0\x07abcd",
        b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I",
        b"E\0\0\0\x1aSERROR\0VERROR\0C26000\0\0",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01abcd",
        b"\0\0\0\x12\0\x03\0\0user\0ann\0\0",
        b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 6432\r\n",
        b"PROXY UNKNOWN\r\n\0\0\0\x08\x04\xd2\x16\x2f",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f\x0a\0\0\x01\x0a\0\0\x02\x13\x88\x19\x20\x04\0\0",
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    ];

    fn all(bytes: &[u8]) {
        messages(bytes);
        first_packet(bytes);
        data_row(bytes);
        proxy_header(bytes);
    }

    /// Any bytes as a well-framed message of each tag that has a reader.
    fn framed(body: &[u8]) {
        for tag in *b"PBDCEQZSKN" {
            let stream = written(|buf| write::message(buf, tag, |buf| buf.extend_from_slice(body)));
            messages(&stream);
        }
        let mut packet = (body.len() as u32 + 8).to_be_bytes().to_vec();
        packet.extend_from_slice(&[0, 3, 0, 2]);
        packet.extend_from_slice(body);
        first_packet(&packet);
    }

    #[test]
    fn seeds_and_their_prefixes() {
        for seed in SEEDS {
            for end in 0..=seed.len() {
                all(&seed[..end]);
                framed(&seed[..end]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            all(&bytes);
            framed(&bytes);
        }

        /// Bytes that are often zero, because a zero ends a string.
        #[test]
        fn strings(bytes in prop::collection::vec(prop_oneof![Just(0), 0..4u8, any::<u8>()], 0..64)) {
            framed(&bytes);
        }

        #[test]
        fn seeds_with_changes(
            seed in 0..SEEDS.len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = SEEDS[seed].to_vec();
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            all(&bytes);
        }
    }
}
