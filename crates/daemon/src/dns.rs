//! Host names: how they are looked up; what is known, what is under way, who waits.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::boot::Fatal;
use crate::log;
use crate::nameserver::{self, NameServers};

/// How long a name may take to resolve.
const LIMIT: Duration = Duration::from_secs(20);

/// Who knows addresses.
#[derive(Debug)]
pub struct Resolver {
    /// From the file that `resolv_conf` names; `None`: the system knows.
    own: Option<NameServers>,
}

impl Resolver {
    /// The system's, with all it is set up to ask.
    pub fn system() -> Resolver {
        Resolver { own: None }
    }

    /// The name servers of a resolver file; no path, the system's resolver.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: &str) -> Result<Resolver, Fatal> {
        if path.is_empty() {
            return Ok(Resolver::system());
        }
        let text = std::fs::read_to_string(path).map_err(|why| {
            Fatal(format!(
                "cannot read resolv_conf {path}: {}",
                log::text(&why)
            ))
        })?;
        Ok(Resolver {
            own: Some(NameServers::read(&text)),
        })
    }

    /// The addresses of a name.
    ///
    /// # Errors
    /// There are none, or nobody says.
    pub async fn look_up(&self, host: &str) -> Found {
        let asked = async {
            match &self.own {
                Some(servers) => servers.addresses(host).await,
                None => by_system(host).await,
            }
        };
        match tokio::time::timeout(LIMIT, asked).await {
            Ok(found) => found,
            Err(_) => Err(format!("no answer within {} seconds", LIMIT.as_secs())),
        }
    }

    /// The serial of a zone, which changes with its content.
    ///
    /// # Errors
    /// There is no such zone, or nobody says.
    pub async fn serial(&self, zone: &str) -> Result<u32, String> {
        match &self.own {
            Some(servers) => servers.serial(zone).await,
            None => {
                let text = std::fs::read_to_string(nameserver::SYSTEM_FILE).unwrap_or_default();
                NameServers::read(&text).serial(zone).await
            }
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
    /// Zones of names asked for, and their serials when they were last looked at.
    zones: HashMap<String, u32>,
}

impl<W> Names<W> {
    /// Knows nothing.
    pub fn new() -> Names<W> {
        Names {
            known: HashMap::new(),
            waiting: HashMap::new(),
            zones: HashMap::new(),
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

    /// The zones of the names that are known: what is behind their first dot.
    pub fn zones(&mut self, now: Instant) -> Vec<String> {
        let fresh = self.known.iter().filter(|(_, (until, _))| *until > now);
        let zone = |host: &String| Some(host.trim_end_matches('.').split_once('.')?.1.to_owned());
        let zones: HashSet<_> = fresh.filter_map(|(host, _)| zone(host)).collect();
        self.zones.retain(|zone, _| zones.contains(zone));
        zones.into_iter().collect()
    }

    /// The serial of a zone is known. Where it is another than before, so is what its names mean.
    /// Returns whether it is.
    pub fn zone_has(&mut self, zone: &str, serial: u32) -> bool {
        let before = self.zones.insert(zone.into(), serial);
        let changed = before.is_some_and(|before| before != serial);
        if changed {
            let inside = |host: &str| {
                let host = host.trim_end_matches('.');
                host.split_once('.').is_some_and(|(_, of)| of == zone)
            };
            self.known.retain(|host, _| !inside(host));
        }
        changed
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

    #[test]
    fn a_changed_zone_makes_its_names_unknown() {
        let (now, ttl) = (Instant::now(), Duration::from_secs(15));
        let mut names = Names::new();
        let found: Found = Ok(vec![[127, 0, 0, 1].into()]);
        for host in ["a.x.example", "b.x.example.", "c.y.example", "single"] {
            assert_eq!(names.ask(host, 1, now), Next::LookUp);
            names.found(host, &found, ttl, now);
        }
        let mut zones = names.zones(now);
        zones.sort();
        assert_eq!(zones, ["x.example", "y.example"]);
        assert!(!names.zone_has("x.example", 1) && !names.zone_has("x.example", 1));
        assert!(names.zone_has("x.example", 2));
        assert_eq!(names.ask("a.x.example", 1, now), Next::LookUp);
        assert_eq!(names.ask("b.x.example.", 1, now), Next::LookUp);
        assert_eq!(names.ask("c.y.example", 1, now), Next::Answer(found));
        assert_eq!(
            names.zones(now),
            ["y.example"],
            "nobody asks for the other any more"
        );
    }
}
