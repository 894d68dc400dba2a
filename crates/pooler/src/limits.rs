//! The limits of every queue and buffer that a stranger's bytes can fill, in one place. Two kinds are
//! elsewhere: limits that an administrator sets are settings, and limits of a connection's unsent bytes
//! are in the daemon (`sockets.rs`).

use howdah_wire::frame::HEADER;

/// How many bytes of a client or a server are held before reading from it stops.
pub const HELD: usize = 256 << 10;

/// The same for a client that waits for a server: there may be thousands.
pub const WAITING: usize = 64 << 10;

/// The longest front of a message that is held to be looked into (names of a Bind, the first words
/// of a Query), in bytes.
pub const FRONT: usize = 16 << 10;

/// The longest Query that is held to be read whole, in bytes; of a longer one each piece is read as
/// it passes.
pub const QUERY_READ: usize = 16 << 10;

/// The longest Query of several commands in which a command that resets settings is looked for, in
/// bytes. The Queries by which drivers clean a session are short.
pub const SEVERAL: usize = 512;

/// The longest of the messages that PostgreSQL expects to be short (`PQ_SMALL_MESSAGE_LIMIT`), in
/// bytes.
pub const SHORT: u32 = 10_000;

/// How many answers may be owed before a client's next message waits. (PostgreSQL itself would stop
/// reading, but not all of a client's messages reach PostgreSQL. And the meaning of a name is
/// looked up among the answers owed.)
pub const OWED: usize = 4096;

/// The longest Parse that is held to be remembered, in bytes. PostgreSQL's own limit is 1 GB.
pub const PARSE: u32 = 64 << 20;

/// The longest Parse of the unnamed statement that is held to be remembered, in bytes. A longer one is
/// passed on, and lasts as long as its transaction.
pub const PARSE_UNNAMED: u32 = 8 << 20;

/// The longest CommandComplete or the like that is held, in bytes.
pub const HELD_MESSAGE: usize = 1 << 20;

/// Of an ErrorResponse that is longer than this, in bytes, the front is looked into (severity and
/// SQLSTATE come first) and the rest only passes.
pub const ERROR_FRONT: usize = 64 << 10;

/// How many TLS handshakes of clients may be under way on a worker. Further clients wait, and are
/// not read from. Each takes some 30 KB.
pub const HANDSHAKES: usize = 1000;

/// While a client waits to begin a handshake: how long another one may leave its handshake
/// unanswered, in nanoseconds, before it is closed.
pub const HANDSHAKE_PATIENCE_NS: u64 = 5_000_000_000;

/// The longest password or SASL message accepted, in bytes (PgBouncer's limit on passwords and
/// some room).
pub const PASSWORD: u32 = 70_000;

/// The longest message of an exchange that sends no password (MD5, SCRAM), in bytes, its header
/// included.
pub const PROOF: usize = HEADER + 4096;

/// A message with a password, its header included.
pub const PASSWORD_PACKET: usize = HEADER + PASSWORD as usize;

/// The longest name of a database, in bytes: PgBouncer's limit.
pub const DATABASE_NAME: usize = 63;

/// The longest name of a user, in bytes: PgBouncer's limit.
pub const USER_NAME: usize = 127;

/// The longest message accepted from PostgreSQL before its login is done, in bytes.
pub const LOGIN_MESSAGE: usize = 1 << 20;

/// The most that parameters may take, in bytes; PostgreSQL's take less than one kilobyte.
pub const PARAMETERS: usize = 64 << 10;

/// The longest message accepted in answer, in bytes: passwords have up to 64 KB.
pub const LOOKUP_MESSAGE: usize = 1 << 20;

/// The longest message accepted from an administrator, in bytes, its header included.
pub const CONSOLE_MESSAGE: usize = HEADER + (64 << 10);

/// How many statements, and how many portals, an administrator may have at a time.
pub const CONSOLE_STATEMENTS: usize = 256;

/// How many connections of a worker may claim at a time to be an administrator's. They get in even
/// if everything is full, before they have proved it.
pub const CONSOLE_LOGINS: usize = 64;

/// How many users' secrets are remembered on a worker, at most.
pub const KNOWN_USERS: usize = 10_000;

/// How many requests may wait for one peer. Any client can send them, and a peer may hang.
pub const FORWARDS_WAITING: usize = 10_000;

/// How many bytes texts may take that no client or server has any more; or as many as the texts in
/// use take, if that is more.
pub const UNUSED_TEXTS: usize = 16 << 20;

