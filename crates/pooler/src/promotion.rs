//! A standby is promoted: every worker tells its new clients.

use std::sync::Arc;

use crate::event::{Action, Out, ServerId, WorkerId};
use crate::host_check::tell;
use crate::login::key::{LoginId, LoginKey};
use crate::mail::Mail;
use crate::pool::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::fact::Fact;
use crate::standby::{NAME, among, word};

impl Pooler {
    /// A server has reported outside of a login whether it is a standby. From now on, every worker
    /// tells its new clients.
    pub(crate) fn standby_reported(&mut self, id: ServerId, standby: bool, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        let login = server.login;
        if let TargetName::Host(host) = &self.pools.at(server.pool).key.target {
            let fact = Fact::Role {
                in_recovery: standby,
                since: self.now,
            };
            tell((**host).clone(), fact, out);
        }
        let for_clients = self.pools.at(server.pool).key.purpose == Purpose::Clients;
        if !for_clients || !self.set_standby(login, standby) {
            return;
        }
        let key = &self.logins.at(login).key;
        for worker in 0..self.workers {
            if worker != self.worker.0 {
                let mail = Mail::Standby(key.clone(), standby);
                out.push(Action::Post(WorkerId(worker), mail));
            }
        }
    }

    /// Another worker's server has reported this.
    pub(crate) fn learn_standby(&mut self, key: &LoginKey, standby: bool) {
        if let Some(id) = self.logins.find(key) {
            self.set_standby(id, standby);
        }
    }

    /// True if this is news.
    fn set_standby(&mut self, id: LoginId, standby: bool) -> bool {
        let login = self.logins.at_mut(id);
        let Some(welcome) = &login.welcome else {
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
        login.learns_welcome(welcome);
        true
    }
}
