//! The results of an event, as lines of a script.

use std::fmt::Write;

use howdah_pooler::cancel::seek::Finding;
use howdah_pooler::event::{Action, Address, Close, Peer, Question};
use howdah_pooler::listen::{FromListener, ToListener};
use howdah_pooler::mail::{FromBroker, Mail};
use howdah_pooler::note::Level;
use howdah_pooler::parcel::Parcel;
use howdah_pooler::queries::Seen;
use howdah_pooler::tls::TlsStart;

use super::{Asked, World};
use crate::messages::word;

/// The greeting of a client with default settings.
const WELCOME: &str = " R(0) S(server_version=17.0) S(client_encoding=UTF8) \
    S(DateStyle=ISO, MDY) S(TimeZone=GMT) S(standard_conforming_strings=on) S(application_name=)";

/// The messages around a client's settings, if the client's first messages follow at once.
const SETTINGS_BEGIN: &str =
    " P(,BEGIN ISOLATION LEVEL READ COMMITTED) B() E P(,SELECT pg_catalog.set_config";
const SETTINGS_END: &str = " B() E P(,COMMIT) B() E";

impl World {
    pub(super) fn act(&mut self, worker: usize, action: Action, event: &[u8], made: &[u8]) {
        match action {
            Action::Adopt(id) => {
                let name = self.adopting.clone();
                self.peers.insert(name, (worker, Peer::Client(id)));
            }
            Action::Send(peer, range) => self.sent(worker, peer, &made[range]),
            Action::Relay(peer, range) => self.sent(worker, peer, &event[range]),
            Action::Receive { peer, on } => {
                let on = if on { "on" } else { "off" };
                self.tell(&format!("{} receive {on}", self.name(worker, peer)));
            }
            Action::Connect(id, Address::Tcp(ip, port)) => {
                self.servers += 1;
                let name = format!("s{}", self.servers);
                self.peers.insert(name.clone(), (worker, Peer::Server(id)));
                self.tell(&format!("{name} connect {ip}:{port}"));
            }
            Action::Close { peer, how } => {
                let name = self.name(worker, peer);
                let how = match how {
                    Close::Flush => "close",
                    Close::Await => "close, await",
                    Close::Part => "part",
                    Close::Abort => "abort",
                };
                self.tell(&format!("{name} {how}"));
                self.peers.remove(&name);
                self.streams.remove(&name);
                self.closed.push_back((worker, peer));
            }
            Action::StartTls(peer, start) => {
                let name = self.name(worker, peer);
                self.flush();
                self.streams.remove(&name);
                self.tell(&match *start {
                    TlsStart::Accept { direct, received } => {
                        format!(
                            "{name} accept tls, direct {direct}, {} bytes",
                            received.len()
                        )
                    }
                    TlsStart::Connect(tls) => {
                        let mode = format!("{:?}", tls.mode);
                        format!(
                            "{name} connect tls, {mode}, {}, direct {}",
                            tls.host, tls.direct
                        )
                    }
                });
            }
            Action::LookForEnd(peer) => {
                self.tell(&format!("has {} gone?", self.name(worker, peer)));
            }
            Action::TellFlushed(peer) => {
                self.tell(&format!("{} tell when flushed", self.name(worker, peer)));
            }
            Action::Detach(peer) => self.tell(&format!("{} detach", self.name(worker, peer))),
            Action::Attach(peer, socket) => {
                let name = self.loose[*socket.inside::<usize>()].clone();
                self.tell(&format!("{name} attach to {worker}"));
                self.peers.insert(name, (worker, peer));
            }
            Action::Discard(socket) => {
                let name = self.loose[*socket.inside::<usize>()].clone();
                self.tell(&format!("{name} discard"));
            }
            Action::Post(to, mail) if usize::from(to.0) == worker => {
                match (&mut self.next_turn, &mail) {
                    (Some(later), Mail::Seek(seek)) if seek.again => {
                        later.push_back((worker, mail));
                    }
                    _ => self.own_mail.push_back((worker, mail)),
                }
            }
            Action::Post(to, mail) => {
                self.tell(&format!("{worker} to {}: {}", to.0, mail_word(&mail)));
                self.mail.push_back((usize::from(to.0), mail));
            }
            Action::Broker(mail) => self.tell_broker(worker, mail),
            Action::Note(note) if note.level <= Level::Warning => {
                self.tell(&format!("{}: {}", note.level, note.line()));
            }
            Action::Note(_) => {}
            Action::Tell(seen) => match *seen {
                Seen::Slow(slow) => {
                    let text = slow.note().text;
                    let (_, text) = text.split_once(" slow query: ").expect("its prefix");
                    let parts = text.split(", fingerprint ").collect::<Vec<_>>();
                    let (_, query) = parts[1].split_once(": ").expect("a fingerprint");
                    self.tell(&format!("slow: {}: {query}", parts[0]));
                }
                Seen::Traced(traced) => {
                    let (place, text) = (traced.place, traced.text.text.clone());
                    let parent = place
                        .parent
                        .map_or("none".into(), |span| format!("{span:x}"));
                    let wait = traced.wait_ns / 1_000_000;
                    self.tell(&format!("trace below {parent}, wait {wait} ms: {text}"));
                }
            },
            Action::Ask(question) => self.asked(worker, question),
            other => panic!("{other:?}"),
        }
    }

