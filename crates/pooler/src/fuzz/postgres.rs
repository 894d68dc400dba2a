//! A minimal PostgreSQL process, at the other end of a server connection.

use std::collections::{BTreeSet, VecDeque};

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, cstr, header};
use howdah_wire::frontend::{BindNames, Parse, Subject};
use howdah_wire::tag::{backend, frontend};
use howdah_wire::write;

use crate::statement::is_ours;

/// The state of the process.
#[derive(Debug)]
pub(super) struct Postgres {
    /// Received bytes that are not yet a whole message.
    stream: Vec<u8>,
    started: bool,
    /// Messages without an answer so far.
    asked: VecDeque<(u8, Vec<u8>)>,
    status: Status,
    /// An error was sent, and no Sync has come since.
    skips: bool,
    /// The process reads the rows of a COPY; true if a Query began the COPY.
    copies: Option<bool>,
    statements: BTreeSet<Vec<u8>>,
    /// The process sends only valid answers, so its requests must be valid.
    pub(super) honest: bool,
    /// A CancelRequest or a Terminate came: the process closes the connection.
    pub(super) over: bool,
}

impl Postgres {
    pub(super) fn new() -> Postgres {
        Postgres {
            stream: Vec::new(),
            started: false,
            asked: VecDeque::new(),
            status: Status::Idle,
            skips: false,
            copies: None,
            statements: BTreeSet::new(),
            honest: true,
            over: false,
        }
    }

    /// True if an answer is due.
    pub(super) fn owes(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Receives bytes. Every message must be one that a client may send.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
        if !self.started && self.stream.len() >= 8 {
            let length = u32::from_be_bytes(self.stream[..4].try_into().unwrap()) as usize;
            if self.stream.len() < length {
                return;
            }
            self.started = true;
            self.over = self.stream[4..6] == [0x04, 0xd2];
            self.stream.drain(..length);
            self.asked.push_back((0, Vec::new()));
        }
        while self.started
            && let Some(read) = header(&self.stream)
        {
            let header = read.expect("a server is sent what is framed");
            if self.stream.len() < header.total() {
                return;
            }
            let body = self.stream[HEADER..header.total()].to_vec();
            self.stream.drain(..header.total());
            self.over |= header.tag == frontend::TERMINATE;
            self.asked.push_back((header.tag, body));
        }
    }

    /// Answers the oldest message. `how` chooses among the possible answers.
    pub(super) fn answer(&mut self, how: u8) -> Vec<u8> {
        let mut buf = Vec::new();
        let Some((tag, body)) = self.asked.pop_front() else {
            return buf;
        };
        let fails = how % 8 == 7;
        match tag {
            0 => greet(&mut buf),
            frontend::SYNC if self.copies.is_none() => {
                self.skips = false;
                write::ready(&mut buf, self.status);
            }
            _ if self.skips => {}
            _ if self.copies.is_some() => self.copy(&mut buf, tag, fails),
            frontend::QUERY => self.query(&mut buf, &body, fails, how),
            frontend::FUNCTION_CALL => {
                if fails {
                    self.fail(&mut buf, "XX000")
                } else {
                    write::message(&mut buf, backend::FUNCTION_CALL, |b| {
                        b.extend_from_slice(&[0xff; 4]);
                    })
                }
                write::ready(&mut buf, self.status);
            }
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::CLOSE
            | frontend::EXECUTE => self.extended(&mut buf, tag, &body, fails, how),
            // Flush, and the rest of a COPY.
            _ => {}
        }
        buf
    }

    fn fail(&mut self, buf: &mut Vec<u8>, code: &str) {
        if self.status == Status::Transaction {
            self.status = Status::Failed;
        }
        write::error(buf, "ERROR", code, "so it is");
    }

    fn fail_group(&mut self, buf: &mut Vec<u8>, code: &str) {
        self.fail(buf, code);
        self.skips = true;
    }

    fn query(&mut self, buf: &mut Vec<u8>, body: &[u8], fails: bool, how: u8) {
        let text = body.strip_suffix(b"\0").unwrap_or(body);
        self.statements.remove(&b""[..]);
        let aborted = self.status == Status::Failed && !matches!(text, b"commit" | b"rollback");
        if fails || aborted {
            self.fail(buf, if aborted { "25P02" } else { "42P01" });
        } else {
            self.run(buf, text, how);
            if text == b"copy in" && self.copies.is_some() {
                self.copies = Some(true);
                return;
            }
        }
        write::ready(buf, self.status);
    }

