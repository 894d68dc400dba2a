//! The poolers whose files are imported, and which of them a file belongs to.

use crate::keys::ForeignKey;
use crate::reading::Reading;
use crate::tree::Fruit;
use crate::{ForeignFile, Unreadable, pgcat, pgcat_keys, toml_tree};

/// A pooler whose files are imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `pgcat.toml`
    PgCat,
}

impl Format {
    /// All poolers.
    pub const ALL: [Format; 1] = [Format::PgCat];

    /// The word for `--from`.
    pub fn word(self) -> &'static str {
        match self {
            Format::PgCat => "pgcat",
        }
    }

    /// The pooler's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::PgCat => "PgCat",
        }
    }

    /// What becomes of the pooler's keys.
    pub(crate) fn keys(self) -> &'static [ForeignKey] {
        match self {
            Format::PgCat => pgcat_keys::KEYS,
        }
    }

    pub(crate) fn import(self, files: &[Fruit]) -> Reading {
        let merged = Fruit::Table(files.iter().flat_map(|file| file.table().to_vec()).collect());
        match self {
            Format::PgCat => pgcat::import(&merged),
        }
    }
}

/// Reads files, and tells by their content whose they are.
pub(crate) fn read(
    files: &[ForeignFile],
    format: Option<Format>,
    _read_file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<(Format, Vec<Fruit>), Unreadable> {
    let trees: Result<Vec<_>, _> = files
        .iter()
        .map(|file| toml_tree::read(&file.path, &file.text))
        .collect();
    let trees = trees?;
    Ok((format.unwrap_or(Format::PgCat), trees))
}
