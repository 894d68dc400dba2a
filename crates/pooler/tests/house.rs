//! Verifies the structure that ARCHITECTURE.md describes: imports, and writes to fields. Numbers
//! that are not at their goal yet may only fall: lower them here when the code improves.
#![allow(clippy::disallowed_methods)] // It reads the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "house/imports.rs"]
mod imports;

use imports::{Graph, imports, largest_circle};

/// The largest circle of files that import each other, in the decisions.
const LARGEST_CIRCLE_OF_IMPORTS: usize = 0;
/// Writes to fields of a client, a server, a pool or a link outside of the type's own file.
const FOREIGN_WRITES: usize = 0;
/// Look-ups of a connection that neither use `gone!` nor require the connection to exist.
const SILENT_LOOK_UPS: [(Miss, usize); 4] = [
    (Miss::Leaves, 0),
    (Miss::Skips, 4),
    (Miss::Tells, 31),
    (Miss::Asks, 27),
];
/// The largest circle of methods of `Pooler` that call each other.
const LARGEST_CIRCLE: usize = 2;
/// The largest circle of files whose methods of `Pooler` call each other.
const LARGEST_CIRCLE_OF_FILES: usize = 17;
/// The lines of the longest file.
const LONGEST: usize = 920;

/// Features with their files or folders in `crates`, and how many lines of code these have (without
/// tests, comments and blank lines). A commit that raises a number says why in its message.
const FEATURES: [(&str, &[&str], usize); 12] = [
    ("reading SQL", &["sql/src"], 3462),
    ("session state", &["pooler/src/session"], 1801),
    ("LISTEN", &["pooler/src/listen"], 1424),
    ("console", &["pooler/src/console"], 4839),
    ("statements", &["pooler/src/statement"], 948),
    (
        "takeover",
        &[
            "pooler/src/parcel",
            "pooler/src/client/parcel.rs",
            "pooler/src/server/parcel.rs",
            "pooler/src/adoption.rs",
            "pooler/src/packing.rs",
            "pooler/src/takeover.rs",
        ],
        1977,
    ),
    (
        "workers and one pool",
        &[
            "pooler/src/moves.rs",
            "pooler/src/moving.rs",
            "pooler/src/spread.rs",
            "pooler/src/seats.rs",
            "pooler/src/balance.rs",
            "pooler/src/balance",
            "pooler/src/broker.rs",
            "pooler/src/broker",
        ],
        2217,
    ),
    (
        "cancel and peers",
        &[
            "pooler/src/cancel",
            "pooler/src/peer.rs",
            "pooler/src/peering.rs",
            "pooler/src/signal.rs",
        ],
        1203,
    ),
    (
        "sharded databases",
        &["pooler/src/shard", "pooler/src/link/gated.rs"],
        3443,
    ),
    (
        "tokens and secrets",
        &[
            "auth/src/aws.rs",
            "auth/src/oauthbearer.rs",
            "daemon/src/authority/token",
            "daemon/src/https.rs",
            "daemon/src/sources",
            "pooler/src/server/secret.rs",
            "pooler/src/server/user_end.rs",
            "pooler/src/server/vanishing.rs",
            "pooler/src/sources.rs",
        ],
        2964,
    ),
    ("configuration", &["config/src"], 9505),
    (
        "hosts and roles",
        &[
            "pooler/src/roster",
            "pooler/src/host_check",
            "pooler/src/host_check.rs",
            "pooler/src/server/host.rs",
            "pooler/src/pool/placed.rs",
            "pooler/src/pool/placing.rs",
        ],
        2444,
    ),
];
/// How far below its number a feature may be, in lines, before the number must be lowered.
const FEATURE_SLACK: usize = 40;

