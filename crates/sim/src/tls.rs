//! A toy TLS in place of the library's. It hides nothing, but notices each record that is lost, doubled,
//! changed, out of order, or made with an old key.
//!
//! A record has its kind (one byte), the length of its body (two), the body, and a check (four). Body and
//! check are mixed with the key and the record's number in its direction. A handshake has the client's hello,
//! the server's hello and the client's Finished. Then the session is open, and the server sends a ticket.
//! Each side may take a new key at any time, and make the other side do so.

use std::sync::atomic::{AtomicU64, Ordering};

use howdah_daemon::tls::session::{HandshakeStep, Opened};
use howdah_daemon::tls::{TlsLibrary, TlsSession};
use howdah_pooler::tls::{TlsConnect, TlsFacts};

use crate::chance::Chance;

/// The name and version of this library.
pub const NAME: &str = "Toy 1";

const HEAD: usize = 3;
const CHECK: usize = 4;
/// Kinds of records. These are TLS's numbers, because the first byte distinguishes a handshake from
/// a startup packet.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const UPDATE: u8 = 24;

/// The state of one direction.
#[derive(Clone, Copy, Default)]
struct Way {
    key: u64,
    /// The number of records so far with this key.
    count: u64,
}

impl Way {
    fn new(key: u64) -> Way {
        Way { key, count: 0 }
    }

    /// Takes the next key.
    fn update(&mut self) {
        *self = Way::new(Chance::new(!self.key).number());
    }

    /// Mixes a body with the next record's key; mixing twice restores the body. Returns the check
    /// of the plain bytes.
    fn mix(&mut self, kind: u8, body: &mut [u8], plain_after: bool) -> u32 {
        let mut stream = Chance::new(self.key ^ self.count.rotate_left(32) ^ u64::from(kind));
        self.count += 1;
        let mut check = stream.number();
        for part in body.chunks_mut(8) {
            let mask = stream.number().to_le_bytes();
            for (byte, mask) in part.iter_mut().zip(mask) {
                let mixed = *byte ^ mask;
                let plain = if plain_after { mixed } else { *byte };
                check = (check.rotate_left(7) ^ u64::from(plain)).wrapping_mul(0x9e37_79b9);
                *byte = mixed;
            }
        }
        check as u32 ^ (check >> 32) as u32
    }
}

/// Makes sessions, each with its own behaviour.
#[derive(Debug)]
pub struct Toy {
    made: AtomicU64,
}

impl Toy {
    /// A library whose sessions depend on a seed.
    pub fn new(seed: u64) -> Toy {
        let made = AtomicU64::new(seed << 16);
        Toy { made }
    }
}

impl TlsLibrary for Toy {
    fn accept(&self, _direct: bool) -> Result<Box<dyn TlsSession>, String> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(ToySession::new(Side::Server, number)))
    }

    fn connect(&self, _to: TlsConnect) -> Result<Box<dyn TlsSession>, String> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(ToySession::client(number)))
    }

    fn unpack(&self, bytes: &[u8]) -> Result<Box<dyn TlsSession>, String> {
        let session = ToySession::unpack(bytes);
        let session = session.ok_or("what was packed can't be read")?;
        Ok(Box::new(session))
    }

    fn is_hello(&self, bytes: &[u8]) -> bool {
        match *bytes {
            [HANDSHAKE, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([high, low]));
                bytes.len() >= HEAD + length + CHECK
            }
            [HANDSHAKE, ..] | [] => false,
            _ => true,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Client,
    Server,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The client has sent no hello.
    New,
    /// The other side's hello is awaited.
    Hello,
    /// The client's Finished is awaited.
    Finished,
    Open,
    /// Open, and the other side has sent close_notify.
    Heard,
    Over,
}

/// A session of either side.
pub struct ToySession {
    side: Side,
    stage: Stage,
    /// This side's number in its hello.
    own: u64,
    reads: Way,
    writes: Way,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The most plain bytes in a record.
    most: usize,
    /// The session takes a new key after this many records; 0 for never.
    updates_after: u64,
    sealed: u64,
}

impl ToySession {
    /// A client's side. The number chooses its behaviour.
    pub fn client(number: u64) -> ToySession {
        ToySession::new(Side::Client, number)
    }

