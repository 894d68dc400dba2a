//! Takes over from a running process (`-R`), and hands over to the next one.
//!
//! The successor logs in on the unix-socket console as the user `pgbouncer`; a process of the same system
//! user may do that. Before its first byte, the successor checks the owner of that socket. Then it sends
//! `TAKEOVER`, with the version of the format and the version of its TLS library: clients' TLS sessions
//! travel only if both processes have the same TLS version. When everything in the predecessor is at rest,
//! the predecessor answers. From then on the connection is no longer a console:
//!
//! ```text
//!   predecessor                                  successor
//!     length (8 bytes), freight     ---------->
//!     sockets, some with each byte  ---------->
//!                                   <----------  a byte for each such byte
//!                                   <----------  READY: all is read, all is open
//!     GO: the pid file is removed   ---------->
//! ```
//!
//! Until GO, the predecessor can take everything back, and does so if anything fails. A process with another
//! version of the format refuses `TAKEOVER`. Clients that can't travel in the first round follow in later
//! rounds, over the same connection and in the same way.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use howdah_daemon::driver::socket::Listener;
use howdah_daemon::tls;
use howdah_pooler::config::Globals;
use howdah_pooler::event::LooseSocket;
use howdah_pooler::note::Level;
use howdah_pooler::params::Tracked;
use howdah_pooler::parcel::{Freight, Parcel, VERSION, code};
use howdah_wire::write;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};

use crate::boot::{self, Fatal};
use crate::log::{self, Log};

/// How long one side may wait for the other in the middle of the exchange.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long links may take to end, in addition to the predecessor's `suspend_timeout`.
const REST: Duration = Duration::from_secs(600);
/// The number of sockets sent with one byte; the kernel accepts up to 253.
const BATCH: usize = 128;
/// The most bytes that are handed over, without sockets. Ten thousand clients need a few dozen MB.
const FREIGHT_MAX: u64 = 1 << 30;
/// The longest message of the console that is read, in bytes.
const MESSAGE_MAX: usize = 64 << 10;

const READY: u8 = b'R';
const GO: u8 = b'G';

/// A process that this process can take over from. The console login has succeeded.
pub struct Predecessor {
    stream: UnixStream,
}

impl Predecessor {
    /// Finds the process behind Howdah's unix socket. `None` if there is none.
    ///
    /// # Errors
    /// No unix socket is configured, or the login is refused.
    pub fn find(globals: &Globals, log: &Log) -> Result<Option<Predecessor>, Fatal> {
        let Some(address) = boot::unix_address(globals)? else {
            return Err(Fatal(
                "-R needs unix_socket_dir to reach the old process".into(),
            ));
        };
        let reached = boot::reach(&address)
            .map_err(|why| Fatal(format!("cannot take over the old process: {why}")))?;
        let Some(stream) = reached else {
            let text = "old process not found, try to continue normally";
            log.say(Level::Log, text);
            return Ok(None);
        };
        let mut found = Predecessor { stream };
        let known = found.is_our_own_user();
        known
            .and_then(|()| found.log_in())
            .and_then(|()| found.is_howdah())
            .map_err(|why| Fatal(format!("cannot take over the old process: {why}")))?;
        Ok(Some(found))
    }

    /// Checks the process behind the socket: in a directory that everybody can write to, it may be
    /// anybody's.
    fn is_our_own_user(&self) -> Result<(), String> {
        let peer = sockopt::socket_peercred(&self.stream).map_err(|why| text(why.into()))?;
        let (theirs, ours) = (peer.uid, rustix::process::geteuid());
        if theirs != ours {
            let (theirs, ours) = (theirs.as_raw(), ours.as_raw());
            return Err(format!(
                "who listens on the unix socket has user id {theirs}, not {ours} as we do"
            ));
        }
        Ok(())
    }

    fn log_in(&mut self) -> Result<(), String> {
        self.wait_at_most(PATIENCE)?;
        let mut packet = Vec::new();
        let names = [("user", "pgbouncer"), ("database", "pgbouncer")];
        write::startup(&mut packet, 0, names);
        self.stream.write_all(&packet).map_err(text)?;
        loop {
            let (tag, body) = self.message()?;
            match tag {
                b'R' if body == [0; 4] => {}
                b'R' => return Err("it wants a password: is it another user's?".into()),
                b'Z' => return Ok(()),
                _ => {}
            }
        }
    }

