//! `in_hot_standby`: the one reported parameter that is no session's but the whole PostgreSQL's. A
//! promotion changes it under everybody, and each session of PostgreSQL tells that once, to whoever
//! has the server then. Here all who have been told something else are told, too: newcomers in
//! their greeting, others when they are next given a server that said so.

use std::sync::Arc;

use howdah_wire::write;

use crate::client::Client;
use crate::event::{Action, ClientId, Out, Peer, WorkerId};
use crate::mail::Mail;
use crate::pool::{Parameter, PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::server::Server;

/// The parameter's name.
pub const NAME: &[u8] = b"in_hot_standby";

/// What a value of it means.
pub fn read(value: &[u8]) -> bool {
    value == b"on"
}

/// What a greeting says of it; nothing before PostgreSQL 14.
pub fn among(parameters: &[Parameter]) -> Option<bool> {
    let (_, value) = parameters.iter().find(|(name, _)| **name == *NAME)?;
    Some(read(value))
}

fn word(standby: bool) -> &'static [u8] {
    if standby { b"on" } else { b"off" }
}

/// Tells a client that is given a server, if it was told something else before.
#[inline]
pub fn tell(id: ClientId, client: &mut Client, server: &Server, out: &mut Out) {
    if let (Some(told), Some(said)) = (client.standby, server.standby)
        && told != said
    {
        client.set_told_standby(Some(said));
        out.send_with(Peer::Client(id), |buf| {
            write::parameter_status(buf, NAME, word(said));
        });
    }
}

impl Pooler {
    /// A server has told of it outside of a login: newcomers are told so from now on, on every
    /// worker.
    pub(crate) fn standby_reported(&mut self, pool_id: PoolId, standby: bool, out: &mut Out) {
        if !self.set_standby(pool_id, standby) {
            return;
        }
        let key = &self.pools.at(pool_id).key;
        for worker in 0..self.workers {
            if worker != self.worker.0 {
                let mail = Mail::Standby(key.clone(), standby);
                out.push(Action::Post(WorkerId(worker), mail));
            }
        }
    }

    /// Another worker's server has.
    pub(crate) fn learn_standby(&mut self, key: &PoolKey, standby: bool) {
        if let Some(id) = self.pools.find(key) {
            self.set_standby(id, standby);
        }
    }

    /// Returns whether that is news.
    fn set_standby(&mut self, pool_id: PoolId, standby: bool) -> bool {
        let Some(welcome) = &mut self.pools.at_mut(pool_id).welcome else {
            return false;
        };
        if among(&welcome.parameters).is_none_or(|known| known == standby) {
            return false;
        }
        let mut parameters = welcome.parameters.to_vec();
        for (name, value) in &mut parameters {
            if **name == *NAME {
                *value = word(standby).into();
            }
        }
        welcome.parameters = Arc::from(parameters);
        true
    }
}
