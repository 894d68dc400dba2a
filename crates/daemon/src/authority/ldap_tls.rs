//! TLS to directories. OpenLDAP's `ldap.conf` says which certificates are trusted, as it does for
//! PgBouncer: `TLS_CACERT`, `TLS_CACERTDIR` and `TLS_REQCERT`, or the environment variables
//! `LDAPTLS_...` of the same names. Without these, Howdah trusts the system's certificates.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_daemon::tls::contexts::SYSTEM_BUNDLES;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ldap_connection::Stream;

/// How long the files' contents are used before they are read again.
const KEPT: Duration = Duration::from_secs(60);

/// The places of `ldap.conf`, unless `LDAPCONF` names another.
const FILES: [&str; 2] = ["/etc/ldap/ldap.conf", "/etc/openldap/ldap.conf"];

/// The keys that are used. In the environment their names begin with `LDAP`.
const KEYS: [&str; 5] = [
    "TLS_CACERT",
    "TLS_CACERTDIR",
    "TLS_REQCERT",
    "TLS_CRLCHECK",
    "TLS_CRLFILE",
];

/// The trusted certificates, as they were last read.
#[derive(Default)]
pub(super) struct Trust {
    known: Mutex<Option<(Instant, Arc<ClientConfig>)>>,
}

impl Trust {
    /// Does a TLS handshake with a server of this name.
    ///
    /// # Errors
    /// The server's certificate is not trusted, or the server speaks no TLS.
    pub(super) async fn connect(
        &self,
        host: &str,
        stream: Box<dyn Stream>,
    ) -> Result<TlsStream<Box<dyn Stream>>, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("\"{host}\" is no name a certificate can have"))?;
        let connector = TlsConnector::from(self.config()?);
        let stream = connector.connect(name, stream).await;
        stream.map_err(|why| format!("TLS: {why}"))
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, config)) = &*known
            && read.elapsed() < KEPT
        {
            return Ok(config.clone());
        }
        let config = Arc::new(Wanted::read().config()?);
        *known = Some((Instant::now(), config.clone()));
        Ok(config)
    }
}

/// The settings in `ldap.conf` and the environment.
#[derive(Default, Debug, PartialEq, Eq)]
struct Wanted {
    file: Option<String>,
    folder: Option<String>,
    /// `TLS_REQCERT`
    demand: Option<String>,
    /// `TLS_CRLCHECK`, or `TLS_CRLFILE`.
    revoked: Option<String>,
}

impl Wanted {
    fn read() -> Wanted {
        let named = std::env::var("LDAPCONF").ok();
        let files = FILES.map(str::to_owned).into_iter().chain(named);
        let mut wanted = Wanted::default();
        for file in files {
            wanted.add(&fs::read_to_string(file).unwrap_or_default());
        }
        for key in KEYS {
            if let Ok(value) = std::env::var(format!("LDAP{key}")) {
                wanted.assign(key, &value);
            }
        }
        wanted
    }

    /// Adds the lines of a file; later lines replace earlier ones.
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((key, value)) = line.trim().split_once(char::is_whitespace) {
                self.assign(key, value.trim());
            }
        }
    }

    fn assign(&mut self, key: &str, value: &str) {
        let field = match key.to_ascii_uppercase().as_str() {
            "TLS_CACERT" => &mut self.file,
            "TLS_CACERTDIR" => &mut self.folder,
            "TLS_REQCERT" => &mut self.demand,
            "TLS_CRLCHECK" | "TLS_CRLFILE" => &mut self.revoked,
            _ => return,
        };
        *field = Some(value.to_owned());
    }

    /// True if any certificate is accepted.
    fn demands_nothing(&self) -> bool {
        let demand = self.demand.as_deref().unwrap_or("");
        ["never", "allow"]
            .iter()
            .any(|word| word.eq_ignore_ascii_case(demand))
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|why| format!("TLS: {why}"))?;
        if self.demands_nothing() {
            let verifier = Arc::new(Credulous { provider });
            let builder = builder
                .dangerous()
                .with_custom_certificate_verifier(verifier);
            return Ok(builder.with_no_client_auth());
        }
        let asked = self.revoked.as_deref();
        if asked.is_some_and(|value| !value.eq_ignore_ascii_case("none")) {
            let why = "TLS: revoked certificates cannot be looked for: take TLS_CRLCHECK and \
                       TLS_CRLFILE out of ldap.conf";
            return Err(why.into());
        }
        let mut roots = RootCertStore::empty();
        for file in self.bundles()? {
            let Ok(certificates) = CertificateDer::pem_file_iter(&file) else {
                return Err(format!("TLS: cannot read {file}"));
            };
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        }
        if roots.is_empty() {
            let why = "TLS: no authority is trusted: name a file as TLS_CACERT in ldap.conf";
            return Err(why.into());
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// The files with trusted certificates.
    fn bundles(&self) -> Result<Vec<String>, String> {
        let mut files: Vec<String> = self.file.iter().cloned().collect();
        if let Some(folder) = &self.folder {
            let entries = fs::read_dir(folder);
            let entries = entries.map_err(|why| format!("TLS: cannot read {folder}: {why}"))?;
            let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let paths = paths.filter(|path| path.is_file());
            files.extend(paths.map(|path| path.to_string_lossy().into_owned()));
        }
        if files.is_empty() {
            let there = |path: &&&str| fs::metadata(path).is_ok();
            files.extend(
                SYSTEM_BUNDLES
                    .iter()
                    .find(there)
                    .map(|path| path.to_string()),
            );
        }
        Ok(files)
    }
}

/// Accepts any certificate, as `TLS_REQCERT never` demands.
#[derive(Debug)]
struct Credulous {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_openldap_reads_them() {
        let mut wanted = Wanted::default();
        wanted
            .add("# TLS_CACERT /a\nTLS_CACERT\t/b c\nBASE dc=x\ntls_reqcert Never\nTLS_CACERTDIR");
        let expected = Wanted {
            file: Some("/b c".into()),
            folder: None,
            demand: Some("Never".into()),
            revoked: None,
        };
        assert_eq!(wanted, expected);
        assert!(wanted.demands_nothing());
        wanted.add("TLS_REQCERT demand");
        assert!(!wanted.demands_nothing());
        wanted.add("TLS_CRLCHECK all");
        assert!(wanted.config().unwrap_err().contains("TLS_CRLCHECK"));
    }
}
