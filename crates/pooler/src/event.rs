//! The closed vocabulary between decisions and effects: [`Event`]s happen to a worker, and the
//! worker asks for [`Action`]s.

use crate::limits;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::auth::Secret;
use crate::config::{Authority, Config, Host, SecretSource};
use crate::console::holdings::Holdings;
use crate::load::Load;
use crate::mail::{Mail, ToBroker};
use crate::note::Note;
use crate::parcel::{Estate, Parcel};
use crate::roster::fact::HostFact;
use crate::stats::Stats;
use crate::tls::{TlsFacts, TlsStart};

pub use crate::config::Address;
pub use crate::hosts::{KnownHost, KnownNames, KnownZone};
pub use crate::ids::{ClientId, Peer, ServerId, Time, WorkerId};
pub use crate::order::{Order, Shutdown};
pub use crate::place::{Ends, UnixPeer, Unreached};
pub use crate::socket::LooseSocket;

/// What can happen to a worker. An event is handled, and its actions are carried out, before the
/// next event.
#[derive(Debug)]
pub enum Event<'a> {
    /// A listener accepted a connection. Without [`Action::Adopt`] as the answer, the socket is
    /// closed.
    Accepted(Ends),
    /// The [`Action::Connect`] of this server ended. After an error the server counts as closed;
    /// `Closed` still follows.
    Connected(ServerId, Result<Ends, Unreached>),
    /// Bytes arrived, in stream order. After `Action::Receive{on: false}`, a few more bytes may
    /// arrive.
    Received(Peer, &'a [u8]),
    /// The [`Action::StartTls`] of this peer ended: the facts of the session, or the reason of the
    /// failure. After a failure no bytes are received, and the answer is [`Action::Close`].
    TlsDone(Peer, Result<Box<TlsFacts>, String>),
    /// The peer ended its stream (`None`), or the socket failed (the system's text). No `Received`
    /// follows. The answer is [`Action::Close`], now or later.
    Lost(Peer, Option<String>),
    /// More bytes than the high-water mark wait to be sent to this peer. Reported once, until
    /// `Drained`.
    Congested(Peer),
    /// The answer to [`Action::TellFlushed`]: the kernel has taken all queued bytes.
    Flushed(Peer),
    /// After `Congested`: fewer bytes than the low-water mark wait.
    Drained(Peer),
    /// The kernel has closed the socket. This is the last event of this peer: its slot may be
    /// reused. For a server, `gone` says whether PostgreSQL closed the connection (end of file or
    /// reset) before the time limit.
    Closed {
        /// The connection.
        peer: Peer,
        /// The other side ended the connection or failed.
        gone: bool,
    },
    /// The answer to [`Action::Detach`]: the driver has no operation or bytes of this socket left.
    Detached(Peer, LooseSocket),
    /// Mail from another worker, or from this worker itself.
    Mail(Mail),
    /// The control thread's answer to an [`Action::Ask`].
    Answer(Answer),
    /// New settings after a successful reload.
    Settings(Arc<Config>),
    /// An order by the administrator, sent as a signal.
    Order(Order),
    /// `next_deadline()` has passed.
    Tick,
}

/// What a worker can ask for.
#[derive(Debug)]
pub enum Action {
    /// Makes the accepted connection this client, and receives from it.
    Adopt(ClientId),
    /// Appends `Out::bytes[range]` to the peer's send queue.
    Send(Peer, Range<usize>),
    /// Appends this range of the bytes of the current [`Event::Received`] to the peer's send queue.
    Relay(Peer, Range<usize>),
    /// Start or stop receiving from a peer.
    Receive {
        /// The peer.
        peer: Peer,
        /// True to start.
        on: bool,
    },
    /// Report `Flushed` as soon as nothing is queued for this peer.
    TellFlushed(Peer),
    /// Report `Lost` if this peer has hung up. Nothing is being received from it at the moment.
    LookForEnd(Peer),
    /// Open a connection. `Connected` answers, and receiving begins.
    Connect(ServerId, Address),
    /// Use TLS for all further bytes to and from this peer; `TlsDone` or `Lost` answers. Until then
    /// nothing is sent to the peer.
    StartTls(Peer, Box<TlsStart>),
    /// End a connection; `Closed` answers. `how` says whether queued bytes are sent first or
    /// dropped.
    Close {
        /// The peer.
        peer: Peer,
        /// How it ends.
        how: Close,
    },
    /// Take the peer's socket out of the driver: stop receiving, deliver the bytes received so far,
    /// send the queued bytes. `Detached` answers.
    Detach(Peer),
    /// Make a loose socket this peer, and receive from it.
    Attach(Peer, LooseSocket),
    /// Close a socket that came with mail and is not needed any more.
    Discard(LooseSocket),
    /// Send mail to a worker (this one included). Mail never blocks, is never dropped, and keeps
    /// the order of each sender.
    Post(WorkerId, Mail),
    /// Send mail to the Broker, which handles it at once and answers by mail.
    Broker(ToBroker),
    /// Give the control thread work that may block. Exactly one `Answer` follows, unless the
    /// question says otherwise.
    Ask(Question),
    /// Write to the log.
    Note(Note),
    /// Report a query to the log of slow queries, or to a trace.
    Tell(Box<crate::queries::Seen>),
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Send the queued bytes (within a few seconds), then close.
    Flush,
    /// Send the queued bytes, shut down our side, await the peer's end of file (within a few
    /// seconds), then close. At that point PostgreSQL has ended the session.
    Await,
    /// Send the queued bytes (within a few seconds), then close at once. The peer has said goodbye,
    /// so no bytes of the peer are left unread.
    Part,
    /// Drop the queued bytes and close at once.
    Abort,
}

