//! Host names: how they are looked up; what is known, what is under way, who waits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::log;

/// How long a name may take to resolve.
const LIMIT: Duration = Duration::from_secs(20);

/// Who knows addresses.
#[derive(Debug)]
pub struct Resolver {}

impl Resolver {
    /// The system's, with all it is set up to ask.
    pub fn system() -> Resolver {
        Resolver {}
    }

    /// The addresses of a name.
    ///
    /// # Errors
    /// There are none, or nobody says.
    pub async fn look_up(&self, host: &str) -> Found {
        match tokio::time::timeout(LIMIT, by_system(host)).await {
            Ok(found) => found,
            Err(_) => Err(format!("no answer within {} seconds", LIMIT.as_secs())),
        }
    }
}

async fn by_system(host: &str) -> Found {
    let found = tokio::net::lookup_host((host, 0)).await;
    let mut addresses: Vec<_> = Vec::new();
    for address in found.map_err(|why| log::text(&why))? {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    if addresses.is_empty() {
        return Err("it has no address".into());
    }
    Ok(addresses)
}

/// Addresses, or why there are none.
pub type Found = Result<Vec<IpAddr>, String>;

/// Names kept, at most; more than that and the expired ones go.
const KEPT: usize = 1000;

/// What to do about a name.
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// It is known: answer.
    Answer(Found),
    /// Look it up; whoever asks meanwhile waits too.
    LookUp,
    /// It is being looked up.
    Wait,
}

/// The names, with `W` naming those who wait.
#[derive(Debug)]
pub struct Names<W> {
    known: HashMap<String, (Instant, Found)>,
    waiting: HashMap<String, Vec<W>>,
}

impl<W> Names<W> {
    /// Knows nothing.
    pub fn new() -> Names<W> {
        Names {
            known: HashMap::new(),
            waiting: HashMap::new(),
        }
    }

    /// Somebody asks for a name.
    pub fn ask(&mut self, host: &str, who: W, now: Instant) -> Next {
        if let Some((until, found)) = self.known.get(host)
            && *until > now
        {
            return Next::Answer(found.clone());
        }
        if let Some(waiting) = self.waiting.get_mut(host) {
            waiting.push(who);
            return Next::Wait;
        }
        self.waiting.insert(host.into(), vec![who]);
        Next::LookUp
    }

    /// A look-up ended; gives back who waited for it. The answer is believed for `ttl`.
    pub fn found(&mut self, host: &str, found: &Found, ttl: Duration, now: Instant) -> Vec<W> {
        if self.known.len() >= KEPT {
            self.known.retain(|_, (until, _)| *until > now);
        }
        if let Some(until) = now.checked_add(ttl) {
            self.known.insert(host.into(), (until, found.clone()));
        }
        self.waiting.remove(host).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_once_and_again_when_it_expired() {
        let (start, ttl) = (Instant::now(), Duration::from_secs(15));
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut names = Names::new();
        assert_eq!(names.ask("a", 1, at(0)), Next::LookUp);
        assert_eq!(names.ask("a", 2, at(1)), Next::Wait);
        assert_eq!(names.ask("b", 3, at(1)), Next::LookUp);
        let found: Found = Ok(vec![[127, 0, 0, 1].into()]);
        assert_eq!(names.found("a", &found, ttl, at(2)), [1, 2]);
        assert_eq!(names.ask("a", 4, at(16)), Next::Answer(found));
        assert_eq!(names.ask("a", 4, at(17)), Next::LookUp);
        let failed: Found = Err("no such host".into());
        assert_eq!(names.found("b", &failed, Duration::ZERO, at(3)), [3]);
        assert_eq!(
            names.ask("b", 5, at(3)),
            Next::LookUp,
            "a TTL of zero keeps nothing"
        );
    }
}
