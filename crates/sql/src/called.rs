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
pub struct VolatileNames {
    names: HashSet<CalledName, FixedState>,
    id: u64,
}

impl VolatileNames {
    /// Adds the name of a volatile function (`pg_proc.proname`). One that only makes a random value
    /// or tells the time is left out, unless users have made it.
    pub fn add(&mut self, name: &[u8], is_of_users: bool) {
        if (is_of_users || !is_harmless(name)) && self.names.insert(CalledName::of(name)) {
            // In any order, equal names have an equal sum.
            let CalledName(hash) = CalledName::of(name);
            self.id = self.id.wrapping_add(hash | 1);
        }
    }

    /// True if a function with this name is volatile.
    #[inline]
    pub fn has(&self, name: CalledName) -> bool {
        self.names.contains(&name)
    }

    /// Equal for equal names. Different names have different numbers, but for rare accidents.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
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

    fn volatile(names: &[&str]) -> VolatileNames {
        let mut set = VolatileNames::default();
        names
            .iter()
            .for_each(|name| set.add(name.as_bytes(), false));
        set
    }

    #[test]
    fn names_are_found_by_their_hash() {
        let long = "x".repeat(70);
        let set = volatile(&["nextval", "add_user", "random", "uuid_generate_v4", &long]);
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
    fn a_users_function_is_never_harmless() {
        let mut set = volatile(&["random"]);
        assert!(!set.has(CalledName::of(b"random")));
        set.add(b"random", true);
        assert!(set.has(CalledName::of(b"random")));
    }

    #[test]
    fn equal_names_have_an_equal_number() {
        let id = |names: &[&str]| volatile(names).id();
        assert_eq!(id(&["a", "b"]), id(&["b", "a", "b"]));
        assert_ne!(id(&["a", "b"]), id(&["a", "c"]));
    }

    #[test]
    fn foreign_names_are_one() {
        let foreign = volatile(&["l\u{f6}schen"]);
        for name in ["L\u{d6}SCHEN", "gr\u{fc}n", "a\"\"b"] {
            assert!(foreign.has(CalledName::of(name.as_bytes())), "{name}");
        }
        assert!(!foreign.has(CalledName::of(b"now")));
    }
}
