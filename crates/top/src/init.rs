//! `howdah init`: the first configuration of a pooler, from what a PostgreSQL says.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lexopt::prelude::*;
use postgres::{Client, SimpleQueryMessage};

use crate::target::{Kind, Target, environment, told};
use crate::view::printable;

/// What `howdah init --help` prints.
pub const USAGE: &str = "\
Writes a first configuration for a PostgreSQL: howdah.ini and userlist.txt.

Usage:
  howdah init [OPTION]... URL

URL names PostgreSQL and a superuser, as postgres://postgres@10.0.0.5:5432. Its databases, its users
with their secrets, and max_connections go into the files. A password comes from the URL, PGPASSWORD,
PGPASSFILE or ~/.pgpass, else you are asked. Files that are there already stay as they are.

Options:
      --dir=FOLDER      where to write (the current folder); created if it is missing
      --port=PORT       where clients will connect (6432)
      --http-port=PORT  where metrics and health checks will be (9127); 0 for none
  -h, --help            show this help and exit

Exit codes: 0 both files are written, 1 something is wrong and nothing is written.
";

/// The share of PostgreSQL's connections that pools may take, in percent. The rest is for what does
/// not come through the pooler.
const SHARE_OF_POOLS: u32 = 90;

/// The greatest size of a pool that is written: more servers seldom make a database faster.
const MAX_POOL: u32 = 20;

/// What was asked for.
struct Orders {
    target: Target,
    folder: PathBuf,
    port: u16,
    http_port: u16,
}

/// What PostgreSQL says about itself.
#[derive(Default)]
struct Facts {
    version: String,
    databases: Vec<String>,
    /// Each user, with a secret if there is one.
    users: Vec<(String, Option<String>)>,
    /// The user may read secrets.
    sees_secrets: bool,
    /// How many connections users have.
    room: u32,
    /// `listen_addresses`.
    listens: String,
}

/// Where pools find PostgreSQL, as an entry says it.
struct Place {
    host: String,
    port: u16,
    /// Lines about TLS.
    tls: Vec<String>,
}

/// The texts of both files, and what to say.
struct Outcome {
    ini: String,
    users: String,
    told: String,
}

/// Runs with the arguments behind `init`; false if something went wrong, which was said then.
pub fn init(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let done = read(arguments).and_then(|orders| match orders {
        None => Ok(USAGE.to_string()),
        Some(orders) => write_files(orders),
    });
    match &done {
        Ok(text) => {
            // Whoever reads may have had enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
        }
        Err(why) => eprintln!("howdah init: {}", printable(why)),
    }
    done.is_ok()
}

/// Reads the arguments; none if help was asked for.
fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Orders>, String> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut url, mut folder) = (None, PathBuf::from("."));
    let (mut port, mut http_port) = (6432, 9127);
    while let Some(argument) = parser.next().map_err(|why| why.to_string())? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("dir") => folder = parser.value().map_err(|why| why.to_string())?.into(),
            Long("port") => port = number(&mut parser)?,
            Long("http-port") => http_port = number(&mut parser)?,
            Value(value) if url.is_none() => {
                url = Some(value.string().map_err(|why| why.to_string())?);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    let url = url.ok_or("name PostgreSQL and a superuser: howdah init postgres://postgres@HOST")?;
    // Every PostgreSQL has this database.
    let variable = |name: &str| match name {
        "PGDATABASE" => environment(name).or_else(|| Some("postgres".into())),
        _ => environment(name),
    };
    let mut target = Target::read(&url, Kind::Database, &variable)?;
    target.application_name("howdah init");
    if port == 0 || port == http_port {
        return Err("--port and --http-port: write two ports".into());
    }
    Ok(Some(Orders {
        target,
        folder,
        port,
        http_port,
    }))
}

fn number(parser: &mut lexopt::Parser) -> Result<u16, String> {
    let value = parser.value().and_then(|value| value.string());
    let value = value.map_err(|why| why.to_string())?;
    let number = value.parse();
    number.map_err(|_| format!("{value}: write a port, from 1 to 65535"))
}

