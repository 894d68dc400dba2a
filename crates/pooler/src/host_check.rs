//! Checks: each host of placed databases is asked for its role, several times a second, on a
//! connection of its own. One worker has this connection for the whole process.

mod begin;

use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use howdah_wire::backend::Fields;
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use crate::config::{Config, Database, HostPort, nanos};
use crate::deadlines::CONNECT_TIMEOUT;
use crate::event::{Action, Close, Out, Peer, Question, ServerId, Time, WorkerId};
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::check::{Examination, HostCheck, LastCheck};
use crate::roster::fact::{Fact, HostFact, HostReport, Reached};
use crate::roster::question::{PLAIN_QUESTION, QUESTION, read_answer};
use crate::roster::view::{Instance, ListView, Role};
use crate::server::ServerState;

/// How PostgreSQL, or a service like it, refuses the whole question: a right or a function is missing.
const REFUSALS: [&str; 5] = ["42501", "42883", "42703", "42P01", "0A000"];

impl Pooler {
    /// The configuration is new: all checks begin anew.
    pub(crate) fn set_checks(&mut self) {
        // Connections from before are closed when they would ask next.
        self.checks.hosts.clear();
        self.checks.tells_reached = self.config.follows_standbys();
        self.follow_hosts();
    }

    /// Checks the hosts of the view that are this worker's to check, and no others.
    pub(crate) fn follow_hosts(&mut self) {
        let hosts = self.hosts.lists.values().flat_map(|list| &list.hosts);
        let hosts = hosts.map(|(host, _)| host);
        let own = hosts.filter(|host| checker(host, self.workers) == self.worker);
        let mut before = std::mem::take(&mut self.checks.hosts);
        for host in own {
            // A host may be in several lists.
            if let Entry::Vacant(place) = self.checks.hosts.entry(host.clone()) {
                let check = before.remove(host);
                place.insert(check.unwrap_or_else(|| HostCheck::due(self.now)));
            }
        }
        self.janitor.next_check = self.checks.next();
    }

    /// A check's connection could not be opened.
    pub(crate) fn check_fails(&mut self, id: ServerId, sqlstate: &str, text: &str, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        let opened = server.times.connected;
        let is_named = !matches!(server.state(), ServerState::Resolving);
        let TargetName::Host(host) = self.pools.at(server.pool).key.target.clone() else {
            return;
        };
        if text == CONNECT_TIMEOUT && is_named {
            // It may be silent, on all of its connections.
            tell((*host).clone(), Fact::Overdue(opened), out);
        }
        if matches!(sqlstate, "08006" | "57P03") {
            return tell((*host).clone(), Fact::Down(text.into()), out);
        }
        if !sqlstate.starts_with("08") {
            // Who refuses a login is up.
            tell((*host).clone(), Fact::Up, out);
        }
        tell(
            (*host).clone(),
            Fact::Hidden(format!("its check fails: {text}")),
            out,
        );
        let retry = nanos(self.config.globals.server_login_retry);
        if let Some(check) = self.checks.hosts.get_mut(&*host) {
            check.next = Some(Time(self.now.0.saturating_add(retry)));
        }
    }

    /// A check's connection is closed: another one is opened later.
    pub(crate) fn check_closed(&mut self, id: ServerId, target: &TargetName) {
        let again = nanos(self.config.globals.host_check_interval);
        let again = Some(Time(self.now.0.saturating_add(again)));
        // The connection is one from before a reload, perhaps.
        let Some(check) = self
            .checks
            .get_mut(target)
            .filter(|check| check.server == Some(id))
        else {
            return;
        };
        check.server = None;
        check.is_plain = false;
        check.next = check.next.max(again);
        self.janitor.next_check = self.checks.next();
    }

    /// Asks the host of a check's connection.
    pub(crate) fn ask_host(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at(id);
        if let Some(ending) = server.ending() {
            return self.close_server(id, ending.text(), Close::Await, out);
        }
        let target = self.pools.at(server.pool).key.target.clone();
        let check = self.checks.get_mut(&target);
        let Some(check) = check.filter(|check| check.server == Some(id)) else {
            return self.close_server(id, "the settings of checks are new", Close::Await, out);
        };
        let question = if check.is_plain {
            PLAIN_QUESTION
        } else {
            QUESTION
        };
        let round = self.round_of_question(&target);
        let examination = Examination {
            asked: Some(self.now),
            round,
            ..Examination::default()
        };
        out.send_with(Peer::Server(id), |buf| {
            write::query(buf, question.as_bytes())
        });
        let state = ServerState::Examining(Box::new(examination));
        self.await_task(id, state);
    }

    /// The round that a question to a host belongs to. One to a primary begins a round, before the
    /// question is sent.
    fn round_of_question(&self, target: &TargetName) -> u64 {
        let is_primary = |list: &ListView| {
            let mut hosts = list.hosts.iter();
            hosts.any(|(host, of)| target.is_host(host) && of.role == Some(Role::Primary))
        };
        if self.checks.tells_reached && self.hosts.lists.values().any(is_primary) {
            return self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        }
        self.begun.load(Ordering::SeqCst)
    }

