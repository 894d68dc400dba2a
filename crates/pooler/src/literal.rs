//! Values in SQL that Howdah writes.
//!
//! In SJIS, BIG5, GBK or GB18030 a byte of a character may look like a quote or a backslash. So
//! Howdah quotes only ASCII, and writes other values as hexadecimal digits.

/// Appends an ASCII value as a literal that is correct with `standard_conforming_strings` on and
/// off: `E'a\\b'`.
pub fn ascii(sql: &mut Vec<u8>, value: &[u8]) {
    debug_assert!(value.is_ascii());
    if value.contains(&b'\\') {
        sql.push(b'E');
    }
    sql.push(b'\'');
    for &byte in value {
        if matches!(byte, b'\'' | b'\\') {
            sql.push(byte);
        }
        sql.push(byte);
    }
    sql.push(b'\'');
}

/// Appends an expression for a value: a literal if the value is ASCII. `encoding` is an SQL
/// expression for the encoding of the value.
pub fn expression(sql: &mut Vec<u8>, value: &[u8], encoding: &[u8]) {
    if value.is_ascii() {
        return ascii(sql, value);
    }
    sql.extend_from_slice(b"pg_catalog.convert_from(pg_catalog.decode('");
    for byte in value {
        for digit in [byte >> 4, byte & 15] {
            sql.push(b"0123456789abcdef"[usize::from(digit)]);
        }
    }
    sql.extend_from_slice(b"','hex'),");
    sql.extend_from_slice(encoding);
    sql.push(b')');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_a_character_is_taken_for_a_quote() {
        // In SJIS the second byte of this character is a backslash.
        for (value, wanted) in [
            (&b"a"[..], "'a'"),
            (b"it's\\", "E'it''s\\\\'"),
            (
                b"\x95\x5c'",
                "pg_catalog.convert_from(pg_catalog.decode('955c27','hex'),'SJIS')",
            ),
        ] {
            let mut sql = Vec::new();
            expression(&mut sql, value, b"'SJIS'");
            assert_eq!(String::from_utf8(sql).unwrap(), wanted);
        }
    }
}
