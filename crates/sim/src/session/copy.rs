//! COPY of a session, in both directions.

use howdah_wire::frame::cstr;
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use super::Session;
use crate::sql::Token;

/// A COPY FROM STDIN.
#[derive(Debug)]
pub(super) struct CopyIn {
    pub token: Option<Token>,
    pub rows: u32,
    pub sum: u32,
}

impl Session {
    pub(super) fn copy_out(&mut self, token: Option<Token>, rows: u32, size: u32) {
        write::message(&mut self.out, backend::COPY_OUT, |buf| {
            buf.extend_from_slice(&[0, 0, 1, 0, 0]);
        });
        let token = token.map_or_else(|| "nobody".into(), |token| token.to_string());
        for row in 0..rows {
            let line = format!("{token}/{row} ").repeat(1 + size as usize / 8);
            write::message(&mut self.out, backend::COPY_DATA, |buf| {
                buf.extend_from_slice(line.as_bytes());
            });
        }
        write::empty(&mut self.out, backend::COPY_DONE);
    }

    pub(super) fn copy_message(&mut self, tag: u8, body: &[u8]) {
        let Some(copy) = &mut self.copy else { return };
        match tag {
            frontend::COPY_DATA => {
                copy.rows += 1;
                for &byte in body {
                    copy.sum = copy.sum.wrapping_mul(31).wrapping_add(u32::from(byte));
                }
            }
            frontend::COPY_DONE => {
                // The tag has a checksum of the rows that arrived, so that the client can check
                // them.
                let done = format!("COPY {}{:010}", copy.rows, copy.sum);
                self.changes.extend(copy.token);
                self.copy = None;
                write::command_complete(&mut self.out, &done);
                if self.rest.is_some() {
                    self.go_on();
                }
            }
            frontend::COPY_FAIL => {
                let why = cstr(body).map_or(&[][..], |(text, _)| text);
                let why = String::from_utf8_lossy(why);
                self.copy = None;
                self.fail(&("57014", format!("COPY from stdin failed: {why}")));
            }
            frontend::FLUSH | frontend::SYNC => {}
            _ => {
                self.copy = None;
                let text = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                self.fail(&("08P01", text));
            }
        }
    }
}
