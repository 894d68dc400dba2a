//! The commands of the console.

use howdah_wire::tag::backend;
use howdah_wire::write;

use super::columns::ShowColumn;
use super::drivers::{self, DriverAnswer};
use super::is_console;
use super::rows::ShowTable;
use super::session::Goal;
use crate::cancel::seek::Rounds;
use crate::client::ClientState;
use crate::config::near::nearest;
use crate::config::{Database, SslMode};
use crate::console::columns::{ROUTE, SHARD_SQL, Show};
use crate::console::report::{Gathered, Want};
use crate::console::sentence::{Sentence, Unread, is_empty, read};
use crate::event::{Action, ClientId, KnownNames, Order, Out, Peer, Question};
use crate::fault::Fault;
use crate::limits;
use crate::note::{Level, Note};
use crate::parcel::VERSION;
use crate::pooler::{Asker, Pooler};
use crate::roster::fact::Fact;

/// Commands that change something.
const COMMANDS: [&str; 16] = [
    "pause",
    "resume",
    "reconnect",
    "kill",
    "disable",
    "enable",
    "wait_close",
    "kill_client",
    "drain_host",
    "resume_host",
    "shutdown",
    "reload",
    "suspend",
    "takeover",
    "reset_queries",
    "shuffle",
];

const NO_ADMIN: &str = "admin access needed";

/// The argument of a process that takes over: the version of the format, and the TLS library with
/// which sessions can move to it, if any.
fn version_and_library(argument: &str) -> (&str, &str) {
    argument.split_once(' ').unwrap_or((argument, ""))
}

/// A library's name, or `none`.
fn or_none(library: &str) -> &str {
    if library.is_empty() { "none" } else { library }
}

impl Pooler {
    /// Runs one statement, or begins to.
    pub(crate) fn command(&mut self, id: ClientId, text: &str, out: &mut Out) {
        if is_empty(text) {
            return out.send_with(Peer::Client(id), |buf| {
                write::empty(buf, backend::EMPTY_QUERY)
            });
        }
        if let Some(answer) = self.answer_driver(id, text) {
            return self.satisfy_driver(id, answer, out);
        }
        let (name, argument) = match read(text) {
            Ok(Sentence::Set(key, value)) => return self.set_setting(id, key, value, out),
            Ok(Sentence::Route(question)) => {
                return self.ask_workers(id, Goal::Route(question), Want::Shards, out);
            }
            Ok(Sentence::Command(name, argument)) => (name.to_ascii_lowercase(), argument),
            Err(Unread::Syntax) => return self.unknown(id, text, out),
            Err(Unread::Arguments) => return self.refuse(id, "bad arguments", out),
        };
        let argument = argument.filter(|argument| !argument.is_empty());
        match (&*name, argument) {
            ("show" | "select", Some(what)) => self.show_what(id, text, &what, out),
            ("deallocate", Some(name)) => self.deallocate(id, &name, out),
            ("shard_sql", Some(database)) => {
                self.ask_workers(id, Goal::ShardSql(database), Want::Shards, out);
            }
            (name, argument) if COMMANDS.contains(&name) => {
                self.administer(id, text, name, argument, out);
            }
            _ => self.unknown(id, text, out),
        }
    }

    /// The answer to a statement that drivers send on their own.
    fn answer_driver(&self, id: ClientId, text: &str) -> Option<DriverAnswer> {
        let client = self.clients.get(id)?;
        drivers::answer(text, &client.who.user, &client.who.database)
    }

    fn satisfy_driver(&mut self, id: ClientId, answer: DriverAnswer, out: &mut Out) {
        let Some(session) = self.session(id) else {
            return;
        };
        let tag = match answer {
            DriverAnswer::Value(name, kind, value) => {
                let table = ShowTable::of_one(name, kind, value);
                return self.tell(id, table, out);
            }
            DriverAnswer::Done(tag) => tag,
            DriverAnswer::SetsInVain => {
                out.send_with(Peer::Client(id), |buf| {
                    write::notice(buf, "NOTICE", "00000", "SET ignored", None);
                });
                "SET"
            }
            DriverAnswer::Begins(tag) => {
                session.block = true;
                tag
            }
            DriverAnswer::Ends(tag) => {
                session.block = false;
                session.extended.end_block();
                tag
            }
            DriverAnswer::Forgets(tag) => {
                session.extended.forget();
                tag
            }
        };
        self.complete(id, tag, out);
    }

