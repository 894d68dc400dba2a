//! Each worker carries out orders: PAUSE, RECONNECT and others, and the end of the process.

use crate::client::{Client, ClientState};
use crate::event::{Action, Close, Order, Out, Question};
use crate::fault::Fault;
use crate::login::LoginId;
use crate::note::{Level, Note};
use crate::order::Shutdown;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::server::ServerState;

impl Pooler {
    /// Carries out an administrator's order, which each worker gets by mail or event.
    pub(crate) fn order(&mut self, order: &Order, out: &mut Out) {
        match order {
            Order::Pause(database) => self.pause(database.as_deref(), out),
            Order::Resume(_) if self.janitor.ignores_resume() => {
                // Only the signal reaches this point: the console refuses RESUME.
                if self.worker == Self::FIRST {
                    let text = "got SIGUSR2 while shutting down, ignoring".to_string();
                    out.note(Note::new(Level::Log, text));
                }
            }
            Order::Resume(database) => self.resume_pools(database.as_deref(), out),
            Order::Suspend => self.suspend(out),
            Order::HandOver { tls } => self.begin_takeover(*tls, out),
            Order::Unsuspend => self.unsuspend(out),
            Order::GiveUp => self.give_up_takeover(out),
            Order::Pack => self.pack(out),
            Order::Drain => self.drain_behind(out),
            Order::Reconnect(database) => {
                self.janitor.epoch += 1;
                let names = database.as_deref().map(|name| self.with_shards(name));
                let names = names.iter().flatten().map(String::as_str);
                let logins: Vec<LoginId> = match database {
                    None => self.logins_of(None),
                    Some(_) => names.flat_map(|name| self.logins_of(Some(name))).collect(),
                };
                for id in logins {
                    let why = "RECONNECT command issued";
                    self.call_in_those(|server| server.login == id, why, out);
                }
            }
            Order::Disable(database) => {
                self.janitor.disabled.insert(database.clone());
            }
            Order::Enable(database) => {
                self.janitor.disabled.remove(database);
            }
            Order::Kill(database) => self.kill(database.as_deref(), out),
            Order::Shuffle => self.shuffle(out),
            Order::EndClients { over } => {
                self.end_clients(*over);
                self.shut_down(Shutdown::Clients, out);
            }
            Order::ShutdownWaitForClients => self.shut_down(Shutdown::Clients, out),
            Order::ShutdownWaitForServers => self.shut_down(Shutdown::Servers, out),
        }
    }

    fn pause(&mut self, database: Option<&str>, out: &mut Out) {
        match database {
            None => self.janitor.paused_all = true,
            Some(name) => _ = self.janitor.paused.insert(name.to_owned()),
        }
        for id in self.pools.ids() {
            let pool = self.pools.at_mut(id);
            if database.is_none_or(|name| *pool.key.login.database == *name) {
                pool.set_paused(true);
                let idle: Vec<_> = pool.idle.iter().collect();
                for server in idle {
                    self.close_server(server, "pause mode", Close::Await, out);
                }
            }
        }
        self.call_waiting_back(out);
    }

    /// The logins of one database, or all logins.
    fn logins_of(&self, database: Option<&str>) -> Vec<LoginId> {
        let mut logins = self.logins.ids();
        logins.retain(|id| {
            let key = &self.logins.at(*id).key;
            database.is_none_or(|name| *key.database == *name)
        });
        logins
    }

    /// KILL: clients and servers are dropped at once, and PAUSE holds from then on.
    fn kill(&mut self, database: Option<&str>, out: &mut Out) {
        self.janitor.count_kill(database);
        if let Some(name) = database {
            self.pause(Some(name), out);
            self.kill_sharded(name, out);
        }
        if database.is_none() {
            // Also databases of which only other workers know clients.
            let all = self.config.databases.keys().cloned();
            for name in all.collect::<Vec<_>>() {
                self.pause(Some(&name), out);
            }
        }
        for id in self.logins_of(database) {
            let name = self.logins.at(id).key.database.clone();
            self.pause(Some(&name), out);
            self.kill_login(id, out);
            let rest: Vec<_> = self
                .servers
                .iter()
                .filter(|(_, s)| s.login == id && !matches!(s.state(), ServerState::Cancel(_)))
                .map(|(id, _)| id)
                .collect();
            for server in rest {
                self.close_server(server, "database removed", Close::Await, out);
            }
        }
    }

