//! Bytes to and from a socket, with or without TLS. Only the handshake blocks.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use openssl::ssl::{ErrorCode, SslConnector, SslMethod, SslStream, SslVerifyMode};
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::url::Url;

/// An SSLRequest.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// A connected socket.
pub enum Transport {
    /// In clear text.
    Clear(OwnedFd),
    /// Through TLS.
    Tls(Box<SslStream<TcpStream>>),
}

/// The result of a non-blocking operation.
pub enum Attempt {
    /// This many bytes were sent or received; 0 at the end of the stream.
    Done(usize),
    /// Wait for the socket.
    Wait(PollFlags),
}

impl Transport {
    /// Connects to `url`. The handshake may take as long as `limit`.
    pub fn open(url: &Url, limit: Duration) -> io::Result<Transport> {
        if url.host.starts_with('/') {
            let path = format!("{}/.s.PGSQL.{}", url.host, url.port);
            return Ok(Transport::Clear(UnixStream::connect(path)?.into()));
        }
        let socket = TcpStream::connect((url.host.as_str(), url.port))?;
        socket.set_nodelay(true)?;
        if url.tls {
            secure(url, socket, limit)
        } else {
            Ok(Transport::Clear(socket.into()))
        }
    }

    /// True if TLS has decrypted bytes that poll does not see.
    pub fn has_read_ahead(&self) -> bool {
        match self {
            Transport::Clear(_) => false,
            Transport::Tls(stream) => stream.ssl().pending() > 0,
        }
    }

    /// Receives available bytes.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<Attempt> {
        match self {
            Transport::Clear(socket) => attempt(
                recv(socket, into, RecvFlags::DONTWAIT).map(|(count, _)| count),
                PollFlags::IN,
            ),
            Transport::Tls(stream) => {
                let result = stream.ssl_read(into);
                secure_attempt(result)
            }
        }
    }

    /// Sends as many bytes as fit.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<Attempt> {
        match self {
            Transport::Clear(socket) => attempt(
                send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
                PollFlags::OUT,
            ),
            Transport::Tls(stream) => {
                let result = stream.ssl_write(bytes);
                secure_attempt(result)
            }
        }
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transport::Clear(socket) => socket.as_fd(),
            Transport::Tls(stream) => stream.get_ref().as_fd(),
        }
    }
}

/// Asks for TLS and does the handshake.
fn secure(url: &Url, mut socket: TcpStream, limit: Duration) -> io::Result<Transport> {
    use std::io::{Read, Write};
    socket.set_read_timeout(Some(limit))?;
    socket.write_all(&SSL_REQUEST)?;
    let mut answer = [0];
    socket.read_exact(&mut answer)?;
    if answer != *b"S" {
        return Err(io::Error::other("no TLS is to be had"));
    }
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_verify(SslVerifyMode::NONE);
    let mut configuration = connector.build().configure()?;
    configuration.set_verify_hostname(false);
    let stream = configuration
        .connect(&url.host, socket)
        .map_err(|error| io::Error::other(error.to_string()))?;
    stream.get_ref().set_nonblocking(true)?;
    Ok(Transport::Tls(Box::new(stream)))
}

fn attempt(result: rustix::io::Result<usize>, wanted: PollFlags) -> io::Result<Attempt> {
    match result {
        Ok(count) => Ok(Attempt::Done(count)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Attempt::Wait(wanted)),
        Err(error) => Err(error.into()),
    }
}

fn secure_attempt(result: Result<usize, openssl::ssl::Error>) -> io::Result<Attempt> {
    match result {
        Ok(count) => Ok(Attempt::Done(count)),
        Err(error) => match error.code() {
            ErrorCode::WANT_READ => Ok(Attempt::Wait(PollFlags::IN)),
            ErrorCode::WANT_WRITE => Ok(Attempt::Wait(PollFlags::OUT)),
            ErrorCode::ZERO_RETURN => Ok(Attempt::Done(0)),
            _ => Err(error
                .into_io_error()
                .unwrap_or_else(|error| io::Error::other(error.to_string()))),
        },
    }
}