    /// Shows a question to the control thread.
    fn asked(&mut self, worker: usize, question: Question) {
        match question {
            Question::Accept(_) => {}
            Question::Packed(parcel) => {
                match &*parcel {
                    Parcel::Pool(_) => {}
                    Parcel::Server { parcel, .. } => {
                        let name = self.loose[*parcel.socket.inside::<usize>()].clone();
                        self.tell(&format!("{name} packed"));
                    }
                    Parcel::Client(passenger) => {
                        let mut names = self.loose[*passenger.socket.inside::<usize>()].clone();
                        if let Some((server, _)) = &passenger.server {
                            names = format!(
                                "{names} and {}",
                                self.loose[*server.socket.inside::<usize>()]
                            );
                        }
                        self.tell(&format!("{names} packed"));
                    }
                }
                self.packed.push((worker, *parcel));
            }
            Question::AllPacked(estate) => {
                self.estate = *estate;
                self.tell(&format!("{worker} packed all"));
            }
            Question::CheckPassword {
                ticket,
                user,
                password,
                ..
            } => {
                self.questions
                    .push((worker, Asked::Password(ticket, password)));
                let number = self.questions.len();
                self.tell(&format!("question {number}: the password of {user}"));
            }
            Question::Reload { ticket } => {
                self.questions.push((worker, Asked::Reload(ticket)));
                let number = self.questions.len();
                self.tell(&format!("question {number}: RELOAD"));
            }
            Question::Resolve { ticket, host } => {
                self.questions.push((worker, Asked::Name(ticket)));
                let number = self.questions.len();
                self.tell(&format!("question {number}: where is {host}"));
            }
            Question::Idle(..) => self.tell(&format!("{worker} may end")),
            Question::Load(_) => {}
            Question::LongWaits => self.tell(&format!("{worker} has clients that wait for long")),
            Question::Busy(_) => self.tell(&format!("{worker} has clients again")),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn name(&self, worker: usize, peer: Peer) -> String {
        let found = self.peers.iter().find(|(_, at)| **at == (worker, peer));
        found.map_or_else(|| format!("{peer:?}"), |(name, _)| name.clone())
    }

    fn is_server_user(&self, user: &str) -> bool {
        let entry = &self.config.databases["d"];
        let members = entry.users.values().map(|user| &user.forced_user);
        let mut users = members.chain([&entry.forced_user]).flatten();
        user != "u" && users.any(|known| known == user)
    }

    fn sent(&mut self, worker: usize, peer: Peer, bytes: &[u8]) {
        let name = self.name(worker, peer);
        let from_server = matches!(peer, Peer::Client(_));
        let mut stream = self.streams.remove(&name).unwrap_or_default();
        stream.extend_from_slice(bytes);
        let mut line = String::new();
        // Start-up packets and cancel requests have no tag.
        if !from_server && stream.first() == Some(&0) {
            line.push_str(match stream.get(4..8) {
                Some(&[0x04, 0xd2, 0x16, 0x2e]) => " cancel",
                Some(&[0x04, 0xd2, 0x16, 0x2f]) => " ssl request",
                _ => " startup",
            });
            // Another user than the clients' is shown.
            let user = stream
                .split(|byte| *byte == 0)
                .skip_while(|w| *w != b"user")
                .nth(1);
            let user = user.map(String::from_utf8_lossy).unwrap_or_default();
            if line == " startup" && self.is_server_user(&user) {
                write!(line, "({user})").unwrap();
            }
            stream.clear();
        }
        while let Some((word, size)) = word(&stream, from_server) {
            if let Some(("K", _)) = word.split_once('(') {
                let key = (
                    u32::from_be_bytes(stream[5..9].try_into().unwrap()),
                    stream[9..size].to_vec(),
                );
                self.keys.insert(name.clone(), key);
            }
            write!(line, " {word}").unwrap();
            stream.drain(..size);
        }
        let line = line.replace(WELCOME, " welcome");
        let line = line.replace(SETTINGS_BEGIN, " settings(SELECT pg_catalog.set_config");
        let line = line.replace(SETTINGS_END, "");
        if !line.is_empty() {
            self.tell(&format!("{name} <-{line}"));
        }
        self.streams.insert(name, stream);
    }

    /// Shows messages that are still incomplete at the end of an event.
    pub(super) fn flush(&mut self) {
        let parts: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, bytes)| !bytes.is_empty())
            .map(|(name, bytes)| {
                format!(
                    "{name} <- {} bytes of {}",
                    bytes.len(),
                    char::from(bytes[0])
                )
            })
            .collect();
        for part in parts {
            self.tell(&part);
        }
    }

