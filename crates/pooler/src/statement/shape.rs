//! The description of a statement: its parameters and its columns.

use howdah_wire::frame::cstr;
use sha2::{Digest, Sha256};

/// What a statement was described as: a hash of all that PostgreSQL compares before it says that a
/// "cached plan must not change result type" (names, types and modifiers of columns), and of the types
/// of parameters.
///
/// It is told to a successor, which may be another version of this program: another hash is another
/// version of [`crate::parcel`]'s format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape(pub u64);

impl Shape {
    /// The shape of a description that can't be read: in practice no other shape equals it.
    pub const UNREADABLE: Shape = Shape(0);

    /// By the bodies of a ParameterDescription and a RowDescription (or a NoData). `None` if they
    /// are not what they should be.
    pub fn read(parameters: &[u8], body: &[u8]) -> Option<Shape> {
        let mut hash = Sha256::new().chain_update(parameters);
        let (_, mut rest) = body.split_at_checked(2).unwrap_or_default();
        while !rest.is_empty() {
            let (name, behind) = cstr(rest)?;
            // Its table and its number there; type, length and modifier; format.
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
