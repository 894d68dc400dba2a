//! Who may log in from where, and how: the files of `auth_type = hba`.
//!
//! The grammar is PostgreSQL's as PgBouncer 1.25 reads it: a line that cannot be read is left out,
//! and what comes behind it holds all the same. That is warned of at start; a reload is refused.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod hba;
mod ident;
#[cfg(test)]
mod tests;
mod tokens;

use super::table::Globals;
use super::{Mistake, Place};
pub use hba::{Candidate, Hba, HbaMethod, Rule};
pub use ident::IdentMap;

/// What is said where a directory is to be spoken to in two ways at once.
pub(super) const TLS_TWICE: &str =
    "ldaps and ldaptls=1 exclude each other: no server begins TLS within TLS, so nobody gets in";

/// Said of a line that would mean something else than it shows.
const NO_UTF8: &str = "there are bytes in it that are not UTF-8";

/// What is wrong with a line, and how to right it.
type Wrong = (String, String);

/// What was found on the way.
#[derive(Default, Debug)]
pub(super) struct Findings {
    /// Lines, or whole files, that were left out.
    pub(super) left_out: Vec<Mistake>,
    /// Lines that hold, but can hardly mean what they say.
    pub(super) doubtful: Vec<Mistake>,
    /// Lines that ask for what is not built; each kind once.
    pub(super) not_built: Vec<Mistake>,
}

impl Findings {
    fn missing(&mut self, what: &str, path: &str, why: &str, remedy: &str) {
        self.left_out.push(Mistake {
            place: None,
            text: format!("could not open {what} config file {path}: {why}"),
            remedy: remedy.into(),
        });
    }

    fn left_out(&mut self, what: &str, place: &Place, (why, remedy): Wrong) {
        let text = format!("could not parse {what} config line {}: {why}", place.line);
        let remedy = format!("{remedy}; such a line is skipped at start, and stops a reload");
        self.left_out.push(Mistake::at(place, text, remedy));
    }
}

/// Reads the rules, and the maps they name.
pub(super) fn load(
    globals: &Globals,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
    findings: &mut Findings,
) -> Hba {
    let mut maps = ident::IdentMaps::new();
    if let Some(path) = globals
        .auth_ident_file
        .as_deref()
        .filter(|path| !path.is_empty())
    {
        match read_file(path) {
            Ok(text) => maps = ident::parse(path, &text, findings),
            Err(why) => findings.missing("ident", path, &why, "check the path of auth_ident_file"),
        }
    }
    let path = &globals.auth_hba_file;
    if path.is_empty() {
        findings.left_out.push(Mistake {
            place: None,
            text: "auth_type = hba without auth_hba_file lets nobody in".into(),
            remedy: "name the file of the rules".into(),
        });
        return Hba::default();
    }
    match read_file(path) {
        Ok(text) => hba::parse(path, &text, &maps, read_file, findings),
        Err(why) => {
            let remedy = "check the path of auth_hba_file; without rules nobody gets in";
            findings.missing("hba", path, &why, remedy);
            Hba::default()
        }
    }
}
