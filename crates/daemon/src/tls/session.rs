//! One connection's TLS, as a value: ciphertext goes in and plain bytes come out, and the reverse.
//!
//! A session owns no socket. Bytes that TLS itself sends, in a handshake or between records (alerts, key
//! updates), collect for [`TlsSession::take_output`].

use std::io::{ErrorKind, Read, Write};

use howdah_pooler::config::SslMode;
use howdah_pooler::tls::{AGAIN, TlsConnect, TlsFacts, TlsFiles};
use openssl::error::ErrorStack;
use openssl::ssl::{Error, ErrorCode, Ssl, SslRef, SslStream, SslVerifyMode, SslVersion};
use openssl::x509::X509VerifyResult;

use super::contexts::Elders;
use super::facts::{self, Shown, facts};
use super::library;
use super::{Contexts, TlsSession};

/// The most plain bytes in one record.
const RECORD: usize = 16 * 1024;
/// The most bytes that a record adds to its plain bytes (TLS 1.2 with CBC).
const OVERHEAD: usize = 128;

/// One connection's session with the linked library. See the module's comment.
pub struct LibrarySession {
    pub(super) stream: SslStream<Pipe>,
    stage: Stage,
}

enum Stage {
    /// The handshake is under way.
    Handshake(Role),
    Open,
    /// The handshake failed, or close_notify was sent: nothing more can be sent.
    Over,
}

/// The facts that decide whether a finished handshake is accepted.
enum Role {
    Server {
        direct: bool,
        /// Signing with Howdah's private key takes long.
        laborious: bool,
        /// The names in the verified certificate, if the certificate is not kept.
        shown: Option<Shown>,
    },
    Client {
        to: TlsConnect,
        elders: Option<Elders>,
    },
}

/// The result of a handshake's step.
#[derive(Debug)]
pub enum HandshakeStep {
    /// The handshake waits for more bytes.
    More,
    /// The handshake has succeeded.
    Done(Box<TlsFacts>),
    /// The handshake has failed; the reason.
    Failed(String),
}

/// The error for a certificate that TLS 1.3 does not take.
pub(super) const UNFIT: &str = "the server's certificate is not for digital signatures (keyUsage)";

/// The result of decrypting.
#[derive(PartialEq, Eq, Debug)]
pub enum Opened {
    /// More bytes are needed.
    More,
    /// The other side has sent close_notify.
    End,
    /// The bytes are not TLS, or were changed on their way; the reason.
    Failed(String),
}

/// The library's input and output.
#[derive(Default)]
pub(super) struct Pipe {
    input: Vec<u8>,
    /// How many bytes of the input were read.
    at: usize,
    output: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.input[self.at..];
        if rest.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl LibrarySession {
    /// The TLS server's side of a session. `direct`: the client sent no SSLRequest, and must offer
    /// the protocol `postgresql`.
    ///
    /// # Errors
    /// There is no certificate for clients, or no memory.
    pub fn accept(contexts: &Contexts, direct: bool) -> Result<LibrarySession, String> {
        let context = contexts.clients.as_ref().ok_or("TLS is switched off")?;
        let mut ssl = Ssl::new(context).map_err(|why| stack(&why))?;
        ssl.set_accept_state();
        let role = Role::Server {
            direct,
            laborious: contexts.laborious,
            shown: contexts.forgets.then(|| facts::look(&mut ssl)),
        };
        LibrarySession::new(ssl, role)
    }

    /// The TLS client's side of a session.
    ///
    /// # Errors
    /// TLS to servers is not set up, or there is no memory.
    pub fn connect(contexts: &Contexts, to: TlsConnect) -> Result<LibrarySession, String> {
        let context = match to.files == TlsFiles::default() {
            true => contexts.servers.as_ref().ok_or("TLS is switched off")?,
            // A reload may have changed them: the next server has the new ones.
            false => contexts
                .of_databases
                .get(&to.files)
                .ok_or("the TLS files of the database have changed")?,
        };
        if to.mode.is_verified() && !contexts.knows_authorities {
            return Err("no authorities are known to verify the server's certificate by".into());
        }
        let prepare = || -> Result<Ssl, ErrorStack> {
            let mut ssl = Ssl::new(context)?;
            ssl.set_connect_state();
            ssl.set_verify(if to.mode.is_verified() {
                SslVerifyMode::PEER
            } else {
                SslVerifyMode::NONE
            });
            if is_name(&to.host) {
                ssl.set_hostname(&to.host)?;
            }
            let elders = contexts.elders.as_ref();
            if elders.is_some_and(|elders| elders.has(&to.host)) {
                ssl.set_max_proto_version(Some(SslVersion::TLS1_2))?;
            }
            Ok(ssl)
        };
        let ssl = prepare().map_err(|why| stack(&why))?;
        let elders = contexts.elders.clone();
        LibrarySession::new(ssl, Role::Client { to, elders })
    }

    fn new(ssl: Ssl, role: Role) -> Result<LibrarySession, String> {
        let stream = SslStream::new(ssl, Pipe::default()).map_err(|why| stack(&why))?;
        let stage = Stage::Handshake(role);
        Ok(LibrarySession { stream, stage })
    }

    /// A session from the result of [`TlsSession::pack`].
    ///
    /// # Errors
    /// The bytes are damaged, or come from another library; the text says which.
    pub fn unpack(contexts: &Contexts, bytes: &[u8]) -> Result<LibrarySession, String> {
        let damaged = "what was packed of the session can't be read";
        let (name, rest) = part(bytes).ok_or(damaged)?;
        let (state, unread) = part(rest).ok_or(damaged)?;
        let (Some(ours), Some(context)) = (library::travels_by(), &contexts.travellers) else {
            return Err("TLS sessions don't travel by this library".into());
        };
        if name != ours.as_bytes() {
            let theirs = String::from_utf8_lossy(name);
            return Err(format!("the session was packed by {theirs}, not by {ours}"));
        }
        let ssl = library::from_bytes(state, context).map_err(|why| stack(&why))?;
        let pipe = Pipe {
            input: unread.to_vec(),
            ..Pipe::default()
        };
        let stream = SslStream::new(ssl, pipe).map_err(|why| stack(&why))?;
        let stage = Stage::Open;
        Ok(LibrarySession { stream, stage })
    }
}

impl TlsSession for LibrarySession {
    fn is_in_handshake(&self) -> bool {
        matches!(self.stage, Stage::Handshake(_))
    }

