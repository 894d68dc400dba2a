//! Which login a client must pass. Two proofs of identity need no message: a client certificate,
//! and the operating-system user at the other end of a unix socket.

use std::sync::Arc;

use super::Replication;
use crate::auth::{CERT_FAILED, CERT_REQUIRED, Method, NO_RULE, PEER_FAILED, REJECTED, Secret};
use crate::certificate::ClientName;
use crate::client::state::{LoginAttempt, Proof};
use crate::config::access::{Candidate, ClientCert, Rule};
use crate::config::{AuthType, Authority, HbaMethod, IdentMap};
use crate::console::is_console;
use crate::event::{ClientId, Out, Question};
use crate::fault::Fault;
use crate::known::LookedUp;
use crate::note::Level;
use crate::pooler::{Asker, Pooler};

/// How a client must prove its identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Demand {
    /// By an exchange of messages, possibly empty.
    Exchange(Method),
    /// By the operating-system user of the client's process.
    Peer {
        /// The number of the operating-system user.
        uid: u32,
        /// The map of database users that the user may log in as. Without a map, only the same
        /// name.
        map: Option<Arc<IdentMap>>,
    },
    /// By a certificate that names the user. It was checked already.
    Certificate,
    /// By a password that a directory or PAM checks.
    Authority(Arc<Authority>),
}

impl Pooler {
    /// The demand for a client, or the reason why the client can't log in.
    pub(super) fn demand(&self, id: ClientId, out: &mut Out) -> Result<Demand, Fault> {
        let method = match self.config.globals.auth_type {
            AuthType::Any => Method::Any,
            AuthType::Trust => Method::Trust,
            AuthType::Plain => Method::Plain,
            AuthType::Md5 => Method::Md5,
            AuthType::ScramSha256 => Method::Scram,
            AuthType::Hba => return self.demand_of_rule(id, out),
            AuthType::Ldap | AuthType::Pam | AuthType::Oauth | AuthType::Jwt => {
                return self.by_authority(id, &self.config.authority);
            }
            AuthType::Cert => return self.by_certificate(id, None, out),
        };
        Ok(Demand::Exchange(method))
    }

    fn demand_of_rule(&self, id: ClientId, out: &mut Out) -> Result<Demand, Fault> {
        let rule = self.rule(id).ok_or(Fault::LoginFailed(NO_RULE))?;
        let text = format!("HBA Line {} is matched", rule.line);
        self.note_client(Level::Noise, id, &text, out);
        self.check_besides(id, rule, out)?;
        let method = match rule.method {
            HbaMethod::Trust => Method::Trust,
            HbaMethod::Md5 => Method::Md5,
            HbaMethod::Password => Method::Plain,
            HbaMethod::ScramSha256 => Method::Scram,
            HbaMethod::Peer => {
                let client = self.clients.get(id);
                let peer = client.and_then(|client| client.ends.unix_peer);
                // A `host` line may also say `peer`.
                let peer = peer.ok_or(Fault::LoginFailed(PEER_FAILED))?;
                return Ok(Demand::Peer {
                    uid: peer.uid,
                    map: rule.map.clone(),
                });
            }
            HbaMethod::Reject => return Err(Fault::LoginFailed(REJECTED)),
            HbaMethod::Ldap | HbaMethod::Pam | HbaMethod::Oauth | HbaMethod::Jwt => {
                return self.by_authority(id, &rule.authority);
            }
            HbaMethod::Cert => return self.by_certificate(id, Some(rule), out),
        };
        Ok(Demand::Exchange(method))
    }

    /// Checks the certificate that a rule demands in addition to its method.
    fn check_besides(&self, id: ClientId, rule: &Rule, out: &mut Out) -> Result<(), Fault> {
        let Some(wanted) = rule.client_cert.filter(|_| rule.method != HbaMethod::Cert) else {
            return Ok(());
        };
        let client = self.clients.get(id);
        let tls = client.and_then(|client| client.tls.as_ref());
        if tls.is_none_or(|tls| tls.peer.is_none()) {
            return Err(Fault::LoginFailed(CERT_REQUIRED));
        }
        match wanted {
            ClientCert::VerifyCa => Ok(()),
            ClientCert::VerifyFull => self.by_certificate(id, Some(rule), out).map(|_| ()),
        }
    }

