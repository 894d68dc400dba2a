//! From admission to ReadyForQuery: the proof of identity, and the greeting.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use chacha20::rand_core::Rng;
use howdah_wire::backend::Status;
use howdah_wire::tag::frontend;
use howdah_wire::write;

use super::demand::Demand;
use super::token;
use crate::auth::oauthbearer::{JWT_FAILED, OauthStep, TOKEN_IN_CLEAR};
use crate::auth::{
    AuthRequest, ClientLogin, ClientLoginSetup, ClientStep, EMPTY_PASSWORD, LoginStep, Method,
    NO_SECRET, ScramKeys, Secret, WRONG_PASSWORD, plain,
};
use crate::client::Client;
use crate::client::state::{ClientState, LoginAttempt, Proof};
use crate::config::PoolMode;
use crate::config::{AuthType, Authority, Database, TokenRules};
use crate::console::is_console;
use crate::event::{ClientId, Out, Peer, Question, ServerId, Time, Verified};
use crate::fault::Fault;
use crate::known::LookedUp;
use crate::limits;
use crate::login::greeting::{Greeting, Wishes};
use crate::login::key::LoginId;
use crate::mail::ChangedSecret;
use crate::note::Level;
use crate::pool::Failure;
use crate::pool::key::{PoolId, Purpose};
use crate::pool::target::TargetName;
use crate::pooler::{Asker, Pooler};
use crate::standby::among;

impl Pooler {
    /// The client may now prove its identity.
    pub(crate) fn begin_login(&mut self, id: ClientId, out: &mut Out) {
        if self.is_our_own_user(id) {
            return self.logged_in(id, None, None, out);
        }
        let demand = match self.demand(id, out) {
            Ok(demand) => demand,
            Err(fault) => return self.disconnect(id, fault, out),
        };
        let asks_nobody = matches!(demand, Demand::Exchange(Method::Any) | Demand::Authority(_));
        if !asks_nobody && self.needs_lookup(id) {
            return self.look_up(id, out);
        }
        self.begin_proof(id, demand, None, out);
    }

    /// auth_query has found the client's user, or not. The demand may have changed since.
    pub(crate) fn was_looked_up(&mut self, id: ClientId, found: LookedUp, out: &mut Out) {
        match self.demand(id, out) {
            Ok(demand) => self.begin_proof(id, demand, Some(found), out),
            Err(fault) => self.disconnect(id, fault, out),
        }
    }

    /// Begins the proof, with the secret from auth_query if it was asked, and from auth_file
    /// otherwise.
    fn begin_proof(
        &mut self,
        id: ClientId,
        demand: Demand,
        found: Option<LookedUp>,
        out: &mut Out,
    ) {
        let client = gone!(self.clients.get(id));
        let who = client.who.clone();
        let user = &who.user;
        let method = match demand {
            Demand::Exchange(method) => method,
            Demand::Peer { uid, map } => return self.ask_peer(id, uid, map, found, out),
            Demand::Certificate => return self.admit_certificate(id, found, out),
            Demand::Authority(authority) => {
                return match &*authority.clone() {
                    Authority::Token(rules) => self.ask_for_token(id, authority, rules, out),
                    _ => self.ask_for_password(id, authority, out),
                };
            }
        };
        let tls = client.tls.clone();
        let asks_sources = self.config.has_sources && found.is_none();
        if asks_sources && !matches!(method, Method::Any | Method::Trust) {
            let front = self.front(&who.database);
            if let Some(why) = self.config.lacks_listed(front, user, self.now.0) {
                let why = format!("no password of the user: {why}");
                self.note_client(Level::Warning, id, &why, out);
                return self.disconnect(id, Fault::PasswordAway, out);
            }
        }
        let (mut md5_salt, mut nonce) = ([0; 4], [0; 18]);
        self.random.fill_bytes(&mut md5_salt);
        self.random.fill_bytes(&mut nonce);
        // For a known user without a secret: an empty secret matches no password.
        let blank = Secret::Plain(String::new());
        let known = match &found {
            // A user only in the section [users] can't log in.
            None => self.listed(&who.database, user),
            Some(LookedUp::User(secret)) => Some(secret.as_ref()),
            Some(LookedUp::Nobody) => None,
        };
        let is_blank = known
            .flatten()
            .is_none_or(|secret| secret.text().is_empty());
        let method = match method {
            // Users with SCRAM secrets are asked for SCRAM. Nobody may learn from another question which
            // names are users.
            Method::Md5 if is_blank && self.config.has_scram_secrets => Method::Scram,
            method => method,
        };
        let secret = known.map(|secret| secret.unwrap_or(&blank));
        let second = match found {
            None => self.config.second_secret(&who.database, user),
            Some(_) => None,
        };
        let (exchange, step) = ClientLogin::start(&ClientLoginSetup {
            method,
            user,
            secret,
            second,
            iterations: self.config.globals.scram_iterations,
            salt_key: self.keys.salts(),
            md5_salt,
            nonce: &nonce,
            binding: tls.as_ref().and_then(|tls| tls.binding.as_deref()),
        });
        let client = self.clients.at_mut(id);
        client.proves(LoginAttempt {
            proof: Proof::Exchange {
                exchange: Box::new(exchange),
                deriving: None,
            },
            found: match found {
                Some(LookedUp::User(secret)) => secret,
                _ => None,
            },
        });
        self.login_step(id, step, out);
        // The client may have sent bytes after the start-up packet.
        self.login_bytes(id, b"", out);
    }

