//! Reads the configuration again, for SIGHUP or the console, and puts it in force.

use std::sync::Arc;
use std::time::Duration;

use howdah_daemon::mailbox::{Instruction, Letter};
use howdah_daemon::tls::Contexts;
use howdah_daemon::tls::contexts::{Look, TicketSeed};
use howdah_pooler::config::{Config, Warning};
use howdah_pooler::event::Answer;
use howdah_pooler::note::Level;
use howdah_pooler::tls::TlsInForce;

use crate::control::{Control, ControlEvent, QuestionId};
use crate::listen;
use crate::systemd;
use crate::watch::SeenFiles;
use crate::workers::socket_options;

/// How long reading the configuration may take, on file systems that hang.
const LOAD_LIMIT: Duration = Duration::from_secs(30);

/// A configuration with its warnings, or the mistakes.
pub type Loaded = Result<(Config, Vec<Warning>), Vec<String>>;

impl Control {
    /// Reloads run one at a time, in the order of their requests.
    pub fn reload(&mut self, asker: Option<QuestionId>) {
        self.reloads.push_back(asker);
        if self.reloads.len() == 1 {
            self.begin_reload();
        }
    }

    fn begin_reload(&self) {
        let (ear, source) = (self.ear.clone(), self.source.clone());
        let path = self.config.globals.conffile.clone();
        tokio::spawn(async move {
            let load = tokio::task::spawn_blocking(move || source.load(path.as_deref()));
            let loaded = match tokio::time::timeout(LOAD_LIMIT, load).await {
                Ok(Ok(loaded)) => loaded,
                Ok(Err(_)) => Err(vec!["reading the configuration was broken off".into()]),
                Err(_) => Err(vec!["reading the configuration takes too long".into()]),
            };
            let _ = ear.send(ControlEvent::Loaded(Box::new(loaded)));
        });
    }

    pub fn loaded(&mut self, loaded: Loaded) {
        let loaded = loaded.and_then(|loaded| refuse_broken(loaded, &self.config));
        // A file that requires certificates instead of passwords must not take effect without its
        // TLS part.
        let loaded = loaded.and_then(|loaded| match Contexts::build(&loaded.0, self.tickets()) {
            Ok(_) => Ok(loaded),
            Err(wrong) => {
                // Once a file is there, or is another one, the configuration is tried again.
                for path in Contexts::files(&loaded.0) {
                    self.source.needs(&path);
                }
                Err(vec![format!("TLS setup failed: {wrong}")])
            }
        });
        let result = match loaded {
            Ok((mut config, warnings)) => {
                for warning in warnings {
                    self.log.say(Level::Warning, warning.text);
                }
                for text in config.keep_fixed(&self.config) {
                    self.log.say(Level::Warning, text);
                }
                for name in dropped(&self.config, &config) {
                    let text = format!("dropping database '{name}' as it does not exist anymore");
                    self.log.say(Level::Warning, text);
                }
                self.sources.set(&mut config);
                self.put_in_force(config)
            }
            Err(mistakes) => {
                for mistake in &mistakes {
                    self.log.say(Level::Error, mistake.as_str());
                }
                self.log.say(Level::Warning, "config file loading failed");
                Err(mistakes.join("\n"))
            }
        };
        self.sampler.reloaded(result.is_ok());
        // Log files are rotated by moving them away and reloading.
        if let Err(why) = self.log.open(&self.config.globals.logfile) {
            self.log.say(Level::Error, why);
        }
        systemd::ready();
        if let Some((worker, ticket)) = self.reloads.pop_front().flatten() {
            self.answer(worker, Answer::Reloaded(ticket, result));
        }
        if !self.reloads.is_empty() {
            self.begin_reload();
        }
    }

    /// # Errors
    /// TLS can't be set up with these settings and files, and stays unchanged. All other settings
    /// are in force.
    pub fn put_in_force(&mut self, mut config: Config) -> Result<(), String> {
        let secured = self.set_up_tls(&mut config);
        self.config = Arc::new(config);
        self.log.set_verbose(self.config.globals.verbose);
        self.log.set_format(self.config.globals.log_format);
        self.log
            .set_unauthenticated(self.config.globals.log_unauthenticated_rate);
        self.log.set_syslog(&self.config.globals);
        listen::defer_accept(&self.config.globals);
        self.http.set(&self.config.globals);
        self.tracer.set(self.config.globals.trace_endpoint.as_str());
        let options = socket_options(&self.config.globals);
        self.post_to_all(|| Letter::Instruction(Instruction::SocketOptions(options)));
        self.post_to_all(|| Letter::Settings(self.config.clone()));
        self.place_hosts();
        secured
    }

