//! The files of `auth_type = hba`: which clients may log in, and how they prove their identity.
//!
//! The grammar is PostgreSQL's, as PgBouncer 1.25 reads it. A malformed line stops the start or the reload,
//! as in PostgreSQL. If such a line were skipped, a client that it should reject could log in by the next
//! line.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod hba;
mod ident;
#[cfg(test)]
mod tests;
mod tokens;

use super::table::Globals;
use super::{Mistake, Place, SslMode};
pub use hba::{Candidate, ClientCert, ClientName, Hba, HbaMethod, Rule};
pub use ident::IdentMap;
pub(crate) use ident::IdentMaps;

/// The error for TLS to a directory in two ways at once.
pub(super) const TLS_TWICE: &str =
    "ldaps and ldaptls=1 exclude each other: no server begins TLS within TLS, so nobody gets in";

/// What is wrong with a line, and how to correct it.
type Wrong = (String, String);

/// What was found while the files were read.
#[derive(Default, Debug)]
pub(super) struct Findings {
    /// Lines or complete files that can't be read.
    pub(super) unreadable: Vec<Mistake>,
    /// Valid lines that probably do not mean what their author wanted.
    pub(super) doubtful: Vec<Mistake>,
    /// Lines that match no client because of other settings; one of each kind.
    pub(super) idle: Vec<Mistake>,
}

impl Findings {
    fn missing(&mut self, what: &str, path: &str, why: &str, remedy: &str) {
        let text = format!("could not open {what} config file {path}: {why}");
        self.unreadable.push(Mistake::new(None, text, remedy));
    }

    fn unreadable(&mut self, what: &str, place: &Place, (why, remedy): Wrong) {
        let text = format!("could not parse {what} config line {}: {why}", place.line);
        self.unreadable
            .push(Mistake::new(Some(place), text, remedy));
    }
}

/// Reads the maps of `auth_ident_file`.
pub(super) fn maps(
    globals: &Globals,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    findings: &mut Findings,
) -> IdentMaps {
    let path = globals.auth_ident_file.as_deref();
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return IdentMaps::new();
    };
    match read_file(path) {
        Ok(text) => ident::parse(path, &text, findings),
        Err(why) => {
            findings.missing("ident", path, &why, "check the path of auth_ident_file");
            IdentMaps::new()
        }
    }
}

/// Reads the rules, and the maps that they name.
pub(super) fn load(
    globals: &Globals,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    findings: &mut Findings,
) -> Hba {
    let maps = maps(globals, read_file, findings);
    let path = &globals.auth_hba_file;
    let tls = globals.client_tls_sslmode != SslMode::Disable;
    if !globals.auth_hba.is_empty() {
        if !path.is_empty() {
            let text = "there are rules in auth_hba, and in auth_hba_file";
            let mistake = Mistake::new(None, text, "leave one of the two out");
            findings.unreadable.push(mistake);
        }
        return hba::parse(
            "auth_hba",
            &globals.auth_hba,
            tls,
            &maps,
            read_file,
            findings,
        );
    }
    if path.is_empty() {
        let text = "auth_type = hba without auth_hba_file lets nobody in";
        let mistake = Mistake::new(None, text, "name the file of the rules");
        findings.unreadable.push(mistake);
        return Hba::default();
    }
    match read_file(path) {
        Ok(text) => hba::parse(path, &text, tls, &maps, read_file, findings),
        Err(why) => {
            let remedy = "check the path of auth_hba_file; without rules nobody gets in";
            findings.missing("hba", path, &why, remedy);
            Hba::default()
        }
    }
}
