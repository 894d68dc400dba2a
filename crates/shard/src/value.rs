//! Values of keys, read from constants and parameters exactly as PostgreSQL reads them, or not.

use std::fmt;

/// The type of a key. All integers are one family, and so are `text` and `varchar`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyType {
    /// `smallint`, `integer`, `bigint`.
    Integer,
    /// `text`, `varchar`.
    Text,
    /// `uuid`.
    Uuid,
}

impl KeyType {
    /// The type with this SQL name.
    pub fn of_name(name: &str) -> Option<KeyType> {
        match name.to_ascii_lowercase().as_str() {
            "bigint" | "int8" | "integer" | "int" | "int4" | "smallint" | "int2" => {
                Some(KeyType::Integer)
            }
            "text" | "varchar" | "character varying" => Some(KeyType::Text),
            "uuid" => Some(KeyType::Uuid),
            _ => None,
        }
    }

    /// The family of a type of PostgreSQL.
    pub fn of_oid(oid: u32) -> Option<KeyType> {
        match oid {
            oid::INT2 | oid::INT4 | oid::INT8 => Some(KeyType::Integer),
            oid::TEXT | oid::VARCHAR => Some(KeyType::Text),
            oid::UUID => Some(KeyType::Uuid),
            _ => None,
        }
    }

    /// The family of the elements of an array type of PostgreSQL.
    pub fn of_array_oid(oid: u32) -> Option<KeyType> {
        KeyType::of_oid(match oid {
            1005 => oid::INT2,
            1007 => oid::INT4,
            1016 => oid::INT8,
            1009 => oid::TEXT,
            1015 => oid::VARCHAR,
            2951 => oid::UUID,
            _ => return None,
        })
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            KeyType::Integer => "bigint",
            KeyType::Text => "text",
            KeyType::Uuid => "uuid",
        })
    }
}

/// OIDs of types.
pub mod oid {
    /// No type declared.
    pub const NONE: u32 = 0;
    /// `smallint`.
    pub const INT2: u32 = 21;
    /// `integer`.
    pub const INT4: u32 = 23;
    /// `bigint`.
    pub const INT8: u32 = 20;
    /// `text`.
    pub const TEXT: u32 = 25;
    /// `varchar`.
    pub const VARCHAR: u32 = 1043;
    /// `uuid`.
    pub const UUID: u32 = 2950;
    /// `unknown`: PostgreSQL finds the type, as if none were declared.
    pub const UNKNOWN: u32 = 705;
}

/// A value of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeyValue {
    /// An integer of any width.
    Int(i64),
    /// A text, in the encoding of the server.
    Text(Box<[u8]>),
    /// A uuid.
    Uuid([u8; 16]),
}

