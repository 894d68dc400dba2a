//! The listening sockets: TCP over IPv4 and IPv6, and one unix socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::Ordering;

use howdah_daemon::driver::socket::{Listener, inherited, listener_name};
use howdah_pooler::config::Globals;
use howdah_pooler::event::Address;
use howdah_pooler::note::Level;
use nix::unistd::Group;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::boot::{self, Fatal};
use crate::leave;
use crate::log::{self, Log};

/// The seconds that `tcp_defer_accept = 1` means.
const DEFER_ACCEPT_SECONDS: u32 = 45;

/// Opens all sockets in the settings. A failing address is a warning, unless all fail. Sockets of
/// the predecessor in a takeover are used again if the settings name the same addresses.
///
/// # Errors
/// No address is left to listen on, or the unix socket can't be made.
pub fn open(
    globals: &Globals,
    mut inherited: Vec<Listener>,
    log: &Log,
) -> Result<Vec<Listener>, Fatal> {
    let mut listeners = Vec::new();
    for address in tcp_addresses(globals)? {
        let wanted = Address::Tcp(address.ip(), address.port());
        if let Some(listener) = take(&mut inherited, &wanted) {
            listeners.push(listener);
            continue;
        }
        match open_tcp(address, globals) {
            Ok(listener) => listeners.push(listener),
            Err((doing, why)) => {
                let why = log::text(&why.into());
                log.say(
                    Level::Warning,
                    format!("cannot listen on {address}: {doing}(): {why}"),
                );
            }
        }
    }
    if listeners.is_empty() && !globals.listen_addr.is_empty() {
        let list = globals.listen_addr.join(", ");
        return Err(Fatal(format!(
            "failed to listen on any address in listen_addr list: {list}"
        )));
    }
    if let Some(path) = boot::unix_socket(globals) {
        let wanted = Address::Unix(path.clone(), globals.listen_port);
        let listener = match take(&mut inherited, &wanted) {
            Some(listener) => listener,
            None => open_unix(&path, globals).map_err(|why| {
                log.say(
                    Level::Warning,
                    format!("cannot listen on unix:{path}: {why}"),
                );
                Fatal("failed to create unix socket".into())
            })?,
        };
        listeners.push(listener);
    }
    if listeners.is_empty() {
        return Err(Fatal(
            "nowhere to listen on: set listen_addr, unix_socket_dir or both".into(),
        ));
    }
    Ok(listeners)
}

fn take(inherited: &mut Vec<Listener>, wanted: &Address) -> Option<Listener> {
    let at = inherited.iter().position(|l| l.address == *wanted)?;
    Some(inherited.swap_remove(at))
}

/// From now on this process closes these sockets and removes their files.
pub fn keep(listeners: &[Listener], log: &Log) {
    for listener in listeners {
        leave::remember_listener(listener);
        if let Address::Unix(path, _) = &listener.address
            && let Some(file) = boot::is_file_path(path)
            && !listener.shared.load(Ordering::Acquire)
        {
            leave::remember(file);
        }
        let shown = shown(&listener.address);
        log.say(Level::Log, format!("listening on {shown}"));
    }
}

/// The sockets that the service manager has opened for this process, by sd_listen_fds(3), under any
/// names. To be called before everything else.
///
/// # Errors
/// One of them is not a listening socket.
pub fn from_service_manager(globals: &Globals) -> Result<Vec<Listener>, Fatal> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    let count = u16::try_from(count).map_err(|_| Fatal("LISTEN_FDS is too large".into()))?;
    let fail = |why: rustix::io::Errno| {
        let why = log::text(&why.into());
        Fatal(format!("a socket of LISTEN_FDS cannot be used: {why}"))
    };
    let sockets = inherited(count).map_err(fail)?;
    let listener = |socket: OwnedFd| {
        let address = listener_name(&socket, globals.listen_port).map_err(fail)?;
        let listener = Listener::new(address, socket);
        // The service manager also listens on this socket, for the next process.
        listener.shared.store(true, Ordering::Release);
        Ok(listener)
    };
    sockets.into_iter().map(listener).collect()
}

/// Applies `tcp_defer_accept` to all listening TCP sockets: the kernel holds a new connection until
/// the client has sent something, or hands it over at once.
pub fn defer_accept(globals: &Globals) {
    leave::each_listener(|socket| set_defer_accept(socket, globals));
}