/// Words that each part must not contain, beyond the limits of its manifest.
const UNKNOWN: [(&str, &[&str]); 6] = [
    ("wire/src", &["howdah_", "std::net", "std::io", "std::time"]),
    (
        "auth/src",
        &["howdah_config", "howdah_pooler", "std::net", "std::io"],
    ),
    (
        "sql/src",
        &["howdah_config", "howdah_pooler", "std::net", "std::io"],
    ),
    (
        "config/src",
        &[
            "howdah_pooler",
            "howdah_wire",
            "std::fs",
            "std::time::Instant",
        ],
    ),
    (
        "pooler/src",
        &[
            "howdah_daemon",
            "std::fs",
            "std::os::",
            "RawFd",
            "std::thread",
            "unsafe",
        ],
    ),
    (
        "daemon/src/driver",
        &[
            "howdah_wire",
            "howdah_pooler::client",
            "howdah_pooler::server",
        ],
    ),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every source file below a folder, by path, except tests.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(folder)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let tests = ["tests", "fuzz"].iter().any(|part| name.contains(part));
            if path.is_dir() && !tests {
                folders.push(path);
            } else if name.ends_with(".rs") && !tests {
                let text = fs::read_to_string(&path).unwrap();
                let end = text
                    .find("\n#[cfg(test)]\nmod tests {")
                    .unwrap_or(text.len());
                found.push((name, text[..end].to_string()));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder:?}");
    found
}

/// The lines of a file that are not comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

fn decisions() -> Vec<(String, String)> {
    sources(&crates().join("pooler/src"))
}

/// Most features only shrink or stay. What grows says why.
#[test]
fn features_keep_their_size() {
    let lines = |path: &&str| -> usize {
        let (folder, file) = match path.strip_suffix(".rs") {
            Some(_) => path.rsplit_once('/').unwrap(),
            None => (*path, ""),
        };
        let sources = sources(&crates().join(folder)).into_iter();
        sources
            .filter(|(name, _)| file.is_empty() || name == file)
            .map(|(_, text)| code(&text).filter(|line| !line.trim().is_empty()).count())
            .sum()
    };
    for (feature, paths, most) in FEATURES {
        let size: usize = paths.iter().map(lines).sum();
        assert!(
            size <= most,
            "{feature} has {size} lines instead of {most}: raise the number here, and say why in \
             the commit's message"
        );
        assert!(
            size + FEATURE_SLACK >= most,
            "{feature} has only {size} lines: lower the number {most} here"
        );
    }
}

/// A file without methods of `Pooler` imports none with such methods: types get what they need as
/// arguments, and do not know `Pooler`.
#[test]
fn types_lie_below_verbs() {
    let sources = decisions();
    let is_verb = |text: &str| code(text).any(|line| line == "impl Pooler {");
    let verbs = sources.iter().filter(|(_, text)| is_verb(text));
    let verbs: BTreeSet<&str> = verbs.map(|(name, _)| name.as_str()).collect();
    let (least, most) = (40, sources.len() / 2);
    assert!(
        (least..most).contains(&verbs.len()),
        "{} verbs",
        verbs.len()
    );
    for (name, imported) in imports(&sources) {
        if verbs.contains(&*name) || name == "lib.rs" {
            continue;
        }
        let above: Vec<_> = imported
            .iter()
            .filter(|to| verbs.contains(&***to))
            .collect();
        assert!(above.is_empty(), "{name} has types, and imports {above:?}");
    }
}

#[test]
fn imports_run_in_no_circle() {
    let imports = imports(&decisions());
    let arrows: usize = imports.values().map(BTreeSet::len).sum();
    assert!(arrows > 900, "{arrows} imports are found");
    let largest = largest_circle(&imports);
    assert_eq!(
        largest.len(),
        LARGEST_CIRCLE_OF_IMPORTS,
        "{largest:?}; the number may only fall"
    );
}

#[test]
fn parts_do_not_name_what_they_must_not_know() {
    for (part, unknown) in UNKNOWN {
        for (name, text) in sources(&crates().join(part)) {
            for line in code(&text) {
                let line = line.replace("forbid(unsafe_code)", "");
                let named = unknown.iter().find(|word| line.contains(**word));
                assert_eq!(named, None, "{part}/{name}: {line}");
            }
        }
    }
}

/// The public type that a line declares, if any.
fn shared_type(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub")?;
    let line = match line.strip_prefix('(') {
        Some(scope) => scope.split_once(") ")?.1,
        None => line.strip_prefix(' ')?,
    };
    let (kind, name) = line.split_once(' ')?;
    let name = name.split(|c: char| !c.is_alphanumeric()).next()?;
    ["struct", "enum", "trait", "type"]
        .contains(&kind)
        .then_some(name)
}

