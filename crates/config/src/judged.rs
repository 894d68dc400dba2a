//! What is refused and doubted about a configuration as a whole.

use std::net::{IpAddr, SocketAddr};

use super::host::{Host, HostPort};
use super::resolve::ConfigReader;
use super::toml_file;
use super::value::{AuthType, PoolMode, ReadConsistency, ReadRouting, SslMode};
use super::vault::VaultAccess;
use super::{Excerpt, Mistake, Scope, SecretSource, SecretText, User, doubts};

impl ConfigReader {
    /// Refuses peers without a host, and warns of `[peers]` without a `peer_id`, which has no
    /// effect.
    pub(super) fn judge_peers(&mut self) {
        let peers = self.config.peers.iter();
        for (id, _) in peers.filter(|(_, peer)| peer.host.is_none()) {
            let path = [Scope::Peer.section().to_owned(), id.to_string()];
            // Another mistake of the entry may be the reason.
            if let Some(begun) = self.entries.get(&path[..]).filter(|begun| !begun.is_faulty) {
                let text = format!("peer \"{id}\"");
                let mistake = Mistake::new(Some(&begun.place), text, "a peer needs host=");
                let mistake = mistake.showing(Excerpt::of_key(&path[1]));
                self.mistakes.push(mistake);
            }
        }
        let id = self.config.globals.peer_id;
        let others = self.config.peers.keys().any(|&peer| u32::from(peer) != id);
        if id == 0 && others {
            self.warn(format!(
                "[peers] in {} has no effect: peer_id is 0, set it to our own number",
                self.path
            ));
        }
    }

    /// Refuses databases that require TLS while TLS is off, and `auth_type = cert` while clients
    /// need not show a certificate: no client could log in.
    pub(super) fn judge_certificates(&mut self) {
        let globals = &self.config.globals;
        let databases = self.config.databases.values().chain(&self.config.fallback);
        for database in databases.filter(|_| globals.client_tls_sslmode == SslMode::Disable) {
            let mode = database.client_tls_sslmode;
            if mode.is_some_and(SslMode::is_required) {
                let name = &database.name;
                let text = format!(
                    "client_tls_sslmode of database {name} wants TLS, which is switched off"
                );
                let remedy = format!(
                    "set client_tls_sslmode = allow in [{}], with key and certificate",
                    self.main
                );
                self.mistakes.push(Mistake::new(None, text, remedy));
            }
        }
        if globals.auth_type != AuthType::Cert || globals.client_tls_sslmode.is_verified() {
            return;
        }
        let text = "auth_type = cert requires client_tls_sslmode = verify-full";
        let remedy = "set that, and client_tls_ca_file";
        let mistake = Mistake::new(self.place("auth_type"), text, remedy);
        let excerpt = Excerpt::of_value("auth_type", "cert");
        self.mistakes.push(mistake.showing(excerpt));
    }

    /// Warns of databases whose certificates of authorities are never looked at.
    pub(super) fn judge_authorities(&mut self) {
        let globals = &self.config.globals;
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let idle = databases.filter(|database| {
            let mode = database.sslmode.unwrap_or(globals.server_tls_sslmode);
            database.sslrootcert.is_some() && !mode.is_verified()
        });
        let idle: Vec<_> = idle.map(|database| database.name.clone()).collect();
        for name in idle {
            let place = self.place_of(&name);
            self.warn(format!(
                "sslrootcert of database \"{name}\"{place} verifies nothing without sslmode = verify-ca or \
                 verify-full"
            ));
        }
    }

    /// A password belongs to the forced user. Warns of a password without a forced user: it is
    /// never used.
    pub(super) fn judge_passwords(&mut self) {
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let idle = databases.filter(|d| d.server_password.is_some() && d.forced_user.is_none());
        let idle: Vec<_> = idle.map(|database| database.name.clone()).collect();
        for name in idle {
            let place = self.place_of(&name);
            self.warn(if self.main == toml_file::MAIN {
                format!(
                    "server_password of database \"{name}\"{place} has no effect without server_user"
                )
            } else {
                format!(
                    "password of database \"{name}\"{place} has no effect without user: write user=, \
                     or the users' secrets into auth_file"
                )
            });
        }
    }

