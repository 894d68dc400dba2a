//! One LDAP login: bind as the user, or search for the user's entry and bind as that entry.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use howdah_pooler::ldap::{LdapBind, LdapOptions, LdapScheme, LdapServer, filter};
use tokio::net::TcpStream;

use super::ldap_connection::{CONNECT_LIMIT, LdapConnection, Stream, within_limit};
use super::ldap_tls::Trust;

use crate::dns::Resolver;
use crate::log;

/// Checks passwords with directory servers.
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

    /// Checks a user's password with a directory. The password is not empty.
    ///
    /// # Errors
    /// The directory refuses the password, or gives no answer; the text is for the log.
    pub(super) async fn check(
        &self,
        options: &LdapOptions,
        user: &str,
        password: &str,
    ) -> Result<(), String> {
        if password.is_empty() {
            // A bind with an empty password proves nothing, but succeeds (RFC 4513, 5.1.2).
            return Err("an empty password proves nothing".into());
        }
        let name = match options.bind.simple_name(user) {
            Some(name) => name,
            None => self.search(options, user).await?,
        };
        let mut connection = self.connect(options).await?;
        let outcome = connection.bind(&name, password).await?;
        let server = connection.host().to_owned();
        connection.leave().await;
        if outcome.is_success() {
            return Ok(());
        }
        Err(format!(
            "LDAP login failed for user {name} on server {server}: {outcome}"
        ))
    }

    /// The name of the only entry that matches a user.
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
        let filter = filter::canonical(&pattern.filter(user))?;
        let mut connection = self.connect(options).await?;
        let server = connection.host().to_owned();
        let outcome = connection.bind(bind_dn, bind_password).await?;
        if !outcome.is_success() {
            return Err(format!(
                "could not perform initial LDAP bind for ldapbinddn \"{bind_dn}\" on server \
                 \"{server}\": {outcome}"
            ));
        }
        let (mut found, outcome) = connection.search(base, *scope, &filter).await?;
        connection.leave().await;
        let whole = outcome.is_success();
        if !whole && !outcome.is_cut_off() {
            return Err(format!(
                "could not search LDAP for filter \"{filter}\" on server \"{server}\": {outcome}"
            ));
        }
        match found.len() {
            0 => Err(format!(
                "LDAP user \"{user}\" does not exist: search for filter \"{filter}\" on server \
                 \"{server}\" returned no entries"
            )),
            // An empty name would mean an anonymous bind. After a search that was cut off, other
            // entries may match, too.
            1 if whole && !found[0].is_empty() => Ok(found.remove(0)),
            _ => Err(format!(
                "LDAP user \"{user}\" is not unique: search for filter \"{filter}\" on server \
                 \"{server}\" returned several entries"
            )),
        }
    }

    /// A connection to the first server that accepts one.
    async fn connect(&self, options: &LdapOptions) -> Result<LdapConnection, String> {
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
    ) -> Result<LdapConnection, String> {
        let host = &server.host;
        let mut stream: Box<dyn Stream> = Box::new(self.reach(server).await?);
        if options.scheme == LdapScheme::Ldaps {
            stream = self.encrypt(host, stream).await?;
        }
        if options.start_tls {
            let asked = LdapConnection::new(host, stream).await?;
            stream = self.encrypt(host, asked.start_tls().await?).await?;
        }
        LdapConnection::new(host, stream).await
    }

    /// A connection to the first address that accepts one.
    async fn reach(&self, server: &LdapServer) -> Result<TcpStream, String> {
        let addresses = match server.host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolver.look_up(&server.host).await?,
        };
        let mut failure = "it has no address".to_owned();
        for address in addresses {
            let connect = TcpStream::connect(SocketAddr::new(address, server.port));
            match tokio::time::timeout(CONNECT_LIMIT, connect).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(why)) => failure = log::text(&why),
                Err(_) => {
                    let seconds = CONNECT_LIMIT.as_secs();
                    failure = format!("no answer within {seconds} seconds");
                }
            }
        }
        Err(failure)
    }

    /// Begins TLS on a stream.
    async fn encrypt(
        &self,
        host: &str,
        stream: Box<dyn Stream>,
    ) -> Result<Box<dyn Stream>, String> {
        within_limit("TLS", self.trust.connect(host, stream)).await
    }
}
