//! Password checks by a directory server or PAM. They run on a thread of their own, so that neither a
//! worker nor the control thread ever waits for them.
//!
//! Each directory has its own queue, and PAM has one: a directory that does not answer delays only its
//! own logins. PAM's modules block, so each PAM check has a thread. Directories need no such threads.

#[cfg(feature = "ldap")]
mod ldap;
#[cfg(feature = "ldap")]
mod ldap_connection;
#[cfg(feature = "ldap")]
mod ldap_tls;
#[cfg(feature = "pam")]
mod pam;
mod token;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use howdah_pooler::auth::Secret;
use howdah_pooler::config::{Authority, Config, KeysAt};
use howdah_pooler::event::{Address, Verified};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::dns::Resolver;
use crate::log::Log;

/// How long a check may take, with its wait in the queue.
const LIMIT: Duration = Duration::from_secs(30);
/// The greatest number of running checks, for each directory and for PAM.
const AT_ONCE: usize = 32;
/// The greatest number of waiting checks in each queue. More checks are refused at once.
const WAITING: usize = 1000;
/// Threads for PAM checks and for look-ups of host names.
const BLOCKING_THREADS: usize = 3 * AT_ONCE;

/// A password to check.
// Not all of it is read by builds that ask nobody.
#[cfg_attr(not(all(feature = "ldap", feature = "pam")), allow(dead_code))]
pub struct PasswordCheck {
    /// The directory or PAM service.
    pub authority: Arc<Authority>,
    /// The user.
    pub user: Arc<str>,
    /// The database that the client asks for.
    pub database: Arc<str>,
    /// The file of authorities for https; empty: the system's.
    pub trust: String,
    /// The password that the client sent; it is dropped with the client.
    pub password: Weak<Secret>,
    /// The client's address.
    pub remote: Address,
}

/// `Ok` if the password or token is right; otherwise the reason.
type Verdict = Result<Verified, String>;

/// Called with the verdict.
type Answer = Box<dyn FnOnce(Verdict) + Send>;

/// The thread that does the checks; it starts with the first check.
pub struct Authorities {
    resolver: Arc<Resolver>,
    tokens: Arc<token::TokenChecks>,
    checks: Option<UnboundedSender<(PasswordCheck, Answer)>>,
}

impl Authorities {
    /// No check has been requested yet.
    pub fn new(resolver: Arc<Resolver>, log: &Log) -> Authorities {
        Authorities {
            resolver,
            tokens: Arc::new(token::TokenChecks::new(log)),
            checks: None,
        }
    }

    /// Forgets what is known for the sake of earlier configurations.
    pub fn keep(&self, config: &Config) {
        self.tokens.keep(config);
    }

    /// How old the oldest keys are that tokens are checked with; `None`: there are none.
    pub fn keys_age(&self) -> Option<Duration> {
        self.tokens.keys_age()
    }

    /// Requests a check. `answer` is called exactly once, on any thread.
    pub fn ask(&mut self, check: PasswordCheck, answer: impl FnOnce(Verdict) + Send + 'static) {
        if self.checks.is_none() {
            match start(self.resolver.clone(), self.tokens.clone()) {
                Ok(checks) => self.checks = Some(checks),
                Err(why) => return answer(Err(format!("cannot start a thread: {why}"))),
            }
        }
        if let Some(checks) = &self.checks
            && let Err(refused) = checks.send((check, Box::new(answer)))
        {
            let (_, answer) = refused.0;
            answer(Err("the thread that checks passwords has ended".into()));
        }
    }
}

fn start(
    resolver: Arc<Resolver>,
    tokens: Arc<token::TokenChecks>,
) -> std::io::Result<UnboundedSender<(PasswordCheck, Answer)>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("authority")
        .build()?;
    let (checks, mut wanted) = unbounded_channel::<(PasswordCheck, Answer)>();
    let serve = move || {
        runtime.block_on(async {
            let mut lines = HashMap::new();
            let asker = Arc::new(Asker::new(resolver, tokens));
            while let Some((check, answer)) = wanted.recv().await {
                let line = line(&mut lines, &check.authority);
                let verdict = in_line(line, check, asker.clone());
                tokio::spawn(async move { answer(verdict.await) });
            }
        });
    };
    let thread = std::thread::Builder::new().name("authority".into());
    #[cfg(feature = "ldap")]
    let thread = thread.stack_size(ldap_connection::STACK);
    thread.spawn(serve)?;
    Ok(checks)
}

/// The queue of an authority. A check holds a permit of `places` while it waits or runs, and a
/// permit of `checks` while it runs.
#[derive(Clone)]
struct Line {
    places: Arc<Semaphore>,
    checks: Arc<Semaphore>,
}