    /// Checks that the process can hand over.
    fn is_howdah(&mut self) -> Result<(), String> {
        let mut query = Vec::new();
        write::query(&mut query, b"SHOW VERSION");
        self.stream.write_all(&query).map_err(text)?;
        let mut version = String::new();
        loop {
            match self.message()? {
                // A row with one column: the number of columns and the column's length come first.
                (b'D', row) => {
                    version = String::from_utf8_lossy(row.get(6..).unwrap_or_default()).into_owned()
                }
                (b'Z', _) => break,
                _ => {}
            }
        }
        if version.contains("Howdah ") {
            return Ok(());
        }
        Err(format!(
            "{version} does not hand over to Howdah: stop it, then start without -R"
        ))
    }

    /// Asks the process to come to rest and to hand everything over.
    ///
    /// # Errors
    /// The process refuses, or its answer can't be read. Then that process goes on as before.
    pub fn hand_over(&mut self, globals: &Globals) -> Result<Freight, Fatal> {
        self.receive(globals)
            .map_err(|why| Fatal(format!("cannot take over the old process: {why}")))
    }

    fn receive(&mut self, globals: &Globals) -> Result<Freight, String> {
        let mut query = Vec::new();
        let library = tls::travels_by().unwrap_or_default();
        let command = format!("TAKEOVER \"{VERSION} {library}\"");
        write::query(&mut query, command.as_bytes());
        self.stream.write_all(&query).map_err(text)?;
        self.wait_at_most(REST)?;
        while self.message()?.0 != b'C' {}
        self.freight(
            &globals
                .track_extra_parameters
                .iter()
                .cloned()
                .collect::<Vec<_>>(),
        )
    }

    fn freight(&mut self, tracked: &[String]) -> Result<Freight, String> {
        let mut length = [0; 8];
        self.stream.read_exact(&mut length).map_err(text)?;
        self.wait_at_most(PATIENCE)?;
        let mut bytes = Vec::new();
        let length = u64::from_be_bytes(length);
        if length > FREIGHT_MAX {
            return Err(format!("it announces {length} bytes"));
        }
        let mut limited = Read::by_ref(&mut self.stream).take(length);
        limited.read_to_end(&mut bytes).map_err(text)?;
        let damaged = |_| "it sent what can't be read".to_string();
        let count = code::count_sockets(&bytes).map_err(damaged)?;
        let mut sockets = Vec::new();
        while sockets.len() < count {
            self.receive_sockets(&mut sockets).map_err(text)?;
        }
        let tracked = Tracked::new(tracked.iter().map(String::as_str));
        code::read(&bytes, sockets, &tracked).map_err(damaged)
    }

    /// Receives the clients that follow later, on a thread of its own, until the old process ends.
    pub fn follow(
        mut self,
        tracked: Vec<String>,
        log: Log,
        adopt: impl Fn(Freight) + Send + 'static,
    ) {
        let receive = move || {
            while self.stream.set_read_timeout(None).is_ok()
                && let Ok(freight) = self.freight(&tracked)
                && self.confirm().is_ok()
            {
                settle(&freight);
                let (clients, servers) = count(&freight);
                if clients + servers > 0 {
                    let text = format!("{clients} clients and {servers} servers followed");
                    log.say(Level::Log, text);
                }
                adopt(freight);
            }
        };
        // Without a thread, the old process serves these clients until they leave.
        let _ = std::thread::Builder::new()
            .name("followers".into())
            .spawn(receive);
    }

    fn receive_sockets(&self, sockets: &mut Vec<LooseSocket>) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut into = [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        // An io_uring of this thread may interrupt the call.
        let got =
            retry_on_intr(|| rustix::net::recvmsg(&self.stream, &mut into, &mut control, flags))?;
        if got.bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let before = sockets.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                sockets.extend(received.map(LooseSocket::new));
            }
        }
        if sockets.len() == before || got.flags.contains(ReturnFlags::CTRUNC) {
            // The kernel drops the sockets beyond this process's limit of descriptors.
            return Err(std::io::Error::other("too many open files"));
        }
        (&self.stream).write_all(&[0])
    }

    /// Confirms that everything has arrived. From now on it belongs to this process alone.
    ///
    /// # Errors
    /// The old process has not waited: it goes on as before.
    pub fn confirm(&mut self) -> Result<(), Fatal> {
        let mut answer = [0];
        let said = self.stream.write_all(&[READY]);
        let heard = said.and_then(|()| self.stream.read_exact(&mut answer));
        match heard {
            Ok(()) if answer == [GO] => Ok(()),
            _ => Err(Fatal("the old process goes on by itself".into())),
        }
    }

    /// The next message. An ErrorResponse becomes an error.
    fn message(&mut self) -> Result<(u8, Vec<u8>), String> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header).map_err(text)?;
        let [tag, length @ ..] = header;
        let length = (u32::from_be_bytes(length) as usize).checked_sub(4);
        let length = length.filter(|length| *length <= MESSAGE_MAX);
        let mut body = vec![0; length.ok_or("it does not speak PostgreSQL's protocol")?];
        self.stream.read_exact(&mut body).map_err(text)?;
        if tag == b'E' {
            return Err(error_text(&body));
        }
        Ok((tag, body))
    }

    fn wait_at_most(&self, limit: Duration) -> Result<(), String> {
        self.stream.set_read_timeout(Some(limit)).map_err(text)?;
        self.stream.set_write_timeout(Some(limit)).map_err(text)
    }
}

