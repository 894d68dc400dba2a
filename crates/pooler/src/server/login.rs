//! Howdah's login to PostgreSQL.

use std::sync::Arc;

use chacha20::rand_core::Rng;
use howdah_wire::backend::{Fields, key_data, parameter_status};
use howdah_wire::frame::u32_be;
use howdah_wire::tag::backend as tag;
use howdah_wire::write;

use crate::auth::{
    Derivation, LoginRefusal, LoginStep, Secret, ServerLogin, ServerLoginSetup, ServerStep,
};
use crate::client::Replication;
use crate::config::{Config, Parameters, SecretSource};
use crate::event::{Close, Out, Peer, Question, ServerId};
use crate::login::secrets::Secrets;
use crate::login::{Login, Parameter, Welcome};
use crate::note::Level;
use crate::params::Params;
use crate::pool::Purpose;
use crate::pool::room::has_no_room;
use crate::pooler::{Asker, Pooler};
use crate::server::secret::LoginSecret;
use crate::server::state::{ServerAttempt, ServerState};
use crate::{limits, place, standby};

impl Pooler {
    /// The socket is open. Sends Howdah's start-up packet.
    pub(crate) fn begin_server_login(&mut self, id: ServerId, out: &mut Out) {
        let mut nonce = [0; 18];
        self.random.fill_bytes(&mut nonce);
        let server = self.servers.at(id);
        let of = self.logins.at(server.login);
        let pool = self.pools.at(server.pool);
        let shown = if matches!(pool.key.purpose, Purpose::Clients | Purpose::Catalogue) {
            &of.secrets
        } else {
            &pool.secrets
        };
        let database = &of.terms.database;
        let pooled = &*of.key.user;
        // Look-ups and checks name the user that they need.
        let own = matches!(pool.key.purpose, Purpose::Lookups | Purpose::Checks);
        let user = if own {
            pooled
        } else {
            database.server_user(pooled)
        };
        let second = pool.takes_second_secret();
        let listed = match second {
            true => self.second_of(server.pool).or(of.terms.listed.as_ref()),
            false => of.terms.listed.as_ref(),
        };
        let (secret, keys) = if self.password_source(server.pool).is_some() {
            let keys = shown.keys.clone();
            let keys = keys.filter(|_| own || database.lends_secrets(pooled));
            (self.login_secret(id), keys)
        } else if own {
            let secret = Self::secret_of(&self.config, of, shown);
            (Ok(LoginSecret::of(secret)), shown.keys.clone())
        } else if !own && database.lends_secrets(pooled) {
            let secret = shown.found.as_ref().or(listed).cloned();
            (Ok(LoginSecret::of(secret)), shown.keys.clone())
        } else {
            (self.login_secret(id), None)
        };
        let LoginSecret {
            secret,
            user: own_user,
            fetched,
        } = match secret {
            Ok(secret) => secret,
            Err(why) => {
                self.note_server(Level::Warning, id, &why, out);
                self.login_failed(id, self.lack_sqlstate(id), &why, out);
                return self.close_server(id, "no password", Close::Abort, out);
            }
        };
        let user = own_user.as_deref().unwrap_or(user);
        // A file's password is as good as one in the configuration.
        let is_token = fetched
            .as_ref()
            .is_some_and(|(source, _)| !matches!(source, SecretSource::File(_)));
        let in_clear = !is_token || self.may_send_in_clear(id);
        let scopes = self.config.scopes(Some(database), None);
        let tls = server.connection.tls.as_ref();
        let exchange = ServerLogin::new(ServerLoginSetup {
            user,
            secret,
            keys,
            in_clear,
            nonce: &nonce,
            binding: tls.and_then(|tls| tls.binding.as_deref()),
            channel_binding: scopes.channel_binding(),
            require_auth: &scopes.require_auth(),
        });
        let login = ServerAttempt {
            exchange,
            derives: None,
            proven: false,
            parameters: Vec::new(),
            size: 0,
            fetched,
            second,
        };
        let server = self.servers.at_mut(id);
        server.logs_in(login, Params::unknown(&self.shared.tracked));
        let dbname = match self.pools.at(server.pool).key.purpose {
            Purpose::Checks => &self.config.globals.host_check_dbname,
            _ => database.target(),
        };
        let mut parameters: Vec<(&str, &[u8])> =
            vec![("user", user.as_bytes()), ("database", dbname.as_bytes())];
        let of_database = [
            ("client_encoding", &database.client_encoding),
            ("datestyle", &database.datestyle),
            ("timezone", &database.timezone),
            ("application_name", &database.application_name),
        ];
        let session = match own {
            true => Parameters::default(),
            false => database.session(pooled),
        };
        for (name, value) in of_database {
            if let Some(value) = value.as_ref().filter(|_| !session.has(name)) {
                parameters.push((name, value.as_bytes()));
            }
        }
        let mut options = session.options().into_bytes();
        let client = server.reserved_for().and_then(|id| self.clients.get(id));
        if let Some(client) = client {
            let how: &[u8] = match client.protocol.replication {
                Replication::Physical => b"true",
                _ => b"database",
            };
            parameters.push(("replication", how));
            if let Some(own) = &client.protocol.server_options {
                // Of two values, PostgreSQL takes the last.
                options.extend_from_slice(if options.is_empty() { b"" } else { b" " });
                options.extend_from_slice(own);
            }
            if let Some(params) = &client.params {
                for (position, name) in self.shared.tracked.names().iter().enumerate() {
                    if let Some(value) = params.get(position) {
                        parameters.push((name, value));
                    }
                }
            }
        }
        if !options.is_empty() {
            parameters.push(("options", &options));
        }
        out.send_with(Peer::Server(id), |buf| write::startup(buf, 0, parameters));
        self.note_connection(id, out);
    }

