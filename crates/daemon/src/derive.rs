//! Threads that derive SCRAM keys: milliseconds of computing each, kept off every path that others
//! wait on, and remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use howdah_pooler::auth::scram::salted_password;
use sha2::{Digest, Sha256};

/// SHA-256 of password, salt and iterations: the password itself is not kept.
type Name = [u8; 32];

/// Keys kept, at most; then all are forgotten.
const KEPT: usize = 100_000;

/// How much less the threads weigh than the workers (19 is the least).
const NICE: i32 = 10;

/// What a key is derived from.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The password, prepared.
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

    /// PBKDF2-HMAC-SHA-256, as RFC 5802 has it.
    fn derive(&self) -> [u8; 32] {
        salted_password(&self.password, &self.salt, self.iterations)
    }
}

/// A key that is ready.
pub struct Derived {
    name: Name,
    key: [u8; 32],
}

/// The threads, the keys known, and who waits for which, with `W` naming those who wait.
pub struct Deriver<W> {
    jobs: mpsc::Sender<Recipe>,
    known: HashMap<Name, [u8; 32]>,
    waiting: HashMap<Name, Vec<W>>,
}

impl<W> Deriver<W> {
    /// Starts the threads; `ready` is called on them.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(
        threads: usize,
        ready: impl Fn(Derived) + Clone + Send + 'static,
    ) -> std::io::Result<Deriver<W>> {
        let (jobs, queue) = mpsc::channel::<Recipe>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads.max(1) {
            let (queue, ready) = (queue.clone(), ready.clone());
            std::thread::Builder::new()
                .name(format!("derive-{number}"))
                .spawn(move || {
                    // Not being allowed to only makes us as heavy as everybody else.
                    let _ =
                        rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
                    loop {
                        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok(recipe) = job else { return };
                        ready(Derived {
                            name: recipe.name(),
                            key: recipe.derive(),
                        });
                    }
                })?;
        }
        Ok(Deriver {
            jobs,
            known: HashMap::new(),
            waiting: HashMap::new(),
        })
    }

    /// Somebody wants a key: here it is, or it will come.
    pub fn ask(&mut self, recipe: Recipe, who: W) -> Option<[u8; 32]> {
        let name = recipe.name();
        if let Some(key) = self.known.get(&name) {
            return Some(*key);
        }
        let waiting = self.waiting.entry(name).or_default();
        waiting.push(who);
        if waiting.len() == 1 {
            // The threads end only with this sender.
            let _ = self.jobs.send(recipe);
        }
        None
    }

    /// A key is ready; gives it back with those who waited for it.
    pub fn ready(&mut self, derived: &Derived) -> ([u8; 32], Vec<W>) {
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        self.known.insert(derived.name, derived.key);
        (
            derived.key,
            self.waiting.remove(&derived.name).unwrap_or_default(),
        )
    }
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

    #[test]
    fn each_key_is_derived_once_and_everyone_gets_it() {
        let (sender, receiver) = mpsc::channel();
        let mut deriver = Deriver::start(2, move |derived| sender.send(derived).unwrap()).unwrap();
        assert_eq!(deriver.ask(recipe("a", 5), 1), None);
        assert_eq!(deriver.ask(recipe("a", 5), 2), None);
        assert_eq!(deriver.ask(recipe("a", 6), 3), None);
        let mut served: Vec<_> = (0..2)
            .map(|_| deriver.ready(&receiver.recv().unwrap()))
            .map(|(key, who)| (who, key))
            .collect();
        served.sort();
        assert_eq!(served[0], (vec![1, 2], recipe("a", 5).derive()));
        assert_eq!(served[1], (vec![3], recipe("a", 6).derive()));
        assert_eq!(
            deriver.ask(recipe("a", 5), 4),
            Some(recipe("a", 5).derive())
        );
        assert!(receiver.try_recv().is_err());
    }
}
