//! The command line of `howdah top`.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::prelude::*;

use crate::target::{Kind, Target, environment};

/// What `howdah top --help` prints.
pub const USAGE: &str = "\
Watches a pooler over its admin console.

Usage:
  howdah top [OPTION]... [URL]

URL is a libpq connection string, as postgresql://admin@127.0.0.1:6432/pgbouncer. What is missing
comes from PGHOST, PGPORT, PGUSER, PGPASSWORD, and PGPASSFILE or ~/.pgpass. Without a host, the
unix socket of port 6432 in /run/howdah, /var/run/postgresql or /tmp is used: the system user that
runs the pooler needs no password there. In /tmp a socket counts only if it is yours or root's.
sslmode, sslrootcert, sslcert and sslkey mean what they mean to psql.

Options:
      --interval=SECONDS  how often to look (1)
      --once              look once, print and exit
      --json              print as JSON; with --once
  -h, --help              show this help and exit

Keys: 1 pools, 2 clients, 3 servers, 4 holders, 5 queries, Tab the next; arrows move, Enter goes
into a pool, Esc back; < and > choose the column to sort by, r turns the order; / filters; space pauses; q quits.
";

/// What was asked for.
pub(crate) struct Arguments {
    pub target: Target,
    pub interval: Duration,
    pub once: bool,
    pub json: bool,
}

impl Arguments {
    /// Reads them; none if help was asked for.
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Arguments>, String> {
        let mut parser = lexopt::Parser::from_args(arguments);
        let (mut url, mut interval) = (None, Duration::from_secs(1));
        let (mut once, mut json) = (false, false);
        while let Some(argument) = parser.next().map_err(|why| why.to_string())? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("once") => once = true,
                Long("json") => json = true,
                Long("interval") => {
                    let value = parser.value().map_err(|why| why.to_string())?;
                    interval = seconds(&value.to_string_lossy())?;
                }
                Value(value) if url.is_none() => {
                    url = Some(value.string().map_err(|why| why.to_string())?);
                }
                other => return Err(other.unexpected().to_string()),
            }
        }
        if json && !once {
            return Err("--json needs --once".into());
        }
        let url = url.as_deref().unwrap_or("");
        let mut target = Target::read(url, Kind::Console, &environment)?;
        target.application_name("howdah top");
        Ok(Some(Arguments {
            target,
            interval,
            once,
            json,
        }))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().unwrap_or(0.0);
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!(
            "--interval={text}: write seconds, from 0.1 to 3600"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_arguments_are_refused() {
        for (line, said) in [
            ("--json", "--json needs --once"),
            ("--interval=0", "write seconds"),
            ("--interval=nan", "write seconds"),
            ("a b", "unexpected argument"),
            ("--frob", "invalid option"),
        ] {
            let words = line.split(' ').map(OsString::from);
            let seen = Arguments::read(words).err().unwrap_or_default();
            assert!(seen.contains(said), "{line}: {seen}");
        }
    }
}
