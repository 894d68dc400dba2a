//! LISTEN, UNLISTEN and NOTIFY of a session: they take effect at its commit.

use std::collections::BTreeMap;

use howdah_wire::tag::backend;
use howdah_wire::write;

use super::{Block, Deed, Session};
use crate::board::{Note, Shared};
use crate::sql::Token;

/// The channels and notifications of a session.
#[derive(Default)]
pub(super) struct Channels {
    /// The notifications of its database, and its own process id. A client's reference has neither.
    board: Option<(Shared, u32)>,
    /// The channels that the session listens to, each since a position.
    listened: BTreeMap<String, usize>,
    /// All notifications before this position were sent.
    told: usize,
    /// The changes of the open transaction.
    changes: Vec<Listening>,
    notes: Vec<Note>,
    /// The statements that ran in the transaction.
    tokens: Vec<Token>,
}

/// A change of the channels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listening {
    /// The statement with the change.
    pub token: Option<Token>,
    /// The channel; `None` for all.
    pub channel: Option<String>,
    /// True for LISTEN, false for UNLISTEN.
    pub listens: bool,
    /// The change was made in a transaction block.
    pub in_block: bool,
}

/// The state of a transaction at a savepoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    changes: usize,
    notes: usize,
}

impl Session {
    /// Makes the session a process of a database.
    pub fn on_board(&mut self, board: Shared, pid: u32) {
        self.channels.told = board.borrow().position();
        self.channels.board = Some((board, pid));
    }

    pub(super) fn channels_change(
        &mut self,
        token: Option<Token>,
        channel: Option<&str>,
        listens: bool,
    ) {
        let in_block = self.block != Block::None;
        self.channels.changes.push(Listening {
            token,
            channel: channel.map(String::from),
            listens,
            in_block,
        });
    }

    pub(super) fn notifies(&mut self, channel: &str, token: Option<Token>, shown: bool) {
        if let Some((_, pid)) = &self.channels.board {
            let (pid, channel) = (*pid, channel.to_string());
            // The pooler's own notification belongs to no client.
            let nobody = Token {
                client: 0,
                number: 0,
            };
            let token = token.unwrap_or(nobody);
            self.channels.notes.push(Note {
                pid,
                channel,
                token,
                shown,
            });
        }
    }

    pub(super) fn channels_ran(&mut self, token: Token) {
        self.channels.tokens.push(token);
    }

    pub(super) fn channels_mark(&self) -> Mark {
        Mark {
            changes: self.channels.changes.len(),
            notes: self.channels.notes.len(),
        }
    }

    pub(super) fn channels_back_to(&mut self, mark: Mark) {
        self.channels.changes.truncate(mark.changes);
        self.channels.notes.truncate(mark.notes);
    }

    /// The transaction is committed, or rolled back.
    pub(super) fn channels_end(&mut self, kept: bool) {
        let channels = &mut self.channels;
        let changes = std::mem::take(&mut channels.changes);
        let notes = std::mem::take(&mut channels.notes);
        let tokens = std::mem::take(&mut channels.tokens);
        let mut board = channels.board.as_ref().map(|(board, _)| board.borrow_mut());
        let before = board.as_ref().map_or(0, |board| board.position());
        if kept {
            if channels.listened.is_empty() {
                channels.told = before;
            }
            for change in changes {
                match (&change.channel, change.listens) {
                    (Some(name), true) => {
                        channels.listened.entry(name.clone()).or_insert(before);
                    }
                    (Some(name), false) => {
                        channels.listened.remove(name);
                    }
                    (None, _) => channels.listened.clear(),
                }
                self.deeds.push(Deed::Listening(change));
            }
            if let Some(board) = &mut board {
                board.notes.extend(notes);
            }
        }
        if let Some(board) = &mut board {
            let behind = board.position();
            for token in tokens {
                board.transaction_ends(token, before, behind);
            }
        }
    }

    /// The session is idle: sends the notifications that came meanwhile. True if there were any.
    pub fn tell_notes(&mut self) -> bool {
        let channels = &mut self.channels;
        let Some((board, _)) = &channels.board else {
            return false;
        };
        let board = board.borrow();
        let from = std::mem::replace(&mut channels.told, board.position());
        let before = self.out.len();
        for (at, note) in board.notes.iter().enumerate().skip(from) {
            if channels
                .listened
                .get(&note.channel)
                .is_none_or(|since| at < *since)
            {
                continue;
            }
            write::message(&mut self.out, backend::NOTIFICATION, |buf| {
                buf.extend_from_slice(&note.pid.to_be_bytes());
                buf.extend_from_slice(note.channel.as_bytes());
                buf.push(0);
                buf.extend_from_slice(note.token.to_string().as_bytes());
                buf.push(0);
            });
        }
        self.out.len() > before
    }

    /// True if a notification was not sent yet.
    pub fn has_notes(&self) -> bool {
        let channels = &self.channels;
        let board = channels.board.as_ref();
        !channels.listened.is_empty()
            && board.is_some_and(|(board, _)| board.borrow().position() > channels.told)
    }

    /// The channels that the session listens to.
    pub fn listened(&self) -> impl Iterator<Item = &str> {
        self.channels.listened.keys().map(String::as_str)
    }
}
