//! Howdah.
use std::sync::Arc;
use howdah_daemon::{driver::{self, epoll::Epoll}, mailbox, worker::{Outside, Worker}};
use howdah_pooler::{Pooler, PoolerSetup, config::Config, event::WorkerId};
fn main() {
    let path = std::env::args().nth(1).expect("ini");
    let text = std::fs::read_to_string(&path).expect("read");
    let (config, warnings) = Config::load(&path, &text, &mut |p| std::fs::read_to_string(p).map_err(|e| e.to_string())).unwrap_or_else(|m| { for m in m { eprintln!("{m}"); } std::process::exit(1) });
    for w in warnings { eprintln!("{w}"); }
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind(("127.0.0.1", config.globals.listen_port as u16)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let fd: Arc<std::os::fd::OwnedFd> = Arc::new(listener.into());
    let n: u16 = std::env::var("WORKERS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let (posts, boxes): (Vec<_>, Vec<_>) = (0..n).map(|_| mailbox::mailbox().unwrap()).unzip();
    let mut threads = Vec::new();
    for (i, mb) in boxes.into_iter().enumerate() {
        let (config, fd, posts) = (config.clone(), fd.clone(), posts.clone());
        threads.push(std::thread::spawn(move || {
            let wire = mb.wire();
            let driver = Epoll::new(vec![driver::socket::Listener { socket: fd, address: howdah_pooler::event::Address::Tcp([127,0,0,1].into(), config.globals.listen_port as u16) }], wire).unwrap();
            let pooler = Pooler::new(PoolerSetup { worker: WorkerId(i as u16), workers: n, config, seed: [i as u8; 32], shared_seed: [7; 32], started: 0.0, driver: "epoll".into() });
            let outside = Outside { ask: Box::new(|_, q| eprintln!("ask {q:?}")), note: Box::new(|n| eprintln!("{} {}", n.level, n.text)), workers: posts };
            Worker::new(WorkerId(i as u16), pooler, driver, mb, outside).run();
        }));
    }
    for t in threads { t.join().unwrap(); }
}
