//! Answers as rows of text.

use std::io;

use super::Session;

impl Session {
    /// Reads up to and with the next ReadyForQuery. Returns all rows as text, NULL as empty text.
    ///
    /// # Errors
    /// The connection fails, an ErrorResponse came, or a row is malformed.
    pub fn read_rows(&mut self) -> io::Result<Vec<Vec<String>>> {
        let mut rows = Vec::new();
        loop {
            match self.read_message()? {
                b'Z' => return Ok(rows),
                b'D' => rows
                    .push(columns(&self.body).ok_or_else(|| io::Error::other("a malformed row"))?),
                tag => self.expect_no_error(tag)?,
            }
        }
    }
}

/// The columns of a DataRow: a count, then each one's length and bytes.
fn columns(body: &[u8]) -> Option<Vec<String>> {
    let (count, mut rest) = body.split_first_chunk()?;
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, behind) = rest.split_first_chunk()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        columns.push(String::from_utf8_lossy(behind.get(..length)?).into_owned());
        rest = &behind[length..];
    }
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_row() {
        let row = b"\0\x02\0\0\0\x0242\xff\xff\xff\xff";
        assert_eq!(columns(row).unwrap(), ["42", ""]);
        assert_eq!(columns(b"\0\x01\0\0\0\x0942"), None);
    }
}
