//! The limits of every queue and buffer that a stranger's bytes can fill, in one place. Two kinds
//! are elsewhere: an administrator's limits are settings, and limits of unsent bytes are in the
//! daemon (`sockets.rs`). Those of what is read of a text are in `howdah_sql`.

use howdah_wire::frame::HEADER;

pub use howdah_sql::limits::*;

/// How many bytes of a client or a server are held before Howdah stops reading from it.
pub const HELD: usize = 256 << 10;

/// The same for a client that waits for a server: thousands may wait.
pub const WAITING: usize = 64 << 10;

/// The longest beginning of a message that is held and parsed (names of a Bind, the first words of
/// a Query), in bytes.
pub const FRONT: usize = 16 << 10;

/// The longest group that is held until its Sync, to see whether all of it reads, in bytes.
pub const READ_GROUP: usize = 16 << 10;

/// How much of an answer is held back before its first row, to run the read again if need be, in
/// bytes.
pub const GUARDED: usize = 64 << 10;

/// How many texts of a login stay with the primary, because standbys have refused them.
pub const TEXTS_AT_PRIMARY: usize = 1000;

/// The longest Query that is held and read as a whole, in bytes. In a longer one, Howdah only looks
/// for words that may act, as it passes.
pub const QUERY_READ: usize = 1 << 20;

/// How many texts a worker remembers that were refused, of each sharded database.
pub const REFUSED_TEXTS: usize = 500;

/// How many statements of a transaction may run on a guess of its shard.
pub const GUESSED: usize = 64;

/// How long the texts of these statements may be together, in bytes.
pub const GUESSED_TEXT: usize = 64 << 10;

/// How many messages of a group are read to find the shard of a sharded database.
pub const SHARDED_GROUP: usize = 256;

/// How many bytes of a group are read for that, in whole messages.
pub const SHARDED_GROUP_BYTES: usize = 1 << 20;

/// The longest statement of a sharded database, with the messages before it, that is held and read as
/// a whole, in bytes.
pub const SHARDED: usize = 8 << 20;

/// The longest name of a statement or portal that is accepted, in bytes. PostgreSQL tells names
/// apart by their first 63 bytes.
pub const STATEMENT_NAME: usize = 4096;

/// The longest message in which Howdah looks for a call of `pg_cancel_backend`, in bytes.
pub const SIGNAL: u32 = 1024;

/// The longest message of the kinds that PostgreSQL expects to be short (`PQ_SMALL_MESSAGE_LIMIT`),
/// in bytes.
pub const SHORT: u32 = 10_000;

/// How many answers may be owed before a client's next message waits. (PostgreSQL itself would stop
/// reading, but not all of a client's messages reach PostgreSQL. And Howdah searches the owed
/// answers for the meaning of a name.)
pub const OWED: usize = 4096;

/// The longest Parse that is held and remembered, in bytes. PostgreSQL's own limit is 1 GB.
pub const PARSE: u32 = 64 << 20;

/// The longest Parse of the unnamed statement that is held and remembered, in bytes. A longer one
/// is relayed, and its statement lasts as long as the transaction.
pub const PARSE_UNNAMED: u32 = 8 << 20;

/// The longest CommandComplete or similar message that is held, in bytes.
pub const HELD_MESSAGE: usize = 1 << 20;

/// How much of an ErrorResponse is parsed at most, in bytes (severity and SQLSTATE come first). The
/// rest is only relayed.
pub const ERROR_FRONT: usize = 64 << 10;

/// How many TLS handshakes of clients may run at once on a worker. Each takes some 30 KB. Further
/// clients wait, and are not read from.
pub const HANDSHAKES: usize = 1000;

/// While a client waits for its handshake, how long another client's handshake may take before it
/// is closed, in nanoseconds.
pub const HANDSHAKE_PATIENCE_NS: u64 = 2_000_000_000;

/// The longest password or SASL message accepted, in bytes (PgBouncer's limit on passwords and
/// some room).
pub const PASSWORD: u32 = 70_000;

/// The longest message of an authentication exchange without a clear-text password (MD5, SCRAM), in
/// bytes, header included.
pub const PROOF: usize = HEADER + 4096;

/// A message with a password, its header included.
pub const PASSWORD_PACKET: usize = HEADER + PASSWORD as usize;

/// The longest name of a database, in bytes: PgBouncer's limit.
pub const DATABASE_NAME: usize = 63;

/// The longest name of a user, in bytes: PgBouncer's limit.
pub const USER_NAME: usize = 127;

/// The longest message accepted from PostgreSQL before the login is complete, in bytes.
pub const LOGIN_MESSAGE: usize = 1 << 20;

/// The most bytes that all parameters may take. PostgreSQL's own take less than one kilobyte.
pub const PARAMETERS: usize = 64 << 10;

/// The longest message in an answer to auth_query, in bytes. Passwords have up to 64 KB.
pub const LOOKUP_MESSAGE: usize = 1 << 20;

/// The longest message accepted from an administrator, in bytes, its header included.
pub const CONSOLE_MESSAGE: usize = HEADER + (64 << 10);

/// How many statements, and how many portals, an administrator's console may have at a time.
pub const CONSOLE_STATEMENTS: usize = 256;

