//! One client's PostgreSQL: plain bytes in, fixed answers out.

use howdah_auth::scram_checker::{Against, ScramChecker};
use howdah_auth::{LoginStep, Verifier};
use howdah_bench::session::message;

/// Request codes in place of a protocol version.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
/// Protocol 3.
const VERSION: u32 = 196_608;

/// The next step, after the answer is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing.
    More,
    /// The client begins TLS.
    Tls,
    /// The client has sent Terminate or an unknown message.
    Close,
}

/// The answers to `pgbench -S`, one for each kind of message.
pub struct Answers {
    query: Vec<u8>,
    describe: Vec<u8>,
    execute: Vec<u8>,
    greeting: Vec<u8>,
}

impl Answers {
    /// Answers with the same lengths as PostgreSQL's.
    pub fn new() -> Answers {
        let column = b"\0\x01abalance\0\0\0\x40\x04\0\x03\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
        let describe = message(b'T', column);
        let row = message(b'D', b"\0\x01\0\0\0\x010");
        let execute = [row, message(b'C', b"SELECT 1\0")].concat();
        let query = [&describe[..], &execute, &message(b'Z', b"I")].concat();
        let parameters = [
            ("server_version", "15.0"),
            ("client_encoding", "UTF8"),
            ("standard_conforming_strings", "on"),
        ];
        let mut greeting = message(b'R', &0u32.to_be_bytes());
        for (name, value) in parameters {
            greeting.extend(message(b'S', format!("{name}\0{value}\0").as_bytes()));
        }
        greeting.extend(message(b'K', &[0; 8]));
        greeting.extend(message(b'Z', b"I"));
        Answers {
            query,
            describe,
            execute,
            greeting,
        }
    }
}

enum Stage {
    Startup,
    Login(Box<ScramChecker>),
    Open,
}

/// The conversation with one client.
pub struct Talk {
    stage: Stage,
    /// An incomplete message.
    piece: Vec<u8>,
}

impl Talk {
    /// A conversation before the client's first message.
    pub fn new() -> Talk {
        Talk {
            stage: Stage::Startup,
            piece: Vec::new(),
        }
    }

    /// Takes received bytes, and appends the answers.
    pub fn hear(
        &mut self,
        bytes: &[u8],
        answers: &Answers,
        secret: &Verifier,
        out: &mut Vec<u8>,
    ) -> Next {
        let mut whole = std::mem::take(&mut self.piece);
        let mut rest = if whole.is_empty() {
            bytes
        } else {
            whole.extend_from_slice(bytes);
            &whole[..]
        };
        loop {
            let head = if matches!(self.stage, Stage::Startup) {
                0
            } else {
                1
            };
            let length = rest.get(head..head + 4).and_then(<[u8]>::first_chunk);
            let end = length.map(|length| head + u32::from_be_bytes(*length) as usize);
            match end {
                Some(end) if end <= rest.len() && end >= head + 4 => {
                    let (first, behind) = rest.split_at(end);
                    rest = behind;
                    match self.one(first[0], &first[head + 4..], answers, secret, out) {
                        Next::More => {}
                        next => return next,
                    }
                }
                _ => break,
            }
        }
        self.piece = rest.to_vec();
        Next::More
    }

    fn one(
        &mut self,
        tag: u8,
        body: &[u8],
        answers: &Answers,
        secret: &Verifier,
        out: &mut Vec<u8>,
    ) -> Next {
        match &mut self.stage {
            Stage::Startup => return self.start(body, secret, out),
            Stage::Login(exchange) => {
                // The client's first SCRAM message follows the mechanism and a length.
                let first = body.iter().position(|byte| *byte == 0);
                let message = match first {
                    Some(end) if body.starts_with(b"SCRAM-SHA-256\0") => &body[end + 5..],
                    _ => body,
                };
                match exchange.answer(message) {
                    LoginStep::Reply(reply) => out.extend(authentication(11, &reply)),
                    LoginStep::Done(proven) => {
                        out.extend(authentication(12, &proven.server_final));
                        out.extend_from_slice(&answers.greeting);
                        self.stage = Stage::Open;
                    }
                    _ => return Next::Close,
                }
            }
            Stage::Open => match tag {
                b'Q' => out.extend_from_slice(&answers.query),
                b'P' => out.extend_from_slice(b"1\0\0\0\x04"),
                b'B' => out.extend_from_slice(b"2\0\0\0\x04"),
                b'D' => out.extend_from_slice(&answers.describe),
                b'E' => out.extend_from_slice(&answers.execute),
                b'S' => out.extend_from_slice(b"Z\0\0\0\x05I"),
                _ => return Next::Close,
            },
        }
        Next::More
    }

    fn start(&mut self, body: &[u8], secret: &Verifier, out: &mut Vec<u8>) -> Next {
        match body.first_chunk().map(|code| u32::from_be_bytes(*code)) {
            Some(SSL_REQUEST) => {
                out.push(b'S');
                Next::Tls
            }
            Some(GSS_REQUEST) => {
                out.push(b'N');
                Next::More
            }
            Some(VERSION) => {
                let mut nonce = [0; 18];
                if openssl::rand::rand_bytes(&mut nonce).is_err() {
                    return Next::Close;
                }
                let against = Against::Verifier(secret.clone());
                self.stage = Stage::Login(Box::new(ScramChecker::new(against, &nonce)));
                out.extend(authentication(10, b"SCRAM-SHA-256\0\0"));
                Next::More
            }
            _ => Next::Close,
        }
    }
}

fn authentication(kind: u32, body: &[u8]) -> Vec<u8> {
    message(b'R', &[&kind.to_be_bytes()[..], body].concat())
}

#[cfg(test)]
mod tests {
    use howdah_bench::scram::{Credentials, Exchange};

    use super::*;

    #[test]
    fn a_client_logs_in_by_scram_and_is_answered() {
        let mut credentials = Credentials::new("secret");
        let secret = Verifier::parse(&credentials.secret(b"some salt, 16 by", 64)).unwrap();
        let (answers, mut talk, mut out) = (Answers::new(), Talk::new(), Vec::new());
        let mut hear = |bytes: &[u8]| {
            out.clear();
            let next = talk.hear(bytes, &answers, &secret, &mut out);
            (next, out.clone())
        };
        let request = [8u32.to_be_bytes(), SSL_REQUEST.to_be_bytes()].concat();
        assert_eq!(hear(&request), (Next::Tls, b"S".to_vec()));
        let startup = [9u32.to_be_bytes(), VERSION.to_be_bytes()].concat();
        assert_eq!(hear(&startup), (Next::More, Vec::new()));
        let (_, asked) = hear(b"\0");
        assert_eq!(asked, authentication(10, b"SCRAM-SHA-256\0\0"));
        let (mut exchange, first) = Exchange::start().unwrap();
        let mut body = b"SCRAM-SHA-256\0".to_vec();
        body.extend((first.len() as u32).to_be_bytes());
        body.extend(first.as_bytes());
        let (_, challenge) = hear(&message(b'p', &body));
        let challenge = String::from_utf8(challenge[9..].to_vec()).unwrap();
        let last = exchange.answer(&mut credentials, &challenge).unwrap();
        let (_, admitted) = hear(&message(b'p', last.as_bytes()));
        assert!(admitted.ends_with(b"Z\0\0\0\x05I"));
        let (_, row) = hear(&message(b'Q', b"select 1\0"));
        assert_eq!(row, answers.query);
        assert_eq!(hear(&message(b'X', b"")).0, Next::Close);
    }
}
