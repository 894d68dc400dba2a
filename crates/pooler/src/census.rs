//! Counts of everything that a `Pooler` holds. When nothing happens, they fall to a minimum.

use std::sync::Arc;

use crate::broker::Broker;
use crate::client::ClientState;
use crate::config::SessionAttrs;
use crate::event::{ClientId, ServerId, Time};
use crate::login::key::LoginKey;
use crate::pool::fit::wish;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::view::{HostStanding, View};
use crate::server::ServerState;
use crate::{client, server};

/// Counts of one worker. The counts of several workers are added field by field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Clients, including those that are closing.
    pub clients: usize,
    /// Servers, including the carriers of cancel requests.
    pub servers: usize,
    /// Servers that are ready for use.
    pub idle: usize,
    /// Places in the queues for servers, also of clients that have left.
    pub waiting: usize,
    /// Clients that wait for the first server of their pool.
    pub newcomers: usize,
    /// Pools that wait for the Broker.
    pub needs: usize,
    /// Questions that the control thread has not answered.
    pub asks: usize,
    /// Bytes held back for clients and servers.
    pub held: usize,
    /// Prepared statements that servers have.
    pub statements: usize,
    /// Names of prepared statements that clients have.
    pub names: usize,
    /// Pools.
    pub pools: usize,
    /// Permits for servers that the Broker has given out.
    pub permits: usize,
    /// Clients that the Broker has let in.
    pub admitted: usize,
    /// Workers that the Broker thinks are hungry.
    pub hungry: usize,
    /// Clients on their way to other workers, and searches for clients.
    pub on_the_way: usize,
    /// Clients that the Broker lets keep a server, and clients that wait for this permission.
    pub pins: usize,
}

impl Pooler {
    /// A sum over all known schema changes. It is the same on all workers once all mail has
    /// arrived.
    pub fn schema(&self) -> u64 {
        let schemas = self.shared.statements.changed_schemas();
        schemas.fold(0, |all, (_, changes)| changes.wrapping_add(all))
    }

    /// Servers here that hold a permit of the Broker.
    pub fn permits(&self) -> usize {
        let servers = self.servers.iter();
        servers.filter(|(_, server)| server.permitted).count()
    }

    /// Counts everything.
    pub fn census(&self) -> Census {
        let held = |inbox: &crate::inbox::Inbox| inbox.held().len();
        let pools = || self.pools.iter().map(|(_, pool)| pool);
        let waits = |c: &client::Client| matches!(c.state(), ClientState::Waiting(_));
        Census {
            clients: self.clients.len(),
            servers: self.servers.len(),
            idle: {
                let idle = |s: &server::Server| matches!(s.state(), ServerState::Idle);
                self.servers.iter().filter(|(_, s)| idle(s)).count()
            },
            waiting: pools()
                .flat_map(|pool| pool.waiting.iter())
                .filter(|(id, _)| self.clients.get(*id).is_some_and(waits))
                .count(),
            newcomers: pools().map(|pool| pool.newcomers().len()).sum(),
            needs: pools().filter(|pool| pool.is_in_need()).count(),
            asks: self.asks.len(),
            held: self
                .clients
                .iter()
                .map(|(_, c)| held(&c.inbox))
                .sum::<usize>()
                + self
                    .servers
                    .iter()
                    .map(|(_, s)| held(&s.inbox))
                    .sum::<usize>(),
            statements: self.servers.iter().map(|(_, s)| s.statements.len()).sum(),
            names: self.clients.iter().map(|(_, c)| c.statements.len()).sum(),
            pools: pools().count(),
            on_the_way: self.moves.under_way + self.searches.open.len(),
            ..Census::default()
        }
    }
}

impl Broker {
    /// The Broker's part of the counts.
    pub fn census(&self) -> Census {
        Census {
            permits: self.permits(),
            admitted: self.clients() as usize,
            hungry: self.hungry(),
            pins: self.pins(),
            ..Census::default()
        }
    }
}

