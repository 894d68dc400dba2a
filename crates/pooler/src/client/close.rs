//! How a client leaves, and the effect on its server.

use howdah_wire::write;

use crate::auth::WRONG_PASSWORD;
use crate::client::ClientState;
use crate::console;
use crate::event::{Action, Address, ClientId, Close, Order, Out, Peer, WorkerId};
use crate::fault::Fault;
use crate::fault::advice::Case;
use crate::link::ends::Farewell;
use crate::mail::{Mail, ToBroker};
use crate::note::Level;
use crate::pooler::Pooler;

impl Pooler {
    /// Sends a client the reason and closes it.
    pub(crate) fn disconnect(&mut self, id: ClientId, fault: Fault, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        if matches!(client.state(), ClientState::Closing) {
            return;
        }
        // Howdah must not write in the middle of a message.
        let between = self.is_between_messages(client);
        let mute = matches!(
            client.state(),
            ClientState::Canceller | ClientState::Handshake
        );
        if fault.refuses_login() {
            // Before the client learns of it. Programs that block guessers look for this line.
            self.note_refusal(id, WRONG_PASSWORD, out);
        }
        let canceller = matches!(client.state(), ClientState::Canceller);
        let discovers = fault == Fault::TokenWanted;
        if !client.welcomed && !canceller && !discovers {
            self.not_let_in.count(&fault);
        }
        if fault == Fault::LoginTimeoutSilent {
            let text = "no start-up packet came: MySQL clients and probes wait for the server to \
                        speak first";
            self.note_client(Level::Log, id, text, out);
        }
        let told = fault.is_told() && between && !mute;
        if told {
            if let Some(login) = self.clients.at(id).login {
                let login = self.logins.at_mut(login);
                login.count_error(fault.sqlstate().as_bytes());
            }
            self.tell_fatal(id, &fault, out);
            let twice = !discovers && !fault.is_logged_once();
            if self.config.globals.log_pooler_errors && twice {
                let text = format_args!("pooler error: {fault}");
                self.note_fault(Level::Warning, id, text, Some(&fault), out);
            }
        }
        let quiet = matches!(fault, Fault::ClientClosed | Fault::ClientGone(_));
        if let Fault::Config(why) = &fault {
            self.note_client(Level::Error, id, why, out);
        }
        let how = match fault {
            Fault::ClientGone(_) => Close::Abort,
            Fault::ClientClosed => Close::Part,
            _ => Close::Flush,
        };
        if !discovers && (!quiet || self.config.globals.log_disconnections) {
            self.note_leaving(id, &fault, out);
        }
        let departure = match fault {
            Fault::ClientClosed => Farewell::Orderly,
            _ => Farewell::Abrupt,
        };
        self.end_client(id, how, departure, out);
    }

    /// The client's last message: why its connection ends, what was met, and what to change.
    fn tell_fatal(&self, id: ClientId, fault: &Fault, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        let case = Case {
            user: &client.who.user,
            database: &client.who.database,
            host: &match &client.ends.remote {
                Address::Tcp(ip, _) => ip.to_string(),
                Address::Unix(..) => "[local]".to_owned(),
            },
            encrypted: client.tls.is_some(),
            config: &self.config,
            terms: client.login.map(|login| &self.logins.at(login).terms),
        };
        let (sqlstate, text) = (fault.sqlstate(), fault.told(&case));
        let waited = self.why_in_vain(id, fault);
        let (detail, hint) = (waited.or_else(|| fault.detail()), fault.hint(&case));
        out.send_with(Peer::Client(id), |buf| {
            let more = [detail.as_deref(), hint.as_deref()];
            write::error_with(buf, "FATAL", sqlstate, &text, more);
        });
    }

    fn note_leaving(&self, id: ClientId, why: &Fault, out: &mut Out) {
        let level = why.level();
        if !self.config.globals.log_disconnections && level == Level::Log {
            return;
        }
        let client = gone!(self.clients.get(id));
        let age = self.now.0.saturating_sub(client.times.connected.0) / 1_000_000_000;
        let text = format_args!("closing because: {why} (age={age}s)");
        self.note_fault(level, id, text, Some(why), out);
    }

