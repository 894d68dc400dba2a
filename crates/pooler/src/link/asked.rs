//! How closely a client's Query is read, and how much of the Query must be there for that.

use std::sync::Arc;

use howdah_wire::frame::{HEADER, Header};

use super::upstream::{Step, await_whole, is_execute, whole};
use crate::account::Allowance;
use crate::client::Client;
use crate::effect::first::may_matter;
use crate::effect::{Depth, VolatileNames, is_read};
use crate::inbox::Chunk;
use crate::limits;
use crate::opening::QueryRead;
use crate::session::Tracking;
use crate::signal::SignalText;

/// Reads a client's Queries.
pub(super) struct QueryReader<'a> {
    /// The client.
    pub client: &'a mut Client,
    /// The client has a server.
    pub has_server: bool,
    /// How to treat state that the client leaves.
    pub tracking: Tracking,
    /// Howdah renames the client's statements.
    pub renames: bool,
    /// The text decides where the client gets a server.
    pub routes: bool,
    /// The database's volatile functions, if single reads go to standbys.
    pub volatile: Option<&'a VolatileNames>,
    /// The login's share of the account.
    pub share: &'a Arc<Allowance>,
}

impl QueryReader<'_> {
    /// Reads a Query, once so much of it is there as is needed. The gist stays blank if the text is
    /// too long to be held.
    #[inline]
    pub(super) fn read(&mut self, chunk: &Chunk<'_>, header: Header, read: &mut QueryRead) -> Step {
        let depth = self.depth(chunk.rest(), header);
        if read.gist.depth != Depth::NOTHING {
            if read.gist.depth == depth {
                read.filled = true;
                return Ok(());
            }
            // A setting has changed since.
            read.forget();
        }
        match whole(chunk, header) {
            Some(body) => {
                let text = body.strip_suffix(b"\0").unwrap_or(body);
                read.gist.read(text, depth);
                if let Some(volatile) = self.volatile.filter(|_| depth.any(Depth::READ)) {
                    read.gist.tell_read(is_read(text, volatile));
                }
            }
            None if needs_all(depth, &chunk.rest()[HEADER..], header) => {
                await_whole(self.client, self.share, self.has_server, header)?;
            }
            None => {}
        }
        read.filled = true;
        Ok(())
    }

    /// How closely a Query is read. `front` is its beginning.
    #[inline]
    fn depth(&self, front: &[u8], header: Header) -> Depth {
        let most = match self.tracking {
            _ if self.renames && is_execute(front) => limits::PARSE as usize,
            // Only names of statements matter.
            Tracking::Nothing if self.renames && !self.client.statements.is_empty() => {
                limits::FRONT
            }
            Tracking::Nothing => 0,
            _ => limits::QUERY_READ,
        };
        let mut depth = Depth::NOTHING;
        if header.total() <= most {
            depth = Depth::EFFECTS;
        }
        if header.total() <= limits::FRONT {
            depth = depth.and(Depth::ACTING).and(Depth::SIGNAL);
            if self.client.asked.is_some() || self.client.asked_for_more() {
                depth = depth.and(Depth::AMONG);
            }
        }
        if self.routes && header.total() <= limits::FRONT {
            depth = depth.and(Depth::ROUTING);
            if self.volatile.is_some() {
                depth = depth.and(Depth::READ);
            }
        }
        depth
    }
}

/// True if a Query must be there as a whole to be read so closely. `front` is the beginning of its
/// text.
#[cold]
fn needs_all(depth: Depth, front: &[u8], header: Header) -> bool {
    let is_signal = header.body <= limits::SIGNAL && SignalText::may_be(front);
    depth.any(Depth::EFFECTS.and(Depth::READ))
        || depth.any(Depth::ACTING) && (may_matter(front) || is_signal)
        || depth.any(Depth::AMONG) && header.total() <= limits::SEVERAL
}