    /// The secret for a login as the pool's own user: the password of the database's forced user, or
    /// the secret that came with the wish, or the user list's secret.
    fn secret_of(config: &Config, login: &Login, shown: &Secrets) -> Option<Secret> {
        let (database, user) = (&login.terms.database, &*login.key.user);
        match &database.server_password {
            // Others may have servers there, too, with other secrets: auth_user, and users of a
            // database without `user=`.
            Some(password) if database.forced_user.as_deref() == Some(user) => {
                Some(Secret::classify(password.to_string()))
            }
            _ => {
                let listed = config.listed(&database.name, user).flatten();
                shown.found.clone().or_else(|| listed.cloned())
            }
        }
    }

    fn note_connection(&mut self, id: ServerId, out: &mut Out) {
        if !self.config.globals.log_connections {
            return;
        }
        let server = gone!(self.servers.get(id));
        let ends = gone!(server.connection.ends.as_ref());
        let from = match &ends.local {
            crate::event::Address::Tcp(ip, port) if ip.is_ipv6() => format!("[{ip}]:{port}"),
            crate::event::Address::Tcp(ip, port) => format!("{ip}:{port}"),
            crate::event::Address::Unix(..) => "unix".to_string(),
        };
        let text = format!("new connection to server (from {from})");
        self.note_server(Level::Log, id, &text, out);
    }

    pub(super) fn not_postgres(&mut self, id: ServerId, out: &mut Out) {
        self.login_failed(id, "08P01", "bad pkt header", out);
        self.close_server(id, "bad pkt header", Close::Await, out);
    }

    pub(super) fn login_message(&mut self, id: ServerId, message: u8, body: &[u8], out: &mut Out) {
        let proven = self.server_login(id).is_some_and(|login| login.proven);
        match message {
            tag::AUTHENTICATION => self.challenge(id, body, out),
            tag::ERROR => self.refused(id, body, out),
            tag::NOTICE | tag::NEGOTIATE => {}
            // Before AuthenticationOk, the server has not proved that it knows the password.
            _ if !proven => self.not_postgres(id, out),
            tag::PARAMETER_STATUS => match parameter_status(body) {
                Ok((name, value)) if self.learn(id, name, value) => {}
                _ => self.not_postgres(id, out),
            },
            tag::BACKEND_KEY_DATA => match (key_data(body), self.servers.get_mut(id)) {
                (Ok((pid, secret)), Some(server)) => server.cancels.set_key(pid, secret),
                _ => self.not_postgres(id, out),
            },
            tag::READY => self.logged_in_to_server(id, out),
            _ => self.not_postgres(id, out),
        }
    }

    fn challenge(&mut self, id: ServerId, body: &[u8], out: &mut Out) {
        let Some((request, payload)) = u32_be(body) else {
            return self.not_postgres(id, out);
        };
        let Some(login) = self.server_login(id) else {
            return;
        };
        let step = login.exchange.challenge(request, payload);
        self.server_login_step(id, step, out);
    }

    /// The control thread has derived a key for Howdah's login.
    pub(crate) fn server_derived(&mut self, id: ServerId, key: [u8; 32], out: &mut Out) {
        let Some(login) = self.server_login(id) else {
            return;
        };
        let step = login.exchange.derived(&key);
        self.server_login_step(id, step, out);
    }

    fn server_login(&mut self, id: ServerId) -> Option<&mut ServerAttempt> {
        self.servers.get_mut(id)?.login_mut()
    }

    fn server_login_step(&mut self, id: ServerId, step: ServerStep, out: &mut Out) {
        match step {
            LoginStep::Reply(body) => {
                out.send_with(Peer::Server(id), |buf| write::password(buf, &body));
            }
            LoginStep::Derive(derivation) => {
                self.derive(id, derivation, out);
            }
            LoginStep::Await => {}
            LoginStep::Done(()) => {
                if let Some(login) = self.server_login(id) {
                    login.proven = true;
                }
            }
            LoginStep::Refuse(refusal) => {
                let prefix = "server login failed: ";
                let text = refusal.text.strip_prefix(prefix).unwrap_or(&refusal.text);
                let line = format!("{prefix}{text}: {}", refusal.detail);
                self.note_server(Level::Warning, id, &line, out);
                let sqlstate = if text == "wrong password type" {
                    "28P01"
                } else {
                    "08P01"
                };
                self.login_failed(id, sqlstate, &format!("{prefix}{text}"), out);
                self.close_server(id, "login failed", Close::Await, out);
            }
        }
    }

