//! `docs/moving-from-others.md`, printed from the tables of keys.

use std::fmt::Write;

use crate::format::Format;
use crate::keys::{ForeignKey, Meaning, SHARDING};

const HEAD: &str = "\
# Moving from PgCat, PgDog, Odyssey or PgDoorman

This page is printed by `howdah import --keys`.

```
$ howdah import pgcat.toml --out=/etc/howdah
PgCat, pgcat.toml: 1 lost, 20 mapped, 1 same, 3 without effect, 8 defaults stated
...
$ howdah --check --connect /etc/howdah/howdah.toml
$ howdah /etc/howdah/howdah.toml
```

`howdah import` reads the files of another pooler, and writes [howdah.toml](howdah-toml.md), and \
`secrets.toml` with mode 0600, which the first includes. Give both to the user that Howdah runs as \
(`chown howdah`). No file is overwritten. PgBouncer's files need no \
import: [moving-from-pgbouncer.md](moving-from-pgbouncer.md).

1. [The command](#the-command)
2. [What stays as it was](#what-stays-as-it-was)
3. [What to look at](#what-to-look-at)
4. [Signals and console](#signals-and-console)
5. [PgCat](#pgcat)
6. [PgDog](#pgdog)
7. [Odyssey](#odyssey)
8. [PgDoorman](#pgdoorman)

## The command

| pooler | command |
|---|---|
| PgCat | `howdah import pgcat.toml` |
| PgDog | `howdah import pgdog.toml users.toml` |
| Odyssey | `howdah import odyssey.conf` |
| PgDoorman | `howdah import pg_doorman.yaml` (or `.toml`) |

The content tells whose a file is; `--from=pgcat`, `pgdog`, `odyssey` or `pg_doorman` says so. Files that are \
included are read, too. Variables of the environment are not (`PGDOG_...`). `--out=FOLDER` says where to write. \
The report names each key with its place, what became of it, and why, and begins with what was lost; \
`--markdown` and `--json` print it in another form. The same files give the same output.

| exit code | means |
|---|---|
| 0 | done |
| 1 | done, but something was lost that decides who gets in or where writes go: read the beginning of the report |
| 2 | nothing was written: a file can't be read, or one would be overwritten |

An unknown key stops no import: many files have keys that their pooler ignores.

## What stays as it was

- **Who may log in where.** `users_only` keeps everybody out of a database but its users, each with the password \
for that database. If users log in in different ways, rules in `auth_hba` say so.
- **Defaults.** Where the other pooler's default is not Howdah's, the output states it: the pool mode, waits, \
lifetimes, no limit on clients (`max_client_conn = 0`), no unix socket.
- **Sizes.** PgCat, PgDog and Odyssey count them for each host. So does Howdah where hosts have roles; else the \
size is multiplied by the number of hosts.
- **Whom servers log in as**: `server_user` and `server_password`, also for one user of a database.

## What to look at

- **Roles are found out.** With `target_session_attrs`, Howdah asks each host whether it is the primary, and \
follows a promotion. Give it a user that may ask (`host_check_user`): [hosts.md](hosts.md). Roles need physical \
standbys of one primary; a logical replica is not one.
- **Reads** that go to standbys show all that their client has written (`read_consistency`): [reads.md](reads.md).
- **SCRAM.** Users with a clear password log in by SCRAM-SHA-256. A driver that knows MD5 only needs \
`auth_type = \"md5\"`.
- **Commands in SQL** of the other pooler (`SET SERVER ROLE`, `SET SHARD`, comments with `pgdog_role`) mean \
nothing here. `howdah.route` chooses where reads go.
- **Sharding** is not imported yet: databases with several shards are left out, and the exit code is 1.
- **Times** that look as if another unit was meant are named in the report: `connect_timeout = 10` is 10 \
milliseconds in PgCat.

## Signals and console

| | Howdah | watch out |
|---|---|---|
| new settings | SIGHUP, or `RELOAD` | |
| orderly end | SIGINT: when transactions are over. SIGTERM: when all clients have left; send it twice, or SIGQUIT, to end at once | PgCat's and PgDoorman's SIGTERM end at once |
| upgrade in place | `systemctl reload howdah`, or `howdah -R FILE` | PgDoorman and Odyssey upgrade by SIGUSR2, which means RESUME here |
| console | database `pgbouncer` (or `howdah`), users in `admin_users` | PgDog's database is `admin`, Odyssey's `console`, PgCat's `pgcat` |
| check the file | `howdah --check FILE` | |

`SHOW POOLS`, `SHOW CLIENTS` and the like have PgBouncer's columns. Dashboards made for `pgcat_...`, \
`pg_doorman_...` or PgDog's metrics need [Howdah's metrics](metrics.md) instead; a ready dashboard is \
`packaging/grafana-dashboard.json`.
";

/// What stands above the table of a pooler.
fn introduction(format: Format) -> &'static str {
    match format {
        Format::PgCat => {
            "As of PgCat 1.3.0. Times there are in milliseconds, but for `ban_time` and `dns_max_ttl`. \
             `default_role = primary` and `replica` name the hosts with that role alone; `any` names all of \
             them, and clients get one by chance, as before."
        }
        Format::PgDog => {
            "As of PgDog's documentation of August 2026. Times there are in milliseconds. Keys of the sections \
             of sharding are not imported."
        }
        Format::Odyssey => {
            "As of Odyssey 1.5. `database default` becomes `[databases.\"*\"]`, and `user default` what the \
             database itself says. The users of a database are served by one storage here: rules with another \
             storage are left out, and the exit code is 1."
        }
        Format::PgDoorman => {
            "As of PgDoorman 3.10. Times there are in milliseconds, or have a unit. YAML with anchors is refused."
        }
    }
}

/// The page.
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    for format in Format::ALL {
        let _ = write!(out, "\n## {}\n\n{}\n", format.name(), introduction(format));
        let mut section = None;
        for key in format.keys() {
            if key.meaning_is_section() {
                continue;
            }
            if section != Some(key.section) {
                section = Some(key.section);
                let _ = write!(out, "\n### {}\n\n", heading(format, key.section));
                out.push_str("| key | their default, if not ours | here |\n|---|---|---|\n");
            }
            let default = key
                .default()
                .map_or(String::new(), |default| match default {
                    "" => "nothing".into(),
                    default => format!("`{default}`"),
                });
            let _ = writeln!(out, "| `{}` | {default} | {} |", key.name, here(key));
        }
    }
    out
}

fn heading(format: Format, section: &str) -> String {
    let of = format.name();
    match (format, section) {
        (Format::Odyssey, "") => "Odyssey: global options, other blocks".into(),
        (Format::Odyssey, "user") => "Odyssey: `database` and `user`".into(),
        (_, "") => format!("{of}: other sections"),
        (_, section) => format!("{of}: `{section}`"),
    }
}

impl ForeignKey {
    fn meaning_is_section(&self) -> bool {
        matches!(self.meaning, Meaning::Section)
    }

    fn default(&self) -> Option<&'static str> {
        match self.meaning {
            Meaning::Becomes(_, _, default) | Meaning::Lifted(_, _, default) => default,
            _ => None,
        }
    }
}

/// What becomes of a key, in a cell.
fn here(key: &ForeignKey) -> String {
    let settings = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    let text = match key.meaning {
        Meaning::Becomes(names, ..) => settings(names),
        Meaning::Lifted(name, ..) => format!("`{name}`, for all pools: the largest value"),
        Meaning::Read(text) => text.into(),
        Meaning::Section => String::new(),
        Meaning::Lost(consequence, remedy) => lost("lost", consequence, remedy),
        Meaning::Decides(consequence, remedy) => lost("**lost**", consequence, remedy),
        Meaning::Sharding => lost("**lost**", SHARDING.0, SHARDING.1),
        Meaning::Nothing(why) => format!("not needed: {why}"),
    };
    text.replace('|', "\\|")
}

fn lost(word: &str, consequence: &str, remedy: &str) -> String {
    match remedy {
        "" => format!("{word}: {consequence}"),
        remedy => format!("{word}: {consequence}. Instead: {remedy}"),
    }
}