    fn login_step(&mut self, id: ClientId, step: ClientStep, out: &mut Out) {
        let peer = Peer::Client(id);
        let mut send = |request: &AuthRequest| {
            let (code, payload) = (request.code(), request.payload());
            out.send_with(peer, |buf| write::authentication(buf, code, payload));
        };
        match step {
            LoginStep::Reply(request) => send(&request),
            LoginStep::Await => {}
            LoginStep::Derive(derivation) => {
                let waits = Arc::new(());
                let wanted = Arc::downgrade(&waits);
                if let Some((_, deriving)) = self.exchange(id) {
                    *deriving = Some(waits);
                }
                let question = |ticket| Question::Derive {
                    ticket,
                    password: derivation.password,
                    salt: derivation.salt,
                    iterations: derivation.iterations,
                    host: None,
                    wanted,
                };
                self.ask(Asker::Client(id), question, out);
            }
            LoginStep::Done(admitted) => {
                if let Some(request) = &admitted.before_ok {
                    send(request);
                }
                let found = self.login(id).and_then(|login| login.found.take());
                self.logged_in(id, admitted.keys, found, out);
            }
            LoginStep::Refuse(refusal) => {
                self.doubt(id);
                if refusal.detail != WRONG_PASSWORD {
                    let (level, line) = self.refusal_line(id, &refusal.detail);
                    self.note_client(level, id, &line, out);
                }
                let text = match refusal.text {
                    Cow::Borrowed(text) => text,
                    Cow::Owned(_) => "authentication failed",
                };
                self.disconnect(id, Fault::LoginFailed(text), out);
            }
        }
    }

    /// The log line for a refusal other than for a wrong password. The texts are PgBouncer's, where
    /// it has one.
    fn refusal_line(&self, id: ClientId, detail: &str) -> (Level, String) {
        let who = &self.clients.at(id).who;
        let user = &who.user;
        match detail {
            NO_SECRET if self.listed(&who.database, user).is_some() => {
                (Level::Warning, format!("the user has no password: {user}"))
            }
            NO_SECRET if !self.needs_lookup(id) => (Level::Log, format!("no such user: {user}")),
            _ => (Level::Warning, detail.into()),
        }
    }

    fn exchange(&mut self, id: ClientId) -> Option<(&mut ClientLogin, &mut Option<Arc<()>>)> {
        match &mut self.login(id)?.proof {
            Proof::Exchange { exchange, deriving } => Some((exchange, deriving)),
            Proof::Peer(_) | Proof::Authority { .. } | Proof::Oauth { .. } => None,
        }
    }

    pub(super) fn login(&mut self, id: ClientId) -> Option<&mut LoginAttempt> {
        self.clients.get_mut(id)?.login_mut()
    }

