//! The description of a statement: its parameters and its columns.

use howdah_wire::frame::cstr;
use sha2::{Digest, Sha256};

/// The description of a statement, as a hash of everything that PostgreSQL compares before it
/// reports "cached plan must not change result type" (names, types and modifiers of columns), and
/// of the types of parameters.
///
/// A takeover hands shapes to the successor, which may be another version of this program. So
/// another hash needs another version of [`crate::parcel`]'s format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape(pub u64);

impl Shape {
    /// The shape of an unreadable description: in practice no other shape equals it.
    pub const UNREADABLE: Shape = Shape(0);

    /// The shape given by the bodies of a ParameterDescription and a RowDescription (or NoData).
    /// `None` if they are damaged.
    pub fn read(parameters: &[u8], body: &[u8]) -> Option<Shape> {
        let mut hash = Sha256::new().chain_update(parameters);
        let (_, mut rest) = body.split_at_checked(2).unwrap_or_default();
        while !rest.is_empty() {
            let (name, behind) = cstr(rest)?;
            // Table and column number; type, length and modifier; format.
            let (numbers, behind) = behind.split_at_checked(18)?;
            hash.update(name);
            hash.update([0]);
            hash.update(&numbers[6..16]);
            rest = behind;
        }
        let front = hash.finalize().first_chunk().copied();
        front.map(u64::from_be_bytes).map(Shape)
    }
}

/// The description of a statement that a client got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatementDescription {
    /// A hash of its columns and parameters.
    pub shape: Shape,
    /// The body of the ParameterDescription.
    pub parameters: Box<[u8]>,
}
