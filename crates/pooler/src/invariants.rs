//! The invariants of a worker: what must hold after every event.

use std::collections::{HashMap, HashSet};

use crate::client::Client;
use crate::client::ClientState;
use crate::event::Peer;
use crate::pool::Purpose;
use crate::pool::fit::fit_hosts;
use crate::pool::target::TargetName;
use crate::pooler::{Asker, Pooler};
use crate::roster::view::State;
use crate::server::ServerState;

impl Pooler {
    /// The amount of work of [`Pooler::check`].
    pub fn check_work(&self) -> usize {
        (self.clients.len() + self.servers.len()) * (1 + self.pools.iter().count())
    }

    /// Verifies every invariant. Panics with the invariant's name if one does not hold.
    pub fn check(&self) {
        let some = !self.clients.is_empty() || !self.servers.is_empty();
        assert!(
            some || self.spare.is_empty(),
            "a sleeping worker has no free blocks"
        );
        self.check_links();
        for (pool_id, pool) in self.pools.iter() {
            let of_pool = |f: fn(&ServerState) -> bool| {
                let states = self.servers.iter().filter(|(_, s)| s.pool == pool_id);
                states.filter(|(_, s)| f(s.state())).count()
            };
            let testing = of_pool(|s| matches!(s, ServerState::Checking));
            assert_eq!(testing, pool.testing() as usize, "servers being tested");
            assert_eq!(of_pool(|_| true), pool.servers() as usize, "servers");
            let connecting = of_pool(|s| {
                use ServerState::{ConnectQuery, Connecting, Login, Maturing, Resolving, Securing};
                matches!(
                    s,
                    Resolving | Connecting | Securing(_) | Login(_) | ConnectQuery | Maturing(_)
                )
            });
            assert_eq!(connecting, pool.connecting() as usize, "servers connecting");
            let in_line =
                |client: &Client| client.waits_in() == Some(pool_id) && client.awaits_permission();
            for (id, _) in self.clients.iter().filter(|(_, client)| in_line(client)) {
                assert!(
                    pool.pin_line.iter().any(|(waiter, _)| waiter == id),
                    "a client that waits for permission is in the queue"
                );
            }
            let idle = of_pool(|s| matches!(s, ServerState::Idle));
            assert_eq!(idle, pool.idle.len(), "idle servers");
            for id in pool.idle.iter() {
                let server = self.servers.get(id).expect("an idle server exists");
                assert!(!server.link.is_owed(), "an idle server owes nothing");
                // The server may be in the middle of a notice, which Howdah drops.
                assert!(
                    !server.inbox.relaying(),
                    "an idle server is between messages"
                );
                assert!(
                    !server.cancels.are_under_way(),
                    "an idle server is not being cancelled"
                );
                assert!(server.permitted, "an idle server has a permit");
            }
        }
        self.check_logins();
        self.check_lines();
        self.check_newcomers();
        self.check_places();
        self.check_hungry();
        self.check_asks();
        self.check_timers();
    }

    /// A login knows its clients and its pools.
    fn check_logins(&self) {
        for (id, login) in self.logins.iter() {
            let clients = || self.clients.iter().filter(|(_, c)| c.login == Some(id));
            assert_eq!(clients().count(), login.clients() as usize, "clients");
            let pinned = clients().filter(|(_, c)| c.is_pinned()).count();
            let kept = "clients that keep their server";
            assert_eq!(pinned, login.pinned() as usize, "{kept}");
            let of_login = self.pools.iter().filter(|(_, pool)| pool.login == id);
            let pools: HashSet<_> = of_login.map(|(pool, _)| pool).collect();
            let known: HashSet<_> = login.pools().iter().copied().collect();
            assert_eq!(pools, known, "a login knows its pools");
            assert!(!known.is_empty(), "a login goes with its last pool");
            let home = self.pool_there(id, Purpose::Clients, &TargetName::Entry);
            if login.terms.database.is_placed() {
                let served = login.home().into_iter();
                let served = served.chain(login.shares().iter().map(|(pool, _)| *pool));
                for pool in served {
                    let key = &self.pools.at(pool).key;
                    assert_eq!(
                        key.purpose,
                        Purpose::Clients,
                        "pools of clients serve clients"
                    );
                    assert!(known.contains(&pool), "a login is served by its own pools");
                }
                continue;
            }
            let home = home.filter(|_| !login.is_forsaken());
            assert_eq!(login.home(), home, "a login knows the pool of its clients");
            if let Some(pool) = home.map(|home| self.pools.at(home)) {
                let untried = login.welcome.is_none();
                assert_eq!(pool.is_untried(), untried, "what a server reports is kept");
            }
        }
        for (_, client) in self.clients.iter() {
            if let Some(pool) = client.waits_in() {
                let login = self.pools.at(pool).login;
                assert_eq!(client.login, Some(login), "a client waits in its login");
            }
        }
        for link in self.links() {
            let own = link.client.login;
            assert_eq!(
                own,
                Some(link.server.login),
                "a server is its client's login's"
            );
        }
        for (_, server) in self.servers.iter() {
            let login = self.pools.at(server.pool).login;
            assert_eq!(server.login, login, "a server knows its login");
        }
    }

