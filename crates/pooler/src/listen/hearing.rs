//! `Pooler` on the worker of a listening client: the client's channels and notifications.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use howdah_wire::backend::Status;
use howdah_wire::tag::backend;
use howdah_wire::write;

use super::ahead::listens_at_once;
use super::channels::MARK;
use super::listener::quote;
use super::{Channels, FromListener, Heard, Hush, ListensAlone, Name, Notification, Refused};
use crate::client::ClientState;
use crate::config::ListenLost;
use crate::effect::{Effects, Kinds};
use crate::event::{ClientId, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::ledger::Part;
use crate::link::upstream::{Flow, Upstream};
use crate::next::Next;
use crate::params::Params;
use crate::peering::login_pid;
use crate::pooler::Pooler;
use crate::{Shared, client, limits};

/// What must happen at the listener before a text runs.
impl Upstream<'_> {
    /// A text with effects is about to be sent, as a Query or at a Bind. The client must become a
    /// hearer of the text's channels before.
    pub(crate) fn hear_first(&mut self, found: &Effects) -> Result<(), Flow> {
        if self.client.listens() {
            self.pass_first(found)?;
            self.unlisten(found);
        }
        if !found.kinds.any(Kinds::LISTENS) || !self.may_share(found) {
            return Ok(());
        }
        let Some(told) = &found.channels else {
            return Ok(());
        };
        if self.server.link.owes_ready() {
            return Err(self.stall());
        }
        let own = self.client.channels();
        let unheard = |name: &&Name| own.is_none_or(|own| !own.has(name));
        let wished: Vec<Name> = told.listens.iter().filter(unheard).cloned().collect();
        if !wished.is_empty() {
            return Err(Flow::NeedChannels(wished));
        }
        if let Some(own) = self.client.channels_mut() {
            own.ahead.retain(|name| !told.listens.contains(name));
        }
        self.server.session.unlisten_later();
        Ok(())
    }

    /// A Parse is about to be sent, before any other message of its group.
    #[cold]
    pub(crate) fn hear_parse(&mut self, found: &Effects) -> Result<(), Flow> {
        if !self.client.listens() {
            return Ok(());
        }
        if found.kinds.any(Kinds::UNLISTENS.and(Kinds::DISCARDS_ALL)) {
            self.pass_first(found)?;
        }
        self.listen_alone_to_ask(found)
    }

    /// `pg_listening_channels()` is about to be parsed or bound: Howdah must send its LISTENs before
    /// anything else of the group. (An UNLISTEN can wait until it is bound.)
    pub(crate) fn listen_alone_to_ask(&mut self, found: &Effects) -> Result<(), Flow> {
        if found.kinds.any(Kinds::ASKS_CHANNELS) {
            self.listen_alone(found)?;
        }
        Ok(())
    }

    /// True if the client must listen by its own server when it sends this text, because only
    /// PostgreSQL knows what becomes of it: `pg_listening_channels()`, and UNLISTEN that is not
    /// certainly outside of a transaction block.
    pub(crate) fn must_listen_alone(&self, found: &Effects) -> bool {
        const LOOKED_FOR: Kinds = Kinds::ASKS_CHANNELS.and(Kinds::UNLISTENS);
        if !found.kinds.any(LOOKED_FOR) || !self.client.listens() {
            return false;
        }
        let asks = found.kinds.any(Kinds::ASKS_CHANNELS);
        let own = self.client.channels();
        let status = self.server.status;
        let listens = own.map_or(ListensAlone::Yes, |own| own.alone);
        if listens != ListensAlone::No || status == Status::Failed {
            // PostgreSQL's list is right, or will be after the transaction, or the text will fail.
            return asks && listens == ListensAlone::Begun && status == Status::Transaction;
        }
        let moves = found.kinds.any(Kinds::BEGINS.and(Kinds::ENDS));
        let idle = status == Status::Idle && !moves;
        let told = found.channels.as_ref();
        asks || !told.is_some_and(|told| idle || told.outside)
    }

    /// The client listens alone from now on: before the text runs, its server is sent LISTEN for
    /// all of its channels. So PostgreSQL's own list says what the client listens to, and the client
    /// keeps the server. The listener goes on to deliver the notifications.
    #[cold]
    pub(crate) fn listen_alone(&mut self, found: &Effects) -> Result<(), Flow> {
        if !self.must_listen_alone(found) {
            return Ok(());
        }
        let asks = found.kinds.any(Kinds::ASKS_CHANNELS);
        let server = &mut *self.server;
        let (in_block, in_group) = (server.status != Status::Idle, server.link.group_open());
        if asks && (in_block || in_group) {
            // LISTEN takes effect at COMMIT: too late for the question.
            return Err(Flow::Broken(Fault::ChannelsUnclear));
        }
        if server.link.is_owed() && !in_group {
            return Err(self.stall());
        }
        server.session.unlisten_later();
        let session = self.client.session_mut();
        session.pending.kinds.add(Kinds::LISTENS);
        let mut commands = Vec::new();
        if let Some(own) = &mut session.channels {
            own.alone = ListensAlone::Begun;
            let mark = (!asks).then(|| MARK.into());
            commands.extend(own.listened().chain(&mark).map(listen));
        }
        if !in_group {
            let id = self.server_id;
            self.server.runs_for_us(id, &commands.concat(), self.out);
            return Ok(());
        }
        for sql in commands {
            self.run_for_us(&sql, Part::Whole);
        }
        Ok(())
    }

    /// True if the listener may serve the LISTEN of this text.
    pub(crate) fn may_share(&self, found: &Effects) -> bool {
        let session = self.client.session.as_deref();
        let refused = session.is_some_and(|session| {
            let own = session.channels.as_ref();
            let alone = own.is_some_and(|own| own.refused || own.alone != ListensAlone::No);
            alone || session.pinned.any(Kinds::LISTENS)
        });
        let shares = self.terms.shares_listen && !self.client.is_replicating();
        shares && self.renames && found.channels.is_some() && !refused
    }

    /// Some texts may run only when the client has received every notification committed by now.
    /// - A COMMIT after a LISTEN: notifications from before the COMMIT are not for this client.
    /// - A NOTIFY: so that Howdah can tell the client's own notifications from those of the
    ///   server's last client.
    /// - An UNLISTEN: the client must receive the notifications from before the UNLISTEN.
    fn pass_first(&mut self, found: &Effects) -> Result<(), Flow> {
        let server = &mut *self.server;
        let (unheard, idle) = (server.session.is_unheard(), server.status == Status::Idle);
        let notifies = unheard && found.kinds.any(Kinds::NOTIFIES);
        let Some(own) = self.client.channels_mut() else {
            return Ok(());
        };
        let ends = !idle && found.kinds.any(Kinds::ENDS) && own.are_tentative();
        let leaves = idle && found.kinds.any(Kinds::UNLISTENS.and(Kinds::DISCARDS_ALL));
        let sure = own.take_sure();
        if (notifies || ends || leaves) && !sure {
            Err(Flow::NeedPass)
        } else {
            Ok(())
        }
    }

    /// An UNLISTEN outside of a transaction block is about to be sent.
    fn unlisten(&mut self, found: &Effects) {
        if !found.kinds.any(Kinds::UNLISTENS) || self.must_listen_alone(found) {
            return;
        }
        let idle = self.server.status == Status::Idle;
        let own = self.client.channels_mut();
        if let (Some(own), Some(told)) = (own, &found.channels)
            && (idle || told.outside)
            && own.alone == ListensAlone::No
        {
            own.unlisten(told);
        }
    }
}

