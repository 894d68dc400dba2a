//! What others may ask about links. Who needs more than an answer gives an order (`orders.rs`,
//! `ends.rs`).

use howdah_wire::backend::Status;

use crate::client::{Client, ClientState};
use crate::event::{Address, ClientId, Peer, ServerId};
use crate::pool::key::PoolId;
use crate::pooler::Pooler;
use crate::server::Server;

/// A link, as others see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkSeen<'a> {
    pub(crate) client_id: ClientId,
    pub(crate) client: &'a Client,
    pub(crate) server_id: ServerId,
    pub(crate) server: &'a Server,
}

impl Pooler {
    /// True in the middle of a message that a server sends without being asked, such as a notice.
    pub(crate) fn is_being_told(&self, id: ClientId) -> bool {
        let server = self.clients.at(id).linked_server();
        let server = server.map(|server| self.servers.at(server));
        server.is_some_and(|server| !server.link.is_owed() && !server.inbox.at_boundary())
    }

    /// The servers that a client has now.
    fn servers_of(&self, client: &Client) -> impl Iterator<Item = &Server> {
        let server = client.linked_server();
        server.and_then(|id| self.servers.get(id)).into_iter()
    }

    /// All links, by client.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkSeen<'_>> {
        self.clients.iter().filter_map(|(client_id, client)| {
            let server_id = client.linked_server()?;
            Some(LinkSeen {
                client_id,
                client,
                server_id,
                server: self.servers.get(server_id)?,
            })
        })
    }

    /// The client that has this server.
    pub(crate) fn client_of(&self, server: &Server) -> Option<&Client> {
        self.clients.get(server.linked_client()?)
    }

    /// The console's number of the connection at the other side of the link.
    pub(crate) fn partner_of_client(&self, client: &Client) -> Option<u64> {
        self.servers_of(client).next().map(|server| server.number)
    }

    /// True if a message to the client may be sent now: none is under way.
    pub(crate) fn is_between_messages(&self, client: &Client) -> bool {
        self.servers_of(client)
            .all(|server| !server.inbox.relaying())
    }

    /// True if a request of the client will be answered without more messages from it.
    pub(crate) fn awaits_answers(&self, client: &Client) -> bool {
        self.servers_of(client)
            .any(|server| server.link.will_answer())
    }

    /// True if the client has a server, outside of a transaction.
    pub(crate) fn rests_with_server(&self, client: &Client) -> bool {
        self.servers_of(client)
            .any(|server| server.status == Status::Idle)
    }

    /// True if nothing is under way between a client and PostgreSQL.
    pub(crate) fn is_quiet_between(&self, client: &Client) -> bool {
        match *client.state() {
            ClientState::Idle | ClientState::Waiting(_) => true,
            ClientState::Linked(_) => self.servers_of(client).all(|server| {
                server.status == Status::Idle
                    && !server.link.is_owed()
                    && !server.link.group_open()
                    && !server.inbox.relaying()
            }),
            _ => false,
        }
    }

    /// True if the client is in session mode and its server uses TLS, which can't travel.
    pub(crate) fn is_bound_by_tls(&self, client: &Client) -> bool {
        let mut servers = self.servers_of(client);
        servers.any(|server| server.is_tls() && self.logins.at(server.login).is_session())
    }

    /// The pool of the client's server.
    pub(crate) fn pool_of_server(&self, client: &Client) -> Option<PoolId> {
        self.servers_of(client).next().map(|server| server.pool)
    }

    /// The address of the client's server.
    pub(crate) fn place_of_server(&self, client: &Client) -> Option<Address> {
        let server = self.servers_of(client).next()?;
        server.connection.remote().cloned()
    }

    /// True if the client's server has this process id, and the listener has delivered everything
    /// up to the client's last round.
    pub(crate) fn is_own_backend(&self, client: &Client, pid: u32) -> bool {
        self.servers_of(client)
            .any(|server| !server.session.is_unheard() && server.cancels.pid() == Some(pid))
    }

    /// The other side of the link of a connection.
    pub(crate) fn other_side(&self, peer: Peer) -> Option<Peer> {
        match peer {
            Peer::Client(_) => self.sides_of(peer).1.map(Peer::Server),
            Peer::Server(_) => self.sides_of(peer).0.map(Peer::Client),
        }
    }

    /// The server of a client that is between two transactions and keeps the server, if both are at
    /// rest: the pair that a takeover may move. The caller knows what may travel.
    pub(crate) fn session_at_rest(&self, id: ClientId) -> Option<ServerId> {
        let client = self.clients.get(id)?;
        let server_id = client.linked_server()?;
        let server = self.servers.get(server_id)?;
        let rests = client.parked && !client.is_leaving() && !client.valve.is_congested();
        (rests && !server.is_tls() && server.may_travel()).then_some(server_id)
    }

    /// The client and the server of a connection: itself, and the other side of its link.
    pub(crate) fn sides_of(&self, peer: Peer) -> (Option<ClientId>, Option<ServerId>) {
        match peer {
            Peer::Client(id) => {
                let client = self.clients.get(id);
                (Some(id), client.and_then(Client::linked_server))
            }
            Peer::Server(id) => {
                let server = self.servers.get(id);
                (server.and_then(Server::linked_client), Some(id))
            }
        }
    }
}
