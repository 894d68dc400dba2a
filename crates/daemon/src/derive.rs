//! Threads that derive SCRAM keys. A derivation takes milliseconds of CPU, so it never runs on a worker.
//! Derived keys are remembered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak, mpsc};

use howdah_pooler::auth::scram::salted_password;
use sha2::{Digest, Sha256};

/// SHA-256 of password, salt and iterations: the password itself is not kept.
type Name = [u8; 32];

/// The most keys kept. If there are more, all are forgotten.
const KEPT: usize = 100_000;

/// The niceness of the threads (19 gives the least CPU).
const NICE: i32 = 10;

/// Everything that a key is derived from.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The password after SASLprep.
    pub password: Vec<u8>,
    /// The salt.
    pub salt: Vec<u8>,
    /// The iteration count.
    pub iterations: u32,
}

impl Recipe {
    fn name(&self) -> Name {
        let mut hash = Sha256::new();
        hash.update((self.password.len() as u64).to_le_bytes());
        hash.update(&self.password);
        hash.update((self.salt.len() as u64).to_le_bytes());
        hash.update(&self.salt);
        hash.update(self.iterations.to_le_bytes());
        hash.finalize().into()
    }

    /// PBKDF2-HMAC-SHA-256, as in RFC 5802.
    fn derive(&self) -> [u8; 32] {
        salted_password(&self.password, &self.salt, self.iterations)
    }
}

/// The result of a job.
pub struct Derived {
    recipe: Recipe,
    name: Name,
    /// The key; `None` if the first asker was gone when the job's turn came.
    key: Option<[u8; 32]>,
}

/// An asker's interest in a key. It lasts as long as the asker holds the strong reference.
pub type Interest = Weak<()>;

/// A key to derive.
struct Job {
    recipe: Recipe,
    name: Name,
    wanted: Interest,
}

impl Job {
    fn run(self) -> Derived {
        let alive = self.wanted.strong_count() > 0;
        Derived {
            key: alive.then(|| self.recipe.derive()),
            recipe: self.recipe,
            name: self.name,
        }
    }
}

/// Keys for logins to servers. A server chooses the iteration count, so hosts take turns: a host
/// with a high count delays only its own logins. Keys for clients have threads of their own.
#[derive(Default)]
struct ServerJobs {
    /// The jobs of each host that has some. The host in front has the next turn.
    hosts: VecDeque<(Box<str>, VecDeque<Job>)>,
}

impl ServerJobs {
    fn push(&mut self, host: &str, job: Job) {
        match self.hosts.iter_mut().find(|(known, _)| **known == *host) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.hosts.push_back((host.into(), VecDeque::from([job]))),
        }
    }

    /// The next job of the host whose turn it is.
    fn pop(&mut self) -> Option<Job> {
        let (host, mut jobs) = self.hosts.pop_front()?;
        let job = jobs.pop_front();
        if !jobs.is_empty() {
            self.hosts.push_back((host, jobs));
        }
        job
    }
}

/// The jobs of servers, and a signal for the thread that waits for them.
type Shared = Arc<(Mutex<ServerJobs>, Condvar)>;

/// The threads, the known keys, and the questions that wait for each key. `W` identifies a
/// question.
pub struct Deriver<W> {
    clients: mpsc::Sender<Job>,
    servers: Shared,
    known: HashMap<Name, [u8; 32]>,
    waiting: HashMap<Name, Vec<Waiter<W>>>,
}

struct Waiter<W> {
    who: W,
    wanted: Interest,
    /// The host of the server that the key is for.
    host: Option<Box<str>>,
}

/// The end of a job.
pub enum Done<W> {
    /// A key, and the questions that it answers.
    Key([u8; 32], Vec<W>),
    /// No key: no asker wanted it any more.
    Dropped(Vec<W>),
}

impl<W> Deriver<W> {
    /// Starts `threads` threads for clients' keys, and one thread for servers' keys. The threads
    /// call `ready` with each result.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        threads: usize,
        ready: impl Fn(Derived) + Clone + Send + 'static,
    ) -> std::io::Result<Deriver<W>> {
        let (clients, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads.max(1) {
            let (queue, ready) = (queue.clone(), ready.clone());
            thread(format!("derive-{number}"), move || {
                let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                job.ok().map(|job| ready(job.run()))
            })?;
        }
        let servers = Shared::default();
        let jobs = servers.clone();
        thread("derive-servers".to_string(), move || {
            let job = {
                let (jobs, news) = &*jobs;
                let mut jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
                loop {
                    match jobs.pop() {
                        Some(job) => break job,
                        None => jobs = news.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                    }
                }
            };
            ready(job.run());
            Some(())
        })?;
        Ok(Deriver {
            clients,
            servers,
            known: HashMap::new(),
            waiting: HashMap::new(),
        })
    }

    /// Asks for a key: with a host, for a login to a server of that host, else for a client's
    /// login. Returns the key if it is known; otherwise the key comes later.
    pub fn ask(
        &mut self,
        recipe: Recipe,
        host: Option<Box<str>>,
        wanted: Interest,
        who: W,
    ) -> Option<[u8; 32]> {
        let name = recipe.name();
        if let Some(key) = self.known.get(&name) {
            return Some(*key);
        }
        let waiting = self.waiting.entry(name).or_default();
        waiting.push(Waiter {
            who,
            wanted: wanted.clone(),
            host: host.clone(),
        });
        if waiting.len() == 1 {
            self.begin(
                host.as_deref(),
                Job {
                    recipe,
                    name,
                    wanted,
                },
            );
        }
        None
    }

    fn begin(&self, host: Option<&str>, job: Job) {
        match host {
            // The threads end only when this sender is dropped.
            None => drop(self.clients.send(job)),
            Some(host) => {
                let (jobs, news) = &*self.servers;
                let mut jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
                jobs.push(host, job);
                news.notify_one();
            }
        }
    }

    /// A job has ended. If the first question was dropped, a job for the others is queued again.
    pub fn ready(&mut self, derived: Derived) -> Done<W> {
        let waiting = self.waiting.remove(&derived.name).unwrap_or_default();
        let Derived { recipe, name, key } = derived;
        let whose = |waiters: Vec<Waiter<W>>| waiters.into_iter().map(|w| w.who).collect();
        if let Some(key) = key {
            if self.known.len() >= KEPT {
                self.known.clear();
            }
            self.known.insert(name, key);
            return Done::Key(key, whose(waiting));
        }
        let alive = |waiter: &Waiter<W>| waiter.wanted.strong_count() > 0;
        let (waiting, gone): (Vec<_>, Vec<_>) = waiting.into_iter().partition(alive);
        if let Some(first) = waiting.first() {
            let wanted = first.wanted.clone();
            self.begin(
                first.host.as_deref(),
                Job {
                    recipe,
                    name,
                    wanted,
                },
            );
            self.waiting.insert(name, waiting);
        }
        Done::Dropped(whose(gone))
    }
}

