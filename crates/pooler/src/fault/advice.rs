//! What a client is told besides the bare reason: PostgreSQL's text of a failed login, what was
//! met, and what to change. The log keeps PgBouncer's texts, which people search for.

use super::{Fault, HeaderFault};
use crate::auth;
use crate::config::{Config, Scopes};
use crate::console::is_console;
use crate::login::terms::Terms;
use crate::reads::wish::SESSION_ATTRS;

/// Who is told, and under which settings.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The user of the login.
    pub user: &'a str,
    /// The database that the client asked for.
    pub database: &'a str,
    /// The client's address; `[local]` for a unix socket.
    pub host: &'a str,
    /// The client uses TLS.
    pub encrypted: bool,
    /// The settings in force.
    pub config: &'a Config,
    /// The settings of the client's login, if it has one.
    pub terms: Option<&'a Terms>,
}

impl Case<'_> {
    /// `pool_size`, or 0 for a client without a login.
    fn pool_size(&self) -> u32 {
        self.terms.map_or(0, |terms| {
            let scopes = Scopes {
                member: terms.database.member(self.user),
                user: terms.user.as_deref(),
                database: Some(&terms.database),
                globals: &self.config.globals,
            };
            scopes.pool_size()
        })
    }
}

impl Fault {
    /// The message for the client. PostgreSQL's own words where PostgreSQL has the same condition.
    pub fn told(&self, case: &Case<'_>) -> String {
        use Fault::*;
        let Case { user, database, .. } = case;
        match self {
            LoginFailed(why) => told_of_login(why, case),
            TokenWanted => told_of_login(auth::oauthbearer::OAUTH_FAILED, case),
            NoSuchUser => format!("{} for user \"{user}\"", auth::PASSWORD_FAILED),
            NoDatabase(name) => format!("database \"{name}\" does not exist"),
            NotAllowed => format!("permission denied for database \"{database}\""),
            ServerParameter(_, text) => text.clone(),
            // The client gets PostgreSQL's own text of a failed login. Class 08 is our own.
            ServerLoginFailing(sqlstate, text) if !sqlstate.starts_with("08") => text.clone(),
            fault => fault.to_string(),
        }
    }

    /// What was met, if the message does not say it.
    pub fn detail(&self) -> Option<String> {
        use Fault::*;
        Some(match self {
            LoginFailed(auth::NO_RULE | auth::REJECTED) => {
                "The pooler has rules of its own, in auth_hba or auth_hba_file.".into()
            }
            LoginFailed(_) | NoSuchUser => "The pooler refused this login.".into(),
            LoginTimeoutSilent => "The client has sent no start-up packet.".into(),
            NoDatabase(_) => "The pooler's [databases] has neither this name nor *.".into(),
            BytesBeforeAnswer(_) => "This could be either a client-software bug or evidence of an \
                                     attempted man-in-the-middle attack."
                .into(),
            _ => return None,
        })
    }

