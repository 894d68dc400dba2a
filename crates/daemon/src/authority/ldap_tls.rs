//! TLS to directories. OpenLDAP's `ldap.conf` says which certificates are trusted, as it does for
//! PgBouncer: `TLS_CACERT`, `TLS_CACERTDIR` and `TLS_REQCERT`, or the environment variables
//! `LDAPTLS_...` of the same names. Without these, Howdah trusts the system's certificates.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_daemon::tls::contexts::SYSTEM_BUNDLES;
use howdah_daemon::tls::directory::DirectoryTls;

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
    known: Mutex<Option<(Instant, DirectoryTls)>>,
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
    ) -> Result<Box<dyn Stream>, String> {
        let failed = |why| format!("TLS: {why}");
        let directories = self.directories().map_err(failed)?;
        let stream = directories.connect(host, stream).await;
        Ok(Box::new(stream.map_err(failed)?))
    }

    fn directories(&self) -> Result<DirectoryTls, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, directories)) = &*known
            && read.elapsed() < KEPT
        {
            return Ok(directories.clone());
        }
        let directories = Wanted::read().directories()?;
        *known = Some((Instant::now(), directories.clone()));
        Ok(directories)
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

    fn directories(&self) -> Result<DirectoryTls, String> {
        if self.demands_nothing() {
            return DirectoryTls::credulous();
        }
        let asked = self.revoked.as_deref();
        if asked.is_some_and(|value| !value.eq_ignore_ascii_case("none")) {
            let why = "revoked certificates cannot be looked for: take TLS_CRLCHECK and \
                       TLS_CRLFILE out of ldap.conf";
            return Err(why.into());
        }
        DirectoryTls::trusting(&self.bundles()?)
    }

    /// The files with trusted certificates.
    fn bundles(&self) -> Result<Vec<String>, String> {
        let mut files: Vec<String> = self.file.iter().cloned().collect();
        if let Some(folder) = &self.folder {
            let entries = fs::read_dir(folder);
            let entries = entries.map_err(|why| format!("cannot read {folder}: {why}"))?;
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
        assert!(
            wanted
                .directories()
                .is_err_and(|why| why.contains("TLS_CRLCHECK"))
        );
    }
}