/// A name must not have two meanings.
#[test]
fn no_two_types_have_one_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in ["wire", "auth", "sql", "config", "pooler", "daemon"] {
        for (file, text) in sources(&crates().join(part).join("src")) {
            for name in code(&text).filter_map(shared_type) {
                let place = format!("{part}/src/{file}");
                places.entry(name.to_string()).or_default().push(place);
            }
        }
    }
    assert!(places.len() > 400, "{} types are found", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

/// Names of the fields of a struct. Private fields count, too: child modules could write to them.
fn fields(text: &str, name: &str) -> Vec<String> {
    let start = text.find(&format!("pub struct {name} {{")).unwrap();
    let body = &text[start..];
    let body = &body[..body.find("\n}").unwrap()];
    let names = code(body).skip(1).filter_map(|field| field.split_once(':'));
    let bare = |name: &str| name.rsplit(' ').next().unwrap().to_string();
    names.map(|(name, _)| bare(name)).collect()
}

/// A type with checked fields: its file and name, the table of `Pooler` with its values, and the
/// usual names of such values.
struct Owner {
    file: &'static str,
    name: &'static str,
    table: &'static str,
    usually: &'static [&'static str],
    /// Files that may write to the fields.
    others: &'static [&'static str],
}

const OWNERS: [Owner; 5] = [
    Owner {
        file: "client/mod.rs",
        name: "Client",
        table: "clients",
        usually: &["client", "entry"],
        others: &[],
    },
    Owner {
        file: "server/mod.rs",
        name: "Server",
        table: "servers",
        usually: &["server", "entry"],
        others: &[],
    },
    Owner {
        file: "login/mod.rs",
        name: "Login",
        table: "logins",
        usually: &["login"],
        // Here a login is an attempt to log in.
        others: &["client/login.rs", "server/login.rs", "client/startup.rs"],
    },
    Owner {
        file: "pool/mod.rs",
        name: "Pool",
        table: "pools",
        usually: &["pool"],
        // These files have a `Pool` type of their own.
        others: &["broker.rs", "cancel/forward.rs"],
    },
    Owner {
        file: "link/mod.rs",
        name: "Link",
        table: "links",
        usually: &["link"],
        others: &[],
    },
];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text after the closing bracket that matches the first one.
fn behind_bracket(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

/// Lines of code. A chain of calls becomes one line.
fn joined(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in code(text).map(str::trim) {
        let goes_on = [".", "?", "= ", "else {"];
        let goes_on = goes_on.iter().any(|start| line.starts_with(start));
        match lines.last_mut() {
            Some(last) if goes_on => last.push_str(line),
            _ => lines.push(line.to_string()),
        }
    }
    lines
}

impl Owner {
    /// Lines of code. A chain of calls becomes one line, and a value taken from its table and used
    /// at once gets its usual name.
    fn lines(&self, text: &str) -> Vec<String> {
        let mut lines = joined(text);
        for line in &mut lines {
            for look_up in ["at_mut", "get_mut"] {
                let place = format!("self.{}.{look_up}(", self.table);
                while let Some(at) = line.find(&place) {
                    let behind = behind_bracket(&line[at + place.len() - 1..]);
                    let behind = behind.strip_prefix('?').unwrap_or(behind);
                    *line = format!("{}{}{behind}", &line[..at], self.usually[0]);
                }
            }
        }
        lines
    }

    /// The names of the type's values in a file.
    fn names(&self, lines: &[String]) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = self.usually.iter().map(|n| n.to_string()).collect();
        let name_at_end = |text: &str| -> String {
            let start = text.trim_end_matches(is_word).len();
            text[start..].to_string()
        };
        for line in lines {
            // A parameter.
            for (at, _) in line.match_indices(&format!(": &mut {}", self.name)) {
                names.insert(name_at_end(&line[..at]));
            }
            // A binding.
            let Some((place, value)) = line.split_once(" = ") else {
                continue;
            };
            let value = value.trim_start_matches("gone!(");
            let own = value.strip_prefix(self.usually[0]);
            let taken =
                own.is_some_and(|rest| !rest.starts_with(is_word) && !rest.starts_with('.'));
            let made = value.starts_with(&format!("{}::", self.name));
            if place.contains("let ") && (taken || made) {
                names.insert(name_at_end(place.trim_end_matches(')')));
            }
        }
        names.remove("");
        names
    }

    /// Lines outside of the type's own file that write to its fields.
    fn foreign_writes(&self, sources: &[(String, String)]) -> Vec<String> {
        let (_, own) = sources.iter().find(|(at, _)| at == self.file).unwrap();
        let fields = fields(own, self.name);
        let mut writers = Vec::new();
        for (at, text) in sources {
            if at == self.file || self.others.contains(&&**at) {
                continue;
            }
            let lines = self.lines(text);
            let names = self.names(&lines);
            for line in &lines {
                let is = |field: &String| names.iter().any(|name| writes(line, name, field));
                if fields.iter().any(is) {
                    writers.push(format!("{at}: {line}"));
                }
            }
        }
        writers
    }
}

