//! Finds which file of a crate imports which, from the text of the files.
//!
//! An import leads to the file that defines the imported name: `use crate::pool::PoolKey` leads to
//! `pool/key.rs`, although the `pub use` is in `pool/mod.rs`.

use std::collections::{BTreeMap, BTreeSet};

/// A directed graph.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The words of a path, without `crate`.
type Path = Vec<String>;

/// The relevant facts of a file.
struct File {
    name: String,
    /// Words of the code, joined by `::`, except those of `use` and `mod`.
    words: Vec<Path>,
    /// Names of its structs, enums, functions and so on.
    defines: BTreeSet<String>,
    /// Names that the file imports.
    uses: BTreeMap<String, Path>,
}

/// The files of a crate, by the paths of their modules.
struct Modules(BTreeMap<Path, File>);

/// The imports of each file. `sources` has the name and text of all files.
pub fn imports(sources: &[(String, String)]) -> Graph {
    let files = sources.iter().map(|(name, text)| {
        let module = module(name);
        let file = File::read(name, text);
        (module, file)
    });
    let modules = Modules(files.collect());
    let graph = modules.0.iter().map(|(module, file)| {
        let mut found: BTreeSet<String> = file
            .words
            .iter()
            .filter_map(|path| modules.definer(modules.absolute(module, path)?))
            .map(String::from)
            .collect();
        found.remove(&file.name);
        (file.name.clone(), found)
    });
    graph.collect()
}

/// `pool/key.rs` is `pool::key`, `pool/mod.rs` is `pool`.
fn module(name: &str) -> Path {
    let path = name.trim_end_matches(".rs").trim_end_matches("/mod");
    let words = path.split('/').filter(|word| *word != "lib");
    words.map(String::from).collect()
}

impl File {
    fn read(name: &str, text: &str) -> File {
        let code: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        let mut file = File {
            name: name.to_string(),
            words: Vec::new(),
            defines: BTreeSet::new(),
            uses: BTreeMap::new(),
        };
        let mut rest = code.join("\n");
        rest.push('\n');
        let mut statement = String::new();
        for line in rest.lines() {
            let bare = line.strip_prefix("pub").map_or(line, |rest| {
                let rest = rest.split_once(')').filter(|_| rest.starts_with('('));
                rest.map_or(&line[3..], |(_, rest)| rest).trim_start()
            });
            if !statement.is_empty() || bare.starts_with("use ") {
                statement.push_str(bare.trim());
                if let Some(tree) = statement.strip_suffix(';') {
                    let tree = tree.trim_start_matches("use ").to_string();
                    file.take_in(&[], &tree);
                    statement.clear();
                }
                continue;
            }
            if bare.starts_with("mod ") {
                continue;
            }
            if let Some(name) = defined(bare) {
                file.defines.insert(name.to_string());
            }
            let signs = |c: char| !c.is_alphanumeric() && c != '_' && c != ':';
            let words = line.split(signs).map(|word| word.trim_matches(':'));
            let paths = words.filter(|word| !word.is_empty());
            let paths = paths.map(|word| word.split("::").map(String::from).collect());
            file.words.extend(paths);
        }
        file
    }

    /// Reads the tree of a `use`, after a prefix.
    fn take_in(&mut self, prefix: &[String], tree: &str) {
        let mut depth = 0;
        let mut branches = vec![String::new()];
        for c in tree.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            match c {
                ',' if depth == 0 => branches.push(String::new()),
                _ => branches.last_mut().unwrap().push(c),
            }
        }
        for branch in branches {
            let branch = branch.trim();
            let (path, inside) = branch.split_once('{').unwrap_or((branch, ""));
            let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
            let words = path.split("::").filter(|word| !word.is_empty());
            let mut whole = prefix.to_vec();
            whole.extend(words.map(|word| word.trim().to_string()));
            if !inside.is_empty() {
                self.take_in(&whole, inside.strip_suffix('}').unwrap());
                continue;
            }
            whole.pop_if(|last| last == "self");
            let Some(last) = whole.last() else { continue };
            let name = if alias.is_empty() { last } else { alias };
            self.uses.insert(name.to_string(), whole.clone());
        }
    }
}

