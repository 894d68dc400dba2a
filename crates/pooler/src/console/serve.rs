//! An administrator's connection: its login, its messages, and the answers to its statements.

use howdah_wire::backend::Status;
use howdah_wire::tag::frontend as tag;
use howdah_wire::{frontend, write};

use super::where_to::NoRoute;
use crate::client::ClientState;
use crate::config::{Scope, is_console, table};
use crate::console::holdings::Holdings;
use crate::console::report::{Gathered, Report, Survey, Surveyor, Want, WorkerAnswer};
use crate::console::rows::ShowTable;
use crate::console::sentence::{split, without_comments};
use crate::console::session::{ConsoleSession, Goal, PendingSurvey};
use crate::event::{Action, Order, Out};
use crate::fault::Fault;
use crate::ids::{ClientId, Peer, WorkerId};
use crate::limits;
use crate::mail::Mail;
use crate::note::{Level, Note};
use crate::pooler::Pooler;

/// The reason why SET has no effect on a setting that is read only at start.
const TAKES_A_RESTART: &str = "it takes a restart, write it into the configuration file";

impl Pooler {
    /// Bytes from an administrator.
    pub(crate) fn console_bytes(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.inbox.hold(bytes);
        self.console_run(id, out);
        if let Some(client) = self.clients.get_mut(id)
            && matches!(client.state(), ClientState::Console(_))
            && client.inbox.held().len() > limits::HELD
        {
            client.valve.pause(Peer::Client(id), out);
        }
    }

