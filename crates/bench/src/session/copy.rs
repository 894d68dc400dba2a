//! COPY, and single values, which pgbench can't play.

use std::io::{self, Read};

use super::{Session, error_text, message};

/// Answers are read in pieces of this many bytes.
const PIECE: usize = 65_536;

impl Session {
    /// Sends a Query. Returns the first column of the first row as text.
    ///
    /// # Errors
    /// The connection fails, an ErrorResponse came, or there is no value.
    pub fn value(&mut self, query: &str) -> io::Result<String> {
        self.send(&text_of(query))?;
        let mut value = None;
        self.hear(|tag, body| {
            if let (b'D', None) = (tag, &value) {
                value = first_column(body);
            }
        })?;
        value.ok_or_else(|| io::Error::other("no value came"))
    }

    /// Sends a `COPY ... FROM STDIN` and these messages. Returns the command tag.
    ///
    /// # Errors
    /// The connection fails, or an ErrorResponse came.
    pub fn copy_in(&mut self, query: &str, data: &[u8]) -> io::Result<String> {
        self.send(&text_of(query))?;
        loop {
            match self.read_message()? {
                b'G' => break,
                tag => self.expect_no_error(tag)?,
            }
        }
        self.send(data)?;
        let mut said = String::new();
        self.hear(|tag, body| {
            if tag == b'C' {
                said = word(body);
            }
        })?;
        Ok(said)
    }

    /// Sends a `COPY ... TO STDOUT`. Returns the number of bytes received, and the command tag.
    ///
    /// # Errors
    /// The connection fails, or an ErrorResponse came.
    pub fn copy_out(&mut self, query: &str) -> io::Result<(usize, String)> {
        self.send(&text_of(query))?;
        let (mut buffer, mut filled) = (vec![0; PIECE], 0);
        let (mut copied, mut said) = (0, String::new());
        loop {
            if filled == buffer.len() {
                buffer.resize(2 * filled, 0);
            }
            let read = self.stream.read(&mut buffer[filled..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            let mut at = 0;
            while let Some((tag, body)) = first_message(&buffer[at..filled]) {
                match tag {
                    b'd' => copied += body.len(),
                    b'C' => said = word(body),
                    b'E' => return Err(io::Error::other(error_text(body))),
                    b'Z' => return Ok((copied, said)),
                    _ => {}
                }
                at += 5 + body.len();
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
        }
    }

    /// Calls `hear` for each message up to the next ReadyForQuery.
    fn hear(&mut self, mut hear: impl FnMut(u8, &[u8])) -> io::Result<()> {
        loop {
            match self.read_message()? {
                b'Z' => return Ok(()),
                tag => {
                    self.expect_no_error(tag)?;
                    hear(tag, &self.body);
                }
            }
        }
    }
}

/// CopyData messages with `lines` lines of `long` bytes (newline included), `each` lines to a
/// message, and CopyDone at the end.
pub fn copy_data(lines: usize, long: usize, each: usize) -> Vec<u8> {
    let line = [vec![b'x'; long - 1], vec![b'\n']].concat();
    let mut data = Vec::new();
    let mut left = lines;
    while left > 0 {
        let now = left.min(each);
        data.extend(message(b'd', &line.repeat(now)));
        left -= now;
    }
    data.extend(message(b'c', b""));
    data
}

fn text_of(query: &str) -> Vec<u8> {
    message(b'Q', format!("{query}\0").as_bytes())
}

fn first_message(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = (u32::from_be_bytes(*length) as usize).checked_sub(4)?;
    Some((*tag, rest.get(..length)?))
}

/// The first column of a DataRow: a count, then each one's length and bytes.
fn first_column(body: &[u8]) -> Option<String> {
    let (length, rest) = body.get(2..)?.split_first_chunk()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    Some(String::from_utf8_lossy(rest.get(..length)?).into_owned())
}

fn word(body: &[u8]) -> String {
    String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(body)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_megabyte_is_cut_into_messages() {
        let data = copy_data(1000, 1000, 8);
        let (mut at, mut bytes, mut tags) = (0, 0, Vec::new());
        while let Some((tag, body)) = first_message(&data[at..]) {
            at += 5 + body.len();
            bytes += body.len();
            tags.push(tag);
        }
        assert_eq!((at, bytes, tags.len()), (data.len(), 1_000_000, 126));
        assert_eq!(tags.last(), Some(&b'c'));
        assert_eq!(first_message(&data[..100]), None);
    }

    #[test]
    fn the_first_column_of_a_row() {
        assert_eq!(first_column(b"\0\x01\0\0\0\x0242").as_deref(), Some("42"));
        assert_eq!(first_column(b"\0\x01\xff\xff\xff\xff"), None);
        assert_eq!(first_column(b"\0"), None);
    }
}