/// Work for the control thread. The ticket comes back with the answer.
#[derive(Debug)]
pub enum Question {
    /// Resolve a host name.
    Resolve {
        /// Comes back with the answer.
        ticket: u64,
        /// The name.
        host: String,
    },
    /// Derive a SCRAM salted password (PBKDF2-HMAC-SHA-256, RFC 5802), which takes milliseconds.
    Derive {
        /// Comes back with the answer.
        ticket: u64,
        /// The password, prepared.
        password: Vec<u8>,
        /// The salt.
        salt: Vec<u8>,
        /// The iteration count.
        iterations: u32,
        /// For a login to a server: the host. It serves to estimate the work.
        host: Option<Box<str>>,
        /// Dead if nobody needs the answer any more.
        wanted: Weak<()>,
    },
    /// Look up the name of a system user by number. This may ask a directory server.
    NameUser {
        /// Comes back with the answer.
        ticket: u64,
        /// The user id.
        uid: u32,
    },
    /// Ask an authority whether a user's password is right. This may take long, and must not delay
    /// other questions.
    CheckPassword {
        /// Comes back with the answer.
        ticket: u64,
        /// The directory or PAM service that knows the password.
        authority: Arc<Authority>,
        /// The user.
        user: Arc<str>,
        /// The database that the client asks for.
        database: Arc<str>,
        /// The password or token that the client sent: never empty, never a hash. It is dropped with
        /// the client, and then nobody needs the answer.
        password: Weak<Secret>,
        /// The client's address.
        remote: Address,
    },
    /// PostgreSQL has refused a value of a source. The source is asked anew, if that value is still its
    /// last. No answer, but [`Event::Mail`] for all workers.
    SecretRefused {
        /// The source.
        source: SecretSource,
        /// Which of its values.
        generation: u64,
    },
    /// Clients have waited for long. The log should say why, at most once a minute for each pool.
    LongWaits,
    /// List all known host names, for SHOW DNS_HOSTS and SHOW DNS_ZONES.
    Names {
        /// Comes back with the answer.
        ticket: u64,
    },
    /// Read the configuration again. If it has no error, every worker gets `Settings`.
    Reload {
        /// Comes back with the answer.
        ticket: u64,
    },
    /// SET on the console: change one setting by [`Config::with`]. If the value is valid, every
    /// worker gets `Settings`. The answer is [`Answer::Set`].
    Set {
        /// Comes back with the answer.
        ticket: u64,
        /// The setting.
        key: String,
        /// Its new value, as written.
        value: String,
    },
    /// Send a cancel request to a peer, on its own connection. [`Answer::Forwarding`] says that the
    /// peer has received the request, [`Answer::Forwarded`] how the request ended.
    Forward {
        /// Comes back with the answers.
        ticket: u64,
        /// Possible hosts of the peer, tried in turn.
        hosts: Vec<Host>,
        /// Its port.
        port: u16,
        /// The CancelRequest.
        packet: Vec<u8>,
    },
    /// A `stats_period` is over: the control thread logs one line with the sums of all workers. No
    /// answer.
    LogStats {
        /// This worker's counts in the period.
        stats: Box<Stats>,
        /// The length of the period, in seconds.
        seconds: u64,
    },
    /// This worker has nothing left to wait for, after an order to shut down. When all workers have
    /// reported this, the process ends. No answer.
    Idle(WorkerId, Shutdown),
    /// A worker's load since its last report. No answer, except mail from the balancer.
    Load(Box<Load>),
    /// This worker has something to wait for again: a client came from another worker. No answer.
    Busy(WorkerId),
    /// Switch accepting on or off, on all listeners. No answer.
    Accept(bool),
    /// Hand everything over to the successor on this socket, which was a console so far.
    /// [`Order::Pack`] answers, later [`Order::Drain`] or [`Order::GiveUp`].
    HandOver(LooseSocket),
    /// A connection for the successor. No answer.
    Packed(Box<Parcel>),
    /// This worker has packed all of its connections. Here is the rest of its state. No answer.
    AllPacked(Box<Estate>),
    /// A worker's answer to [`crate::console::Survey::for_metrics`]. No answer.
    Surveyed {
        /// The number of the survey.
        serial: u64,
        /// The worker's data for the metrics.
        holdings: Box<Holdings>,
    },
    /// End the process with this exit code, now.
    Exit(i32),
    /// A worker has found out something about a host of a placed database. No answer, but mail from
    /// the roster.
    Host(Box<HostFact>),
    /// Begin to drain: refuse readiness, then end all clients, then the process. No answer.
    Drain,
    /// Close the listening sockets; the unix sockets may stay open for the console.
    StopListening {
        /// Keep unix sockets open.
        keep_unix: bool,
    },
}

