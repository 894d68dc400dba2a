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

/// A configuration that was read, with its TLS files.
pub type LoadedTls = Result<(Config, Vec<Warning>, TlsRead), Vec<String>>;

/// What the TLS files of a configuration come to. File systems may hang, so it is made on a thread of its
/// own.
pub struct TlsRead {
    /// The state of the files just before they were read.
    looks: Vec<Look>,
    tickets: TicketSeed,
    contexts: Result<Contexts, String>,
}

impl TlsRead {
    /// Reads the files.
    fn of(config: &Config, tickets: TicketSeed) -> TlsRead {
        TlsRead {
            looks: Contexts::looks(config),
            tickets,
            contexts: Contexts::build(config, tickets)
                .map_err(|wrong| format!("TLS setup failed: {wrong}")),
        }
    }
}

/// A setting of the console's SET, with what it would make of the configuration.
pub struct Assigned {
    asker: QuestionId,
    key: String,
    value: String,
    /// The configuration in force when the SET came.
    of: Arc<Config>,
    config: Config,
    tls: TlsRead,
}

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
        let tickets = self.tickets();
        tokio::spawn(async move {
            let load = tokio::task::spawn_blocking(move || {
                let (config, warnings) = source.load(path.as_deref())?;
                let tls = TlsRead::of(&config, tickets);
                Ok((config, warnings, tls))
            });
            let loaded = match tokio::time::timeout(LOAD_LIMIT, load).await {
                Ok(Ok(loaded)) => loaded,
                Ok(Err(_)) => Err(vec!["reading the configuration was broken off".into()]),
                Err(_) => Err(vec!["reading the configuration takes too long".into()]),
            };
            let _ = ear.send(ControlEvent::Loaded(Box::new(loaded)));
        });
    }

    pub fn loaded(&mut self, loaded: LoadedTls) {
        let loaded = loaded.and_then(|(config, warnings, tls)| {
            let (config, warnings) = refuse_broken((config, warnings), &self.config)?;
            Ok((config, warnings, tls))
        });
        // A file that requires certificates instead of passwords must not take effect without its
        // TLS part.
        let loaded = loaded.and_then(|loaded| match &loaded.2.contexts {
            Ok(_) => Ok(loaded),
            Err(wrong) => {
                // Once a file is there, or is another one, the configuration is tried again.
                for path in Contexts::files(&loaded.0) {
                    self.source.needs(&path);
                }
                Err(vec![wrong.clone()])
            }
        });
        let result = match loaded {
            Ok((mut config, warnings, tls)) => {
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
                self.put_in_force(config, tls)
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
    fn put_in_force(&mut self, mut config: Config, tls: TlsRead) -> Result<(), String> {
        let secured = self.set_up_tls(&mut config, tls);
        self.config = Arc::new(config);
        self.log.set_verbose(self.config.globals.verbose);
        self.log.set_format(self.config.globals.log_format);
        self.log
            .set_unauthenticated(self.config.globals.log_unauthenticated_rate);
        self.log.set_syslog(&self.config.globals);
        listen::defer_accept(&self.config.globals);
        self.sources.set_outside(&self.config.globals);
        self.authorities.keep(&self.config);
        if !self.handover.has_succeeded() {
            // Afterwards the address is the successor's.
            self.http.set(&self.config.globals);
        }
        self.tracer.set(self.config.globals.trace_endpoint.as_str());
        let options = socket_options(&self.config.globals);
        self.post_to_all(|| Letter::Instruction(Instruction::SocketOptions(options)));
        self.post_to_all(|| Letter::Settings(self.config.clone()));
        self.place_hosts();
        secured
    }

    /// Changes a setting by the console's SET. TLS files are read on a thread of its own, because file
    /// systems may hang.
    pub fn set(&mut self, asker: QuestionId, key: String, value: String) {
        let config = match self.config.with(&key, &value) {
            Ok(config) => config,
            Err(why) => return self.answer(asker.0, Answer::Set(asker.1, Err(why))),
        };
        let (ear, of, tickets) = (self.ear.clone(), self.config.clone(), self.tickets());
        tokio::task::spawn_blocking(move || {
            let tls = TlsRead::of(&config, tickets);
            let _ = ear.send(ControlEvent::Assigned(Box::new(Assigned {
                asker,
                key,
                value,
                of,
                config,
                tls,
            })));
        });
    }

    /// The TLS files of a SET were read.
    pub fn assigned(&mut self, assigned: Assigned) {
        let Assigned {
            asker,
            key,
            value,
            of,
            config,
            tls,
        } = assigned;
        if !Arc::ptr_eq(&of, &self.config) {
            // Another configuration came in force meanwhile.
            return self.set(asker, key, value);
        }
        let notice = self.put_in_force(config, tls).err();
        let notice = notice.map(|why| format!("{why}; the old TLS configuration stays"));
        self.answer(asker.0, Answer::Set(asker.1, Ok(notice)));
    }

    /// Checks whether a TLS file was replaced since it was read. If so, or on a new day, reads all of
    /// them. Runs on a thread of its own, because file systems may hang.
    pub fn look_at_certificates(&mut self) {
        if std::mem::replace(&mut self.looking, true) {
            return;
        }
        let (ear, config) = (self.ear.clone(), self.config.clone());
        let (before, tickets) = (self.looks.clone(), self.tickets());
        let is_new_day = tickets.day != self.tickets_made.day;
        tokio::task::spawn_blocking(move || {
            let is_due = is_new_day || Contexts::looks(&config) != before;
            let read = is_due.then(|| Box::new(TlsRead::of(&config, tickets)));
            let _ = ear.send(ControlEvent::Looked(config, read));
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

    /// The TLS files were looked at, and read if a file was replaced. On a new day they are read, too:
    /// session tickets have new keys each day, and certificates that end soon are reported.
    pub fn looked(&mut self, of: &Arc<Config>, read: Option<TlsRead>) {
        self.looking = false;
        // A reload under way reads the files, too.
        let is_new = Arc::ptr_eq(of, &self.config) && self.reloads.is_empty();
        let Some(tls) = read.filter(|_| is_new) else {
            return;
        };
        if tls.looks != self.looks {
            self.say("a TLS file has changed: reloading certificates and keys");
        }
        let same = (*self.config).clone();
        // If the files can't be used, the log says so. They are checked again when a file changes
        // again.
        let _ = self.put_in_force(same, tls);
    }

    /// The seed of today's session ticket keys.
    fn tickets(&self) -> TicketSeed {
        TicketSeed::at(self.tickets_made.secret, now())
    }

    /// Puts TLS files in force that were read for this configuration. If they can't be used, the old
    /// contexts stay.
    fn set_up_tls(&mut self, config: &mut Config, tls: TlsRead) -> Result<(), String> {
        self.looks = tls.looks;
        self.tickets_made = tls.tickets;
        let old = self.config.tls;
        config.tls = old;
        for doubt in Contexts::doubts(config) {
            self.log.say(Level::Warning, doubt);
        }
        let contexts = tls.contexts.inspect_err(|wrong| {
            self.log.say(Level::Error, wrong.as_str());
        })?;
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
pub fn refuse_broken((config, warnings): (Config, Vec<Warning>), in_force: &Config) -> Loaded {
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
