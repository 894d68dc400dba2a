//! `--container`: where the configuration of a container is. The image starts Howdah so.

use std::io::ErrorKind;
use std::path::Path;

use howdah_pooler::config::{Config, Globals};
use howdah_pooler::note::Level;
use nix::unistd::Uid;

use crate::cli::Arguments;
use crate::log::Log;
use crate::machine::Machine;

/// The files that may be mounted; the first that is there counts. The last two are those of PgBouncer's
/// images.
pub const MOUNTED: [&str; 4] = [
    "/etc/howdah/howdah.toml",
    "/etc/howdah/howdah.ini",
    "/etc/pgbouncer/pgbouncer.ini",
    "/bitnami/pgbouncer/conf/pgbouncer.ini",
];

/// The arguments with the place of the configuration: a mounted file, or else the environment. What is there
/// and can't be read counts: a missing file that was to be mounted is an empty folder.
pub fn placed(mut arguments: Arguments) -> Arguments {
    if arguments.container {
        let is_there = |path: &&str| match Path::new(path).metadata() {
            Ok(_) => true,
            Err(why) => !matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        let mounted = MOUNTED.into_iter().find(is_there);
        arguments.environment = mounted.is_none();
        arguments.config = mounted.unwrap_or_default().into();
    }
    arguments
}

/// The user to become. In a container that has chosen its user, a mounted file may still name the user of
/// PgBouncer's image.
pub fn user_of<'a>(arguments: &Arguments, globals: &'a Globals, log: &Log) -> Option<&'a str> {
    let name = globals.user.as_deref().filter(|name| !name.is_empty())?;
    if arguments.container && !Uid::effective().is_root() {
        let text = format!("user {name} is not set: the container has its user already");
        log.say(Level::Log, text);
        return None;
    }
    Some(name)
}

/// Says where the configuration of a container is, and warns of variables that mean nothing beside a file.
pub fn tell(arguments: &Arguments, log: &Log) {
    if !arguments.container {
        return;
    }
    if arguments.environment {
        return log.say(Level::Log, "the configuration is in variables");
    }
    let file = &arguments.config;
    log.say(Level::Log, format!("the configuration is {file}"));
    if let Some(variable) = Config::image_variable(&mut Machine::default()) {
        let text = format!(
            "{variable} and its like mean nothing beside {file}: write databases and users there"
        );
        log.say(Level::Warning, text);
    }
}
