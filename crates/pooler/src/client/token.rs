//! Clients that show a token of an identity provider: as their password, or by OAUTHBEARER. The thread that
//! checks passwords checks tokens, too.

use std::sync::Arc;

use crate::auth::oauthbearer::{OAUTH_FAILED, OauthLogin, OauthStep, TOKEN_IN_CLEAR};
use crate::auth::{AuthRequest, LoginStep, Secret};
use crate::client::state::{LoginAttempt, Proof};
use crate::config::{Authority, TokenOffer, TokenRules};
use crate::event::{Address, ClientId, Out, Question, Verified};
use crate::fault::Fault;
use crate::note::Level;
use crate::pooler::{Asker, Pooler};

impl Pooler {
    /// Asks a client for a token, unless others could read that on its way. `rules` are those of the
    /// authority.
    pub(super) fn ask_for_token(
        &mut self,
        id: ClientId,
        authority: Arc<Authority>,
        rules: &TokenRules,
        out: &mut Out,
    ) {
        let client = self.clients.at_mut(id);
        let in_clear = match &client.ends.remote {
            Address::Tcp(ip, _) => !ip.is_loopback() && client.tls.is_none(),
            Address::Unix(..) => false,
        };
        if in_clear {
            return self.disconnect(id, Fault::LoginFailed(TOKEN_IN_CLEAR), out);
        }
        let (proof, request) = match rules.offer {
            TokenOffer::Oauth => (
                Proof::Oauth {
                    exchange: Box::new(OauthLogin::new(&rules.issuer, &rules.scope)),
                    authority,
                    token: None,
                },
                OauthLogin::offer(),
            ),
            TokenOffer::Jwt => (
                Proof::Authority {
                    authority,
                    password: None,
                },
                AuthRequest::Cleartext,
            ),
        };
        client.proves(LoginAttempt { proof, found: None });
        self.login_step(id, LoginStep::Reply(request), out);
        // The client may have sent bytes after the start-up packet.
        self.login_bytes(id, b"", out);
    }

    /// A client has sent a message of OAUTHBEARER.
    pub(super) fn oauth_message(&mut self, id: ClientId, body: &[u8], out: &mut Out) {
        let login = gone!(self.login(id));
        let Proof::Oauth { exchange, .. } = &mut login.proof else {
            return;
        };
        match exchange.answer(body) {
            OauthStep::Reply(request) => self.login_step(id, LoginStep::Reply(request), out),
            OauthStep::Check(token) => self.check_token(id, token, out),
            OauthStep::Discovered => {
                let text = "the client has asked where tokens come from";
                self.note_client(Level::Noise, id, text, out);
                self.disconnect(id, Fault::TokenWanted, out);
            }
            OauthStep::Refuse(refusal) => {
                self.login_step(id, LoginStep::Refuse(refusal), out);
            }
        }
    }

    fn check_token(&mut self, id: ClientId, shown: Secret, out: &mut Out) {
        let client = self.clients.at_mut(id);
        let (who, remote) = (client.who.clone(), client.ends.remote.clone());
        let login = gone!(client.login_mut());
        let Proof::Oauth {
            authority, token, ..
        } = &mut login.proof
        else {
            return;
        };
        let (authority, shown) = (authority.clone(), Arc::new(shown));
        let lent = Arc::downgrade(&shown);
        *token = Some(shown);
        let question = |ticket| Question::CheckPassword {
            ticket,
            authority,
            user: who.user.clone(),
            database: who.database.clone(),
            password: lent,
            remote,
        };
        self.ask(Asker::Client(id), question, out);
    }

    /// A client's token was checked.
    pub(super) fn token_checked(
        &mut self,
        id: ClientId,
        rules: &TokenRules,
        verdict: Result<Verified, String>,
        out: &mut Out,
    ) {
        let user = self.clients.at(id).who.user.clone();
        let verdict = verdict.and_then(|verified| match is_user(rules, &verified, &user) {
            true => Ok(verified),
            false => Err(not_user(rules, &verified)),
        });
        match verdict {
            Ok(verified) => {
                let identity = verified.identity.unwrap_or_default();
                let text = format!(
                    "token login: identity={identity:?} issuer={:?}",
                    rules.issuer
                );
                self.note_client(Level::Log, id, &text, out);
                // A token is no password for PostgreSQL.
                self.logged_in(id, None, None, out);
            }
            Err(why) => self.token_refused(id, why, out),
        }
    }

    fn token_refused(&mut self, id: ClientId, why: String, out: &mut Out) {
        let login = gone!(self.login(id));
        match &mut login.proof {
            Proof::Oauth {
                exchange, token, ..
            } => {
                *token = None;
                let request = exchange.refused(why);
                self.login_step(id, LoginStep::Reply(request), out);
                self.login_bytes(id, b"", out);
            }
            Proof::Authority { authority, .. } => {
                let failed = authority.failed();
                self.note_client(Level::Warning, id, &why, out);
                self.disconnect(id, Fault::LoginFailed(failed), out);
            }
            Proof::Exchange { .. } | Proof::Peer(_) => {
                self.disconnect(id, Fault::LoginFailed(OAUTH_FAILED), out);
            }
        }
    }
}

/// Whether a token is one of the user that was asked for.
fn is_user(rules: &TokenRules, verified: &Verified, user: &str) -> bool {
    let names = |name: &str| verified.names.iter().any(|own| own == name);
    match &rules.map {
        Some(map) => map.allows_any(names, user),
        None => names(user),
    }
}

fn not_user(rules: &TokenRules, verified: &Verified) -> String {
    let by = match (&rules.map, &rules.roles) {
        (Some(map), _) => format!("by the ident map {}", map.name),
        (None, Some(roles)) => format!("by the roles in {roles}"),
        (None, None) => format!("by the claim {}", rules.claim),
    };
    let identity = verified.identity.as_deref().unwrap_or_default();
    format!("the token's identity {identity:?} is not this user {by}")
}
