//! The router: which method gets each event, each piece of mail, each answer, and each step
//! that follows ([`crate::next`]).
//!
//! No method below the router calls it, except after a bug ([`crate::internal_error`]).

use crate::client::ClientState;
use crate::event::{Action, Answer, ClientId, Event, Order, Out, Peer, Time};
use crate::fault::Fault;
use crate::mail::{FromBroker, Mail, ToBroker};
use crate::next::Next;
use crate::pooler::{Asker, Pooler};

impl Pooler {
    /// Handles one event, and appends actions to `out`.
    pub fn handle(&mut self, now: Time, event: Event<'_>, out: &mut Out) {
        self.now = now;
        match event {
            Event::Received(Peer::Client(id), bytes) => {
                self.client_sent(id, bytes, out);
                if self.janitor.suspension.is_some() {
                    self.go_on(out);
                    self.suspend_client(id, out);
                }
            }
            Event::Received(Peer::Server(id), bytes) => {
                self.server_sent(id, bytes, out);
                if self.janitor.suspension.is_some() {
                    self.go_on(out);
                    self.suspend_server(id, out);
                }
            }
            Event::Accepted(ends) => self.accepted(ends, out),
            Event::Connected(id, result) => self.connected(id, result, out),
            Event::TlsDone(Peer::Client(id), result) => self.client_tls_done(id, result, out),
            Event::TlsDone(Peer::Server(id), result) => self.server_tls_done(id, result, out),
            Event::Lost(Peer::Client(id), why) => self.client_lost(id, why, out),
            Event::Lost(Peer::Server(id), why) => self.server_lost(id, why, out),
            Event::Congested(peer) => self.congested(peer, out),
            Event::Drained(peer) => self.drained(peer, out),
            Event::Flushed(peer) => self.flushed(peer, out),
            Event::Closed {
                peer: Peer::Client(id),
                ..
            } => self.client_closed(id, out),
            Event::Closed {
                peer: Peer::Server(id),
                gone: true,
            } => self.server_gone(id, out),
            Event::Closed {
                peer: Peer::Server(id),
                gone: false,
            } => self.server_given_up(id, out),
            Event::Detached(Peer::Client(id), socket) => self.client_detached(id, socket, out),
            Event::Detached(Peer::Server(id), socket) => self.server_detached(id, socket, out),
            Event::Mail(mail) => self.mail(mail, out),
            Event::Answer(answer) => self.answer(answer, out),
            Event::Settings(config) => self.new_settings(config, out),
            Event::Order(order) => self.order(&order, out),
            Event::Tick => self.tick(out),
        }
        self.go_on(out);
        if !self.room_line.is_empty() {
            self.give_room();
            self.go_on(out);
        }
        if self.consoles.are_owed() {
            self.settle_orders(out);
        }
    }

    /// The router: takes all noted steps, and the steps that follow from these.
    #[inline]
    pub(crate) fn go_on(&mut self, out: &mut Out) {
        if !self.next.is_empty() {
            self.take_steps(out);
        }
    }

    /// Rare: most events cause no further step.
    #[inline(never)]
    fn take_steps(&mut self, out: &mut Out) {
        while let Some(step) = self.next.take() {
            match step {
                Next::Resume(id) => self.go_on_with(id, out),
                Next::Hear(id) => self.server_sent(id, b"", out),
                Next::BringToRest(id) if self.servers.get(id).is_some() => self.task_moves(id, out),
                Next::BringToRest(_) => {}
                Next::Tell(id) => self.tell_if_idle(id, out),
                Next::TellLost(id) => self.disconnect(id, Fault::ServerGone, out),
                Next::LookUp(id) => self.look_up_again(id, out),
                Next::Forget(id) => self.server_gone(id, out),
                Next::Matured(id) => self.server_has_matured(id, out),
                Next::RouteWaiting(pool) => self.route_waiting(pool),
                Next::Place(id, since) => {
                    self.moves.arriving = Some(since);
                    self.go_on_with(id, out);
                    self.moves.arriving = None;
                    if self.clients.get(id).is_some() {
                        self.watch_client(id);
                    }
                }
                Next::AwaitRound(id) => self.read_awaits_round(id, out),
                Next::ReadAgain(id, server, sqlstate) => {
                    self.read_again(id, server, sqlstate, out);
                }
                Next::ReadCatalogue(id) if self.servers.get(id).is_some() => {
                    self.read_catalogue(id, out);
                }
                Next::ReadCatalogue(_) => {}
                Next::Need(pool) if self.has_pool(pool) => self.need(pool, out),
                Next::Need(_) => {}
                Next::Over(id) => self.client_has_ended_work(id, out),
                Next::AskVolatile(login, server) => self.ask_volatile(login, server, out),
            }
        }
    }

    /// Sends a client's held messages, unless the client has left.
    fn go_on_with(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        if client.is_leaving()
            || !matches!(client.state(), ClientState::Linked(_) | ClientState::Idle)
        {
            return;
        }
        self.resume(id, out);
    }

