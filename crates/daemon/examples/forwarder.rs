//! The layers below the decisions, alone: forwards each connection to one address.
//!
//!     forwarder io_uring|epoll PORT UPSTREAM_PORT|UPSTREAM_SOCKET
//!
//! What this costs per request is what decisions are judged against.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;

use howdah_daemon::driver::Driver;
use howdah_daemon::driver::epoll::Epoll;
use howdah_daemon::driver::socket::Listener;
use howdah_daemon::driver::uring::Uring;
use howdah_daemon::mailbox::{Mailbox, mailbox};
use howdah_daemon::worker::{Outside, Worker};
use howdah_pooler::event::{Address, WorkerId};
use howdah_sim::forwarder::Forwarder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [driver, port, upstream] = arguments.as_slice() else {
        return Err("usage: forwarder io_uring|epoll PORT UPSTREAM_PORT|UPSTREAM_SOCKET".into());
    };
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let upstream = match upstream.parse() {
        Ok(port) => Address::Tcp(localhost, port),
        Err(_) => Address::Unix(upstream.clone(), 0),
    };
    let port: u16 = port.parse()?;
    let socket = Arc::new(TcpListener::bind((localhost, port))?.into());
    let listeners = vec![Listener {
        address: Address::Tcp(localhost, port),
        socket,
        shared: Arc::default(),
    }];
    let (_post, mailbox) = mailbox()?;
    match driver.as_str() {
        "io_uring" => run(Uring::new(listeners, mailbox.wire())?, mailbox, upstream),
        "epoll" => run(Epoll::new(listeners, mailbox.wire())?, mailbox, upstream),
        other => return Err(format!("no driver is called {other}").into()),
    }
    Ok(())
}

fn run(driver: impl Driver, mailbox: Mailbox, upstream: Address) {
    let outside = Outside {
        ask: Box::new(|_, _| ()),
        note: Box::new(|note| eprintln!("{}: {}", note.level, note.text)),
        tell: Box::new(drop),
        workers: Vec::new(),
    };
    Worker::new(
        WorkerId(0),
        Forwarder::new(upstream),
        driver,
        mailbox,
        outside,
    )
    .run();
}