/// How many connections of a worker may claim to be an administrator's before they have proved it.
/// Such connections are admitted even if everything is full.
pub const CONSOLE_LOGINS: usize = 64;

/// How many users' secrets are remembered on a worker, at most.
pub const KNOWN_USERS: usize = 10_000;

/// How many places a worker remembers that have sent wrong cancel keys.
pub const GUESSERS: usize = 10_000;

/// How many cancel requests of such places a worker holds until their turn.
pub const GUESSES_HELD: usize = 1000;

/// How many cancel requests may wait for one peer. Any client can send them, and a peer may hang.
pub const FORWARDS_WAITING: usize = 10_000;

/// How many bytes unused texts may take (texts that no client or server has); or as many as the
/// texts in use, if that is more.
pub const UNUSED_TEXTS: usize = 16 << 20;

/// The longest answer to a Describe that is remembered, in bytes.
pub const DESCRIPTION: usize = 4096;

/// The most messages of a group that Howdah answers without a server.
pub const KNOWN_GROUP: usize = 100;

/// For how many statements of a login a worker remembers which server has them.
pub const KEEPERS: usize = 2000;

/// How many statements Howdah describes without a server for one piece of a client's messages. The
/// answers may be far longer than the messages.
pub const KNOWN_DESCRIBES: u32 = 16;

/// The longest text, with its parameter types, that servers keep for clients who do not name it, in
/// bytes. Plans of huge texts take much memory in PostgreSQL.
pub const KEPT_UNNAMED: usize = 8192;

/// How many bytes the texts of one client's named statements may take.
pub const CLIENT_TEXTS: usize = 64 << 20;

/// How many names of statements a client may have.
pub const CLIENT_NAMES: usize = 10_000;

/// How many bytes clients may make a worker keep: texts and names of statements, and long messages
/// that are held whole. A pool may take half of what the other pools leave.
pub const ACCOUNT: usize = 256 << 20;

/// How many of these bytes a pool may take in any case, whatever the other pools take.
pub const POOL_BYTES: usize = 256 << 10;

/// How many bytes the texts of a server may take. If they take more, the least recently used
/// statements are closed when the server next gets a client.
pub const SERVER_TEXTS: usize = 16 << 20;

/// How many databases without a pool are remembered at least.
pub const UNUSED_SCHEMAS: usize = 1024;

/// The least size of all texts that is worth tidying, in bytes.
pub const TIDIED_TEXTS: usize = 1 << 20;

/// How many settings are asked about at once. A session that changes more keeps its server.
pub const SETTINGS_ASKED: usize = 256;

/// How many settings a session may carry to other servers. One with more keeps its server.
pub const SETTINGS: usize = 256;

/// How many bytes these settings' values may take. A session with more keeps its server.
pub const SETTINGS_WEIGHT: usize = 256 << 10;

/// How many channels a listening connection listens to, at most.
pub const CHANNELS: usize = 100_000;

/// How many channels one Query begins to listen to, at most. (PostgreSQL compares each channel with
/// all earlier ones: 100,000 in one Query take it a minute.)
pub const CHANNELS_A_ROUND: usize = 1000;

/// How many channels one client may listen to, so that no client uses up all of them.
pub const CHANNELS_OF_CLIENT: usize = 10_000;

/// How many bytes of notifications may wait for a client. A client with more is closed.
pub const HEARD: usize = 16 << 20;

/// How many parsed statements a client with temporary tables may have on its server before the
/// oldest are closed.
pub const LASTING_STATEMENTS: usize = 500;

/// The largest buffer for the output of one event that is kept for reuse, in bytes.
pub const OUTPUT_KEPT: usize = 1 << 20;

/// The longest value of a setting that a session carries to other servers, in bytes. A session with
/// a longer one keeps its server.
pub const SETTING_VALUE: usize = 64 << 10;

/// How many names of statements are kept to report watched queries, if statements are not shared.
pub const WATCHED_NAMES: usize = 256;

/// How many bytes of a text are parsed for slow and top queries, to bound the cost of a query.
pub const QUERY_TEXT_READ: usize = 4096;

/// How many of these bytes are kept.
pub const QUERY_TEXT_KEPT: usize = 1024;

/// At how many of these texts the unused ones are forgotten.
pub const QUERY_TEXTS_UNUSED: usize = 1024;

/// At how many names of users and databases a worker forgets the unused ones.
pub const NAMES: usize = 4096;

/// How many texts of queries a worker reports for metrics.
pub const QUERIES_TOLD: usize = 50;

/// How many bugs (panics) a worker survives before the process ends: an attacker may know how to
/// cause them.
pub const INTERNAL_ERRORS: u64 = 100;

/// The approximate limit of a log line, in bytes.
pub const LOG_LINE: usize = 2048;

/// How much is kept of why a host is down, or of what its checks can't find, in characters.
pub const HOST_WHY: usize = 200;

/// The longest name of a console command, in bytes.
pub const CONSOLE_WORD: usize = 15;

/// The longest argument of a console command, in bytes.
pub const CONSOLE_ARGUMENT: usize = 63;

/// The longest value of the console's SET, in bytes.
pub const CONSOLE_VALUE: usize = 255;

/// How many waiting clients, and how many clients with a server, a worker reports of each pool for
/// metrics.
pub const WAITERS_TOLD: usize = 20;
