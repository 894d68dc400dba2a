//! The table of a worker's connections.

use howdah_pooler::event::{Close, Peer};

use crate::driver::Key;
use crate::output::{FreeBuffers, Output};

/// No slot.
const NOWHERE: u32 = u32::MAX;

/// One slot of the table.
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    pub(crate) generation: u32,
    pub(crate) stage: Stage,
    pub(crate) flags: Flags,
    pub(crate) output: Option<Box<Output>>,
}

// Ten thousand idle clients must need little memory.
const _: () = assert!(size_of::<Connection>() <= 40);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The slot is not in use.
    Free,
    Connecting,
    Open,
    /// The connection is detached when all its output is sent.
    Detaching,
    /// The driver is detaching the connection.
    Leaving,
    /// The connection is closed when all its output is sent. Then it lingers, if the [`Close`]
    /// requires that.
    Flushing(Close),
    /// All output is sent, and the sending side is shut down. The peer's end of file is awaited.
    Lingering,
    /// The driver is closing the connection.
    Closing,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Flags {
    /// `Pooler` wants to receive.
    pub(crate) receiving: bool,
    /// The driver has reported the end of the stream.
    pub(crate) ended: bool,
    /// A send failed.
    pub(crate) broken: bool,
    /// `Lost` was reported.
    pub(crate) lost: bool,
    /// TLS has failed. However the connection is closed, an alert with the reason is sent.
    pub(crate) alerts: bool,
    /// The driver is sending a block.
    pub(crate) sending: bool,
    /// The connection is in the list `dirty`.
    pub(crate) dirty: bool,
    pub(crate) congested: bool,
    /// The connection has a TLS session or is in a handshake.
    pub(crate) secure: bool,
    /// The TLS handshake is under way: nothing can be sent.
    pub(crate) handshake: bool,
}

/// All connections of a worker, by key and by peer.
#[derive(Default)]
pub(crate) struct Connections {
    slots: Vec<Connection>,
    free: Vec<u32>,
    /// The slot of each client, by the client's index.
    clients: Vec<u32>,
    servers: Vec<u32>,
}

impl Connections {
    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The memory of all output blocks, in bytes.
    pub(crate) fn output_memory(&self) -> usize {
        let outputs = self.slots.iter().filter_map(|c| c.output.as_ref());
        outputs
            .flat_map(|o| o.blocks.iter().map(Vec::capacity))
            .sum()
    }

    /// Gives a peer a slot.
    pub(crate) fn insert(&mut self, peer: Peer, stage: Stage) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Connection {
                peer,
                generation: 0,
                stage: Stage::Free,
                flags: Flags::default(),
                output: None,
            });
            self.slots.len() as u32 - 1
        });
        let connection = &mut self.slots[slot as usize];
        connection.peer = peer;
        connection.stage = stage;
        connection.flags = Flags {
            receiving: true,
            ..Flags::default()
        };
        let key = Key {
            slot,
            generation: connection.generation,
        };
        let (table, index) = match peer {
            Peer::Client(id) => (&mut self.clients, id.index as usize),
            Peer::Server(id) => (&mut self.servers, id.index as usize),
        };
        if table.len() <= index {
            table.resize(index + 1, NOWHERE);
        }
        debug_assert_eq!(table[index], NOWHERE, "{peer:?} is in use");
        table[index] = slot;
        key
    }

    /// Frees a slot. Its output must have been taken.
    pub(crate) fn remove(&mut self, key: Key) {
        let connection = &mut self.slots[key.slot as usize];
        connection.stage = Stage::Free;
        debug_assert!(connection.output.is_none());
        connection.generation = connection.generation.wrapping_add(1);
        match connection.peer {
            Peer::Client(id) => self.clients[id.index as usize] = NOWHERE,
            Peer::Server(id) => self.servers[id.index as usize] = NOWHERE,
        }
        self.free.push(key.slot);
    }

    /// The connection of a key, unless the slot has been reused.
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Connection> {
        let connection = &mut self.slots[key.slot as usize];
        (connection.generation == key.generation).then_some(connection)
    }

    /// The connection of a peer, unless it is ending.
    pub(crate) fn find(&mut self, peer: Peer) -> Option<(Key, &mut Connection)> {
        let slot = match peer {
            Peer::Client(id) => *self.clients.get(id.index as usize)?,
            Peer::Server(id) => *self.servers.get(id.index as usize)?,
        };
        let connection = self.slots.get_mut(slot as usize)?;
        let alive = matches!(
            connection.stage,
            Stage::Connecting | Stage::Open | Stage::Detaching | Stage::Leaving
        );
        let key = Key {
            slot,
            generation: connection.generation,
        };
        (alive && connection.peer == peer).then_some((key, connection))
    }
}

impl Connection {
    /// Appends bytes to the output. False if nothing was appended, because the connection is broken
    /// or in a handshake.
    pub(crate) fn append(&mut self, bytes: &[u8], memory: &mut FreeBuffers) -> bool {
        if bytes.is_empty() || self.flags.broken || self.flags.handshake {
            return false;
        }
        self.output
            .get_or_insert_with(|| memory.output())
            .append(bytes, memory);
        true
    }

    /// Marks the connection dirty. True if the caller must add it to the list.
    pub(crate) fn flag_dirty(&mut self) -> bool {
        let flag = self.output.is_some() && !self.flags.sending && !self.flags.dirty;
        self.flags.dirty |= flag;
        flag
    }
}
