//! The connections of checks: when they are opened.

use std::sync::Arc;

use crate::config::{Database, HostPort, nanos};
use crate::event::{Out, Time};
use crate::host_check::{placed, tell};
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::check::URGENT_NS;
use crate::roster::fact::Fact;

impl Pooler {
    /// Opens the connections that are due.
    pub(crate) fn open_checks(&mut self, out: &mut Out) {
        for host in self.checks.due(self.now) {
            self.open_check(host, out);
        }
        self.janitor.next_check = self.checks.next();
    }

    fn open_check(&mut self, host: HostPort, out: &mut Out) {
        let again = nanos(self.config.globals.host_check_interval);
        let check = gone!(self.checks.hosts.get_mut(&host));
        check.next = Some(Time(self.now.0.saturating_add(again)));
        let has = |database: &&Arc<Database>| {
            let mut hosts = self.hosts.hosts(database).iter();
            hosts.any(|(of, _)| *of == host)
        };
        let entry = placed(&self.config).find(has);
        let entry = gone!(entry).clone();
        let scopes = self.config.scopes(Some(&entry), None);
        let auth_user = scopes.auth_user().filter(|user| !user.is_empty());
        let own = self.config.globals.host_check_user.clone();
        let user = own.or(auth_user).or_else(|| entry.forced_user.clone());
        let Some(user) = user.filter(|user| !user.is_empty()) else {
            check.next = None;
            let why = "no host_check_user, auth_user or user: its role comes from logins";
            return tell(host, Fact::Hidden(why.into()), out);
        };
        let login = self.login_of(&entry.name, &user, &entry);
        let pool = self.pool_at(login, Purpose::Checks, TargetName::host(&host));
        self.open_server(pool, None, out);
        let opened = self
            .servers
            .iter()
            .filter(|(_, server)| server.pool == pool);
        let opened = opened.max_by_key(|(_, server)| server.number);
        let opened = opened.map(|(id, _)| id);
        if let Some(check) = self.checks.hosts.get_mut(&host) {
            check.server = opened;
        }
    }

    /// The host must be asked soon, if it is this worker that checks it.
    pub(crate) fn check_now(&mut self, host: &HostPort, out: &mut Out) {
        let Some(check) = self.checks.hosts.get_mut(host) else {
            return;
        };
        let Some(id) = check.server else {
            check.next = check.next.map(|next| next.min(self.now));
            self.janitor.next_check = self.checks.next();
            return;
        };
        let server = gone!(self.servers.get_mut(id));
        let answered = server.times.used;
        let examination = gone!(server.examination_mut());
        if examination.asked.is_none() && self.now.0.saturating_sub(answered.0) >= URGENT_NS {
            return self.ask_host(id, out);
        }
        examination.is_urgent = true;
        self.watch_server(id);
    }
}