    /// A server's side. The number chooses its behaviour.
    pub fn server(number: u64) -> ToySession {
        ToySession::new(Side::Server, number)
    }

    fn new(side: Side, number: u64) -> ToySession {
        let mut chance = Chance::new(number);
        ToySession {
            side,
            stage: match side {
                Side::Client => Stage::New,
                Side::Server => Stage::Hello,
            },
            own: chance.number(),
            reads: Way::default(),
            writes: Way::default(),
            input: Vec::new(),
            output: Vec::new(),
            most: [64, 1000, 16_384][chance.within(0..=2)],
            updates_after: [0, 0, 1, 7][chance.within(0..=3)],
            sealed: 0,
        }
    }

    /// Takes a new key for sending; with `both`, makes the other side do so, too.
    pub fn update_keys(&mut self, both: bool) {
        if self.stage == Stage::Open {
            let update = record(&mut self.writes, UPDATE, &[u8::from(both)]);
            self.output.extend(update);
            self.writes.update();
        }
    }

    /// Sends an alert, at any moment.
    pub fn alert(&mut self) {
        let alert = record(&mut self.writes, ALERT, &[1]);
        self.output.extend(alert);
        self.stage = Stage::Over;
    }

    /// The next complete record: its kind and its plain bytes.
    fn next(&mut self) -> Option<Result<(u8, Vec<u8>), String>> {
        let [kind, high, low, ..] = self.input[..] else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let end = HEAD + length + CHECK;
        if self.input.len() < end {
            return None;
        }
        let mut body: Vec<u8> = self.input.drain(..end).skip(HEAD).collect();
        let check = body.split_off(length);
        let ours = self.reads.mix(kind, &mut body, true);
        if check != ours.to_be_bytes() {
            return Some(Err("bad record".into()));
        }
        Some(Ok((kind, body)))
    }

    fn fail(&mut self, why: &str) -> String {
        if self.stage != Stage::Over {
            self.alert();
        }
        self.input.clear();
        why.into()
    }

    /// Both sides have sent their hello.
    fn agree(&mut self, theirs: &[u8]) -> Option<()> {
        let theirs = u64::from_be_bytes(theirs.try_into().ok()?);
        let (client, server) = match self.side {
            Side::Client => (self.own, theirs),
            Side::Server => (theirs, self.own),
        };
        let mut secret = Chance::new(client.rotate_left(17) ^ server);
        let ways = [Way::new(secret.number()), Way::new(secret.number())];
        [self.writes, self.reads] = ways;
        if self.side == Side::Server {
            [self.reads, self.writes] = ways;
        }
        Some(())
    }

    fn unpack(bytes: &[u8]) -> Option<ToySession> {
        let rest = bytes.strip_prefix(NAME.as_bytes())?;
        let (numbers, input) = rest.split_at_checked(7 * 8)?;
        let mut numbers = numbers.chunks_exact(8);
        let mut number = || Some(u64::from_be_bytes(numbers.next()?.try_into().ok()?));
        let mut way = || {
            let (key, count) = (number()?, number()?);
            Some(Way { key, count })
        };
        let (reads, writes) = (way()?, way()?);
        Some(ToySession {
            reads,
            writes,
            most: number()? as usize,
            updates_after: number()?,
            sealed: number()?,
            stage: Stage::Open,
            input: input.to_vec(),
            ..ToySession::new(Side::Server, 0)
        })
    }
}

impl TlsSession for ToySession {
    fn is_in_handshake(&self) -> bool {
        matches!(self.stage, Stage::New | Stage::Hello | Stage::Finished)
    }

    fn unread(&self) -> usize {
        self.input.len()
    }

    fn feed(&mut self, bytes: &[u8]) {
        if self.stage != Stage::Over {
            self.input.extend_from_slice(bytes);
        }
    }

