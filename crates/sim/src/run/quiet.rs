//! The end of a run: all actors must end, everything must come to rest, and nothing may be left.

use howdah_pooler::census::Census;
use howdah_pooler::event::{Order, Time};
use howdah_pooler::roster::view::{Role, State, View};

use super::{Play, SECOND};
use crate::postgres::Paused;
use crate::sharding::{MapInForce, NAME};
use crate::story::Who;
use crate::successor::Successor;

impl Play {
    /// From now on nothing goes wrong: all actors must end, and everything must come to rest.
    pub(super) fn wind_down(&mut self) {
        if self.failed() {
            return;
        }
        self.calm = true;
        self.admin.stop();
        self.postgres.paused = Paused::default();
        self.postgres.map.iter_mut().for_each(MapInForce::resume);
        self.scenario.faults.cancels = 0;
        self.postgres.manners.refuses_once_in = 0;
        self.postgres.manners.handshake_fails_once_in = 0;
        self.postgres.manners.cancel_late_once_in = 0;
        self.postgres.manners.speaks_once_in = 0;
        let databases = self.scenario.databases.iter();
        let names = databases.map(|d| d.name.clone());
        let names: Vec<_> = match self.scenario.sharding {
            Some(_) => names.chain([NAME.into()]).collect(),
            None => names.collect(),
        };
        self.successors.iter_mut().for_each(Successor::stop);
        if self.scenario.roles.is_some() {
            let mut world = self.world.borrow_mut();
            self.mishaps.settle(&mut self.postgres, &mut world);
        }
        for process in &self.processes {
            for name in &names {
                process.order(&Order::Resume(Some(name.clone())));
            }
            process.order(&Order::Resume(None));
        }
        let patience = self.now() + (300 + 40 * self.clients.len() as u64) * SECOND;
        while !self.failed() && !self.everybody_is_gone() {
            self.turn();
            if self.now() > patience {
                return self.somebody_waits();
            }
        }
        if self.failed() {
            return;
        }
        self.rest(3 * SECOND);
        self.check_quiet(false);
        if !self.failed() {
            self.rest((self.scenario.idle_seconds + 25) * SECOND);
            self.check_quiet(true);
            self.shut_down();
        }
        let mut world = self.world.borrow_mut();
        for client in &mut self.clients {
            client.settle(&self.postgres.journal, &mut world);
        }
    }

    /// Drained hosts, and those whose roles only logins tell, are taken in again once.
    pub(super) fn resume_hosts(&mut self) {
        let needed = self.scenario.drains || self.scenario.roles.is_some_and(|of| of.unchecked);
        if self.mishaps.resume(Time(self.now())) && needed {
            for process in &self.processes {
                process.control.resume_hosts();
            }
        }
    }

    /// Why views of the hosts are wrong, although nothing has happened to hosts for a while.
    fn wrong_views(&mut self) -> Option<String> {
        for process in &mut self.processes {
            let right = process.control.view();
            for worker in &mut process.workers {
                let view = worker.decisions().pooler.view_of_hosts();
                if without_positions(view) != without_positions(&right) {
                    return Some(format!("a worker knows {view:?} instead of {right:?}"));
                }
            }
            if self.scenario.roles.is_some_and(|roles| roles.unchecked) {
                continue;
            }
            for (host, standing) in right.lists.values().flat_map(|list| &list.hosts) {
                let at = self.scenario.number_of(host);
                let role = if self.postgres.hosts[at].in_recovery {
                    Role::Standby
                } else {
                    Role::Primary
                };
                let is_right = standing.role == Some(role) && standing.state == State::Up;
                if !is_right || standing.behind {
                    return Some(format!("{host} is {role:?}, and is taken for {standing:?}"));
                }
            }
        }
        None
    }

    /// Without clients, every worker says at once that it may end.
    fn shut_down(&mut self) {
        let order = match self.chance.within(0..=2) {
            0 => Order::ShutdownWaitForClients,
            1 => Order::EndClients { over: SECOND },
            _ => Order::ShutdownWaitForServers,
        };
        self.current().order(&order);
        let workers = self.current().workers.len();
        let until = self.now() + 20 * SECOND;
        while !self.failed() && self.now() < until && self.current().control.idle() < workers {
            self.turn();
        }
        let idle = self.current().control.idle();
        if !self.failed() && idle != workers {
            self.violate(
                "orders",
                format!("{idle} of {workers} workers end after {order:?}"),
            );
        }
    }

    fn somebody_waits(&self) {
        let mut world = self.world.borrow_mut();
        for client in self.clients.iter().filter(|client| !client.is_gone()) {
            let text = format!("client {} waits for ever: {}", client.id(), client.awaits());
            world
                .story
                .violate("waits", &[Who::Client(client.id())], text);
        }
        if let Some(order) = self.admin.awaits() {
            let text = format!("the administrator waits for ever for {order}");
            world.story.violate("waits", &[], text);
        }
        world
            .story
            .violate("waits", &[], "a cancel request is never closed".into());
    }

