//! How the tables of keys are applied: each key of a section becomes settings and a finding.

use howdah_config::{Place, Scope, table};

use crate::draft::{Draft, Target};
use crate::finding::{Finding, Verdict};
use crate::keys::{ForeignKey, Meaning, SHARDING, Unit};
use crate::logins::Logins;
use crate::tree::{Branch, Fruit};
use crate::units;

/// An import under way.
pub(crate) struct Reading {
    /// The pooler whose files are read.
    pub(crate) pooler: &'static str,
    /// What becomes of its keys.
    pub(crate) keys: &'static [ForeignKey],
    /// The output.
    pub(crate) draft: Draft,
    /// What is said of the keys.
    pub(crate) findings: Vec<Finding>,
    /// Who may log in, and how.
    pub(crate) logins: Logins,
    /// The values of settings that are global here and belong to a pool there.
    lifted: Vec<LiftedValue>,
}

/// A value of a pool for a setting that is global here.
struct LiftedValue {
    setting: &'static str,
    text: String,
    /// `None` for a pool that does not say.
    from: Option<(Place, String)>,
}

impl Reading {
    pub(crate) fn new(pooler: &'static str, keys: &'static [ForeignKey]) -> Reading {
        Reading {
            pooler,
            keys,
            draft: Draft::default(),
            findings: Vec::new(),
            logins: Logins::default(),
            lifted: Vec::new(),
        }
    }

    /// Says what became of a key.
    pub(crate) fn say(
        &mut self,
        place: Option<&Place>,
        key: &str,
        verdict: Verdict,
        text: impl Into<String>,
    ) {
        self.findings.push(Finding {
            place: place.cloned(),
            key: printable(key),
            verdict,
            text: printable(&text.into()),
            decides: false,
            is_doubtful: false,
        });
    }

    /// Says that something was lost that decides who gets in or where writes go.
    pub(crate) fn decides(&mut self, place: Option<&Place>, key: &str, text: impl Into<String>) {
        self.say(place, key, Verdict::Lost, text);
        if let Some(last) = self.findings.last_mut() {
            last.decides = true;
        }
    }

    /// Marks the last finding as a value that probably means something else.
    pub(crate) fn doubts(&mut self, why: &str) {
        if let Some(last) = self.findings.last_mut() {
            last.is_doubtful = true;
            last.text = format!("{}; {why}", last.text);
        }
    }

    /// Applies the rows of a section to its keys, and states the defaults of keys that are missing.
    pub(crate) fn section(&mut self, section: &str, path: &str, keys: &[Branch], target: &Target) {
        for branch in keys {
            let path = joined(path, &branch.name);
            let Some(key) = ForeignKey::find(self.keys, section, &branch.name) else {
                let text = format!("{} has no key of this name that is known here", self.pooler);
                self.say(Some(&branch.place), &path, Verdict::Unused, text);
                continue;
            };
            self.key(key, &path, branch, target);
        }
        self.defaults(section, path, keys, target);
    }

    /// States the defaults of keys that a section does not have.
    pub(crate) fn defaults(&mut self, section: &str, path: &str, keys: &[Branch], target: &Target) {
        let given = |name: &str| keys.iter().any(|branch| branch.name == name);
        for key in self.keys {
            if key.section != section || given(key.name) {
                continue;
            }
            match key.meaning {
                Meaning::Becomes(settings, unit, Some(default)) => {
                    let text = units::converted(unit, &Fruit::Text(default.into()));
                    let mut stated = Vec::new();
                    for setting in settings {
                        if self.draft.text(target, setting).is_none() {
                            let text = text.clone().unwrap_or_default();
                            self.draft.set(target, setting, text);
                            stated.extend(self.draft.shown(target, setting));
                        }
                    }
                    if !stated.is_empty() {
                        let key = joined(path, key.name);
                        self.say(None, &key, Verdict::Default, stated.join(", "));
                    }
                }
                Meaning::Lifted(setting, unit, default) => {
                    let default = default
                        .and_then(|default| units::converted(unit, &Fruit::Text(default.into())));
                    let global = self.draft.text(&Target::Globals, setting);
                    let ours = table::find(Scope::Global, setting).and_then(|it| it.default);
                    let text = default.as_deref().or(global).or(ours).unwrap_or_default();
                    let text = text.to_owned();
                    self.lifted.push(LiftedValue {
                        setting,
                        text,
                        from: None,
                    });
                }
                _ => {}
            }
        }
    }

