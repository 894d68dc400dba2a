//! A client. It verifies that messages to it are framed, and each ReadyForQuery is asked for.

use howdah_wire::frame::header;
use howdah_wire::tag;

#[derive(Default)]
pub(super) struct Client {
    /// Received bytes that are not yet a whole message.
    pub(super) stream: Vec<u8>,
    /// The client sends only valid messages, so the answers must be valid.
    pub(super) sane: bool,
    /// The client uses the console.
    pub(super) admin: bool,
    /// How many of its messages end in a ReadyForQuery, login included; how many came.
    pub(super) asked: usize,
    pub(super) ready: usize,
    pub(super) key: Option<(u32, Vec<u8>)>,
}

impl Client {
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if !self.sane {
            return;
        }
        self.stream.extend_from_slice(bytes);
        while let Some(read) = header(&self.stream) {
            let header = read.expect("a client is told what is framed");
            assert!(
                tag::is_backend(header.tag),
                "a client is told {}",
                header.tag
            );
            if self.stream.len() < header.total() {
                return;
            }
            match header.tag {
                tag::backend::READY => self.ready += 1,
                tag::backend::BACKEND_KEY_DATA => {
                    let body = &self.stream[5..header.total()];
                    let pid = u32::from_be_bytes(body[..4].try_into().unwrap());
                    self.key = Some((pid, body[4..].to_vec()));
                }
                _ => {}
            }
            assert!(
                self.ready <= self.asked,
                "a ReadyForQuery that nobody asked for"
            );
            self.stream.drain(..header.total());
        }
    }
}