/// The control thread's answer to a [`Question`].
#[derive(Debug)]
pub enum Answer {
    /// To [`Question::Resolve`]: at least one address, or the reason of the failure.
    Resolved(u64, Result<Vec<IpAddr>, String>),
    /// Answers no question: a host name does not lead to these addresses any more.
    Moved {
        /// The name.
        host: String,
        /// The addresses that the name does not lead to any more.
        gone: Vec<IpAddr>,
    },
    /// To [`Question::Names`].
    Names(u64, Box<KnownNames>),
    /// To [`Question::Derive`]: nobody needed the answer any more.
    Dropped(u64),
    /// To [`Question::Derive`]: the salted password.
    Derived(u64, [u8; 32]),
    /// To [`Question::NameUser`]: the name, or the reason of the failure.
    UserNamed(u64, Result<String, String>),
    /// To [`Question::CheckPassword`]: the password is right, or the reason of the failure for the
    /// log.
    PasswordChecked(u64, Result<Verified, String>),
    /// To [`Question::Forward`]: the peer has received the request. `Forwarded` follows.
    Forwarding(u64),
    /// To [`Question::Forward`]: the peer has closed the connection, or the reason why the peer did
    /// not receive the request.
    Forwarded(u64, Result<(), String>),
    /// To [`Question::Set`]: done, perhaps with a notice for the administrator; or the error in the
    /// value.
    Set(u64, Result<Option<String>, String>),
    /// To [`Question::Reload`]: done, or the errors, one a line.
    Reloaded(u64, Result<(), String>),
}

/// What an authority knows of a client whose password or token is right.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// For a token: whose it is.
    pub identity: Option<String>,
    /// For a token: the names that may be users.
    pub names: Vec<String>,
    /// For a token: how long it is good from now on, in nanoseconds.
    pub lasts: Option<u64>,
}

/// The actions of one event, in order. The value is reused for the next event.
#[derive(Debug, Default)]
pub struct Out {
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// The bytes that [`Action::Send`] refers to.
    pub bytes: Vec<u8>,
}

impl Out {
    /// Sends bytes that Howdah made.
    pub fn send(&mut self, to: Peer, bytes: &[u8]) {
        self.send_with(to, |buf| buf.extend_from_slice(bytes));
    }

    /// Sends what `write` appends.
    pub fn send_with(&mut self, to: Peer, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = self.bytes.len();
        if start == end {
            return;
        }
        if let Some(Action::Send(peer, range)) = self.actions.last_mut()
            && *peer == to
            && range.end == start
        {
            range.end = end;
            return;
        }
        self.actions.push(Action::Send(to, start..end));
    }

    /// Relays a range of the current event's bytes. Adjacent ranges become one action.
    #[inline]
    pub fn relay(&mut self, to: Peer, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        if let Some(Action::Relay(peer, last)) = self.actions.last_mut()
            && *peer == to
            && last.end == range.start
        {
            last.end = range.end;
            return;
        }
        self.actions.push(Action::Relay(to, range));
    }

    /// Appends an action.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Logs a note.
    pub fn note(&mut self, note: Note) {
        self.actions.push(Action::Note(note));
    }

    /// Removes everything. Small memory is kept for reuse.
    pub fn clear(&mut self) {
        self.actions.clear();
        if self.bytes.len() > limits::OUTPUT_KEPT {
            self.bytes = Vec::new()
        } else {
            self.bytes.clear()
        }
    }
}
