//! The settings of a pool's servers.

use std::sync::Arc;

use crate::config::{Config, HostPort, Scopes, nanos};
use crate::pool::bound::{Each, SharedBound};
use crate::pool::key::Purpose;
use crate::pool::target::Target;

/// The settings of a pool's servers, which a reload can change. Times are in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Supply {
    /// How many servers the pool may have.
    pub bounds: Bounds,
    /// How many servers the pool keeps at least (`min_pool_size`).
    pub min_size: u32,
    /// `server_lifetime`. With 0, a server serves only once.
    pub server_lifetime: u64,
    /// `server_idle_timeout`; 0 for none.
    pub server_idle_timeout: u64,
}

impl Supply {
    /// The settings for a purpose and a target, taken from the configuration.
    pub fn of(config: &Config, scopes: Scopes<'_>, purpose: Purpose, target: &Target) -> Supply {
        // With several hosts, nobody knows beforehand which one a server will count for.
        let host = match &*target.hosts {
            [host] if purpose != Purpose::Checks => Some(host),
            _ => None,
        };
        let at_host = host.map_or(0, |host| config.max_host_connections(host));
        let host_logins = host.map_or(0, |host| config.max_host_logins(host));
        let is_limited = at_host > 0 || host_logins > 0;
        let (size, reserve, min_size) = match purpose {
            Purpose::Clients => (
                scopes.pool_size(),
                scopes.reserve_pool_size(),
                scopes.min_pool_size(),
            ),
            Purpose::Lookups => (scopes.pool_size(), scopes.reserve_pool_size(), 0),
            Purpose::Listening | Purpose::Checks | Purpose::Catalogue => (1, 0, 0),
            Purpose::Placing => (0, 0, 0),
        };
        Supply {
            bounds: Bounds {
                size,
                reserve,
                reserve_after: nanos(scopes.globals.reserve_pool_timeout),
                shared: SharedBound::ALL.map(|bound| match bound {
                    SharedBound::Database => scopes.max_db_connections(),
                    SharedBound::User => scopes.max_user_connections(),
                    SharedBound::Host => at_host,
                }),
                host: host.filter(|_| is_limited).cloned().map(Arc::new),
                host_logins,
                pins: scopes.pins(),
            },
            min_size,
            server_lifetime: nanos(scopes.server_lifetime()),
            server_idle_timeout: nanos(scopes.globals.server_idle_timeout),
        }
    }
}

/// The limits of a pool, from the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// `pool_size`; 0 for no limit.
    pub size: u32,
    /// `reserve_pool_size`.
    pub reserve: u32,
    /// `reserve_pool_timeout`, in nanoseconds.
    pub reserve_after: u64,
    /// `max_db_connections`, `max_user_connections` and `max_host_connections`, which pools share; 0
    /// for no limit.
    pub shared: Each<u32>,
    /// The host, if one of its limits is set.
    pub host: Option<Arc<HostPort>>,
    /// `max_host_logins`; 0 for no limit.
    pub host_logins: u32,
    /// `pin_limit`; 0 for no limit.
    pub pins: u32,
}

impl Bounds {
    /// How many clients may keep a server while no client waits for one: all servers but one can be
    /// kept then, or as many as `pin_limit` says if that is more. 0 for no limit.
    pub fn pins_at_rest(&self) -> u32 {
        let bounds = self.shared.into_iter().chain([self.size]);
        let servers = bounds.filter(|bound| *bound > 0).min();
        servers.map_or(0, |servers| (servers - 1).max(self.pins))
    }
}

/// The limit that holds a pool back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBy {
    /// `pool_size`, plus the part of the reserve that may be used by now.
    Pool,
    /// Shared limits; `true` for each limit that is reached.
    Shared(Each<bool>),
    /// `max_host_logins`.
    Logins,
}

impl HeldBy {
    /// `max_db_connections` is reached.
    pub const DATABASE: HeldBy = HeldBy::Shared([true, false, false]);
    /// `max_user_connections` is reached.
    pub const USER: HeldBy = HeldBy::Shared([false, true, false]);
    /// Both limits are reached.
    pub const DATABASE_AND_USER: HeldBy = HeldBy::Shared([true, true, false]);
    /// `max_host_connections` is reached, and perhaps others are.
    pub const HOST: HeldBy = HeldBy::Shared([false, false, true]);

    /// The shared limits that are reached.
    pub fn bounds(self) -> Vec<SharedBound> {
        let all = SharedBound::ALL.into_iter();
        match self {
            HeldBy::Pool | HeldBy::Logins => Vec::new(),
            HeldBy::Shared(reached) => all.filter(|bound| reached[bound.place()]).collect(),
        }
    }
}