/// True if a line changes a field of a value with this name, or a field of that field: by an
/// assignment, by moving something in or out, or by a mutable reference.
fn writes(line: &str, owner: &str, field: &str) -> bool {
    const SIGNS: [&str; 5] = ["= ", "+= ", "-= ", "|= ", "&= "];
    const CHANGES: [&str; 9] = [
        ".take()",
        ".take_if(",
        ".get_or_insert",
        ".push_back(",
        ".pop_front(",
        ".swap_remove(",
        ".extend_from_slice(",
        ".as_mut()",
        ".as_deref_mut()",
    ];
    let place = format!("{owner}.{field}");
    line.match_indices(&place).any(|(at, _)| {
        let (before, mut rest) = (&line[..at], &line[at + place.len()..]);
        if before.ends_with(is_word) || rest.starts_with(is_word) {
            return false;
        }
        let path = |c: char| is_word(c) || c == '.';
        if before.trim_end_matches(path).ends_with("&mut ") {
            return true;
        }
        loop {
            let assigns = SIGNS.iter().any(|sign| rest.trim_start().starts_with(sign));
            let changes = CHANGES.iter().any(|call| rest.starts_with(call));
            if assigns || changes {
                return true;
            }
            let Some(nested) = rest.strip_prefix('.') else {
                return false;
            };
            rest = nested.trim_start_matches(is_word);
        }
    })
}

#[test]
fn fields_are_written_to_by_their_own_file() {
    let sources = decisions();
    let writers = OWNERS
        .iter()
        .flat_map(|owner| owner.foreign_writes(&sources));
    let writers: BTreeSet<_> = writers.collect();
    assert_eq!(
        writers.len(),
        FOREIGN_WRITES,
        "writes from outside; the number may only fall: {writers:#?}"
    );
}

#[test]
fn a_write_is_seen() {
    let fields = "\npub struct Client {\n    a: u8,\n    session: Maybe,\n}\n";
    let write = |line: &str| {
        let sources = [
            ("client/mod.rs".to_string(), fields.to_string()),
            ("other.rs".to_string(), line.to_string()),
        ];
        !OWNERS[0].foreign_writes(&sources).is_empty()
    };
    for line in [
        "client.a = 1;",
        "self.client.a.left -= 1;",
        "client.a.take()",
        "if std::mem::take(&mut client.a) {",
        "self.clients.get_mut(id)?.a = 1;",
        "self.clients.at_mut(self.own(id)).a += 1;",
        "self.clients\n    .at_mut(id)\n    .a = 1;",
        "let whose = self.clients.at_mut(id);\nwhose.a = 1;",
        "let whose = gone!(self.clients.get_mut(id));\nwhose.a = 1;",
        "let Some(whose) = self.clients.get_mut(id) else {\nwhose.a = 1;",
        "let mut whose = Client::blank(now);\nwhose.a = 1;",
        "fn change(whose: &mut Client) {\nwhose.a = 1;",
        "let Some(session) = &mut client.session else {",
        "if let (true, Some((_, session))) = (own, &mut self.client.session) {",
        "session.learn(&mut client.session, answers);",
    ] {
        assert!(write(line), "{line}");
    }
    for line in [
        "client.session.hold(bytes);",
        "if client.a == other {",
        "let a = self.clients.at_mut(id).session.hold(bytes);\na.a = 1;",
        "other.a = 1;",
    ] {
        assert!(!write(line), "{line}");
    }
}

