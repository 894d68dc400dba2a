//! Where a server is connected.

use std::sync::Arc;

use crate::config::{Address, HostPort};
use crate::place::{self, Ends};
use crate::pool::target::Target;
use crate::tls::TlsFacts;

/// Where a server is connected, and how.
#[derive(Debug)]
pub struct ServerConnection {
    /// Where the pool's servers connected to when this one was opened.
    pub(crate) target: Arc<Target>,
    /// The host and port, as the log shows them until the server is connected.
    to: Box<str>,
    /// The two ends of the socket, once connected.
    pub(crate) ends: Option<Ends>,
    /// The host's name, if the configuration has a name.
    pub(crate) host: Option<Box<str>>,
    /// The port, while the host's address is looked up.
    pub(crate) port: u16,
    /// The TLS session, if any.
    pub(crate) tls: Option<Arc<TlsFacts>>,
    /// The host whose `max_host_logins` counts the login, until the login is over.
    pub(crate) login_at: Option<Arc<HostPort>>,
}

impl ServerConnection {
    /// No connection yet.
    pub(crate) fn new(target: Arc<Target>) -> Self {
        ServerConnection {
            target,
            to: "(unconnected)".into(),
            ends: None,
            host: None,
            port: 0,
            tls: None,
            login_at: None,
        }
    }

    /// The same, for a login that may count at a host.
    pub(crate) fn permitted(target: Arc<Target>, login_at: Option<Arc<HostPort>>) -> Self {
        ServerConnection {
            login_at,
            ..ServerConnection::new(target)
        }
    }

    /// A connection that comes from elsewhere.
    pub(crate) fn open(
        target: Arc<Target>,
        ends: Ends,
        host: Option<Box<str>>,
        tls: Option<Arc<TlsFacts>>,
    ) -> Self {
        ServerConnection {
            ends: Some(ends),
            host,
            tls,
            ..ServerConnection::new(target)
        }
    }

    /// Another connection to the same host, which is being opened.
    pub(crate) fn again(&self, to: &Address) -> Self {
        ServerConnection {
            to: place::whole(to).into(),
            host: self.host.clone(),
            ..ServerConnection::new(self.target.clone())
        }
    }

    /// The address of the host is being looked up.
    pub(crate) fn look_for(&mut self, host: &str, port: u16) {
        self.to = format!("{host}:{port}").into();
        self.host = Some(host.into());
        self.port = port;
    }

    /// The socket is being opened.
    pub(crate) fn begin(&mut self, to: &Address) {
        self.to = place::whole(to).into();
    }

    pub(crate) fn set_ends(&mut self, ends: Ends) {
        self.ends = Some(ends);
    }

    pub(crate) fn set_tls(&mut self, facts: Box<TlsFacts>) {
        self.tls = Some(Arc::from(facts));
    }

    /// The remote address, once connected.
    pub(crate) fn remote(&self) -> Option<&Address> {
        self.ends.as_ref().map(|ends| &ends.remote)
    }

    /// The login is over: the host whose `max_host_logins` has counted it.
    pub(crate) fn login_ends(&mut self) -> Option<Arc<HostPort>> {
        self.login_at.take()
    }

    /// The remote address in words, without the port; empty until connected.
    pub(crate) fn address(&self) -> String {
        match self.remote() {
            Some(Address::Tcp(ip, _)) => ip.to_string(),
            Some(Address::Unix(path, _)) => path.clone(),
            None => String::new(),
        }
    }

    /// The remote end, as the log shows it.
    pub(crate) fn shown(&self) -> String {
        let ends = self.ends.as_ref();
        ends.map_or_else(|| self.to.to_string(), place::remote)
    }
}
