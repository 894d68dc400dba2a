//! The console: the databases `pgbouncer` and `howdah`, where administrators look and order.

use std::collections::HashSet;
use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::write;

use crate::client::State;
use crate::event::{ClientId, Out, Peer, WorkerId};
use crate::fault::Fault;
use crate::pooler::Pooler;

/// True for the console's databases.
pub fn is_console(database: &str) -> bool {
    matches!(database, "pgbouncer" | "howdah")
}

/// An administrator's connection.
#[derive(Debug, Default)]
pub struct Session {}

/// What a console asks all workers for.
#[derive(Debug)]
pub struct Survey {
    /// Whose console.
    pub from: (WorkerId, ClientId),
}

/// What a worker has.
#[derive(Debug)]
pub struct Report {
    /// Whose console.
    pub to: ClientId,
}

/// What all consoles of a worker share.
#[derive(Debug)]
pub struct Consoles {
    names: HashSet<Arc<str>>,
    nobody: Arc<str>,
}

impl Default for Consoles {
    fn default() -> Self {
        Consoles { names: HashSet::new(), nobody: "".into() }
    }
}

impl Consoles {
    /// The name of who has not said one yet.
    pub fn nobody(&self) -> Arc<str> {
        self.nobody.clone()
    }

    /// The shared copy of a name.
    pub fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.names.get(name) {
            return shared.clone();
        }
        if self.names.len() >= 4096 {
            self.names.retain(|name| Arc::strong_count(name) > 1);
        }
        let shared: Arc<str> = name.into();
        self.names.insert(shared.clone());
        shared
    }

    /// An administrator has left.
    pub fn left(&mut self, _id: ClientId) {}

    /// An administrator asked to cancel what it waits for.
    pub fn cancelled(&mut self, _id: ClientId) {}
}

impl Pooler {
    /// An administrator has proved who it is.
    pub(crate) fn open_console(&mut self, id: ClientId, out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.state = State::Console(Box::default());
        client.welcomed = true;
        out.send_with(Peer::Client(id), |buf| {
            write::authentication(buf, 0, b"");
            write::ready(buf, Status::Idle);
        });
    }

    /// Bytes of an administrator.
    pub(crate) fn console_bytes(&mut self, id: ClientId, _bytes: &[u8], out: &mut Out) {
        self.disconnect(id, Fault::NotAllowed, out);
    }

    /// A console asks.
    pub(crate) fn survey(&mut self, _survey: &Survey, _out: &mut Out) {}

    /// A worker answers.
    pub(crate) fn report(&mut self, _report: Report, _out: &mut Out) {}

    /// RELOAD is done.
    pub(crate) fn reloaded(&mut self, _id: ClientId, _result: Result<(), String>, _out: &mut Out) {}

    /// Something moved that a console may wait for.
    pub(crate) fn consoles_move(&mut self, _out: &mut Out) {}
}
