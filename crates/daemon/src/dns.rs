//! Host names: how they are looked up, the answers known so far, and the questions that wait.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_pooler::event::{KnownHost, KnownNames, KnownZone};
use tokio::sync::Semaphore;

use crate::boot::Fatal;
use crate::log;
use crate::nameserver::{self, NameServers};

/// How long a look-up may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Threads that may wait for the system's resolver at a time. The control thread has a few more, for
/// files.
pub const THREADS: usize = 12;

/// How addresses are looked up.
#[derive(Debug)]
pub struct Resolver {
    /// The name servers of the file that `resolv_conf` names; `None`: the system's resolver.
    own: Option<NameServers>,
    /// The threads that may wait for the system at a time.
    threads: Arc<Semaphore>,
}

impl Resolver {
    /// The system's resolver, with its configuration.
    pub fn system() -> Resolver {
        Resolver {
            own: None,
            threads: Arc::new(Semaphore::new(THREADS)),
        }
    }

    /// The name servers in a resolver file. With an empty path: the system's resolver.
    ///
    /// # Errors
    /// The file can't be read.
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
            ..Resolver::system()
        })
    }

    /// The addresses of a name.
    ///
    /// # Errors
    /// The name has no address, or no name server answers.
    pub async fn look_up(&self, host: &str) -> Found {
        let asked = async {
            match &self.own {
                Some(servers) => servers.addresses(host).await,
                None => {
                    let asked = (host.to_owned(), 0);
                    by_system(in_thread(&self.threads, move || asked.to_socket_addrs()).await?)
                }
            }
        };
        match tokio::time::timeout(LIMIT, asked).await {
            Ok(found) => found,
            Err(_) => Err(format!("no answer within {} seconds", LIMIT.as_secs())),
        }
    }

    /// The serial number of a zone. It changes when the zone's contents change.
    ///
    /// # Errors
    /// There is no such zone, or no name server answers.
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

/// Runs blocking work in one of `THREADS` places. The place is free again only when the work
/// returns, even if the caller has given up. So if no name server answers, threads are still left
/// for files.
async fn in_thread<T: Send + 'static>(
    threads: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let place = threads.clone().acquire_owned().await;
    let place = place.map_err(|why| why.to_string())?;
    let done = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    done.await.map_err(|why| why.to_string())
}