    fn rest(&mut self, nanos: u64) {
        let until = self.now() + nanos;
        self.quiet = true;
        while !self.failed() && self.now() < until {
            self.turn();
        }
        self.quiet = false;
    }

    /// Waits a moment until all is quiet. What is not quiet then is a violation.
    fn check_quiet(&mut self, at_last: bool) {
        // Things that wait for a time limit of the pooler do not come to rest in time. Exceptions
        // are cancels that PostgreSQL seems never to receive, and handshakes that it does not
        // answer.
        let manners = self.scenario.manners;
        let late = manners.cancel_late_once_in + manners.handshake_fails_once_in > 0;
        let patience = if late { 60 } else { 6 } * SECOND;
        let mut until = self.now() + patience;
        let limit = self.now() + 20 * patience;
        loop {
            let found = self.unquiet(at_last);
            if self.failed() || found.is_none() {
                return;
            }
            if self.now() > until.min(limit) {
                return self.violate("quiet", found.unwrap_or_default());
            }
            let before = self.world.borrow().activity;
            self.turn();
            if self.world.borrow().activity != before {
                until = self.now() + patience;
            }
        }
    }

    /// The reason why the world is not quiet, although no client wants anything. `at_last`: nothing
    /// at all may be left.
    fn unquiet(&mut self, at_last: bool) -> Option<String> {
        let mut census = Census::default();
        let (mut sockets, mut driven, mut memory) = (0, 0, 0);
        if self.processes.len() > 1 {
            return Some("a process that was taken over from goes on".into());
        }
        for worker in self.workers() {
            census += worker.decisions().pooler.census();
            sockets += worker.sockets().len();
            driven += worker.sockets().driver().connections();
            let kept = worker.sockets().output_memory();
            if kept > 0 && worker.sockets().is_empty() {
                return Some(format!("a worker without connections keeps {kept} bytes"));
            }
            memory += kept;
        }
        for process in &self.processes {
            census += process.broker.census();
        }
        let mut schemas = self.workers().map(|w| w.decisions().pooler.schema());
        if let Some(first) = schemas.next()
            && schemas.any(|schema| schema != first)
        {
            return Some("workers do not agree about DDL".into());
        }
        drop(schemas);
        let (sessions, checks) = self.postgres.sessions();
        let all = sessions + checks;
        let processes = self.postgres.processes();
        let (statements, by_sql) = self.postgres.statements();
        let expected = Census {
            servers: all,
            idle: sessions,
            permits: sessions,
            statements: census.statements,
            pools: census.pools,
            ..Census::default()
        };
        let places = [processes, sockets, driven];
        let catalogs: Vec<_> = self.world.borrow().catalogs.values().cloned().collect();
        if catalogs
            .iter()
            .any(|catalog| !catalog.borrow().is_unlocked())
        {
            return Some("a transaction that changed a table is still open".into());
        }
        if let Some(unclean) = self.postgres.unclean() {
            return Some(unclean);
        }
        if memory > self.current().workers.len() << 20 {
            return Some(format!("{memory} bytes of output memory are kept"));
        }
        if census != expected || places != [all; 3] {
            return Some(format!(
                "of {sessions} sessions and {checks} of checks is left {census:?}; processes, sockets, in drivers: \
                 {places:?}"
            ));
        }
        if by_sql > 0 || (self.scenario.mode != "session" && statements != census.statements) {
            return Some(format!(
                "PostgreSQL has {statements} statements and {by_sql} of SQL's PREPARE, the pooler \
                 knows of {}",
                census.statements
            ));
        }
        // A pool with `min_pool_size` keeps some servers, and stays.
        let least: usize = self.scenario.databases.iter().map(|d| d.least).sum();
        let hosts = self.postgres.hosts.len();
        let least = least * self.scenario.users.len() * hosts;
        // Each host is checked by a pool of its own.
        let checked = hosts * usize::from(self.scenario.roles.is_some());
        let most = if least > 0 { census.pools } else { checked };
        if let Some(wrong) = self.wrong_views() {
            return Some(wrong);
        }
        (at_last && (sessions > least || census.pools > most))
            .then(|| format!("{sessions} sessions and {} pools are left", census.pools))
    }
}

/// A view without the hosts' positions in the WAL, which workers learn late.
fn without_positions(view: &View) -> View {
    let mut view = view.clone();
    let lists = view.lists.values_mut();
    for (_, standing) in lists.flat_map(|list| &mut list.hosts) {
        standing.lsn = None;
    }
    view
}