    /// A pool knows the clients that wait for its first server.
    fn check_newcomers(&self) {
        let mut known = HashSet::with_hasher(self.seeded);
        for (id, pool) in self.pools.iter() {
            known.extend(pool.newcomers().iter().map(|client| (id, *client)));
        }
        for (id, client) in self.clients.iter() {
            if let ClientState::Welcome(pool) = *client.state() {
                assert!(known.contains(&(pool, id)), "a pool knows its newcomers");
            }
        }
    }

    /// Nobody waits for a host while one fits, and a fenced host has no servers.
    fn check_places(&self) {
        for (_, pool) in self.pools.iter() {
            let login = self.logins.at(pool.login);
            let (key, database) = (&pool.key, &login.terms.database);
            // Reads may wait there for a standby.
            let waits = pool.is_waited_for() && !login.is_forsaken();
            let waits = waits && login.terms.reads.is_none();
            if key.target == TargetName::NoHost && waits {
                let list = self.hosts.lists.get(&*database.hosts);
                let fit = fit_hosts(list, (database, login.terms.max_lag), key.purpose);
                assert!(fit.is_empty(), "{fit:?} fit, and clients wait for a host");
            }
        }
        for (_, server) in self.servers.iter() {
            let key = &self.pools.at(server.pool).key;
            let TargetName::Host(host) = &key.target else {
                continue;
            };
            let standing = self.standing(server.login, host);
            let is_fenced = standing.is_some_and(|of| of.state == State::Fenced);
            use ServerState::{Cancel, Closing, Lent, Packed};
            let ends = matches!(server.state(), Lent(_) | Packed | Cancel(_) | Closing);
            let is_check = key.purpose == Purpose::Checks;
            assert!(
                !is_fenced || ends || is_check,
                "a fenced host has no servers"
            );
        }
    }

    /// A worker lends servers to other workers only.
    fn check_hungry(&self) {
        for (_, pool) in self.pools.iter() {
            for worker in pool.hungry.workers() {
                assert_ne!(worker, self.worker, "a worker is not lent its own servers");
                assert!(worker.0 < self.workers, "who is hungry is a worker");
            }
        }
    }

    /// A login has one question to the control thread at a time.
    fn check_asks(&self) {
        let mut asking = HashSet::with_hasher(self.seeded);
        for asker in self.asks.values() {
            let peer = match asker {
                Asker::Client(id) => Peer::Client(*id),
                Asker::Server(id) => Peer::Server(*id),
                Asker::Names(..) | Asker::Console(_) | Asker::Forward(_) => continue,
            };
            assert!(asking.insert(peer), "a login asks one thing at a time");
        }
    }

    /// A client that waits is in one queue, once.
    fn check_lines(&self) {
        let mut lines = HashMap::with_hasher(self.seeded);
        for (pool_id, pool) in self.pools.iter() {
            for (id, _) in pool.waiting.iter() {
                let waits = |client: &&Client| client.waits();
                if self.clients.get(id).filter(waits).is_some() {
                    let before = lines.insert(id, pool_id);
                    assert_eq!(before, None, "a client stands in line once");
                }
            }
        }
        for (id, client) in self.clients.iter() {
            // A server may be on its way for a replication client.
            let elsewhere = client.is_replicating() || client.awaits_permission();
            if let ClientState::Waiting(pool) = client.state()
                && !elsewhere
            {
                assert_eq!(lines.get(&id), Some(pool), "who waits is in line");
            }
        }
    }

    /// A connection's armed timer is among the timers.
    fn check_timers(&self) {
        let mut armed = HashSet::with_hasher(self.seeded);
        armed.extend(self.timers.entries());
        let clients = self
            .clients
            .iter()
            .map(|(id, c)| (c.timer, Peer::Client(id)));
        let servers = self
            .servers
            .iter()
            .map(|(id, s)| (s.timer, Peer::Server(id)));
        for entry in clients.chain(servers).filter(|(at, _)| at.0 != 0) {
            assert!(armed.contains(&entry), "a timer that was armed comes up");
        }
    }
}
