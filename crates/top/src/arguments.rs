//! The command line of `howdah top`.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::prelude::*;
use postgres::Config;

use crate::tls::Tls;

/// What `howdah top --help` prints.
pub const USAGE: &str = "\
Watches a pooler over its admin console.

Usage:
  howdah top [OPTION]... [URL]

URL is a libpq connection string, as postgresql://admin@127.0.0.1:6432/pgbouncer; what is
missing comes from PGHOST, PGPORT, PGUSER, PGPASSWORD, else 127.0.0.1, 6432 and your name.
A URL without a port means 5432, as everywhere. sslmode, sslrootcert, sslcert and sslkey mean what
they mean to psql.

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
    pub target: Config,
    pub tls: Tls,
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
        let variable = |name: &str| std::env::var(name).ok();
        let (url, tls) = Tls::read(url.as_deref().unwrap_or(""), variable)?;
        let mut target = target(Some(&url), variable)?;
        target.ssl_mode(tls.mode);
        Ok(Some(Arguments {
            target,
            tls,
            interval,
            once,
            json,
        }))
    }

    /// Where it looks, for people.
    pub fn target_name(&self) -> String {
        let host = match self.target.get_hosts().first() {
            Some(postgres::config::Host::Tcp(name)) => name.clone(),
            Some(postgres::config::Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        let port = self.target.get_ports().first().copied().unwrap_or(6432);
        format!("{host}:{port}")
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

fn target(url: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Config, String> {
    let mut config: Config = url
        .unwrap_or("")
        .parse()
        .map_err(|why: postgres::Error| format!("{}: {why}", url.unwrap_or("")))?;
    if config.get_hosts().is_empty() {
        config.host(&variable("PGHOST").unwrap_or_else(|| "127.0.0.1".into()));
    }
    if config.get_ports().is_empty() {
        let port = variable("PGPORT").unwrap_or_else(|| "6432".into());
        let port = port
            .parse()
            .map_err(|_| format!("PGPORT={port} is no port"))?;
        config.port(port);
    }
    if config.get_user().is_none() {
        let user = variable("PGUSER").or_else(|| variable("USER"));
        config.user(&user.ok_or("name a user: postgresql://admin@host:6432/")?);
    }
    if config.get_password().is_none()
        && let Some(password) = variable("PGPASSWORD")
    {
        config.password(password);
    }
    if config.get_dbname().is_none_or(str::is_empty) {
        config.dbname("pgbouncer");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    config.application_name("howdah top");
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_from_the_environment() {
        let variable = |name: &str| (name == "PGPORT").then(|| "7000".to_string());
        let config = target(Some("host=db1 user=admin"), variable).unwrap();
        assert_eq!(config.get_ports(), [7000]);
        assert_eq!(config.get_dbname(), Some("pgbouncer"));
        let user = |name: &str| (name == "USER").then(|| "me".to_string());
        let config = target(None, user).unwrap();
        assert_eq!(
            (config.get_user(), config.get_ports()),
            (Some("me"), &[6432][..])
        );
        assert!(target(None, |_| None).unwrap_err().contains("name a user"));
        assert!(target(Some("host=x port=y"), |_| None).is_err());
    }

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
