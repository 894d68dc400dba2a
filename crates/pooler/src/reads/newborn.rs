//! New servers at standbys mature before they serve reads: they are asked which instance they belong
//! to, and the standby must then cover a round that began after the answer.

use std::sync::atomic::Ordering;

use howdah_wire::backend::Fields;
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use crate::event::{Close, Out, Peer, ServerId, Time};
use crate::login::LoginId;
use crate::next::Next;
use crate::pool::key::Purpose;
use crate::pool::target::TargetName;
use crate::pooler::Pooler;
use crate::roster::question::columns;
use crate::roster::round::Cover;
use crate::roster::view::{HostList, Instance, Role};
use crate::server::{Server, ServerState};

/// Asks a server which instance it belongs to, and how its transactions begin.
const QUESTION: &str = "SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), \
    pg_catalog.int8(pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()) \
    OPERATOR(pg_catalog.*) 1000000), \
    pg_catalog.current_setting('default_transaction_isolation')";

/// How long a round is asked for on behalf of a new server, in nanoseconds.
const AWAITED_NS: u64 = 20_000_000;

impl Pooler {
    /// A server has logged in that serves reads at a standby: it must mature first. False for any other
    /// server.
    pub(crate) fn begins_to_mature(&mut self, id: ServerId, out: &mut Out) -> bool {
        if !self.must_mature(id) {
            return false;
        }
        out.send_with(Peer::Server(id), |buf| {
            write::query(buf, QUESTION.as_bytes())
        });
        self.await_task(id, ServerState::Maturing(Box::default()));
        true
    }

    fn must_mature(&self, id: ServerId) -> bool {
        let server = self.servers.at(id);
        let pool = self.pools.at(server.pool);
        let reads = self.logins.at(server.login).terms.reads;
        let TargetName::Host(host) = &pool.key.target else {
            return false;
        };
        let standing = self.standing(server.login, host);
        pool.key.purpose == Purpose::Clients
            && !server.is_reserved()
            && reads.is_some_and(|reads| reads.is_session)
            && server.standby != Some(false)
            && standing.is_some_and(|of| of.role == Some(Role::Standby))
    }

    /// A message of a server that matures.
    pub(crate) fn maturing_message(
        &mut self,
        id: ServerId,
        message: u8,
        body: &[u8],
        out: &mut Out,
    ) {
        let server = self.servers.at_mut(id);
        let maturity = gone!(server.maturity_mut());
        match message {
            tag::DATA_ROW => {
                let Some([Some(system), Some(started), Some(isolation)]) = columns(body) else {
                    maturity.error = Some("it does not tell its instance".into());
                    return;
                };
                maturity.instance = system.parse().ok().map(|of| Instance::of(of, started));
                if isolation == "serializable" {
                    maturity.error = Some("its transactions are serializable by default".into());
                }
            }
            tag::ERROR => maturity.error = Some(Fields::new(body).texts("XX000").1),
            tag::READY => self.instance_is_told(id, out),
            _ => {}
        }
    }

    fn instance_is_told(&mut self, id: ServerId, out: &mut Out) {
        if !self.must_mature(id) {
            // Its host has been promoted meanwhile, or a reload has changed what reads need.
            return self.next.note(Next::Matured(id));
        }
        let born = self.begun.load(Ordering::SeqCst);
        let server = self.servers.at_mut(id);
        let maturity = gone!(server.maturity_mut());
        maturity.born = Some(born);
        if maturity.instance.is_none() || maturity.error.is_some() {
            let why = maturity.error.take();
            let why = why.unwrap_or_else(|| "it does not tell its instance".into());
            let text = format!("no reads at this standby: {why}");
            self.login_failed(id, "55000", &text, out);
            return self.close_server(id, "server serves no reads", Close::Await, out);
        }
        if !self.has_matured(id) {
            let (login, until) = (self.servers.at(id).login, Time(self.now.0 + AWAITED_NS));
            self.await_round(login, born, until, out);
            self.watch_server(id);
        }
    }

    /// The hosts have changed: servers at a new primary need not mature any more.
    pub(crate) fn promoted_servers_mature(&mut self) {
        let maturing = self.servers.iter();
        let maturing = maturing.filter(|(_, of)| matches!(of.state(), ServerState::Maturing(_)));
        for id in maturing.map(|(id, _)| id).collect::<Vec<_>>() {
            let server = self.servers.at(id);
            let TargetName::Host(host) = &self.pools.at(server.pool).key.target else {
                continue;
            };
            let standing = self.standing(server.login, host);
            let is_primary = standing.is_some_and(|of| of.role == Some(Role::Primary));
            let ServerState::Maturing(maturity) = server.state() else {
                continue;
            };
            if is_primary && maturity.born.is_some() {
                self.next.note(Next::Matured(id));
            }
        }
    }

    /// Standbys of these hosts cover more.
    pub(super) fn mature_servers(&mut self, list: &HostList) {
        let of_list = |id: LoginId| *self.logins.at(id).terms.database.hosts == **list;
        let maturing = self.servers.iter().filter(|(_, server)| {
            matches!(server.state(), ServerState::Maturing(_)) && of_list(server.login)
        });
        for id in maturing.map(|(id, _)| id).collect::<Vec<_>>() {
            self.has_matured(id);
        }
    }

    /// Why a server has not matured in time.
    pub(crate) fn why_immature(&self, id: ServerId) -> &'static str {
        let server = self.servers.at(id);
        let instance = match server.state() {
            ServerState::Maturing(maturity) => maturity.instance,
            _ => None,
        };
        match (self.cover_of_host(server), instance) {
            (Some(cover), Some(instance)) if cover.instance != instance => {
                "another instance answers at its address"
            }
            (None, _) => "no primary or standby tells how far it is",
            _ => "the standby does not advance",
        }
    }

    /// What the host of a server covers.
    fn cover_of_host(&self, server: &Server) -> Option<&Cover> {
        let TargetName::Host(host) = &self.pools.at(server.pool).key.target else {
            return None;
        };
        let hosts = &self.logins.at(server.login).terms.database.hosts;
        self.covers.get(&**hosts)?.get(&**host)
    }

    /// True if a server's standby covers a round that began after the server was born: its pool can
    /// use it.
    fn has_matured(&mut self, id: ServerId) -> bool {
        let server = gone!(self.servers.get(id));
        let ServerState::Maturing(maturity) = server.state() else {
            return false;
        };
        let (Some(instance), Some(born)) = (maturity.instance, maturity.born) else {
            return false;
        };
        let cover = self.cover_of_host(server);
        if !cover.is_some_and(|cover| cover.instance == instance && cover.round > born) {
            return false;
        }
        let server = self.servers.at_mut(id);
        server.matures(instance);
        self.next.note(Next::Matured(id));
        true
    }
}
