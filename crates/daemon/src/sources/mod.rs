//! Asks the sources of secrets, on a thread of its own: files, commands and clouds may take their time.
//! When each is asked, [`SourceKeeper`] says; the control thread has it.

mod aws;
#[cfg(feature = "cloud")]
mod aws_endpoints;
#[cfg(feature = "cloud")]
mod clouds;
pub mod command;
mod file;
#[cfg(feature = "cloud")]
mod vault;

use std::collections::HashMap;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use howdah_daemon::driver::socket::clock;
#[cfg(feature = "cloud")]
use howdah_pooler::config::VaultAccess;
use howdah_pooler::config::{Config, Globals, SecretSource};
use howdah_pooler::event::Time;
use howdah_pooler::note::Level;
use howdah_pooler::sources::{SourceAnswer, SourceCall, SourceKeeper};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::control::{ControlEvent, Ear};
use crate::log::Log;

/// How many commands run at once.
const COMMANDS_AT_ONCE: usize = 8;
/// Threads for files on file systems that hang.
const BLOCKING_THREADS: usize = 8;

/// The error of a source that this build can't ask.
const LEFT_OUT: &str = "this build asks nobody: build with the Cargo feature cloud";
/// How long a call may take in all: with its files, its login, and what it waits for.
const LIMIT: Duration = Duration::from_secs(30);

/// The error for sources that this build can't ask.
pub fn missing(config: &Config) -> Option<String> {
    let sources = config.secret_sources();
    let mut asked = sources.keys().filter(|source| {
        matches!(
            source,
            SecretSource::Azure(_) | SecretSource::Google | SecretSource::Vault(_)
        )
    });
    let source = asked.next().filter(|_| !cfg!(feature = "cloud"))?;
    Some(format!("{source}: {LEFT_OUT}"))
}

/// Called with the answer.
type Hears = Box<dyn FnOnce(SourceAnswer) + Send>;

/// A source to ask, whom to trust, and who hears the answer.
type Ask = (SourceCall, Arc<Outside>, Hears);

/// What the configuration says of those who are asked.
#[derive(Default)]
struct Outside {
    /// The file of authorities for https; empty: the system's.
    trust: String,
    /// Where Vault is, if any source needs that.
    #[cfg(feature = "cloud")]
    vault: Option<VaultAccess>,
}

/// The sources that the configuration uses, and the thread that asks them. The thread starts with the
/// first question.
pub struct Sources {
    keeper: SourceKeeper,
    asks: Option<UnboundedSender<Ask>>,
    ear: Ear,
    log: Log,
    outside: Arc<Outside>,
}

impl Sources {
    /// No source is known yet. Answers go to `ear`.
    pub fn new(ear: Ear, log: Log) -> Sources {
        Sources {
            keeper: SourceKeeper::default(),
            asks: None,
            ear,
            log,
            outside: Arc::default(),
        }
    }

    /// The configuration was read: its sources are asked from now on. Gives it what is known.
    pub fn set(&mut self, config: &mut Config) {
        self.set_outside(&config.globals);
        self.keeper.set(clock(), config.secret_sources());
        self.fill(config);
    }

    /// Further calls go by these settings. Values that are known stay, and are asked for when they are
    /// due.
    pub fn set_outside(&mut self, globals: &Globals) {
        self.outside = Arc::new(Outside {
            trust: globals.https_ca_file.clone(),
            #[cfg(feature = "cloud")]
            vault: VaultAccess::of(globals).ok(),
        });
    }

    /// The configuration was read once more during a takeover. Sources that have just answered are not
    /// asked again, unless others have joined them.
    pub fn set_again(&mut self, config: &mut Config) {
        let asked = self.keeper.fetched();
        let is_valid = |source: &SecretSource| {
            let known = asked.get(source);
            known.is_some_and(|known| known.valid(clock().0).is_some())
        };
        let uses = config.secret_sources();
        let are_same = uses.len() == asked.iter().count();
        match are_same && uses.keys().all(is_valid) {
            true => self.fill(config),
            false => self.set(config),
        }
    }

    /// Gives a configuration what is known.
    pub fn fill(&self, config: &mut Config) {
        config.take_fetched(&self.keeper.fetched());
    }

    /// When the next source is due.
    pub fn next_due(&self) -> Option<Time> {
        self.keeper.next_due()
    }

    /// Asks the sources that are due.
    pub fn ask_due(&mut self) {
        for call in self.keeper.take_due(clock()) {
            let (ear, of) = (self.ear.clone(), call.source.clone());
            self.ask(call, move |answer| {
                // While the process is ending, nobody receives this.
                let _ = ear.send(ControlEvent::Sourced(of, answer));
            });
        }
    }

    /// Asks all sources, and waits for their answers, for some time at most. Later answers go to the
    /// control thread.
    pub fn ask_first(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        let (answers, heard) = mpsc::channel();
        let answers = Arc::new(Mutex::new(Some(answers)));
        for call in self.keeper.take_due(clock()) {
            let (answers, ear) = (answers.clone(), self.ear.clone());
            let of = call.source.clone();
            self.ask(call, move |answer| {
                let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = match &*answers {
                    Some(answers) => answers.send((of, answer)).is_ok(),
                    None => ear.send(ControlEvent::Sourced(of, answer)).is_ok(),
                };
            });
        }
        while !self.keeper.has_all_answers() {
            let left = end.saturating_duration_since(Instant::now());
            let Ok((source, answer)) = heard.recv_timeout(left) else {
                break;
            };
            self.answered(&source, answer);
        }
        // From here on, answers go the usual way.
        *answers.lock().unwrap_or_else(PoisonError::into_inner) = None;
        while let Ok((source, answer)) = heard.try_recv() {
            self.answered(&source, answer);
        }
    }