/// Asks PostgreSQL, and writes both files, or none.
fn write_files(mut orders: Orders) -> Result<String, String> {
    let names = ["howdah.ini", "userlist.txt"];
    for name in names {
        let path = orders.folder.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(there_already(&path));
        }
    }
    let mut client = orders.target.connect()?;
    let facts = ask(&mut client)?;
    drop(client);
    match fs::create_dir(&orders.folder) {
        Err(why) if why.kind() != ErrorKind::AlreadyExists => {
            return Err(format!("{}: {why}", orders.folder.display()));
        }
        _ => {}
    }
    let folder = orders.folder.canonicalize();
    let folder = folder.map_err(|why| format!("{}: {why}", orders.folder.display()))?;
    let written = folder.to_str().filter(|path| is_plain(path));
    let written = written.ok_or_else(|| {
        let folder = folder.display();
        format!("{folder}: an ini file can't name this folder, use another one (--dir)")
    })?;
    let outcome = outcome(&orders, &facts, written);
    let [ini, users] = names.map(|name| folder.join(name));
    create(&ini, 0o644, &outcome.ini)?;
    if let Err(why) = create(&users, 0o600, &outcome.users) {
        let _ = fs::remove_file(&ini);
        return Err(why);
    }
    Ok(outcome.told)
}

fn there_already(path: &Path) -> String {
    let path = path.display();
    format!("{path} is there already and stays as it is: name another folder (--dir=FOLDER)")
}

/// Writes a new file; if that fails, there is none.
fn create(path: &Path, mode: u32, text: &str) -> Result<(), String> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    let mut file = file.map_err(|why| match why.kind() {
        ErrorKind::AlreadyExists => there_already(path),
        _ => format!("{}: {why}", path.display()),
    })?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    written.map_err(|why| {
        let _ = fs::remove_file(path);
        format!("{}: {why}", path.display())
    })
}

/// Asks for all that the files say.
fn ask(client: &mut Client) -> Result<Facts, String> {
    let mut facts = Facts::default();
    let databases = "select datname from pg_catalog.pg_database \
                     where datallowconn and not datistemplate order by datname";
    for row in rows(client, databases).map_err(|why| told(&why))? {
        facts.databases.extend(row.into_iter().next().flatten());
    }
    let settings = "select name, setting from pg_catalog.pg_settings where name in \
                    ('max_connections', 'superuser_reserved_connections', 'reserved_connections', \
                     'listen_addresses', 'server_version')";
    let (mut room, mut reserved) = (0, 0);
    for row in rows(client, settings).map_err(|why| told(&why))? {
        let [Some(name), Some(value)] = &row[..] else {
            continue;
        };
        let count: u32 = value.parse().unwrap_or(0);
        match name.as_str() {
            "max_connections" => room = count,
            "listen_addresses" => facts.listens.clone_from(value),
            "server_version" => facts.version.clone_from(value),
            _ => reserved += count,
        }
    }
    facts.room = room.saturating_sub(reserved).max(1);
    let secrets =
        "select rolname, rolpassword from pg_catalog.pg_authid where rolcanlogin order by 1";
    let names = "select rolname, null from pg_catalog.pg_roles where rolcanlogin order by 1";
    let users = match rows(client, secrets) {
        Ok(users) => {
            facts.sees_secrets = true;
            users
        }
        Err(why) if why.code() == Some(&postgres::error::SqlState::INSUFFICIENT_PRIVILEGE) => {
            rows(client, names).map_err(|why| told(&why))?
        }
        Err(why) => return Err(told(&why)),
    };
    for row in users {
        let mut row = row.into_iter();
        if let (Some(Some(name)), secret) = (row.next(), row.next().flatten()) {
            facts.users.push((name, secret));
        }
    }
    Ok(facts)
}

fn rows(client: &mut Client, query: &str) -> Result<Vec<Vec<Option<String>>>, postgres::Error> {
    let mut rows = Vec::new();
    for message in client.simple_query(query)? {
        if let SimpleQueryMessage::Row(row) = message {
            let value = |at| row.get(at).map(str::to_string);
            rows.push((0..row.len()).map(value).collect());
        }
    }
    Ok(rows)
}

