//! LDAP's messages: what we ask, and what is answered (RFC 4511), in the Basic Encoding Rules.

use super::{Scope, filter};

/// The longest answer accepted, in bytes: an entry without attributes takes less than a kilobyte.
const MESSAGE_MAX: usize = 1 << 20;

/// `success`
pub const SUCCESS: u32 = 0;
/// `saslBindInProgress` and everything else are failures, but for this one of a search: there is
/// more elsewhere, or there was more than asked for.
const SIZE_LIMIT_EXCEEDED: u32 = 4;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const SEQUENCE: u8 = 0x30;
const BIND: u8 = 0x60;
const BIND_DONE: u8 = 0x61;
const UNBIND: u8 = 0x42;
const SEARCH: u8 = 0x63;
const SEARCH_ENTRY: u8 = 0x64;
const SEARCH_DONE: u8 = 0x65;
const SEARCH_REFERENCE: u8 = 0x73;
const EXTENDED: u8 = 0x77;
const EXTENDED_DONE: u8 = 0x78;

/// The name of StartTLS among the extended operations (section 4.14).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";
/// Asks for no attribute (section 4.5.1.8).
const NO_ATTRIBUTES: &[u8] = b"1.1";

/// Appends a value with its tag and length.
pub(super) fn put(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    let length = body.len();
    match length {
        0..=0x7f => out.push(length as u8),
        _ => {
            let bytes = (length as u64).to_be_bytes();
            let skipped = bytes.iter().take_while(|&&byte| byte == 0).count();
            out.push(0x80 | (bytes.len() - skipped) as u8);
            out.extend_from_slice(&bytes[skipped..]);
        }
    }
    out.extend_from_slice(body);
}

/// Appends an OCTET STRING.
pub(super) fn octets(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, OCTETS, bytes);
}

fn message(number: u8, tag: u8, body: &[u8]) -> Vec<u8> {
    let (mut inner, mut out) = (Vec::new(), Vec::new());
    put(&mut inner, INTEGER, &[number]);
    put(&mut inner, tag, body);
    put(&mut out, SEQUENCE, &inner);
    out
}

/// A simple bind. Numbers of messages go up to 127.
pub fn bind(number: u8, name: &str, password: &str) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, INTEGER, &[3]);
    octets(&mut body, name.as_bytes());
    put(&mut body, 0x80, password.as_bytes());
    message(number, BIND, &body)
}

/// A search for the names of at most two entries: more than one is one too many.
///
/// # Errors
/// Where the filter is none.
pub fn search(number: u8, base: &str, scope: Scope, filter: &str) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    octets(&mut body, base.as_bytes());
    put(&mut body, ENUMERATED, &[scope as u8]);
    // Aliases are not followed.
    put(&mut body, ENUMERATED, &[0]);
    put(&mut body, INTEGER, &[2]);
    // No limit of time: ours holds.
    put(&mut body, INTEGER, &[0]);
    // Values, not only types.
    put(&mut body, BOOLEAN, &[0]);
    body.extend(filter::encode(filter)?);
    let mut attributes = Vec::new();
    octets(&mut attributes, NO_ATTRIBUTES);
    put(&mut body, SEQUENCE, &attributes);
    Ok(message(number, SEARCH, &body))
}

/// StartTLS.
pub fn start_tls(number: u8) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, 0x80, START_TLS);
    message(number, EXTENDED, &body)
}

/// Goodbye; nothing answers.
pub fn unbind(number: u8) -> Vec<u8> {
    message(number, UNBIND, b"")
}

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// 0 is success.
    pub code: u32,
    /// The server's own words, or none.
    pub text: String,
}

impl Outcome {
    /// It succeeded.
    pub fn is_success(&self) -> bool {
        self.code == SUCCESS
    }

    /// More entries fit than were asked for.
    pub fn is_cut_off(&self) -> bool {
        self.code == SIZE_LIMIT_EXCEEDED
    }
}

/// What the code means, then what the server says of it.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match meaning(self.code) {
            Some(meaning) => f.write_str(meaning)?,
            None => write!(f, "result code {}", self.code)?,
        }
        if !self.text.is_empty() {
            write!(f, " ({})", self.text)?;
        }
        Ok(())
    }
}