    /// Handles bytes of a client that is proving its identity.
    pub(crate) fn login_bytes(&mut self, id: ClientId, bytes: &[u8], out: &mut Out) {
        let client = self.clients.at_mut(id);
        if !matches!(client.state(), ClientState::Login(_)) {
            // The login needed no password. Bytes after the start-up packet are not a password.
            return;
        }
        client.inbox.hold(bytes);
        let held = client.inbox.held().len();
        let longest = client.login_mut().map_or(0, |login| login.longest());
        if held > longest + bytes.len() {
            // No client needs to send so much before the answer.
            return self.disconnect(id, Fault::TooEarly, out);
        }
        while let Some(client) = self.clients.get_mut(id) {
            let held = client.inbox.held().len();
            let Some(login) = client.login_mut() else {
                return;
            };
            if !login.listens() {
                if held > limits::PROOF {
                    self.disconnect(id, Fault::TooEarly, out);
                }
                return;
            }
            let longest = login.longest();
            let fault = match client.inbox.first() {
                Some(Ok(header)) if header.tag == frontend::TERMINATE => Fault::ClientClosed,
                Some(Ok(header)) if header.tag != frontend::PASSWORD => Fault::TooEarly,
                _ => match client.inbox.take_message(longest) {
                    Ok(None) => return,
                    Ok(Some((_, body))) => {
                        self.password(id, &body, out);
                        continue;
                    }
                    Err(error) => Fault::ClientBytes(error),
                },
            };
            return self.disconnect(id, fault, out);
        }
    }

    /// Asks the client for a password that a directory or PAM checks.
    fn ask_for_password(&mut self, id: ClientId, authority: Arc<Authority>, out: &mut Out) {
        let client = self.clients.at_mut(id);
        client.proves(LoginAttempt {
            proof: Proof::Authority {
                authority,
                password: None,
            },
            found: None,
        });
        self.login_step(id, LoginStep::Reply(AuthRequest::Cleartext), out);
        // The client may have sent bytes after the start-up packet.
        self.login_bytes(id, b"", out);
    }

    /// The client has sent its password. Asks the directory or PAM to check it.
    fn ask_authority(&mut self, id: ClientId, body: &[u8], out: &mut Out) {
        let client = self.clients.at_mut(id);
        let login = gone!(client.login_mut());
        let Proof::Authority {
            authority,
            password,
        } = &mut login.proof
        else {
            return;
        };
        let authority = authority.clone();
        let given = match plain::read(body) {
            _ if body == [0] => {
                return self.disconnect(id, Fault::LoginFailed(EMPTY_PASSWORD), out);
            }
            Ok(given) => std::str::from_utf8(given).map_err(|_| "the password is not UTF-8"),
            Err(detail) => Err(detail),
        };
        let given = match given {
            Ok(given) => Arc::new(Secret::Plain(given.to_owned())),
            Err(detail) => {
                self.note_client(Level::Warning, id, detail, out);
                return self.disconnect(id, Fault::LoginFailed(authority.failed()), out);
            }
        };
        let lent = Arc::downgrade(&given);
        *password = Some(given);
        self.ask_to_check(id, authority, lent, out);
    }

    /// Asks an authority to check a password or token.
    fn ask_to_check(
        &mut self,
        id: ClientId,
        authority: Arc<Authority>,
        password: Weak<Secret>,
        out: &mut Out,
    ) {
        let client = self.clients.at(id);
        let (who, remote) = (client.who.clone(), client.ends.remote.clone());
        let question = |ticket| Question::CheckPassword {
            ticket,
            authority,
            user: who.user.clone(),
            database: who.database.clone(),
            password,
            remote,
        };
        self.ask(Asker::Client(id), question, out);
    }

    /// Asks a client for a token, unless others could read it on its way.
    fn ask_for_token(
        &mut self,
        id: ClientId,
        authority: Arc<Authority>,
        rules: &TokenRules,
        out: &mut Out,
    ) {
        let client = self.clients.at_mut(id);
        if client.is_in_the_open() {
            return self.disconnect(id, Fault::LoginFailed(TOKEN_IN_CLEAR), out);
        }
        let (proof, request) = token::begin(authority, rules);
        client.proves(LoginAttempt { proof, found: None });
        self.login_step(id, LoginStep::Reply(request), out);
        // The client may have sent bytes after the start-up packet.
        self.login_bytes(id, b"", out);
    }

