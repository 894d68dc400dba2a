//! Names of functions that a text calls, and those that are volatile in a database.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use crate::limits;

/// The name of a function, as a hash. Names that differ in more than the case of their letters have
/// different hashes, but for rare accidents. All names with a quote, or with a character that is not
/// ASCII, have one hash: a text and the catalog may write them in different bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CalledName(u64);

impl CalledName {
    pub(super) const FOREIGN: CalledName = CalledName(0);

    /// The hash of a name: without quotes around it, and without a schema.
    pub fn of(name: &[u8]) -> CalledName {
        // FNV-1a, of lower-case letters.
        let (mut hash, mut foreign) = (0xcbf2_9ce4_8422_2325_u64, false);
        for byte in &name[..name.len().min(limits::NAME)] {
            foreign |= !byte.is_ascii() || *byte == b'"';
            hash = (hash ^ u64::from(byte | 0x20)).wrapping_mul(0x0100_0000_01b3);
        }
        if foreign {
            Self::FOREIGN
        } else {
            CalledName(hash)
        }
    }
}

/// The names of a database's volatile functions: those that may write.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolatileNames(HashSet<CalledName, FixedState>);

impl VolatileNames {
    /// Takes the names of all volatile functions (`pg_proc.proname`). Leaves out those that only
    /// make a random value or tell the time.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> VolatileNames {
        let writes = names.into_iter().filter(|name| !is_harmless(name));
        VolatileNames(writes.map(CalledName::of).collect())
    }

    /// True if a function with this name is volatile.
    #[inline]
    pub fn has(&self, name: CalledName) -> bool {
        self.0.contains(&name)
    }
}

/// True for functions that are volatile, but write nothing.
fn is_harmless(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 7] = [
        b"clock_timestamp",
        b"gen_random_bytes",
        b"gen_random_uuid",
        b"random",
        b"timeofday",
        b"uuidv4",
        b"uuidv7",
    ];
    NAMES.contains(&name) || name.starts_with(b"uuid_generate_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_hash() {
        let long = "x".repeat(70);
        let names = ["nextval", "add_user", "random", "uuid_generate_v4", &long];
        let set = VolatileNames::new(names.map(str::as_bytes));
        let has = |name: &str| set.has(CalledName::of(name.as_bytes()));
        for name in ["nextval", "NextVal", "add_user", &long[..63], &long] {
            assert!(has(name), "{name}");
        }
        for name in [
            "random",
            "uuid_generate_v4",
            "nextva",
            "nextvall",
            "",
            "stra\u{df}e",
            &long[..62],
        ] {
            assert!(!has(name), "{name}");
        }
    }

    #[test]
    fn foreign_names_are_one() {
        let foreign = VolatileNames::new(["l\u{f6}schen".as_bytes()]);
        for name in ["L\u{d6}SCHEN", "gr\u{fc}n", "a\"\"b"] {
            assert!(foreign.has(CalledName::of(name.as_bytes())), "{name}");
        }
        assert!(!foreign.has(CalledName::of(b"now")));
    }
}