fn set_defer_accept(socket: &OwnedFd, globals: &Globals) {
    let seconds = match globals.tcp_defer_accept {
        1 => DEFER_ACCEPT_SECONDS,
        seconds => seconds,
    };
    // Fails for unix sockets only, which do not have this option.
    let _ = howdah_daemon::driver::socket::defer_accept(socket, seconds);
}

fn shown(address: &Address) -> String {
    match address {
        Address::Tcp(ip, port) => SocketAddr::new(*ip, *port).to_string(),
        Address::Unix(path, _) => format!("unix:{path}"),
    }
}

/// The addresses in `listen_addr`.
///
/// # Errors
/// A word in it is not an address.
pub fn tcp_addresses(globals: &Globals) -> Result<Vec<SocketAddr>, Fatal> {
    let port = globals.listen_port;
    let mut addresses = Vec::new();
    for word in globals.listen_addr.iter() {
        if word == "*" {
            addresses.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
            addresses.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
            continue;
        }
        let found = (word.as_str(), port).to_socket_addrs();
        let found = found.map_err(|why| {
            Fatal(format!(
                "cannot resolve \"{word}\" of listen_addr: {}",
                log::text(&why)
            ))
        })?;
        addresses.extend(found);
    }
    let mut seen = std::collections::HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    Ok(addresses)
}

/// The call that failed, and the system's error.
type Failed = (&'static str, rustix::io::Errno);

fn open_tcp(address: SocketAddr, globals: &Globals) -> Result<Listener, Failed> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = new_socket(family)?;
    sockopt::set_socket_reuseaddr(&socket, true).map_err(|why| ("setsockopt", why))?;
    if globals.so_reuseport {
        sockopt::set_socket_reuseport(&socket, true).map_err(|why| ("setsockopt", why))?;
    }
    if address.is_ipv6() {
        // IPv4 has a socket of its own.
        sockopt::set_ipv6_v6only(&socket, true).map_err(|why| ("setsockopt", why))?;
    }
    rustix::net::bind(&socket, &address).map_err(|why| ("bind", why))?;
    rustix::net::listen(&socket, depth(globals.listen_backlog)).map_err(|why| ("listen", why))?;
    let address = Address::Tcp(address.ip(), address.port());
    Ok(Listener::new(address, socket))
}

fn new_socket(family: AddressFamily) -> Result<OwnedFd, Failed> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(|why| ("socket", why))
}

fn depth(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

/// The group of the unix socket, if the settings name one.
///
/// # Errors
/// The group does not exist.
pub fn unix_group(globals: &Globals) -> Result<Option<u32>, String> {
    let group = &globals.unix_socket_group;
    if group.is_empty() {
        return Ok(None);
    }
    if let Ok(id) = group.parse() {
        return Ok(Some(id));
    }
    let found = Group::from_name(group).ok().flatten();
    let found = found.ok_or_else(|| format!("there is no group '{group}'"))?;
    Ok(Some(found.gid.as_raw()))
}

/// The access mode and the group are set before the socket listens, so that no other user can
/// connect before.
fn open_unix(path: &str, globals: &Globals) -> Result<Listener, String> {
    let fail = |(doing, why): Failed| format!("{doing}(): {}", log::text(&why.into()));
    let socket = new_socket(AddressFamily::UNIX).map_err(fail)?;
    let file = boot::is_file_path(path);
    let name = match file {
        Some(path) => {
            // Left by a dead process: a running one would have answered.
            let _ = std::fs::remove_file(path);
            SocketAddrUnix::new(path)
        }
        None => SocketAddrUnix::new_abstract_name(&path.as_bytes()[1..]),
    };
    let name = name.map_err(|why| fail(("name", why)))?;
    rustix::net::bind(&socket, &name).map_err(|why| fail(("bind", why)))?;
    if let Some(file) = file {
        leave::remember(file);
        set_access(file, globals)?;
    }
    let listening = rustix::net::listen(&socket, depth(globals.listen_backlog));
    listening.map_err(|why| fail(("listen", why)))?;
    let address = Address::Unix(path.into(), globals.listen_port);
    Ok(Listener::new(address, socket))
}

fn set_access(file: &Path, globals: &Globals) -> Result<(), String> {
    if let Some(id) = unix_group(globals)? {
        chown(file, None, Some(id)).map_err(|why| format!("chown(): {}", log::text(&why)))?;
    }
    let mode = std::fs::Permissions::from_mode(globals.unix_socket_mode & 0o7777);
    std::fs::set_permissions(file, mode).map_err(|why| format!("chmod(): {}", log::text(&why)))
}
