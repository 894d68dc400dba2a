//! Whether somebody listens at the hosts of the settings: a look at each at start.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use howdah_pooler::config::{Config, Host, HostPort};
use howdah_pooler::note::Level;

use crate::log::{self, Log};

/// How long each step may take.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What is wrong, and how to correct it.
pub type Failed = (String, &'static str);

/// At start: looks on a thread of its own whether somebody listens at each named host, and logs who
/// does not. Nothing is sent: PostgreSQL logs no more than that somebody connected, and that only with
/// `log_connections = on`.
pub fn look_once(config: Arc<Config>, log: Log) {
    let look = move || {
        let mut seen: Vec<&HostPort> = Vec::new();
        for database in config.databases.values().chain(&config.fallback) {
            for to in &database.hosts {
                if seen.contains(&to) {
                    continue;
                }
                seen.push(to);
                if is_ours_to_resolve(&config, &to.host) {
                    continue;
                }
                if let Err((why, remedy)) = connect(to) {
                    let name = &database.name;
                    let text = format!("database \"{name}\" can't be reached: {why}: {remedy}");
                    log.say(Level::Warning, text);
                }
            }
        }
    };
    // Without the thread, clients find out.
    let _ = std::thread::Builder::new()
        .name("howdah-look".into())
        .spawn(look);
}

/// Whether only Howdah's own name servers know this host: the system's resolver, which is used here,
/// may say something else.
pub fn is_ours_to_resolve(config: &Config, host: &Host) -> bool {
    matches!(host, Host::Name(_)) && !config.globals.resolv_conf.is_empty()
}

fn connect(to: &HostPort) -> Result<(), Failed> {
    match &to.host {
        Host::Unix(_) => try_socket(&to.to_string()),
        Host::Name(name) => connect_tcp(name, to.port).map(drop),
        Host::Ip(address) | Host::Address { ip: address, .. } => {
            connect_tcp(&address.to_string(), to.port).map(drop)
        }
    }
}

/// Connects to a unix socket, and closes.
pub fn try_socket(path: &str) -> Result<(), Failed> {
    let remedy = "is PostgreSQL running, and are host and port its own (unix_socket_directories)?";
    let failed = |why| (format!("{path}: {}", log::text(&why)), remedy);
    match path.strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name);
            address.and_then(|address| UnixStream::connect_addr(&address))
        }
        None => UnixStream::connect(path),
    }
    .map(drop)
    .map_err(failed)
}

/// Resolves and connects, to the first address that answers.
pub fn connect_tcp(name: &str, port: u16) -> Result<TcpStream, Failed> {
    let addresses: Vec<SocketAddr> = (name, port)
        .to_socket_addrs()
        .map_err(|why| (log::text(&why), "check host= and the name server"))?
        .collect();
    let mut failed = ("the name has no address".to_string(), "check host=");
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(why) => failed = not_connected(&address, &why),
        }
    }
    Err(failed)
}

fn not_connected(address: &SocketAddr, why: &std::io::Error) -> Failed {
    let remedy = match why.kind() {
        ErrorKind::ConnectionRefused => {
            "nothing listens there: is PostgreSQL running, with this port and with listen_addresses \
             for this host?"
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "is the host up, and is there a firewall?",
        _ => "check host= and the network",
    };
    (format!("{address}: {}", log::text(why)), remedy)
}
