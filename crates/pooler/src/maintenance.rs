//! Maintenance, several times a second: workers report their needs to the Broker, open the minimum
//! of servers, forget unused pools, and take averages.

use hashbrown::HashSet;

use crate::config::{Globals, nanos};
use crate::event::{Action, Out, Question};
use crate::ids::{Peer, Time};
use crate::limits;
use crate::note::{Cause, Level, Note};
use crate::pool::key::PoolId;
use crate::pooler::Pooler;

/// PgBouncer's maintenance period, in nanoseconds.
pub(crate) const PERIOD_NS: u64 = 333_333_333;

/// How often unused statements are forgotten, in nanoseconds.
const TIDY_NS: u64 = 5_000_000_000;

/// The shortest wait that the log tells of, in nanoseconds: `query_wait_notify`, when clients are
/// told, too, or five seconds.
pub fn long_wait(globals: &Globals) -> u64 {
    match nanos(globals.query_wait_notify) {
        0 => 5_000_000_000,
        notify => notify,
    }
}

/// How often a worker whose clients wait asks for a line in the log, in nanoseconds.
const LONG_WAITS_NS: u64 = 5_000_000_000;

impl Pooler {
    /// A deadline has passed.
    pub(crate) fn tick(&mut self, out: &mut Out) {
        let now = self.now;
        while let Some((at, peer)) = self.timers.pop_due(now) {
            match peer {
                Peer::Client(id) => self.client_due(id, at, out),
                Peer::Server(id) => self.server_due(id, at, out),
            }
        }
        if self.moves.next().is_some_and(|at| at <= now) {
            self.shed_some(out);
        }
        if self.janitor.next_hunger.is_some_and(|at| at <= now) {
            self.janitor.next_hunger = None;
            self.say_hunger(out);
        }
        if self.janitor.next_login.is_some_and(|at| at <= now) {
            self.janitor.next_login = None;
            self.retry_logins(out);
        }
        if self.janitor.next_check.is_some_and(|at| at <= now) {
            self.open_checks(out);
        }
        if self.janitor.next <= now {
            self.janitor.next = Time(now.0 + PERIOD_NS);
            self.maintain(out);
        }
        if self.spread.next_load().is_some_and(|at| at <= now) {
            self.tell_load(out);
        }
    }

    /// True if the worker has nothing to maintain until a connection or an order comes.
    pub(crate) fn sleeps(&self) -> bool {
        let idle = self.clients.is_empty() && self.servers.is_empty();
        let begun = self.janitor.stats_at != Time(0);
        idle && begun
            && self.janitor.next_check.is_none()
            && !self.shared.statements.is_untidy()
            && !self.janitor.holds()
            && !self.janitor.is_shutting_down()
            && self.config.globals.pool_idle_timeout.is_zero()
            && self.pools.iter().all(|(_, pool)| {
                let login = self.logins.at(pool.login);
                let keeps = pool.supply.min_size > 0 || login.terms.database.auto;
                let awaits = pool.is_in_need() || !pool.newcomers().is_empty();
                !keeps && !awaits && self.config.entry(&pool.key.login.database).is_some()
            })
    }

    /// The maintenance.
    fn maintain(&mut self, out: &mut Out) {
        self.found_forced_pools();
        self.end_forsaking();
        self.begin_loads();
        self.end_latecomers();
        for id in self.pools.ids() {
            self.trim_waiting(id);
            self.need_anew(id, out);
            self.warm(id, out);
            self.settle_hunger(id, out);
            self.tell_pins(id, out);
            self.collect(id, out);
        }
        self.try_hosts(out);
        self.tell_long_waits(out);
        self.mind_listeners(out);
        self.mind_catalogues();
        self.look_for_ends(out);
        if self.now.0 >= self.janitor.tidied.0 + TIDY_NS {
            self.janitor.tidied = self.now;
            self.shared.statements.tidy();
            self.forget_schemas();
        }
        self.average(out);
        self.drop_all_waiters(out);
        self.drop_unsuspended(out);
        self.go_on_without_successor(out);
        self.leave_slow_readers(out);
        self.drop_unpacked(out);
        self.drop_left_behind(out);
        self.maybe_end(out);
    }

    /// Clients of a pool have waited for long: the log says so. Workers ask for it again and again,
    /// because the control thread may have told of another pool just before.
    fn tell_long_waits(&mut self, out: &mut Out) {
        if self.now.0 < self.janitor.waits_told.0 + LONG_WAITS_NS {
            return;
        }
        let long = long_wait(&self.config.globals);
        if self
            .pools
            .ids()
            .into_iter()
            .any(|id| self.oldest_wait(id) >= long)
        {
            self.janitor.waits_told = self.now;
            out.push(Action::Ask(Question::LongWaits));
        }
    }

