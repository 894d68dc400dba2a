//! `--container`: where the configuration of a container is. The image starts Howdah so.

use std::path::Path;

use howdah_pooler::config::Globals;
use howdah_pooler::note::Level;
use nix::unistd::Uid;

use crate::cli::Arguments;
use crate::log::Log;

/// The files that may be mounted; the first that is there counts. The last two are those of PgBouncer's
/// images.
pub const MOUNTED: [&str; 4] = [
    "/etc/howdah/howdah.toml",
    "/etc/howdah/howdah.ini",
    "/etc/pgbouncer/pgbouncer.ini",
    "/bitnami/pgbouncer/conf/pgbouncer.ini",
];

/// The arguments with the place of the configuration: a mounted file, or else the environment.
pub fn placed(mut arguments: Arguments) -> Arguments {
    if arguments.container {
        let mounted = MOUNTED.into_iter().find(|path| Path::new(path).is_file());
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
