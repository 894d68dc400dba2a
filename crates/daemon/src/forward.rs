//! Cancel requests to peers. The control thread sends each on a connection of its own.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use howdah_pooler::config::{Host, Networks};
use howdah_wire::proxy;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::dns::{Found, Resolver};
use crate::log;

/// The time limit of a whole request: look-up, connection and answer.
const LIMIT: Duration = Duration::from_secs(15);

/// A connection to a peer.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Sends a request to the first host that accepts a connection, and calls `reached`. Then waits
/// until the peer closes the connection: the request is done.
///
/// # Errors
/// The reason why the peer may not have received the request.
pub async fn forward(
    resolver: &Resolver,
    hosts: &[Host],
    port: u16,
    packet: &[u8],
    balancers: &Networks,
    reached: impl FnOnce(),
) -> Result<(), String> {
    let whole = async {
        let mut stream = connect(resolver, hosts, port, balancers).await?;
        stream
            .write_all(packet)
            .await
            .map_err(|why| log::text(&why))?;
        reached();
        let mut buffer = [0; 64];
        // A peer's only answer is the end of the stream.
        while stream
            .read(&mut buffer)
            .await
            .map_err(|why| log::text(&why))?
            > 0
        {}
        Ok(())
    };
    let late = || format!("not done within {} seconds", LIMIT.as_secs());
    tokio::time::timeout(LIMIT, whole)
        .await
        .unwrap_or_else(|_| Err(late()))
}

async fn connect(
    resolver: &Resolver,
    hosts: &[Host],
    port: u16,
    balancers: &Networks,
) -> Result<Box<dyn Stream>, String> {
    let mut problem = String::from("it has no host");
    for host in hosts {
        let addresses: Found = match host {
            Host::Unix(folder) => match connect_unix(folder, port).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(why) => Err(format!("{folder}: {}", log::text(&why))),
            },
            Host::Ip(ip) | Host::Address { ip, .. } => Ok(vec![*ip]),
            Host::Name(name) => resolver.look_up(name).await,
        };
        match addresses {
            Err(why) => problem = why,
            Ok(addresses) => {
                for ip in addresses {
                    match connect_tcp(ip, port, balancers).await {
                        Ok(stream) => return Ok(Box::new(stream)),
                        Err(why) => problem = format!("{ip}:{port}: {}", log::text(&why)),
                    }
                }
            }
        }
    }
    Err(problem)
}

/// A peer has the same `proxy_protocol`. If this process's own address is in it, the peer wants a header.
async fn connect_tcp(ip: IpAddr, port: u16, balancers: &Networks) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect((ip, port)).await?;
    if balancers.has(stream.local_addr()?.ip()) {
        stream.write_all(proxy::NO_ADDRESS).await?;
    }
    Ok(stream)
}

/// An abstract name begins with `@` in the settings, and with a zero byte for the system.
async fn connect_unix(folder: &str, port: u16) -> io::Result<UnixStream> {
    let path = format!("{folder}/.s.PGSQL.{port}");
    match path.strip_prefix('@') {
        Some(name) => UnixStream::connect(format!("\0{name}")).await,
        None => UnixStream::connect(path).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peers on a unix socket, an abstract socket and TCP. The first host of the list does not
    /// answer.
    #[test]
    fn the_first_host_that_answers_gets_the_request() {
        let folder = std::env::temp_dir().join(format!("howdah-forward-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let folder_text = folder.to_str().unwrap().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let none = Networks::default();
        runtime.block_on(async {
            let tcp = tokio::net::TcpListener::bind(("127.0.0.1", 0))
                .await
                .unwrap();
            let port = tcp.local_addr().unwrap().port();
            let path = folder.join(format!(".s.PGSQL.{port}"));
            let unix = tokio::net::UnixListener::bind(&path).unwrap();
            let resolver = Resolver::system();
            let dead = Host::Unix("/nowhere".into());
            for host in [
                Host::Unix(folder_text.clone()),
                Host::Ip([127, 0, 0, 1].into()),
                Host::Name("localhost".into()),
            ] {
                let hosts = [dead.clone(), host];
                let mut reached = false;
                let ask = forward(&resolver, &hosts, port, b"cancel", &none, || reached = true);
                let serve = async {
                    let mut seen = [0; 6];
                    tokio::select! {
                        Ok((mut stream, _)) = tcp.accept() => {
                            stream.read_exact(&mut seen).await.unwrap();
                        }
                        Ok((mut stream, _)) = unix.accept() => {
                            stream.read_exact(&mut seen).await.unwrap();
                        }
                    }
                    seen
                };
                let (result, seen) = tokio::join!(ask, serve);
                assert_eq!((result, &seen), (Ok(()), b"cancel"));
                assert!(reached);
            }
            let why = forward(&resolver, &[dead], port, b"cancel", &none, || {}).await;
            assert!(why.unwrap_err().starts_with("/nowhere: No such file"));
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