/// What comes into the files, and what to say.
fn outcome(orders: &Orders, facts: &Facts, folder: &str) -> Outcome {
    let place = place(&orders.target, &facts.listens);
    let (mut users, mut silent) = (facts.users.clone(), Vec::new());
    let own = orders.target.user();
    if !facts.sees_secrets
        && let (Some(user), Some(password)) = (
            users.iter_mut().find(|(name, _)| name == own),
            orders.target.password(),
        )
    {
        user.1 = Some(password);
    }
    let mut list = format!(
        "; A line for each user: \"name\" \"secret\". Written by howdah init from {}.\n",
        printable(&orders.target.name())
    );
    for (name, secret) in &users {
        match secret
            .as_ref()
            .filter(|secret| is_plain(secret) && is_plain(name))
        {
            Some(secret) => {
                let _ = writeln!(list, "{} {}", quoted(name), quoted(secret));
            }
            None => silent.push(name.as_str()),
        }
    }
    if !silent.is_empty() {
        list.push_str("; These users have no secret here, so they cannot log in:\n");
        for name in silent.iter().filter(|name| is_plain(name)) {
            let _ = writeln!(list, "; {} \"SECRET\"", quoted(name));
        }
    }
    let known = |name: &&str| is_plain(name) && !["pgbouncer", "howdah", "*"].contains(name);
    let databases = facts.databases.iter().map(String::as_str);
    let (databases, skipped): (Vec<&str>, Vec<&str>) = databases.partition(known);
    let sizes = Sizes::of(facts.room, databases.len());
    let ini = ini(orders, facts, &place, &databases, &sizes, folder);
    let databases = Databases {
        taken: databases,
        skipped,
    };
    let told = report(orders, facts, &users, &silent, &databases, &sizes, folder);
    Outcome {
        ini,
        users: list,
        told,
    }
}

/// Databases that are in the file, and those that can't be.
struct Databases<'a> {
    taken: Vec<&'a str>,
    skipped: Vec<&'a str>,
}

/// Names for a terminal.
fn listed(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| printable(name)).collect();
    names.join(", ")
}

/// The sizes of pools.
struct Sizes {
    /// What all pools may take of PostgreSQL's connections.
    all: u32,
    /// That leaves something for others.
    fits: bool,
    database: u32,
    pool: u32,
}

impl Sizes {
    fn of(room: u32, databases: usize) -> Sizes {
        let share = (room.saturating_mul(SHARE_OF_POOLS) / 100).max(1);
        let count = u32::try_from(databases.max(1)).unwrap_or(u32::MAX);
        let database = (share / count).max(1);
        let all = database.saturating_mul(count);
        Sizes {
            all,
            fits: all <= share && all < room,
            database,
            pool: database.min(MAX_POOL),
        }
    }
}

/// Where pools find PostgreSQL. Over a unix socket PostgreSQL often asks which system user comes, and
/// that is always the pooler's. So where PostgreSQL listens on this machine's own addresses, pools
/// go there.
fn place(target: &Target, listens: &str) -> Place {
    let (host, port) = target.place();
    let local = |address: &&str| ["*", "0.0.0.0", "127.0.0.1", "localhost"].contains(address);
    let by_tcp = listens
        .split(',')
        .map(str::trim)
        .any(|address| local(&address));
    let host = if host.starts_with(['/', '@']) && by_tcp {
        "127.0.0.1".to_string()
    } else {
        host
    };
    Place {
        host,
        port,
        tls: target.tls_lines(),
    }
}