/// The addresses that the system found.
fn by_system(found: io::Result<impl Iterator<Item = SocketAddr>>) -> Found {
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

/// Addresses, or the reason why there are none.
pub type Found = Result<Vec<IpAddr>, String>;

/// The most names kept. If there are more, expired names are removed.
const KEPT: usize = 1000;

/// What the caller must do about a name.
#[derive(PartialEq, Eq, Debug)]
pub enum LookupStep {
    /// The name is known: answer.
    Answer(Found),
    /// Look the name up. Later questions about the same name wait for this look-up.
    LookUp,
    /// The name is being looked up: wait.
    Wait,
}

/// What is known about a name.
#[derive(Debug)]
struct Known {
    /// The answer may be used until then; `None` if it has expired.
    until: Option<Instant>,
    found: Found,
    /// The addresses of the last look-up that succeeded.
    last: Vec<IpAddr>,
}

/// All names that were asked for. `W` identifies a waiting question.
#[derive(Debug)]
pub struct HostNames<W> {
    known: HashMap<String, Known>,
    waiting: HashMap<String, Vec<W>>,
    /// The zones of these names, with their serial numbers at the last check.
    zones: HashMap<String, u32>,
}

impl<W> HostNames<W> {
    /// No names.
    pub fn new() -> HostNames<W> {
        HostNames {
            known: HashMap::new(),
            waiting: HashMap::new(),
            zones: HashMap::new(),
        }
    }

    /// Asks for a name.
    pub fn ask(&mut self, host: &str, who: W, now: Instant) -> LookupStep {
        if let Some(known) = self.known.get(host)
            && known.until.is_some_and(|until| until > now)
        {
            return LookupStep::Answer(known.found.clone());
        }
        if let Some(waiting) = self.waiting.get_mut(host) {
            waiting.push(who);
            return LookupStep::Wait;
        }
        self.waiting.insert(host.into(), vec![who]);
        LookupStep::LookUp
    }

    /// Asks for a name for nobody. True if it must be looked up: if nobody does, and if its answer's
    /// time is over or `anew`.
    pub fn is_due(&mut self, host: &str, anew: bool, now: Instant) -> bool {
        let known = self.known.get(host);
        let is_fresh = known.is_some_and(|known| known.until.is_some_and(|until| until > now));
        if self.waiting.contains_key(host) || is_fresh && !anew {
            return false;
        }
        self.waiting.insert(host.into(), Vec::new());
        true
    }

    /// The addresses of the last look-up that succeeded. Of a family of which it said nothing, those
    /// of the one before.
    pub fn addresses(&self, host: &str) -> &[IpAddr] {
        self.known.get(host).map_or(&[], |known| &known.last)
    }

    /// The zones of the names that are known.
    pub fn zones(&mut self) -> Vec<String> {
        let zones: HashSet<_> = self.known.keys().filter_map(|host| zone_of(host)).collect();
        self.zones.retain(|zone, _| zones.contains(zone.as_str()));
        zones.into_iter().map(str::to_owned).collect()
    }

    /// A zone has this serial number. If it has changed, the zone's names must be looked up now.
    /// Returns the old serial number, and these names.
    pub fn zone_has(&mut self, zone: &str, serial: u32) -> Option<(u32, Vec<String>)> {
        let before = self.zones.insert(zone.into(), serial);
        let before = before.filter(|before| *before != serial)?;
        let mut inside = Vec::new();
        for (host, known) in &mut self.known {
            if zone_of(host) == Some(zone) {
                known.until = None;
                inside.push(host.clone());
            }
        }
        let asks = |host: &String| {
            let asked = self.waiting.contains_key(host);
            if !asked {
                self.waiting.insert(host.clone(), Vec::new());
            }
            !asked
        };
        Some((before, inside.into_iter().filter(asks).collect()))
    }

    /// A look-up has ended; its answer may be used for `ttl`. Returns the questions that waited for
    /// it, and the addresses that the name no longer has.
    pub fn found(
        &mut self,
        host: &str,
        found: &Found,
        ttl: Duration,
        now: Instant,
    ) -> (Vec<W>, Vec<IpAddr>) {
        if self.known.len() >= KEPT {
            self.known
                .retain(|_, known| known.until.is_some_and(|until| until > now));
        }
        let before = self.known.remove(host).map(|known| known.last);
        let before = before.unwrap_or_default();
        let (last, gone) = match found {
            Ok(now) => {
                // If the answer has no address of a family, the question about that family may have
                // got no answer.
                let said = |ip: &IpAddr| now.iter().any(|one| one.is_ipv4() == ip.is_ipv4());
                let (mut last, mut gone) = (now.clone(), before);
                last.extend(gone.iter().filter(|ip| !said(ip)));
                gone.retain(|ip| said(ip) && !now.contains(ip));
                (last, gone)
            }
            Err(_) => (before, Vec::new()),
        };
        let known = Known {
            until: now.checked_add(ttl),
            found: found.clone(),
            last,
        };
        self.known.insert(host.into(), known);
        (self.waiting.remove(host).unwrap_or_default(), gone)
    }

    /// All known names, for the console.
    pub fn tell(&self, now: Instant) -> KnownNames {
        let host = |(name, known): (&String, &Known)| KnownHost {
            name: name.clone(),
            ttl: known
                .until
                .map_or(0, |until| until.saturating_duration_since(now).as_secs()),
            addresses: known.found.clone().unwrap_or_default(),
        };
        let mut hosts: Vec<_> = self.known.iter().map(host).collect();
        hosts.sort_by(|one, other| one.name.cmp(&other.name));
        let mut zones = BTreeMap::<_, u32>::new();
        for zone in self.known.keys().filter_map(|host| zone_of(host)) {
            *zones.entry(zone).or_default() += 1;
        }
        let zone = |(name, hosts): (&str, u32)| KnownZone {
            name: name.to_owned(),
            serial: self.zones.get(name).copied().unwrap_or(0),
            hosts,
        };
        KnownNames {
            hosts,
            zones: zones.into_iter().map(zone).collect(),
            queries: self.waiting.len() as u32,
        }
    }
}

/// The zone of a name: the part after its first dot.
fn zone_of(host: &str) -> Option<&str> {
    let (_, zone) = host.trim_end_matches('.').split_once('.')?;
    Some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_names_leaves_threads_to_others() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(2)
            .build()
            .unwrap();
        let threads = Arc::new(Semaphore::new(1));
        let moment = Duration::from_millis(10);
        runtime.block_on(async {
            let (end, hangs) = std::sync::mpsc::channel::<()>();
            let first = in_thread(&threads, move || hangs.recv().is_ok());
            assert!(tokio::time::timeout(moment, first).await.is_err());
            // The caller has given up, but the work still uses its place.
            let second = in_thread(&threads, || 2);
            assert!(tokio::time::timeout(moment, second).await.is_err());
            let other = tokio::task::spawn_blocking(|| 3);
            assert_eq!(other.await.unwrap(), 3);
            drop(end);
            assert_eq!(in_thread(&threads, || 4).await, Ok(4));
        });
    }

    #[test]
    fn a_name_is_looked_up_once_and_again_when_it_expired() {
        let (start, ttl) = (Instant::now(), Duration::from_secs(15));
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut names = HostNames::new();
        assert_eq!(names.ask("a", 1, at(0)), LookupStep::LookUp);
        assert_eq!(names.ask("a", 2, at(1)), LookupStep::Wait);
        assert_eq!(names.ask("b", 3, at(1)), LookupStep::LookUp);
        let found: Found = Ok(vec![[127, 0, 0, 1].into()]);
        let nowhere: Vec<IpAddr> = Vec::new();
        let asked = names.found("a", &found, ttl, at(2));
        assert_eq!(asked, (vec![1, 2], nowhere.clone()));
        assert_eq!(names.ask("a", 4, at(16)), LookupStep::Answer(found));
        assert_eq!(names.ask("a", 4, at(17)), LookupStep::LookUp);
        let failed: Found = Err("no such host".into());
        let asked = names.found("b", &failed, Duration::ZERO, at(3));
        assert_eq!(asked, (vec![3], nowhere));
        assert_eq!(
            names.ask("b", 5, at(3)),
            LookupStep::LookUp,
            "a TTL of zero keeps nothing"
        );
    }

    #[test]
    fn a_name_is_looked_up_for_nobody() {
        let (start, ttl) = (Instant::now(), Duration::from_secs(15));
        let at = |seconds| start + Duration::from_secs(seconds);
        let address: IpAddr = [127, 0, 0, 1].into();
        let found: Found = Ok(vec![address]);
        let mut names = HostNames::new();
        assert!(names.addresses("a").is_empty());
        assert!(names.is_due("a", false, at(0)));
        assert!(!names.is_due("a", true, at(0)), "it is being looked up");
        assert_eq!(names.ask("a", 1, at(0)), LookupStep::Wait);
        assert_eq!(names.found("a", &found, ttl, at(0)).0, [1]);
        assert_eq!(names.addresses("a"), [address]);
        assert!(!names.is_due("a", false, at(14)));
        assert!(names.is_due("a", true, at(14)));
        assert_eq!(names.ask("a", 2, at(14)), LookupStep::Answer(found));
        names.found("a", &Err("nobody answers".into()), ttl, at(15));
        assert_eq!(names.addresses("a"), [address]);
        assert!(names.is_due("a", false, at(30)));
    }

    #[test]
    fn a_changed_zone_makes_its_names_unknown() {
        let (now, ttl) = (Instant::now(), Duration::from_secs(15));
        let mut names = HostNames::new();
        let found: Found = Ok(vec![[127, 0, 0, 1].into()]);
        for host in ["a.x.example", "b.x.example.", "c.y.example", "single"] {
            assert_eq!(names.ask(host, 1, now), LookupStep::LookUp);
            names.found(host, &found, ttl, now);
        }
        let mut zones = names.zones();
        zones.sort();
        assert_eq!(zones, ["x.example", "y.example"]);
        assert_eq!(names.zone_has("x.example", 1), None, "the first");
        assert_eq!(names.zone_has("x.example", 1), None, "the same");
        let (before, mut again) = names.zone_has("x.example", 2).unwrap();
        again.sort();
        assert_eq!(
            (before, again),
            (1, vec!["a.x.example".into(), "b.x.example.".into()])
        );
        // The names are being looked up: a new question waits for that.
        assert_eq!(names.ask("a.x.example", 7, now), LookupStep::Wait);
        assert_eq!(
            names.ask("c.y.example", 1, now),
            LookupStep::Answer(found.clone())
        );
        assert_eq!(
            names.zone_has("x.example", 3).unwrap().1.len(),
            0,
            "once is enough"
        );
        assert_eq!(
            names.found("a.x.example", &found, ttl, now),
            (vec![7], Vec::new())
        );
    }

    #[test]
    fn addresses_that_a_name_no_longer_has() {
        let (now, ttl) = (Instant::now(), Duration::from_secs(15));
        let mut names = HostNames::new();
        let ip = |last| IpAddr::from([127, 0, 0, last]);
        let mut gone = |found: Found| {
            let later = now + ttl + ttl;
            assert_eq!(names.ask("a.x", 1, later), LookupStep::LookUp);
            names.found("a.x", &found, ttl, now).1
        };
        assert!(gone(Ok(vec![ip(1), ip(2)])).is_empty());
        assert!(gone(Ok(vec![ip(3), ip(2), ip(1)])).is_empty());
        assert!(gone(Err("nobody answers".into())).is_empty());
        // The answer says nothing about the other address family.
        let six = IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(gone(Ok(vec![six])).is_empty());
        assert_eq!(gone(Ok(vec![ip(3)])), [ip(2), ip(1)]);
        let told = names.tell(now);
        let host = |name: &str, ttl, addresses| KnownHost {
            name: name.into(),
            ttl,
            addresses,
        };
        assert_eq!(told.hosts, [host("a.x", 15, vec![ip(3)])]);
        let zone = KnownZone {
            name: "x".into(),
            serial: 0,
            hosts: 1,
        };
        assert_eq!((told.zones, told.queries), (vec![zone], 0));
        assert_eq!(names.tell(now + ttl + ttl).hosts[0].ttl, 0);
    }
}