    fn handshake(&mut self) -> HandshakeStep {
        if self.stage == Stage::New {
            let hello = record(&mut self.writes, HANDSHAKE, &self.own.to_be_bytes());
            self.output.extend(hello);
            self.stage = Stage::Hello;
        }
        while self.is_in_handshake() {
            let body = match self.next() {
                None => return HandshakeStep::More,
                Some(Ok((HANDSHAKE, body))) => body,
                Some(Ok(_)) => return HandshakeStep::Failed(self.fail("unexpected message")),
                Some(Err(why)) => return HandshakeStep::Failed(self.fail(&why)),
            };
            match (self.stage, self.side) {
                (Stage::Hello, side) => {
                    if side == Side::Server {
                        let hello = record(&mut self.writes, HANDSHAKE, &self.own.to_be_bytes());
                        self.output.extend(hello);
                    }
                    if self.agree(&body).is_none() {
                        return HandshakeStep::Failed(self.fail("bad hello"));
                    }
                    self.stage = Stage::Finished;
                    if side == Side::Client {
                        let finished = record(&mut self.writes, HANDSHAKE, b"finished");
                        self.output.extend(finished);
                        self.stage = Stage::Open;
                    }
                }
                _ if body != b"finished" => {
                    return HandshakeStep::Failed(self.fail("bad Finished"));
                }
                _ => {
                    let ticket = record(&mut self.writes, HANDSHAKE, b"ticket");
                    self.output.extend(ticket);
                    self.stage = Stage::Open;
                }
            }
        }
        HandshakeStep::Done(Box::new(TlsFacts {
            version: NAME.into(),
            travels: self.side == Side::Server,
            ..TlsFacts::default()
        }))
    }

    fn open(&mut self, into: &mut Vec<u8>, len: &mut usize) -> Opened {
        into.truncate(*len);
        let mut asked = false;
        while self.stage == Stage::Open {
            let (kind, body) = match self.next() {
                None => break,
                Some(Ok(record)) => record,
                Some(Err(why)) => return Opened::Failed(self.fail(&why)),
            };
            match (kind, &body[..]) {
                (DATA, body) => {
                    into.extend_from_slice(body);
                    *len = into.len();
                }
                (UPDATE, both) => {
                    self.reads.update();
                    asked |= both == [1];
                }
                (ALERT, [0]) => {
                    self.stage = Stage::Heard;
                    self.input.clear();
                    return Opened::End;
                }
                (ALERT, _) => return Opened::Failed(self.fail("alert")),
                (HANDSHAKE, b"ticket") if self.side == Side::Client => {}
                _ => return Opened::Failed(self.fail("unexpected message")),
            }
        }
        // As libraries do: one answer to all requests. A peer that asks with each record and does
        // not read would otherwise be owed more than the connection holds.
        if asked {
            self.update_keys(false);
        }
        Opened::More
    }

    fn seal(&mut self, plain: &[u8], mut into: Vec<u8>) -> Result<Vec<u8>, String> {
        if !matches!(self.stage, Stage::Open | Stage::Heard) {
            return Err("the session is over".into());
        }
        assert!(
            self.output.is_empty(),
            "what was said between records is first"
        );
        for part in plain.chunks(self.most) {
            into.extend(record(&mut self.writes, DATA, part));
            self.sealed += 1;
            if self.updates_after > 0 && self.sealed.is_multiple_of(self.updates_after) {
                into.extend(record(&mut self.writes, UPDATE, &[(self.sealed % 2) as u8]));
                self.writes.update();
            }
        }
        Ok(into)
    }

    fn close(&mut self) {
        if matches!(self.stage, Stage::Open | Stage::Heard) {
            let goodbye = record(&mut self.writes, ALERT, &[0]);
            self.output.extend(goodbye);
            self.stage = Stage::Over;
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        (!self.output.is_empty()).then(|| std::mem::take(&mut self.output))
    }

    fn pack(&mut self) -> Result<Vec<u8>, String> {
        if self.side == Side::Client {
            return Err("a client's side does not travel".into());
        }
        if self.stage != Stage::Open || !self.output.is_empty() {
            return Err("the session is not at rest".into());
        }
        self.stage = Stage::Over;
        let mut bytes = NAME.as_bytes().to_vec();
        for number in [
            self.reads.key,
            self.reads.count,
            self.writes.key,
            self.writes.count,
            self.most as u64,
            self.updates_after,
            self.sealed,
        ] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.append(&mut self.input);
        Ok(bytes)
    }
}

fn record(way: &mut Way, kind: u8, plain: &[u8]) -> Vec<u8> {
    let mut record = vec![kind];
    record.extend((plain.len() as u16).to_be_bytes());
    record.extend_from_slice(plain);
    let check = way.mix(kind, &mut record[HEAD..], false);
    record.extend(check.to_be_bytes());
    record
}
