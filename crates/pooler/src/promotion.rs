//! A standby is promoted: every worker tells its new clients.

use std::sync::Arc;

use crate::event::{Action, Out, WorkerId};
use crate::mail::Mail;
use crate::pool::{PoolId, PoolKey};
use crate::pooler::Pooler;
use crate::standby::{NAME, among, word};

impl Pooler {
    /// A server has reported outside of a login whether it is a standby. From now on, every worker
    /// tells its new clients.
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

    /// Another worker's server has reported this.
    pub(crate) fn learn_standby(&mut self, key: &PoolKey, standby: bool) {
        if let Some(id) = self.pools.find(key) {
            self.set_standby(id, standby);
        }
    }

    /// True if this is news.
    fn set_standby(&mut self, pool_id: PoolId, standby: bool) -> bool {
        let pool = self.pools.at_mut(pool_id);
        let Some(welcome) = &pool.welcome else {
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
        let mut welcome = welcome.clone();
        welcome.parameters = Arc::from(parameters);
        pool.learns_welcome(welcome);
        true
    }
}
