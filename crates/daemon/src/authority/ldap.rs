//! One question to a directory: bind as the user, or search for the user's entry and bind as that.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use howdah_pooler::ldap::message::{self, Outcome, Reply};
use howdah_pooler::ldap::{LdapBind, LdapOptions, LdapScheme, LdapServer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ldap_tls::Trust;
use crate::dns::Resolver;
use crate::log;

/// How long connecting to one address may take, as in PgBouncer.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long each answer may take, and each TLS handshake.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A connection, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Asks directories.
pub(super) struct Directory {
    resolver: Arc<Resolver>,
    trust: Trust,
}

impl Directory {
    pub(super) fn new(resolver: Arc<Resolver>) -> Directory {
        Directory {
            resolver,
            trust: Trust::default(),
        }
    }

    /// Whether a directory lets a user in with this password, which is not empty.
    ///
    /// # Errors
    /// It does not, or does not say; the text is for the log.
    pub(super) async fn check(
        &self,
        options: &LdapOptions,
        user: &str,
        password: &str,
    ) -> Result<(), String> {
        if password.is_empty() {
            // A bind that names no password proves nothing, but succeeds (RFC 4513, 5.1.2).
            return Err("an empty password proves nothing".into());
        }
        let name = match options.bind.simple_name(user) {
            Some(name) => name,
            None => self.search(options, user).await?,
        };
        let mut connection = self.connect(options).await?;
        let outcome = connection.bind(&name, password).await?;
        connection.leave().await;
        if outcome.is_success() {
            return Ok(());
        }
        let server = &connection.host;
        Err(format!(
            "LDAP login failed for user {name} on server {server}: {outcome}"
        ))
    }

    /// The name of the one entry that fits a user.
    async fn search(&self, options: &LdapOptions, user: &str) -> Result<String, String> {
        let LdapBind::Search {
            base,
            scope,
            bind_dn,
            bind_password,
            pattern,
        } = &options.bind
        else {
            return Err("there is nothing to search".into());
        };
        if user.contains(['*', '(', ')', '\\', '/']) {
            return Err("invalid character in user name for LDAP authentication".into());
        }
        let mut connection = self.connect(options).await?;
        let server = connection.host.clone();
        let outcome = connection.bind(bind_dn, bind_password).await?;
        if !outcome.is_success() {
            return Err(format!(
                "could not perform initial LDAP bind for ldapbinddn \"{bind_dn}\" on server \
                 \"{server}\": {outcome}"
            ));
        }
        let filter = pattern.filter(user);
        let number = connection.next_number();
        connection
            .send(&message::search(number, base, *scope, &filter)?)
            .await?;
        let mut found = Vec::new();
        let outcome = loop {
            match connection.answer(number).await? {
                // More than two would tell nothing more.
                Reply::Entry(name) if found.len() < 2 => found.push(name),
                Reply::Entry(_) => {}
                Reply::Reference => {}
                Reply::Searched(outcome) => break outcome,
                _ => return Err(connection.nonsense()),
            }
        };
        connection.leave().await;
        if !outcome.is_success() && !outcome.is_cut_off() {
            return Err(format!(
                "could not search LDAP for filter \"{filter}\" on server \"{server}\": {outcome}"
            ));
        }
        match found.len() {
            0 => Err(format!(
                "LDAP user \"{user}\" does not exist: search for filter \"{filter}\" on server \
                 \"{server}\" returned no entries"
            )),
            // Without a name, the bind would be anonymous; after a search that was cut off, as
            // whoever came first.
            1 if outcome.is_success() && !found[0].is_empty() => Ok(found.remove(0)),
            _ => Err(format!(
                "LDAP user \"{user}\" is not unique: search for filter \"{filter}\" on server \
                 \"{server}\" returned several entries"
            )),
        }
    }

    /// A connection to the first server that can be had.
    async fn connect(&self, options: &LdapOptions) -> Result<Connection, String> {
        let mut failures = Vec::new();
        for server in &options.servers {
            match self.connect_to(server, options).await {
                Ok(connection) => return Ok(connection),
                Err(why) => failures.push(format!("{} port {}: {why}", server.host, server.port)),
            }
        }
        Err(format!(
            "could not connect to LDAP server {}",
            failures.join(", ")
        ))
    }

    async fn connect_to(
        &self,
        server: &LdapServer,
        options: &LdapOptions,
    ) -> Result<Connection, String> {
        let addresses = match server.host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolver.look_up(&server.host).await?,
        };
        let mut failure = "it has no address".to_owned();
        let mut stream = None;
        for address in addresses {
            let connect = TcpStream::connect(SocketAddr::new(address, server.port));
            match tokio::time::timeout(CONNECT_LIMIT, connect).await {
                Ok(Ok(connected)) => {
                    stream = Some(connected);
                    break;
                }
                Ok(Err(why)) => failure = log::text(&why),
                Err(_) => failure = format!("no answer within {} seconds", CONNECT_LIMIT.as_secs()),
            }
        }
        let mut connection = Connection {
            stream: Box::new(stream.ok_or(failure)?),
            host: server.host.clone(),
            received: Vec::new(),
            number: 0,
        };
        if options.scheme == LdapScheme::Ldaps {
            connection = self.encrypt(connection).await?;
        }
        if options.start_tls {
            connection.ask_for_tls().await?;
            connection = self.encrypt(connection).await?;
        }
        Ok(connection)
    }

    /// TLS from here on.
    async fn encrypt(&self, connection: Connection) -> Result<Connection, String> {
        if !connection.received.is_empty() {
            return Err(connection.nonsense());
        }
        let stream = self.trust.connect(&connection.host, connection.stream);
        let stream = within_limit("TLS", stream).await?;
        Ok(Connection {
            stream: Box::new(stream),
            ..connection
        })
    }
}