    /// The columns of a statement's result; empty if it returns no rows.
    pub(super) fn columns_of(&self, id: ClientId, text: &str) -> Result<Vec<ShowColumn>, Unread> {
        if let Some(answer) = self.answer_driver(id, text) {
            return Ok(match answer {
                DriverAnswer::Value(name, kind, _) => vec![(name, kind)],
                _ => Vec::new(),
            });
        }
        let (name, argument) = match read(text)? {
            Sentence::Command(name, argument) => (name, argument),
            Sentence::Route(_) => return Ok(ROUTE.to_vec()),
            Sentence::Set(..) => return Ok(Vec::new()),
        };
        let name = name.to_ascii_lowercase();
        let argument = argument.map(|argument| argument.to_ascii_lowercase());
        match (&*name, argument.as_deref()) {
            ("show" | "select", Some("help" | "fds")) | ("deallocate", Some(_)) => Ok(Vec::new()),
            ("show" | "select", Some(what)) => match (drivers::setting(what), Show::named(what)) {
                (Some((name, _)), _) => Ok(vec![(name, 's')]),
                (None, Some(show)) => Ok(show.columns().to_vec()),
                (None, None) => Err(Unread::Syntax),
            },
            ("shard_sql", Some(_)) => Ok(SHARD_SQL.to_vec()),
            (name, _) if COMMANDS.contains(&name) => Ok(Vec::new()),
            _ => Err(Unread::Syntax),
        }
    }

    pub(super) fn unknown(&mut self, id: ClientId, text: &str, out: &mut Out) {
        let near = command_like(text).map(|near| format!("did you mean {near}?"));
        let (sqlstate, text) = drivers::refusal(text);
        self.refuse_with(id, sqlstate, &text, [None, near.as_deref()], out);
    }

    fn show_what(&mut self, id: ClientId, text: &str, what: &str, out: &mut Out) {
        let what = what.to_ascii_lowercase();
        if let Some((name, value)) = drivers::setting(&what) {
            let table = ShowTable::of_one(name, 's', Some(value.to_string()));
            return self.tell(id, table, out);
        }
        if what == "help" {
            out.send_with(Peer::Client(id), |buf| {
                write::notice(buf, "NOTICE", "00000", "Console usage", Some(HELP));
            });
            return self.complete(id, "SHOW", out);
        }
        if what == "fds" && !self.is_admin(id) {
            return self.refuse(id, NO_ADMIN, out);
        }
        let Some(show) = Show::named(&what) else {
            return self.unknown(id, text, out);
        };
        match show.want() {
            Some(want) => self.ask_workers(id, Goal::Show(show), want, out),
            None if show.tells_names() => {}
            None => {
                let table = self.table(
                    show,
                    Vec::new(),
                    Gathered::default(),
                    &KnownNames::default(),
                );
                return self.tell(id, table, out);
            }
        }
        if show.tells_names() {
            self.ask_names(id, show, out);
        }
    }

    fn is_admin(&mut self, id: ClientId) -> bool {
        self.session(id).is_some_and(|session| session.admin)
    }

    fn set_setting(&mut self, id: ClientId, key: String, value: String, out: &mut Out) {
        if !self.is_admin(id) {
            return self.refuse(id, NO_ADMIN, out);
        }
        let key = key.to_ascii_lowercase();
        self.await_goal(id, Goal::Set(format!("SET {key}={value}")));
        let question = |ticket| Question::Set { ticket, key, value };
        self.ask(Asker::Console(id), question, out);
    }