    /// Runs a text. Unknown texts return one row.
    fn run(&mut self, buf: &mut Vec<u8>, text: &[u8], how: u8) {
        match text {
            b"begin" => {
                if self.status == Status::Idle {
                    self.status = Status::Transaction;
                }
                write::command_complete(buf, "BEGIN");
            }
            b"commit" | b"rollback" => {
                self.status = Status::Idle;
                write::command_complete(buf, "COMMIT");
            }
            b"" => write::empty(buf, backend::EMPTY_QUERY),
            b"deallocate all" | b"DEALLOCATE ALL" => {
                self.statements.clear();
                write::command_complete(buf, "DEALLOCATE ALL");
            }
            b"discard all" => {
                self.statements.clear();
                write::command_complete(buf, "DISCARD ALL");
            }
            b"create" => write::command_complete(buf, "CREATE FUNCTION"),
            b"copy in" => {
                write::message(buf, backend::COPY_IN, |b| b.extend_from_slice(&[0; 3]));
                self.copies = Some(false);
            }
            text if text.starts_with(b"set") => {
                write::command_complete(buf, "SET");
                write::parameter_status(buf, b"TimeZone", if how & 8 == 0 { b"X" } else { b"Y" });
            }
            _ => {
                if how & 16 != 0 {
                    write::notice(buf, "NOTICE", "00000", "look", None);
                }
                write::data_row(buf, [Some(&b"1"[..])].into_iter());
                write::command_complete(buf, "SELECT 1");
            }
        }
    }

    fn copy(&mut self, buf: &mut Vec<u8>, tag: u8, fails: bool) {
        match tag {
            frontend::COPY_DATA if !fails => return,
            frontend::FLUSH | frontend::SYNC => return,
            frontend::COPY_DONE if !fails => write::command_complete(buf, "COPY 1"),
            frontend::COPY_DONE | frontend::COPY_DATA | frontend::COPY_FAIL => {
                self.fail(buf, "57014");
                self.skips = true;
            }
            _ => {
                self.fail(buf, "08P01");
                self.skips = true;
            }
        }
        if self.copies.take() == Some(true) {
            self.skips = false;
            write::ready(buf, self.status);
        }
    }

    fn extended(&mut self, buf: &mut Vec<u8>, tag: u8, body: &[u8], fails: bool, how: u8) {
        let fails = fails || self.status == Status::Failed && tag != frontend::CLOSE;
        match tag {
            frontend::PARSE => {
                let Ok(parse) = Parse::read(body) else {
                    return self.fail_group(buf, "08P01");
                };
                let known = self.statements.contains(parse.name);
                if parse.name.is_empty() {
                    self.statements.remove(parse.name);
                }
                if fails {
                    return self.fail_group(buf, "42601");
                }
                if known && !parse.name.is_empty() {
                    self.not_ours(parse.name, "is there already");
                    return self.fail_group(buf, "42P05");
                }
                self.statements.insert(parse.name.to_vec());
                write::empty(buf, backend::PARSE_COMPLETE);
            }
            frontend::BIND => {
                let Some(bind) = BindNames::read(body) else {
                    return self.fail_group(buf, "08P01");
                };
                if fails || !self.has(bind.statement) {
                    return self.fail_group(buf, "26000");
                }
                write::empty(buf, backend::BIND_COMPLETE);
            }
            frontend::DESCRIBE => {
                match Subject::read(tag, body) {
                    Ok(Subject::Statement(name)) if fails || !self.has(name) => {
                        return self.fail_group(buf, "26000");
                    }
                    Ok(Subject::Statement(_)) => {
                        write::message(buf, backend::PARAMETER_DESCRIPTION, |b| {
                            b.extend_from_slice(&[0; 2]);
                        });
                    }
                    Ok(_) if !fails => {}
                    _ => return self.fail_group(buf, "34000"),
                }
                write::empty(buf, backend::NO_DATA);
            }
            frontend::CLOSE => {
                if let Ok(Subject::Statement(name)) = Subject::read(tag, body) {
                    self.statements.remove(name);
                }
                write::empty(buf, backend::CLOSE_COMPLETE);
            }
            _ if fails => self.fail_group(buf, "22012"),
            _ if how & 32 != 0 => write::empty(buf, backend::PORTAL_SUSPENDED),
            _ => {
                write::data_row(buf, [Some(&b"1"[..])].into_iter());
                write::command_complete(buf, "SELECT 1");
            }
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        let has = self.statements.contains(name);
        if !has {
            self.not_ours(name, "is not there");
        }
        has
    }

    /// Howdah must know about all statements with Howdah's own names.
    fn not_ours(&self, name: &[u8], why: &str) {
        let special = [crate::statement::VOID, crate::statement::UNKNOWN].contains(&name);
        let shown = String::from_utf8_lossy(cstr(name).map_or(name, |(name, _)| name));
        assert!(
            !self.honest || special || !is_ours(name),
            "statement {shown} {why}"
        );
    }
}

fn greet(buf: &mut Vec<u8>) {
    write::authentication(buf, 0, b"");
    for (name, value) in [
        ("server_version", "18.0"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("TimeZone", "X"),
        ("standard_conforming_strings", "on"),
        ("application_name", ""),
    ] {
        write::parameter_status(buf, name.as_bytes(), value.as_bytes());
    }
    write::key_data(buf, 77, &[1, 2, 3, 4]);
    write::ready(buf, Status::Idle);
}