    /// A source has answered. True if workers must be told.
    pub fn answered(&mut self, source: &SecretSource, answer: SourceAnswer) -> bool {
        let chance = crate::workers::entropy().map_or(0, |seed| {
            u32::from_ne_bytes([seed[0], seed[1], seed[2], seed[3]])
        });
        let learned = self.keeper.answered(clock(), source, answer, chance);
        match learned.say {
            Some(Ok(text)) => self.log.say(Level::Log, text),
            Some(Err(text)) => self.log.say(Level::Warning, text),
            None => {}
        }
        learned.is_news
    }

    /// PostgreSQL has refused a value. True if workers must be told.
    pub fn refused(&mut self, source: &SecretSource, generation: u64) -> bool {
        self.keeper.refused(clock(), source, generation)
    }

    fn ask(&mut self, call: SourceCall, hears: impl FnOnce(SourceAnswer) + Send + 'static) {
        if self.asks.is_none() {
            match start() {
                Ok(asks) => self.asks = Some(asks),
                Err(why) => {
                    let why = format!("cannot start a thread: {}", crate::log::text(&why));
                    return hears(SourceAnswer::Failed(why));
                }
            }
        }
        if let Some(asks) = &self.asks
            && let Err(refused) = asks.send((call, self.outside.clone(), Box::new(hears)))
        {
            let (_, _, hears) = refused.0;
            let why = "the thread that asks sources has ended";
            hears(SourceAnswer::Failed(why.into()));
        }
    }
}

fn start() -> std::io::Result<UnboundedSender<Ask>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("sources")
        .build()?;
    let (asks, mut wanted) = unbounded_channel::<Ask>();
    let serve = move || {
        runtime.block_on(async {
            let asker = Arc::new(Asker {
                seen: Mutex::default(),
                commands: Semaphore::new(COMMANDS_AT_ONCE),
                #[cfg(feature = "cloud")]
                vault: vault::Vault::default(),
            });
            while let Some((call, outside, hears)) = wanted.recv().await {
                let asker = asker.clone();
                let asked = tokio::spawn(async move { asker.ask_in_time(call, &outside).await });
                tokio::spawn(async move { hears(heard(asked).await) });
            }
        });
    };
    std::thread::Builder::new()
        .name("sources".into())
        .spawn(serve)?;
    Ok(asks)
}

/// What a call has answered. The source waits for that, so a call that breaks off answers, too.
async fn heard(asked: JoinHandle<SourceAnswer>) -> SourceAnswer {
    let lost = |_| SourceAnswer::Failed("the call broke off: please report this error".into());
    asked.await.unwrap_or_else(lost)
}

/// What all calls share.
struct Asker {
    /// The files as they were when they were last read.
    seen: Mutex<HashMap<String, file::SeenFile>>,
    commands: Semaphore,
    #[cfg(feature = "cloud")]
    vault: vault::Vault,
}

impl Asker {
    /// Asks, for some time at most. A command has a limit of its own, and may have to wait for its turn.
    async fn ask_in_time(&self, call: SourceCall, outside: &Outside) -> SourceAnswer {
        if matches!(call.source, SecretSource::Command(_)) {
            return self.ask(call, outside).await;
        }
        let late = |_| SourceAnswer::Failed(format!("no answer within {} s", LIMIT.as_secs()));
        let answer = tokio::time::timeout(LIMIT, self.ask(call, outside)).await;
        answer.unwrap_or_else(late)
    }

    async fn ask(&self, call: SourceCall, outside: &Outside) -> SourceAnswer {
        let answer = match call.source {
            SecretSource::File(path) => self.look(path).await,
            SecretSource::Command(words) => match self.commands.acquire().await {
                Ok(_turn) => command::run(&words).await,
                Err(why) => Err(why.to_string()),
            },
            SecretSource::AwsRds(_) => aws::credentials(&outside.trust).await,
            #[cfg(feature = "cloud")]
            SecretSource::Azure(id) => clouds::azure(id.as_deref(), &outside.trust).await,
            #[cfg(feature = "cloud")]
            SecretSource::Google => clouds::google(&outside.trust).await,
            #[cfg(feature = "cloud")]
            SecretSource::Vault(path) => self.vault.ask(&path, call.is_refused, outside).await,
            #[cfg(not(feature = "cloud"))]
            SecretSource::Azure(_) | SecretSource::Google | SecretSource::Vault(_) => {
                Err(LEFT_OUT.into())
            }
        };
        answer.unwrap_or_else(SourceAnswer::Failed)
    }

    /// Reads a file, unless it is as it was.
    async fn look(&self, path: String) -> Result<SourceAnswer, String> {
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen().get(&path).copied();
        let read = path.clone();
        let look = tokio::task::spawn_blocking(move || file::look(&read, before));
        let (now, answer) = look.await.map_err(|why| why.to_string())??;
        seen().insert(path, now);
        Ok(answer)
    }
}