impl Pooler {
    /// A client is about to listen to channels. The listener must serve these channels first, and
    /// those of the LISTENs that follow in `messages`, which begin with the current one.
    pub(crate) fn wish_for_channels(
        &mut self,
        id: ClientId,
        mut channels: Vec<Name>,
        messages: &[u8],
        out: &mut Out,
    ) {
        let ahead = if self.rests_with_server(self.clients.at(id)) {
            listens_at_once(messages)
        } else {
            Vec::new()
        };
        let client = self.clients.at_mut(id);
        let Some(login) = client.login.map(|login| self.logins.at(login)) else {
            return;
        };
        let scopes = self.config.scopes(Some(&login.terms.database), None);
        let key = match scopes.listener() {
            Some(user) => self.shared.names.login(&login.key.database, &user),
            None => login.key.clone(),
        };
        let own = client.channels();
        let wanted = own.map_or(0, |own| own.count()) + channels.len();
        let Some(room) = limits::CHANNELS_OF_CLIENT.checked_sub(wanted) else {
            return self.disconnect(id, Fault::TooManyOwnChannels, out);
        };
        client.hushes(Hush::Wishes, self.now);
        let encoding = encoding_of(&self.shared, client.params.as_deref());
        let encoding: Option<Box<[u8]>> = encoding.map(Box::from);
        let session = client.session_mut();
        let own = session
            .channels
            .get_or_insert_with(|| Box::new(Channels::new(key)));
        let ahead = ahead.into_iter();
        let new = ahead.filter(|name| !own.has(name) && !channels.contains(name));
        own.ahead = new.take(room).collect();
        channels.extend(own.ahead.iter().cloned());
        own.wished = channels.clone();
        if own.is_empty() {
            own.encoding = encoding.clone();
        }
        let demand = self.demand_of(id, encoding);
        self.ask_to_hear(id, channels, demand, out);
    }