    /// A token goes to PostgreSQL in clear text: refuses databases where others could read that.
    pub(super) fn judge_tokens(&mut self) {
        let globals = &self.config.globals;
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let is_token = |password: Option<&SecretText>| {
            let source = password.and_then(SecretText::source);
            source.is_some_and(SecretSource::gives_tokens)
        };
        let open = databases.filter(|database| {
            let members = database.users.values();
            let mut members = members.map(|user| user.server_password.as_ref());
            let uses = is_token(database.server_password.as_ref()) || members.any(is_token);
            let mode = database.sslmode.unwrap_or(globals.server_tls_sslmode);
            let far = |to: &HostPort| match &to.host {
                Host::Unix(_) => false,
                Host::Ip(ip) => !ip.is_loopback(),
                Host::Name(_) | Host::Address { .. } => true,
            };
            uses && !mode.is_verified() && database.hosts.iter().any(far)
        });
        let open: Vec<_> = open.map(|database| database.name.clone()).collect();
        for name in open {
            let what = "tokens go to PostgreSQL in clear text, and TLS does not verify the server";
            let remedy =
                "write sslmode = \"verify-full\" and sslrootcert, the authorities of the server";
            self.refuse_entry(&name, what.into(), remedy);
        }
        let asks = |user: &User| {
            let source = user.password.as_ref().and_then(SecretText::source);
            let named = source.and_then(SecretSource::in_words);
            named.map(|(name, _)| (name, user.name.clone()))
        };
        let members = self.config.databases.values().chain(&self.config.fallback);
        let members = members.flat_map(|database| database.users.values());
        let users = self.config.users.values().chain(members);
        let wrong: Vec<_> = users.filter_map(|user| asks(user)).collect();
        for (source, name) in wrong {
            let text = format!("user \"{name}\": no client logs in with what {source} gives");
            let remedy = "write the user's password: a text, a file, a variable or a command";
            self.mistakes.push(Mistake::new(None, text, remedy));
        }
    }

    /// Passwords of Vault need to know where Vault is, and how to log in there.
    pub(super) fn judge_vault(&mut self) {
        let uses = self.config.secret_sources();
        let mut vault = uses
            .iter()
            .filter(|(source, _)| matches!(source, SecretSource::Vault(_)));
        let Some((source, used)) = vault.next() else {
            return;
        };
        if let Err((what, remedy)) = VaultAccess::of(&self.config.globals) {
            let who = used.users.join("; ");
            let text = format!("{who}: the source {source} can't be asked: {what}");
            self.mistakes.push(Mistake::new(None, text, remedy));
        }
    }

    /// Refuses users whose pool would be that of others with another login. Warns of databases that
    /// nobody may use.
    pub(super) fn judge_members(&mut self) {
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let (mut shared, mut closed) = (Vec::new(), Vec::new());
        for database in databases {
            let forced = database.forced_user.as_deref();
            if forced.is_some_and(|user| database.server_user(user) != user) {
                shared.push((database.name.clone(), forced.unwrap_or_default().to_owned()));
            }
            if database.users_only && database.users.is_empty() {
                closed.push(database.name.clone());
            }
        }
        for (name, user) in shared {
            let what = format!("user \"{user}\" has the pool of all, and a server_user of its own");
            let remedy = "leave that server_user out, or give the database another one";
            self.refuse_entry(&name, what, remedy);
        }
        for name in closed {
            let place = self.place_of(&name);
            self.warn(format!(
                "database \"{name}\"{place} has users_only and no users: nobody may use it"
            ));
        }
    }

    /// Warns if an unauthenticated client could choose the database of auth_query. auth_query runs before a client
    /// has proved anything, and with a `*` entry any name is a database.
    pub(super) fn judge_lookups(&mut self) {
        let set = |text: Option<String>| text.is_some_and(|text| !text.is_empty());
        let open = self.config.fallback.as_ref().is_some_and(|fallback| {
            let scopes = self.config.scopes(Some(fallback), None);
            set(scopes.auth_user()) && !set(scopes.auth_dbname())
        });
        if open {
            self.warn(
                "auth_user with a database * and without auth_dbname: whoever connects can, without \
                 a password, have a server opened in a database of any name; set auth_dbname to the \
                 one that auth_query is for"
                    .into(),
            );
        }
    }

    /// Warns if anybody can read the metrics over the network, because there is no token.
    pub(super) fn judge_metrics(&mut self) {
        let globals = &self.config.globals;
        let address = globals.http_listen_addr.parse::<std::net::IpAddr>();
        let local = address.is_ok_and(|address| address.is_loopback());
        if globals.http_listen_port != 0 && !local && globals.http_token.is_empty() {
            let address = globals.http_listen_addr.clone();
            let page = if globals.http_page {
                ", and the page (http_page) is not served: set http_token"
            } else {
                ""
            };
            let text = format!(
                "http_listen_addr = {address} without http_token: whoever reaches it reads the names \
                 of databases and users in /metrics{page}"
            );
            match self.written.get("http_listen_addr").cloned() {
                Some((value, place)) => {
                    self.warn_at(&place, Excerpt::of_value("http_listen_addr", &value), text);
                }
                None => self.warn(text),
            }
        }
    }