    /// Checks that the client's certificate names its user, or a name that the rule's map allows
    /// for the user.
    fn by_certificate(
        &self,
        id: ClientId,
        rule: Option<&Rule>,
        out: &mut Out,
    ) -> Result<Demand, Fault> {
        let refuse = |text: &str, out: &mut Out| {
            self.note_client(Level::Error, id, text, out);
            Err(Fault::LoginFailed(CERT_FAILED))
        };
        let client = self.clients.at(id);
        let Some(tls) = &client.tls else {
            return refuse("TLS connection required", out);
        };
        let Some(certificate) = &tls.peer else {
            return refuse("TLS client certificate required", out);
        };
        let compared = rule.map_or(ClientName::Any, |rule| rule.client_name);
        let is_named = |name: &str| certificate.is_for_user(name, compared);
        match rule.and_then(|rule| rule.map.as_ref()) {
            Some(map) if !map.allows_any(is_named, &client.who.user) => {
                let text = format!("ident map: {} does not have a match", map.name);
                refuse(&text, out)
            }
            None if !is_named(&client.who.user) => refuse("TLS certificate name mismatch", out),
            _ => Ok(Demand::Certificate),
        }
    }

    /// Demands LDAP or PAM. As in PgBouncer, not with `auth_user`, which looks users up elsewhere.
    fn by_authority(
        &self,
        id: ClientId,
        authority: &Option<Arc<Authority>>,
    ) -> Result<Demand, Fault> {
        let Some(authority) = authority else {
            return Err(Fault::Config("auth_type names nobody to ask".into()));
        };
        let database = self.clients.get(id).map(|client| &client.who.database);
        let entry = database.and_then(|name| self.config.entry(name));
        let by_password = !matches!(**authority, Authority::Token(_));
        if by_password && entry.is_some_and(|entry| entry.auth_user.is_some()) {
            let name = authority.name();
            let text = format!("{name} can't be used together with database authentication");
            return Err(Fault::Config(text));
        }
        Ok(Demand::Authority(authority.clone()))
    }

    /// The first matching rule for a client.
    fn rule(&self, id: ClientId) -> Option<&Rule> {
        let client = self.clients.get(id)?;
        self.config.hba.as_ref()?.find(&Candidate {
            remote: &client.ends.remote,
            tls: client.is_tls(),
            // The console has no replication. Its own rules apply, whatever the client asks for.
            physical_replication: client.protocol.replication == Replication::Physical
                && !is_console(&client.who.database),
            database: &client.who.database,
            user: &client.who.user,
        })
    }

    /// The secret of a user who logs in without one. Disconnects an unknown user.
    fn known_secret(
        &mut self,
        id: ClientId,
        found: Option<LookedUp>,
        refusal: &'static str,
        out: &mut Out,
    ) -> Option<Option<Secret>> {
        let who = self.clients.get(id)?.who.clone();
        let user = &who.user;
        let listed = || self.listed(&who.database, user).is_some();
        match found {
            None if listed() => Some(None),
            Some(LookedUp::User(secret)) => Some(secret),
            None | Some(LookedUp::Nobody) => {
                let text = format!("no such user: {user}");
                self.note_client(Level::Log, id, &text, out);
                self.disconnect(id, Fault::LoginFailed(refusal), out);
                None
            }
        }
    }

    /// A certificate names the client's user. Howdah must also know the user.
    pub(super) fn admit_certificate(
        &mut self,
        id: ClientId,
        found: Option<LookedUp>,
        out: &mut Out,
    ) {
        if let Some(secret) = self.known_secret(id, found, CERT_FAILED, out) {
            self.logged_in(id, None, secret, out);
        }
    }

    /// Asks for the name of the client's operating-system user. Disconnects an unknown user at
    /// once.
    pub(super) fn ask_peer(
        &mut self,
        id: ClientId,
        uid: u32,
        map: Option<Arc<IdentMap>>,
        found: Option<LookedUp>,
        out: &mut Out,
    ) {
        let Some(found) = self.known_secret(id, found, PEER_FAILED, out) else {
            return;
        };
        let client = self.clients.at_mut(id);
        client.proves(LoginAttempt {
            proof: Proof::Peer(map),
            found,
        });
        let question = |ticket| Question::NameUser { ticket, uid };
        self.ask(Asker::Client(id), question, out);
    }

    /// The control thread has found the name of the client's operating-system user.
    pub(crate) fn peer_named(&mut self, id: ClientId, name: Result<String, String>, out: &mut Out) {
        let Some(login) = self.login(id) else { return };
        let Proof::Peer(map) = &login.proof else {
            return;
        };
        let (map, found) = (map.clone(), login.found.take());
        let client = gone!(self.clients.get(id));
        let user = &*client.who.user;
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