    /// Removes a client from all structures and closes it.
    fn end_client(&mut self, id: ClientId, how: Close, departure: Farewell, out: &mut Out) {
        self.leave_server(id, departure, out);
        let client = self.clients.at_mut(id);
        if matches!(client.state(), ClientState::Waiting(_))
            && let Some(login) = client.login
        {
            let waited = self.now.0.saturating_sub(client.times.request.0);
            self.logins.at_mut(login).count_wait_in_vain(waited);
        }
        let undo = match client.state() {
            ClientState::Console(session) => session.undo(),
            ClientState::Successor => Some(Order::GiveUp),
            _ => None,
        };
        if let Some(undo) = undo {
            self.order_everywhere(&undo, out);
        }
        self.give_permission_back(id, out);
        let client = self.clients.at_mut(id);
        let key = client.forgets_key();
        client.closes();
        let admitted = client.let_out();
        let who = client.who.clone();
        let login = client.leaves_login();
        // This holds even if the client's server has gone first.
        let pinned = client.is_pinned();
        let session = client.ends_session();
        client.ends_hush();
        if let Some(login) = login {
            let login = self.logins.at_mut(login);
            login.client_leaves(self.now);
            if pinned {
                login.count_unpin();
            }
        }
        if admitted {
            out.push(Action::Broker(ToBroker::Left { login: who }));
        }
        if let Some(own) = session.and_then(|session| session.channels) {
            self.leave_channels(id, own.listener.clone(), own.all(), true, out);
        }
        self.consoles.proof_ends(id);
        if let Some(key) = key {
            self.keys.forget(&key, id);
        }
        self.settle_held(id, out);
        out.push(Action::Close {
            peer: Peer::Client(id),
            how,
        });
    }

    /// The client's stream ended or broke.
    pub(crate) fn client_lost(&mut self, id: ClientId, why: Option<String>, out: &mut Out) {
        let text = why.unwrap_or_else(|| "client unexpected eof".to_string());
        let client = gone!(self.clients.get_mut(id));
        if client.is_probe() {
            self.note_client(Level::Debug, id, format_args!("a probe: {text}"), out);
            return self.end_client(id, Close::Abort, Farewell::Abrupt, out);
        }
        // The client was lost before the driver detached it, so it does not move.
        match *client.state() {
            ClientState::Moving(_) | ClientState::Packed(_) => client.starts_again(),
            ClientState::Leaving { .. } => client.becomes_idle(self.now),
            _ => {}
        }
        match *client.state() {
            // Already closed. Only the rest of Howdah's last message is dropped.
            ClientState::Closing => {}
            // Howdah has read the cancel request, so the client's connection need not wait.
            ClientState::Canceller => self.end_client(id, Close::Flush, Farewell::Orderly, out),
            // The client sent Terminate. PostgreSQL would carry out all earlier messages, so Howdah
            // cancels nothing.
            _ if client.is_leaving() => self.disconnect(id, Fault::ClientClosed, out),
            _ => self.disconnect(id, Fault::ClientGone(text), out),
        }
    }

    /// The client sent Terminate or an invalid message. As in PostgreSQL, its earlier messages are
    /// still carried out and answered.
    pub(crate) fn client_parts(&mut self, id: ClientId, why: Fault, out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.leave_with(why);
        self.leave_when_answered(id, out);
    }

    /// A leaving client goes once all its requests are done.
    pub(crate) fn leave_when_answered(&mut self, id: ClientId, out: &mut Out) {
        // An open COPY of the client would wait for rows.
        if !self.awaits_answers(self.clients.at(id)) {
            let why = self.clients.at(id).told_at_end();
            self.disconnect(id, why, out);
        }
    }

    /// The kernel has closed a client's socket.
    pub(crate) fn client_closed(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        if !matches!(client.state(), ClientState::Closing) {
            // The driver ended the connection without a request from Howdah. Treat it as lost.
            self.end_client(id, Close::Abort, Farewell::Abrupt, out);
        }
        self.clients.remove(id);
        self.keep_no_blocks();
        self.peering.forget(id);
        self.guesses.take(id);
        self.unpacked(Peer::Client(id), out);
    }

    /// True if a client is connected to the console.
    pub(crate) fn is_console_client(&self, id: ClientId) -> bool {
        self.clients
            .get(id)
            .is_some_and(|client| console::is_console(&client.who.database))
    }

    /// Closes a client without an error message, because a message to the client may be incomplete.
    pub(crate) fn cut_short(&mut self, id: ClientId, fault: Fault, out: &mut Out) {
        self.note_leaving(id, &fault, out);
        self.end_client(id, Close::Flush, Farewell::Orderly, out);
    }

    /// Sends an order to every worker.
    fn order_everywhere(&self, order: &Order, out: &mut Out) {
        for worker in 0..self.workers {
            out.push(Action::Post(WorkerId(worker), Mail::Order(order.clone())));
        }
    }
}