/// The methods of `Pooler` by name: the file and the body of each.
fn methods() -> BTreeMap<String, (String, String)> {
    let mut methods = BTreeMap::new();
    for (file, text) in decisions() {
        let lines = code(&text).collect::<Vec<_>>().join("\n");
        for part in lines.split("\nimpl Pooler {\n").skip(1) {
            let part = &part[..part.find("\n}").unwrap()];
            let mut name = String::new();
            for line in part.lines() {
                let method = line.strip_prefix("    ").filter(|l| !l.starts_with(' '));
                if let Some((_, rest)) = method.and_then(|line| line.split_once("fn ")) {
                    let end = rest.find(['(', '<']).unwrap();
                    name = rest[..end].to_string();
                    assert!(!methods.contains_key(&name), "{name} twice");
                }
                let blank = || (file.clone(), String::new());
                let (_, body) = methods.entry(name.clone()).or_insert_with(blank);
                body.push_str(line.trim());
            }
        }
    }
    methods
}

/// The calls among methods of `Pooler`, found by name.
fn calls(methods: &BTreeMap<String, (String, String)>) -> Graph {
    let words = |body: &str| -> BTreeSet<String> {
        let pieces = ["self.", "Self::", "Pooler::"];
        let calls = pieces.iter().flat_map(|piece| body.split(piece).skip(1));
        let names = calls.filter_map(|rest| rest.split_once('('));
        names.map(|(name, _)| name.to_string()).collect()
    };
    let known: BTreeSet<String> = methods.keys().cloned().collect();
    let calls = methods.iter().map(|(name, (_, body))| {
        let called = words(body).intersection(&known).cloned().collect();
        (name.clone(), called)
    });
    calls.collect()
}

/// A consequence of an event is a step that the router takes (`next.rs`), not a call in a circle.
#[test]
fn calls_run_in_no_large_circle() {
    let calls = calls(&methods());
    assert!(calls.len() > 400, "{} methods are found", calls.len());
    let largest = largest_circle(&calls);
    assert_eq!(
        largest.len(),
        LARGEST_CIRCLE,
        "{largest:?}; the number may only fall"
    );
}

/// A file has either what many others call, or what calls many others. Otherwise nearly all files
/// would lead to each other.
#[test]
fn files_call_in_no_large_circle() {
    let methods = methods();
    let mut files = Graph::new();
    for (name, called) in calls(&methods) {
        let (file, _) = &methods[&name];
        let others = called.iter().map(|called| methods[called].0.clone());
        let others = others.filter(|other| other != file);
        files.entry(file.clone()).or_default().extend(others);
    }
    assert!(files.len() > 40, "{} files are found", files.len());
    let largest = largest_circle(&files);
    assert_eq!(
        largest.len(),
        LARGEST_CIRCLE_OF_FILES,
        "{largest:?}; the number may only fall"
    );
}

/// How the line of a look-up handles a connection that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Miss {
    /// `let .. else { return }`, or `continue`: does nothing.
    Leaves,
    /// `if let Some(..)` without another condition: does nothing.
    Skips,
    /// `?`: the caller learns that there is no such connection.
    Tells,
    /// `is_some_and`: a question about a connection that may be gone.
    Asks,
}

/// The look-ups in a file, by kind, except with `gone!` or where the connection must exist.
fn misses(text: &str) -> Vec<(Miss, String)> {
    let lines = joined(text);
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for place in [
            "self.clients.get(",
            "self.clients.get_mut(",
            "self.servers.get(",
            "self.servers.get_mut(",
        ] {
            for (start, _) in line.match_indices(place) {
                let before = &line[..start];
                let behind = behind_bracket(&line[start + place.len() - 1..]);
                let next = lines.get(at + 1).map_or("", String::as_str);
                let leaves = |text: &str| {
                    let text = text.trim_start();
                    ["return", "continue", "break"]
                        .iter()
                        .any(|word| text.starts_with(word))
                };
                let otherwise = behind.split_once("else {").map(|(_, rest)| rest);
                let miss = match otherwise {
                    _ if behind.starts_with('?') => Miss::Tells,
                    _ if behind.starts_with(".is_some_and(") => Miss::Asks,
                    Some("") if before.contains("let ") && leaves(next) => Miss::Leaves,
                    Some(rest) if before.contains("let ") && leaves(rest) => Miss::Leaves,
                    None if before.ends_with("if let Some(") => continue,
                    None if before.contains("if let Some(") && behind.trim() == "{" => Miss::Skips,
                    _ => continue,
                };
                found.push((miss, line.clone()));
            }
        }
    }
    found
}

