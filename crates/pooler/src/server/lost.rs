//! How a server is lost: its connection breaks, or PostgreSQL has closed it.

use crate::event::{Action, Close, Out, Peer, ServerId};
use crate::fault::Fault;
use crate::mail::ToBroker;
use crate::note::Level;
use crate::pool::key::Purpose;
use crate::pooler::Pooler;
use crate::server::connect::login_is_over;
use crate::server::{Ending, ServerState};

impl Pooler {
    /// The stream of a server has ended or broken.
    pub(crate) fn server_lost(&mut self, id: ServerId, why: Option<String>, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        let works = matches!(
            server.state(),
            ServerState::Linked(_) | ServerState::Aligning(_)
        );
        if let Some(why) = why.as_ref().filter(|_| works) {
            self.note_server(Level::Log, id, why, out);
        }
        let server = gone!(self.servers.get(id));
        match server.state() {
            ServerState::Closing => {}
            ServerState::Cancel(_) => self.carrier_lost(id, why, out),
            ServerState::Securing(_)
            | ServerState::Login(_)
            | ServerState::ConnectQuery
            | ServerState::Maturing(_) => {
                let text = why.unwrap_or_else(|| "server closed the connection".to_string());
                self.login_failed(id, "08006", &format!("server conn crashed? {text}"), out);
                self.close_server(id, "server conn crashed?", Close::Abort, out);
            }
            ServerState::Linked(_) | ServerState::Aligning(_) => {
                match server.ending() {
                    // The client has got the server's FATAL.
                    Some(Ending::Crashed) => self.drop_linked_untold(id, Fault::ServerGone, out),
                    _ => self.drop_linked(id, Fault::ServerGone, out),
                }
                self.close_server(id, "server conn crashed?", Close::Abort, out);
            }
            _ => self.close_server(id, "server conn crashed?", Close::Abort, out),
        }
    }

    /// A server has sent an invalid message, or an answer without a request.
    pub(crate) fn server_broken(&mut self, id: ServerId, fault: Fault, out: &mut Out) {
        self.note_server(Level::Error, id, &fault.to_string(), out);
        self.drop_linked(id, fault, out);
        self.close_server(id, "unknown pkt", Close::Await, out);
    }

    /// PostgreSQL did not end the session in time. The session may still exist.
    pub(crate) fn server_given_up(&mut self, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        if matches!(server.state(), ServerState::Closing) {
            let text = "PostgreSQL did not end the session in time; its slot is counted as free";
            self.note_server(Level::Warning, id, text, out);
        }
        self.server_gone(id, out);
    }

    /// PostgreSQL has closed a server's connection (or the time to wait for this is over).
    pub(crate) fn server_gone(&mut self, id: ServerId, out: &mut Out) {
        let server = gone!(self.servers.get(id));
        match *server.state() {
            ServerState::Cancel(_) => return self.carrier_closed(id, out),
            ServerState::Closing => {}
            ServerState::Resolving => self.pools.at_mut(server.pool).server_is_through(),
            // The driver ended the connection without a request from Howdah.
            _ => {
                self.server_lost(id, None, out);
                self.close_server(id, "server conn crashed?", Close::Abort, out);
            }
        }
        let Some(server) = self.servers.remove(id) else {
            return;
        };
        self.keep_no_blocks();
        let pool = self.pools.at_mut(server.pool);
        pool.server_leaves(server.checkouts);
        if pool.key.purpose == Purpose::Checks {
            let target = pool.key.target.clone();
            self.check_closed(id, &target);
            return self.unpacked(Peer::Server(id), out);
        }
        let tells_catalogue = pool.key.purpose == Purpose::Catalogue;
        login_is_over(&pool.key, server.connection.login_at, out);
        if server.permitted {
            let freed = ToBroker::Freed {
                worker: self.worker,
                pool: pool.key.clone(),
            };
            out.push(Action::Broker(freed));
        }
        if let Some((worker, pool)) = server.makes_room_for {
            self.tell_room(worker, pool, true, out);
        }
        if tells_catalogue {
            self.catalogue_server_gone(server.pool, out);
        }
        self.need(server.pool, out);
        self.unpacked(Peer::Server(id), out);
    }
}
