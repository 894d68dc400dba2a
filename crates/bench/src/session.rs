//! A minimal blocking session with PostgreSQL or a pooler.

pub mod copy;
pub mod rows;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::ssl::SslStream;

use crate::scram::{Credentials, Exchange};
use crate::tls::Connector;

/// How long a peer may stay silent before a session gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection after login.
#[derive(Debug)]
pub struct Session {
    stream: Stream,
    parameters: Vec<(String, String)>,
    /// The buffer for message bodies. A large one is freed.
    body: Vec<u8>,
}

impl Session {
    /// Connects and logs in: trust, a clear-text password or SCRAM.
    ///
    /// # Errors
    /// The connection fails, or the peer refuses the login. The error has the peer's text.
    pub fn connect(
        address: SocketAddr,
        user: &str,
        database: &str,
        credentials: &mut Credentials,
    ) -> io::Result<Self> {
        let stream = Stream::Plain(connect(address)?);
        Self::begin(stream, user, database, credentials)
    }

    /// As [`Session::connect`], over TLS.
    ///
    /// # Errors
    /// As there, or the peer has no TLS.
    pub fn connect_securely(
        address: SocketAddr,
        user: &str,
        database: &str,
        credentials: &mut Credentials,
        connector: &Connector,
    ) -> io::Result<Self> {
        let stream = connector.secure(connect(address)?)?;
        Self::begin(Stream::Tls(stream), user, database, credentials)
    }

    fn begin(
        mut stream: Stream,
        user: &str,
        database: &str,
        credentials: &mut Credentials,
    ) -> io::Result<Self> {
        stream.write_all(&startup(user, database))?;
        let mut session = Self {
            stream,
            parameters: Vec::new(),
            body: Vec::new(),
        };
        session.log_in(credentials)?;
        Ok(session)
    }

    /// The TLS version and cipher, and whether an earlier session was resumed; none in clear text.
    pub fn tls(&self) -> Option<(String, bool)> {
        let Stream::Tls(stream) = &self.stream else {
            return None;
        };
        let ssl = stream.ssl();
        let cipher = ssl.current_cipher().map_or("", |cipher| cipher.name());
        Some((
            format!("{} {cipher}", ssl.version_str()),
            ssl.session_reused(),
        ))
    }

    fn log_in(&mut self, credentials: &mut Credentials) -> io::Result<()> {
        let (mut exchange, first) = Exchange::start()?;
        loop {
            let tag = self.read_message()?;
            match (tag, authentication_kind(&self.body)) {
                (b'R', Some(0)) | (b'K', _) => {}
                (b'R', Some(3)) => {
                    let password = [credentials.password().as_bytes(), b"\0"].concat();
                    self.stream.write_all(&message(b'p', &password))?;
                }
                (b'R', Some(10)) => {
                    let mut body = b"SCRAM-SHA-256\0".to_vec();
                    body.extend_from_slice(&(first.len() as u32).to_be_bytes());
                    body.extend_from_slice(first.as_bytes());
                    self.stream.write_all(&message(b'p', &body))?;
                }
                (b'R', Some(11)) => {
                    let theirs = String::from_utf8_lossy(&self.body[4..]).into_owned();
                    let last = exchange.answer(credentials, &theirs)?;
                    self.stream.write_all(&message(b'p', last.as_bytes()))?;
                }
                (b'R', Some(12)) => exchange.verify(&String::from_utf8_lossy(&self.body[4..]))?,
                (b'R', kind) => {
                    return Err(io::Error::other(format!(
                        "authentication {kind:?} is not built"
                    )));
                }
                (b'S', _) => {
                    let mut words = self.body.split(|byte| *byte == 0);
                    let mut word =
                        || String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
                    self.parameters.push((word(), word()));
                }
                (b'Z', _) => return Ok(()),
                _ => self.expect_no_error(tag)?,
            }
        }
    }

    /// Sends bytes unchanged.
    ///
    /// # Errors
    /// The connection fails.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads up to and including the next ReadyForQuery. Returns the number of data rows.
    ///
    /// # Errors
    /// The connection fails, or an ErrorResponse came.
    pub fn read_until_ready(&mut self) -> io::Result<usize> {
        let mut rows = 0;
        loop {
            match self.read_message()? {
                b'Z' => break,
                b'D' => rows += 1,
                tag => self.expect_no_error(tag)?,
            }
        }
        if self.body.capacity() > 4096 {
            self.body = Vec::new();
        }
        Ok(rows)
    }

    fn read_message(&mut self) -> io::Result<u8> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let Some(length) = length.checked_sub(4) else {
            return Err(io::Error::other("a message shorter than its own length"));
        };
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(header[0])
    }

    fn expect_no_error(&self, tag: u8) -> io::Result<()> {
        if tag != b'E' {
            return Ok(());
        }
        Err(io::Error::other(error_text(&self.body)))
    }

    /// The parameters reported at login, in order.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// Sends Terminate. The peer closes the connection.
    ///
    /// # Errors
    /// The connection fails.
    pub fn terminate(mut self) -> io::Result<()> {
        self.stream.write_all(&message(b'X', b""))
    }

    /// The bare connection, of which only whole messages were read. None over TLS.
    pub fn into_stream(self) -> Option<TcpStream> {
        match self.stream {
            Stream::Plain(stream) => Some(stream),
            Stream::Tls(_) => None,
        }
    }
}

/// The stream of a session.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(SslStream<TcpStream>),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A message with its length.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The text of an ErrorResponse.
fn error_text(body: &[u8]) -> String {
    let mut fields = body.split(|byte| *byte == 0);
    let text = fields.find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(text.unwrap_or(b"an error without a text")).into_owned()
}

/// A StartupMessage.
pub fn startup(user: &str, database: &str) -> Vec<u8> {
    let mut body = 196_608u32.to_be_bytes().to_vec();
    for word in [
        "user",
        user,
        "database",
        database,
        "application_name",
        "howdah-bench",
        "",
    ] {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
}

fn authentication_kind(body: &[u8]) -> Option<u32> {
    body.first_chunk().copied().map(u32::from_be_bytes)
}
