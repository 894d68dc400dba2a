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

/// What can happen to a worker. Each is handled, and its actions are carried out, before the next.
#[derive(Debug)]
pub enum Event<'a> {
    /// A listener accepted a connection. The answer is [`Action::Adopt`], or nothing: then the
    /// socket is closed.
    Accepted(Ends),
    /// The [`Action::Connect`] of this server ended. After an error the server is as good as
    /// closed; `Closed` follows all the same.
    Connected(ServerId, Result<Ends, String>),
    /// Bytes arrived, in stream order. May come after `Action::Receive{on: false}`, up to what was
    /// under way.
    Received(Peer, &'a [u8]),
    /// The [`Action::StartTls`] of this peer ended: what is known of the session, or why there is none.
    /// Then nothing more is received, and the answer is [`Action::Close`].
    TlsDone(Peer, Result<Box<TlsFacts>, String>),
    /// The peer ended its stream (`None`) or the socket failed (the system's text). No `Received`
    /// follows. The answer is [`Action::Close`], now or later.
    Lost(Peer, Option<String>),
    /// More than the high-water mark of bytes wait to be sent to this peer. Said once, until
    /// `Drained`.
    Congested(Peer),
    /// The answer to [`Action::TellFlushed`]: the kernel has taken all that was queued.
    Flushed(Peer),
    /// Fewer than the low-water mark wait, after `Congested`.
    Drained(Peer),
    /// The socket is gone, for the kernel too: the last event of this peer; its slot may be used
    /// again. For a server `gone` tells whether PostgreSQL was seen to let go (end of file or
    /// reset), or only the time limit passed.
    Closed {
        /// Who.
        peer: Peer,
        /// End of file or an error was seen from the other side.
        gone: bool,
    },
    /// The answer to [`Action::Detach`]: nothing is armed, queued or under way any more.
    Detached(Peer, LooseSocket),
    /// From another worker, or from ourselves.
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
    /// The connection just accepted is this client; receive from it.
    Adopt(ClientId),
    /// Append `Out::bytes[range]` to the peer's send queue.
    Send(Peer, Range<usize>),
    /// Append this range of the bytes of the [`Event::Received`] at hand to the peer's send queue.
    Relay(Peer, Range<usize>),
    /// Start or stop receiving from a peer.
    Receive {
        /// Who.
        peer: Peer,
        /// Start, or stop.
        on: bool,
    },
    /// Say `Flushed` as soon as nothing is queued for this peer.
    TellFlushed(Peer),
    /// Say `Lost` if this peer, which is not received from, has hung up.
    LookForEnd(Peer),
    /// Open a connection; `Connected` answers. Receiving is on from then.
    Connect(ServerId, Address),
    /// From here on, what this peer and we say to each other goes through TLS; `TlsDone` answers, or
    /// `Lost`. Until then nothing is sent to it.
    StartTls(Peer, Box<TlsStart>),
    /// End a connection; `Closed` answers. What is queued is sent first, or dropped.
    Close {
        /// Who.
        peer: Peer,
        /// How.
        how: Close,
    },
    /// Take the peer's socket out of the driver, whole: stop receiving, deliver what came, send
    /// what is queued; `Detached` answers.
    Detach(Peer),
    /// Take a loose socket in as this peer and receive from it.
    Attach(Peer, LooseSocket),
    /// Close a socket that came with a mail nobody wants any more.
    Discard(LooseSocket),
    /// Send mail to a worker (ourselves included): never blocks, never drops, keeps order per
    /// sender.
    Post(WorkerId, Mail),
    /// Tell or ask the Broker. The Broker takes it in at once; its answers are mail.
    Broker(ToBroker),
    /// Have the control thread do what may block; `Answer` follows exactly once.
    Ask(Question),
    /// Log.
    Note(Note),
    /// Tell what was seen of a query: the log of slow ones, or a trace.
    Tell(Box<crate::queries::Seen>),
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Send what is queued (within a few seconds), then close.
    Flush,
    /// Send what is queued, shut down our side, await the peer's end of file (within a few
    /// seconds), then close: PostgreSQL has then really let go of the session.
    Await,
    /// Send what is queued (within a few seconds), then close at once: the peer has said goodbye, so
    /// nothing of it is left unread.
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
    /// Name the system's user of a number: a directory server may have to be asked.
    NameUser {
        /// Comes back with the answer.
        ticket: u64,
        /// The user id.
        uid: u32,
    },
    /// Ask an authority whether a user's password is right, which may take long: others must not
    /// wait for it.
    CheckPassword {
        /// Comes back with the answer.
        ticket: u64,
        /// Who knows.
        authority: Arc<Authority>,
        /// The user.
        user: Arc<str>,
        /// What it sent: never empty, never a hash. Gone when the client is: then nobody wants to
        /// know.
        password: Weak<Secret>,
        /// Where it is.
        remote: Address,
    },
    /// Tell what is known of host names: SHOW DNS_HOSTS and its kin.
    Names {
        /// Comes back with the answer.
        ticket: u64,
    },
    /// Read the configuration anew; every worker gets `Settings` if it is right.
    Reload {
        /// Comes back with the answer.
        ticket: u64,
    },
    /// SET on the console: change one setting, by [`Config::with`]. Every worker gets `Settings` if
    /// the value will do; the answer is [`Answer::Set`].
    Set {
        /// Comes back with the answer.
        ticket: u64,
        /// The setting.
        key: String,
        /// Its new value, as written.
        value: String,
    },
    /// Send a cancel request to a peer, on a connection of its own: [`Answer::Forwarding`] says that
    /// the peer has been reached, [`Answer::Forwarded`] how it ended.
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
    /// A `stats_period` is over: one line is logged of what all workers counted. No answer.
    LogStats {
        /// Of this worker, in that time.
        stats: Box<Stats>,
        /// The length of the period.
        seconds: u64,
    },
    /// This worker has nothing left to wait for, after an order to shut down. When all have said
    /// so, the process ends. No answer.
    Idle(WorkerId, Shutdown),
    /// What a worker had to do since it last said so. No answer, but for mail of the balancer's.
    Load(Box<Load>),
    /// It has something to wait for again: a client came from another worker. No answer.
    Busy(WorkerId),
    /// Switch accepting on or off, on all listeners. No answer.
    Accept(bool),
    /// A successor talks on this socket, a console's that was told so: everything goes there.
    /// [`Order::Pack`] answers, later [`Order::Drain`] or [`Order::GiveUp`].
    HandOver(LooseSocket),
    /// A connection for the successor. No answer.
    Packed(Box<Parcel>),
    /// That was all of this worker, and this is what it knows besides. No answer.
    AllPacked(Box<Estate>),
    /// A worker's answer to [`crate::console::Survey::for_metrics`]. No answer.
    Surveyed {
        /// The survey's.
        serial: u64,
        /// What it has.
        holdings: Box<Holdings>,
    },
    /// End the process with this exit code, now.
    Exit(i32),
    /// Close the listening sockets; those of unix kind may stay for the console.
    StopListening {
        /// Keep unix sockets open.
        keep_unix: bool,
    },
}

