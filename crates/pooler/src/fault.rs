//! All reasons to end a connection, sorted by cause, with SQLSTATE, text and log level.

use std::fmt;

use howdah_wire::WireError;
use howdah_wire::proxy::ProxyError;

use crate::auth;
use crate::note::Level;

pub mod advice;
pub mod refusal;

/// A reason to end a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    // Caused by the client.
    /// The client's bytes are not messages.
    ClientBytes(WireError),
    /// The start-up packet, or a later message, has an invalid length. The client gets no message.
    ClientLength(WireError),
    /// The client speaks another protocol, which is named.
    OtherProtocol(Foreign),
    /// The connection begins without the header of the PROXY protocol that it must have, or with one
    /// that it must not have.
    ProxyHeader(HeaderFault),
    /// The protocol version is not 3.
    Protocol(u16, u16),
    /// The client sent bytes after an SSLRequest or GSSENCRequest, before our answer.
    BytesBeforeAnswer(&'static str),
    /// The client uses clear text, and `client_tls_sslmode` requires TLS.
    TlsRequired,
    /// The TLS handshake failed, with the reason.
    TlsHandshake(String),
    /// The client sent messages before its login was complete.
    TooEarly,
    /// The start-up packet names no user.
    NoUser,
    /// A name is longer than PgBouncer's limits.
    NameTooLong(&'static str),
    /// A name is not in UTF-8, which settings, logs and files use.
    NameNotUtf8(&'static str),
    /// A start-up parameter is not supported.
    Parameter(String),
    /// The start-up parameter `options` has a form that is not supported.
    OptionsForm,
    /// A setting in the start-up parameter `options` is not supported.
    OptionsSetting(String),
    /// The start-up parameter `replication` has an invalid value.
    ReplicationValue(String),
    /// The start-up parameter `target_session_attrs` has none of libpq's values.
    SessionAttrs(String),
    /// The client sent a Sync during its COPY, the COPY failed, and the client sent more messages.
    /// Whether PostgreSQL skips these messages depends on whether it read the Sync before the COPY
    /// failed, which Howdah can't see.
    CopyUnclear,
    /// A transaction block in statement mode.
    TransactionBlock,
    /// A statement in statement mode that would keep a server for its client.
    PinsInStatementMode,
    /// The client keeps a server, and too many clients of its pool keep one (`pin_limit`).
    TooManyPins,
    /// The client uses LISTEN on Howdah's listening connection, and this connection is lost.
    ListenerLost,
    /// There are too many channels on the listening connection.
    TooManyChannels,
    /// One client listens to too many channels.
    TooManyOwnChannels,
    /// More notifications wait for the client than Howdah keeps.
    TooMuchHeard,
    /// A notification is not in the client's encoding, which has changed since its LISTEN.
    OtherEncoding,
    /// UNLISTEN where Howdah can't see whether it is committed.
    /// `pg_listening_channels()` where Howdah can't prepare the server to answer for its client.
    ChannelsUnclear,
    /// Authentication failed, with the reason.
    LoginFailed(&'static str),
    /// A client without a token has learned where tokens come from. It is no failed login.
    TokenWanted,
    /// The source of the user's password has given no valid one.
    PasswordAway,
    /// auth_query did not find the user.
    NoSuchUser,
    /// The user is neither in `admin_users` nor in `stats_users`.
    NotAllowed,
    /// The client's connection ended, with the reason.
    ClientGone(String),
    /// The client sent Terminate.
    ClientClosed,
    /// The client has already received its error.
    Told(String),
    /// The cancel request was carried out, or had nothing to cancel.
    Cancelled,
    /// No client has the key of the cancel request.
    CancelUnknown,
    /// The cancel request is for a peer that `[peers]` does not name.
    CancelNoPeer,
    /// The cancel request was forwarded too often.
    CancelTtl,
    /// The client used the simple query protocol, and `disable_pqexec` is set.
    QueriesRefused,

    // Caused by a limit or timeout that the administrator set.
    /// A client limit is reached; the text names it.
    TooManyClients(&'static str),
    /// `client_login_timeout`.
    LoginTimeout,
    /// `client_login_timeout`, and the client has not even sent a part of a start-up packet.
    LoginTimeoutSilent,
    /// `client_login_timeout` while the client waited for a server.
    LoginTimeoutServerDown,
    /// `client_idle_timeout`.
    ClientIdle,
    /// `pin_idle_timeout`.
    PinIdle,
    /// `idle_transaction_timeout`.
    IdleTransaction,
    /// `transaction_timeout`.
    TransactionTimeout,
    /// `end_with_token`.
    TokenEnded,
    /// Vault will drop the user of the server that the client keeps.
    UserEnds,
    /// `client_lifetime`.
    LifetimeOver,
    /// The process is about to end, and ends its clients one after the other.
    Drained,
    /// `query_timeout`.
    QueryTimeout,
    /// `query_timeout` while the client waited for a server.
    QueryTimeoutWaiting,
    /// `query_wait_timeout`: other clients had the servers.
    QueryWait,
    /// `query_wait_timeout`: there was no server, because of PostgreSQL, PAUSE or SUSPEND.
    QueryWaitServerDown,
    /// `cancel_wait_timeout`.
    CancelWait,
    /// The process is ending.
    ShuttingDown,
    /// SHUTDOWN WAIT_FOR_SERVERS, for a client without a server.
    ServerShuttingDown,
    /// KILL, or the database was removed from the configuration.
    DatabaseRemoved,
    /// The server's settings changed during a session.
    DatabaseChanged,
    /// SUSPEND or a takeover: the client did not read in time what was sent to it.
    Suspended,
    /// The administrator ended the connection.
    Forced,

    // Caused by Howdah.
    /// A bug: a state that must be impossible.
    Internal,

    // Caused by the configuration.
    /// The database does not exist.
    NoDatabase(String),
    /// The database takes no clients.
    DatabaseDisabled(String),
    /// The configuration does not allow this login; the log says why.
    Config(String),
    /// What a client asks of a sharded database at its login is not possible.
    Shard(String),
    /// The database in which auth_query runs takes no clients.
    AuthDatabaseDisabled(String),

    // Caused by the server or the network.
    /// The server's bytes are not messages, or not the expected ones.
    ServerBytes(WireError),
    /// PostgreSQL refused our login: its SQLSTATE and text.
    ServerLogin(String, String),
    /// Logins keep failing: the last error's SQLSTATE and text.
    ServerLoginFailing(String, String),
    /// The connection to the server was lost.
    ServerGone,
    /// PostgreSQL refused the value of a client's parameter: its SQLSTATE and text.
    ServerParameter(String, String),
    /// A reason that only the log needs.
    Server(&'static str),
}

/// What is wrong with the header of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderFault {
    /// There is none, from an address of `proxy_protocol`.
    Missing,
    /// It can't be read.
    Invalid(ProxyError),
    /// `proxy_protocol` does not list the address that it comes from.
    NotListed,
    /// It follows another one.
    Second,
}

/// A protocol that is not PostgreSQL's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// A browser, a probe or a scraper.
    Http,
    /// A TLS handshake without an SSLRequest, where clients may not use TLS.
    Tls,
}

impl Foreign {
    /// The protocol of a client's first bytes, if it is another than PostgreSQL's. A start-up packet
    /// begins with its length, and all of these would be far too long.
    pub fn of(first: &[u8]) -> Option<Foreign> {
        let methods = [
            "GET ", "HEAD", "POST", "PUT ", "DELE", "OPTI", "CONN", "PATC", "TRAC", "PRI ",
        ];
        match first {
            [0x16, 3, ..] => Some(Foreign::Tls),
            _ if methods
                .iter()
                .any(|method| first.starts_with(method.as_bytes())) =>
            {
                Some(Foreign::Http)
            }
            _ => None,
        }
    }
}

impl Fault {
    /// The SQLSTATE for the client: PostgreSQL's own code if PostgreSQL has the same condition.
    pub fn sqlstate(&self) -> &str {
        use Fault::*;
        match self {
            LoginFailed(
                auth::TRUST_FAILED
                | auth::PEER_FAILED
                | auth::CERT_FAILED
                | auth::CERT_REQUIRED
                | auth::LDAP_FAILED
                | auth::PAM_FAILED
                | auth::oauthbearer::OAUTH_FAILED
                | auth::oauthbearer::TOKEN_IN_CLEAR
                | auth::REJECTED
                | auth::NO_RULE
                | auth::BINDING_DOWNGRADE
                | auth::BINDING_WRONG,
            ) => "28000",
            NotAllowed => "42501",
            LoginFailed(
                auth::SCRAM_MALFORMED
                | auth::MECHANISM_UNKNOWN
                | auth::oauthbearer::OAUTH_MALFORMED
                | auth::BINDING_UNKNOWN
                | auth::BINDING_ATTRIBUTE,
            ) => "08P01",
            LoginFailed(auth::oauthbearer::OAUTH_AUTHZID) => "0A000",
            LoginFailed(_) | NoSuchUser => "28P01",
            NoUser | TlsRequired | TokenWanted => "28000",
            NoDatabase(_) => "3D000",
            TooManyClients(_) | QueryWait => "53300",
            TooManyPins => "53000",
            TooManyChannels | TooManyOwnChannels | TooMuchHeard => "54000",
            SessionAttrs(_) => "22023",
            OtherEncoding | NameNotUtf8(_) => "22021",
            ClientIdle | PinIdle => "57P05",
            IdleTransaction => "25P03",
            TransactionTimeout => "25P04",
            QueryTimeout | QueryTimeoutWaiting | LoginTimeout | LoginTimeoutSilent => "57014",
            QueryWaitServerDown
            | LoginTimeoutServerDown
            | PasswordAway
            | DatabaseDisabled(_)
            | AuthDatabaseDisabled(_) => "57P03",
            ListenerLost | ShuttingDown | ServerShuttingDown | Forced | DatabaseRemoved
            | DatabaseChanged | Suspended | TokenEnded | UserEnds | LifetimeOver | Drained => {
                "57P01"
            }
            ServerLogin(sqlstate, _)
            | ServerLoginFailing(sqlstate, _)
            | ServerParameter(sqlstate, _) => sqlstate,
            ServerGone => "08006",
            Internal => "XX000",
            Config(_) => "F0000",
            Shard(_) => "22023",
            Protocol(..) | QueriesRefused | PinsInStatementMode | TransactionBlock
            | ChannelsUnclear => "0A000",
            _ => "08P01",
        }
    }

    /// The level in the log.
    pub fn level(&self) -> Level {
        use Fault::*;
        match self {
            Config(_) | ServerBytes(_) | Internal => Level::Error,
            ServerParameter(..) | ProxyHeader(_) => Level::Warning,
            _ => Level::Log,
        }
    }

    /// True if the client could not prove its identity, or nothing lets its user in.
    pub fn refuses_login(&self) -> bool {
        matches!(
            self,
            Fault::LoginFailed(_) | Fault::NoSuchUser | Fault::NotAllowed
        )
    }

    /// True if Howdah ends the client as planned, behind a transaction.
    pub fn is_planned(&self) -> bool {
        matches!(self, Fault::UserEnds | Fault::LifetimeOver | Fault::Drained)
    }

    /// True if the line about the client's end is all that the log needs: nothing is wrong with Howdah or
    /// PostgreSQL.
    pub fn is_logged_once(&self) -> bool {
        self.is_planned() || matches!(self, Fault::ProxyHeader(_))
    }

    /// True if the client gets a message. False if the client has left, or if PostgreSQL would send
    /// no message.
    pub fn is_told(&self) -> bool {
        !matches!(
            self,
            Fault::ClientGone(_)
                | Fault::ClientLength(_)
                | Fault::OtherProtocol(_)
                | Fault::TlsHandshake(_)
                | Fault::ClientClosed
                | Fault::CancelWait
                | Fault::Told(_)
                | Fault::Cancelled
                | Fault::CancelUnknown
                | Fault::CancelNoPeer
                | Fault::CancelTtl
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Fault::*;
        match self {
            ClientBytes(WireError::Tag(tag)) => write!(f, "invalid frontend message type {tag}"),
            ClientBytes(error) | ClientLength(error) => error.fmt(f),
            ProxyHeader(HeaderFault::Missing) => {
                f.write_str("no PROXY protocol header from an address in proxy_protocol")
            }
            ProxyHeader(HeaderFault::Invalid(error)) => {
                write!(f, "invalid PROXY protocol header: {error}")
            }
            ProxyHeader(HeaderFault::NotListed) => {
                f.write_str("PROXY protocol header from an address that is not in proxy_protocol")
            }
            ProxyHeader(HeaderFault::Second) => f.write_str("a second PROXY protocol header"),
            Protocol(2, _) => f.write_str("old V2 protocol not supported"),
            Protocol(major, minor) => write!(
                f,
                "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2"
            ),
            BytesBeforeAnswer(request) => write!(f, "received unencrypted data after {request}"),
            TlsRequired => f.write_str("SSL required"),
            TlsHandshake(why) => write!(f, "TLS handshake failed: {why}"),
            TooEarly => f.write_str("unexpected message before the end of the login"),
            NoUser => f.write_str("no PostgreSQL user name specified in startup packet"),
            NameTooLong(what) => write!(f, "{what} name too long"),
            NameNotUtf8(what) => write!(
                f,
                "invalid byte sequence for encoding \"UTF8\" in the {what} name"
            ),
            Parameter(name) => write!(f, "unsupported startup parameter: {name}"),
            OptionsForm => f.write_str(
                "unsupported options startup parameter: only '-c config=val' and \
                 '--config=val' are allowed",
            ),
            OptionsSetting(name) => write!(f, "unsupported startup parameter in options: {name}"),
            ReplicationValue(value) => {
                write!(
                    f,
                    "invalid value for parameter \"replication\": \"{value}\""
                )
            }
            SessionAttrs(value) => write!(
                f,
                "invalid value for parameter \"target_session_attrs\": \"{value}\""
            ),
            CopyUnclear => f.write_str(
                "COPY failed with other messages in flight: the pooler cannot tell which of them \
                 the server will answer",
            ),
            TransactionBlock => {
                f.write_str("transaction blocks not allowed in statement pooling mode")
            }
            PinsInStatementMode => f.write_str(
                "session state that outlives its statement is not allowed in statement pooling mode",
            ),
            TooManyPins => f.write_str(
                "too many clients of the pool keep a server between transactions (pin_limit)",
            ),
            ListenerLost => f.write_str(
                "the connection that listens for clients is lost: notifications may have been missed",
            ),
            TooManyChannels => write!(
                f,
                "too many channels are listened to in this database: {} at most",
                crate::limits::CHANNELS
            ),
            TooManyOwnChannels => write!(
                f,
                "too many channels are listened to by this client: {} at most",
                crate::limits::CHANNELS_OF_CLIENT
            ),
            TooMuchHeard => f.write_str("too many notifications wait for this client"),
            OtherEncoding => f.write_str(
                "client_encoding has changed since LISTEN, and a notification is not in the new \
                 encoding",
            ),
            ChannelsUnclear => f.write_str(
                "pg_listening_channels() is not supported inside a transaction block while LISTEN is \
                 shared (listen)",
            ),
            LoginFailed(text) | TooManyClients(text) | Server(text) => f.write_str(text),
            TokenWanted => f.write_str(auth::oauthbearer::OAUTH_FAILED),
            PasswordAway => {
                f.write_str("logins of this user cannot be checked now: its password is not there")
            }
            NoSuchUser => f.write_str("no such user"),
            NotAllowed => f.write_str("not allowed"),
            ClientGone(text) | Told(text) => f.write_str(text),
            ClientClosed => f.write_str("client close request"),
            Cancelled => f.write_str("successful cancel request"),
            CancelUnknown => f.write_str("failed cancel request"),
            CancelNoPeer => f.write_str("could not find peer to forward request to"),
            CancelTtl => {
                f.write_str("failed to forward cancel request because its TTL was exhausted")
            }
            QueriesRefused => f.write_str("PQexec disallowed"),
            OtherProtocol(Foreign::Http) => {
                f.write_str("the client speaks HTTP, and this port is for PostgreSQL clients")
            }
            OtherProtocol(Foreign::Tls) => f.write_str(
                "the client begins with TLS, which is not enabled (client_tls_sslmode)",
            ),
            LoginTimeout | LoginTimeoutSilent => f.write_str("client_login_timeout"),
            LoginTimeoutServerDown => f.write_str("client_login_timeout (server down)"),
            ClientIdle => f.write_str("client_idle_timeout"),
            PinIdle => f.write_str("pin_idle_timeout"),
            IdleTransaction => f.write_str("idle transaction timeout"),
            TransactionTimeout => f.write_str("transaction timeout"),
            TokenEnded => f.write_str("the token of the login has ended"),
            QueryTimeout => f.write_str("query timeout"),
            QueryTimeoutWaiting => f.write_str("query_timeout"),
            QueryWait | QueryWaitServerDown => f.write_str("query_wait_timeout"),
            CancelWait => f.write_str("cancel_wait_timeout"),
            UserEnds => f.write_str("the user of this client's server ends"),
            LifetimeOver => f.write_str("client_lifetime"),
            ShuttingDown | Drained => f.write_str("pooler is shutting down"),
            ServerShuttingDown => f.write_str("server shutting down"),
            DatabaseRemoved => f.write_str("database removed"),
            DatabaseChanged => f.write_str("database configuration changed"),
            Suspended => f.write_str("suspend_timeout"),
            Forced => f.write_str("admin forced disconnect"),
            NoDatabase(name) => write!(f, "no such database: {name}"),
            DatabaseDisabled(name) => write!(f, "database \"{name}\" is disabled"),
            AuthDatabaseDisabled(name) => {
                write!(f, "authentication database \"{name}\" is disabled")
            }
            Internal => f.write_str("internal error of the pooler"),
            Config(_) => f.write_str("bouncer config error"),
            Shard(text) => f.write_str(text),
            ServerBytes(error) => write!(f, "unexpected bytes from server: {error}"),
            ServerLogin(_, text) => f.write_str(text),
            ServerLoginFailing(_, text) => write!(
                f,
                "server login has been failing, cached error: {text} (server_login_retry)"
            ),
            ServerGone => f.write_str("server conn crashed?"),
            ServerParameter(..) => f.write_str("invalid server parameter"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fault;
    use crate::auth::{
        BINDING_ATTRIBUTE, BINDING_DOWNGRADE, BINDING_UNKNOWN, BINDING_WRONG, MECHANISM_UNKNOWN,
        SASL_FAILED, SCRAM_MALFORMED,
    };

    #[test]
    fn failed_logins_have_postgresqls_sqlstates() {
        for (text, sqlstate) in [
            (SCRAM_MALFORMED, "08P01"),
            (MECHANISM_UNKNOWN, "08P01"),
            (BINDING_UNKNOWN, "08P01"),
            (BINDING_ATTRIBUTE, "08P01"),
            (BINDING_DOWNGRADE, "28000"),
            (BINDING_WRONG, "28000"),
            (SASL_FAILED, "28P01"),
        ] {
            assert_eq!(Fault::LoginFailed(text).sqlstate(), sqlstate, "{text}");
        }
    }
}