    /// Checks whether a TLS file was replaced since it was read. Runs on a thread of its own,
    /// because file systems may hang.
    pub fn look_at_certificates(&mut self) {
        if std::mem::replace(&mut self.looking, true) {
            return;
        }
        let (ear, config) = (self.ear.clone(), self.config.clone());
        tokio::task::spawn_blocking(move || {
            let looks = Contexts::looks(&config);
            let _ = ear.send(ControlEvent::Looked(config, looks));
        });
    }

    /// Looks whether a file of the configuration has changed. Runs on a thread of its own, because file
    /// systems may hang.
    pub fn look_at_files(&mut self) {
        if std::mem::replace(&mut self.watch.is_looking, true) {
            return;
        }
        let (ear, read) = (self.ear.clone(), self.source.seen());
        tokio::task::spawn_blocking(move || {
            let _ = ear.send(ControlEvent::Watched(read.again()));
        });
    }

    /// The present state of the configuration's files. A text with mistakes is read once.
    pub fn watched(&mut self, now: &SeenFiles) {
        let is_settled = self.watch.is_settled(&self.source.seen(), now);
        if is_settled && self.reloads.is_empty() {
            self.source.will_read(now.clone());
            self.say("a file of the configuration has changed, re-reading config");
            systemd::reloading();
            self.reload(None);
        }
    }

    /// The present state of the TLS files. If a file was replaced, all are read again. On a new day
    /// they are read again, too: session tickets have new keys each day, and certificates that end
    /// soon are reported.
    pub fn looked(&mut self, of: &Arc<Config>, looks: &[Look]) {
        self.looking = false;
        if !Arc::ptr_eq(of, &self.config) {
            return;
        }
        let changed = *looks != *self.looks;
        if changed {
            self.say("a TLS file has changed: reloading certificates and keys");
        }
        if changed || self.tickets().day != self.tickets_made.day {
            let same = (*self.config).clone();
            // If the files can't be used, the log says so. They are checked again when a file
            // changes again.
            let _ = self.put_in_force(same);
        }
    }

    /// The seed of today's session ticket keys.
    fn tickets(&self) -> TicketSeed {
        TicketSeed::at(self.tickets_made.secret, now())
    }

    /// Builds the TLS contexts again; if that fails, the old ones stay.
    fn set_up_tls(&mut self, config: &mut Config) -> Result<(), String> {
        self.looks = Contexts::looks(config);
        self.tickets_made = self.tickets();
        let old = self.config.tls;
        config.tls = old;
        for doubt in Contexts::doubts(config) {
            self.log.say(Level::Warning, doubt);
        }
        let contexts = match Contexts::build(config, self.tickets_made) {
            Ok(contexts) => contexts,
            Err(wrong) => {
                let text = format!("TLS setup failed: {wrong}");
                self.log.say(Level::Error, text.as_str());
                return Err(text);
            }
        };
        for ending in contexts.expiring(now()) {
            self.log.say(Level::Warning, ending);
        }
        let changed = contexts.of_servers != self.contexts.of_servers;
        config.tls = TlsInForce {
            ends: contexts.certificate_expiries(),
            travels_by: howdah_daemon::tls::travels_by(),
            ..TlsInForce::asked(config, old.generation + u64::from(changed))
        };
        if changed || contexts.of_clients != self.contexts.of_clients {
            self.contexts = Arc::new(contexts);
            let contexts = || Letter::Instruction(Instruction::Tls(self.contexts.clone()));
            self.post_to_all(contexts);
        }
        Ok(())
    }
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().cast_signed())
}

/// Databases of the old configuration that the new one does not have, not even by `*`.
fn dropped<'a>(old: &'a Config, new: &Config) -> Vec<&'a str> {
    let names = old.databases.keys().map(AsRef::as_ref);
    let mut gone: Vec<&str> = names.filter(|name| new.entry(name).is_none()).collect();
    gone.sort_unstable();
    gone
}

/// Refuses a configuration that would be good enough for a start, but not for replacing the one in
/// force.
fn refuse_broken((config, warnings): (Config, Vec<Warning>), in_force: &Config) -> Loaded {
    if config.loses_users(in_force) {
        let broken = warnings.into_iter().filter(|warning| warning.broken);
        return Err(broken.map(|warning| warning.text).collect());
    }
    let refused = config.refused_after(in_force);
    if !refused.is_empty() {
        return Err(refused.iter().map(ToString::to_string).collect());
    }
    Ok((config, warnings))
}