impl fmt::Display for KeyValue {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyValue::Int(value) => write!(to, "{value}"),
            KeyValue::Text(text) => {
                let text = String::from_utf8_lossy(text);
                match text.char_indices().nth(60) {
                    Some((end, _)) => write!(to, "'{}...'", &text[..end]),
                    None => write!(to, "'{text}'"),
                }
            }
            KeyValue::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    let hyphen = if matches!(at, 4 | 6 | 8 | 10) {
                        "-"
                    } else {
                        ""
                    };
                    write!(to, "{hyphen}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

/// Why a value can't be read exactly as PostgreSQL would read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable(pub String);

impl fmt::Display for Unreadable {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The value of a parameter, as Bind gives the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given<'a> {
    /// The type that Parse declares; [`oid::NONE`] if none.
    pub oid: u32,
    /// The format: binary, or text.
    pub binary: bool,
    /// The bytes; `None` for NULL.
    pub bytes: Option<&'a [u8]>,
}

impl KeyValue {
    /// Reads the text of a constant, which has the key's type.
    pub fn of_literal(key: KeyType, text: &[u8]) -> Result<KeyValue, Unreadable> {
        match key {
            KeyType::Integer => integer(text).map(KeyValue::Int),
            KeyType::Text => Ok(KeyValue::Text(text.into())),
            KeyType::Uuid => uuid(text).map(KeyValue::Uuid),
        }
    }

    /// Reads a parameter that is compared with a key. `None` for NULL.
    pub fn of_parameter(key: KeyType, given: Given<'_>) -> Result<Option<KeyValue>, Unreadable> {
        let Some(bytes) = given.bytes else {
            return Ok(None);
        };
        if !is_undeclared(given.oid) && KeyType::of_oid(given.oid) != Some(key) {
            return Err(other_type(key, given.oid));
        }
        let value = match given.binary {
            false => KeyValue::of_literal(key, bytes),
            true => KeyValue::of_binary(key, given.oid, bytes),
        };
        value.map(Some)
    }

    /// Reads a parameter that is an array whose elements are compared with a key. NULL elements are
    /// left out. `None` for NULL.
    pub fn of_array(key: KeyType, given: Given<'_>) -> Result<Option<Vec<KeyValue>>, Unreadable> {
        let Some(bytes) = given.bytes else {
            return Ok(None);
        };
        if !is_undeclared(given.oid) && KeyType::of_array_oid(given.oid) != Some(key) {
            return Err(other_type(key, given.oid));
        }
        let values = match given.binary {
            false => KeyValue::of_array_literal(key, bytes),
            true => binary_array(key, bytes),
        };
        values.map(Some)
    }

    /// Reads the text of an array of one dimension: `{1,2}`, `{"a",NULL}`, `[0:1]={1,2}`. NULL
    /// elements are left out.
    pub fn of_array_literal(key: KeyType, text: &[u8]) -> Result<Vec<KeyValue>, Unreadable> {
        let mut values = Vec::new();
        for element in array_elements(text)? {
            match element {
                Some(element) => values.push(KeyValue::of_literal(key, &element)?),
                // With array_nulls = off, this is the text NULL.
                None if key == KeyType::Text => {
                    return Err(Unreadable("its array has an element NULL".into()));
                }
                None => {}
            }
        }
        Ok(values)
    }

    /// Reads the binary form of a value of a type.
    fn of_binary(key: KeyType, oid: u32, bytes: &[u8]) -> Result<KeyValue, Unreadable> {
        let length = || {
            let count = bytes.len();
            Unreadable(format!(
                "its binary form has {count} bytes, which no {key} has"
            ))
        };
        match key {
            KeyType::Text => Ok(KeyValue::Text(bytes.into())),
            KeyType::Uuid => bytes.try_into().map(KeyValue::Uuid).map_err(|_| length()),
            KeyType::Integer => {
                let least = |width: usize, of: u32| {
                    bytes.len() == width && (is_undeclared(oid) || oid == of)
                };
                let value = match bytes {
                    _ if least(8, oid::INT8) => bytes.try_into().map(i64::from_be_bytes),
                    _ if least(4, oid::INT4) => bytes
                        .try_into()
                        .map(|bytes| i32::from_be_bytes(bytes).into()),
                    _ if least(2, oid::INT2) => bytes
                        .try_into()
                        .map(|bytes| i16::from_be_bytes(bytes).into()),
                    _ => return Err(length()),
                };
                value.map(KeyValue::Int).map_err(|_| length())
            }
        }
    }
}

/// True if PostgreSQL finds the type of a parameter itself.
pub fn is_undeclared(oid: u32) -> bool {
    matches!(oid, oid::NONE | oid::UNKNOWN)
}

fn other_type(key: KeyType, oid: u32) -> Unreadable {
    Unreadable(format!(
        "its type (OID {oid}) is not of the key's family, {key}"
    ))
}

/// What PostgreSQL takes for a blank; `trim_ascii` does not know the vertical tab.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.iter().take_while(|byte| is_blank(**byte)).count();
    &text[start..]
}

fn trim_end(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|byte| is_blank(**byte));
    &text[..text.len() - blanks.count()]
}

fn trim(text: &[u8]) -> &[u8] {
    trim_end(trim_start(text))
}

/// The form of integers that every version of PostgreSQL reads: decimal digits, perhaps with a sign
/// and with blanks around.
fn integer(text: &[u8]) -> Result<i64, Unreadable> {
    let number = trim(text);
    let digits = match number {
        [b'-' | b'+', digits @ ..] => digits,
        digits => digits,
    };
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let parsed = std::str::from_utf8(number).ok().filter(|_| plain);
    parsed
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| {
            let shown = KeyValue::Text(text.into());
            Unreadable(format!("{shown} is not a bigint in decimal digits"))
        })
}

/// All forms of a uuid that PostgreSQL reads: in braces or not, in any case, with a hyphen behind
/// any group of four digits, or without.
fn uuid(text: &[u8]) -> Result<[u8; 16], Unreadable> {
    let bad = || {
        let shown = KeyValue::Text(text.into());
        Unreadable(format!("{shown} is not a uuid"))
    };
    let inside = match text.strip_prefix(b"{") {
        Some(inside) => inside.strip_suffix(b"}").ok_or_else(bad)?,
        None => text,
    };
    let mut rest = inside;
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let [high, low, after @ ..] = rest else {
            return Err(bad());
        };
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(bad);
        *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
        rest = match after {
            [b'-', after @ ..] if at % 2 == 1 && at < 15 => after,
            after => after,
        };
    }
    if rest.is_empty() {
        Ok(bytes)
    } else {
        Err(bad())
    }
}

