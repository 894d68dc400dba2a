//! TLS to the console, asked for in libpq's words: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`.

use std::path::PathBuf;

use openssl::ssl::{SslConnector, SslFiletype, SslMethod, SslVerifyMode};
use openssl::x509::store::X509StoreBuilder;
use postgres::config::SslMode;
use postgres_openssl::MakeTlsConnector;

/// Our part of a connection string; the rest is the driver's.
const WORDS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

/// What is demanded of TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tls {
    /// Whether there is to be any.
    pub mode: SslMode,
    verify: Verify,
    /// The file of authorities; none: the system's.
    authorities: Option<String>,
    /// Our certificate and its key.
    certificate: Option<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verify {
    Nothing,
    Authority,
    Name,
}

impl Tls {
    /// Takes our words out of a connection string, and gives what they and the environment ask for.
    pub fn read(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(String, Tls), String> {
        let (rest, written) = if text.contains("://") {
            from_url(text)
        } else {
            from_pairs(text)
        };
        let value = |word: &str| {
            let own = written.iter().rev().find(|(name, _)| name == word);
            let own = own.map(|(_, value)| value.clone());
            let value = own.or_else(|| variable(&format!("PG{}", word.to_uppercase())));
            value.filter(|value| !value.is_empty())
        };
        let mode = value("sslmode").unwrap_or_else(|| "prefer".into());
        let authorities = value("sslrootcert");
        let (mode, verify) = match &*mode {
            "disable" => (SslMode::Disable, Verify::Nothing),
            "allow" | "prefer" => (SslMode::Prefer, Verify::Nothing),
            // As in libpq: who names authorities wants them asked.
            "require" if authorities.is_some() => (SslMode::Require, Verify::Authority),
            "require" => (SslMode::Require, Verify::Nothing),
            "verify-ca" => (SslMode::Require, Verify::Authority),
            "verify-full" => (SslMode::Require, Verify::Name),
            other => {
                let words = "disable, allow, prefer, require, verify-ca or verify-full";
                return Err(format!("sslmode={other}: write {words}"));
            }
        };
        let file = |of: String| (of != "system").then_some(of);
        let home = || {
            let path = PathBuf::from(variable("HOME")?).join(".postgresql/root.crt");
            path.exists().then(|| path.display().to_string())
        };
        let authorities = match authorities {
            Some(written) => file(written),
            None => home(),
        };
        let certificate = match (value("sslcert"), value("sslkey")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("sslcert and sslkey belong together".into()),
        };
        let tls = Tls {
            mode,
            verify,
            authorities,
            certificate,
        };
        Ok((rest, tls))
    }

    /// The settings with which a pooler asks its servers for the same; none for its defaults.
    pub fn lines(&self) -> Vec<String> {
        let mode = match (self.mode, self.verify) {
            (SslMode::Disable, _) => "disable",
            (SslMode::Require, Verify::Nothing) => "require",
            (SslMode::Require, Verify::Authority) => "verify-ca",
            (SslMode::Require, Verify::Name) => "verify-full",
            _ => return Vec::new(),
        };
        // A pooler may be started in another folder.
        let absolute = |file: &str| match std::path::absolute(file) {
            Ok(path) => path.display().to_string(),
            Err(_) => file.to_string(),
        };
        let mut lines = vec![format!("server_tls_sslmode = {mode}")];
        if self.verify != Verify::Nothing
            && let Some(file) = &self.authorities
        {
            lines.push(format!("server_tls_ca_file = {}", absolute(file)));
        }
        if let Some((certificate, key)) = &self.certificate {
            lines.push(format!("server_tls_cert_file = {}", absolute(certificate)));
            lines.push(format!("server_tls_key_file = {}", absolute(key)));
        }
        lines
    }

    /// What makes sessions.
    ///
    /// # Errors
    /// A file that cannot be used, by its name.
    pub fn connector(&self) -> Result<MakeTlsConnector, String> {
        let failed = |what: &str, why: openssl::error::ErrorStack| {
            let why = why.errors().first().and_then(|error| error.reason());
            format!("{what}: {}", why.unwrap_or("it cannot be used"))
        };
        let mut builder =
            SslConnector::builder(SslMethod::tls_client()).map_err(|why| failed("TLS", why))?;
        match self.verify {
            Verify::Nothing => builder.set_verify(SslVerifyMode::NONE),
            Verify::Authority | Verify::Name => {
                if let Some(file) = &self.authorities {
                    // Only these: not the system's, which the builder has read.
                    let none = X509StoreBuilder::new().map_err(|why| failed("TLS", why))?;
                    builder.set_cert_store(none.build());
                    builder
                        .set_ca_file(file)
                        .map_err(|why| failed(&format!("sslrootcert={file}"), why))?;
                }
            }
        }
        if let Some((certificate, key)) = &self.certificate {
            builder
                .set_certificate_chain_file(certificate)
                .map_err(|why| failed(&format!("sslcert={certificate}"), why))?;
            builder
                .set_private_key_file(key, SslFiletype::PEM)
                .map_err(|why| failed(&format!("sslkey={key}"), why))?;
        }
        let mut connector = MakeTlsConnector::new(builder.build());
        let names = self.verify == Verify::Name;
        connector.set_callback(move |session, _| {
            session.set_verify_hostname(names);
            Ok(())
        });
        Ok(connector)
    }
}

type Pairs = Vec<(String, String)>;

fn is_ours(name: &str) -> bool {
    WORDS.contains(&name)
}

fn from_url(text: &str) -> (String, Pairs) {
    let Some((front, query)) = text.split_once('?') else {
        return (text.into(), Vec::new());
    };
    let pairs = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (ours, others): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| is_ours(name));
    let others: Vec<_> = others
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let ours = ours
        .into_iter()
        .map(|(name, value)| (name.into(), decoded(value)));
    let mark = if others.is_empty() { "" } else { "?" };
    (format!("{front}{mark}{}", others.join("&")), ours.collect())
}

