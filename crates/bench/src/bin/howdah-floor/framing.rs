//! Finds the messages in a stream that arrives in pieces.

/// The position in one direction of a connection.
#[derive(Debug, Default)]
pub struct Framing {
    /// Bytes of the current message's body still to come.
    left: usize,
}

/// A length that no message can have.
#[derive(Debug, PartialEq, Eq)]
pub struct BadLength;

impl Framing {
    /// Calls `on(tag, first, at)` for each message that begins in `bytes` at `at`, until it returns
    /// false. `first` is the first byte of a ReadyForQuery's body, and 0 for other messages.
    /// Returns the number of bytes consumed. The rest, at most five bytes, is an incomplete header,
    /// which the caller passes again in front of later bytes.
    pub fn scan(
        &mut self,
        bytes: &[u8],
        mut on: impl FnMut(u8, u8, usize) -> bool,
    ) -> Result<usize, BadLength> {
        let mut at = 0;
        loop {
            let body = self.left.min(bytes.len() - at);
            at += body;
            self.left -= body;
            let head = &bytes[at..];
            if head.len() < 5 || (head[0] == b'Z' && head.len() < 6) {
                return Ok(at);
            }
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let body = length.checked_sub(4).ok_or(BadLength)?;
            let first = if head[0] == b'Z' { head[5] } else { 0 };
            if !on(head[0], first, at) {
                return Ok(at);
            }
            at += 5;
            self.left = body;
        }
    }

    /// True if the last consumed byte ended a message.
    pub fn at_boundary(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans the stream in pieces of `size` bytes, and collects its messages.
    fn messages(stream: &[u8], size: usize) -> Vec<(u8, u8)> {
        let (mut framing, mut seen, mut rest) = (Framing::default(), Vec::new(), Vec::new());
        for piece in stream.chunks(size) {
            rest.extend_from_slice(piece);
            let done = framing.scan(&rest, |tag, first, _| {
                seen.push((tag, first));
                true
            });
            rest.drain(..done.unwrap());
            assert!(rest.len() <= 5);
        }
        assert!(rest.is_empty() && framing.at_boundary());
        seen
    }

    #[test]
    fn pieces_of_any_size_give_the_same_messages() {
        let stream = b"T\0\0\0\x08abcdD\0\0\0\x04C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05IZ\0\0\0\x05T";
        let whole = messages(stream, stream.len());
        assert_eq!(
            whole,
            [(b'T', 0), (b'D', 0), (b'C', 0), (b'Z', b'I'), (b'Z', b'T')]
        );
        for size in 1..stream.len() {
            assert_eq!(messages(stream, size), whole, "pieces of {size}");
        }
    }

    #[test]
    fn a_length_below_four_is_refused() {
        let scanned = Framing::default().scan(b"Q\0\0\0\x03", |_, _, _| true);
        assert_eq!(scanned, Err(BadLength));
    }

    #[test]
    fn a_refused_message_is_not_done_with() {
        let scanned = Framing::default().scan(b"S\0\0\0\x04X\0\0\0\x04", |tag, _, _| tag != b'X');
        assert_eq!(scanned, Ok(5));
    }
}
