//! TLS as a client, without verification, with or without resumed sessions.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslContext, SslMethod, SslSession, SslSessionCacheMode, SslStream, SslVerifyMode,
};

pub use openssl::ssl::SslVersion;

/// The TLS settings of some clients.
pub struct Connector {
    context: SslContext,
    /// The newest session, for clients that resume.
    session: Arc<Mutex<Option<SslSession>>>,
    resumes: bool,
}

/// The group of all key exchanges, so that all poolers use the same; and the group of certificates,
/// which TLS 1.2 takes from the same list.
const GROUPS: &str = "X25519:P-256";

/// PostgreSQL's SSLRequest.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

impl Connector {
    /// Settings for only this version of TLS.
    ///
    /// # Errors
    /// The library does not support the version.
    pub fn new(version: SslVersion, resumes: bool) -> io::Result<Connector> {
        let session: Arc<Mutex<Option<SslSession>>> = Arc::default();
        let kept = session.clone();
        let build = || -> Result<SslContext, ErrorStack> {
            let mut builder = SslContext::builder(SslMethod::tls_client())?;
            builder.set_verify(SslVerifyMode::NONE);
            builder.set_min_proto_version(Some(version))?;
            builder.set_max_proto_version(Some(version))?;
            builder.set_groups_list(GROUPS)?;
            let client = SslSessionCacheMode::CLIENT;
            builder.set_session_cache_mode(client | SslSessionCacheMode::NO_INTERNAL);
            builder.set_new_session_callback(move |_, session| {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
            });
            Ok(builder.build())
        };
        let context = build()?;
        Ok(Connector {
            context,
            session,
            resumes,
        })
    }

    /// A session that has not begun.
    ///
    /// # Errors
    /// The library has no memory left.
    pub fn session(&self) -> io::Result<Ssl> {
        let mut ssl = Ssl::new(&self.context)?;
        let session = self.session.lock();
        let session = session.unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = session.as_ref().filter(|_| self.resumes) {
            resume(&mut ssl, session)?;
        }
        Ok(ssl)
    }

    /// Asks for TLS on a new connection, and does the handshake.
    ///
    /// # Errors
    /// The peer has no TLS, or the handshake fails.
    pub fn secure(&self, mut stream: TcpStream) -> io::Result<SslStream<TcpStream>> {
        request(&mut stream)?;
        let mut stream = SslStream::new(self.session()?, stream)?;
        stream.connect().map_err(io::Error::other)?;
        Ok(stream)
    }
}

/// Asks for TLS.
///
/// # Errors
/// The peer has no TLS.
pub fn request(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&SSL_REQUEST)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    match answer {
        [b'S'] => Ok(()),
        _ => Err(io::Error::other("the peer has no TLS")),
    }
}

/// Makes a new session resume an earlier one.
#[allow(unsafe_code)]
fn resume(ssl: &mut Ssl, session: &SslSession) -> Result<(), ErrorStack> {
    // SAFETY: both belong to one connector's context, which made `ssl` and received `session`.
    unsafe { ssl.set_session(session) }
}
