//! Records that TLS sessions send on their own, and how TLS connections end.

use howdah_pooler::event::Event;

use super::Sockets;
use crate::connections::Stage;
use crate::driver::{Driver, Key};
use crate::secure::broken;

impl<D: Driver> Sockets<D> {
    /// Queues the records that a session must send on its own, before further output.
    pub(super) fn say_records(&mut self, key: Key) {
        let records = self
            .sessions
            .get(key)
            .and_then(|session| session.take_output());
        if let Some(records) = records {
            self.queue_records(key, records);
        }
    }

    /// Queues records before the output that is not encrypted yet.
    pub(super) fn queue_records(&mut self, key: Key, records: Vec<u8>) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        if connection.flags.broken {
            return;
        }
        let output = connection
            .output
            .get_or_insert_with(|| self.memory.output());
        output.insert_ready(records);
        self.mark_dirty(key);
    }

    /// Sends close_notify after all queued output. True if there is something to send.
    pub(super) fn say_close(&mut self, key: Key) -> bool {
        if let Some(session) = self.sessions.get(key) {
            session.close();
            self.say_records(key);
        }
        self.table.get(key).is_some_and(|c| c.output.is_some())
    }

    /// The session is over. Bytes that were not decrypted are dropped.
    pub(super) fn lose_sealed(&mut self, key: Key, why: Option<String>) {
        let Some(connection) = self.table.get(key) else {
            return;
        };
        if matches!(connection.stage, Stage::Detaching | Stage::Leaving) {
            connection.stage = Stage::Open;
        }
        if !std::mem::replace(&mut connection.flags.lost, true) {
            let peer = connection.peer;
            self.tell(Event::Lost(peer, why));
        }
    }

    /// Output can't be encrypted: the session is over.
    pub(super) fn seal_failed(&mut self, key: Key, why: &str) {
        self.drop_output(key);
        let Some(connection) = self.table.get(key) else {
            return;
        };
        connection.flags.broken = true;
        let peer = connection.peer;
        match connection.stage {
            Stage::Flushing(_) => self.begin_close(key),
            Stage::Open | Stage::Detaching => self.lose_sealed(key, Some(broken(peer, why))),
            _ => {}
        }
    }
}