fn ini(
    orders: &Orders,
    facts: &Facts,
    place: &Place,
    databases: &[&str],
    sizes: &Sizes,
    folder: &str,
) -> String {
    let md5 = facts.users.iter().any(|(_, secret)| {
        let secret = secret.as_deref().unwrap_or_default();
        secret.starts_with("md5") && secret.len() == 35
    });
    let (auth, auth_note) = if md5 {
        ("md5", "; This type takes md5 secrets and SCRAM secrets.\n")
    } else {
        ("scram-sha-256", "")
    };
    let (host, port) = (&place.host, place.port);
    let entries: String = databases
        .iter()
        .map(|name| format!("{} = host={} port={port}\n", key(name), pair_value(host)))
        .collect();
    let tls: String = place.tls.iter().map(|line| format!("{line}\n")).collect();
    let lookup = if facts.sees_secrets {
        ""
    } else {
        "; Users that are not in auth_file can be looked up in PostgreSQL: see auth_query and\n\
             ; auth_user in docs/settings.md.\n; auth_user = NAME\n; auth_dbname = DATABASE\n"
    };
    let http = match orders.http_port {
        0 => String::new(),
        port => format!(
            "\n; Metrics and health checks: http://127.0.0.1:{port}/metrics, /live and /ready. The page with\n\
             ; pools and waits is http://127.0.0.1:{port}/\n\
             http_listen_addr = 127.0.0.1\nhttp_listen_port = {port}\nhttp_page = 1\n"
        ),
    };
    let (room, all, of_database, pool) = (facts.room, sizes.all, sizes.database, sizes.pool);
    let share = if sizes.fits {
        format!(
            "Pools take at most {all} of them, and leave the rest to\n; what does not come through Howdah"
        )
    } else {
        format!(
            "With one server for each database pools may open\n; {all}, which leaves too few for what does not \
             come through Howdah: remove databases that need no\n; pool, or raise max_connections"
        )
    };
    let (own_port, own_user) = (orders.port, orders.target.user());
    let admin = if is_plain(own_user) && !own_user.contains([',', ' ']) {
        own_user
    } else {
        ""
    };
    format!(
        "; Written by howdah init from PostgreSQL {version} at {name}.
; howdah --check FILE names what is wrong in this file. A comment has a line of its own.
; docs/settings.md has all settings.

[databases]
; The name that clients ask for, and where PostgreSQL is.
{entries}; Instead of a line for each database, one line can stand for all of that PostgreSQL:
; * = host={host} port={port}

[pgbouncer]
; Where clients connect. `*` stands for all addresses of this machine.
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir = /tmp

; Users and their secrets. After a change of a password, write the new secret into this file, and
; RELOAD on the console.
auth_type = {auth}
{auth_note}auth_file = {folder}/userlist.txt
{lookup}; Who may give orders on the console, the database pgbouncer.
admin_users = {admin}

; A client has a server (a connection to PostgreSQL) until its transaction ends. Session state, such
; as SET and prepared statements, stays the client's own.
pool_mode = transaction
max_client_conn = 1000

; PostgreSQL has {room} connections for users. {share}. The first is the number of servers for each database and user,
; the second for each database; give a busy database more with pool_size= and
; max_db_connections= in its line.
default_pool_size = {pool}
max_db_connections = {of_database}
{tls}{http}",
        version = printable(&facts.version),
        name = printable(&orders.target.name()),
    )
}

fn report(
    orders: &Orders,
    facts: &Facts,
    users: &[(String, Option<String>)],
    silent: &[&str],
    databases: &Databases<'_>,
    sizes: &Sizes,
    folder: &str,
) -> String {
    let several = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let all = sizes.all.to_string();
    let mut text = format!(
        "{folder}/howdah.ini: {}, up to {all} servers of the {} that PostgreSQL has for users\n\
         {folder}/userlist.txt: {} with their secrets, readable for you alone\n",
        several(databases.taken.len(), "database"),
        facts.room,
        several(users.len() - silent.len(), "user"),
    );
    if !sizes.fits {
        text.push_str(
            "\nThat is too much: remove databases that need no pool from howdah.ini, or raise max_connections.\n",
        );
    }
    if !databases.skipped.is_empty() {
        let _ = write!(
            text,
            "\nNot in howdah.ini, as the name is the console's or fits on no line: {}\n",
            listed(&databases.skipped)
        );
    }
    let own = orders.target.user();
    if !facts.sees_secrets {
        let _ = write!(
            text,
            "\n{own} may not read pg_authid, which has the users' secrets. Either run howdah init as a \
             superuser, or\nwrite the secrets into userlist.txt, or let Howdah look them up: auth_user and \
             auth_query in docs/settings.md.\n"
        );
    } else if !silent.is_empty() {
        let _ = write!(
            text,
            "\nWithout a password in PostgreSQL, and so without a login here: {}\n",
            listed(silent)
        );
    }
    if rustix::process::geteuid().is_root() {
        let _ = write!(
            text,
            "\nHowdah does not run as root. Give both files to the user that will run it:\n    \
             chown USER {0}/howdah.ini {0}/userlist.txt\n",
            shell(folder)
        );
    }
    for port in [orders.port, orders.http_port] {
        if port > 0 && TcpListener::bind(("127.0.0.1", port)).is_err() {
            let _ = write!(
                text,
                "\nSomething listens on port {port} already: end it, or write another port into howdah.ini.\n"
            );
        }
    }
    let mut with_secret = users.iter().map(|(name, _)| name.as_str());
    let has_secret = |name: &&str| !silent.contains(name);
    let user = if has_secret(&own) && users.iter().any(|(name, _)| name == own) {
        Some(own)
    } else {
        with_secret.find(has_secret)
    };
    let file = shell(&format!("{folder}/howdah.ini"));
    let _ = write!(text, "\nstart:  howdah {file}\n");
    let connected = orders.target.database();
    let databases = &databases.taken;
    let database = databases.iter().find(|name| **name == connected);
    let database = database.or(databases.first());
    match (user, database) {
        (Some(user), Some(database)) => {
            let port = orders.port;
            let (user, database) = (shell(user), shell(database));
            let _ = writeln!(text, "query:  psql -h 127.0.0.1 -p {port} -U {user} {database}");
        }
        _ => text.push_str(
            "Nobody can log in yet: give a user a password (\\password in psql) and a line in userlist.txt.\n",
        ),
    }
    text
}

