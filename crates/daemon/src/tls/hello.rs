//! The first message of a client's handshake (ClientHello).

/// How long the message may be, in bytes.
const HELLO_MAX: usize = 32 * 1024;

/// True if a client's first message has come whole, or if the library is to refuse the bytes. The
/// message may be in several records.
pub(super) fn is_hello(bytes: &[u8]) -> bool {
    const HANDSHAKE: u8 = 22;
    const CLIENT_HELLO: u8 = 1;
    let (mut message, mut rest) = (0, bytes);
    let mut wanted = None;
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if head[0] != HANDSHAKE || length == 0 || bytes.len() > HELLO_MAX {
            return true;
        }
        let record = &after[..after.len().min(length)];
        if wanted.is_none() {
            wanted = match *record {
                // A header that is cut is refused.
                [CLIENT_HELLO, a, b, c, ..] => Some(u32::from_be_bytes([0, a, b, c]) as usize + 4),
                _ if record.len() == length
                    || record.first().is_some_and(|b| *b != CLIENT_HELLO) =>
                {
                    return true;
                }
                _ => return false,
            };
        }
        message += record.len();
        if wanted.is_some_and(|wanted| message >= wanted) {
            return true;
        }
        rest = &after[record.len()..];
    }
    bytes.first().is_some_and(|first| *first != HANDSHAKE) || bytes.len() > HELLO_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_message_is_whole_or_refused() {
        let hello = [22, 3, 1, 0, 5, 1, 0, 0, 2, 7, 22, 3, 1, 0, 1, 7];
        for end in 0..hello.len() {
            assert!(!is_hello(&hello[..end]), "{end}");
        }
        assert!(is_hello(&hello));
        for refused in [
            &b"G"[..],
            &[22, 3, 1, 0, 0],
            &[22, 3, 1, 0, 9, 2],
            &[22, 3, 1, 0, 5, 1, 0, 0, 9, 7, 23, 3, 1, 0, 1],
        ] {
            assert!(is_hello(refused), "{refused:?}");
        }
        let mut long = vec![22, 3, 1, 255, 255, 1, 1, 0, 0];
        assert!(!is_hello(&long));
        long.resize(HELLO_MAX + 1, 0);
        assert!(is_hello(&long));
    }
}
