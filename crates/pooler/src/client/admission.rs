//! The admission of a client: the checks and limits before its login.

use std::sync::Arc;

use howdah_wire::write;

use super::startup::LoginWish;
use super::{Protocol, Replication};
use crate::client::ClientState;
use crate::config::AuthType;
use crate::console;
use crate::event::{Action, ClientId, Out, Peer};
use crate::fault::Fault;
use crate::login::key::LoginKey;
use crate::mail::{ClientBounds, ToBroker};
use crate::note::Level;
use crate::pooler::Pooler;

/// The newest minor version of protocol 3 that Howdah speaks.
const MINOR: u16 = 2;

impl Pooler {
    /// The client has its final worker, and asks for admission.
    pub(super) fn placed(&mut self, id: ClientId, wish: LoginWish<'_>, out: &mut Out) {
        if wish.minor > MINOR || !wish.options.is_empty() {
            let minor = wish.minor.min(MINOR);
            let options = wish.options.into_iter();
            out.send_with(Peer::Client(id), |buf| {
                write::negotiate(buf, minor, options)
            });
        }
        let (database, user) = (wish.database, wish.user);
        let login = self.shared.names.login(database, user);
        let params = self.shared.params.intern(wish.params);
        let map = self.map_of(database);
        let client = gone!(self.clients.get_mut(id));
        if let Some(map) = &map {
            client.enters_map(map.clone(), wish.shard);
        }
        client.set_protocol(Protocol {
            replication: wish.replication,
            server_options: wish.server_options,
            long_keys: wish.minor >= 2,
        });
        client.set_who(login.clone());
        client.set_params(params);
        let settings = wish.settings.shared();
        let settings = settings.map(|own| self.shared.settings.intern((*own).clone()));
        client.set_settings(settings.clone(), settings);
        // The client takes no place until the Broker has answered.
        client.awaits_admission();
        if self.config.globals.log_connections {
            self.log_attempt(id, database, user, out);
        }
        if console::is_console(database) && self.is_our_own_user(id) {
            // A user who may stop the process is admitted whatever limits are reached.
            return self.begin_login(id, out);
        }
        if map.is_some() && self.clients.at(id).is_replicating() {
            let text = "replication is not possible in a sharded database: name one of its shards";
            return self.disconnect(id, Fault::Shard(text.into()), out);
        }
        if let Some(fault) = self.refuses_login(database, user) {
            return self.disconnect(id, fault, out);
        }
        let admit = ToBroker::Admit {
            worker: self.worker,
            client: id,
            login,
            bounds: self.client_bounds(id, database, user),
        };
        out.push(Action::Broker(admit));
    }

    /// `log_connections`: logs the user, the database and the kind of connection.
    fn log_attempt(&self, id: ClientId, database: &str, user: &str, out: &mut Out) {
        let client = gone!(self.clients.get(id));
        let replication = match client.protocol.replication {
            Replication::None => "no",
            Replication::Logical => "database",
            Replication::Physical => "yes",
        };
        let tls = client.tls.as_ref().map(|facts| facts.summary());
        let tls = tls.as_deref().unwrap_or("no");
        let text = format_args!(
            "login attempt: db={database} user={user} tls={tls} replication={replication}"
        );
        self.note_client(Level::Log, id, text, out);
    }

    /// The reason to refuse a login now, before asking for a password.
    fn refuses_login(&self, database: &str, user: &str) -> Option<Fault> {
        let globals = &self.config.globals;
        let console = console::is_console(database);
        let any = globals.auth_type == AuthType::Any;
        let may_look = globals.admin_users.has(user) || globals.stats_users.has(user) || any;
        // A client accepted during a takeover gets in, because no other process will serve it.
        let ending = self.janitor.is_shutting_down() && self.janitor.succeeded.is_none();
        if console && !may_look {
            // Unknown users would fill the console's unlimited places.
            Some(Fault::NotAllowed)
        } else if ending && !console {
            Some(Fault::ShuttingDown)
        } else {
            let names = [database, self.front(database)];
            let mut disabled = names.into_iter();
            let disabled = disabled.find(|name| self.janitor.is_disabled(name));
            disabled.map(|name| Fault::DatabaseDisabled(name.to_owned()))
        }
    }

    /// The limits that apply to one more client of this user in this database.
    fn client_bounds(&mut self, id: ClientId, database: &str, user: &str) -> ClientBounds {
        let (config, globals) = (&self.config, &self.config.globals);
        let console = console::is_console(database);
        let admin = console && globals.admin_users.has(user);
        // With auth_type=any, any user may read the console. The limits for clients apply to these
        // users.
        let stranger = console && !admin && !globals.stats_users.has(user);
        // A client may falsely claim an administrator's name. So only a few unproven connections
        // are exempt from the limits.
        let exempt = console && !stranger && self.consoles.proof_begins(id);
        if admin && exempt {
            // The Broker counts administrators, but admits them even if all limits are reached.
            return ClientBounds::default();
        }
        let of_console = match globals.max_db_client_connections {
            0 if !exempt => globals.max_client_conn,
            bound => bound,
        };
        let entry = config.entry(database).map(|entry| &**entry);
        let scopes = config.scopes(entry, Some(user));
        let of_database = match entry {
            Some(_) => scopes.max_db_client_connections(),
            None if console => of_console,
            None => 0,
        };
        ClientBounds {
            total: if exempt { 0 } else { globals.max_client_conn },
            database: of_database,
            user: scopes.max_user_client_connections(),
        }
    }

    /// The Broker has answered.
    pub(crate) fn admitted(
        &mut self,
        id: ClientId,
        login: Arc<LoginKey>,
        answer: Result<(), &'static str>,
        out: &mut Out,
    ) {
        let alive = self
            .clients
            .get_mut(id)
            .filter(|client| matches!(client.state(), ClientState::Admission));
        match (alive, answer) {
            (Some(client), Ok(())) => {
                client.let_in();
                self.begin_login(id, out);
            }
            (Some(_), Err(bound)) => self.disconnect(id, Fault::TooManyClients(bound), out),
            // The client left meanwhile, so its place is given back.
            (None, Ok(())) => {
                out.push(Action::Broker(ToBroker::Left { login }));
            }
            (None, Err(_)) => {}
        }
    }
}