/// True for a text that fits on a line of a file.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

/// A text in double quotes; a quote in it is written twice.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A name as the key of a line.
fn key(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if name.chars().all(plain) {
        name.to_string()
    } else {
        quoted(name)
    }
}

/// A value in an entry.
fn pair_value(value: &str) -> String {
    if value.contains([' ', '\'']) {
        format!("'{}'", value.replace('\'', "''"))
    } else {
        value.to_string()
    }
}

/// A word of a shell's command.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-:@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_leave_something() {
        for (room, databases, sizes) in [
            (97, 1, (87, 87, 20, true)),
            (97, 2, (86, 43, 20, true)),
            (97, 10, (80, 8, 8, true)),
            (10, 10, (10, 1, 1, false)),
            (10, 100, (100, 1, 1, false)),
            (1, 0, (1, 1, 1, false)),
        ] {
            let seen = Sizes::of(room, databases);
            assert_eq!(
                (seen.all, seen.database, seen.pool, seen.fits),
                sizes,
                "{room} {databases}"
            );
        }
    }

    #[test]
    fn what_the_server_says_adds_no_line() {
        let target = Target::read("postgres://me@h", Kind::Database, &|_| None).unwrap();
        let orders = Orders {
            target,
            folder: PathBuf::new(),
            port: 1,
            http_port: 0,
        };
        let facts = Facts {
            version: "17\nadmin_users = *".into(),
            databases: ["a", "a\nb", "pgbouncer"].map(String::from).into(),
            users: vec![("x\ny\x1b[2J".into(), None)],
            sees_secrets: true,
            room: 10,
            listens: String::new(),
        };
        let seen = outcome(&orders, &facts, "/f");
        assert!(
            seen.ini.starts_with(
                "; Written by howdah init from PostgreSQL 17\\nadmin_users = * at h:5432.\n"
            ),
            "{}",
            seen.ini
        );
        assert!(
            seen.told.contains("no line: a\\nb, pgbouncer\n"),
            "{}",
            seen.told
        );
        let silent = "without a login here: x\\ny\\u{1b}[2J\n";
        assert!(seen.told.contains(silent), "{}", seen.told);
        assert!(!seen.users.contains("\ny"), "{}", seen.users);
    }

    #[test]
    fn odd_names_are_quoted() {
        assert_eq!(
            (key("a-b"), key("a b\"")),
            ("a-b".into(), "\"a b\"\"\"".into())
        );
        assert_eq!(shell("it's"), "'it'\\''s'");
        assert_eq!(pair_value("/a b"), "'/a b'");
        assert!(!is_plain("a\nb") && !is_plain("") && is_plain("a b"));
    }

    #[test]
    fn odd_arguments_are_refused() {
        for (line, said) in [
            ("", "name PostgreSQL and a superuser"),
            ("--port=x host=h", "x: write a port"),
            ("--port=9127 postgres://u@h", "write two ports"),
            ("host=h b", "unexpected argument"),
        ] {
            let words = line.split(' ').filter(|word| !word.is_empty());
            let seen = read(words.map(OsString::from)).err().unwrap_or_default();
            assert!(seen.contains(said), "{line}: {seen}");
        }
    }
}
