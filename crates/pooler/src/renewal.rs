//! A user has another secret: servers that logged in with the old one are replaced.

use crate::event::{Action, Out, WorkerId};
use crate::mail::{ChangedSecret, Mail};
use crate::pool::key::Purpose;
use crate::pooler::Pooler;

/// Why servers are replaced when their user has another secret.
pub(crate) const RENEWED: &str = "user has another secret";

impl Pooler {
    /// A login was told another secret of its user. The user may be another role under the same
    /// name: replaces the login's servers on all workers. The servers' logins use the new secret.
    pub(crate) fn secret_changed(&mut self, changed: &ChangedSecret, out: &mut Out) {
        for to in (0..self.workers).map(WorkerId) {
            if to != self.worker {
                let mail = Mail::SecretChanged(Box::new(changed.clone()));
                out.push(Action::Post(to, mail));
            }
        }
        self.secret_changed_elsewhere(changed.clone(), out);
    }

    /// The same, when another worker has noticed the change.
    pub(crate) fn secret_changed_elsewhere(&mut self, changed: ChangedSecret, out: &mut Out) {
        // Servers in the mail are replaced when they arrive. Every worker counts every change.
        self.janitor.epoch += 1;
        let ChangedSecret {
            login,
            secret,
            keys,
        } = changed;
        let Some(id) = self.logins.find(&login) else {
            return;
        };
        let login = self.logins.at_mut(id);
        // A login here may have told this worker already.
        let new = !login.secrets.has(&secret);
        login.secrets.learn(keys, Some(secret), false);
        if !new {
            return;
        }
        for pool in self.logins.at(id).pools().to_vec() {
            if self.pools.at(pool).key.purpose == Purpose::Clients {
                self.call_in_shared(pool, RENEWED, out);
            }
        }
    }
}