/// Starts a thread that calls `turn` until `turn` returns `None`.
fn thread(name: String, turn: impl Fn() -> Option<()> + Send + 'static) -> std::io::Result<()> {
    let run = move || {
        // If this is not permitted, the thread has the same priority as the others.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        while turn().is_some() {}
    };
    std::thread::Builder::new().name(name).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(password: &str, iterations: u32) -> Recipe {
        Recipe {
            password: password.into(),
            salt: b"salt".to_vec(),
            iterations,
        }
    }

    #[test]
    fn the_derivation_is_the_standards() {
        // The test vectors of PBKDF2-HMAC-SHA-256 in RFC 7914, section 11, cut to 32 bytes.
        let key = Recipe {
            password: b"passwd".to_vec(),
            salt: b"salt".to_vec(),
            iterations: 1,
        };
        let hex: String = key
            .derive()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            hex,
            "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
        );
    }

    /// Waits for the end of this many jobs.
    fn ends(
        deriver: &mut Deriver<u32>,
        receiver: &mpsc::Receiver<Derived>,
        count: usize,
    ) -> Vec<(Vec<u32>, Option<[u8; 32]>)> {
        let mut end = || match deriver.ready(receiver.recv().unwrap()) {
            Done::Key(key, who) => (who, Some(key)),
            Done::Dropped(who) => (who, None),
        };
        (0..count).map(|_| end()).collect()
    }

    fn deriver() -> (Deriver<u32>, mpsc::Receiver<Derived>) {
        let (sender, receiver) = mpsc::channel();
        let ready = move |derived| sender.send(derived).unwrap();
        (Deriver::start(1, ready).unwrap(), receiver)
    }

    #[test]
    fn each_key_is_derived_once_and_everyone_gets_it() {
        let (mut deriver, receiver) = deriver();
        let here = Arc::new(());
        let wanted = || Arc::downgrade(&here);
        assert_eq!(deriver.ask(recipe("a", 5), None, wanted(), 1), None);
        assert_eq!(deriver.ask(recipe("a", 5), None, wanted(), 2), None);
        assert_eq!(deriver.ask(recipe("a", 6), None, wanted(), 3), None);
        let mut served = ends(&mut deriver, &receiver, 2);
        served.sort();
        assert_eq!(served[0], (vec![1, 2], Some(recipe("a", 5).derive())));
        assert_eq!(served[1], (vec![3], Some(recipe("a", 6).derive())));
        let known = deriver.ask(recipe("a", 5), None, wanted(), 4);
        assert_eq!(known, Some(recipe("a", 5).derive()));
        assert!(receiver.try_recv().is_err());
    }

    #[test]
    fn who_is_gone_costs_nothing_and_keeps_nobody_from_a_key() {
        let (mut deriver, receiver) = deriver();
        let here = Arc::new(());
        let host = || Some("h".into());
        // Ten million iterations would take a debug build a minute.
        let nobody = Weak::new;
        deriver.ask(recipe("a", 10_000_000), host(), nobody(), 1);
        deriver.ask(recipe("b", 5), host(), nobody(), 2);
        deriver.ask(recipe("b", 5), host(), Arc::downgrade(&here), 3);
        let mut served = ends(&mut deriver, &receiver, 3);
        served.sort();
        let key = Some(recipe("b", 5).derive());
        assert_eq!(served, [(vec![1], None), (vec![2], None), (vec![3], key)]);
    }

    #[test]
    fn hosts_take_turns() {
        let mut jobs = ServerJobs::default();
        for (host, password) in [("bad", "1"), ("bad", "2"), ("bad", "3"), ("good", "4")] {
            let recipe = recipe(password, 1);
            let (name, wanted) = (recipe.name(), Weak::new());
            jobs.push(
                host,
                Job {
                    recipe,
                    name,
                    wanted,
                },
            );
        }
        let order = std::iter::from_fn(|| Some(jobs.pop()?.recipe.password));
        assert_eq!(order.collect::<Vec<_>>(), [b"1", b"4", b"2", b"3"]);
    }
}