    /// Runs a command that changes something.
    fn administer(
        &mut self,
        id: ClientId,
        text: &str,
        name: &str,
        argument: Option<String>,
        out: &mut Out,
    ) {
        if matches!(
            (name, &argument),
            ("reload" | "suspend" | "reset_queries" | "shuffle", Some(_))
        ) {
            return self.unknown(id, text, out);
        }
        let ending = match (
            name,
            argument.as_deref().map(str::to_ascii_lowercase).as_deref(),
        ) {
            ("shutdown", Some("wait_for_servers")) => Some(Order::ShutdownWaitForServers),
            ("shutdown", Some("wait_for_clients")) => Some(Order::ShutdownWaitForClients),
            ("shutdown", Some(_)) => return self.unknown(id, text, out),
            _ => None,
        };
        if !self.is_admin(id) {
            return self.refuse(id, NO_ADMIN, out);
        }
        let refusal = match name {
            "kill_client" => match argument.as_deref().and_then(leading_number) {
                Some(number) => {
                    let want = Want::KillClient(number);
                    let goal = Goal::KillClient(number, Rounds::default());
                    return self.ask_workers(id, goal, want, out);
                }
                None => Some("invalid client pointer supplied".to_string()),
            },
            "takeover" => self.may_take_over(id, argument.as_deref()),
            "drain_host" | "resume_host" => match argument.as_deref() {
                None => Some("a host is required".to_string()),
                Some(host) => {
                    let (tag, fact) = match name {
                        "drain_host" => ("DRAIN_HOST", Fact::Drain),
                        _ => ("RESUME_HOST", Fact::Resume),
                    };
                    if self.order_host(host, &fact, out) {
                        self.note_command(name, Some(host), out);
                        return self.complete(id, tag, out);
                    }
                    Some(format!(
                        "no database with target_session_attrs has this host: {host}"
                    ))
                }
            },
            _ => self.objection(name, argument.as_deref()),
        };
        if let Some(text) = refusal {
            return self.refuse(id, &text, out);
        }
        self.note_command(name, argument.as_deref(), out);
        match name {
            "reload" => {
                self.await_goal(id, Goal::Reload);
                self.ask(
                    Asker::Console(id),
                    |ticket| Question::Reload { ticket },
                    out,
                );
            }
            "shutdown" => self.shutdown(id, ending, out),
            "takeover" => {
                let tls = self.tls_may_travel(argument.as_deref(), out);
                let want = Want::Order(Order::HandOver { tls });
                self.ask_workers(id, Goal::HandOver, want, out);
            }
            "reset_queries" => {
                let goal = Goal::Order("RESET_QUERIES", None);
                self.ask_workers(id, goal, Want::ForgetQueries, out);
            }
            "wait_close" => {
                let goal = Goal::Order("WAIT_CLOSE", None);
                self.ask_workers(id, goal, Want::Closed(argument), out);
            }
            _ => self.order_all(id, name, argument, out),
        }
    }

    /// The reason why a command is refused, given what is paused and which databases exist.
    fn objection(&self, name: &str, database: Option<&str>) -> Option<String> {
        let janitor = &self.janitor;
        // Half of the connections may already be packed, and the new process would not learn of the
        // command.
        let late = matches!(name, "resume" | "reconnect" | "disable" | "enable");
        if late && janitor.takeover.holds() {
            return Some("a new process takes over".into());
        }
        let Some(database) = database else {
            return match name {
                "disable" | "enable" => Some("a database is required".into()),
                "pause" | "kill" | "suspend" if janitor.is_paused_all() || janitor.holds() => {
                    Some("already suspended/paused".into())
                }
                "resume" if janitor.awaits_servers() => Some("pooler is shutting down".into()),
                "suspend" if janitor.pauses_some() => {
                    Some("cannot suspend with paused databases".into())
                }
                "resume" if janitor.holds() => None,
                "resume" if !janitor.is_paused_all() && !janitor.pauses_some() => {
                    let why = if janitor.is_shutting_down() {
                        "pooler is shutting down"
                    } else {
                        "pooler is not paused/suspended"
                    };
                    Some(why.into())
                }
                _ => None,
            };
        };
        let verb = match name {
            "pause" | "kill" if janitor.is_paused_all() || janitor.holds() => {
                return Some("already suspended/paused".into());
            }
            "resume" if janitor.is_paused_alone(database) => return None,
            "resume" if is_console(database) || self.knows(database) => {
                return Some(format!("database {database} is not paused"));
            }
            "wait_close" => "wait in",
            "shutdown" => return None,
            name => name,
        };
        if is_console(database) {
            return Some(format!("cannot {verb} admin db: {database}"));
        }
        (!self.knows(database)).then(|| format!("no such database: {database}"))
    }