/// The elements of an array of one dimension, in its text form; `None` for NULL.
fn array_elements(text: &[u8]) -> Result<Vec<Option<Vec<u8>>>, Unreadable> {
    let bad = |what: &str| Unreadable(format!("its array {what}"));
    let mut rest = trim(text);
    if rest.starts_with(b"[") {
        let equals = memchr::memchr(b'=', rest).ok_or_else(|| bad("has no ="))?;
        let bounds = &rest[1..equals];
        if bounds.contains(&b'[') {
            return Err(bad("has several dimensions"));
        }
        rest = trim_start(&rest[equals + 1..]);
    }
    let inside = rest
        .strip_prefix(b"{")
        .and_then(|rest| rest.strip_suffix(b"}"));
    rest = trim(inside.ok_or_else(|| bad("is not in braces"))?);
    let mut elements = Vec::new();
    if rest.is_empty() {
        return Ok(elements);
    }
    loop {
        let (element, behind) = array_element(trim_start(rest))
            .ok_or_else(|| bad("has an element that is not read exactly"))?;
        elements.push(element);
        match trim_start(behind) {
            [] => return Ok(elements),
            [b',', after @ ..] => rest = after,
            _ => return Err(bad("has no comma behind an element")),
        }
    }
}

/// An element that a text begins with, and the text behind the element.
fn array_element(text: &[u8]) -> Option<(Option<Vec<u8>>, &[u8])> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let end = memchr::memchr(b',', text).unwrap_or(text.len());
        let element = trim_end(&text[..end]);
        let plain = !element.is_empty() && !element.iter().any(|byte| b"{}\"\\".contains(byte));
        let null = element.eq_ignore_ascii_case(b"null");
        return plain.then(|| ((!null).then(|| element.to_vec()), &text[end..]));
    };
    let mut element = Vec::new();
    loop {
        match rest {
            [b'"', after @ ..] => return Some((Some(element), after)),
            [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                element.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

/// The elements of an array in its binary form, which names the type of the elements.
fn binary_array(key: KeyType, bytes: &[u8]) -> Result<Vec<KeyValue>, Unreadable> {
    let bad = || Unreadable("its binary array is not read exactly".into());
    let mut rest = bytes;
    let mut word = || {
        let (word, after) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
        rest = after;
        Ok(i32::from_be_bytes(*word))
    };
    let (dimensions, _nulls, element) = (word()?, word()?, word()? as u32);
    if KeyType::of_oid(element) != Some(key) {
        return Err(other_type(key, element));
    }
    let count = match dimensions {
        0 => 0,
        1 => (word()?, word()?).0,
        _ => return Err(bad()),
    };
    let mut values = Vec::new();
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
        rest = after;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            continue;
        };
        let value = rest.get(..length).ok_or_else(bad)?;
        values.push(KeyValue::of_binary(key, element, value)?);
        rest = &rest[length..];
    }
    if rest.is_empty() {
        Ok(values)
    } else {
        Err(bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(values: Result<Vec<KeyValue>, Unreadable>) -> String {
        match values {
            Ok(values) => {
                let values: Vec<_> = values.iter().map(KeyValue::to_string).collect();
                values.join(" ")
            }
            Err(_) => "no".into(),
        }
    }

    #[test]
    fn constants() {
        let uuid = "123e4567-e89b-12d3-a456-426614174000";
        for (key, text, expected) in [
            (KeyType::Integer, "17", "17"),
            (KeyType::Integer, " -17\n", "-17"),
            (KeyType::Integer, "+17", "17"),
            (
                KeyType::Integer,
                "9223372036854775807",
                "9223372036854775807",
            ),
            (KeyType::Integer, "9223372036854775808", "no"),
            (KeyType::Integer, "17.0", "no"),
            (KeyType::Integer, "0x11", "no"),
            (KeyType::Integer, "1_7", "no"),
            (KeyType::Integer, "- 17", "no"),
            (KeyType::Integer, "", "no"),
            (KeyType::Integer, " ", "no"),
            (KeyType::Text, " a ", "' a '"),
            (KeyType::Uuid, uuid, uuid),
            (KeyType::Uuid, "{123E4567E89B12D3A456426614174000}", uuid),
            (
                KeyType::Uuid,
                "123e-4567-e89b-12d3-a456-4266-1417-4000",
                uuid,
            ),
            (KeyType::Uuid, "12-3e4567e89b12d3a456426614174000", "no"),
            (KeyType::Uuid, "123e4567-e89b-12d3-a456-42661417400", "no"),
            (KeyType::Uuid, "{123e4567-e89b-12d3-a456-426614174000", "no"),
            (KeyType::Uuid, "123e4567-e89b-12d3-a456-426614174000 ", "no"),
        ] {
            let read = KeyValue::of_literal(key, text.as_bytes()).map(|value| vec![value]);
            assert_eq!(shown(read), expected, "{text}");
        }
    }

    #[test]
    fn parameters() {
        for (key, oid, binary, bytes, expected) in [
            (KeyType::Integer, oid::INT4, true, &[0, 0, 0, 17][..], "17"),
            (KeyType::Integer, oid::INT8, true, &[0, 0, 0, 17], "no"),
            (KeyType::Integer, oid::NONE, true, &[0xff, 0xfe], "-2"),
            (
                KeyType::Integer,
                oid::NONE,
                true,
                &[0, 0, 0, 0, 0, 0, 0, 9],
                "9",
            ),
            (KeyType::Integer, oid::NONE, true, &[0, 0, 9], "no"),
            (KeyType::Integer, oid::INT2, false, b"17", "17"),
            (KeyType::Integer, oid::TEXT, false, b"17", "no"),
            (KeyType::Integer, 1700, false, b"17", "no"),
            (KeyType::Text, oid::VARCHAR, true, b"eu", "'eu'"),
            (KeyType::Text, 1042, false, b"eu", "no"),
            (
                KeyType::Uuid,
                oid::UUID,
                true,
                b"0123456789abcdef",
                "30313233-3435-3637-3839-616263646566",
            ),
            (KeyType::Uuid, oid::UUID, true, b"0123", "no"),
        ] {
            let bytes = Some(bytes);
            let given = Given { oid, binary, bytes };
            let read = KeyValue::of_parameter(key, given).map(|value| value.into_iter().collect());
            assert_eq!(shown(read), expected, "{given:?}");
        }
    }

    #[test]
    fn arrays() {
        for (key, text, expected) in [
            (KeyType::Integer, "{1,2}", "1 2"),
            (KeyType::Integer, "{}", ""),
            (KeyType::Integer, " { 1 , \"2\" , NULL } ", "1 2"),
            (KeyType::Integer, "[0:1]={1,2}", "1 2"),
            (KeyType::Integer, "{{1,2}}", "no"),
            (KeyType::Integer, "[1:1][1:2]={{1,2}}", "no"),
            (KeyType::Integer, "{1,}", "no"),
            (KeyType::Integer, "{1.0}", "no"),
            (KeyType::Integer, "1,2", "no"),
            (
                KeyType::Text,
                "{a b,\x0b\"c,\\\"d\\\\\" ,\"null\"}",
                r#"'a b' 'c,"d\' 'null'"#,
            ),
            (KeyType::Text, "{a,null}", "no"),
            (KeyType::Text, "{\"a\" b}", "no"),
            (KeyType::Text, r"{a\b}", "no"),
        ] {
            let given = Given {
                oid: oid::NONE,
                binary: false,
                bytes: Some(text.as_bytes()),
            };
            let read = KeyValue::of_array(key, given).map(Option::unwrap_or_default);
            assert_eq!(shown(read), expected, "{text}");
        }
    }

    #[test]
    fn binary_arrays() {
        let array = |element: u32, values: &[&[u8]]| {
            let mut bytes = vec![0, 0, 0, 1, 0, 0, 0, 0];
            bytes.extend_from_slice(&element.to_be_bytes());
            bytes.extend_from_slice(&(values.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&[0, 0, 0, 1]);
            for value in values {
                bytes.extend_from_slice(&(value.len() as u32).to_be_bytes());
                bytes.extend_from_slice(value);
            }
            bytes
        };
        let read = |key, bytes: &[u8]| {
            let given = Given {
                oid: oid::NONE,
                binary: true,
                bytes: Some(bytes),
            };
            shown(KeyValue::of_array(key, given).map(Option::unwrap_or_default))
        };
        let whole = array(oid::INT4, &[&[0, 0, 0, 5], &[0, 0, 1, 0]]);
        assert_eq!(read(KeyType::Integer, &whole), "5 256");
        assert_eq!(read(KeyType::Text, &whole), "no");
        assert_eq!(
            read(KeyType::Text, &array(oid::TEXT, &[b"a", b""])),
            "'a' ''"
        );
        assert_eq!(
            read(KeyType::Integer, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20]),
            ""
        );
        for end in 0..whole.len() {
            assert_eq!(read(KeyType::Integer, &whole[..end]), "no", "{end}");
        }
        let mut huge = array(oid::INT4, &[]);
        huge[12..16].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(read(KeyType::Integer, &huge), "no");
    }
}