    /// A client has sent a message of OAUTHBEARER.
    fn oauth_message(&mut self, id: ClientId, body: &[u8], out: &mut Out) {
        let login = gone!(self.login(id));
        let Proof::Oauth {
            exchange,
            authority,
            token,
        } = &mut login.proof
        else {
            return;
        };
        match exchange.answer(body) {
            OauthStep::Reply(request) => self.login_step(id, LoginStep::Reply(request), out),
            OauthStep::Check(shown) => {
                let (authority, shown) = (authority.clone(), Arc::new(shown));
                let lent = Arc::downgrade(&shown);
                *token = Some(shown);
                self.ask_to_check(id, authority, lent, out);
            }
            OauthStep::Discovered => {
                let text = "the client has asked where tokens come from";
                self.note_client(Level::Noise, id, text, out);
                self.disconnect(id, Fault::TokenWanted, out);
            }
            OauthStep::Refuse(refusal) => self.login_step(id, LoginStep::Refuse(refusal), out),
        }
    }

    /// A client's token was checked.
    fn token_checked(
        &mut self,
        id: ClientId,
        rules: &TokenRules,
        verdict: Result<Verified, String>,
        out: &mut Out,
    ) {
        let who = &self.clients.at(id).who;
        let (user, database) = (who.user.clone(), &*who.database);
        let is_named = self.config.databases.contains_key(database) || is_console(database);
        let why = match token::judge(rules, verdict, &user, is_named) {
            Ok((line, lasts)) => {
                self.note_client(Level::Log, id, &line, out);
                if let Some(lasts) = lasts.filter(|_| rules.ends_clients) {
                    let at = Time(self.now.0.saturating_add(lasts));
                    self.clients.at_mut(id).ends_mut().token = Some(at);
                }
                // A token is no password for PostgreSQL.
                return self.logged_in(id, None, None, out);
            }
            Err(why) => why,
        };
        let login = gone!(self.login(id));
        if let Proof::Oauth { exchange, .. } = &mut login.proof {
            // The log has the reason once the client has confirmed the refusal.
            let request = exchange.refused(why);
            self.login_step(id, LoginStep::Reply(request), out);
            return self.login_bytes(id, b"", out);
        }
        self.note_client(Level::Warning, id, &why, out);
        self.disconnect(id, Fault::LoginFailed(JWT_FAILED), out);
    }

    /// The directory or PAM has checked a client's password.
    pub(crate) fn password_checked(
        &mut self,
        id: ClientId,
        verdict: Result<Verified, String>,
        out: &mut Out,
    ) {
        let Some(login) = self.login(id) else { return };
        let (authority, password) = match &mut login.proof {
            Proof::Authority {
                authority,
                password,
            } => (authority.clone(), password),
            Proof::Oauth {
                authority, token, ..
            } => (authority.clone(), token),
            Proof::Exchange { .. } | Proof::Peer(_) => return,
        };
        if let Authority::Token(rules) = &*authority {
            *password = None;
            return self.token_checked(id, rules, verdict, out);
        }
        let (failed, password) = (authority.failed(), password.take());
        match verdict {
            // Howdah also uses the password to log in to PostgreSQL.
            Ok(_) => self.logged_in(id, None, password.map(Arc::unwrap_or_clone), out),
            Err(why) => {
                self.note_client(Level::Warning, id, &why, out);
                self.disconnect(id, Fault::LoginFailed(failed), out);
            }
        }
    }

    fn password(&mut self, id: ClientId, body: &[u8], out: &mut Out) {
        if self
            .login(id)
            .is_some_and(|login| matches!(login.proof, Proof::Authority { .. }))
        {
            return self.ask_authority(id, body, out);
        }
        if self
            .login(id)
            .is_some_and(|login| matches!(login.proof, Proof::Oauth { .. }))
        {
            return self.oauth_message(id, body, out);
        }
        if let Some((exchange, _)) = self.exchange(id) {
            let step = exchange.answer(body);
            self.login_step(id, step, out);
        }
    }

