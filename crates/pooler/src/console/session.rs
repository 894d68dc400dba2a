//! An administrator's connection: its messages, statement by statement, and what it waits for.

use std::collections::VecDeque;

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend as tag;
use howdah_wire::{frontend, write};

use super::rows::Table;
use super::survey::Part;
use super::{command, extended, show};
use crate::client::State;
use crate::config::table;
use crate::event::{Action, ClientId, Order, Out, Peer, WorkerId};
use crate::fault::Fault;
use crate::limits;
use crate::mail::Mail;
use crate::note::{Level, Note};
use crate::parcel::Standing;
use crate::pooler::Pooler;

/// Why SET of a setting that is read at start only does nothing.
const TAKES_A_RESTART: &str = "it takes a restart, write it into the configuration file";

/// An administrator's connection.
#[derive(Debug, Default)]
pub struct Session {
    /// May give every command, not SHOW alone.
    pub(super) admin: bool,
    /// What is left of the Query at hand.
    pub(super) statements: VecDeque<String>,
    /// A Query is at hand: its ReadyForQuery is owed.
    pub(super) in_query: bool,
    /// A driver has begun a transaction block, which holds nothing.
    pub(super) block: bool,
    /// What is prepared and bound.
    pub(super) extended: extended::Extended,
    /// What an answer is awaited for.
    pub(super) wait: Option<Wait>,
    /// It gave SUSPEND, which ends with it.
    pub(super) suspender: bool,
    /// Tells answers to this wait from late ones to an earlier.
    pub(super) serial: u64,
}

/// An answer is awaited.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) goal: Goal,
    /// How many workers have yet to answer.
    pub(super) left: u16,
    /// What the others said.
    pub(super) parts: Vec<Part>,
}

/// What an answer is awaited for.
#[derive(Debug)]
pub(super) enum Goal {
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
    /// One that begins.
    pub fn of(admin: bool) -> Session {
        Session {
            admin,
            ..Session::default()
        }
    }