    /// A client's listener is lost: notifications may have been missed.
    fn misses(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        let goes_on = self.config.globals.listen_lost == ListenLost::Notice && !client.is_leaving();
        let waits = matches!(client.hush(), Hush::Passes | Hush::Round);
        let Some(own) = client.channels_mut() else {
            return;
        };
        if !goes_on {
            return self.end_hearing(id, out);
        }
        let (all, encoding) = (own.all(), own.encoding.clone());
        own.anew = Some(all.clone());
        let demand = self.demand_of(id, encoding);
        self.ask_to_hear(id, all, demand, out);
        if waits {
            // The lost listener will not answer the client's request: ask the new listener.
            let hush = self.clients.at(id).hush();
            self.await_pass(id, hush, out);
        }
    }

    /// A client's listener is gone for good. What waits for the listener goes on, and the client
    /// ends as soon as it is idle.
    fn end_hearing(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        let hush = client.hush();
        let Some(own) = client.channels_mut() else {
            return;
        };
        own.over = true;
        match hush {
            Hush::Wishes => self.hears(id, Ok(()), out),
            Hush::Passes | Hush::Round => self.passed(id, out),
            Hush::No | Hush::Ready | Hush::Message => self.tell_if_idle(id, out),
        }
    }

    /// A new listener serves the channels `asked` in place of a lost one. The client leaves those
    /// that it has stopped listening to meanwhile.
    fn heard_anew(&mut self, id: ClientId, asked: Vec<Name>, out: &mut Out) {
        let Some(own) = self.clients.at_mut(id).channels_mut() else {
            return;
        };
        own.missed = true;
        let gone = |name: &Name| !own.has(name) && !own.wished.contains(name);
        let gone: Vec<Name> = asked.into_iter().filter(gone).collect();
        let listener = own.listener.clone();
        if !gone.is_empty() {
            self.leave_channels(id, listener, gone, false, out);
        }
        self.tell_if_idle(id, out);
    }