    /// The host has not answered in time.
    pub(crate) fn check_overdue(&mut self, id: ServerId, asked: Time, out: &mut Out) {
        self.tell_of_check(id, Fact::Overdue(asked), out);
        self.close_server(id, "host_check_timeout", Close::Abort, out);
    }

    /// What comes from the host of a check can't be read.
    pub(crate) fn check_broken(&mut self, id: ServerId, out: &mut Out) {
        let what = "its check fails: its answer is too long, or is not PostgreSQL's";
        self.tell_of_check(id, Fact::Hidden(what.into()), out);
        self.close_server(id, "bad pkt header", Close::Await, out);
    }

    fn tell_of_check(&self, id: ServerId, fact: Fact, out: &mut Out) {
        let pool = self.servers.at(id).pool;
        if let TargetName::Host(host) = &self.pools.at(pool).key.target {
            tell((**host).clone(), fact, out);
        }
    }

    /// A message from the host of a check.
    pub(crate) fn check_message(&mut self, id: ServerId, message: u8, body: &[u8], out: &mut Out) {
        let server = self.servers.at_mut(id);
        let examination = gone!(server.examination_mut());
        match message {
            tag::DATA_ROW if examination.answer.is_none() => match read_answer(body) {
                Some(answer) => examination.answer = Some(answer),
                None => examination.error = Some("its answer is no row of a check".into()),
            },
            tag::DATA_ROW => examination.error = Some("its answer has several rows".into()),
            tag::ERROR => {
                let (sqlstate, text) = Fields::new(body).texts("XX000");
                examination.error.get_or_insert(text);
                examination.is_refused |= REFUSALS.contains(&&*sqlstate);
            }
            tag::READY => self.host_answers(id, out),
            _ => {}
        }
    }

    /// The answer is complete.
    fn host_answers(&mut self, id: ServerId, out: &mut Out) {
        let now = self.now;
        let server = self.servers.at_mut(id);
        let target = self.pools.at(server.pool).key.target.clone();
        let examination = gone!(server.examination_mut());
        let Examination {
            answer,
            error,
            is_refused,
            asked,
            round,
            is_urgent,
        } = std::mem::take(examination);
        examination.is_urgent = is_urgent;
        server.times.set_used(now);
        match (answer, error) {
            (Some(report), None) => {
                let reached = reached(&report, round);
                let last = LastCheck {
                    address: server.connection.address(),
                    lsn: report.lsn,
                    lack: reached.as_ref().err().copied(),
                    took: now.0.saturating_sub(asked.unwrap_or(now).0),
                };
                if let Some(check) = self.checks.get_mut(&target) {
                    check.last = Some(last);
                }
                self.tell_of_check(id, Fact::Report(report), out);
                if let Some(reached) = reached.ok().filter(|_| self.checks.tells_reached) {
                    self.tell_of_check(id, Fact::Reached(reached), out);
                }
            }
            (_, error) => {
                let error = error.unwrap_or_else(|| "it gives no row".into());
                let fact = Fact::Hidden(format!("its check fails: {error}"));
                self.tell_of_check(id, fact, out);
                let check = gone!(self.checks.get_mut(&target));
                if is_refused && !std::mem::replace(&mut check.is_plain, true) {
                    return self.ask_host(id, out);
                }
            }
        }
        self.watch_server(id);
    }

    /// Whether one of this worker's servers of a host has sent something since a check.
    pub(crate) fn heard_from(&self, host: HostPort, since: Time, out: &mut Out) {
        let of_host = |pool| self.pools.at(pool).key.target.is_host(&host);
        let mut servers = self.servers.iter().map(|(_, server)| server);
        let heard = servers.any(|server| of_host(server.pool) && server.times.heard > since);
        let worker = self.worker;
        let fact = Fact::Heard {
            since,
            worker,
            heard,
        };
        tell(host, fact, out);
    }
}

/// How far a host has come, or what its report lacks.
fn reached(report: &HostReport, round: u64) -> Result<Reached, &'static str> {
    let lsn = report.lsn.ok_or("tells no LSN")?;
    let timeline = report.timeline.ok_or("tells no timeline")?;
    let system = report.system.ok_or("tells no system identifier")?;
    let started = report.started.as_deref().ok_or("tells no start time")?;
    Ok(Reached {
        round,
        lsn,
        flushed: report.flushed.unwrap_or(lsn),
        timeline,
        instance: Instance::of(system, started),
    })
}

/// The databases with roles, in the order of their names.
fn placed(config: &Config) -> impl Iterator<Item = &Arc<Database>> {
    let databases = config.databases.values().chain(&config.fallback);
    databases.filter(|database| database.is_placed())
}

/// The worker that checks a host.
fn checker(host: &HostPort, workers: u16) -> WorkerId {
    let sum = host.to_string().bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    WorkerId((sum % u32::from(workers)) as u16)
}

/// Tells the roster.
pub(crate) fn tell(host: HostPort, fact: Fact, out: &mut Out) {
    let fact = Box::new(HostFact { host, fact });
    out.push(Action::Ask(Question::Host(fact)));
}