    /// What ReadyForQuery says.
    pub(super) fn status(&self) -> Status {
        if self.block {
            Status::Transaction
        } else {
            Status::Idle
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

    /// It is busy with what is over in a moment.
    pub fn rests_soon(&self) -> bool {
        use Goal::*;
        self.at_rest().is_none()
            && self
                .wait
                .as_ref()
                .is_none_or(|wait| matches!(wait.goal, Show(_) | KillClient | Reload | Set(_)))
    }
}

impl Pooler {
    /// Bytes of an administrator.
    pub(crate) fn console_bytes(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.inbox.hold(bytes);
        self.console_run(id, out);
        if let Some(client) = self.clients.get_mut(id)
            && matches!(client.state(), State::Console(_))
            && client.inbox.held().len() > limits::HELD
        {
            client.valve.pause(Peer::Client(id), out);
        }
    }

    /// Goes on with what an administrator has sent, as far as it goes now.
    pub(crate) fn console_run(&mut self, id: ClientId, out: &mut Out) {
        loop {
            let client = gone!(self.clients.get_mut(id));
            let congested = client.valve.is_congested();
            let session = gone!(client.console_mut());
            if session.wait.is_some() || congested {
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
            if client.inbox.held().len() <= limits::HELD {
                client.valve.unpause(Peer::Client(id), out);
            }
            if self.pack_console(id, out) || !self.console_message(id, out) {
                return;
            }
        }
    }

    /// Runs a statement, or begins to.
    pub(super) fn console_statement(&mut self, id: ClientId, text: &str, out: &mut Out) {
        let now = self.now;
        let client = self.clients.at_mut(id);
        client.asks(now);
        if let Some(session) = client.console_mut() {
            session.serial += 1;
        }
        self.consoles.stats.queries += 1;
        self.consoles.stats.transactions += 1;
        self.command(id, text, out);
    }

    /// Takes in the next message, if there is a whole one and the administrator stays.
    fn console_message(&mut self, id: ClientId, out: &mut Out) -> bool {
        let client = self.clients.at_mut(id);
        let (message, body) = match client.inbox.take_message(limits::CONSOLE_MESSAGE) {
            Ok(None) => return false,
            Ok(Some(message)) => message,
            Err(error) => {
                self.disconnect(id, Fault::ClientBytes(error), out);
                return false;
            }
        };
        if let Some(session) = client.console_mut()
            && session.extended.skips(message)
        {
            return true;
        }
        match message {
            tag::QUERY => match frontend::string(message, &body) {
                Ok(text) => {
                    if let Some(session) = client.console_mut() {
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
                self.console_extended(id, message, &body, out);
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
        let client = self.clients.at_mut(id);
        let session = gone!(client.console_mut());
        session.statements.clear();
        session.extended.fail(session.in_query);
        out.send_with(Peer::Client(id), |buf| {
            write::error(buf, "ERROR", sqlstate, text)
        });
        out.note(Note::new(Level::Error, text));
        if self.config.globals.log_pooler_errors {
            self.note_client(Level::Warning, id, &format!("pooler error: {text}"), out);
        }
    }

    /// A statement's rows.
    pub(super) fn tell(&mut self, id: ClientId, table: Table<'_>, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        out.send_with(Peer::Client(id), |buf| session.extended.write(table, buf));
    }

    /// A statement is done.
    pub(super) fn complete(&self, id: ClientId, tag: &str, out: &mut Out) {
        out.send_with(Peer::Client(id), |buf| write::command_complete(buf, tag));
    }

    pub(super) fn session(&mut self, id: ClientId) -> Option<&mut Session> {
        self.clients.get_mut(id)?.console_mut()
    }

    /// Has the console wait, for the control thread or the end.
    pub(super) fn await_goal(&mut self, id: ClientId, goal: Goal) {
        let left = self.workers;
        if let Some(session) = self.session(id) {
            session.wait = Some(Wait {
                goal,
                left,
                parts: Vec::new(),
            });
        }
    }

    /// All workers have answered.
    pub(super) fn answered(&mut self, id: ClientId, wait: Wait, out: &mut Out) {
        match wait.goal {
            Goal::Show(show) => {
                let (mut holdings, mut rows) = (Vec::new(), show::Gathered::default());
                let mut names = Box::default();
                for part in wait.parts {
                    match part {
                        Part::Holdings(one) => holdings.push(*one),
                        Part::Rows(some) => rows.rows.extend(some),
                        Part::Clients(some) => rows.clients.extend(some),
                        Part::Holders(some) => rows.holders.extend(some),
                        Part::Queries(told) => rows.queries.push(*told),
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
                    client.takes_over();
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
    pub(crate) fn reloaded(
        &mut self,
        id: ClientId,
        result: Result<Option<String>, String>,
        out: &mut Out,
    ) {
        let Some(session) = self.session(id) else {
            return;
        };
        let Some(wait) = session.wait.take() else {
            return;
        };
        match (wait.goal, result) {
            (Goal::Reload, Ok(_)) => self.complete(id, "RELOAD", out),
            (Goal::Reload, Err(_)) => {
                let text = "RELOAD failed, see logs for additional details";
                self.refuse_as(id, "F0000", text, out);
            }
            (Goal::Set(tag), Ok(notice)) => {
                let key = tag.strip_prefix("SET ").and_then(|set| set.split_once('='));
                let setting = key.and_then(|(key, _)| table::find(table::Scope::Global, key));
                let in_vain = setting.and_then(|setting| match setting.status {
                    table::Status::NotYet(why) => Some(why),
                    _ if !setting.reloadable => Some(TAKES_A_RESTART),
                    _ => None,
                });
                if let Some(why) = in_vain {
                    let text = format!("this has no effect: {why}");
                    out.send_with(Peer::Client(id), |buf| {
                        write::notice(buf, "NOTICE", "00000", &text, None);
                    });
                }
                if let Some(text) = notice {
                    out.send_with(Peer::Client(id), |buf| {
                        write::notice(buf, "NOTICE", "00000", &text, None);
                    });
                }
                self.complete(id, &tag, out);
            }
            (goal, Err(why)) => {
                // The value may be a password: the reason tells it where it may be told.
                let key = match &goal {
                    Goal::Set(tag) => tag.trim_start_matches("SET ").split('=').next(),
                    _ => None,
                };
                let text = format!("SET failed: {}: {why}", key.unwrap_or("?"));
                self.refuse(id, &text, out);
            }
            (_, Ok(_)) => {}
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