    /// A client's server is at rest. False if the client may first have to receive notifications:
    /// then the listener is asked.
    pub(crate) fn has_heard(&mut self, id: ClientId, server: ServerId, out: &mut Out) -> bool {
        let client = self.clients.at(id);
        if client.is_leaving() {
            return true;
        }
        match client.hush() {
            Hush::No => return true,
            Hush::Wishes | Hush::Passes | Hush::Round => return false,
            Hush::Ready => {}
            Hush::Message => {
                self.end_hush(id, out);
                self.next.note(Next::Resume(id));
                return true;
            }
        }
        let asks = |client: &client::Client| {
            let session = client.session.as_ref();
            session.is_some_and(|session| !session.pending.is_empty())
        };
        if asks(client) {
            self.session_keeps(id, server, out);
        }
        let client = self.clients.at(id);
        if asks(client) || !matches!(client.state(), ClientState::Linked(_)) {
            return false;
        }
        let own = client.channels();
        if own.is_none_or(|own| own.is_empty() || own.over) {
            self.end_hush(id, out);
            return true;
        }
        self.await_pass(id, Hush::Round, out);
        false
    }

    /// The wait is over: the client gets the notifications and the ReadyForQuery that were held
    /// back.
    fn end_hush(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at_mut(id);
        let hush = client.ends_hush();
        if matches!(hush, Hush::Ready | Hush::Round | Hush::Message) {
            self.tell_heard(id, out);
            let status = self.clients.at(id).status_ahead();
            out.send_with(Peer::Client(id), |buf| write::ready(buf, status));
            self.next.note(Next::Tell(id));
        }
    }

    /// Mail from a listener's worker.
    pub(crate) fn listener_says(&mut self, mail: FromListener, out: &mut Out) {
        match mail {
            FromListener::Hears(client, result) => self.hears(client, result, out),
            FromListener::Passed(clients) => {
                for client in clients {
                    self.passed(client, out);
                }
            }
            FromListener::Notified(notification, clients) => {
                for client in clients {
                    self.notified(client, &notification, out);
                }
            }
            FromListener::Lost(clients) => {
                for client in clients {
                    self.misses(client, out);
                }
            }
        }
    }

    /// The listener answers a client's request to hear channels.
    fn hears(&mut self, id: ClientId, result: Result<(), Refused>, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        let wishes = client.hush() == Hush::Wishes;
        let Some(own) = client.channels_mut() else {
            return;
        };
        if let Some(asked) = own.anew.take() {
            match result {
                Ok(()) => self.heard_anew(id, asked, out),
                Err(_) => return self.end_hearing(id, out),
            }
        }
        let client = gone!(self.clients.get_mut(id).filter(|_| wishes));
        let Some(own) = client.channels_mut() else {
            return;
        };
        match result {
            // The round has also delivered all earlier notifications of this server.
            Ok(()) => {
                own.granted();
                self.mark_heard(id);
            }
            Err(Refused::TooMany) => return self.disconnect(id, Fault::TooManyChannels, out),
            // The client must not keep this process alive: it listens anew at the successor.
            Err(Refused::Unfit) if self.janitor.succeeded.is_some() => {
                return self.end_hearing(id, out);
            }
            Err(Refused::Unfit) => {
                own.wished.clear();
                own.ahead.clear();
                own.refused = true;
            }
        }
        self.goes_on(id, out);
    }

    /// The client has received every notification that was committed before its request.
    fn passed(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        if !matches!(client.hush(), Hush::Passes | Hush::Round) {
            return;
        }
        let round = client.hush() == Hush::Round;
        // The server may be in the middle of a message, for example a notice.
        let under_way = self.mark_heard(id);
        let client = self.clients.at_mut(id);
        if round && under_way {
            return client.hushes(Hush::Message, self.now);
        }
        if client.hush() == Hush::Passes
            && let Some(own) = client.channels_mut()
        {
            own.forget_tentative();
            own.sure = true;
        }
        self.goes_on(id, out);
    }

    /// A client held back for the listener goes on. If its next message was waiting for the server
    /// that it keeps, the message goes on at once. After a transaction, waiting clients get the
    /// server first.
    fn goes_on(&mut self, id: ClientId, out: &mut Out) {
        let over = self.clients.at(id).hush() == Hush::Round;
        self.end_hush(id, out);
        if !over {
            self.tell_if_idle(id, out);
            gone!(self.clients.get(id).and_then(|client| client.login));
            self.resume(id, out);
        }
        self.settle_client(id, out);
        if over {
            self.next.note(Next::Resume(id));
        }
    }