    /// While clients wait, each worker often reports for how long. A wait not clearly longer than
    /// last reported is left to the maintenance: under load, clients wait for a moment on every
    /// worker at any time.
    fn say_hunger(&mut self, out: &mut Out) {
        for id in self.pools.ids() {
            self.trim_waiting(id);
            let pool = self.pools.at(id);
            if pool.connecting() > 0 && !pool.is_in_need() {
                self.need(id, out);
            } else if pool.is_in_need()
                && pool.is_waited_for()
                && pool.grows_hungry(self.now)
                && !self.backs_off(id)
            {
                self.tell_need(id, out);
            }
        }
        self.mind_hunger();
    }

    /// Forgets an unused pool.
    fn collect(&mut self, id: PoolId, out: &mut Out) {
        let globals = &self.config.globals;
        let pool = self.pools.at(id);
        let login = self.logins.at(pool.login);
        let (clients, auto) = (login.clients(), login.terms.database.auto);
        let unused = clients == 0 && pool.servers() == 0 && !pool.wants_listener;
        // Anybody can connect, without a password, and name a database that does not exist.
        let stray = auto && pool.is_untried() && !self.backs_off(id);
        let empty = unused && (pool.supply.min_size == 0 || stray);
        let idle_for = self.now.0.saturating_sub(login.quiet.0);
        let autodb = Some(globals.autodb_idle_timeout).filter(|_| auto);
        let mut limits = autodb.into_iter().chain([globals.pool_idle_timeout]);
        let over = stray || limits.any(|limit| !limit.is_zero() && idle_for > nanos(limit));
        if self.is_left_over(id) {
            return self.remove_pool(id);
        }
        let pool = self.pools.at(id);
        let login = self.logins.at(pool.login);
        if clients == 0 && self.config.entry(&login.key.database).is_none() {
            // A reload removed the pool's database.
            if pool.servers() == 0 {
                if pool.wants_listener {
                    let key = login.key.clone();
                    self.lose_listener(&key, out);
                }
                self.remove_pool(id);
            } else {
                self.call_in(id, "database removed", out);
            }
        } else if empty && over {
            let text = format!(
                "cleaning up idle pool {}/{}",
                pool.key.login.database, pool.key.login.user
            );
            let cause = if stray {
                Cause::Unauthenticated
            } else {
                Cause::Known
            };
            let level = Level::Log;
            out.note(Note {
                level,
                text,
                cause,
                about: None,
            });
            self.remove_pool(id);
        }
    }

    /// Forgets the names of databases without a pool, if there may be many.
    fn forget_schemas(&mut self) {
        if self.shared.statements.schemas() > 2 * self.logins.count() + limits::UNUSED_SCHEMAS {
            let mut used = HashSet::with_hasher(self.seeded);
            used.extend(self.logins.iter().map(|(_, login)| login.schema));
            self.shared.statements.forget_schemas(&used);
        }
    }

    /// At the end of each `stats_period`, takes averages.
    fn average(&mut self, out: &mut Out) {
        let period = nanos(self.config.globals.stats_period).max(1);
        if self.janitor.stats_at == Time(0) {
            self.janitor.stats_at = self.now;
            self.janitor.older_stats_at = self.now;
        }
        self.janitor.period_ends = Some(Time(self.janitor.stats_at.0.saturating_add(period)));
        if self.now.0.saturating_sub(self.janitor.stats_at.0) < period {
            return;
        }
        self.janitor.period_ends = Some(Time(self.now.0.saturating_add(period)));
        self.janitor.older_stats_at = self.janitor.stats_at;
        self.janitor.stats_at = self.now;
        self.consoles.end_period();
        let mut total = crate::stats::Stats::default();
        for id in self.logins.ids() {
            total.add(&self.logins.at_mut(id).period_ends());
        }
        for id in self.pools.ids() {
            self.trim_waiting(id);
            let pool = self.pools.at(id);
            let lines = pool.waiting.iter().chain(pool.pin_line.iter());
            let waiting = lines.map(|(client, _)| client);
            for client in waiting.chain(pool.newcomers().iter().copied()) {
                // Those that have left may still be in the queue.
                if let Some(client) = self.clients.get(client)
                    && client.is_waiting()
                {
                    total.still_waiting += 1;
                    total.wait_ns += self.now.0.saturating_sub(client.times.request.0);
                }
            }
        }
        if self.config.globals.log_stats {
            let seconds = (period / 1_000_000_000).max(1);
            out.push(Action::Ask(Question::LogStats {
                stats: Box::new(total),
                seconds,
            }));
        }
    }

    /// When the next `Tick` is due, if ever.
    pub fn next_deadline(&self) -> Option<Time> {
        let janitor = if self.sleeps() {
            self.janitor.end_of_period().max(Some(self.janitor.next()))
        } else {
            Some(self.janitor.next())
        };
        let due = [
            self.timers.next(),
            self.moves.next(),
            self.spread.next_load(),
            janitor,
        ];
        due.into_iter().flatten().min()
    }
}