    /// The reason why everything can't be handed over to the process at this console.
    fn may_take_over(&self, id: ClientId, argument: Option<&str>) -> Option<String> {
        if !self.is_our_own_user(id) {
            let text = "only user pgbouncer by unix socket, with our user id, may take over";
            return Some(text.to_string());
        }
        let (version, _) = argument.map_or(("(none)", ""), version_and_library);
        if version != VERSION.to_string() {
            let text =
                format!("takeover version {version} is not known, this process has {VERSION}");
            return Some(text);
        }
        if self.janitor.is_shutting_down() {
            return Some("pooler is shutting down".to_string());
        }
        self.objection("suspend", None)
    }

    /// True if the process that takes over has the same TLS library as this one.
    fn tls_may_travel(&self, argument: Option<&str>, out: &mut Out) -> bool {
        let (_, theirs) = argument.map_or(("", ""), version_and_library);
        let ours = self.config.tls.travels_by;
        if ours == Some(theirs) {
            return true;
        }
        if self.config.tls.clients != SslMode::Disable {
            let text = format!(
                "clients with TLS stay here until they leave: their sessions travel by {}, those of \
                 the new process by {}",
                or_none(ours.unwrap_or_default()),
                or_none(theirs)
            );
            out.note(Note::new(Level::Log, text));
        }
        false
    }

    /// True if the configuration has the database, by name or by `*`.
    fn knows(&self, database: &str) -> bool {
        self.config.entry(database).is_some()
    }

    fn note_command(&self, name: &str, argument: Option<&str>, out: &mut Out) {
        let name = name.to_ascii_uppercase();
        let text = match argument {
            None => format!("{name} command issued"),
            Some(argument) if name == "SHUTDOWN" => {
                format!("SHUTDOWN {} command issued", argument.to_ascii_uppercase())
            }
            Some(database) => format!("{name} '{database}' command issued"),
        };
        out.note(Note::new(Level::Log, text));
    }

    fn shutdown(&mut self, id: ClientId, ending: Option<Order>, out: &mut Out) {
        let Some(order) = ending else {
            // There is no answer: the connection stays until the process has ended.
            self.await_goal(id, Goal::End);
            return out.push(Action::Ask(Question::Exit(0)));
        };
        let globals = &self.config.globals;
        let drains = !globals.drain_time.is_zero() || !globals.drain_delay.is_zero();
        if drains && order == Order::ShutdownWaitForServers {
            out.push(Action::Ask(Question::Drain));
            return self.complete(id, "SHUTDOWN", out);
        }
        out.push(Action::Ask(Question::StopListening { keep_unix: true }));
        self.ask_workers(id, Goal::Order("SHUTDOWN", None), Want::Order(order), out);
    }

    fn order_all(&mut self, id: ClientId, name: &str, database: Option<String>, out: &mut Out) {
        let (tag, order, undo) = match (name, database) {
            ("pause", database) => (
                "PAUSE",
                Order::Pause(database.clone()),
                Some(Order::Resume(database)),
            ),
            ("suspend", None) => {
                if let Some(session) = self.session(id) {
                    session.suspender = true;
                }
                ("SUSPEND", Order::Suspend, Some(Order::Unsuspend))
            }
            ("resume", database) => ("RESUME", Order::Resume(database), None),
            ("reconnect", database) => ("RECONNECT", Order::Reconnect(database), None),
            ("kill", database) => ("KILL", Order::Kill(database), None),
            ("shuffle", None) => ("SHUFFLE", Order::Shuffle, None),
            ("disable", Some(database)) => ("DISABLE", Order::Disable(database), None),
            ("enable", Some(database)) => ("ENABLE", Order::Enable(database), None),
            _ => return,
        };
        self.ask_workers(id, Goal::Order(tag, undo), Want::Order(order), out);
    }