    fn key(&mut self, key: &ForeignKey, path: &str, branch: &Branch, target: &Target) {
        let place = Some(&branch.place);
        let is_off = is_off(&branch.fruit);
        match key.meaning {
            Meaning::Section => {}
            Meaning::Becomes(settings, unit, _) => {
                let Some(text) = units::converted(unit, &branch.fruit) else {
                    return self.unread(path, branch);
                };
                let mut shown = Vec::new();
                for setting in settings {
                    let text = self.off(setting, &branch.fruit, text.clone());
                    if self.draft.set(target, setting, &text) {
                        shown.extend(self.draft.shown(target, setting));
                    }
                }
                if shown.is_empty() && is_off {
                    let text = "switched off, and not here either";
                    return self.say(place, path, Verdict::Unused, text);
                }
                if shown.is_empty() {
                    let names = settings.join(", ");
                    let text =
                        format!("{names} can't stand here: set it in [howdah], or for users");
                    return self.say(place, path, Verdict::Lost, text);
                }
                let is_same = *settings == [key.name] && matches!(unit, Unit::Plain | Unit::Flag);
                let verdict = if is_same {
                    Verdict::Same
                } else {
                    Verdict::Mapped
                };
                self.say(place, path, verdict, shown.join(", "));
                if let Some(why) = units::doubt(settings, &text) {
                    self.doubts(&why);
                }
            }
            Meaning::Lifted(setting, unit, _) => {
                let Some(text) = units::converted(unit, &branch.fruit) else {
                    return self.unread(path, branch);
                };
                let text = self.off(setting, &branch.fruit, text);
                let from = Some((branch.place.clone(), path.to_owned()));
                self.lifted.push(LiftedValue {
                    setting,
                    text,
                    from,
                });
            }
            Meaning::Read(text) => self.say(place, path, Verdict::Mapped, text),
            Meaning::Nothing(why) => self.say(place, path, Verdict::Unused, why),
            Meaning::Lost(..) | Meaning::Decides(..) | Meaning::Sharding if is_off => {
                let text = "switched off, and not here either";
                self.say(place, path, Verdict::Unused, text);
            }
            Meaning::Lost(consequence, remedy) => {
                self.say(place, path, Verdict::Lost, said(consequence, remedy));
            }
            Meaning::Decides(consequence, remedy) => {
                self.decides(place, path, said(consequence, remedy));
            }
            Meaning::Sharding => self.decides(place, path, said(SHARDING.0, SHARDING.1)),
        }
    }

    /// A server whose lifetime is 0 serves once here, so a lifetime that is switched off there is a long one.
    fn off(&self, setting: &str, value: &Fruit, text: String) -> String {
        let is_off = self.pooler == "Odyssey" || value.number() != Some(0.0);
        if setting == "server_lifetime" && text == "0" && is_off {
            return "1000000000".into();
        }
        text
    }

    fn unread(&mut self, path: &str, branch: &Branch) {
        let text = "its value has another type than the key; left out";
        self.say(Some(&branch.place), path, Verdict::Lost, text);
    }

    /// Adds settings of PostgreSQL with which servers' sessions start.
    pub(crate) fn parameters(&mut self, target: &Target, path: &str, table: &Fruit) {
        for parameter in table.table() {
            let value = match &parameter.fruit {
                Fruit::Flag(flag) => if *flag { "on" } else { "off" }.into(),
                other => other.text().unwrap_or_default(),
            };
            let name = &parameter.name;
            let refused = ["user", "database", "replication", "options"];
            if refused.contains(&name.as_str()) || name.starts_with("_pq_.") || name.contains('=') {
                let text = "servers' sessions can't start with this setting";
                self.say(
                    Some(&parameter.place),
                    &joined(path, name),
                    Verdict::Lost,
                    text,
                );
            } else {
                self.draft.parameter(target, name, value);
            }
        }
    }

    /// States what a pooler without a unix socket and without a limit on clients does.
    pub(crate) fn without_limits(&mut self) {
        for (setting, text) in [("unix_socket_dir", ""), ("max_client_conn", "0")] {
            self.draft.set(&Target::Globals, setting, text);
            let shown = self
                .draft
                .shown(&Target::Globals, setting)
                .unwrap_or_default();
            self.say(None, setting, Verdict::Default, shown);
        }
    }

