//! The TLS floor: answers pgbench's `-S` with fixed bytes, with or without TLS, on Howdah's own
//! driver and TLS sessions.
//!
//! It has no servers, pool or decisions. The difference between its costs with TLS and in clear
//! text is TLS's cost for any pooler. A login here is a handshake, SCRAM, and little more.

mod echo;
mod talk;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use clap::Parser;
use howdah_auth::Verifier;
use howdah_daemon::driver::socket::Listener;
use howdah_daemon::driver::uring::Uring;
use howdah_daemon::tls::Contexts;
use howdah_daemon::tls::contexts::TicketSeed;
use howdah_pooler::config::Config;
use howdah_pooler::event::Address;

use crate::echo::Echo;

/// Answers pgbench with fixed bytes, for comparison.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// Where clients come in
    #[arg(long, default_value = "127.0.0.1:6434")]
    listen: SocketAddr,
    /// The SCRAM secret that every client is asked to prove
    #[arg(long)]
    secret: String,
    /// The certificate's key
    #[arg(long)]
    key: PathBuf,
    /// The certificate
    #[arg(long)]
    certificate: PathBuf,
    /// More lines of settings: client_tls_ciphers and the like
    #[arg(long)]
    setting: Vec<String>,
}

fn main() -> ExitCode {
    match serve(&Flags::parse()) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("howdah-echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: &Flags) -> io::Result<std::convert::Infallible> {
    let secret = Verifier::parse(&flags.secret)
        .ok_or_else(|| io::Error::other("--secret is no SCRAM secret"))?;
    let contexts = contexts(flags)?;
    contexts.warm_up();
    let socket = TcpListener::bind(flags.listen)?;
    let listener = Listener::new(
        Address::Tcp(flags.listen.ip(), flags.listen.port()),
        socket.into(),
    );
    let driver = Uring::new(vec![listener], None)?;
    Echo::new(driver, Arc::new(contexts), secret).run()
}

/// The TLS contexts for these settings.
fn contexts(flags: &Flags) -> io::Result<Contexts> {
    let text = format!(
        "[pgbouncer]\nclient_tls_sslmode = allow\nserver_tls_sslmode = disable\n\
         client_tls_key_file = {}\nclient_tls_cert_file = {}\n{}\n",
        flags.key.display(),
        flags.certificate.display(),
        flags.setting.join("\n"),
    );
    let config = Config::load("echo.ini", &text, &mut |_| Ok(String::new()));
    let (config, _) = config.map_err(|why| io::Error::other(format!("{why:?}")))?;
    let now = SystemTime::UNIX_EPOCH.elapsed().map_err(io::Error::other)?;
    let mut secret = [0; 32];
    openssl::rand::rand_bytes(&mut secret)?;
    let seed = TicketSeed::at(secret, now.as_secs() as i64);
    Contexts::build(&config, seed).map_err(|why| io::Error::other(why.to_string()))
}