    /// KILL_CLIENT. True if the client was here.
    pub(crate) fn kill_client(&mut self, number: u64, out: &mut Out) -> bool {
        let found = self.clients.iter().find(|(_, client)| {
            client.number == number && !matches!(client.state(), ClientState::Closing)
        });
        let Some((id, _)) = found else { return false };
        self.disconnect(id, Fault::Forced, out);
        true
    }
}

/// The command that was probably meant.
fn command_like(text: &str) -> Option<String> {
    let words = text.trim_end_matches(|c: char| c.is_ascii_whitespace() || c == ';');
    let words = words.to_ascii_lowercase();
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    if words.iter().any(|word| word.len() > limits::CONSOLE_WORD) {
        return None;
    }
    let shown = HELP.lines().filter_map(|line| line.strip_prefix("\tSHOW "));
    let shown = shown.flat_map(|names| names.split('|'));
    let shown: Vec<String> = shown.map(str::to_ascii_lowercase).collect();
    let show_like = |word| nearest(word, shown.iter().map(String::as_str));
    let of_show = match words[..] {
        [verb, what] if nearest(verb, ["show"]).is_some() => show_like(what),
        [what] => show_like(what),
        _ => None,
    };
    if let Some(name) = of_show {
        return Some(format!("SHOW {}", name.to_ascii_uppercase()));
    }
    let verb = words.first()?;
    let near = nearest(
        verb,
        COMMANDS
            .into_iter()
            .chain(["show", "set", "route", "shard_sql"]),
    )?;
    (near != *verb).then(|| near.to_ascii_uppercase())
}

/// The number at the start of a text, as C's `sscanf` would read it.
fn leading_number(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

/// True if a database's entry has several hosts, so that `load_balance_hosts` matters.
pub(super) fn has_host_list(database: &Database) -> bool {
    database
        .host
        .as_ref()
        .is_some_and(|host| host.contains(','))
}

const HELP: &str = "
\tSHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION
\tSHOW PEERS|PEER_POOLS
\tSHOW FDS|SOCKETS|ACTIVE_SOCKETS|LISTS|MEM|STATE
\tSHOW DNS_HOSTS|DNS_ZONES
\tSHOW POOLS_EXTENDED|CLIENTS_EXTENDED|SERVERS_EXTENDED
\tSHOW VERDICT|WORKERS|HOLDERS|QUERIES|TLS|HOSTS|SETTINGS|SECRETS
\tSHOW SHARDS|SHARD_TABLES|SHARD_CHECKS|SHARD_REFUSALS
\tSHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS
\tSET key = arg
\tRELOAD
\tPAUSE [<db>]
\tRESUME [<db>]
\tDISABLE <db>
\tENABLE <db>
\tRECONNECT [<db>]
\tKILL [<db>]
\tKILL_CLIENT <client_id>
\tDRAIN_HOST <host>
\tRESUME_HOST <host>
\tRESET_QUERIES
\tSUSPEND
\tSHUTDOWN
\tSHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS
\tWAIT_CLOSE [<db>]
\tROUTE <db> '<sql>' [<value> ...]
\tSHARD_SQL <db>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_a_command_is_known() {
        for (text, near) in [
            ("SHOW POOL;", Some("SHOW POOLS")),
            ("shwo cleints", Some("SHOW CLIENTS")),
            ("pools", Some("SHOW POOLS")),
            ("show server", Some("SHOW SERVERS")),
            ("reoad", Some("RELOAD")),
            ("RESUNE db ;", Some("RESUME")),
            ("reload x", None),
            ("show elephants", None),
            ("dance", None),
            ("", None),
        ] {
            assert_eq!(command_like(text).as_deref(), near, "{text}");
        }
    }
}
