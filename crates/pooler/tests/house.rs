//! The shape of the code, as ARCHITECTURE.md draws it: who may import whom, and who writes to whose
//! fields. Numbers that are not at their aim yet may only fall: whoever lowers one writes it down here.
#![allow(clippy::disallowed_methods)] // It reads the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "house/imports.rs"]
mod imports;

use imports::{Graph, imports, largest_circle};

/// How many files of the decisions import each other in the largest circle.
const LARGEST_CIRCLE_OF_IMPORTS: usize = 0;
/// Writes to fields of a client, a server, a pool or a link from outside of its own file.
const FOREIGN_WRITES: usize = 0;
/// Look-ups of a connection that return in silence, and say neither `gone!` nor that it must be there.
const SILENT_LOOK_UPS: usize = 0;
/// How many methods of `Pooler` call each other in the largest circle.
const LARGEST_CIRCLE: usize = 2;
/// Lines of the longest file.
const LONGEST: usize = 910;

/// What each part must not name, beyond what its manifest already keeps out.
const UNKNOWN: [(&str, &[&str]); 5] = [
    ("wire/src", &["howdah_", "std::net", "std::io", "std::time"]),
    (
        "auth/src",
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

/// Every source below a folder, by path; tests are left out.
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

/// Its lines that are no comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

fn decisions() -> Vec<(String, String)> {
    sources(&crates().join("pooler/src"))
}

/// A file has verbs of `Pooler`, or types, which are handed what they need: those know neither `Pooler`
/// nor a verb.
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

/// Names of the fields of a struct: children of its module could write to private ones, too.
fn fields(text: &str, name: &str) -> Vec<String> {
    let start = text.find(&format!("pub struct {name} {{")).unwrap();
    let body = &text[start..];
    let body = &body[..body.find("\n}").unwrap()];
    let names = code(body).skip(1).filter_map(|field| field.split_once(':'));
    let bare = |name: &str| name.rsplit(' ').next().unwrap().to_string();
    names.map(|(name, _)| bare(name)).collect()
}

/// Files with a type of which a link has a value, to whose fields they write.
const LINKS: [&str; 2] = ["link/meaning.rs", "link/watch.rs"];

/// Whether a line changes a field of something that is called so, or a field of that field: by an
/// assignment, or by taking something out or putting it in.
fn writes(line: &str, owner: &str, field: &str) -> bool {
    const SIGNS: [&str; 5] = ["= ", "+= ", "-= ", "|= ", "&= "];
    const CHANGES: [&str; 7] = [
        ".take()",
        ".take_if(",
        ".get_or_insert",
        ".push_back(",
        ".pop_front(",
        ".swap_remove(",
        ".extend_from_slice(",
    ];
    let place = format!("{owner}.{field}");
    let word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(&place).any(|(at, _)| {
        let (before, mut rest) = (&line[..at], &line[at + place.len()..]);
        if before.ends_with(word) || rest.starts_with(word) {
            return false;
        }
        let taken = ["mem::take(&mut ", "mem::replace(&mut "];
        let taken = taken.iter().any(|call| before.ends_with(call));
        loop {
            let assigns = SIGNS.iter().any(|sign| rest.trim_start().starts_with(sign));
            let changes = CHANGES.iter().any(|call| rest.starts_with(call));
            if assigns || changes || taken {
                return true;
            }
            let Some(nested) = rest.strip_prefix('.') else {
                return false;
            };
            rest = nested.trim_start_matches(word);
        }
    })
}

#[test]
fn fields_are_written_to_by_their_own_file() {
    let sources = decisions();
    let own = [
        ("client/mod.rs", "Client", &["client", "entry"][..], &[][..]),
        ("server/mod.rs", "Server", &["server", "entry"], &LINKS),
        // Files that have a `Pool` of their own.
        ("pool/mod.rs", "Pool", &["pool"], &["broker.rs", "peer.rs"]),
        ("link/mod.rs", "Link", &["link"], &LINKS),
    ];
    let mut writers = Vec::new();
    for (file, name, owners, others) in own {
        let (_, text) = sources.iter().find(|(at, _)| at == file).unwrap();
        let fields = fields(text, name);
        for (at, text) in &sources {
            if at == file || others.contains(&&**at) {
                continue;
            }
            for line in code(text) {
                let is = |field: &String| owners.iter().any(|owner| writes(line, owner, field));
                if fields.iter().any(is) {
                    writers.push(format!("{at}: {}", line.trim()));
                }
            }
        }
    }
    assert_eq!(
        writers.len(),
        FOREIGN_WRITES,
        "writes from outside; the number may only fall: {writers:#?}"
    );
}

#[test]
fn a_write_is_seen() {
    for line in [
        "client.inbox = Inbox::default();",
        "self.client.inbox.left -= 1;",
        "pool.stats.evictions += 1;",
        "server.check.take()",
        "if std::mem::take(&mut client.parked) {",
    ] {
        let named = [
            ("client", "inbox"),
            ("pool", "stats"),
            ("server", "check"),
            ("client", "parked"),
        ];
        let is = |(owner, field): &(&str, &str)| writes(line, owner, field);
        assert!(named.iter().any(is), "{line}");
    }
    for line in ["client.inbox.hold(bytes);", "if client.inbox == other {"] {
        assert!(!writes(line, "client", "inbox"), "{line}");
    }
}

/// Whom each method of `Pooler` calls among the others, by their names in the text.
fn calls() -> Graph {
    let mut bodies = BTreeMap::new();
    for (_, text) in decisions() {
        let lines = code(&text).collect::<Vec<_>>().join("\n");
        for part in lines.split("\nimpl Pooler {\n").skip(1) {
            let part = &part[..part.find("\n}").unwrap()];
            let mut name = String::new();
            for line in part.lines() {
                let method = line.strip_prefix("    ").filter(|l| !l.starts_with(' '));
                if let Some((_, rest)) = method.and_then(|line| line.split_once("fn ")) {
                    let end = rest.find(['(', '<']).unwrap();
                    name = rest[..end].to_string();
                    assert!(!bodies.contains_key(&name), "{name} twice");
                }
                let body: &mut String = bodies.entry(name.clone()).or_default();
                body.push_str(line.trim());
            }
        }
    }
    let words = |body: &str| -> BTreeSet<String> {
        let pieces = ["self.", "Self::", "Pooler::"];
        let calls = pieces.iter().flat_map(|piece| body.split(piece).skip(1));
        let names = calls.filter_map(|rest| rest.split_once('('));
        names.map(|(name, _)| name.to_string()).collect()
    };
    let known: BTreeSet<String> = bodies.keys().cloned().collect();
    let calls = bodies.iter().map(|(name, body)| {
        let called = words(body).intersection(&known).cloned().collect();
        (name.clone(), called)
    });
    calls.collect()
}

/// What follows from an event is a step that the router takes (`next.rs`), not a call in a circle.
#[test]
fn calls_run_in_no_large_circle() {
    let calls = calls();
    assert!(calls.len() > 400, "{} methods are found", calls.len());
    let largest = largest_circle(&calls);
    assert_eq!(
        largest.len(),
        LARGEST_CIRCLE,
        "{largest:?}; the number may only fall"
    );
}

#[test]
fn look_ups_say_whom_they_may_miss() {
    let mut count = 0;
    for (_, text) in decisions() {
        let lines: Vec<_> = code(&text).collect();
        for pair in lines.windows(2) {
            let looks = ["self.clients.get", "self.servers.get"];
            let looks = looks.iter().any(|place| pair[0].contains(place));
            let silent = pair[0].trim_end().ends_with("else {") && pair[1].contains("return");
            count += usize::from(looks && silent);
        }
    }
    assert_eq!(
        count, SILENT_LOOK_UPS,
        "silent look-ups; the number may only fall"
    );
}

/// What begins with `is_` or `has_` answers a question. A method that changes its value and returns
/// nothing is called by what it does.
#[test]
fn what_reads_as_a_question_answers() {
    let mut asked = 0;
    for part in ["wire", "auth", "config", "pooler", "daemon"] {
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

#[test]
fn no_file_grows_without_end() {
    for part in ["wire", "auth", "config", "pooler", "daemon"] {
        for (name, text) in sources(&crates().join(part).join("src")) {
            let lines = text.lines().count();
            assert!(lines <= LONGEST, "{part}/{name} has {lines} lines");
        }
    }
}
