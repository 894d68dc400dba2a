//! The admin console: what it is asked, and what it says.

use std::time::Instant;

use postgres::{Client, SimpleQueryMessage};

use crate::table::Table;
use crate::target::{Target, told};

/// A connection to the console.
pub(crate) struct Console {
    client: Client,
    version: String,
    /// The end of the names of SHOW POOLS, CLIENTS and SERVERS with Howdah's columns; empty for
    /// PgBouncer, which has none of them.
    extended: &'static str,
    /// It knows SHOW HOLDERS and SHOW QUERIES: PgBouncer does not.
    has_holders: bool,
    has_queries: bool,
    has_verdict: bool,
}

/// What the console said at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub at: Instant,
    pub version: String,
    pub pools: Table,
    pub stats: Table,
    pub clients: Table,
    pub servers: Table,
    /// Empty where the pooler has no such command.
    pub holders: Table,
    /// Likewise, or if queries are not counted.
    pub queries: Table,
    pub databases: Table,
    /// What is wrong, the worst first; likewise empty.
    pub verdicts: Table,
}

impl Console {
    /// Connects.
    pub fn open(target: &mut Target) -> Result<Console, String> {
        let client = target.connect()?;
        let mut console = Console {
            client,
            version: String::new(),
            extended: "",
            has_holders: true,
            has_queries: true,
            has_verdict: true,
        };
        let version = match console.ask("SHOW VERSION") {
            Ok(version) if !version.value(0, "version").is_empty() => version,
            answer => return Err(console.what_else(target, answer.err())),
        };
        console.version = version.value(0, "version").to_string();
        if console.ask("SHOW POOLS_EXTENDED").is_ok() {
            console.extended = "_EXTENDED";
        }
        console.has_holders = console.ask("SHOW HOLDERS").is_ok();
        console.has_verdict = console.ask("SHOW VERDICT").is_ok();
        console.has_queries = console.ask("SHOW QUERIES").is_ok();
        Ok(console)
    }

    /// What is at the other end, if it is no console.
    fn what_else(&mut self, target: &Target, why: Option<String>) -> String {
        let (name, database) = (target.name(), target.database());
        match self.ask("SHOW server_version") {
            Ok(version) => format!(
                "{name}: the database {database} of PostgreSQL {}, no console: name the database \
                 pgbouncer, at the pooler's port",
                version.value(0, "server_version")
            ),
            Err(_) => format!(
                "{name}: the database {database} is no console ({}): name the database pgbouncer",
                why.unwrap_or_else(|| "it has no version".into())
            ),
        }
    }

    /// Asks for all that is shown.
    pub fn look(&mut self) -> Result<Snapshot, String> {
        let holders = if self.has_holders {
            self.ask("SHOW HOLDERS")?
        } else {
            Table::default()
        };
        let verdicts = if self.has_verdict {
            self.ask("SHOW VERDICT")?
        } else {
            Table::default()
        };
        let queries = if self.has_queries {
            self.ask("SHOW QUERIES")?
        } else {
            Table::default()
        };
        let extended = self.extended;
        Ok(Snapshot {
            at: Instant::now(),
            version: self.version.clone(),
            pools: self.ask(&format!("SHOW POOLS{extended}"))?,
            stats: self.ask("SHOW STATS")?,
            clients: self.ask(&format!("SHOW CLIENTS{extended}"))?,
            servers: self.ask(&format!("SHOW SERVERS{extended}"))?,
            databases: self.ask("SHOW DATABASES")?,
            holders,
            queries,
            verdicts,
        })
    }

    fn ask(&mut self, command: &str) -> Result<Table, String> {
        let said = self.client.simple_query(command);
        let mut table = Table::default();
        for message in said.map_err(|why| told(&why))? {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    table.columns = columns.iter().map(|c| c.name().to_string()).collect();
                }
                SimpleQueryMessage::Row(row) => {
                    let value = |at| row.get(at).unwrap_or("").to_string();
                    table.rows.push((0..row.len()).map(value).collect());
                }
                _ => {}
            }
        }
        Ok(table)
    }
}
