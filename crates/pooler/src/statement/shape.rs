//! The description of a statement: its parameters and its columns.

use howdah_wire::frame::cstr;
use howdah_wire::write;
use sha2::{Digest, Sha256};

use crate::account::Charge;

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

/// The last message of PostgreSQL's answer to the Describe of a statement: a RowDescription or
/// NoData.
#[derive(Debug)]
pub struct ColumnsMessage {
    /// The shape of the whole description.
    pub(super) shape: Shape,
    tag: u8,
    body: Box<[u8]>,
    /// The bytes of the description, in the account.
    _charge: Charge,
}

impl ColumnsMessage {
    /// The message with this tag and body, which describes a statement of this shape.
    pub(super) fn new(shape: Shape, tag: u8, body: &[u8], charge: Charge) -> Self {
        ColumnsMessage {
            shape,
            tag,
            body: body.into(),
            _charge: charge,
        }
    }

    /// Appends the message.
    pub fn write(&self, buf: &mut Vec<u8>) {
        write::message(buf, self.tag, |buf| buf.extend_from_slice(&self.body));
    }
}

/// True if all names in the body of a RowDescription are ASCII, so that they are the same bytes in
/// each `client_encoding`.
pub(super) fn is_ascii(body: &[u8]) -> bool {
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((name, behind)) = cstr(rest) {
        if !name.is_ascii() {
            return false;
        }
        rest = behind.get(18..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, KeptFor};
    use crate::limits;
    use crate::statement::{Constants, Statement};

    /// The body of a RowDescription with a column.
    fn columns(name: &str) -> Vec<u8> {
        [&[0, 1], name.as_bytes(), &[0; 19]].concat()
    }

    #[test]
    fn a_description_is_kept_once_and_paid_for() {
        let account = Account::default();
        let share = account.share();
        let told = |number| StatementDescription {
            shape: Shape(number),
            parameters: b"\0\0"[..].into(),
        };
        let statement = Statement::new(0, Constants::Fixed, b"select 1\0\0\0", 0);
        let (x, y) = (columns("x"), columns("y"));
        // Nobody pays for the text yet.
        statement.keep_columns(&told(1), b'T', &x);
        assert!(statement.description(Shape(1)).is_none());
        statement.charge_to(&share);
        let before = account.kept(KeptFor::Texts);
        let long = columns(&"x".repeat(limits::DESCRIPTION));
        statement.keep_columns(&told(1), b'T', &long);
        statement.keep_columns(&told(1), b'T', &columns("größe"));
        assert_eq!(account.kept(KeptFor::Texts), before);
        statement.keep_columns(&told(1), b'T', &x);
        statement.keep_columns(&told(2), b'T', &y);
        assert_eq!(account.kept(KeptFor::Texts), before + 2 + x.len());
        assert!(statement.description(Shape(2)).is_none());
        let (kept, message) = statement.description(Shape(1)).unwrap();
        let mut buf = Vec::new();
        message.write(&mut buf);
        assert_eq!((&**kept, &buf[5..]), (&told(1), &x[..]));
        drop(statement);
        assert_eq!(account.kept(KeptFor::Texts), 0);
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let share = Account::default().share();
        let statement = Statement::new(0, Constants::Fixed, b"x\0\0\0", 0);
        statement.charge_to(&share);
        let _all = share.charge(KeptFor::Texts, limits::ACCOUNT);
        let told = StatementDescription {
            shape: Shape(1),
            parameters: Box::default(),
        };
        statement.keep_columns(&told, b'n', b"");
        assert!(statement.description(Shape(1)).is_none());
    }
}
