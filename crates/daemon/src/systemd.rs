//! Messages to systemd, from a service of type `notify` or `notify-reload`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Another process is the service now.
static SUCCEEDED: AtomicBool = AtomicBool::new(false);

/// Howdah serves clients.
pub fn ready() {
    notify("READY=1");
}

/// Howdah serves clients, in place of the process that systemd knows.
pub fn took_over() {
    notify(&format!("READY=1\nMAINPID={}", std::process::id()));
}

/// Howdah reads the configuration again; `ready` follows.
pub fn reloading() {
    let micros = howdah_daemon::driver::socket::clock().0 / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// Howdah is ending.
pub fn stopping() {
    notify("STOPPING=1");
}

/// The end may take so long, counted from now. systemd kills a service after TimeoutStopSec otherwise.
pub fn needs_longer(time: Duration) {
    notify(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
}

/// A successor has taken over. The main process names the successor. If the main process ended
/// before the successor had reported itself, systemd would end the service. From now on this
/// process reports nothing: its state is no longer the service's. (With `NotifyAccess=all`,
/// STOPPING from this process would end the successor, too.)
pub fn succeeded_by(process: Option<i32>) {
    if let Some(process) = process {
        notify(&format!("MAINPID={process}"));
    }
    SUCCEEDED.store(true, Ordering::Relaxed);
}

/// Sends a message to systemd. Without NOTIFY_SOCKET there is no receiver. A lost message changes
/// nothing for Howdah.
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
