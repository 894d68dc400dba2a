//! The command line.

use crate::behaviours::{ALL, Behaviour, When};
use crate::url::Url;

/// A self-checking load for PostgreSQL and everything that claims to speak like it.
///
/// Exits with 0 if every reply was what PostgreSQL gives, 1 if any differed, 2 if it could not run.
#[derive(Debug, clap::Parser)]
#[command(name = "howdah-load", version)]
pub struct Options {
    /// Where to connect: postgres://user:password@host:port/database (host may be %2Ftmp for a
    /// unix socket)
    #[arg(long)]
    pub url: Url,

    /// Make the schema howdah_load first (goes to --prepare-url if given, else to --url)
    #[arg(long)]
    pub prepare: bool,

    /// Where to prepare and to check the tables at the end, if not at --url
    #[arg(long)]
    pub prepare_url: Option<Url>,

    /// How many clients
    #[arg(long, default_value_t = 100)]
    pub clients: usize,

    /// How long the mix runs, in seconds; with --each, how long each behaviour runs
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,

    /// How long the mix runs, in minutes (instead of --seconds)
    #[arg(long)]
    pub minutes: Option<f64>,

    /// Run every behaviour alone, one after the other
    #[arg(long)]
    pub each: bool,

    /// Only these behaviours
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,

    /// All but these behaviours
    #[arg(long, value_delimiter = ',')]
    pub without: Vec<String>,

    /// Other weights in the mix, as name=weight
    #[arg(long, value_delimiter = ',')]
    pub weights: Vec<String>,

    /// The seed of every choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Seconds after which a reply that is not complete counts as a hang
    #[arg(long, default_value_t = 20.0)]
    pub hang: f64,

    /// How many differences of each behaviour are printed in full
    #[arg(long, default_value_t = 2)]
    pub show: usize,

    /// Somebody breaks connections meanwhile: errors and ends that no PostgreSQL at work would give
    /// are counted, but are no difference; wrong replies and hangs are
    #[arg(long)]
    pub faults: bool,

    /// Sessions must keep what they have, and see nothing of others': with settings that nobody
    /// reports, roles, temporary tables, locks, cursors, SQL's PREPARE, sequences and LISTEN
    #[arg(long)]
    pub state: bool,

    /// Milliseconds a client rests after each operation
    #[arg(long, default_value_t = 0.0)]
    pub pause: f64,

    /// Ask for protocol 3.2 at login
    #[arg(long)]
    pub protocol_3_2: bool,

    /// Go through TLS (to --url; the certificate is not checked)
    #[arg(long)]
    pub tls: bool,

    /// List the behaviours and leave
    #[arg(long)]
    pub list: bool,
}

/// With temporary tables of many clients, their DDL makes PostgreSQL discard plans and read the
/// constants of statements anew.
const NOT_BESIDE_DDL: &str = "constants";

impl Options {
    /// The chosen behaviours with their weights in the mix.
    pub fn behaviours(&self) -> Result<Vec<(&'static Behaviour, usize)>, String> {
        let known = |name: &str| {
            let found = ALL.iter().find(|behaviour| behaviour.name == name);
            found.ok_or_else(|| format!("there is no behaviour {name:?}; see --list"))
        };
        for name in self.only.iter().chain(&self.without) {
            known(name)?;
        }
        let mut weights = Vec::new();
        for pair in &self.weights {
            let (name, weight) = pair.split_once('=').ok_or("--weights wants name=weight")?;
            let weight = weight
                .parse()
                .map_err(|_| format!("{weight:?} is no weight"))?;
            weights.push((known(name)?.name, weight));
        }
        let weight = |behaviour: &Behaviour| {
            let given = weights.iter().find(|(name, _)| *name == behaviour.name);
            given.map_or(behaviour.weight, |(_, weight)| *weight)
        };
        let has =
            |list: &[String], behaviour: &Behaviour| list.iter().any(|name| name == behaviour.name);
        let chosen: Vec<_> = ALL
            .iter()
            .filter(|behaviour| self.only.is_empty() || has(&self.only, behaviour))
            .filter(|behaviour| match behaviour.when {
                When::Always => true,
                When::State => self.state || has(&self.only, behaviour),
                When::Named => has(&self.only, behaviour),
            })
            .filter(|behaviour| !(self.state && behaviour.name == NOT_BESIDE_DDL))
            .filter(|behaviour| !has(&self.without, behaviour))
            .map(|behaviour| (behaviour, weight(behaviour)))
            .filter(|(_, weight)| *weight > 0)
            .collect();
        if chosen.is_empty() {
            Err("no behaviour is left".to_owned())
        } else {
            Ok(chosen)
        }
    }
}
