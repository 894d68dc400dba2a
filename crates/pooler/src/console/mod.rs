//! The console: the databases `pgbouncer` and `howdah`, where administrators look and order.
//!
//! A console lives on the worker that accepted it. What concerns all workers it asks or orders by
//! mail, itself included: a [`Survey`] goes out to each, each answers with one [`Report`], at once
//! or when what was ordered is done; then the console answers. Queries sent meanwhile wait.

pub mod columns;
pub mod command;
pub mod drivers;
pub mod extended;
pub mod gather;
mod names;
pub mod show;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use howdah_wire::backend::Status;
use howdah_wire::frame::{HEADER, header};
use howdah_wire::tag::frontend as tag;
use howdah_wire::{WireError, frontend, write};

use crate::client::State;
use crate::event::{Action, ClientId, KnownNames, Order, Out, Peer, WorkerId};
use crate::fault::Fault;
use crate::inbox::HELD_MAX;
use crate::mail::Mail;
use crate::note::{Level, Note};
use crate::parcel::Standing;
use crate::pooler::Pooler;
use crate::stats::Stats;
use show::Table;

/// The longest message accepted from an administrator, in bytes.
const MESSAGE_MAX: u32 = 64 << 10;

/// The version that SHOW VERSION tells.
const VERSION: &str = concat!(
    "Howdah ",
    env!("CARGO_PKG_VERSION"),
    " (PgBouncer 1.25.2 compatible)"
);

/// What drivers are told at login, as PgBouncer tells them.
const WELCOME: [(&str, &str); 7] = [
    ("server_version", "1.25.2/bouncer"),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];

/// True for the console's databases.
pub fn is_console(database: &str) -> bool {
    matches!(database, "pgbouncer" | "howdah")
}

/// An administrator's connection.
#[derive(Debug, Default)]
pub struct Session {
    /// May give every command, not SHOW alone.
    admin: bool,
    /// What is left of the Query at hand.
    statements: VecDeque<String>,
    /// A Query is at hand: its ReadyForQuery is owed.
    in_query: bool,
    /// A driver has begun a transaction block, which holds nothing.
    block: bool,
    /// What is prepared and bound.
    extended: extended::Extended,
    /// What an answer is awaited for.
    wait: Option<Wait>,
    /// It gave SUSPEND, which ends with it.
    suspender: bool,
    /// Tells answers to this wait from late ones to an earlier.
    serial: u64,
}

/// An answer is awaited.
#[derive(Debug)]
struct Wait {
    goal: Goal,
    /// How many workers have yet to answer.
    left: u16,
    /// What the others said.
    parts: Vec<Part>,
}

/// What an answer is awaited for.
#[derive(Debug)]
enum Goal {
    /// Rows of a SHOW.
    Show(show::Show),
    /// All workers' obedience, for this command tag; a cancel request gives the other order.
    Order(&'static str, Option<Order>),
    /// Rest, so that a successor can take over.
    HandOver,
    /// Whether any worker had the client.
    KillClient,
    /// The control thread's word on a RELOAD.
    Reload,
    /// The same on a SET, with its command tag.
    Set(String),
    /// The end of the process.
    End,
}

impl Session {
    /// What ReadyForQuery says.
    fn status(&self) -> Status {
        if self.block {
            Status::Transaction
        } else {
            Status::Idle
        }
    }
}

/// What a console wants of each worker.
#[derive(Clone, Debug)]
pub enum Want {
    /// Pools and counts.
    Holdings,
    /// Rows of SHOW CLIENTS.
    Clients,
    /// Rows of SHOW SERVERS.
    Servers,
    /// Rows of SHOW SOCKETS.
    Sockets,
    /// Rows of SHOW FDS.
    Fds,
    /// Obedience.
    Order(Order),
    /// That the client of this number is disconnected.
    KillClient(u64),
    /// That servers which were called in are closed; of one database, or all.
    Closed(Option<String>),
}

/// What a console asks all workers for.
#[derive(Debug)]
pub struct Survey {
    /// Whose console.
    from: (WorkerId, ClientId),
    /// Comes back.
    serial: u64,
    want: Want,
}

/// What a worker has.
#[derive(Debug)]
pub struct Report {
    /// Whose console.
    to: ClientId,
    serial: u64,
    part: Part,
}

/// One worker's answer.
#[derive(Debug)]
enum Part {
    Holdings(Box<gather::Holdings>),
    Rows(Vec<show::Row>),
    Done,
    Found(bool),
    Names(Box<KnownNames>),
}

/// What all consoles of a worker share.
#[derive(Debug)]
pub struct Consoles {
    names: HashSet<Arc<str>>,
    nobody: Arc<str>,
    /// Orders that this worker has not carried out wholly.
    owed: Vec<Survey>,
    stats: Stats,
    last_stats: Stats,
    older_stats: Stats,
}

impl Default for Consoles {
    fn default() -> Self {
        Consoles {
            names: HashSet::new(),
            nobody: "".into(),
            owed: Vec::new(),
            stats: Stats::default(),
            last_stats: Stats::default(),
            older_stats: Stats::default(),
        }
    }
}

impl Session {
    /// One that begins.
    pub fn of(admin: bool) -> Session {
        Session {
            admin,
            ..Session::default()
        }
    }