    /// Sets a number that is global here to the largest of all pools.
    pub(crate) fn raise(&mut self, setting: &str, number: f64) {
        let set = self.draft.text(&Target::Globals, setting);
        let set = set.and_then(|text| text.parse::<f64>().ok());
        if set.is_none_or(|set| set < number) {
            self.draft
                .set(&Target::Globals, setting, units::decimal(number));
        }
    }

    /// Sets what is global here and belonged to pools there: the value of all, or the largest.
    pub(crate) fn lift(&mut self) {
        let lifted = std::mem::take(&mut self.lifted);
        let mut settings: Vec<&str> = lifted.iter().map(|value| value.setting).collect();
        settings.dedup();
        settings.sort_unstable();
        settings.dedup();
        for setting in settings {
            let all: Vec<_> = lifted
                .iter()
                .filter(|value| value.setting == setting)
                .collect();
            let is_timeout = setting.ends_with("idle_timeout");
            let size = |text: &str| match text.parse::<f64>() {
                // 0 switches the timeout off.
                Ok(0.0) if is_timeout => f64::INFINITY,
                Ok(number) => number,
                Err(_) => -1.0,
            };
            let of_all = self.draft.text(&Target::Globals, setting).map(String::from);
            let texts = all.iter().map(|value| value.text.clone()).chain(of_all);
            let Some(largest) = texts.max_by(|a, b| size(a).total_cmp(&size(b))) else {
                continue;
            };
            let ours = table::find(Scope::Global, setting).and_then(|it| it.default);
            let is_unsaid = all.iter().all(|value| value.from.is_none());
            let is_set = self.draft.text(&Target::Globals, setting) == Some(&largest);
            if is_unsaid && (is_set || ours == Some(&largest)) {
                continue;
            }
            self.draft.set(&Target::Globals, setting, &largest);
            let shown = self
                .draft
                .shown(&Target::Globals, setting)
                .unwrap_or_default();
            if is_unsaid {
                self.say(None, setting, Verdict::Default, shown.clone());
            }
            for value in all {
                let Some((place, path)) = &value.from else {
                    continue;
                };
                if value.text == largest {
                    let text = format!("{shown}, for all pools");
                    self.say(Some(place), path, Verdict::Mapped, text);
                    if let Some(why) = units::doubt(&[setting], &largest) {
                        self.doubts(&why);
                    }
                } else {
                    let text = format!(
                        "{setting} counts for all pools here, and the largest value was taken: {shown}"
                    );
                    self.say(Some(place), path, Verdict::Lost, text);
                }
            }
        }
    }
}

/// True for a value that switches its key off.
fn is_off(fruit: &Fruit) -> bool {
    match fruit {
        Fruit::Flag(flag) => !flag,
        Fruit::Integer(number) => *number == 0,
        Fruit::Text(text) => {
            text.is_empty() || ["disabled", "off", "none"].contains(&text.as_str())
        }
        Fruit::List(all) => all.is_empty(),
        Fruit::Table(all) => {
            let enabled = all.iter().find(|branch| branch.name == "enabled");
            all.is_empty() || enabled.is_some_and(|branch| is_off(&branch.fruit))
        }
        Fruit::Nothing => true,
        Fruit::Fraction(_) => false,
    }
}

/// A text of a file as it may be shown: no character of it moves the cursor or begins a line.
pub(crate) fn printable(text: &str) -> String {
    let chars = text.chars().flat_map(|c| {
        let is_control =
            c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}');
        let escaped = is_control.then(|| c.escape_default());
        let plain = (!is_control).then_some(c);
        escaped.into_iter().flatten().chain(plain)
    });
    chars.collect()
}

/// A key behind its section.
pub(crate) fn joined(path: &str, name: &str) -> String {
    match path {
        "" => name.into(),
        path => format!("{path}.{name}"),
    }
}

/// A consequence and its remedy.
pub(crate) fn said(consequence: &str, remedy: &str) -> String {
    match remedy {
        "" => consequence.into(),
        remedy => format!("{consequence}: {remedy}"),
    }
}