/// The name that an unindented line defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.strip_prefix("const fn ").map_or(line, |_| &line[6..]);
    let kinds = [
        "struct ", "enum ", "fn ", "type ", "trait ", "const ", "static ",
    ];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

impl Modules {
    /// A path in a module, as a path from the crate's root. `None` if it leads out of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Path> {
        let first = path.first()?;
        let file = &self.0[module];
        match first.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => return Some([module, &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|word| *word == "super").count();
                let above = module.len().checked_sub(ups)?;
                return Some([&module[..above], &path[ups..]].concat());
            }
            _ => {}
        }
        if let Some(used) = file
            .uses
            .get(first)
            .filter(|used| *used.first().unwrap() != *first)
        {
            return Some([self.absolute(module, used)?, path[1..].to_vec()].concat());
        }
        let child = [module, &path[..1]].concat();
        self.0.contains_key(&child).then(|| [module, path].concat())
    }

    /// The file that defines the target of a path.
    fn definer(&self, mut path: Path) -> Option<&str> {
        // Each turn follows one `pub use`.
        for _ in 0..8 {
            let cut = (0..=path.len())
                .rev()
                .find(|&cut| self.0.contains_key(&path[..cut]))?;
            let (module, rest) = path.split_at(cut);
            let file = &self.0[module];
            let name = rest.first()?;
            if file.defines.contains(name) {
                return Some(&file.name);
            }
            let used = file.uses.get(name)?;
            path = [self.absolute(module, used)?, rest[1..].to_vec()].concat();
        }
        None
    }
}

/// All nodes that can be reached from a node.
fn reach<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        let new = graph[at].iter().filter(|to| reached.insert(to.as_str()));
        next.extend(new.map(String::as_str).collect::<Vec<_>>());
    }
    reached
}

/// The largest set of nodes that can all reach each other. Empty if there is no circle.
pub fn largest_circle(graph: &Graph) -> Vec<&str> {
    let reached: BTreeMap<&str, _> = graph.keys().map(|at| (&**at, reach(graph, at))).collect();
    let circle = |at: &str| -> Vec<&str> {
        let back = reached[at].iter().filter(|to| reached[**to].contains(at));
        back.copied().collect()
    };
    graph
        .keys()
        .map(|at| circle(at))
        .max_by_key(Vec::len)
        .unwrap()
}

#[test]
fn an_import_leads_to_the_file_that_defines_the_name() {
    let sources = [
        ("lib.rs", "pub mod a;\npub mod b;\npub use b::c::Deep;\n"),
        (
            "a.rs",
            "use crate::b::{self, Known as Name};\nfn f(_: Name) { b::g(); crate::Deep }\n",
        ),
        (
            "b/mod.rs",
            "mod c;\npub use c::Known;\npub(crate) fn g() {}\n",
        ),
        (
            "b/c.rs",
            "pub struct Known;\npub struct Deep;\nimpl Deep { fn x() { super::g() } }\n",
        ),
    ];
    let sources = sources.map(|(name, text)| (name.to_string(), text.to_string()));
    let graph = imports(&sources);
    let of = |name: &str| graph[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("a.rs"), ["b/c.rs", "b/mod.rs"]);
    assert_eq!(of("b/mod.rs"), [""; 0]);
    assert_eq!(of("b/c.rs"), ["b/mod.rs"]);
    assert_eq!(largest_circle(&graph), [""; 0]);

    let mut graph = graph;
    graph.get_mut("b/mod.rs").unwrap().insert("a.rs".into());
    assert_eq!(largest_circle(&graph), ["a.rs", "b/c.rs", "b/mod.rs"]);
}