/// The result codes that a bind or a search can meet (RFC 4511, appendix A), in words.
fn meaning(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "Success",
        1 => "Operations error",
        2 => "Protocol error",
        3 => "Time limit exceeded",
        4 => "Size limit exceeded",
        7 => "Authentication method not supported",
        8 => "Strong(er) authentication required",
        10 => "Referral",
        11 => "Administrative limit exceeded",
        13 => "Confidentiality required",
        18 => "Inappropriate matching",
        32 => "No such object",
        34 => "Invalid DN syntax",
        48 => "Inappropriate authentication",
        49 => "Invalid credentials",
        50 => "Insufficient access",
        51 => "Server is busy",
        52 => "Server is unavailable",
        53 => "Server is unwilling to perform",
        80 => "Internal (implementation specific) error",
        _ => return None,
    })
}

/// One message of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A bind is over.
    Bound(Outcome),
    /// The name of an entry that was found.
    Entry(String),
    /// There may be more on another server, which is not asked.
    Reference,
    /// A search is over.
    Searched(Outcome),
    /// An extended operation is over, or the server says something unasked.
    Extended(Outcome),
}

/// Bytes that are no LDAP, or not what could be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Reads a message off the front: the number of what it answers, what it says, and how many bytes
/// it took. `None`: there is more to come.
///
/// # Errors
/// It is no such message.
pub fn read(bytes: &[u8]) -> Result<Option<(u32, Reply, usize)>, Malformed> {
    if bytes.first().is_some_and(|&tag| tag != SEQUENCE) {
        return Err(Malformed);
    }
    let Some((length, start)) = length(bytes)? else {
        return Ok(None);
    };
    let Some(body) = bytes.get(start..start + length) else {
        return Ok(None);
    };
    let mut body = Values(body);
    let number = body.integer(INTEGER)?;
    let (tag, operation) = body.next()?;
    let mut operation = Values(operation);
    let reply = match tag {
        BIND_DONE => Reply::Bound(operation.outcome()?),
        SEARCH_ENTRY => Reply::Entry(operation.text(OCTETS)?),
        SEARCH_REFERENCE => Reply::Reference,
        SEARCH_DONE => Reply::Searched(operation.outcome()?),
        EXTENDED_DONE => Reply::Extended(operation.outcome()?),
        _ => return Err(Malformed),
    };
    Ok(Some((number, reply, start + length)))
}

/// The length of the value at the front, and where it starts.
fn length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let Some(&first) = bytes.get(1) else {
        return Ok(None);
    };
    let (length, start) = match first {
        0..=0x7f => (usize::from(first), 2),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let Some(digits) = bytes.get(2..2 + count) else {
                return Ok(None);
            };
            let join = |sum: usize, &digit: &u8| sum << 8 | usize::from(digit);
            (digits.iter().fold(0, join), 2 + count)
        }
        _ => return Err(Malformed),
    };
    match length {
        0..=MESSAGE_MAX => Ok(Some((length, start))),
        _ => Err(Malformed),
    }
}

/// Values, one behind the other.
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    fn next(&mut self) -> Result<(u8, &'a [u8]), Malformed> {
        let &tag = self.0.first().ok_or(Malformed)?;
        let (length, start) = length(self.0)?.ok_or(Malformed)?;
        let value = self.0.get(start..start + length).ok_or(Malformed)?;
        self.0 = &self.0[start + length..];
        Ok((tag, value))
    }

    fn of(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        match self.next()? {
            (found, value) if found == tag => Ok(value),
            _ => Err(Malformed),
        }
    }

    /// One that is not negative and fits.
    fn integer(&mut self, tag: u8) -> Result<u32, Malformed> {
        let digits = self.of(tag)?;
        match digits {
            [] | [0x80..=0xff, ..] => Err(Malformed),
            [0, rest @ ..] | rest if rest.len() <= 4 => Ok(rest
                .iter()
                .fold(0, |sum, &digit| sum << 8 | u32::from(digit))),
            _ => Err(Malformed),
        }
    }

    fn text(&mut self, tag: u8) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.of(tag)?).map_err(|_| Malformed)?;
        Ok(text.to_owned())
    }

    /// An LDAPResult; what may follow it is of no interest.
    fn outcome(&mut self) -> Result<Outcome, Malformed> {
        let code = self.integer(ENUMERATED)?;
        let _matched = self.of(OCTETS)?;
        let text = String::from_utf8_lossy(self.of(OCTETS)?);
        // Some servers end it with a zero byte.
        let text = text.trim_end_matches('\0').trim().to_owned();
        Ok(Outcome { code, text })
    }
}
