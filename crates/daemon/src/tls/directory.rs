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
            if why.contains(library::UNFIT_TO_SIGN) {
                UNFIT.into()
            } else {
                why
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

#[cfg(test)]
mod tests {
    use openssl::pkey::{PKey, Private};

    use super::super::samples::{Folder, certificate, elliptic};
    use super::*;

    /// The client's side of a handshake with a directory that shows a certificate.
    fn meet(
        directories: &DirectoryTls,
        host: &str,
        (key, own): &(PKey<Private>, X509),
    ) -> Result<(), String> {
        let mut server = SslContext::builder(SslMethod::tls_server()).unwrap();
        server.set_private_key(key).unwrap();
        server.set_certificate(own).unwrap();
        let ssl = Ssl::new(&server.build()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let (near, far) = tokio::io::duplex(16 << 10);
            let mut server = SslStream::new(ssl, far).unwrap();
            let (ours, _) = tokio::join!(
                directories.connect(host, near),
                Pin::new(&mut server).accept()
            );
            ours.map(drop)
        })
    }

    #[test]
    fn authority_and_name_are_checked() {
        let key = elliptic();
        let own = certificate(&key, 3, &["ldap.example", "*.dc.example", "127.0.0.1"]);
        let nameless = (key.clone(), certificate(&key, 3, &[]));
        let folder = Folder::new("directory");
        let pem = [own.to_pem().unwrap(), nameless.1.to_pem().unwrap()].concat();
        let file = folder.write("ca", &pem);
        let trusting = DirectoryTls::trusting(std::slice::from_ref(&file)).unwrap();
        let directory = (key, own);
        for host in ["ldap.example", "LDAP.example", "a.dc.example", "127.0.0.1"] {
            assert_eq!(meet(&trusting, host, &directory), Ok(()), "{host}");
        }
        // `localhost` is the common name.
        for host in [
            "example",
            "dc.example",
            "a.b.dc.example",
            "127.0.0.2",
            "localhost",
        ] {
            let why = meet(&trusting, host, &directory).unwrap_err();
            assert!(why.contains("not present in server certificate"), "{why}");
        }
        assert!(meet(&trusting, "localhost", &nameless).is_err());
        let other = elliptic();
        let stranger = (other.clone(), certificate(&other, 3, &["ldap.example"]));
        let why = meet(&trusting, "ldap.example", &stranger).unwrap_err();
        assert!(why.starts_with("certificate verify failed: "), "{why}");
        let credulous = DirectoryTls::credulous().unwrap();
        assert_eq!(meet(&credulous, "x", &stranger), Ok(()));
        assert!(DirectoryTls::trusting(&[folder.write("none", b"")]).is_err());
    }
}
