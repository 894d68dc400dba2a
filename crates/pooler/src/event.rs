//! The closed vocabulary between decisions and effects: what can happen to a worker ([`Event`]), and what
//! the worker can ask for ([`Action`]).

use crate::limits;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::auth::Secret;
use crate::config::{Authority, Config, Host};
use crate::console::holdings::Holdings;
use crate::load::Load;
use crate::mail::{Mail, ToBroker};
use crate::note::Note;
use crate::parcel::{Estate, Parcel};
use crate::stats::Stats;
use crate::tls::{TlsFacts, TlsStart};

pub use crate::config::Address;
pub use crate::hosts::{KnownHost, KnownNames, KnownZone};
pub use crate::ids::{ClientId, Peer, ServerId, Time, WorkerId};
pub use crate::order::{Order, Shutdown};
pub use crate::place::{Ends, UnixPeer};
pub use crate::socket::LooseSocket;

/// What can happen to a worker. An event is handled, and its actions are carried out, before the
/// next event.
#[derive(Debug)]
pub enum Event<'a> {
    /// A listener accepted a connection. The answer is [`Action::Adopt`], or nothing: then the
    /// socket is closed.
    Accepted(Ends),
    /// The [`Action::Connect`] of this server ended. After an error the server counts as closed;
    /// `Closed` still follows.
    Connected(ServerId, Result<Ends, String>),
    /// Bytes arrived, in stream order. Bytes that were under way may still arrive after
    /// `Action::Receive{on: false}`.
    Received(Peer, &'a [u8]),
    /// The [`Action::StartTls`] of this peer ended: the facts of the session, or the reason why
    /// there is none. After a failure nothing more is received, and the answer is
    /// [`Action::Close`].
    TlsDone(Peer, Result<Box<TlsFacts>, String>),
    /// The peer ended its stream (`None`) or the socket failed (the system's text). No `Received`
    /// follows. The answer is [`Action::Close`], now or later.
    Lost(Peer, Option<String>),
    /// More bytes than the high-water mark wait to be sent to this peer. Reported once, until
    /// `Drained`.
    Congested(Peer),
    /// The answer to [`Action::TellFlushed`]: the kernel has taken all that was queued.
    Flushed(Peer),
    /// After `Congested`: fewer bytes than the low-water mark wait.
    Drained(Peer),
    /// The socket is closed, in the kernel too. This is the last event of this peer: its slot may
    /// be reused. For a server `gone` says whether PostgreSQL was seen to close the connection (end
    /// of file or reset), or only the time limit passed.
    Closed {
        /// Who.
        peer: Peer,
        /// End of file or an error was seen from the other side.
        gone: bool,
    },
    /// The answer to [`Action::Detach`]: nothing is armed, queued or under way any more.
    Detached(Peer, LooseSocket),
    /// Mail from another worker, or from this worker itself.
    Mail(Mail),
    /// From the control thread, to an [`Action::Ask`].
    Answer(Answer),
    /// New settings, after a reload that succeeded.
    Settings(Arc<Config>),
    /// From the administrator, by signal.
    Order(Order),
    /// `next_deadline()` has passed.
    Tick,
}

