//! The body of the fuzz target `handshake`; a unit test runs it, too.

use std::sync::OnceLock;

use howdah_pooler::config::SslMode;

use super::samples::{Folder, certificate, contexts, elliptic, to};
use super::session::HandshakeStep;
use super::{Contexts, LibrarySession, TlsSession};

/// The most flights of a handshake, and of the messages after it.
const FLIGHTS: usize = 8;
/// No handshake sends more bytes than this, whatever the other side sends.
const FLIGHT_MAX: usize = 64 << 10;

/// Contexts with TLS 1.3, or with TLS 1.2 only.
fn shared(old: bool) -> &'static Contexts {
    static CONTEXTS: OnceLock<[Contexts; 2]> = OnceLock::new();
    let all = CONTEXTS.get_or_init(|| {
        ["", "client_tls_protocols = tlsv1.2\n"].map(|more| {
            let folder = Folder::new("fuzz");
            let key = elliptic();
            contexts(&folder, &key, &certificate(&key, 3, &["localhost"]), more)
        })
    });
    &all[usize::from(old)]
}

/// Changes a flight on its way, by the next bytes of the input: nothing, a changed bit, a cut-off
/// end, or inserted bytes.
fn tamper(bytes: &mut Vec<u8>, input: &mut impl Iterator<Item = u8>) {
    let Some(what) = input.next() else { return };
    let mut number = || usize::from(input.next().unwrap_or(0));
    let at = (number() << 8 | number()) % (bytes.len() + 1);
    match what % 8 {
        0 => {
            let mask = 1 << (number() % 8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= mask;
            }
        }
        1 => bytes.truncate(at),
        2 => {
            let count = number();
            let more: Vec<u8> = input.by_ref().take(count).collect();
            drop(bytes.splice(at..at, more));
        }
        _ => {}
    }
}

/// Two sides do a handshake, and the input tampers with their bytes. Either a session works, or
/// there is none. No side may panic or talk without end, and nothing may be decrypted that was not
/// sent. Returns whether both sides have a session.
pub fn handshake(input: &[u8]) -> bool {
    let mut input = input.iter().copied();
    let first = input.next().unwrap_or(0);
    let direct = first & 1 != 0;
    let contexts = shared(first & 2 != 0);
    let mut server = LibrarySession::accept(contexts, direct).expect("a certificate");
    let mut client =
        LibrarySession::connect(contexts, to("localhost", SslMode::Require)).expect("contexts");
    let mut done = [false; 2];
    for flight in 0..FLIGHTS {
        let (from, to) = match flight % 2 {
            0 => (&mut client, &mut server),
            _ => (&mut server, &mut client),
        };
        for (side, session) in [(flight % 2, &mut *from), (1 - flight % 2, &mut *to)] {
            match session.handshake() {
                HandshakeStep::More => {}
                HandshakeStep::Done(_) => done[side] = true,
                HandshakeStep::Failed(why) => {
                    assert!(!why.is_empty() && session.seal(b"x", Vec::new()).is_err());
                }
            }
        }
        let mut bytes = from.take_output().unwrap_or_default();
        assert!(bytes.len() < FLIGHT_MAX);
        tamper(&mut bytes, &mut input);
        to.feed(&bytes);
    }
    let stands = done == [true, true];
    for turn in 0..2 {
        let (from, to) = match turn {
            0 => (&mut client, &mut server),
            _ => (&mut server, &mut client),
        };
        // Inserted bytes may still wait to be decrypted.
        let Ok(sealed) = from.seal(b"said", Vec::new()) else {
            continue;
        };
        to.feed(&sealed);
        let (mut block, mut len) = (Vec::new(), 0);
        to.open(&mut block, &mut len);
        assert!(b"said".starts_with(&block[..len]));
    }
    stands
}