    fn mail(&mut self, mail: Mail, out: &mut Out) {
        match mail {
            Mail::Client(parcel) => self.client_arrived(*parcel, out),
            Mail::Move(traveller) => self.moved_in(*traveller, out),
            Mail::Shed {
                login,
                to,
                clients,
                idle,
            } => self.shed(login, to, (clients, idle), out),
            Mail::Hosts(view) => self.hosts_changed(view, out),
            Mail::Secrets(config) => self.new_secrets(config, out),
            Mail::Covers(list, covers) => self.standbys_advance(list, covers, out),
            Mail::CheckHost(host) => self.check_now(&host, out),
            Mail::HeardFrom(host, since) => self.heard_from(*host, since, out),
            Mail::Seats(login, seats) => self.spread.seat(login, seats),
            Mail::NewPools(at) => self.spread.seat_new_pools(at),
            Mail::Landed => self.moves.under_way -= 1,
            Mail::Server(parcel) => self.server_arrived(*parcel, out),
            Mail::Welcome(login, welcome, epoch) => {
                if let Some(id) = self.logins.find(&login)
                    && epoch >= self.janitor.epoch()
                {
                    self.learn_welcome(id, *welcome, out);
                }
            }
            Mail::MakeRoom(wish) => self.make_room(*wish, out),
            Mail::Room(pool, made) => self.room(&pool, made, out),
            Mail::Brokered(mail) => self.brokered(mail, out),
            Mail::Seek(seek) => self.seek(*seek, out),
            Mail::Sought(number, finding) => self.sought(number, finding, out),
            Mail::ToListener(mail) => self.listener_hears(mail, out),
            Mail::FromListener(mail) => self.listener_says(mail, out),
            Mail::Forward { peer, packet, from } => self.forward(peer, packet, from, out),
            Mail::Forwarded(client, done) => self.forward_done(client, done, out),
            Mail::Standby(login, standby) => self.learn_standby(&login, standby),
            Mail::SchemaChanged(database, changes) => {
                let statements = &mut self.shared.statements;
                statements.schema_changed_elsewhere(&database, changes);
            }
            Mail::ShardCatalogue(shard, question, found) => {
                self.learn_catalogue(&shard, question, found);
            }
            Mail::VolatileNames(database, schema, names) => {
                self.learn_volatile(&database, schema, &names);
            }
            Mail::SecretChanged(changed) => self.secret_changed_elsewhere(*changed, out),
            Mail::Order(Order::GiveUp) => self.successor_left(out),
            Mail::Order(order) => self.order(&order, out),
            Mail::Survey(survey) => self.survey(survey, out),
            Mail::Report(report) => self.report(report, out),
            Mail::Adopt(parcel) => self.adopt(*parcel, out),
            Mail::AllAdopted => {
                out.push(Action::Broker(ToBroker::AllArrived));
            }
            Mail::Inherit(estate) => self.inherit(&estate),
        }
    }

    fn brokered(&mut self, mail: FromBroker, out: &mut Out) {
        match mail {
            FromBroker::Permit {
                login,
                pool,
                reserve,
                warm,
            } => self.permitted(&pool, (reserve, warm), login, out),
            FromBroker::Hungry {
                worker,
                pool,
                age,
                unwelcomed,
                idle_only,
            } => self.hungry(worker, &pool, age, unwelcomed, idle_only, out),
            FromBroker::Give { pool, to } => self.give(&pool, to, out),
            FromBroker::Alone { pool } => self.alone(&pool, out),
            FromBroker::Evict { pool, from, age } => self.evict(&pool, &from, age, out),
            FromBroker::Content { pool } => self.content(&pool),
            FromBroker::HeldBack { pool, by } => self.held_back(&pool, by),
            FromBroker::Silence { pool } => self.silence_listener(&pool.login, out),
            FromBroker::Keep { pool, keep } => self.keep(&pool, keep, out),
            FromBroker::Admitted {
                client,
                login,
                answer,
            } => {
                self.admitted(client, login, answer, out);
            }
            FromBroker::Pinned {
                client,
                ticket,
                granted,
            } => self.permission_answered(client, ticket, granted, out),
        }
    }

    fn answer(&mut self, answer: Answer, out: &mut Out) {
        let ticket = match &answer {
            Answer::Resolved(ticket, _)
            | Answer::Derived(ticket, _)
            | Answer::Dropped(ticket)
            | Answer::UserNamed(ticket, _)
            | Answer::PasswordChecked(ticket, _)
            | Answer::Reloaded(ticket, _)
            | Answer::Set(ticket, _)
            | Answer::Forwarded(ticket, _) => *ticket,
            Answer::Names(ticket, _) => *ticket,
            Answer::Moved { host, gone } => return self.host_moved(host, gone, out),
            Answer::Forwarding(ticket) => return self.forwarding(*ticket),
        };
        // The asker may be gone.
        let Some(asker) = self.asks.remove(&ticket) else {
            return;
        };
        match (asker, answer) {
            (Asker::Server(id), Answer::Resolved(_, result)) => self.resolved(id, result, out),
            (Asker::Client(id), Answer::Derived(_, key)) => self.client_derived(id, key, out),
            (Asker::Client(id), Answer::UserNamed(_, name)) => self.peer_named(id, name, out),
            (Asker::Server(id), Answer::UserNamed(_, name)) => {
                self.server_peer_named(id, name, out);
            }
            (Asker::Client(id), Answer::PasswordChecked(_, verdict)) => {
                self.password_checked(id, verdict, out);
            }
            (Asker::Server(id), Answer::Derived(_, key)) => self.server_derived(id, key, out),
            (Asker::Console(id), Answer::Reloaded(_, result)) => {
                self.reloaded(id, result.map(|()| None), out);
            }
            (Asker::Console(id), Answer::Set(_, result)) => self.reloaded(id, result, out),
            (Asker::Names(id, serial), Answer::Names(_, names)) => {
                self.report_names(id, serial, names, out);
            }
            (Asker::Forward(peer), Answer::Forwarded(ticket, result)) => {
                self.forwarded(peer, ticket, result, out);
            }
            _ => {}
        }
    }
}