/// What a worker can ask for.
#[derive(Debug)]
pub enum Action {
    /// The connection just accepted becomes this client; receive from it.
    Adopt(ClientId),
    /// Append `Out::bytes[range]` to the peer's send queue.
    Send(Peer, Range<usize>),
    /// Append this range of the current [`Event::Received`]'s bytes to the peer's send queue.
    Relay(Peer, Range<usize>),
    /// Start or stop receiving from a peer.
    Receive {
        /// Who.
        peer: Peer,
        /// Start, or stop.
        on: bool,
    },
    /// Report `Flushed` as soon as nothing is queued for this peer.
    TellFlushed(Peer),
    /// Report `Lost` if this peer has hung up; nothing is received from the peer at the moment.
    LookForEnd(Peer),
    /// Open a connection; `Connected` answers. Receiving is on from then.
    Connect(ServerId, Address),
    /// From here on, all bytes to and from this peer go through TLS; `TlsDone` or `Lost` answers.
    /// Until then nothing is sent to the peer.
    StartTls(Peer, Box<TlsStart>),
    /// End a connection; `Closed` answers. `how` says whether queued bytes are sent first or
    /// dropped.
    Close {
        /// Who.
        peer: Peer,
        /// How.
        how: Close,
    },
    /// Take the peer's socket out of the driver: stop receiving, deliver the bytes that came, send
    /// the queued bytes; `Detached` answers.
    Detach(Peer),
    /// Make a loose socket this peer, and receive from it.
    Attach(Peer, LooseSocket),
    /// Close a socket that came with a mail whose purpose is gone.
    Discard(LooseSocket),
    /// Send mail to a worker (this one included). Mail never blocks, is never dropped, and keeps
    /// the order of each sender.
    Post(WorkerId, Mail),
    /// Tell or ask the Broker. The Broker handles this at once; its answers are mail.
    Broker(ToBroker),
    /// Give the control thread work that may block. Exactly one `Answer` follows, unless the
    /// question says otherwise.
    Ask(Question),
    /// Log.
    Note(Note),
    /// Report a query to the log of slow queries, or to a trace.
    Tell(Box<crate::queries::Seen>),
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Send what is queued (within a few seconds), then close.
    Flush,
    /// Send what is queued, shut down our side, await the peer's end of file (within a few
    /// seconds), then close. PostgreSQL has then ended the session.
    Await,
    /// Send what is queued (within a few seconds), then close at once. The peer has said goodbye,
    /// so none of its bytes is left unread.
    Part,
    /// Drop what is queued and close at once.
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
        /// For a login to a server: its host, which says how much work that is.
        host: Option<Box<str>>,
        /// Whether anybody still waits for it.
        wanted: Weak<()>,
    },
    /// Look up the name of a system user by number. A directory server may have to be asked.
    NameUser {
        /// Comes back with the answer.
        ticket: u64,
        /// The user id.
        uid: u32,
    },
    /// Ask an authority whether a user's password is right. This may take long, and must not delay
    /// others.
    CheckPassword {
        /// Comes back with the answer.
        ticket: u64,
        /// The directory or PAM service that knows the password.
        authority: Arc<Authority>,
        /// The user.
        user: Arc<str>,
        /// The password that the client sent: never empty, never a hash. It is dropped with the
        /// client; then the answer is no longer wanted.
        password: Weak<Secret>,
        /// The client's address.
        remote: Address,
    },
    /// List what is known of host names, for SHOW DNS_HOSTS and SHOW DNS_ZONES.
    Names {
        /// Comes back with the answer.
        ticket: u64,
    },
    /// Read the configuration again; every worker gets `Settings` if it has no mistake.
    Reload {
        /// Comes back with the answer.
        ticket: u64,
    },
    /// SET on the console: change one setting, by [`Config::with`]. Every worker gets `Settings` if
    /// the value is valid; the answer is [`Answer::Set`].
    Set {
        /// Comes back with the answer.
        ticket: u64,
        /// The setting.
        key: String,
        /// Its new value, as written.
        value: String,
    },
    /// Send a cancel request to a peer, on a connection of its own: [`Answer::Forwarding`] says
    /// that the peer has been reached, [`Answer::Forwarded`] how the request ended.
    Forward {
        /// Comes back with the answers.
        ticket: u64,
        /// Where the peer may be, tried in turn.
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
    /// This worker has nothing left to wait for, after an order to shut down. When all have said
    /// so, the process ends. No answer.
    Idle(WorkerId, Shutdown),
    /// A worker's load since its last report. No answer, except mail from the balancer.
    Load(Box<Load>),
    /// This worker has something to wait for again: a client came from another worker. No answer.
    Busy(WorkerId),
    /// Switch accepting on or off, on all listeners. No answer.
    Accept(bool),
    /// Hand everything over on this socket: the successor's, which was a console until now.
    /// [`Order::Pack`] answers, later [`Order::Drain`] or [`Order::GiveUp`].
    HandOver(LooseSocket),
    /// A connection for the successor. No answer.
    Packed(Box<Parcel>),
    /// This worker has packed all of its connections; this is the rest of its state. No answer.
    AllPacked(Box<Estate>),
    /// A worker's answer to [`crate::console::Survey::for_metrics`]. No answer.
    Surveyed {
        /// The number of the survey.
        serial: u64,
        /// What the worker has.
        holdings: Box<Holdings>,
    },
    /// End the process with this exit code, now.
    Exit(i32),
    /// Close the listening sockets; the unix sockets may stay open for the console.
    StopListening {
        /// Keep unix sockets open.
        keep_unix: bool,
    },
}

/// The control thread's answer to a [`Question`].
#[derive(Debug)]
pub enum Answer {
    /// To [`Question::Resolve`]: at least one address, or the reason why there is none.
    Resolved(u64, Result<Vec<IpAddr>, String>),
    /// Answers no question: a look-up shows that a host name no longer leads to these addresses.
    Moved {
        /// The name.
        host: String,
        /// The addresses that it no longer leads to.
        gone: Vec<IpAddr>,
    },
    /// To [`Question::Names`].
    Names(u64, Box<KnownNames>),
    /// To [`Question::Derive`]: nobody waits for it any more.
    Dropped(u64),
    /// To [`Question::Derive`]: the salted password.
    Derived(u64, [u8; 32]),
    /// To [`Question::NameUser`]: the name, or why there is none.
    UserNamed(u64, Result<String, String>),
    /// To [`Question::CheckPassword`]: the password is right, or the reason for the log why it is
    /// not.
    PasswordChecked(u64, Result<(), String>),
    /// To [`Question::Forward`]: the peer has the request. `Forwarded` follows.
    Forwarding(u64),
    /// To [`Question::Forward`]: the peer has closed the connection, or the reason why the peer did
    /// not get the request.
    Forwarded(u64, Result<(), String>),
    /// To [`Question::Set`]: done, perhaps with a notice for the administrator; or what is wrong
    /// with the value.
    Set(u64, Result<Option<String>, String>),
    /// To [`Question::Reload`]: done, or what is wrong, one mistake a line.
    Reloaded(u64, Result<(), String>),
}

/// The actions of one event, in the order in which a `Pooler` wants them done. Reused from event to
/// event.
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

    /// Relays a range of the current event's bytes; adjacent ranges become one.
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

    /// Anything else.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Logs.
    pub fn note(&mut self, note: Note) {
        self.actions.push(Action::Note(note));
    }

    /// Removes everything. Memory is kept for reuse, unless it is much.
    pub fn clear(&mut self) {
        self.actions.clear();
        match self.bytes.len() > limits::OUTPUT_KEPT {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
    }
}
