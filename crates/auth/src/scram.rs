//! SCRAM-SHA-256 (RFC 5802, RFC 7677): the grammar of its four messages, and its arithmetic. Both directions
//! use this file: clients' logins ([`super::scram_checker`]) and logins to PostgreSQL
//! ([`super::scram_prover`]).
//!
//! Readers borrow from the message and refuse what the grammar refuses. They allocate nothing but the salt.
//! Comments name the places where PostgreSQL is more lenient than the RFC.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::verifier::{ITERATIONS_MAX, SALT_MAX};

/// The mechanism without channel binding.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The mechanism with channel binding, used over TLS only.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The only supported kind of channel binding (RFC 5929): a hash of the server's certificate.
pub const BINDING_TYPE: &str = "tls-server-end-point";

/// The longest message accepted from a client, in bytes; PostgreSQL's own limit.
pub const CLIENT_MESSAGE_MAX: usize = 1024;

/// The longest message accepted from PostgreSQL, in bytes. It must hold a salt of [`SALT_MAX`] and
/// a nonce of [`CLIENT_MESSAGE_MAX`].
pub const SERVER_MESSAGE_MAX: usize = 4096;

/// A SHA-256 value.
pub type ScramKey = [u8; 32];

/// Random bytes of one side's nonce. In base64 they are 24 characters, as in PostgreSQL.
pub type Nonce = [u8; 18];

/// The reason why a message is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

/// The first message of a client, e.g. `n,,n=,r=fyko+d2lbbFgONRv9qkxdawL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientFirst<'a> {
    /// Everything before `bare`: `n,,`, `y,,` or `p=tls-server-end-point,,`.
    pub gs2_header: &'a [u8],
    /// The header's flag for channel binding.
    pub flag: BindingFlag<'a>,
    /// Everything after the GS2 header: part of the signed text.
    pub bare: &'a [u8],
    /// The client's half of the nonce.
    pub nonce: &'a [u8],
}

impl<'a> ClientFirst<'a> {
    /// Reads a first message. The user name in it is ignored, as in PostgreSQL: the startup packet
    /// has the name.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        bounded(message, CLIENT_MESSAGE_MAX)?;
        let (flag, bare) = gs2_header(message)?;
        let gs2_header = &message[..message.len() - bare.len()];
        if bare.starts_with(b"m=") {
            return Err(Malformed("the client requires an unknown SCRAM extension"));
        }
        let mut attributes = Attributes(bare);
        attributes.expect(b'n', "user name expected")?;
        let nonce = attributes.expect(b'r', "nonce expected")?;
        printable(nonce)?;
        attributes.skip_extensions()?;
        Ok(Self {
            gs2_header,
            flag,
            bare,
            nonce,
        })
    }
}

/// What a client says about channel binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingFlag<'a> {
    /// `n`: the client does not support it.
    Unsupported,
    /// `y`: the client supports it, but believes that the server does not.
    NotOffered,
    /// `p=`: the client uses this kind of channel binding.
    Bound(&'a [u8]),
}

/// Reads `n,,`, `y,,` or `p=name,,`. Returns the flag and the bytes after the header.
fn gs2_header(message: &[u8]) -> Result<(BindingFlag<'_>, &[u8]), Malformed> {
    let (flag, rest) = match message {
        [] => return Err(Malformed("empty message")),
        [b'n', rest @ ..] => (BindingFlag::Unsupported, rest),
        [b'y', rest @ ..] => (BindingFlag::NotOffered, rest),
        [b'p', b'=', rest @ ..] => {
            let end = rest.iter().position(|&b| b == b',').unwrap_or(rest.len());
            (BindingFlag::Bound(&rest[..end]), &rest[end..])
        }
        _ => return Err(Malformed("unknown channel binding flag")),
    };
    match rest {
        [b',', b',', rest @ ..] => Ok((flag, rest)),
        [b',', b'a', ..] => Err(Malformed("authorization identities are not supported")),
        _ => Err(Malformed("GS2 header expected")),
    }
}