/// A client that waits for a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Its login.
    pub login: Arc<LoginKey>,
    /// Where the servers of its pool connect to.
    pub target: TargetName,
    /// Its id.
    pub client: ClientId,
    /// Since when it waits.
    pub since: Time,
}

/// A client that has a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Linked {
    /// The client, and since when it wanted a server.
    pub waiter: Waiter,
    /// Its server.
    pub server: ServerId,
    /// When the server was connected.
    pub connected: Time,
}

impl Pooler {
    /// The clients that wait for servers, in the order in which they get one. Replication clients
    /// are left out: they get servers of their own. Clients that wait to be placed need none yet.
    pub fn waiters(&self) -> Vec<Waiter> {
        let mut waiters = Vec::new();
        for (_, pool) in self.pools.iter() {
            if pool.key.purpose == Purpose::Placing {
                continue;
            }
            for (client, since) in pool.waiting.iter() {
                let waits = |c: &client::Client| {
                    matches!(c.state(), ClientState::Waiting(_)) && !c.is_replicating()
                };
                if self.clients.get(client).is_some_and(waits) {
                    waiters.push(Waiter {
                        login: pool.key.login.clone(),
                        target: pool.key.target.clone(),
                        client,
                        since,
                    });
                }
            }
        }
        waiters
    }

    /// The clients that have a server.
    pub fn linked(&self) -> Vec<Linked> {
        let links = self.links();
        links
            .filter_map(|link| {
                Some(Linked {
                    waiter: Waiter {
                        login: self.logins.at(link.client.login?).key.clone(),
                        target: self.pools.at(link.server.pool).key.target.clone(),
                        client: link.client_id,
                        since: link.client.times.request,
                    },
                    server: link.server_id,
                    connected: link.server.times.connected,
                })
            })
            .collect()
    }
}

/// A server at a host of a placed database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedServer {
    /// The server.
    pub id: ServerId,
    /// What its pool wants of a host.
    pub wish: SessionAttrs,
    /// What the last view says of its host.
    pub standing: HostStanding,
}

impl Pooler {
    /// The last view of the hosts of placed databases.
    pub fn view_of_hosts(&self) -> &Arc<View> {
        &self.hosts
    }

    /// The servers for clients at hosts of placed databases that are logged in.
    pub fn placed_servers(&self) -> Vec<PlacedServer> {
        use ServerState::{
            Aligning, BeingCancelled, Checking, Draining, Idle, Linked, Naming, Resetting,
        };
        let is_in_use = |server: &server::Server| {
            matches!(
                server.state(),
                Idle | Checking
                    | Aligning(_)
                    | Linked(_)
                    | Draining
                    | Resetting
                    | Naming(_)
                    | BeingCancelled
            )
        };
        let servers = self.servers.iter().filter(|(_, s)| is_in_use(s));
        let placed = servers.filter_map(|(id, server)| {
            let key = &self.pools.at(server.pool).key;
            let TargetName::Host(host) = &key.target else {
                return None;
            };
            let database = &self.logins.at(server.login).terms.database;
            Some(PlacedServer {
                id,
                wish: wish(database, key.purpose),
                standing: self.standing(server.login, host)?.clone(),
            })
        });
        placed.collect()
    }
}

impl std::ops::AddAssign for Census {
    fn add_assign(&mut self, other: Census) {
        self.clients += other.clients;
        self.servers += other.servers;
        self.idle += other.idle;
        self.waiting += other.waiting;
        self.newcomers += other.newcomers;
        self.needs += other.needs;
        self.asks += other.asks;
        self.held += other.held;
        self.statements += other.statements;
        self.names += other.names;
        self.pools += other.pools;
        self.permits += other.permits;
        self.admitted += other.admitted;
        self.hungry += other.hungry;
        self.on_the_way += other.on_the_way;
        self.pins += other.pins;
    }
}