/// The text of an ErrorResponse.
fn error_text(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let mut texts = fields.filter_map(|field| field.strip_prefix(b"M"));
    let text = texts.next().unwrap_or(b"it refuses");
    String::from_utf8_lossy(text).into_owned()
}

fn text(why: std::io::Error) -> String {
    log::text(&why)
}

/// A process that takes over from this process.
pub struct Successor {
    stream: UnixStream,
}

impl Successor {
    /// The successor at the other end of this socket.
    ///
    /// # Errors
    /// The system's error.
    pub fn at(socket: LooseSocket) -> std::io::Result<Successor> {
        let stream = UnixStream::from(socket.into_inner::<OwnedFd>());
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Successor { stream })
    }

    /// Sends everything, and waits until it has arrived. Blocks.
    ///
    /// # Errors
    /// The successor is gone, or takes too long.
    pub fn send(&mut self, freight: &Freight) -> std::io::Result<()> {
        let bytes = code::write(freight);
        if bytes.len() as u64 > FREIGHT_MAX {
            return Err(std::io::Error::other("there is too much to take over"));
        }
        let length = (bytes.len() as u64).to_be_bytes();
        self.stream.write_all(&length)?;
        self.stream.write_all(&bytes)?;
        for batch in code::sockets(freight).chunks(BATCH) {
            let sockets: Vec<BorrowedFd<'_>> = batch
                .iter()
                .map(|socket| socket.inside::<OwnedFd>().as_fd())
                .collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&sockets));
            let bytes = [IoSlice::new(&[0])];
            let flags = SendFlags::NOSIGNAL;
            retry_on_intr(|| rustix::net::sendmsg(&self.stream, &bytes, &mut control, flags))?;
            self.hear()?;
        }
        match self.hear()? {
            READY => Ok(()),
            _ => Err(std::io::ErrorKind::InvalidData.into()),
        }
    }

    fn hear(&mut self) -> std::io::Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// The successor's process id when it connected.
    pub fn process(&self) -> Option<i32> {
        let peer = sockopt::socket_peercred(&self.stream).ok()?;
        Some(peer.pid.as_raw_nonzero().get())
    }

    /// Gives everything to the successor.
    ///
    /// # Errors
    /// The successor is gone.
    pub fn release(&mut self) -> std::io::Result<()> {
        self.stream.write_all(&[GO])
    }
}

/// Copies of the listeners' sockets, to be sent.
///
/// # Errors
/// No descriptor is left.
pub fn copies(
    listeners: &[Listener],
) -> std::io::Result<Vec<(howdah_pooler::event::Address, LooseSocket)>> {
    let copy = |listener: &Listener| {
        let socket: OwnedFd = listener.socket.try_clone()?;
        Ok((listener.address.clone(), LooseSocket::new(socket)))
    };
    listeners.iter().map(copy).collect()
}

/// Sets the flags that this process's driver needs: the old process may have used another driver.
/// Called only when the connections belong to this process alone, because both processes share the
/// flags.
pub fn settle(freight: &Freight) {
    for socket in code::sockets(freight) {
        // If this fails, the driver will meet the error.
        let _ = rustix::io::ioctl_fionbio(socket.inside::<OwnedFd>(), false);
    }
}

/// The number of clients and of servers.
pub fn count(freight: &Freight) -> (usize, usize) {
    let parcels = || freight.parcels.iter().map(|(_, parcel)| parcel);
    let clients = parcels().filter(|parcel| matches!(parcel, Parcel::Client(_)));
    let servers = parcels().filter(|parcel| match parcel {
        Parcel::Server { .. } => true,
        Parcel::Client(passenger) => passenger.server.is_some(),
        Parcel::Pool(_) => false,
    });
    (clients.count(), servers.count())
}
