//! Sockets as both kernel drivers use them: opening, options, names.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use howdah_pooler::event::{Address, Ends, Time, UnixPeer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::reserve;

/// A bound and listening socket, shared by all workers.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address on which it listens.
    pub address: Address,
    /// The socket.
    pub socket: Arc<OwnedFd>,
    /// Another process also listens on this socket, or will. So the socket is closed here, but
    /// never shut down.
    pub shared: Arc<AtomicBool>,
}

impl Listener {
    /// A socket of this process alone.
    pub fn new(address: Address, socket: OwnedFd) -> Listener {
        Listener {
            address,
            socket: Arc::new(socket),
            shared: Arc::default(),
        }
    }

    /// False if the socket was shut down, by this process or another owner.
    pub fn listens(&self) -> bool {
        sockopt::socket_acceptconn(&self.socket).unwrap_or(true)
    }

    /// Refuses connections at once, unless another process also listens on the socket.
    pub fn stop(&self) {
        stop_listening(&self.socket, &self.shared);
    }
}

/// Makes a listening socket refuse connections at once, for all of its owners. Closing the socket
/// would take effect only after the last owner has closed it and the kernel has ended the last
/// accept.
pub(super) fn stop_listening(socket: &OwnedFd, shared: &AtomicBool) {
    if shared.load(Ordering::Acquire) {
        return;
    }
    // Fails if the socket was shut down before.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Makes the kernel hand over a connection of a listening TCP socket only when its first bytes have
/// arrived, or after this many seconds. 0 hands it over at once.
///
/// # Errors
/// The socket is not a TCP socket.
pub fn defer_accept(socket: &OwnedFd, seconds: u32) -> Result<(), Errno> {
    let seconds = libc::c_int::try_from(seconds).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads `size_of::<c_int>()` bytes from a live `c_int` and keeps nothing of
    // it; the descriptor is open while `socket` is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

/// Options of TCP connections, with PgBouncer's names (`tcp_keepalive` and so on). Zero means the
/// system's default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// Send keepalive probes.
    pub keepalive: bool,
    /// The number of probes without an answer before the connection is given up.
    pub keepcnt: u32,
    /// Seconds of silence before the first probe.
    pub keepidle: u32,
    /// Seconds between probes.
    pub keepintvl: u32,
    /// Milliseconds that sent bytes may stay unacknowledged.
    pub user_timeout: u32,
    /// Size of the kernel's send and receive buffers, in bytes.
    pub buffer: usize,
}

impl Default for SocketOptions {
    fn default() -> Self {
        SocketOptions {
            keepalive: true,
            keepcnt: 0,
            keepidle: 0,
            keepintvl: 0,
            user_timeout: 0,
            buffer: 0,
        }
    }
}

impl SocketOptions {
    /// The most bytes that one call sends. The kernel takes any number of bytes into an empty send
    /// buffer, as one segment where the path allows (64 KB on loopback). It takes nothing more
    /// until the peer has acknowledged that segment, and a peer may acknowledge a single segment as
    /// late as after 40 ms. Pieces of the buffer's size make several segments, which the peer
    /// acknowledges at once.
    pub fn piece(&self) -> usize {
        match self.buffer {
            0 => usize::MAX,
            buffer => buffer.max(1024),
        }
    }

    /// Applies the options to a TCP socket.
    ///
    /// # Errors
    /// The system's error; the socket can be used anyway.
    pub fn apply(&self, socket: impl AsFd) -> Result<(), Errno> {
        let fd = socket.as_fd();
        sockopt::set_tcp_nodelay(fd, true)?;
        if self.buffer > 0 {
            sockopt::set_socket_send_buffer_size(fd, self.buffer)?;
            sockopt::set_socket_recv_buffer_size(fd, self.buffer)?;
        }
        if self.user_timeout > 0 {
            sockopt::set_tcp_user_timeout(fd, self.user_timeout)?;
        }
        if self.keepalive {
            sockopt::set_socket_keepalive(fd, true)?;
            let seconds = |n: u32| Duration::from_secs(n.into());
            if self.keepcnt > 0 {
                sockopt::set_tcp_keepcnt(fd, self.keepcnt)?;
            }
            if self.keepidle > 0 {
                sockopt::set_tcp_keepidle(fd, seconds(self.keepidle))?;
            }
            if self.keepintvl > 0 {
                sockopt::set_tcp_keepintvl(fd, seconds(self.keepintvl))?;
            }
        }
        Ok(())
    }
}

/// Reads the monotonic clock, which has the same origin in all threads.
pub fn clock() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Programs that the process starts get no descriptor of it but 0, 1 and 2. Descriptors are opened that
/// way; those that the process was started with may not have been.
pub fn close_on_exec() {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: the call closes nothing, and touches no memory. Old kernels refuse it.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// The time from `now` to `deadline`, in the kernel's form.
pub(super) fn timeout(now: Time, deadline: Time) -> rustix::time::Timespec {
    let left = deadline.0.saturating_sub(now.0);
    rustix::time::Timespec {
        tv_sec: (left / 1_000_000_000) as i64,
        tv_nsec: (left % 1_000_000_000) as _,
    }
}

/// The sockets that the service manager passed to this process: `count` descriptors from number 3
/// on, by sd_listen_fds(3). To be called once, before anything else is opened.
///
/// # Errors
/// One of the descriptors is not open.
pub fn inherited(count: u16) -> Result<Vec<OwnedFd>, Errno> {
    let all = 3..3 + i32::from(count);
    for fd in all.clone() {
        // SAFETY: the descriptor is only checked for being open, and nothing can close it
        // meanwhile.
        rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })?;
    }
    // SAFETY: the descriptors are open, and by the protocol this process alone owns them. Nothing
    // was opened before, so they have no other owner in this process.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    let sockets: Vec<OwnedFd> = all.map(own).collect();
    for socket in &sockets {
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(sockets)
}

/// The address on which a socket listens.
///
/// # Errors
/// The system's error. Or the socket is not a listening stream socket, or has no name.
pub fn listener_name(socket: &OwnedFd, unix_port: u16) -> Result<Address, Errno> {
    let stream = sockopt::socket_type(socket)? == SocketType::STREAM;
    if !stream || !sockopt::socket_acceptconn(socket)? {
        return Err(Errno::INVAL);
    }
    let name = rustix::net::getsockname(socket)?;
    let Ok(unix) = SocketAddrUnix::try_from(name.clone()) else {
        return tcp_name(name);
    };
    let path = match (unix.path(), unix.abstract_name()) {
        (Some(path), _) => path.to_string_lossy().into_owned(),
        (None, Some(name)) => format!("@{}", String::from_utf8_lossy(name)),
        (None, None) => return Err(Errno::INVAL),
    };
    let port = path.rsplit_once(".s.PGSQL.");
    let port = port.and_then(|(_, port)| port.parse().ok());
    Ok(Address::Unix(path, port.unwrap_or(unix_port)))
}

/// A connect under way.
pub(super) struct Begun {
    /// The socket, in non-blocking mode.
    pub(super) socket: OwnedFd,
    /// False: the socket becomes writable when the connect has ended.
    pub(super) done: bool,
}

/// Opens a socket and begins to connect it.
pub(super) fn begin_connect(address: &Address, options: &SocketOptions) -> Result<Begun, Errno> {
    let family = match address {
        Address::Tcp(IpAddr::V4(_), _) => AddressFamily::INET,
        Address::Tcp(IpAddr::V6(_), _) => AddressFamily::INET6,
        Address::Unix(..) => AddressFamily::UNIX,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || rustix::net::socket_with(family, SocketType::STREAM, flags, None);
    let mut socket = open();
    while matches!(socket, Err(Errno::MFILE)) && reserve::spend() {
        socket = open();
    }
    let socket = socket?;
    let result = match address {
        Address::Tcp(ip, port) => {
            // The socket can be used without these options.
            let _ = options.apply(&socket);
            rustix::net::connect(&socket, &SocketAddr::new(*ip, *port))
        }
        Address::Unix(path, _) => rustix::net::connect(&socket, &unix_name(path)?),
    };
    match result {
        Ok(()) => Ok(Begun { socket, done: true }),
        Err(Errno::INPROGRESS) => Ok(Begun {
            socket,
            done: false,
        }),
        Err(error) => Err(error),
    }
}

fn unix_name(path: &str) -> Result<SocketAddrUnix, Errno> {
    match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    }
}

/// The result of a connect: the addresses of both ends.
pub(super) fn finish_connect(socket: &OwnedFd, address: &Address) -> Result<Box<Ends>, Errno> {
    sockopt::socket_error(socket)??;
    let (remote, local, unix_peer) = match address {
        Address::Unix(..) => (address.clone(), address.clone(), Some(unix_peer(socket)?)),
        Address::Tcp(..) => {
            let local = tcp_name(rustix::net::getsockname(socket)?)?;
            (address.clone(), local, None)
        }
    };
    Ok(Box::new(Ends {
        remote,
        local,
        unix_peer,
    }))
}

/// The process at the other end of a unix socket. (The process id is 0 if that process is in a
/// container that this process can't see into.)
fn unix_peer(socket: &OwnedFd) -> Result<UnixPeer, Errno> {
    let peer = nix::sys::socket::getsockopt(socket, nix::sys::socket::sockopt::PeerCredentials)
        .map_err(|error| Errno::from_raw_os_error(error as i32))?;
    Ok(UnixPeer {
        pid: peer.pid().unsigned_abs(),
        uid: peer.uid(),
    })
}

/// Prepares an accepted socket. An error means that the peer is already gone. (Setting TCP_NODELAY
/// and SO_KEEPALIVE on the listener would not help: connections that were already in its queue
/// would not get them.)
pub(super) fn finish_accept(
    socket: &OwnedFd,
    listener: &Address,
    options: &SocketOptions,
) -> Result<Box<Ends>, Errno> {
    let ends = match listener {
        Address::Unix(..) => Ends {
            remote: listener.clone(),
            local: listener.clone(),
            unix_peer: Some(unix_peer(socket)?),
        },
        Address::Tcp(..) => {
            // The socket can be used without these options.
            let _ = options.apply(socket);
            let remote = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
            let local = match listener {
                Address::Tcp(ip, port) if !ip.is_unspecified() => {
                    Address::Tcp(ip.to_canonical(), *port)
                }
                _ => tcp_name(rustix::net::getsockname(socket)?)?,
            };
            Ends {
                remote: tcp_name(remote)?,
                local,
                unix_peer: None,
            }
        }
    };
    Ok(Box::new(ends))
}

/// The name of a TCP end. An IPv4 address on an IPv6 socket becomes plain IPv4.
fn tcp_name(name: SocketAddrAny) -> Result<Address, Errno> {
    if let Ok(v4) = SocketAddrV4::try_from(name.clone()) {
        return Ok(Address::Tcp(IpAddr::V4(*v4.ip()), v4.port()));
    }
    let v6 = SocketAddrV6::try_from(name)?;
    Ok(Address::Tcp(IpAddr::V6(*v6.ip()).to_canonical(), v6.port()))
}

/// Whether the peer has ended its direction of the stream, or the whole stream.
pub(super) fn hung_up(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    let zero = Timespec::default();
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut polled, Some(&zero)).is_ok() && polled[0].revents().intersects(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    fn listener(ip: [u8; 4]) -> (Address, OwnedFd) {
        let socket = TcpListener::bind((Ipv4Addr::from(ip), 0)).unwrap();
        let name = socket.local_addr().unwrap();
        (Address::Tcp(name.ip(), name.port()), socket.into())
    }

    fn accept(listener: &OwnedFd, to: [u8; 4]) -> (TcpStream, OwnedFd) {
        let Address::Tcp(_, port) = tcp_name(rustix::net::getsockname(listener).unwrap()).unwrap()
        else {
            panic!("a TCP socket");
        };
        let stream = TcpStream::connect((Ipv4Addr::from(to), port)).unwrap();
        (stream, rustix::net::accept(listener).unwrap())
    }

    #[test]
    fn who_is_accepted_has_the_options_of_that_moment() {
        let (address, listener) = listener([127, 0, 0, 1]);
        for keepalive in [true, false, true] {
            let options = SocketOptions {
                keepalive,
                keepidle: 77,
                ..SocketOptions::default()
            };
            let (_stream, socket) = accept(&listener, [127, 0, 0, 1]);
            finish_accept(&socket, &address, &options).unwrap();
            assert!(sockopt::tcp_nodelay(&socket).unwrap());
            assert_eq!(sockopt::socket_keepalive(&socket).unwrap(), keepalive);
            let idle = sockopt::tcp_keepidle(&socket).unwrap();
            assert_eq!(idle == Duration::from_secs(77), keepalive);
        }
    }

    #[test]
    fn the_ends_of_who_comes_in_are_known() {
        for (ip, to) in [
            ([127, 0, 0, 1], [127, 0, 0, 1]),
            ([0, 0, 0, 0], [127, 0, 0, 2]),
        ] {
            let (address, listener) = listener(ip);
            let (stream, socket) = accept(&listener, to);
            let ends = finish_accept(&socket, &address, &SocketOptions::default()).unwrap();
            let name = |name: SocketAddr| Address::Tcp(name.ip(), name.port());
            assert_eq!(ends.local, name(stream.peer_addr().unwrap()));
            assert_eq!(ends.remote, name(stream.local_addr().unwrap()));
        }
    }
}