    /// Warns if everybody may say which address a client has.
    pub(super) fn judge_balancers(&mut self) {
        if !self.config.globals.proxy_protocol.has_all() {
            return;
        }
        let text = "proxy_protocol has all addresses: whoever reaches the port can pretend to come from \
                    any address; write the balancers' networks";
        match self.written.get("proxy_protocol").cloned() {
            Some((value, place)) => {
                let excerpt = Excerpt::of_value("proxy_protocol", &value);
                self.warn_at(&place, excerpt, text.into());
            }
            None => self.warn(text.into()),
        }
    }

    /// Refuses one port for two purposes, and warns of databases that lead to Howdah itself.
    pub(super) fn judge_ports(&mut self) {
        let globals = &self.config.globals;
        if doubts::shares_port(globals) {
            let port = globals.http_listen_port;
            let text = format!("http_listen_port = {port} is listen_port, too");
            let place = self.place("http_listen_port");
            let mistake = Mistake::new(place, text, "write another port");
            let excerpt = Excerpt::of_value("http_listen_port", &port.to_string());
            self.mistakes.push(mistake.showing(excerpt));
        }
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let circles = databases.filter(|database| {
            let mut hosts = database.hosts.iter();
            hosts.any(|to| doubts::leads_here(to, globals))
        });
        let circles: Vec<_> = circles.map(|database| database.name.clone()).collect();
        let port = globals.listen_port;
        for name in circles {
            let place = self.place_of(&name);
            self.warn(format!(
                "database \"{name}\"{place} leads to Howdah itself: port {port} of that host is \
                 listen_port; write PostgreSQL's port"
            ));
        }
    }

    /// Refuses lists of hosts in which a placed entry could not find its way, and warns of entries
    /// of `[hosts]` that no database has.
    pub(super) fn judge_placed(&mut self) {
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let placed = databases.filter(|database| database.is_placed());
        let wrong = placed.filter_map(|database| {
            let written = database.host.as_deref().unwrap_or_default();
            let mut hosts = database.hosts.iter().enumerate();
            let twice = hosts.find(|(at, to)| database.hosts[..*at].contains(to));
            let what = match twice {
                Some((_, to)) => format!("the host {to} stands twice in its list"),
                None if database.hosts.is_empty() && written.is_empty() => "it has no host".into(),
                None if written.split(',').any(|host| host.trim().is_empty())
                    && database.host.is_some() =>
                {
                    "there is an empty host in its list".into()
                }
                None => return None,
            };
            Some((database.name.clone(), what))
        });
        for (name, what) in wrong.collect::<Vec<_>>() {
            let remedy = "with target_session_attrs, write each host once";
            self.refuse_entry(&name, what, remedy);
        }
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let known: Vec<&HostPort> = databases.flat_map(|database| &database.hosts).collect();
        let has_names = known.iter().any(|to| matches!(to.host, Host::Name(_)));
        let is_known = |name: &str| {
            // An address may be one of a name's.
            let is_address =
                || name.parse::<IpAddr>().is_ok() || name.parse::<SocketAddr>().is_ok();
            known.iter().any(|host| host.is_named(name)) || has_names && is_address()
        };
        let unknown = self.config.hosts.keys().filter(|name| !is_known(name));
        for name in unknown.cloned().collect::<Vec<_>>() {
            self.warn(format!(
                "[hosts] has \"{name}\", and no database has this host: write the host as it stands there, \
                 or host:port"
            ));
        }
    }

    /// Warns of databases whose reads can't go to standbys, though their entry, or the only user's,
    /// says so.
    pub(super) fn judge_reads(&mut self) {
        let globals = &self.config.globals;
        let databases = self.config.databases.values().chain(&self.config.fallback);
        let mut doubts = Vec::new();
        for database in databases {
            let scopes = self.config.scopes(Some(database), None);
            let is_own = database.read_routing.is_some();
            let is_name = |to: &HostPort| matches!(to.host, Host::Name(_));
            // A name may have several.
            let has_addresses = database.is_placed() && database.hosts.iter().all(is_name);
            if scopes.read_routing() == ReadRouting::Off {
                continue;
            }
            let knows_user = [globals.host_check_user.clone(), scopes.auth_user()];
            let knows_user = knows_user
                .into_iter()
                .flatten()
                .any(|user| !user.is_empty())
                || database.forced_user.is_some();
            let what = match () {
                () if database.hosts.len() < 2 && !is_own => continue,
                () if database.hosts.len() < 2 && !has_addresses => "it has one host",
                () if scopes.pool_mode() == PoolMode::Session => "its pool_mode is session",
                () if !knows_user && scopes.read_consistency() == ReadConsistency::Session => {
                    "nobody can ask its hosts how far they are (host_check_user)"
                }
                () => continue,
            };
            doubts.push((database.name.clone(), what));
        }
        for (name, what) in doubts {
            let place = self.place_of(&name);
            self.warn(format!(
                "database \"{name}\"{place} has read_routing, but no read goes to a standby: {what}"
            ));
        }
    }
}