    /// PostgreSQL has chosen the work for Howdah's proof. Howdah accepts it up to a limit.
    fn derive(&mut self, id: ServerId, derivation: Derivation, out: &mut Out) {
        let most = self.config.globals.server_scram_iterations_max;
        let asked = derivation.iterations;
        if asked > most {
            let detail = format!(
                "the server asks for {asked} SCRAM iterations, server_scram_iterations_max \
                 allows {most}"
            );
            let text = "server login failed: more SCRAM iterations than \
                        server_scram_iterations_max allows";
            let refusal = LoginRefusal::new(text, detail);
            return self.server_login_step(id, LoginStep::Refuse(refusal), out);
        }
        let server = gone!(self.servers.get(id));
        let host = server.connection.remote().map(place::whole);
        let host = Some(host.unwrap_or_default().into());
        let Some(login) = self.server_login(id) else {
            return;
        };
        let wanted = Arc::downgrade(login.derives.insert(Arc::new(())));
        let question = |ticket| Question::Derive {
            ticket,
            password: derivation.password,
            salt: derivation.salt,
            iterations: asked,
            host,
            wanted,
        };
        self.ask(Asker::Server(id), question, out);
    }

    /// Remembers a parameter. False if the parameters are too large in total.
    pub(crate) fn learn(&mut self, id: ServerId, name: &[u8], value: &[u8]) -> bool {
        let server = self.servers.at_mut(id);
        if let Some(position) = self.shared.tracked.position(name) {
            let params = server.session.params.with(position, value);
            server.session.set_params(self.shared.params.intern(params));
        }
        if let Some(login) = server.login_mut() {
            login.size += name.len() + value.len() + size_of::<Parameter>();
            if login.size > limits::PARAMETERS {
                return false;
            }
            login.parameters.push((name.into(), value.into()));
        }
        true
    }

    /// PostgreSQL refuses the login. Its message goes to the log and to waiting clients.
    fn refused(&mut self, id: ServerId, body: &[u8], out: &mut Out) {
        let fields = Fields::new(body);
        let (sqlstate, text) = fields.texts("08P01");
        let severity = String::from_utf8_lossy(fields.severity());
        let line = format!("server login failed: {severity} {text}");
        self.note_server(Level::Warning, id, &line, out);
        if has_no_room(fields) {
            self.wish_for_room(id, out);
        }
        if sqlstate == "57P03" {
            self.host_is_down(id, &text, out);
        }
        if self.refuses_new_user(id, &sqlstate) {
            self.login_failed(id, "57P03", &text, out);
        } else if !self.tries_other_secret(id, (&sqlstate, &text), out) {
            self.login_failed(id, &sqlstate, &text, out);
        }
        // As in PgBouncer's log. 57P03 is temporary.
        let why = if sqlstate == "57P03" {
            "login failed"
        } else {
            &text
        };
        self.close_server(id, why, Close::Await, out);
    }

    fn logged_in_to_server(&mut self, id: ServerId, out: &mut Out) {
        let server = self.servers.at_mut(id);
        let login = gone!(server.login_mut());
        let parameters = std::mem::take(&mut login.parameters);
        let fetched = login.fetched.take();
        let tracked = server.session.params.clone();
        server.tells_standby(standby::among(&parameters));
        self.secret_served(fetched.as_ref());
        if let Some(fetched) = &fetched {
            let mut share = [0; 2];
            self.random.fill_bytes(&mut share);
            self.note_vanishing(id, fetched, u16::from_ne_bytes(share));
        }
        if !self.host_serves(id, out) {
            return;
        }
        let server = self.servers.at_mut(id);
        let pool = self.pools.at_mut(server.pool);
        let of = self.logins.at_mut(server.login);
        let welcome = Welcome {
            parameters: parameters.into(),
            tracked,
        };
        if server.is_reserved() {
            // These values belong to the server's only client.
            server.keep_welcome(welcome);
        } else {
            pool.mark_proved();
            // Nobody but clients is greeted.
            let own = of.terms.reads.is_none() || server.standby != Some(true);
            if pool.key.purpose == Purpose::Clients && own {
                of.learns_welcome(welcome);
            }
        }
        let query = of.terms.database.connect_query.clone();
        let query = query.filter(|_| pool.key.purpose != Purpose::Checks);
        match query.filter(|query| !query.is_empty()) {
            Some(query) => self.run_task(id, ServerState::ConnectQuery, query.as_bytes(), out),
            None => self.server_is_born(id, out),
        }
    }
}
