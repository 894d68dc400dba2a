//! A client: what it was told must be framed, and no more than it asked for.

use howdah_wire::frame::header;
use howdah_wire::tag;

#[derive(Default)]
pub(super) struct Client {
    /// What was sent to it and is no whole message.
    pub(super) stream: Vec<u8>,
    /// It says only what makes sense, so what it is told must, too.
    pub(super) sane: bool,
    /// It talks to the console.
    pub(super) admin: bool,
    /// How many of its messages want a ReadyForQuery, its login included, and how many came.
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