/// A connection to a directory.
struct Connection {
    stream: Box<dyn Stream>,
    host: String,
    /// What has come and was not looked at yet.
    received: Vec<u8>,
    /// Of the last message.
    number: u8,
}

impl Connection {
    fn next_number(&mut self) -> u8 {
        self.number += 1;
        self.number
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        sent.await
            .map_err(|why| format!("could not write to LDAP server {}: {why}", self.host))
    }

    async fn bind(&mut self, name: &str, password: &str) -> Result<Outcome, String> {
        let number = self.next_number();
        self.send(&message::bind(number, name, password)).await?;
        match self.answer(number).await? {
            Reply::Bound(outcome) => Ok(outcome),
            _ => Err(self.nonsense()),
        }
    }

    /// The server is ready for a TLS handshake when this returns.
    async fn ask_for_tls(&mut self) -> Result<(), String> {
        let number = self.next_number();
        self.send(&message::start_tls(number)).await?;
        match self.answer(number).await? {
            Reply::Extended(outcome) if outcome.is_success() => Ok(()),
            Reply::Extended(outcome) => Err(format!("could not start LDAP TLS session: {outcome}")),
            _ => Err(self.nonsense()),
        }
    }

    /// Says goodbye; whether it is heard does not matter.
    async fn leave(&mut self) {
        let number = self.next_number();
        let _ = self.send(&message::unbind(number)).await;
        let _ = tokio::time::timeout(CONNECT_LIMIT, self.stream.shutdown()).await;
    }

    /// The next message in answer to one of ours.
    async fn answer(&mut self, number: u8) -> Result<Reply, String> {
        let host = self.host.clone();
        within_limit(&format!("LDAP server {host}"), self.receive(number)).await
    }

    async fn receive(&mut self, number: u8) -> Result<Reply, String> {
        loop {
            match message::read(&self.received) {
                Ok(Some((answered, reply, length))) => {
                    self.received.drain(..length);
                    return match reply {
                        _ if answered == u32::from(number) => Ok(reply),
                        // Unasked, it is a farewell (RFC 4511, section 4.4.1).
                        Reply::Extended(outcome) if answered == 0 => Err(format!(
                            "LDAP server {} ends the connection: {outcome}",
                            self.host
                        )),
                        _ => Err(self.nonsense()),
                    };
                }
                Ok(None) => {}
                Err(_) => return Err(self.nonsense()),
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer).await {
                Ok(0) => return Err(format!("LDAP server {} closed the connection", self.host)),
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(why) => {
                    return Err(format!(
                        "could not read from LDAP server {}: {why}",
                        self.host
                    ));
                }
            }
        }
    }

    fn nonsense(&self) -> String {
        format!("{} does not answer as an LDAP server does", self.host)
    }
}

async fn within_limit<T>(
    who: &str,
    answer: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let limited = tokio::time::timeout(ANSWER_LIMIT, answer).await;
    let late = || format!("{who}: no answer within {} seconds", ANSWER_LIMIT.as_secs());
    limited.unwrap_or_else(|_| Err(late()))
}
