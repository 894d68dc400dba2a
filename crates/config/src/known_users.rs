//! Whom Howdah knows without asking PostgreSQL: the users of the auth_file, and those whose password stands
//! in the configuration.

use std::sync::Arc;

use howdah_auth::Secret;

use super::resolve::{ConfigReader, user};
use super::written::NO_TEXT;
use super::{doubts, userlist};

/// What is odd about a user of the auth_file, and what helps.
type Doubt = (&'static str, &'static str);

impl ConfigReader {
    pub(super) fn read_users(&mut self, read_file: &mut dyn FnMut(&str) -> Result<String, String>) {
        let path = self.config.globals.auth_file.clone();
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return;
        };
        let text = match read_file(&path) {
            Ok(text) => text,
            Err(why) => {
                self.config.auth_file_missing = true;
                return self.warn_broken(format!("could not open auth_file {path}: {why}"));
            }
        };
        let userlist::Users {
            users,
            lines,
            broken,
            skipped,
        } = userlist::parse(&text);
        for line in skipped {
            self.warn(format!(
                "auth file ({path}:{line}): what stands between the user and the password is skipped: \
                 write a blank there"
            ));
        }
        self.config.auth_file_broken = broken.is_some() || text.contains(NO_TEXT);
        if let Some((line, why)) = broken {
            self.warn_broken(format!(
                "broken auth file ({path}:{line}): {why}; nothing from that line on was read"
            ));
        }
        for (number, line) in (1..).zip(text.lines()) {
            if line.contains(NO_TEXT) && !line.starts_with(';') {
                self.warn_broken(format!(
                    "broken auth file ({path}:{number}): bytes that are not UTF-8; a user with \
                     them is left out: write the file in UTF-8"
                ));
            }
        }
        let readable =
            |name: &str, secret: &str| !name.contains(NO_TEXT) && !secret.contains(NO_TEXT);
        let auth = self.config.globals.auth_type;
        let mut doubtful = Vec::new();
        for ((name, secret), line) in users.into_iter().zip(lines) {
            if !readable(&name, &secret) {
                continue;
            }
            let entry = self.config.users.entry(name.clone());
            let user = Arc::make_mut(entry.or_insert_with(|| user(&name)));
            if user.listed {
                let twice = ("stands there twice", "the last line counts");
                doubtful.push((twice, line, user.name.clone()));
            }
            user.listed = true;
            user.secret = (!secret.is_empty()).then(|| Secret::classify(secret));
            let secret = user.secret.as_ref();
            if let Some(doubt) = secret.and_then(|secret| doubts::of_secret(secret, auth)) {
                doubtful.push((doubt, line, user.name.clone()));
            }
        }
        self.warn_of_users(&path, doubtful);
    }

    /// Users whose password stands in the configuration need no line in the auth_file.
    pub(super) fn take_passwords(&mut self) {
        let auth = self.config.globals.auth_type;
        let mut doubtful = Vec::new();
        let config = &mut self.config;
        let databases = config.databases.values_mut().chain(&mut config.fallback);
        let mut members: Vec<_> = databases
            .filter(|database| !database.users.is_empty())
            .flat_map(|database| Arc::make_mut(database).users.values_mut())
            .collect();
        members.extend(config.users.values_mut());
        for user in members {
            let Some(password) = user.password.clone() else {
                continue;
            };
            let user = Arc::make_mut(user);
            if user.listed {
                let twice = "a password here and a line in auth_file: the password counts";
                doubtful.push(format!("user \"{}\" has {twice}", user.name));
            }
            user.listed = true;
            let secret = (!password.is_empty()).then(|| Secret::classify(password.to_string()));
            user.secret = secret;
            user.second = password.second().map(|text| Secret::Plain(text.into()));
            let doubt = user.secret.as_ref();
            if let Some((what, remedy)) = doubt.and_then(|it| doubts::of_secret(it, auth)) {
                doubtful.push(format!(
                    "user \"{}\": the password {what}: {remedy}",
                    user.name
                ));
            }
        }
        config.note_secrets();
        doubtful.sort();
        doubtful.into_iter().for_each(|text| self.warn(text));
    }

    /// One warning for each kind of doubt, with the first user.
    fn warn_of_users(&mut self, path: &str, mut doubtful: Vec<(Doubt, u32, String)>) {
        while let Some((doubt, line, name)) = doubtful.first().cloned() {
            let all = doubtful.len();
            doubtful.retain(|(other, ..)| *other != doubt);
            let (what, remedy) = doubt;
            let more = match all - doubtful.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more like it"),
            };
            self.warn(format!(
                "auth file ({path}:{line}): user \"{name}\"{more} {what}: {remedy}"
            ));
        }
    }
}