    /// The control thread has derived a key for a client's login.
    pub(crate) fn client_derived(&mut self, id: ClientId, key: [u8; 32], out: &mut Out) {
        if let Some((exchange, deriving)) = self.exchange(id) {
            *deriving = None;
            let step = exchange.derived(&key);
            self.login_step(id, step, out);
            self.login_bytes(id, b"", out);
        }
    }

    /// The client has proved its identity. Finds its pool.
    pub(super) fn logged_in(
        &mut self,
        id: ClientId,
        keys: Option<ScramKeys>,
        found: Option<Secret>,
        out: &mut Out,
    ) {
        if self.is_console_client(id) {
            return self.open_console(id, out);
        }
        let proof = self.login(id).map(|login| &login.proof);
        let by_authority = matches!(proof, Some(Proof::Authority { .. }));
        let client = gone!(self.clients.get_mut(id));
        let who = client.who.clone();
        let front = self.front(&who.database);
        let Some(entry) = self.config.entry(front).cloned() else {
            return self.disconnect(id, Fault::NoDatabase(who.database.to_string()), out);
        };
        if entry.keeps_out(&who.user) || self.a_shard_keeps_out(&who.database, &who.user) {
            return self.disconnect(id, Fault::NotAllowed, out);
        }
        // Servers log in with what clients have shown.
        let lends = entry.lends_secrets(entry.pooled_as(&who.user));
        if self.config.globals.auth_type == AuthType::Any && lends {
            let fault = Fault::Config("auth_type=any requires forced user".into());
            return self.disconnect(id, fault, out);
        }
        let has_secret = self.listed(&who.database, &who.user).flatten();
        let has_secret = has_secret.is_some();
        let Some((login_id, pool_id)) = self.home_at_login(id, &entry, out) else {
            return self.disconnect(id, Fault::NoDatabase(who.database.to_string()), out);
        };
        // A directory may accept several passwords of a user.
        let login = self.logins.at(login_id);
        if self.clients.at(id).sharded.is_some() && login.terms.mode != PoolMode::Transaction {
            let text = format!(
                "a sharded database needs pool_mode = transaction for user {}",
                who.user
            );
            return self.disconnect(id, Fault::Config(text), out);
        }
        if lends
            && !by_authority
            && let Some(secret) = found.clone().filter(|found| login.secrets.has_other(found))
        {
            let changed = ChangedSecret {
                login: login.key.clone(),
                secret,
                keys: keys.clone(),
            };
            self.secret_changed(&changed, out);
        }
        self.join(id, login_id);
        self.clients.at_mut(id).awaits_welcome(pool_id);
        let login = self.logins.at_mut(login_id);
        if lends {
            // Howdah also uses the client's proved secret from the user list to log in to
            // PostgreSQL.
            login.secrets.learn(keys, found, !has_secret);
        }
        let welcomed = login.welcome.is_some();
        let pool = self.pools.at(pool_id);
        // If PostgreSQL is only full, other workers may have servers, or a place may become free.
        let full = pool.failure.as_ref().is_some_and(Failure::is_full);
        let absent = pool.failure.as_ref().is_some_and(Failure::is_absent);
        let may_wait = welcomed || (full && self.workers > 1);
        let learns = absent || !may_wait;
        if let Some(fault) = self.hopeless(pool_id).filter(|_| learns) {
            return self.disconnect(id, fault, out);
        }
        let client = self.clients.at_mut(id);
        if client.is_replicating() {
            // The client gets a server of its own, and that server's parameters.
            client.times.begin_request(self.now);
            client.stands_in_line(pool_id);
            self.await_server(id, pool_id);
        } else if welcomed {
            return self.welcome(id, out);
        } else {
            client.times.begin_request(self.now);
            self.pools.at_mut(pool_id).awaits_welcome(id);
        }
        self.watch_client(id);
        self.need(pool_id, out);
    }