    /// What to change, with the value that is in force.
    pub fn hint(&self, case: &Case<'_>) -> Option<String> {
        use Fault::*;
        let globals = &case.config.globals;
        let seconds = |of: fn(&Terms) -> u64| {
            let nanos = case.terms.map_or(0, of);
            format!("now {} s", nanos as f64 / 1e9)
        };
        let raise = |name: &str, now: String| format!("Raise {name} ({now}).");
        Some(match self {
            LoginFailed(_) | NoSuchUser | PasswordAway | Config(_) => {
                "The pooler's log says why.".into()
            }
            NoDatabase(_) => "Add the database, or *, to [databases] in the pooler's file.".into(),
            TooEarly => {
                "A program that is no PostgreSQL client, or an error of the driver, sent this."
                    .into()
            }
            ProxyHeader(HeaderFault::Missing) => format!(
                "Switch the header on at the balancer (HAProxy: send-proxy-v2), or take {} out of \
                 proxy_protocol.",
                case.host
            ),
            ProxyHeader(HeaderFault::NotListed) => format!(
                "Add {} to proxy_protocol if a balancer is there, or switch the header off.",
                case.host
            ),
            ProxyHeader(HeaderFault::Second) => {
                "Of several balancers in a row, only the first may add a header.".into()
            }
            Protocol(..) => "Use a driver that speaks protocol 3.".into(),
            TlsRequired => "Connect with sslmode=require.".into(),
            NoUser => "Name a user in the connection string.".into(),
            NameTooLong("user") => "A user's name has at most 127 bytes.".into(),
            NameTooLong(_) => "A database's name has at most 63 bytes.".into(),
            NameNotUtf8(_) => "Names are in UTF-8.".into(),
            Parameter(name) | OptionsSetting(name) => {
                let now = &globals.ignore_startup_parameters;
                ignore(name, &now.join(", "))
            }
            OptionsForm => ignore("options", &globals.ignore_startup_parameters.join(", ")),
            ReplicationValue(_) => {
                "Valid values are: \"false\", 0, \"true\", 1, \"database\".".into()
            }
            SessionAttrs(_) => format!("Available values: {SESSION_ATTRS}."),
            CopyUnclear => "Wait for the end of COPY before you send other messages.".into(),
            TransactionBlock | PinsInStatementMode => {
                "Set pool_mode = transaction for this database or user.".into()
            }
            TooManyPins => {
                let now = case.pool_size();
                format!(
                    "End what keeps servers (temporary tables, session locks and the like), or \
                     raise pool_size (now {now}). SHOW HOLDERS on the console says who keeps \
                     servers."
                )
            }
            ListenerLost => "Connect again, LISTEN, and look for what was missed.".into(),
            TooManyChannels | TooManyOwnChannels => "UNLISTEN what is not needed.".into(),
            TooMuchHeard => "Read notifications as they come, and LISTEN to fewer channels.".into(),
            OtherEncoding => "SET client_encoding before LISTEN.".into(),
            ChannelsUnclear => {
                "With listen = pin, the client listens on a server of its own.".into()
            }
            QueriesRefused => {
                "disable_pqexec is set: send queries by the extended protocol.".into()
            }
            NotAllowed if !is_console(case.database) => {
                "Add the user to [databases.NAME.users] in the pooler's file.".into()
            }
            NotAllowed => "Name the user in admin_users or stats_users.".into(),
            TooManyClients(text) => raise_limit(text, case),
            LoginTimeout | LoginTimeoutSilent | LoginTimeoutServerDown => raise(
                "client_login_timeout",
                format!("now {} s", globals.client_login_timeout.as_secs_f64()),
            ),
            ClientIdle => raise("client_idle_timeout", seconds(|t| t.client_idle_timeout)),
            PinIdle => format!(
                "The client kept a server. End what keeps it, or raise pin_idle_timeout ({}).",
                seconds(|t| t.pin_idle_timeout)
            ),
            IdleTransaction => format!(
                "End transactions, or raise idle_transaction_timeout ({}).",
                seconds(|t| t.idle_transaction_timeout)
            ),
            TransactionTimeout => raise("transaction_timeout", seconds(|t| t.transaction_timeout)),
            QueryTimeout | QueryTimeoutWaiting => {
                raise("query_timeout", seconds(|t| t.query_timeout))
            }
            QueryWait => format!(
                "SHOW HOLDERS on the console says who has the servers. Shorten transactions, or \
                 raise pool_size (now {}) or query_wait_timeout ({}).",
                case.pool_size(),
                seconds(|t| t.query_wait_timeout)
            ),
            QueryWaitServerDown => "The pooler's log says more.".into(),
            TokenEnded => "Connect again, with a new token.".into(),
            ShuttingDown | ServerShuttingDown | DatabaseChanged | Suspended | Forced
            | DatabaseRemoved | UserEnds | LifetimeOver | Drained => "Connect again.".into(),
            DatabaseDisabled(name) | AuthDatabaseDisabled(name) => {
                format!("ENABLE {name} on the console.")
            }
            Internal => "The pooler's log names the place. Please report it.".into(),
            ServerLoginFailing(sqlstate, _) if sqlstate.starts_with("08") => {
                "Check host and port of the database in the pooler's file, and that PostgreSQL \
                 runs there. The pooler's log names the host."
                    .into()
            }
            ServerBytes(_) => "Check that host and port are PostgreSQL's.".into(),
            ServerGone => {
                "PostgreSQL's log says why. Find out whether the last statement took effect before \
                 you repeat it."
                    .into()
            }
            _ => return None,
        })
    }
}