/// What the control thread found.
#[derive(Debug)]
pub enum Answer {
    /// To [`Question::Resolve`]: at least one address, or why not.
    Resolved(u64, Result<Vec<IpAddr>, String>),
    /// To nobody: a look-up shows that a host name no longer leads to these addresses.
    Moved {
        /// The name.
        host: String,
        /// Where it led.
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
    /// To [`Question::CheckPassword`]: it is right, or why it is not, for the log.
    PasswordChecked(u64, Result<(), String>),
    /// To [`Question::Forward`]: the peer has the request. `Forwarded` follows.
    Forwarding(u64),
    /// To [`Question::Forward`]: the peer has closed the connection, or why it does not have the
    /// request.
    Forwarded(u64, Result<(), String>),
    /// To [`Question::Set`]: done, with what is to be said of it, or what is wrong.
    Set(u64, Result<Option<String>, String>),
    /// To [`Question::Reload`]: done, or what is wrong, one mistake a line.
    Reloaded(u64, Result<(), String>),
}

/// Where a `Pooler` puts what it wants done. Reused from event to event.
#[derive(Debug, Default)]
pub struct Out {
    /// In order.
    pub actions: Vec<Action>,
    /// What the `Send`s mean.
    pub bytes: Vec<u8>,
}

impl Out {
    /// Sends bytes of our own making.
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

    /// Relays a range of the event at hand; neighbouring ranges become one.
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

    /// Forgets everything, keeps the memory unless it is much.
    pub fn clear(&mut self) {
        self.actions.clear();
        match self.bytes.len() > limits::OUTPUT_KEPT {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
    }
}
