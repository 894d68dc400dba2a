//! The settings under which PostgreSQL has read the constants of a statement.

use howdah_sql::constants::has_constants;
use howdah_wire::frame::cstr;

use crate::params::Meaning;

/// The settings with which the constants of a statement were read, as [`Meaning::constants`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constants {
    /// Settings can't change the constants.
    Fixed,
    /// The settings have this hash.
    Of(u64),
    /// Unknown: PostgreSQL had not reported a SET yet.
    Unknown,
}

impl Constants {
    /// The constants of a text that is parsed with these settings.
    pub(super) fn of(definition: &[u8], meaning: Meaning) -> Constants {
        if has_constants(text_of(definition)) {
            Constants::Of(meaning.constants)
        } else {
            Constants::Fixed
        }
    }

    /// True if the constants are the same with these settings.
    pub fn fit(self, meaning: Meaning) -> bool {
        match self {
            Constants::Fixed => true,
            Constants::Of(constants) => constants == meaning.constants,
            Constants::Unknown => false,
        }
    }
}

/// The text of a Parse's definition.
pub(super) fn text_of(definition: &[u8]) -> &[u8] {
    cstr(definition).map_or(&[][..], |(text, _)| text)
}