    /// Handles an administrator's messages, as far as possible now.
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
        client.times.begin_request(now);
        if let Some(session) = client.console_mut() {
            session.serial += 1;
        }
        self.consoles.stats.queries += 1;
        self.consoles.stats.transactions += 1;
        self.command(id, text, out);
    }

    /// Handles the next message, if it is complete and the administrator stays.
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
                        let text = without_comments(&String::from_utf8_lossy(text));
                        session.statements = split(&text).into();
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
            // No output is kept back.
            tag::FLUSH => return true,
            other => {
                let text = format!("unsupported packet type for admin console: {other}");
                self.refuse(id, &text, out);
                self.disconnect(id, Fault::Told(text), out);
            }
        }
        false
    }

    /// A statement has failed: the rest of the same Query does not run.
    pub(crate) fn refuse(&mut self, id: ClientId, text: &str, out: &mut Out) {
        self.refuse_as(id, "08P01", text, out);
    }

    pub(super) fn refuse_as(&mut self, id: ClientId, sqlstate: &str, text: &str, out: &mut Out) {
        self.refuse_with(id, sqlstate, text, [None, None], out);
    }

    /// Refuses a statement with a detail and a hint.
    pub(super) fn refuse_with(
        &mut self,
        id: ClientId,
        sqlstate: &str,
        text: &str,
        detail_and_hint: [Option<&str>; 2],
        out: &mut Out,
    ) {
        let client = self.clients.at_mut(id);
        let session = gone!(client.console_mut());
        session.statements.clear();
        session.extended.fail(session.in_query);
        out.send_with(Peer::Client(id), |buf| {
            write::error_with(buf, "ERROR", sqlstate, text, detail_and_hint)
        });
        out.note(Note::new(Level::Error, text));
        if self.config.globals.log_pooler_errors {
            self.note_client(
                Level::Warning,
                id,
                format_args!("pooler error: {text}"),
                out,
            );
        }
    }

    /// Sends a statement's rows.
    pub(super) fn tell(&mut self, id: ClientId, table: ShowTable<'_>, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        out.send_with(Peer::Client(id), |buf| session.extended.write(table, buf));
    }

    /// Sends a statement's CommandComplete.
    pub(super) fn complete(&self, id: ClientId, tag: &str, out: &mut Out) {
        out.send_with(Peer::Client(id), |buf| write::command_complete(buf, tag));
    }

    pub(super) fn session(&mut self, id: ClientId) -> Option<&mut ConsoleSession> {
        self.clients.get_mut(id)?.console_mut()
    }

    /// Makes the console wait for the control thread, or for the end.
    pub(super) fn await_goal(&mut self, id: ClientId, goal: Goal) {
        let left = self.workers;
        if let Some(session) = self.session(id) {
            session.wait = Some(PendingSurvey {
                goal,
                left,
                parts: Vec::new(),
                again: None,
            });
        }
    }

    /// Asks all workers. The console waits until the last worker has answered.
    pub(super) fn ask_workers(&mut self, id: ClientId, goal: Goal, want: Want, out: &mut Out) {
        self.await_goal(id, goal);
        let Some(session) = self.session(id) else {
            return;
        };
        if let (Some(wait), Want::Order(Order::Pause(_)) | Want::Closed(_)) =
            (&mut session.wait, &want)
        {
            wait.again = Some(Want::Again(Box::new(want.clone())));
        }
        let serial = session.serial;
        let from = Surveyor::Console(self.worker, id);
        for worker in 0..self.workers {
            let survey = Survey {
                from,
                serial,
                want: want.clone(),
            };
            out.push(Action::Post(WorkerId(worker), Mail::Survey(survey)));
        }
    }

    /// A worker's answer.
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
        let Some(mut wait) = session.wait.take() else {
            return;
        };
        if let Some(want) = wait.again.take() {
            return self.ask_workers(report.to, wait.goal, want, out);
        }
        self.answered(report.to, wait, out);
        self.console_run(report.to, out);
    }

    /// Sends rows, or the reason why there are none.
    fn tell_if_any(&mut self, id: ClientId, table: Result<ShowTable<'_>, NoRoute>, out: &mut Out) {
        match table {
            Ok(table) => self.tell(id, table, out),
            Err(none) => {
                let (sqlstate, text, hint) = none.words();
                self.refuse_with(id, sqlstate, &text, [None, hint], out);
            }
        }
    }

    /// All workers have answered.
    pub(super) fn answered(&mut self, id: ClientId, wait: PendingSurvey, out: &mut Out) {
        match wait.goal {
            Goal::Show(show) => {
                let (mut holdings, mut rows) = (Vec::new(), Gathered::default());
                let mut names = Box::default();
                for part in wait.parts {
                    match part {
                        WorkerAnswer::Holdings(one) => holdings.push(*one),
                        WorkerAnswer::Rows(some) => rows.rows.extend(some),
                        WorkerAnswer::Clients(some) => rows.clients.extend(some),
                        WorkerAnswer::Holders(some) => rows.holders.extend(some),
                        WorkerAnswer::Queries(told) => rows.queries.push(*told),
                        WorkerAnswer::Names(all) => names = all,
                        WorkerAnswer::Done | WorkerAnswer::NotHere(_) => {}
                    }
                }
                let table = self.table(show, holdings, rows, &names);
                self.tell(id, table, out);
            }
            Goal::ShardSql(database) => {
                let table = self.shard_sql(&database, &holdings_of(wait.parts));
                self.tell_if_any(id, table, out);
            }
            Goal::Route(question) => {
                let table = self.routed(id, &question, &holdings_of(wait.parts));
                self.tell_if_any(id, table, out);
            }
            Goal::Order(tag, _) => self.complete(id, tag, out),
            Goal::HandOver => {
                self.complete(id, "TAKEOVER", out);
                // The last answer may have ended the client.
                let client = gone!(self.clients.get_mut(id));
                client.takes_over();
                out.push(Action::Detach(Peer::Client(id)));
            }
            Goal::KillClient(number, mut rounds) => {
                let not_here = |part: &WorkerAnswer| match part {
                    WorkerAnswer::NotHere(departed) => Some(*departed),
                    _ => None,
                };
                let want = Want::KillClient(number);
                match wait.parts.iter().map(not_here).sum::<Option<u64>>() {
                    None => self.complete(id, "KILL_CLIENT", out),
                    Some(departed) if rounds.missed(departed) => {
                        self.ask_workers(id, Goal::KillClient(number, rounds), want, out);
                    }
                    Some(_) => self.refuse(id, "client not found", out),
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
            (Goal::Reload, Err(why)) => {
                let text = "RELOAD failed, see logs for additional details";
                self.refuse_with(id, "F0000", text, [Some(&why), None], out);
            }
            (Goal::Set(tag), Ok(notice)) => {
                let key = tag.strip_prefix("SET ").and_then(|set| set.split_once('='));
                let setting = key.and_then(|(key, _)| table::find(Scope::Global, key));
                if setting.is_some_and(|setting| !setting.reloadable) {
                    let text = format!("this has no effect: {TAKES_A_RESTART}");
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
                // The value may be a password. The reason has the value, if it may be shown.
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

    /// A cancel request for this client has come. A console that waits for a PAUSE then undoes the
    /// PAUSE.
    pub(crate) fn console_cancelled(&mut self, id: ClientId, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        let undo = match &session.wait {
            Some(PendingSurvey {
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

/// The holdings among workers' answers.
fn holdings_of(parts: Vec<WorkerAnswer>) -> Vec<Holdings> {
    let holdings = parts.into_iter().filter_map(|part| match part {
        WorkerAnswer::Holdings(holdings) => Some(*holdings),
        _ => None,
    });
    holdings.collect()
}

/// The parameters that drivers get at their login, as from PgBouncer.
const WELCOME: [(&str, &str); 7] = [
    ("server_version", "1.25.2/bouncer"),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];

impl Pooler {
    /// True for the user `pgbouncer` over a unix socket, from a process with Howdah's user id. Such
    /// a client needs no password on the console.
    pub(crate) fn is_our_own_user(&self, id: ClientId) -> bool {
        let client = self.clients.at(id);
        is_console(&client.who.database)
            && &*client.who.user == "pgbouncer"
            && client
                .ends
                .unix_peer
                .is_some_and(|peer| peer.uid == self.uid)
    }

    /// An administrator has proved its identity.
    pub(crate) fn open_console(&mut self, id: ClientId, out: &mut Out) {
        let own = self.is_our_own_user(id);
        self.consoles.proof_ends(id);
        let globals = &self.config.globals;
        let any = globals.auth_type == crate::config::AuthType::Any;
        let client = self.clients.at_mut(id);
        let admin = own || globals.admin_users.has(&client.who.user);
        if !admin && !any && !globals.stats_users.has(&client.who.user) {
            return self.disconnect(id, Fault::NotAllowed, out);
        }
        client.opens_console(ConsoleSession::of(admin));
        let long = client.protocol.long_keys;
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
        self.watch_client(id);
        self.console_run(id, out);
    }
}