    /// Adds a line to the log. Names of statements on servers become short, and consecutive
    /// messages to one peer become one line.
    pub(super) fn tell(&mut self, line: &str) {
        let mut line = line.to_string();
        while let Some(at) = line.find("howdah_") {
            let name: String = line[at + 7..]
                .chars()
                .take_while(char::is_ascii_alphanumeric)
                .collect();
            let short = if name.len() == 32 {
                let known = self.statements.iter().position(|known| *known == name);
                let index = known.unwrap_or_else(|| {
                    self.statements.push(name.clone());
                    self.statements.len() - 1
                });
                format!("#{}", index + 1)
            } else {
                format!("#{name}")
            };
            line.replace_range(at..at + 7 + name.len(), &short);
        }
        let last = self
            .log
            .trim_end()
            .rsplit('\n')
            .next()
            .unwrap_or("")
            .to_string();
        if let Some((name, words)) = line.split_once(" <- ")
            && last.starts_with(&format!("{name} <- "))
            && !words.contains(" bytes of ")
        {
            self.log.truncate(self.log.len() - 1);
            writeln!(self.log, " {words}").unwrap();
            return;
        }
        writeln!(self.log, "{line}").unwrap();
    }
}

pub(super) fn mail_word(mail: &Mail) -> String {
    match mail {
        Mail::Client(_) => "client".into(),
        Mail::Server(parcel) => format!("server of {}", parcel.pool.login.database),
        Mail::Brokered(FromBroker::Pinned { granted, .. }) => format!("pinned {granted}"),
        Mail::Brokered(FromBroker::Permit { .. }) => "permit".into(),
        Mail::Brokered(FromBroker::Hungry { worker, .. }) => format!("{} is hungry", worker.0),
        Mail::Brokered(FromBroker::Give { to, .. }) => format!("give to {}", to.0),
        Mail::Brokered(FromBroker::Alone { .. }) => "alone".into(),
        Mail::Brokered(FromBroker::Evict { .. }) => "evict".into(),
        Mail::Brokered(FromBroker::Keep { keep, .. }) => format!("keep {keep}"),
        Mail::Brokered(FromBroker::HeldBack { by, .. }) => format!("held back by {by:?}"),
        Mail::Brokered(FromBroker::Admitted { answer, .. }) => {
            format!("admitted {}", answer.is_ok())
        }
        Mail::Welcome(login, _, _) => format!("welcome of {}", login.database),
        Mail::Survey(_) => "survey".into(),
        Mail::Report(_) => "report".into(),
        Mail::MakeRoom(_) => "make room".into(),
        Mail::Room(_, made) => format!("room {made}"),
        Mail::Seek(_) => "seek".into(),
        Mail::Sought(_, finding) => match finding {
            Finding::Done => "found".into(),
            Finding::NotHere { departed } => format!("not here, {departed} departed"),
        },
        Mail::Move(_) => "move".into(),
        Mail::Landed => "landed".into(),
        Mail::Forwarded(_, done) => format!("forwarded {done}"),
        Mail::SchemaChanged(..) => "schema changed".into(),
        Mail::Standby(_, standby) => format!("standby {standby}"),
        Mail::ToListener(ToListener::Hear(_)) => "hear".into(),
        Mail::ToListener(ToListener::Pass { .. }) => "pass".into(),
        Mail::ToListener(ToListener::Leave { .. }) => "leave".into(),
        Mail::FromListener(FromListener::Hears(_, Ok(()))) => "hears".into(),
        Mail::FromListener(FromListener::Hears(_, Err(why))) => format!("hears not: {why:?}"),
        Mail::FromListener(FromListener::Passed(_)) => "passed".into(),
        Mail::FromListener(FromListener::Notified(..)) => "notified".into(),
        Mail::FromListener(FromListener::Lost(_)) => "listener lost".into(),
        other => format!("{other:?}"),
    }
}