    fn resume_pools(&mut self, database: Option<&str>, out: &mut Out) {
        match database {
            None if self.janitor.suspension.is_some() => return self.unsuspend(out),
            None if self.janitor.takeover.holds() => return,
            // As in PgBouncer, a database paused by name before a PAUSE of all stays paused.
            None if self.janitor.paused_all => self.janitor.paused_all = false,
            None => self.janitor.paused.clear(),
            Some(name) => _ = self.janitor.paused.remove(name),
        }
        for id in self.pools.ids() {
            let pool = self.pools.at_mut(id);
            pool.set_paused(self.janitor.is_paused(&pool.key.login.database));
            self.need(id, out);
        }
        self.resume_sharded(out);
    }

    fn shut_down(&mut self, ending: Shutdown, out: &mut Out) {
        self.janitor.ending = Some(ending);
        if ending == Shutdown::Servers {
            self.janitor.paused_all = true;
            for id in self.pools.ids() {
                let idle: Vec<_> = self.pools.at(id).idle.iter().collect();
                for server in idle {
                    self.close_server(server, "server shutting down", Close::Await, out);
                }
                self.pools.at_mut(id).set_paused(true);
            }
        }
        self.maybe_end(out);
    }

    /// Clients that wait for a server while the process ends will get none. As in PgBouncer, the
    /// next maintenance tells them.
    pub(crate) fn drop_all_waiters(&mut self, out: &mut Out) {
        if self.janitor.awaits_servers() {
            for id in self.pools.ids() {
                self.drop_waiters(id, &Fault::ServerShuttingDown, out);
            }
        }
    }

    /// A client came from another worker, so the process must not end yet.
    pub(crate) fn tell_busy(&mut self, out: &mut Out) {
        if std::mem::take(&mut self.janitor.told_idle) {
            out.push(Action::Ask(Question::Busy(self.worker)));
        }
    }

    /// Reports when this worker has nothing left to wait for. The control thread ends the process
    /// when all workers have reported.
    pub(crate) fn maybe_end(&mut self, out: &mut Out) {
        let Some(ending) = self.janitor.ending else {
            return;
        };
        // Packed connections may come back.
        if self.janitor.told_idle || self.janitor.takeover.holds() {
            return;
        }
        // Clients that a takeover left behind, and those that are ended in turn, get their answers and are told
        // why they end.
        let over = self.janitor.succeeded.is_some() || self.janitor.drained_at.is_some();
        let counted = |client: &Client| match *client.state() {
            ClientState::Console(_) => false,
            ClientState::Closing => over,
            _ => true,
        };
        let busy = match ending {
            Shutdown::Clients => {
                let here = self.clients.iter().any(|(_, client)| counted(client));
                here || self.moves.under_way > 0
            }
            Shutdown::Servers => {
                let is_told = |client: &Client| {
                    let closes = matches!(client.state(), ClientState::Closing);
                    closes || client.ends_when_it_asks().is_some()
                };
                let told = over && self.clients.iter().any(|(_, client)| is_told(client));
                told || self.servers.iter().any(|(_, s)| {
                    let rests =
                        matches!(s.state(), ServerState::Idle | ServerState::Listening { .. });
                    !rests && self.pools.at(s.pool).key.purpose != Purpose::Checks
                })
            }
        };
        if !busy {
            self.drop_all_waiters(out);
            self.janitor.told_idle = true;
            out.push(Action::Ask(Question::Idle(self.worker, ending)));
        }
    }
}