/// `%2F` is `/`.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = behind
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn from_pairs(text: &str) -> (String, Pairs) {
    let (mut others, mut ours) = (String::new(), Vec::new());
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = pair_end(rest);
        let (pair, behind) = rest.split_at(end);
        match pair.split_once('=') {
            Some((name, value)) if is_ours(name.trim()) => {
                let value = value.trim().trim_matches('\'');
                ours.push((name.trim().to_string(), value.to_string()));
            }
            _ => others.push_str(&format!("{pair} ")),
        }
        rest = behind.trim_start();
    }
    (others.trim_end().into(), ours)
}

/// Where the first pair of a text ends: at a blank outside of quotes, behind its value.
fn pair_end(text: &str) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, Tls) {
        Tls::read(text, |_| None).unwrap()
    }

    #[test]
    fn our_words_are_taken_out() {
        let url = "postgresql://u@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fca.pem";
        let (rest, tls) = read(url);
        assert_eq!(rest, "postgresql://u@h/d?connect_timeout=3");
        assert_eq!((tls.mode, tls.verify), (SslMode::Require, Verify::Name));
        assert_eq!(tls.authorities.as_deref(), Some("/ca.pem"));
        let (rest, tls) = read("postgresql://u@h/d?sslmode=disable");
        assert_eq!((&*rest, tls.mode), ("postgresql://u@h/d", SslMode::Disable));
        let text = "host=h password='a sslmode=disable' sslmode='verify-ca' sslrootcert=system";
        let (rest, tls) = read(text);
        assert_eq!(rest, "host=h password='a sslmode=disable'");
        assert_eq!((tls.verify, &tls.authorities), (Verify::Authority, &None));
        assert_eq!(
            tls.lines(),
            ["server_tls_sslmode = verify-ca"],
            "the system's authorities"
        );
        assert_eq!(read("").1.mode, SslMode::Prefer);
        let (_, tls) = read("sslmode=require sslcert=/c sslkey=/k");
        assert_eq!(
            tls.lines(),
            [
                "server_tls_sslmode = require",
                "server_tls_cert_file = /c",
                "server_tls_key_file = /k"
            ]
        );
        assert!(read("host=h").1.lines().is_empty());
    }

    #[test]
    fn the_environment_counts_where_nothing_is_written() {
        let variable = |name: &str| match name {
            "PGSSLMODE" => Some("require".to_string()),
            "PGSSLROOTCERT" => Some("/ca.pem".to_string()),
            _ => None,
        };
        let (_, tls) = Tls::read("host=h", variable).unwrap();
        assert_eq!(
            (tls.mode, tls.verify),
            (SslMode::Require, Verify::Authority)
        );
        let (_, tls) = Tls::read("host=h sslmode=prefer", variable).unwrap();
        assert_eq!((tls.mode, tls.verify), (SslMode::Prefer, Verify::Nothing));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let fails = |text: &str| Tls::read(text, |_| None).unwrap_err();
        assert!(fails("sslmode=strict").starts_with("sslmode=strict: write disable"));
        assert!(fails("sslcert=/c.pem").contains("belong together"));
        let (_, tls) = read("sslmode=verify-ca sslrootcert=/nonexistent");
        let why = tls.connector().err().unwrap();
        assert!(why.starts_with("sslrootcert=/nonexistent: "), "{why}");
    }
}