    /// The login and the pool of a client that has proved its identity.
    fn home_at_login(
        &mut self,
        id: ClientId,
        entry: &Database,
        out: &mut Out,
    ) -> Option<(LoginId, PoolId)> {
        let who = self.clients.at(id).who.clone();
        let user = entry.pooled_as(&who.user);
        let front = self.front(&who.database).to_owned();
        let key = self.shared.names.login(&front, user);
        let known = self.logins.find(&key);
        let pool = known.and_then(|login| {
            let is_placed = self.logins.at(login).terms.database.is_placed();
            let home = || self.pool_there(login, Purpose::Clients, &TargetName::Entry);
            if is_placed {
                Some(self.pool_of(login, Purpose::Clients))
            } else {
                home()
            }
        });
        if let (Some(login), Some(pool)) = (known, pool) {
            return Some((login, pool));
        }
        let database = self.config.database(&front)?;
        if database.auto {
            let text = format!("registered new auto-database: {}", who.database);
            self.note_client(Level::Log, id, &text, out);
        }
        Some(self.home_for(&front, &who.user, &database))
    }

    /// Greets a client with its login's parameters, overlaid with its own.
    pub(crate) fn welcome(&mut self, id: ClientId, out: &mut Out) {
        let client = gone!(self.clients.get_mut(id));
        if !matches!(client.state(), ClientState::Welcome(_)) {
            return;
        }
        client.becomes_idle(self.now);
        self.send_welcome(id, out);
        self.resume(id, out);
        self.watch_client(id);
    }

    /// PostgreSQL's parameters are known: all clients that wait for them are greeted.
    pub(crate) fn greet_newcomers(&mut self, id: LoginId, out: &mut Out) {
        if self.logins.at(id).welcome.is_none() {
            // The server is at a standby, for reads.
            return;
        }
        for pool_id in self.logins.at(id).pools().to_vec() {
            let pool = self.pools.at_mut(pool_id);
            if pool.key.purpose == Purpose::Clients {
                for client in pool.take_newcomers() {
                    self.welcome(client, out);
                }
            }
        }
    }

    /// Greets a client with a server of its own, with the parameters that the server reported.
    /// Howdah logged the server in with this client's parameters.
    pub(crate) fn welcome_replication(&mut self, id: ClientId, server: ServerId, out: &mut Out) {
        let welcome = self.servers.at_mut(server).take_welcome();
        let wishes = wishes(self.clients.at(id));
        let hasher = self.keys.meaning();
        let greeting = Greeting::new(&wishes, &welcome, &mut self.shared, hasher);
        self.greet(id, &greeting, among(&welcome.parameters), out);
    }

    fn send_welcome(&mut self, id: ClientId, out: &mut Out) {
        let client = self.clients.at(id);
        let login = self.logins.at_mut(gone!(client.login));
        let (wishes, hasher) = (wishes(client), self.keys.meaning());
        let greeting = gone!(login.greets(&wishes, &mut self.shared, hasher));
        let standby = login.welcome.as_ref();
        let standby = standby.and_then(|welcome| among(&welcome.parameters));
        self.greet(id, &greeting, standby, out);
    }

    /// Greets a client. `standby` is the value of `in_hot_standby` that PostgreSQL reported.
    fn greet(&mut self, id: ClientId, greeting: &Greeting, standby: Option<bool>, out: &mut Out) {
        let client = self.clients.at_mut(id);
        if let Some(login) = client.login {
            let took = self.now.0.saturating_sub(client.times.connected.0);
            self.logins.at_mut(login).count_login(took);
        }
        client.mark_welcome();
        self.begin_lifetime(id);
        let client = self.clients.at_mut(id);
        client.set_told_standby(standby);
        client.goes_back_to(greeting.reset.clone());
        client.set_meaning(greeting.meaning);
        client.set_params(greeting.params.clone());
        let long = client.protocol.long_keys;
        let (pid, secret, length) = self.new_key(id, long);
        let notify = self.config.globals.login_notify_message.as_str();
        out.send_with(Peer::Client(id), |buf| {
            buf.extend_from_slice(&greeting.messages);
            write::key_data(buf, pid, &secret[..length]);
            if !notify.is_empty() {
                write::notice(buf, "NOTICE", "00000", notify, None);
            }
            write::ready(buf, Status::Idle);
        });
    }
}

/// The settings that a client asked for at login.
fn wishes(client: &Client) -> Wishes<'_> {
    let session = client.session.as_deref();
    Wishes {
        asked: client.params.as_ref(),
        login: session.and_then(|session| session.login.clone()),
        path: client.path(),
        replicates: client.is_replicating(),
    }
}