    fn is_laborious(&self) -> bool {
        let role = match &self.stage {
            Stage::Handshake(role) => role,
            _ => return false,
        };
        matches!(
            role,
            Role::Server {
                laborious: true,
                ..
            }
        )
    }

    fn unread(&self) -> usize {
        let pipe = self.stream.get_ref();
        pipe.input.len() - pipe.at
    }

    fn feed(&mut self, bytes: &[u8]) {
        if !matches!(self.stage, Stage::Over) {
            self.stream.get_mut().input.extend_from_slice(bytes);
        }
    }

    fn handshake(&mut self) -> HandshakeStep {
        let Stage::Handshake(role) = &self.stage else {
            return HandshakeStep::More;
        };
        let result = self.stream.do_handshake();
        let ssl = self.stream.ssl();
        let done = match result {
            Ok(()) => role.judge(ssl),
            Err(error) if error.code() == ErrorCode::WANT_READ => {
                self.stream.get_mut().forget_read();
                return HandshakeStep::More;
            }
            Err(error) => Err(role.learn(failure(ssl, &error))),
        };
        self.stage = match &done {
            Ok(_) => Stage::Open,
            Err(_) => Stage::Over,
        };
        match done {
            Ok(facts) => {
                library::shed(ssl);
                HandshakeStep::Done(facts)
            }
            Err(why) => HandshakeStep::Failed(why),
        }
    }

    fn open(&mut self, into: &mut Vec<u8>, len: &mut usize) -> Opened {
        if !matches!(self.stage, Stage::Open) {
            return Opened::More;
        }
        loop {
            if self.stream.get_ref().is_drained() && self.stream.ssl().pending() == 0 {
                self.stream.get_mut().forget_read();
                return Opened::More;
            }
            if into.len() < *len + RECORD {
                into.resize(*len + 2 * RECORD, 0);
            }
            match self.stream.ssl_read(&mut into[*len..]) {
                Ok(count) => *len += count,
                Err(error) if error.code() == ErrorCode::WANT_READ => {
                    self.stream.get_mut().forget_read();
                    return Opened::More;
                }
                Err(error) if error.code() == ErrorCode::ZERO_RETURN => {
                    // Nothing may follow close_notify.
                    self.stream.get_mut().drop_input();
                    return Opened::End;
                }
                Err(error) => {
                    let why = failure(self.stream.ssl(), &error);
                    self.stage = Stage::Over;
                    self.stream.get_mut().drop_input();
                    return Opened::Failed(why);
                }
            }
        }
    }

    fn seal(&mut self, plain: &[u8], mut into: Vec<u8>) -> Result<Vec<u8>, String> {
        if !matches!(self.stage, Stage::Open) {
            return Err("the TLS session is over".into());
        }
        into.reserve(plain.len() + (plain.len() / RECORD + 1) * OVERHEAD);
        let before = std::mem::replace(&mut self.stream.get_mut().output, into);
        debug_assert!(before.is_empty(), "what was said between records is first");
        let mut rest = plain;
        while !rest.is_empty() {
            match self.stream.ssl_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => {
                    self.stage = Stage::Over;
                    return Err(failure(self.stream.ssl(), &error));
                }
            }
        }
        Ok(std::mem::take(&mut self.stream.get_mut().output))
    }

