//! What is demanded of a client at its login, and the one proof that it needs not say a word for:
//! the system's user at the other end of a unix socket.

use std::sync::Arc;

use super::login::{Login, Proof};
use super::{Replication, State};
use crate::auth::{Authority, CERT_FAILED, Method, NO_RULE, PEER_FAILED, REJECTED, Secret};
use crate::config::access::{Candidate, Rule};
use crate::config::{AuthType, HbaMethod, IdentMap};
use crate::event::{ClientId, Out, Question};
use crate::fault::Fault;
use crate::lookup::Found;
use crate::note::Level;
use crate::pooler::{Asker, Pooler};

/// How a client has to prove who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Demand {
    /// By an exchange of messages, which may be empty.
    Exchange(Method),
    /// By the system's user it runs as.
    Peer {
        /// That user's number.
        uid: u32,
        /// Whom that user may be; without it, whoever has the same name.
        map: Option<Arc<IdentMap>>,
    },
    /// By a password that somebody else knows.
    Authority(Arc<Authority>),
}

impl Pooler {
    /// What is demanded of a client, or why it can't get in however it tries.
    pub(super) fn demand(&self, id: ClientId, out: &mut Out) -> Result<Demand, Fault> {
        let method = match self.config.globals.auth_type {
            AuthType::Any => Method::Any,
            AuthType::Trust => Method::Trust,
            AuthType::Plain => Method::Plain,
            AuthType::Md5 => Method::Md5,
            AuthType::ScramSha256 => Method::Scram,
            AuthType::Hba => return self.demand_of_rule(id, out),
            AuthType::Ldap | AuthType::Pam => return self.by_authority(id, &self.config.authority),
            AuthType::Cert => {
                return Err(Fault::Config("auth_type is not built yet".into()));
            }
        };
        Ok(Demand::Exchange(method))
    }

    fn demand_of_rule(&self, id: ClientId, out: &mut Out) -> Result<Demand, Fault> {
        let rule = self.rule(id).ok_or(Fault::LoginFailed(NO_RULE))?;
        let text = format!("HBA Line {} is matched", rule.line);
        self.note_client(Level::Noise, id, &text, out);
        let method = match rule.method {
            HbaMethod::Trust => Method::Trust,
            HbaMethod::Md5 => Method::Md5,
            HbaMethod::Password => Method::Plain,
            HbaMethod::ScramSha256 => Method::Scram,
            HbaMethod::Peer => {
                let client = self.clients.get(id);
                let peer = client.and_then(|client| client.ends.unix_peer);
                // A `host` line may say peer, too.
                let peer = peer.ok_or(Fault::LoginFailed(PEER_FAILED))?;
                return Ok(Demand::Peer {
                    uid: peer.uid,
                    map: rule.map.clone(),
                });
            }
            HbaMethod::Reject => return Err(Fault::LoginFailed(REJECTED)),
            HbaMethod::Ldap | HbaMethod::Pam => return self.by_authority(id, &rule.authority),
            HbaMethod::Cert => {
                self.note_client(Level::Error, id, "TLS connection required", out);
                return Err(Fault::LoginFailed(CERT_FAILED));
            }
        };
        Ok(Demand::Exchange(method))
    }

    /// auth_user would look its users up elsewhere: one of the two is not meant, as PgBouncer has it.
    fn by_authority(
        &self,
        id: ClientId,
        authority: &Option<Arc<Authority>>,
    ) -> Result<Demand, Fault> {
        let Some(authority) = authority else {
            return Err(Fault::Config("auth_type names nobody to ask".into()));
        };
        let database = self.clients.get(id).map(|client| &client.database);
        let database = database.and_then(|name| self.config.database(name));
        if database.is_some_and(|database| database.auth_user.is_some()) {
            let name = authority.name();
            let text = format!("{name} can't be used together with database authentication");
            return Err(Fault::Config(text));
        }
        Ok(Demand::Authority(authority.clone()))
    }

    /// The first rule that fits a client.
    fn rule(&self, id: ClientId) -> Option<&Rule> {
        let client = self.clients.get(id)?;
        self.config.hba.as_ref()?.find(&Candidate {
            remote: &client.ends.remote,
            tls: false,
            physical_replication: client.replication == Replication::Physical,
            database: &client.database,
            user: &client.user,
        })
    }

    /// Has the system's user of a client named. Who is unknown to us is refused at once.
    pub(super) fn ask_peer(
        &mut self,
        id: ClientId,
        uid: u32,
        map: Option<Arc<IdentMap>>,
        found: Option<Found>,
        out: &mut Out,
    ) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let listed = || {
            self.config
                .user(&client.user)
                .is_some_and(|user| user.listed)
        };
        let found: Option<Secret> = match found {
            None if listed() => None,
            Some(Found::User(secret)) => secret,
            None | Some(Found::Nobody) => {
                let text = format!("no such user: {}", client.user);
                self.note_client(Level::Log, id, &text, out);
                return self.disconnect(id, Fault::LoginFailed(PEER_FAILED), out);
            }
        };
        client.state = State::Login(Box::new(Login {
            proof: Proof::Peer(map),
            found,
        }));
        let question = |ticket| Question::NameUser { ticket, uid };
        self.ask(Asker::Client(id), question, out);
    }

    /// The control thread has named the system's user of a client.
    pub(crate) fn peer_named(&mut self, id: ClientId, name: Result<String, String>, out: &mut Out) {
        let Some(login) = self.login(id) else { return };
        let Proof::Peer(map) = &login.proof else {
            return;
        };
        let (map, found) = (map.clone(), login.found.take());
        let Some(client) = self.clients.get(id) else {
            return;
        };
        let user = &*client.user;
        let refusal = match (name, map) {
            (Err(why), _) => Some((Level::Error, why)),
            (Ok(name), None) if name != user => {
                let text = format!("the system's user is {name}, not {user}");
                Some((Level::Warning, text))
            }
            (Ok(name), Some(map)) if !map.allows(&name, user) => {
                let text = format!("ident map {} cannot be matched", map.name);
                Some((Level::Error, text))
            }
            (Ok(_), Some(map)) => {
                let text = format!("ident map '{}' is applied", map.name);
                self.note_client(Level::Noise, id, &text, out);
                None
            }
            (Ok(_), None) => None,
        };
        match refusal {
            None => self.logged_in(id, None, found, out),
            Some((level, text)) => {
                self.note_client(level, id, &text, out);
                self.disconnect(id, Fault::LoginFailed(PEER_FAILED), out);
            }
        }
    }
}