impl Line {
    fn new() -> Line {
        Line {
            places: Arc::new(Semaphore::new(WAITING + AT_ONCE)),
            checks: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

/// The queue of an authority. Queues of directories without checks are dropped: the directory's
/// options may have changed for good.
fn line(lines: &mut HashMap<Authority, Line>, authority: &Authority) -> Line {
    let name = match authority {
        Authority::Ldap(_) | Authority::Token(_) => authority.clone(),
        // All PAM services share one queue: modules block, and the services share the modules.
        Authority::Pam(_) => Authority::Pam(String::new()),
    };
    if !lines.contains_key(&name) {
        // A PAM check may run longer than its client stays.
        lines.retain(|_, line| {
            line.places.available_permits() < WAITING + AT_ONCE
                || line.checks.available_permits() < AT_ONCE
        });
    }
    lines.entry(name).or_insert_with(Line::new).clone()
}

/// Waits in the queue, then for the verdict.
fn in_line(line: Line, check: PasswordCheck, asker: Arc<Asker>) -> impl Future<Output = Verdict> {
    // The place is taken now, because queues without checks are forgotten.
    let place = line.places.try_acquire_owned();
    async move {
        let name = check.authority.name();
        let _place = place.map_err(|_| format!("{name}: too many logins wait to be checked"))?;
        let checked = async {
            let turn = line.checks.acquire_owned().await;
            asker
                .check(check, turn.map_err(|why| why.to_string())?)
                .await
        };
        let limited = tokio::time::timeout(LIMIT, checked).await;
        limited.unwrap_or_else(|_| {
            Err(format!(
                "{name}: no answer within {} seconds",
                LIMIT.as_secs()
            ))
        })
    }
}

/// What all checks share.
struct Asker {
    #[cfg(feature = "ldap")]
    directory: ldap::Directory,
    tokens: Arc<token::TokenChecks>,
}

impl Asker {
    #[cfg_attr(not(feature = "ldap"), expect(unused_variables))]
    fn new(resolver: Arc<Resolver>, tokens: Arc<token::TokenChecks>) -> Asker {
        Asker {
            #[cfg(feature = "ldap")]
            directory: ldap::Directory::new(resolver),
            tokens,
        }
    }

    /// `turn` is given back when the check is over. A PAM check can't be stopped, so it may run
    /// long after its client has left.
    async fn check(&self, check: PasswordCheck, turn: OwnedSemaphorePermit) -> Verdict {
        let Some(password) = check.password.upgrade() else {
            return Err("the client has left".into());
        };
        match &*check.authority {
            #[cfg(feature = "ldap")]
            Authority::Ldap(options) => {
                let _turn = turn;
                self.directory
                    .check(options, &check.user, password.text())
                    .await
                    .map(|()| Verified::default())
            }
            #[cfg(feature = "pam")]
            Authority::Pam(service) => {
                let service = service.clone();
                let blocking = move || {
                    let _turn = turn;
                    pam::check(&service, &check.user, password.text(), &check.remote)
                };
                let joined = tokio::task::spawn_blocking(blocking).await;
                let verdict = joined.unwrap_or_else(|why| Err(format!("PAM: {why}")));
                verdict.map(|()| Verified::default())
            }
            Authority::Token(rules) => {
                let _turn = turn;
                let checked =
                    self.tokens
                        .check(rules, password.text(), &check.database, &check.trust);
                checked.await
            }
            #[cfg(not(all(feature = "ldap", feature = "pam")))]
            _ => {
                drop((turn, password));
                Err(left_out(&check.authority).unwrap_or_default())
            }
        }
    }
}

/// The error for an authority that this build can't use.
fn left_out(authority: &Authority) -> Option<String> {
    let there = match authority {
        Authority::Ldap(_) => cfg!(feature = "ldap"),
        Authority::Pam(_) => cfg!(feature = "pam"),
        Authority::Token(rules) => {
            let fetches = !matches!(rules.keys, KeysAt::File(_));
            let missing = fetches && cfg!(not(feature = "cloud"));
            return missing.then(|| {
                "keys of tokens are fetched, which is not part of this build: name a file as keys=, or \
                 build with the Cargo feature cloud"
                    .into()
            });
        }
    };
    let name = authority.name();
    (!there).then(|| {
        let feature = name.to_lowercase();
        format!("{name} logins are not part of this build: build with the Cargo feature {feature}")
    })
}

/// The error for a configuration that this build can't serve.
pub fn missing(config: &Config) -> Option<String> {
    config.authorities().find_map(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(host: &str) -> Authority {
        let options = format!("ldapserver={host} ldapprefix=uid=");
        Authority::Ldap(howdah_pooler::ldap::LdapOptions::parse(&options).unwrap())
    }

    #[test]
    fn lines_are_of_directories_and_forgotten_when_empty() {
        let mut lines = HashMap::new();
        let waiting = line(&mut lines, &directory("a"));
        let place = waiting.places.try_acquire_owned().unwrap();
        line(&mut lines, &Authority::Pam("x".into()));
        line(&mut lines, &Authority::Pam("y".into()));
        assert_eq!(lines.len(), 2);
        drop(line(&mut lines, &directory("b")));
        assert_eq!(lines.len(), 2, "a's, which somebody stands in, and b's");
        drop(place);
        line(&mut lines, &directory("c"));
        assert_eq!(lines.len(), 1);
        let turn = line(&mut lines, &Authority::Pam("x".into()));
        let turn = turn.checks.try_acquire_owned().unwrap();
        line(&mut lines, &directory("d"));
        assert_eq!(lines.len(), 2, "PAM's, of which a check goes on, and d's");
        drop(turn);
    }
}