    /// A notification on a channel that a client hears.
    fn notified(&mut self, id: ClientId, notification: &Arc<Notification>, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        let own = self.is_own_backend(client, notification.pid);
        let client = self.clients.at_mut(id);
        let channels = client.channels();
        // A LISTEN that the client has sent, but that will not run: it was cancelled.
        let never = |own: &Channels| {
            client.inbox.held().is_empty() && own.ahead.contains(&notification.channel)
        };
        let hears = |own: &Channels| own.has(&notification.channel) && !never(own) && !own.over;
        let Some(channels) = channels.filter(|own| hears(own)) else {
            return;
        };
        let encoding = encoding_of(&self.shared, client.params.as_deref());
        if !notification.payload.is_ascii() && encoding != channels.encoding.as_deref() {
            return self.disconnect(id, Fault::OtherEncoding, out);
        }
        let heard = Heard {
            notification: notification.clone(),
            own,
        };
        let kept = client
            .channels_mut()
            .is_some_and(|channels| channels.keep(heard));
        if !kept {
            return self.disconnect(id, Fault::TooMuchHeard, out);
        }
        if self.may_be_told(id) {
            self.tell_heard(id, out);
        }
    }

    /// True if a notification may be sent to a client now: the client is idle or waits for a
    /// server, and reads what it gets.
    fn may_be_told(&self, id: ClientId) -> bool {
        let client = self.clients.at(id);
        if client.is_hushed() || client.valve.is_congested() {
            return false;
        }
        self.is_quiet_between(client)
    }

    /// Sends a client the notifications that wait for it.
    pub(crate) fn tell_heard(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at_mut(id);
        let Some(own) = client.channels_mut() else {
            return;
        };
        if own.is_silent() {
            return;
        }
        let missed = std::mem::take(&mut own.missed);
        let heard = own.take();
        // Who was told of a commit has seen it.
        if client.hears_of_commit(self.begun.load(Ordering::SeqCst))
            && let ClientState::Waiting(pool) = *client.state()
        {
            self.next.note(Next::RouteWaiting(pool));
        }
        if missed {
            let text = Fault::ListenerLost.to_string();
            out.send_with(Peer::Client(id), |buf| {
                write::notice(buf, "WARNING", "01000", &text, None);
            });
        }
        let login = login_pid(&self.keys, &self.peering, id, self.clients.at(id));
        for Heard { notification, own } in heard {
            let pid = if own { login } else { notification.pid };
            out.send_with(Peer::Client(id), |buf| {
                write::message(buf, backend::NOTIFICATION, |buf| {
                    buf.extend_from_slice(&pid.to_be_bytes());
                    buf.extend_from_slice(&notification.channel);
                    buf.push(0);
                    buf.extend_from_slice(&notification.payload);
                    buf.push(0);
                });
            });
        }
    }

    /// Sends a client the waiting notifications, if it may get them now. If its listener is gone for
    /// good, the client ends. Called when the client reads again, or has left its server.
    pub(crate) fn tell_if_idle(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id).filter(|client| client.listens()));
        let own = client.channels();
        let over = own.is_some_and(|own| own.over);
        if !self.may_be_told(id) {
            return;
        }
        self.tell_heard(id, out);
        if over {
            self.disconnect(id, Fault::ListenerLost, out);
        }
    }
}

/// The client's encoding.
fn encoding_of<'a>(shared: &Shared, params: Option<&'a Params>) -> Option<&'a [u8]> {
    let position = shared.tracked.position(b"client_encoding")?;
    params?.get(position)
}

/// The command that listens to a channel.
fn listen(name: &Name) -> Vec<u8> {
    let mut sql = b"LISTEN ".to_vec();
    quote(&mut sql, name);
    sql.push(b';');
    sql
}