/// PostgreSQL's message for a failed login; the reason itself if PostgreSQL has none.
fn told_of_login(why: &str, case: &Case<'_>) -> String {
    let Case {
        user,
        database,
        host,
        ..
    } = case;
    let encryption = if case.encrypted {
        "SSL encryption"
    } else {
        "no encryption"
    };
    let rule = |text: &str| {
        format!(
            "{text} for host \"{host}\", user \"{user}\", database \"{database}\", {encryption}"
        )
    };
    match why {
        auth::PASSWORD_FAILED | auth::SASL_FAILED => {
            format!("{} for user \"{user}\"", auth::PASSWORD_FAILED)
        }
        auth::LDAP_FAILED
        | auth::PAM_FAILED
        | auth::CERT_FAILED
        | auth::oauthbearer::OAUTH_FAILED
        | auth::oauthbearer::JWT_FAILED => {
            format!("{why} for user \"{user}\"")
        }
        auth::PEER_FAILED => format!("Peer authentication failed for user \"{user}\""),
        auth::TRUST_FAILED => format!("role \"{user}\" does not exist"),
        auth::REJECTED => rule("pg_hba.conf rejects connection"),
        auth::NO_RULE => rule("no pg_hba.conf entry"),
        other => other.to_owned(),
    }
}

fn ignore(name: &str, now: &str) -> String {
    format!("Add {name} to ignore_startup_parameters (now \"{now}\").")
}

/// The limit that a text of the Broker's names, with its value.
fn raise_limit(text: &str, case: &Case<'_>) -> String {
    let config = case.config;
    let (name, now) = if text.contains("max_db_client_connections") {
        let of_entry = config.entry(case.database);
        let now = of_entry.map_or(0, |entry| {
            let scopes = config.scopes(Some(entry), None);
            scopes.max_db_client_connections()
        });
        ("max_db_client_connections", now)
    } else if text.contains("max_user_client_connections") {
        let scopes = config.scopes(None, Some(case.user));
        let now = scopes.max_user_client_connections();
        ("max_user_client_connections", now)
    } else {
        ("max_client_conn", config.globals.max_client_conn)
    };
    format!("Raise {name} (now {now}).")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn errors_of_howdah_say_what_to_change() {
        let text = "[databases]\nd = max_db_client_connections=7\n[pgbouncer]\nmax_client_conn = 9";
        let (config, _) = Config::load("x.ini", text, &mut |_| Ok(String::new())).unwrap();
        let case = Case {
            user: "app",
            database: "d",
            host: "10.0.0.1",
            encrypted: false,
            config: &config,
            terms: None,
        };
        let full = "no more connections allowed (max_client_conn)";
        let full_of = "client connections exceeded (max_db_client_connections)";
        for (fault, told, hint) in [
            (
                Fault::LoginFailed(auth::SASL_FAILED),
                "password authentication failed for user \"app\"",
                "log",
            ),
            (
                Fault::LoginFailed(auth::NO_RULE),
                "no pg_hba.conf entry for host \"10.0.0.1\", user \"app\", database \"d\", no encryption",
                "log",
            ),
            (
                Fault::NoDatabase("x".into()),
                "database \"x\" does not exist",
                "[databases]",
            ),
            (Fault::TooManyClients(full), full, "max_client_conn (now 9)"),
            (
                Fault::TooManyClients(full_of),
                full_of,
                "max_db_client_connections (now 7)",
            ),
            (Fault::QueryWait, "query_wait_timeout", "pool_size"),
            (Fault::LoginTimeout, "client_login_timeout", "now 60 s"),
            (
                Fault::Parameter("a".into()),
                "unsupported startup parameter: a",
                "Add a to ignore_startup_parameters (now \"\").",
            ),
        ] {
            assert_eq!(fault.told(&case), told);
            let said = fault.hint(&case).unwrap_or_default();
            assert!(said.contains(hint), "{said}");
        }
    }
}