/// How many bytes the texts may take that one client has named.
pub const CLIENT_TEXTS: usize = 64 << 20;

/// How many bytes all texts of a worker may take.
pub const WORKER_TEXTS: usize = 256 << 20;

/// How many bytes the texts of a server may take. Beyond that, the statements used longest ago are
/// closed when it next gets a client.
pub const SERVER_TEXTS: usize = 16 << 20;

/// So many databases without a pool are remembered at least.
pub const UNUSED_SCHEMAS: usize = 1024;

/// Less is not worth tidying, in bytes.
pub const TIDIED_TEXTS: usize = 1 << 20;

/// How many settings may be asked about at once; a session that changes more keeps its server.
pub const SETTINGS_ASKED: usize = 256;

/// How many a session may have that is moved between servers; one with more keeps its server.
pub const SETTINGS: usize = 256;

/// How many bytes their values may take in all; a session with more keeps its server.
pub const SETTINGS_WEIGHT: usize = 256 << 10;

/// How many settings of one text are kept by name. A text with more counts as one that may set any.
pub const MENTIONS: usize = 64;

/// How many channels a listening connection listens to, at most.
pub const CHANNELS: usize = 100_000;

/// How many channels one Query begins to listen to, at most. (PostgreSQL compares each with all that it
/// listens to already: 100,000 in one Query take it a minute.)
pub const CHANNELS_A_ROUND: usize = 1000;

/// How many of them one client may listen to, so that no client takes them all.
pub const CHANNELS_OF_CLIENT: usize = 10_000;

/// How many bytes of notifications may wait for a client, which is closed beyond that.
pub const HEARD: usize = 16 << 20;

/// How deep strings in the bodies of DO are looked into.
pub const DO_DEPTH: u32 = 4;

/// At most so many statements that a client with temporary tables has parsed stay on the server that it
/// keeps, before the oldest are closed.
pub const LASTING_STATEMENTS: usize = 500;

/// The largest buffer for the output of one event that is kept for reuse, in bytes.
pub const OUTPUT_KEPT: usize = 1 << 20;

/// The longest value of a setting that is moved between servers, in bytes; a longer one keeps its
/// server.
pub const SETTING_VALUE: usize = 64 << 10;

/// How much of each text is kept for `session_state_check`, in bytes.
pub const CHECKED_TEXT: usize = 200;

/// How many texts are kept for that: the last ones.
pub const CHECKED_TEXTS: usize = 4;

/// How many names of statements are kept for queries that are watched, where statements are not
/// shared.
pub const WATCHED_NAMES: usize = 256;

/// The longest name in SQL, in bytes: PostgreSQL cuts off what is longer.
pub const NAME: usize = 63;

/// How many channels of one text are kept by name.
pub const CHANNELS_TOLD: usize = 1000;

/// How many calls of `set_config` in one text are kept whose arguments come with the Bind.
pub const CALLS: usize = 16;

/// How much of a text is read for slow and top queries, in bytes: what a query costs is bounded.
pub const QUERY_TEXT_READ: usize = 4096;

/// How much is kept of what is read for that, in bytes.
pub const QUERY_TEXT_KEPT: usize = 1024;

/// At how many such texts the unused ones are forgotten.
pub const QUERY_TEXTS_UNUSED: usize = 1024;

/// How many names consoles remember before unused ones are forgotten.
pub const CONSOLE_NAMES: usize = 4096;

/// How many texts of queries a worker reports for metrics.
pub const QUERIES_TOLD: usize = 50;

/// The longest tag of a string in dollars, in bytes.
pub const DOLLAR_TAG: usize = 1 << 10;

/// How many bugs (panics) a worker survives; then the process ends. Somebody may know how to cause
/// them.
pub const MISTAKES: u64 = 100;

/// How long a line of the log gets, about, in bytes.
pub const LOG_LINE: usize = 2048;

/// The longest name of a command of the console, in bytes.
pub const CONSOLE_WORD: usize = 15;

/// The longest argument of one, in bytes.
pub const CONSOLE_ARGUMENT: usize = 63;

/// The longest value of the console's SET, in bytes.
pub const CONSOLE_VALUE: usize = 255;

/// How many waiting clients, and how many clients with a server, a worker reports of each pool for
/// metrics.
pub const WAITERS_TOLD: usize = 20;

/// In how many tokens of a call the third argument is looked for that makes a slot temporary.
pub const SLOT_TOKENS: usize = 64;
