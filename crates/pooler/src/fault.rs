//! Everything that can go wrong, sorted by whose fault it is, with the one table of SQLSTATE, text and log
//! level.

use std::fmt;

use howdah_wire::WireError;

use crate::auth;
use crate::ledger::Refusal;
use crate::note::Level;

/// A reason to end a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    // The client's fault.
    /// Its bytes are not messages.
    ClientBytes(WireError),
    /// Its start-up packet, or a message once it is logged in, has an invalid length. The client
    /// gets no message.
    ClientLength(WireError),
    /// Its protocol version is not 3.
    Protocol(u16, u16),
    /// It sent bytes behind an SSLRequest or GSSENCRequest before our answer.
    BytesBeforeAnswer(&'static str),
    /// It came in clear text, and `client_tls_sslmode` wants TLS.
    TlsRequired,
    /// Its TLS handshake failed: why.
    TlsHandshake(String),
    /// It sent messages before its login was done.
    TooEarly,
    /// Its start-up packet names no user.
    NoUser,
    /// A name is longer than PgBouncer's limits.
    NameTooLong(&'static str),
    /// A name is no text: settings, logs and files are in UTF-8.
    NameNotUtf8(&'static str),
    /// A start-up parameter is not supported.
    Parameter(String),
    /// The start-up parameter `options` has a form that is not supported.
    OptionsForm,
    /// A setting in the start-up parameter `options` is not supported.
    OptionsSetting(String),
    /// A value of the start-up parameter `replication` means nothing.
    ReplicationValue(String),
    /// It sent a Sync into its COPY, the COPY failed, and more messages came behind. Whether
    /// PostgreSQL skips them depends on whether it read the Sync before the COPY failed, which
    /// can't be seen.
    CopyUnclear,
    /// A transaction block in statement mode.
    TransactionBlock,
    /// Something in statement mode that would keep a server for its client.
    PinsInStatementMode,
    /// It keeps a server, and too many clients of its pool keep one (`pin_limit`).
    TooManyPins,
    /// It listens by Howdah's listening connection, and that connection is lost.
    ListenerLost,
    /// There are too many channels on the listening connection.
    TooManyChannels,
    /// It listens to too many channels itself.
    TooManyOwnChannels,
    /// More notifications wait for it than are kept.
    TooMuchHeard,
    /// A notification is not in its encoding, which it has changed since its LISTEN.
    OtherEncoding,
    /// An UNLISTEN in a place where Howdah can't see whether it is committed.
    UnlistenUnclear,
    /// A question for its channels in a place where its server can't be made to know them.
    ChannelsUnclear,
    /// The proof of identity failed: the text says how.
    LoginFailed(&'static str),
    /// auth_query found nobody of this name.
    NoSuchUser,
    /// It is neither in `admin_users` nor in `stats_users`.
    NotAllowed,
    /// Its connection ended; the text says how.
    ClientGone(String),
    /// It said goodbye.
    ClientClosed,
    /// It has already got its error.
    Told(String),
    /// Its cancel request was carried out, or there was nothing to do.
    Cancelled,
    /// Its cancel request has a key that no client has.
    CancelUnknown,
    /// Its cancel request is for a peer that `[peers]` does not name.
    CancelNoPeer,
    /// Its cancel request was forwarded as often as it may be.
    CancelTtl,
    /// It used the simple query protocol, and `disable_pqexec` is set.
    QueriesRefused,

    // A limit or a time the administrator set.
    /// A client limit is reached; the text names it.
    TooManyClients(&'static str),
    /// `client_login_timeout`.
    LoginTimeout,
    /// `client_login_timeout` while it waited for a server.
    LoginTimeoutServerDown,
    /// `client_idle_timeout`.
    ClientIdle,
    /// `pin_idle_timeout`.
    PinIdle,
    /// `idle_transaction_timeout`.
    IdleTransaction,
    /// `transaction_timeout`.
    TransactionTimeout,
    /// `query_timeout`.
    QueryTimeout,
    /// `query_timeout` while it waited for a server.
    QueryTimeoutWaiting,
    /// `query_wait_timeout`.
    QueryWait,
    /// `cancel_wait_timeout`.
    CancelWait,
    /// The process ends.
    ShuttingDown,
    /// SHUTDOWN WAIT_FOR_SERVERS, for a client without a server.
    ServerShuttingDown,
    /// KILL, or the database left the configuration.
    DatabaseRemoved,
    /// The server's settings changed while a session used it.
    DatabaseChanged,
    /// The administrator asked for it.
    Forced,

    // Our own fault.
    /// Something that can't be.
    Mistake,

    // The configuration's fault.
    /// No such database.
    NoDatabase(String),
    /// The database takes no clients.
    DatabaseDisabled(String),
    /// The configuration does not allow this login; the log says why.
    Config(String),
    /// The database in which auth_query runs takes no clients.
    AuthDatabaseDisabled(String),

    // The server's fault, or the network's.
    /// Its bytes are not messages, or not those that were due.
    ServerBytes(WireError),
    /// PostgreSQL refused our login: its SQLSTATE and text.
    ServerLogin(String, String),
    /// Logins fail for some time: the last error's SQLSTATE and text.
    ServerLoginFailing(String, String),
    /// The connection broke.
    ServerGone,
    /// PostgreSQL refused the value of a client's parameter: its SQLSTATE and text.
    ServerParameter(String, String),
    /// A reason only the log needs.
    Server(&'static str),
}

impl Fault {
    /// The SQLSTATE a client sees: what PostgreSQL says in the same condition, where a client can
    /// take it for that. The pooler's own limits on queries and transactions say what PgBouncer
    /// says: with `57014`, `25P03` or `25P04` drivers report that PostgreSQL ended a statement or a
    /// transaction, not that a connection is gone.
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
                | auth::REJECTED
                | auth::NO_RULE
                | auth::BINDING_DOWNGRADE
                | auth::BINDING_WRONG,
            )
            | NotAllowed => "28000",
            LoginFailed(
                auth::SCRAM_MALFORMED
                | auth::MECHANISM_UNKNOWN
                | auth::BINDING_UNKNOWN
                | auth::BINDING_ATTRIBUTE,
            ) => "08P01",
            LoginFailed(_) => "28P01",
            NoUser | TlsRequired => "28000",
            NoDatabase(_) => "3D000",
            TooManyClients(_) => "53300",
            TooManyPins => "53000",
            TooManyChannels | TooManyOwnChannels | TooMuchHeard => "54000",
            OtherEncoding | NameNotUtf8(_) => "22021",
            Parameter(_) | OptionsForm | OptionsSetting(_) | ReplicationValue(_) => "08P01",
            ClientIdle | PinIdle => "57P05",
            NoSuchUser => "28000",
            ListenerLost => "57P01",
            ShuttingDown | ServerShuttingDown | Forced | DatabaseRemoved => "57P01",
            ServerLogin(sqlstate, _)
            | ServerLoginFailing(sqlstate, _)
            | ServerParameter(sqlstate, _) => sqlstate,
            ServerGone => "08006",
            Mistake => "XX000",
            Protocol(..) | QueriesRefused | PinsInStatementMode | UnlistenUnclear
            | ChannelsUnclear => "0A000",
            _ => "08P01",
        }
    }

    /// The text for the client, if it differs from the text for the log.
    pub fn told(&self) -> String {
        match self {
            Fault::ServerParameter(_, text) => text.clone(),
            // What PostgreSQL itself said to a login is repeated; class 08 is our own.
            Fault::ServerLoginFailing(sqlstate, text) if !sqlstate.starts_with("08") => {
                text.clone()
            }
            fault => fault.to_string(),
        }
    }

    /// How much the log cares.
    pub fn level(&self) -> Level {
        use Fault::*;
        match self {
            Config(_) | ServerBytes(_) | Mistake => Level::Error,
            ServerParameter(..) => Level::Warning,
            _ => Level::Log,
        }
    }

    /// True if the client gets a message. False if it has left itself, or if PostgreSQL would send
    /// no message.
    pub fn is_told(&self) -> bool {
        !matches!(
            self,
            Fault::ClientGone(_)
                | Fault::ClientLength(_)
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
            CopyUnclear => f.write_str(
                "the COPY failed while messages that are no part of it were on their way: \
                 it cannot be told which of them are answered",
            ),
            TransactionBlock => {
                f.write_str("transaction blocks not allowed in statement pooling mode")
            }
            PinsInStatementMode => f.write_str(
                "what outlives its statement and belongs to one session is not allowed in \
                 statement pooling mode",
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
                "a notification is not in the encoding that client_encoding was changed to since \
                 LISTEN",
            ),
            UnlistenUnclear => f.write_str(
                "UNLISTEN is not supported here while LISTEN is shared (listen): send it as a Query, \
                 alone or outside of a transaction block",
            ),
            ChannelsUnclear => f.write_str(
                "pg_listening_channels() is not supported inside a transaction block while LISTEN is \
                 shared (listen)",
            ),
            LoginFailed(text) | TooManyClients(text) | Server(text) => f.write_str(text),
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
            LoginTimeout => f.write_str("client_login_timeout"),
            LoginTimeoutServerDown => f.write_str("client_login_timeout (server down)"),
            ClientIdle => f.write_str("client_idle_timeout"),
            PinIdle => f.write_str("pin_idle_timeout"),
            IdleTransaction => f.write_str("idle transaction timeout"),
            TransactionTimeout => f.write_str("transaction timeout"),
            QueryTimeout => f.write_str("query timeout"),
            QueryTimeoutWaiting => f.write_str("query_timeout"),
            QueryWait => f.write_str("query_wait_timeout"),
            CancelWait => f.write_str("cancel_wait_timeout"),
            ShuttingDown => f.write_str("pooler is shutting down"),
            ServerShuttingDown => f.write_str("server shutting down"),
            DatabaseRemoved => f.write_str("database removed"),
            DatabaseChanged => f.write_str("database configuration changed"),
            Forced => f.write_str("admin forced disconnect"),
            NoDatabase(name) => write!(f, "no such database: {name}"),
            DatabaseDisabled(name) => write!(f, "database \"{name}\" is disabled"),
            AuthDatabaseDisabled(name) => {
                write!(f, "authentication database \"{name}\" is disabled")
            }
            Mistake => f.write_str("internal error of the pooler"),
            Config(_) => f.write_str("bouncer config error"),
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

/// Fields of an error that stands in the place of one that came.
pub type Words = &'static [(u8, &'static [u8])];

/// What PostgreSQL says in a transaction that has failed.
pub const ABORTED: Words = &[
    (b'C', b"25P02"),
    (
        b'M',
        b"current transaction is aborted, commands ignored until end of transaction \
                      block",
    ),
];

impl Refusal {
    /// What its client is told.
    pub fn words(self) -> Words {
        match self {
            // PostgreSQL's own words where the statement is the one that was described: drivers know then
            // that they must describe it anew.
            Refusal::Changed => &[
                (b'C', b"0A000"),
                (b'M', b"cached plan must not change result type"),
                (b'F', b"plancache.c"),
                (b'R', b"RevalidateCachedQuery"),
            ],
            // Drivers know by the code and the routine that they must parse it anew.
            Refusal::Settings => &[
                (b'C', b"0A000"),
                (
                    b'M',
                    b"prepared statement has constants that were read under other settings, \
                      and this server does not have it",
                ),
                (b'H', b"Prepare it again after SET."),
                (b'F', b"plancache.c"),
                (b'R', b"RevalidateCachedQuery"),
            ],
            Refusal::Pins => &[
                (b'C', b"53000"),
                (
                    b'M',
                    b"too many clients of the pool keep a server between transactions (pin_limit)",
                ),
                (
                    b'D',
                    b"Temporary tables, advisory locks, LISTEN and the like keep a server for \
                      their client.",
                ),
                (
                    b'H',
                    b"Try again outside of a transaction, where the statement waits, or raise \
                      pin_limit. SHOW CLIENTS says who keeps servers, and why.",
                ),
            ],
            Refusal::TooLong => &[
                (b'C', b"54000"),
                (
                    b'M',
                    b"statement is too long to be prepared by name through the pooler",
                ),
                (b'H', b"Parse it without a name, or use session pooling."),
            ],
            Refusal::TooMuch => &[
                (b'C', b"54000"),
                (
                    b'M',
                    b"prepared statements take more memory than the pooler has for them",
                ),
                (b'H', b"Close some, or parse without a name."),
            ],
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