/// The first message of the server side, e.g. `r=fyko...,s=QSXCR+Q6sek8bf92,i=4096`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerFirst<'a> {
    /// Both halves of the nonce.
    pub nonce: &'a [u8],
    /// 1 to [`SALT_MAX`] bytes.
    pub salt: Box<[u8]>,
    /// 1 to [`ITERATIONS_MAX`].
    pub iterations: u32,
}

impl<'a> ServerFirst<'a> {
    /// Reads a server's first message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        bounded(message, SERVER_MESSAGE_MAX)?;
        if message.starts_with(b"m=") {
            return Err(Malformed("the server requires an unknown SCRAM extension"));
        }
        let mut attributes = Attributes(message);
        let nonce = attributes.expect(b'r', "nonce expected")?;
        printable(nonce)?;
        let salt = attributes.expect(b's', "salt expected")?;
        let count = attributes.expect(b'i', "iteration count expected")?;
        attributes.skip_extensions()?;
        Ok(Self {
            nonce,
            salt: self::salt(salt).ok_or(Malformed("salt out of bounds or not base64"))?,
            iterations: iterations(count).ok_or(Malformed("iteration count out of bounds"))?,
        })
    }
}

/// The last message of a client, e.g. `c=biws,r=fyko...,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientFinal<'a> {
    /// The GS2 header again, followed by the binding if there is one, in base64.
    pub binding: &'a [u8],
    /// Both halves of the nonce.
    pub nonce: &'a [u8],
    /// ClientKey XOR ClientSignature.
    pub proof: ScramKey,
    /// Everything before `,p=`: part of the signed text.
    pub without_proof: &'a [u8],
}

impl<'a> ClientFinal<'a> {
    /// Reads a client's last message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        bounded(message, CLIENT_MESSAGE_MAX)?;
        let mut attributes = Attributes(message);
        let binding = attributes.expect(b'c', "channel binding expected")?;
        let nonce = attributes.expect(b'r', "nonce expected")?;
        loop {
            let before = message.len() - attributes.0.len();
            let (name, value) = attributes.next()?.ok_or(Malformed("proof expected"))?;
            if name != b'p' {
                continue;
            }
            if !attributes.0.is_empty() {
                return Err(Malformed("garbage after the proof"));
            }
            let proof = key(value).ok_or(Malformed("the proof is not 32 bytes of base64"))?;
            // `before` is the position right after the comma of `,p=`.
            let without_proof = &message[..before - 1];
            return Ok(Self {
                binding,
                nonce,
                proof,
                without_proof,
            });
        }
    }
}

/// The last message of the server side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerFinal {
    /// `v=`: the server knows the secret, if this is the right signature.
    Signature(ScramKey),
    /// `e=`: the server refuses. (PostgreSQL sends an ErrorResponse instead.)
    Error,
}

impl ServerFinal {
    /// Reads a server's last message.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        bounded(message, SERVER_MESSAGE_MAX)?;
        let mut attributes = Attributes(message);
        let first = attributes.next()?.ok_or(Malformed("empty message"))?;
        attributes.skip_extensions()?;
        match first {
            (b'v', value) => key(value)
                .map(Self::Signature)
                .ok_or(Malformed("the signature is not 32 bytes of base64")),
            (b'e', _) => Ok(Self::Error),
            _ => Err(Malformed("signature expected")),
        }
    }
}

/// Takes `x=value` pairs, separated by commas, off the front of a message.
struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, Malformed> {
        let (name, rest) = match self.0 {
            [] => return Ok(None),
            [name, b'=', rest @ ..] if name.is_ascii_alphabetic() => (*name, rest),
            _ => return Err(Malformed("attribute expected")),
        };
        let value = match rest.iter().position(|&b| b == b',') {
            None => {
                self.0 = &[];
                rest
            }
            // A comma separates two attributes, so an attribute must follow.
            Some(end) if end + 1 == rest.len() => return Err(Malformed("attribute expected")),
            Some(end) => {
                self.0 = &rest[end + 1..];
                &rest[..end]
            }
        };
        Ok(Some((name, value)))
    }

    fn expect(&mut self, name: u8, missing: &'static str) -> Result<&'a [u8], Malformed> {
        match self.next()? {
            Some((found, value)) if found == name => Ok(value),
            _ => Err(Malformed(missing)),
        }
    }

    /// Unknown extensions are ignored (RFC 5802, section 5.1), but must be well formed.
    fn skip_extensions(&mut self) -> Result<(), Malformed> {
        while self.next()?.is_some() {}
        Ok(())
    }
}

