//! The floor: a correct transaction pooler without any features, on io_uring.
//!
//! It admits every client without a login, logs in at the start to one database as one user, and
//! gives each transaction the next free server, first come, first served. It has no limits, no
//! prepared statements across servers, no cancel, and no back-pressure. The additional cost of a
//! real pooler is the price of its features.

mod framing;
mod pool;
mod ring;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use clap::Parser;
use howdah_bench::scram::Credentials;
use howdah_bench::session::{Session, message};

use crate::pool::{Pool, Supply};

/// A transaction pooler without features, for comparison.
#[derive(Clone, Debug, Parser)]
#[command(version)]
struct Flags {
    /// Where clients come in
    #[arg(long, default_value = "127.0.0.1:6433")]
    listen: SocketAddr,
    /// Where PostgreSQL is
    #[arg(long, default_value = "127.0.0.1:5432")]
    server: SocketAddr,
    /// Who to be there; the password is taken from PGPASSWORD
    #[arg(long, default_value = "postgres")]
    user: String,
    /// The one database
    #[arg(long, default_value = "postgres")]
    database: String,
    /// Server connections, opened at the start and split among the threads
    #[arg(long, default_value_t = 40)]
    servers: usize,
    /// Threads, each with a ring and a pool of its own
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> ExitCode {
    match serve(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("howdah-floor: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One pool, as the accepting thread sees it.
struct Door {
    clients: Sender<TcpStream>,
    bell: UnixStream,
}

fn serve(flags: &Flags) -> io::Result<()> {
    if flags.threads == 0 || flags.servers < flags.threads {
        return Err(io::Error::other("every thread needs a server"));
    }
    let password = std::env::var("PGPASSWORD").unwrap_or_default();
    let mut credentials = Credentials::new(&password);
    let first = Session::connect(flags.server, &flags.user, &flags.database, &mut credentials)?;
    let greeting = greeting(first.parameters());
    first.terminate()?;
    let mut doors = Vec::new();
    for thread in 0..flags.threads {
        let share =
            flags.servers / flags.threads + usize::from(thread < flags.servers % flags.threads);
        doors.push(start_pool(
            flags,
            credentials.clone(),
            share,
            greeting.clone(),
        )?);
    }
    let listener = TcpListener::bind(flags.listen)?;
    for (client, door) in listener.incoming().zip((0..doors.len()).cycle()) {
        let Ok(client) = client else { continue };
        client.set_nodelay(true)?;
        doors[door].clients.send(client).map_err(io::Error::other)?;
        doors[door].bell.write_all(b"!")?;
    }
    Ok(())
}

fn start_pool(
    flags: &Flags,
    mut credentials: Credentials,
    share: usize,
    greeting: Vec<u8>,
) -> io::Result<Door> {
    let Flags {
        server,
        user,
        database,
        ..
    } = flags.clone();
    let mut open_server = move || {
        let session = Session::connect(server, &user, &database, &mut credentials)?;
        let stream = session.into_stream();
        stream.ok_or_else(|| io::Error::other("servers are reached in clear text"))
    };
    let servers = (0..share)
        .map(|_| open_server())
        .collect::<io::Result<Vec<_>>>()?;
    let (clients, arriving) = channel();
    let (bell, doorbell) = UnixStream::pair()?;
    let supply = Supply {
        clients: arriving,
        open_server: Box::new(open_server),
        greeting,
    };
    thread::spawn(move || {
        let end = Pool::new(doorbell.into(), servers, supply).and_then(Pool::run);
        eprintln!(
            "howdah-floor: {}",
            end.err().map_or_else(String::new, |e| e.to_string())
        );
        std::process::exit(1);
    });
    Ok(Door { clients, bell })
}

/// The answer to every client's startup packet.
fn greeting(parameters: &[(String, String)]) -> Vec<u8> {
    let mut bytes = message(b'R', &[0; 4]);
    for (name, value) in parameters {
        bytes.extend(message(b'S', format!("{name}\0{value}\0").as_bytes()));
    }
    bytes.extend(message(b'K', &[0; 8]));
    bytes.extend(message(b'Z', b"I"));
    bytes
}
