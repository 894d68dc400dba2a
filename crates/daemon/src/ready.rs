//! `howdah ready`: asks a running Howdah whether it takes clients. For health checks of containers, whose
//! image has no other client.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use howdah_pooler::config::Globals;
use howdah_wire::proxy;

use crate::boot::{Fatal, Source, unix_socket};
use crate::cli::Arguments;
use crate::listen::tcp_addresses;
use crate::log;
use crate::machine::Machine;
use crate::print::print;

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks whether there is TLS. Howdah answers with `S` or `N`.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// The greatest length of an answer that is read, in bytes.
const ANSWER: u64 = 4096;

/// Prints `ready`, or why not. The exit code is 0 or 1.
pub fn run(arguments: &Arguments) -> ExitCode {
    match ask(arguments) {
        Ok(()) => {
            print("ready\n");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("howdah: not ready: {why}");
            ExitCode::FAILURE
        }
    }
}

fn ask(arguments: &Arguments) -> Result<(), String> {
    let reading = Source::new(arguments).read(None, &mut Machine::default())?;
    // A mistake in a file that was changed since says nothing of the process.
    let globals = &reading.config.globals;
    if globals.http_listen_port != 0 {
        let ip = globals.http_listen_addr.parse();
        let ip = ip.map_err(|_| "http_listen_addr is not an address")?;
        let address = reachable(SocketAddr::new(ip, globals.http_listen_port));
        // If nobody is there, the file may name another port by now than the process has.
        if let Ok(stream) = connected(address) {
            return ask_http(stream).map_err(|why| format!("{address}: {why}"));
        }
    }
    let addresses = tcp_addresses(globals).map_err(|Fatal(why)| why)?;
    if let Some(address) = addresses.first() {
        return ask_port(reachable(*address), globals);
    }
    match unix_socket(globals) {
        Some(path) => ask_socket(&path),
        None => Err("the configuration names nowhere to listen on".into()),
    }
}

/// The address under which this machine reaches a listener.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

/// Asks `/ready`.
fn ask_http(mut stream: TcpStream) -> Result<(), String> {
    let asked = b"GET /ready HTTP/1.1\r\nHost: howdah\r\nConnection: close\r\n\r\n";
    let mut text = Vec::new();
    stream
        .write_all(asked)
        .and_then(|()| stream.take(ANSWER).read_to_end(&mut text))
        .map_err(|why| log::text(&why))?;
    let text = String::from_utf8_lossy(&text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => Ok(()),
        "503" => Err(body.trim().into()),
        _ => Err("no answer of Howdah".into()),
    }
}

fn ask_port(address: SocketAddr, globals: &Globals) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{address}: {}", log::text(&why));
    let mut stream = connected(address)?;
    let own = stream.local_addr().map_err(failed)?.ip();
    if globals.proxy_protocol.has(own) {
        stream.write_all(proxy::NO_ADDRESS).map_err(failed)?;
    }
    ask_for_tls(stream).map_err(|why| format!("{address}: {why}"))
}

fn ask_socket(path: &str) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{path}: {}", log::text(&why));
    let stream = match path.strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name);
            address.and_then(|address| UnixStream::connect_addr(&address))
        }
        None => UnixStream::connect(path),
    }
    .map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    ask_for_tls(stream).map_err(|why| format!("{path}: {why}"))
}

/// Sends an SSLRequest and reads the answer. Howdah logs nothing of a client that leaves behind it.
fn ask_for_tls(mut stream: impl Read + Write) -> Result<(), String> {
    let mut answer = [0];
    let asked = stream.write_all(&SSL_REQUEST);
    asked
        .and_then(|()| stream.read_exact(&mut answer))
        .map_err(|why| log::text(&why))?;
    match answer {
        [b'S' | b'N'] => Ok(()),
        _ => Err("no answer of Howdah".into()),
    }
}

fn connected(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE);
    let stream = stream.and_then(|stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    });
    stream.map_err(|why| format!("{address}: {}", log::text(&why)))
}