    fn close(&mut self) {
        if matches!(self.stage, Stage::Open) {
            // The result does not matter: nothing is sent afterwards.
            let _ = self.stream.shutdown();
            self.stage = Stage::Over;
            self.stream.get_mut().drop_input();
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        let output = &mut self.stream.get_mut().output;
        (!output.is_empty()).then(|| std::mem::take(output))
    }
    fn pack(&mut self) -> Result<Vec<u8>, String> {
        let pipe = self.stream.get_ref();
        if !matches!(self.stage, Stage::Open) || !pipe.output.is_empty() {
            return Err("the TLS session is not at rest".into());
        }
        let name = library::travels_by().unwrap_or_default();
        let state = library::to_bytes(self.stream.ssl()).map_err(|why| stack(&why))?;
        self.stage = Stage::Over;
        let mut bytes = Vec::new();
        for part in [name.as_bytes(), &state] {
            bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        let pipe = self.stream.get_ref();
        bytes.extend_from_slice(&pipe.input[pipe.at..]);
        Ok(bytes)
    }
}

/// Reads a part with its length before it. Returns the part, and the bytes after it.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

impl Pipe {
    fn is_drained(&self) -> bool {
        self.at == self.input.len()
    }

    /// Frees the memory of an idle session.
    fn forget_read(&mut self) {
        if self.is_drained() {
            self.drop_input();
        } else if self.at > 0 {
            self.input.drain(..self.at);
            self.at = 0;
        }
    }

    fn drop_input(&mut self) {
        self.input = Vec::new();
        self.at = 0;
    }
}

impl Role {
    /// The text for a failed handshake. It is [`AGAIN`] if another try with this host may succeed.
    fn learn(&self, why: String) -> String {
        let unfit = why.contains(library::UNFIT_TO_SIGN);
        match self {
            Role::Client {
                to,
                elders: Some(elders),
            } if unfit && elders.remember(&to.host) => AGAIN.into(),
            Role::Client { .. } if unfit => UNFIT.into(),
            _ => why,
        }
    }

    /// The facts of a session after its handshake, or the reason why it is refused.
    fn judge(&self, ssl: &SslRef) -> Result<Box<TlsFacts>, String> {
        let shown = match self {
            Role::Server { shown, .. } => shown.as_ref(),
            Role::Client { .. } => None,
        };
        let sni = match self {
            Role::Server { direct: true, .. } if ssl.selected_alpn_protocol().is_none() => {
                let why = "received direct SSL connection request without ALPN protocol \
                           negotiation extension";
                return Err(why.into());
            }
            Role::Server { .. } => None,
            Role::Client { to, .. } if to.direct && ssl.selected_alpn_protocol().is_none() => {
                return Err(
                    "direct SSL connection was established without ALPN protocol \
                            negotiation extension"
                        .into(),
                );
            }
            Role::Client { to, .. } => Some(to.host.as_str()).filter(|host| is_name(host)),
        };
        let facts = Box::new(facts(ssl, sni, shown));
        if let Role::Client { to, .. } = self
            && to.mode == SslMode::VerifyFull
        {
            let named = facts
                .peer
                .as_ref()
                .is_some_and(|peer| peer.is_for_host(&to.host));
            if !named {
                let host = &to.host;
                return Err(format!("name '{host}' not present in server certificate"));
            }
        }
        Ok(facts)
    }
}

/// True if a host is a name, not an address. Only a name is sent as SNI, and checked as a name.
pub(super) fn is_name(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_err()
}

/// The reason why a call failed.
pub(super) fn failure(ssl: &SslRef, error: &Error) -> String {
    let verdict = ssl.verify_result();
    let text = match error.ssl_error() {
        Some(errors) => stack(errors),
        None => "connection broken off".to_string(),
    };
    // Without a certificate, AWS-LC also has a verification result, about the missing certificate.
    let judged = text.to_ascii_lowercase().replace('_', " ");
    match verdict {
        X509VerifyResult::OK => text,
        verdict if judged.contains("certificate verify failed") => {
            format!("certificate verify failed: {}", verdict.error_string())
        }
        _ => text,
    }
}

/// The library's error stack, in one line.
pub(super) fn stack(errors: &ErrorStack) -> String {
    let reasons: Vec<_> = errors
        .errors()
        .iter()
        .filter_map(|error| error.reason())
        .collect();
    if reasons.is_empty() {
        "the TLS library gives no reason".to_string()
    } else {
        reasons.join(", ")
    }
}
