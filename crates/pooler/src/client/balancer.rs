//! Clients behind a balancer: the header of the PROXY protocol, before the first packet.

use howdah_wire::proxy::{self, ProxyError, ProxyHeader};

use super::Client;
use crate::event::{Address, ClientId, Ends, Out};
use crate::fault::{Fault, HeaderFault};
use crate::note::Level;
use crate::place::{Via, whole};
use crate::pooler::Pooler;

impl Pooler {
    /// How a new connection reaches this process.
    pub(super) fn via(&self, ends: &Ends) -> Via {
        let balancers = &self.config.globals.proxy_protocol;
        match &ends.remote {
            Address::Tcp(address, _) if balancers.has(*address) => Via::HeaderDue,
            _ => Via::Direct,
        }
    }

    /// Reads a balancer's header, if one is due. False if the bytes behind it can't be read (yet).
    pub(super) fn header_is_read(&mut self, id: ClientId, out: &mut Out) -> bool {
        let client = self.clients.at_mut(id);
        if client.via() != Via::HeaderDue {
            return true;
        }
        match proxy::read(client.inbox.held()) {
            _ if client.inbox.held().is_empty() => false,
            None => false,
            Some(Err(error)) => {
                let fault = match error {
                    ProxyError::Missing => HeaderFault::Missing,
                    error => HeaderFault::Invalid(error),
                };
                self.disconnect(id, Fault::ProxyHeader(fault), out);
                false
            }
            Some(Ok(header)) => {
                let balancer = client.ends.remote.clone();
                client.comes_through_balancer(header);
                if self.noisy(Level::Debug) {
                    let text = format!("by the PROXY protocol, from {}", whole(&balancer));
                    self.note_client(Level::Debug, id, text, out);
                }
                true
            }
        }
    }
}

impl Client {
    /// Others could read what the client sends: it uses no TLS, and this socket's other side, be it
    /// the client or a balancer, is another machine.
    pub(super) fn is_in_the_open(&self) -> bool {
        let near = match (&self.ends.remote, self.via()) {
            (Address::Unix(..), _) => true,
            (Address::Tcp(..), Via::Balancer { near }) => near,
            (Address::Tcp(address, _), _) => address.is_loopback(),
        };
        !near && !self.is_tls()
    }

    /// The fault of a client whose first packet begins like a header; `None` if it does not.
    pub(super) fn stray_header(&self) -> Option<Fault> {
        let fault = match self.via() {
            Via::Direct => HeaderFault::NotListed,
            Via::HeaderDue | Via::Balancer { .. } => HeaderFault::Second,
        };
        proxy::is_header(self.inbox.held()).then_some(Fault::ProxyHeader(fault))
    }

    /// Takes a header, and the client's address from it.
    fn comes_through_balancer(&mut self, header: ProxyHeader) {
        self.inbox.take_front(header.size);
        let near = matches!(&self.ends.remote, Address::Tcp(address, _) if is_loopback(*address));
        self.comes_via(Via::Balancer { near });
        // Only who is on this machine can speak for a client on this machine. Other balancers mean
        // themselves by a loopback address.
        let source = header
            .source
            .map(|(address, port)| (address.to_canonical(), port));
        if let Some((address, port)) = source.filter(|(address, _)| near || !is_loopback(*address))
        {
            self.takes_address(Address::Tcp(address, port));
        }
    }
}

fn is_loopback(address: std::net::IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