#[test]
fn look_ups_say_whom_they_may_miss() {
    let mut seen: BTreeMap<Miss, Vec<String>> = BTreeMap::new();
    for (name, text) in decisions() {
        for (miss, line) in misses(&text) {
            seen.entry(miss)
                .or_default()
                .push(format!("{name}: {line}"));
        }
    }
    for (miss, most) in SILENT_LOOK_UPS {
        let seen = seen.remove(&miss).unwrap_or_default();
        assert_eq!(
            seen.len(),
            most,
            "look-ups that may miss somebody in silence, {miss:?}; the number may only fall: {seen:#?}"
        );
    }
}

#[test]
fn a_silent_look_up_is_seen() {
    let first = |text: &str| misses(text).first().map(|(miss, _)| *miss);
    for (text, miss) in [
        (
            "let Some(client) = self.clients.get(id) else {\n    return;",
            Miss::Leaves,
        ),
        (
            "let Some(client) = self.clients.get(id) else { continue };",
            Miss::Leaves,
        ),
        (
            "let Some(s) = self\n    .servers\n    .get_mut(id)\n    .filter(idle)\nelse {\n    return;",
            Miss::Leaves,
        ),
        (
            "if let Some(client) = self.clients.get_mut(self.id()) {",
            Miss::Skips,
        ),
        (
            "let user = self.clients.get(id)?.user.clone();",
            Miss::Tells,
        ),
        (
            "self.servers.get(id).is_some_and(Server::is_tls)",
            Miss::Asks,
        ),
    ] {
        assert_eq!(first(text), Some(miss), "{text}");
    }
    for text in [
        "let client = gone!(self.clients.get_mut(id));",
        "let Some(client) = self.clients.get(id) else {\n    out.push(Action::Discard(socket));",
        "if let Some(client) = self.clients.get_mut(id)\n    && client.unparks()\n{",
        "let server = self.servers.at(id);",
    ] {
        assert_eq!(first(text), None, "{text}");
    }
}

/// Nobody outside of `link/` asks which server a client has, or which client a server has: others give
/// orders (`link/{orders,ends}.rs`) or ask for what they want to know (`link/view.rs`).
#[test]
fn links_are_seen_from_link_only() {
    let mut seen = 0;
    for (name, text) in decisions() {
        for line in code(&text) {
            for word in ["linked_server", "linked_client"] {
                if !line.contains(word) || line.contains(&format!("pub fn {word}")) {
                    continue;
                }
                let own = name == "server/mod.rs" && line.contains("self.linked_client()");
                assert!(own || name.starts_with("link/"), "{name}: {line}");
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "{seen}");
}

/// A method that begins with `is_` or `has_` returns an answer. A method that changes its value and
/// returns nothing has a verb as its name.
#[test]
fn what_reads_as_a_question_answers() {
    let mut asked = 0;
    for part in ["wire", "auth", "sql", "shard", "config", "pooler", "daemon"] {
        for (name, text) in sources(&crates().join(part).join("src")) {
            let lines = code(&text).collect::<Vec<_>>().join("\n");
            for question in lines.split("fn ").skip(1) {
                if !question.starts_with("is_") && !question.starts_with("has_") {
                    continue;
                }
                let signature = &question[..question.find([';', '{']).unwrap()];
                let answers = !signature.contains("&mut self") || signature.contains("->");
                assert!(answers, "{part}/{name}: {signature}");
                asked += 1;
            }
        }
    }
    assert!(asked > 100, "{asked} questions are found");
}

/// Limits of queues and buffers are in one file.
#[test]
fn limits_stand_in_one_place() {
    for (name, text) in decisions() {
        for line in code(&text).filter(|_| name != "limits.rs") {
            let is_limit = line.contains("const ") && line.contains("_MAX: usize");
            assert!(!is_limit, "{name}: {line}");
        }
    }
}

#[test]
fn no_file_grows_without_end() {
    for part in ["wire", "auth", "sql", "shard", "config", "pooler", "daemon"] {
        for (name, text) in sources(&crates().join(part).join("src")) {
            let lines = text.lines().count();
            assert!(lines <= LONGEST, "{part}/{name} has {lines} lines");
        }
    }
}
