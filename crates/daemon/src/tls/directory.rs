//! TLS to directory servers, over a stream of tokio.

use std::pin::Pin;

use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslSessionCacheMode,
    SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use openssl::x509::verify::X509VerifyFlags;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_openssl::SslStream;

use super::session::{UNFIT, failure, is_name, stack};
use super::{facts, library};

/// The certificates that directories may show.
#[derive(Clone)]
pub struct DirectoryTls {
    context: SslContext,
    verifies: bool,
}

impl DirectoryTls {
    /// Accepts every certificate.
    ///
    /// # Errors
    /// There is no memory.
    pub fn credulous() -> Result<DirectoryTls, String> {
        let context = begin().map_err(|why| stack(&why))?.build();
        Ok(DirectoryTls {
            context,
            verifies: false,
        })
    }

    /// Accepts the certificates that are signed by these authorities, or are among them. Reads
    /// PEM files; what the library can't read in them is skipped.
    ///
    /// # Errors
    /// A file can't be read, or there is no certificate in any of them.
    pub fn trusting(files: &[String]) -> Result<DirectoryTls, String> {
        let mut builder = begin().map_err(|why| stack(&why))?;
        builder.set_verify(SslVerifyMode::PEER);
        let mut trusts = false;
        for file in files {
            let bytes = std::fs::read(file).map_err(|_| format!("cannot read {file}"))?;
            let text = String::from_utf8_lossy(&bytes);
            let pieces = text.split_inclusive("-----END CERTIFICATE-----");
            for authority in pieces.filter_map(|piece| X509::from_pem(piece.as_bytes()).ok()) {
                let store = builder.cert_store_mut();
                store.add_cert(authority).map_err(|why| stack(&why))?;
                trusts = true;
            }
        }
        if !trusts {
            let why = "no authority is trusted: name a file as TLS_CACERT in ldap.conf";
            return Err(why.into());
        }
        // An authority in the files need not be a root.
        let parameters = builder.verify_param_mut();
        let flags = parameters.set_flags(X509VerifyFlags::PARTIAL_CHAIN);
        flags.map_err(|why| stack(&why))?;
        Ok(DirectoryTls {
            context: builder.build(),
            verifies: true,
        })
    }

    /// Does a TLS handshake with a host. The host is a name or an address, which the certificate
    /// must have.
    ///
    /// # Errors
    /// The certificate is not trusted, or the other side speaks no TLS.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
    ) -> Result<SslStream<S>, String> {
        let prepare = || {
            let mut ssl = Ssl::new(&self.context)?;
            if is_name(host) {
                ssl.set_hostname(host)?;
            }
            SslStream::new(ssl, stream)
        };
        let mut stream = prepare().map_err(|why| stack(&why))?;
        let shaken = Pin::new(&mut stream).connect().await;
        shaken.map_err(|why| {
            let why = failure(stream.ssl(), &why);
            match why.contains(library::UNFIT_TO_SIGN) {
                true => UNFIT.into(),
                false => why,
            }
        })?;
        let named = || {
            facts::verified(stream.ssl(), None).is_some_and(|mut own| {
                // The subject's common name is no name of a host.
                own.common_name = None;
                own.is_for_host(host)
            })
        };
        if self.verifies && !named() {
            return Err(format!("name '{host}' not present in server certificate"));
        }
        Ok(stream)
    }
}

/// TLS 1.2 and 1.3, without resumption.
fn begin() -> Result<SslContextBuilder, ErrorStack> {
    let mut builder = SslContextBuilder::new(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    builder.set_options(SslOptions::NO_RENEGOTIATION | SslOptions::NO_TICKET);
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    builder.set_mode(SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    builder.set_verify(SslVerifyMode::NONE);
    library::accept_signatures(&mut builder)?;
    Ok(builder)
}