    /// What undoes what it ordered, if that holds only while it is there.
    pub fn undo(&self) -> Option<Order> {
        let takes_over = |wait: &Wait| matches!(wait.goal, Goal::HandOver);
        if self.wait.as_ref().is_some_and(takes_over) {
            return Some(Order::GiveUp);
        }
        self.suspender.then_some(Order::Unsuspend)
    }

    /// How it stands, if nothing is under way.
    pub fn at_rest(&self) -> Option<Standing> {
        let busy = self.wait.is_some() || self.in_query || !self.statements.is_empty();
        let admin = self.admin;
        (!busy).then_some(Standing::Console { admin })
    }
}

impl Consoles {
    /// The name of who has not said one yet.
    pub fn nobody(&self) -> Arc<str> {
        self.nobody.clone()
    }

    /// The shared copy of a name.
    pub fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.names.get(name) {
            return shared.clone();
        }
        if self.names.len() >= 4096 {
            self.names.retain(|name| Arc::strong_count(name) > 1);
        }
        let shared: Arc<str> = name.into();
        self.names.insert(shared.clone());
        shared
    }

    /// A console waits for this worker.
    pub fn are_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// A period of the statistics is over.
    pub fn end_period(&mut self) {
        self.older_stats = self.last_stats;
        self.last_stats = self.stats;
    }
}