/// An error if a message is longer than the limit, or has a zero byte.
fn bounded(message: &[u8], max: usize) -> Result<(), Malformed> {
    if message.len() > max {
        return Err(Malformed("message too long"));
    }
    if message.contains(&0) {
        return Err(Malformed("zero byte in message"));
    }
    Ok(())
}

/// A nonce has one or more printable ASCII characters without a comma. (PostgreSQL also accepts an
/// empty nonce.)
fn printable(nonce: &[u8]) -> Result<(), Malformed> {
    if nonce.is_empty() || !nonce.iter().all(|b| matches!(b, 0x21..=0x7e)) {
        return Err(Malformed("the nonce is empty or not printable"));
    }
    Ok(())
}

/// Reads an iteration count: decimal digits, within the bounds of [`ITERATIONS_MAX`].
pub(super) fn iterations(text: &[u8]) -> Option<u32> {
    let digits = str::from_utf8(text).ok()?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits
        .parse()
        .ok()
        .filter(|count| (1..=ITERATIONS_MAX).contains(count))
}

/// Reads a salt in base64.
pub(super) fn salt(text: &[u8]) -> Option<Box<[u8]>> {
    if text.len() > SALT_MAX.div_ceil(3) * 4 {
        return None;
    }
    let salt = STANDARD.decode(text).ok()?;
    (1..=SALT_MAX).contains(&salt.len()).then(|| salt.into())
}

/// Reads 32 bytes in base64.
pub(super) fn key(text: &[u8]) -> Option<ScramKey> {
    // 44 characters are 31 to 33 bytes; the decoder insists on room for 33.
    let mut room = [0; 33];
    if text.len() != 44 || STANDARD.decode_slice(text, &mut room).ok()? != 32 {
        return None;
    }
    room[..32].try_into().ok()
}

/// The `c=` attribute of a client's last message: the GS2 header and the channel's binding.
pub(super) fn binding_attribute(gs2_header: &[u8], binding: &[u8]) -> Vec<u8> {
    let mut attribute = Vec::new();
    push_base64(&mut attribute, &[gs2_header, binding].concat());
    attribute
}

/// Appends base64.
pub(super) fn push_base64(text: &mut Vec<u8>, bytes: &[u8]) {
    let start = text.len();
    text.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The room has exactly the right size, so this can't fail.
    let written = STANDARD
        .encode_slice(bytes, &mut text[start..])
        .unwrap_or(0);
    text.truncate(start + written);
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> ScramKey {
    Sha256::digest(bytes).into()
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// HMAC-SHA-256 of all parts, one after the other.
pub fn hmac(key: &[u8], parts: &[&[u8]]) -> ScramKey {
    let mut mac = keyed(key);
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// `Hi(password, salt, iterations)` of RFC 5802, which is PBKDF2-HMAC-SHA-256. 4096 iterations take
/// about a millisecond, too long for a worker thread. The password must be
/// [prepared](super::saslprep::prepare).
pub fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> ScramKey {
    let mac = keyed(password);
    let mut first = mac.clone();
    first.update(salt);
    first.update(&1u32.to_be_bytes());
    let mut round = first.finalize().into_bytes();
    let mut result: ScramKey = round.into();
    for _ in 1..iterations {
        let mut next = mac.clone();
        next.update(&round);
        round = next.finalize().into_bytes();
        result = xor(&result, &round.into());
    }
    result
}

/// The ClientKey of a salted password.
pub fn client_key(salted: &ScramKey) -> ScramKey {
    hmac(salted, &[b"Client Key"])
}

/// The ServerKey of a salted password.
pub fn server_key(salted: &ScramKey) -> ScramKey {
    hmac(salted, &[b"Server Key"])
}

/// Combines a proof and a signature into a key, or a key and a signature into a proof.
pub fn xor(a: &ScramKey, b: &ScramKey) -> ScramKey {
    std::array::from_fn(|i| a[i] ^ b[i])
}

#[cfg(test)]
#[path = "scram_tests.rs"]
mod tests;
