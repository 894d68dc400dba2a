//! Messages to systemd, from a service of type `notify` or `notify-reload`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

/// Another process is the service now.
static SUCCEEDED: AtomicBool = AtomicBool::new(false);

/// We serve.
pub fn ready() {
    notify("READY=1");
}

/// We serve, in the place of the process that systemd knows.
pub fn took_over() {
    notify(&format!("READY=1\nMAINPID={}", std::process::id()));
}

/// We read the configuration anew; `ready` follows.
pub fn reloading() {
    let micros = howdah_daemon::driver::socket::clock().0 / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// We are ending.
pub fn stopping() {
    notify("STOPPING=1");
}

/// Another process has taken our place. As the main process we tell who: if we ended before the
/// successor said so itself, systemd would end the service. What becomes of us from now on is not
/// the service's state. (With `NotifyAccess=all` our STOPPING would end the successor, too.)
pub fn succeeded_by(process: Option<i32>) {
    if let Some(process) = process {
        notify(&format!("MAINPID={process}"));
    }
    SUCCEEDED.store(true, Ordering::Relaxed);
}

/// Nobody listens where NOTIFY_SOCKET is not set; a message that is lost changes nothing for us.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if SUCCEEDED.load(Ordering::Relaxed) {
        return;
    }
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to_addr(state.as_bytes(), &address?)
    });
    let _ = sent;
}