impl Pooler {
    /// True for the user `pgbouncer` over a unix socket from a process with our user id: it needs
    /// no password on the console.
    pub(crate) fn is_our_own_user(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id) else {
            return false;
        };
        is_console(&client.database)
            && &*client.user == "pgbouncer"
            && client
                .ends
                .unix_peer
                .is_some_and(|peer| peer.uid == self.uid)
    }

    /// An administrator has proved who it is.
    pub(crate) fn open_console(&mut self, id: ClientId, out: &mut Out) {
        let own = self.is_our_own_user(id);
        let globals = &self.config.globals;
        let any = globals.auth_type == crate::config::AuthType::Any;
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let admin = own || globals.admin_users.has(&client.user);
        if !admin && !any && !globals.stats_users.has(&client.user) {
            return self.disconnect(id, Fault::NotAllowed, out);
        }
        client.state = State::Console(Box::new(Session::of(admin)));
        client.welcomed = true;
        let long = client.long_key;
        let (pid, secret, length) = self.new_key(id, long);
        out.send_with(Peer::Client(id), |buf| {
            write::authentication(buf, 0, b"");
            for (name, value) in WELCOME {
                write::parameter_status(buf, name.as_bytes(), value.as_bytes());
            }
            write::key_data(buf, pid, &secret[..length]);
            write::ready(buf, Status::Idle);
        });
        if own {
            self.note_client(Level::Log, id, "pgbouncer access from unix socket", out);
        }
        self.console_run(id, out);
    }

    /// Bytes of an administrator.
    pub(crate) fn console_bytes(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.inbox.held.extend_from_slice(bytes);
        self.console_run(id, out);
        if let Some(client) = self.clients.get_mut(id)
            && matches!(client.state, State::Console(_))
            && client.inbox.held.len() > HELD_MAX
            && !client.paused
        {
            client.paused = true;
            out.push(Action::Receive {
                peer: Peer::Client(id),
                on: false,
            });
        }
    }

    /// Goes on with what an administrator has sent, as far as it goes now.
    pub(crate) fn console_run(&mut self, id: ClientId, out: &mut Out) {
        loop {
            let Some(client) = self.clients.get_mut(id) else {
                return;
            };
            let State::Console(session) = &mut client.state else {
                return;
            };
            if session.wait.is_some() || client.congested {
                return;
            }
            if let Some(statement) = session.statements.pop_front() {
                self.console_statement(id, &statement, out);
                continue;
            }
            if std::mem::take(&mut session.in_query) {
                let status = session.status();
                out.send_with(Peer::Client(id), |buf| write::ready(buf, status));
            }
            if client.paused && client.inbox.held.len() <= HELD_MAX {
                client.paused = false;
                out.push(Action::Receive {
                    peer: Peer::Client(id),
                    on: true,
                });
            }
            if !self.console_message(id, out) {
                return;
            }
        }
    }

    /// Runs a statement, or begins to.
    fn console_statement(&mut self, id: ClientId, text: &str, out: &mut Out) {
        let now = self.now;
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.request = now;
        if let State::Console(session) = &mut client.state {
            session.serial += 1;
        }
        self.consoles.stats.queries += 1;
        self.consoles.stats.transactions += 1;
        self.command(id, text, out);
    }

    /// Takes in the next message, if there is a whole one and the administrator stays.
    fn console_message(&mut self, id: ClientId, out: &mut Out) -> bool {
        let Some(client) = self.clients.get_mut(id) else {
            return false;
        };
        let held = &mut client.inbox.held;
        let header = match header(held) {
            None => return false,
            Some(Ok(header)) if header.body <= MESSAGE_MAX => header,
            Some(error) => {
                let error = match error {
                    Ok(long) => WireError::Length {
                        tag: long.tag,
                        length: long.body + 4,
                    },
                    Err(error) => error,
                };
                self.disconnect(id, Fault::ClientBytes(error), out);
                return false;
            }
        };
        if held.len() < header.total() {
            return false;
        }
        let body: Vec<u8> = held[HEADER..header.total()].to_vec();
        held.drain(..header.total());
        if let State::Console(session) = &mut client.state
            && session.extended.skips(header.tag)
        {
            return true;
        }
        match header.tag {
            tag::QUERY => match frontend::string(header.tag, &body) {
                Ok(text) => {
                    if let State::Console(session) = &mut client.state {
                        let text = command::without_comments(&String::from_utf8_lossy(text));
                        session.statements = command::split(&text).into();
                        session.in_query = true;
                        session.extended.end_unnamed();
                    }
                    return true;
                }
                Err(error) => self.disconnect(id, Fault::ClientBytes(error), out),
            },
            tag::TERMINATE => self.disconnect(id, Fault::ClientClosed, out),
            tag::PARSE | tag::BIND | tag::DESCRIBE | tag::EXECUTE | tag::CLOSE | tag::SYNC => {
                self.console_extended(id, header.tag, &body, out);
                return true;
            }
            // Nothing is kept back.
            tag::FLUSH => return true,
            other => {
                let text = format!("unsupported packet type for admin console: {other}");
                self.refuse(id, &text, out);
                self.disconnect(id, Fault::Told(text), out);
            }
        }
        false
    }

    /// A statement failed: what the same Query has left is not run.
    pub(crate) fn refuse(&mut self, id: ClientId, text: &str, out: &mut Out) {
        self.refuse_as(id, "08P01", text, out);
    }

    pub(super) fn refuse_as(&mut self, id: ClientId, sqlstate: &str, text: &str, out: &mut Out) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let State::Console(session) = &mut client.state else {
            return;
        };
        session.statements.clear();
        session.extended.fail(session.in_query);
        out.send_with(Peer::Client(id), |buf| {
            write::error(buf, "ERROR", sqlstate, text)
        });
        out.note(Note {
            level: Level::Error,
            text: text.to_string(),
        });
    }

    /// A statement's rows.
    fn tell(&mut self, id: ClientId, table: Table<'_>, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        out.send_with(Peer::Client(id), |buf| session.extended.write(table, buf));
    }

    /// A statement is done.
    fn complete(&self, id: ClientId, tag: &str, out: &mut Out) {
        out.send_with(Peer::Client(id), |buf| write::command_complete(buf, tag));
    }

    fn session(&mut self, id: ClientId) -> Option<&mut Session> {
        match &mut self.clients.get_mut(id)?.state {
            State::Console(session) => Some(session),
            _ => None,
        }
    }

    /// Has the console wait, for the control thread or the end.
    fn await_goal(&mut self, id: ClientId, goal: Goal) {
        let left = self.workers;
        if let Some(session) = self.session(id) {
            session.wait = Some(Wait {
                goal,
                left,
                parts: Vec::new(),
            });
        }
    }

    /// Asks all workers; the console waits until the last has answered.
    fn ask_workers(&mut self, id: ClientId, goal: Goal, want: Want, out: &mut Out) {
        self.await_goal(id, goal);
        let Some(session) = self.session(id) else {
            return;
        };
        let serial = session.serial;
        let from = (self.worker, id);
        for worker in 0..self.workers {
            let survey = Survey {
                from,
                serial,
                want: want.clone(),
            };
            out.push(Action::Post(WorkerId(worker), Mail::Survey(survey)));
        }
    }

    /// A console asks.
    pub(crate) fn survey(&mut self, survey: Survey, out: &mut Out) {
        let part = match &survey.want {
            Want::Holdings => Part::Holdings(Box::new(self.holdings())),
            Want::Clients => Part::Rows(self.client_rows()),
            Want::Servers => Part::Rows(self.server_rows()),
            Want::Sockets => {
                let mut rows = self.client_rows();
                rows.extend(self.server_rows());
                Part::Rows(rows)
            }
            Want::Fds => Part::Rows(self.fd_rows()),
            Want::KillClient(number) => Part::Found(self.kill_client(*number, out)),
            Want::Order(order) => {
                self.order(order, out);
                return self.consoles.owed.push(survey);
            }
            Want::Closed(_) => return self.consoles.owed.push(survey),
        };
        answer(&survey, part, out);
    }

    /// Tells consoles of orders that are carried out by now.
    pub(crate) fn settle_orders(&mut self, out: &mut Out) {
        let owed = std::mem::take(&mut self.consoles.owed);
        for survey in owed {
            if self.is_done(&survey.want) {
                answer(&survey, Part::Done, out);
            } else {
                self.consoles.owed.push(survey);
            }
        }
    }

    /// True once nothing is left to do of an order.
    fn is_done(&self, want: &Want) -> bool {
        use crate::server::State as Server;
        let of = |database: &Option<String>, server: &crate::server::Server| {
            let key = &self.pools.at(server.pool).key;
            database.as_ref().is_none_or(|name| *key.database == **name)
        };
        match want {
            // A server that is not logged in yet will find its pool paused. A resume ends it all.
            Want::Order(Order::Pause(database)) => !self.servers.iter().any(|(_, server)| {
                of(database, server)
                    && self.pools.at(server.pool).paused
                    && !matches!(
                        server.state,
                        Server::Resolving
                            | Server::Connecting
                            | Server::Login(_)
                            | Server::ConnectQuery
                            | Server::Cancel(_)
                    )
            }),
            Want::Order(Order::Suspend) => self.is_suspended(),
            Want::Order(Order::HandOver) => self.is_at_rest(),
            Want::Closed(database) => !self
                .servers
                .iter()
                .any(|(_, server)| of(database, server) && server.close_why.is_some()),
            _ => true,
        }
    }

    /// A worker answers.
    pub(crate) fn report(&mut self, report: Report, out: &mut Out) {
        let Some(session) = self.session(report.to) else {
            return;
        };
        if session.serial != report.serial {
            return;
        }
        let Some(wait) = &mut session.wait else {
            return;
        };
        wait.parts.push(report.part);
        wait.left -= 1;
        if wait.left > 0 {
            return;
        }
        let Some(wait) = session.wait.take() else {
            return;
        };
        self.answered(report.to, wait, out);
        self.console_run(report.to, out);
    }

    /// All workers have answered.
    fn answered(&mut self, id: ClientId, wait: Wait, out: &mut Out) {
        match wait.goal {
            Goal::Show(show) => {
                let (mut holdings, mut rows) = (Vec::new(), Vec::new());
                let mut names = Box::default();
                for part in wait.parts {
                    match part {
                        Part::Holdings(one) => holdings.push(*one),
                        Part::Rows(some) => rows.extend(some),
                        Part::Names(all) => names = all,
                        Part::Done | Part::Found(_) => {}
                    }
                }
                let table = self.table(show, holdings, rows, &names);
                self.tell(id, table, out);
            }
            Goal::Order(tag, _) => self.complete(id, tag, out),
            Goal::HandOver => {
                self.complete(id, "TAKEOVER", out);
                if let Some(client) = self.clients.get_mut(id) {
                    client.state = State::Successor;
                    out.push(Action::Detach(Peer::Client(id)));
                }
            }
            Goal::KillClient => {
                if wait
                    .parts
                    .iter()
                    .any(|part| matches!(part, Part::Found(true)))
                {
                    self.complete(id, "KILL_CLIENT", out);
                } else {
                    self.refuse(id, "client not found", out);
                }
            }
            Goal::Reload | Goal::Set(_) | Goal::End => {}
        }
    }

    /// A RELOAD or a SET is done.
    pub(crate) fn reloaded(&mut self, id: ClientId, result: Result<(), String>, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        let Some(wait) = session.wait.take() else {
            return;
        };
        match (wait.goal, result) {
            (Goal::Reload, Ok(())) => self.complete(id, "RELOAD", out),
            (Goal::Reload, Err(_)) => {
                let text = "RELOAD failed, see logs for additional details";
                self.refuse_as(id, "F0000", text, out);
            }
            (Goal::Set(tag), Ok(())) => self.complete(id, &tag, out),
            (_, Err(why)) => {
                out.note(Note {
                    level: Level::Warning,
                    text: format!("SET: {why}"),
                });
                self.refuse(id, "SET failed", out);
            }
            (_, Ok(())) => {}
        }
        self.console_run(id, out);
    }

    /// A cancel request came for this client. A console that waits for a PAUSE takes it back.
    pub(crate) fn console_cancelled(&mut self, id: ClientId, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        let undo = match &session.wait {
            Some(Wait {
                goal: Goal::Order(_, undo),
                ..
            }) => undo.clone(),
            _ => return,
        };
        session.wait = None;
        session.serial += 1;
        if let Some(undo) = undo {
            for worker in 0..self.workers {
                out.push(Action::Post(WorkerId(worker), Mail::Order(undo.clone())));
            }
        }
        self.refuse_as(id, "57014", "canceling statement due to user request", out);
        self.console_run(id, out);
    }
}

fn answer(survey: &Survey, part: Part, out: &mut Out) {
    let (worker, to) = survey.from;
    let report = Report {
        to,
        serial: survey.serial,
        part,
    };
    out.push(Action::Post(worker, Mail::Report(report)));
}
