//! From an ini file to `howdah.toml`: the same configuration, with the comments above their lines.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::resolve::in_entry;
use super::setting::Setting;
use super::source::SecretSource;
use super::written::{Path, WrittenLine};
use super::{Config, Mistake, Scope, ini, surroundings, table, toml_text};

/// The TOML for an ini file and the files that it includes.
///
/// # Errors
/// The mistakes of the file, which are to be corrected first.
pub fn to_toml(
    path: &str,
    text: &str,
    read_file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<String, Vec<Mistake>> {
    let mut comments = Comments::default();
    comments.take(path, text);
    let mut mistakes = Vec::new();
    let lines = ini::read(
        path,
        text,
        &mut |path| {
            let text = read_file(path)?;
            comments.take(path, &text);
            Ok(text)
        },
        &mut mistakes,
    );
    // What the lines mean is judged with the users and rules, and without variables.
    let reading = Config::read_among(path, text, &mut surroundings::Files(read_file));
    if !reading.mistakes.is_empty() {
        return Err(reading.mistakes);
    }
    let mut writer = Writer::default();
    for line in &lines {
        let above = comments.above(line);
        writer.take(line, above);
    }
    writer.left_over = comments.rest();
    Ok(writer.text())
}

/// The comments of files, by the file and the line.
#[derive(Default)]
struct Comments(HashMap<String, BTreeMap<u32, String>>);

impl Comments {
    fn take(&mut self, path: &str, text: &str) {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| line.starts_with([';', '#']));
        let comments = lines.map(|(number, line)| {
            let words = line.trim_start_matches([';', '#']).trim();
            // A control character, which TOML refuses in a comment, says nothing.
            let words: String = words.chars().filter(|c| !c.is_control()).collect();
            (number, format!("# {words}").trim_end().to_owned())
        });
        self.0
            .entry(path.into())
            .or_insert_with(|| comments.collect());
    }

    /// The comments above a line that no line before it had.
    fn above(&mut self, line: &WrittenLine) -> Vec<String> {
        let Some(comments) = self.0.get_mut(&*line.place.file) else {
            return Vec::new();
        };
        let below = comments.split_off(&line.place.line);
        std::mem::replace(comments, below).into_values().collect()
    }

    /// The comments below all lines.
    fn rest(self) -> Vec<String> {
        let mut files: Vec<_> = self.0.into_iter().collect();
        files.sort_unstable();
        let comments = files
            .into_iter()
            .map(|(_, comments)| comments.into_values());
        comments.flatten().collect()
    }
}

/// A table of the file.
#[derive(Default)]
struct Table {
    above: Vec<String>,
    /// Lines by the field of their setting, in order.
    settings: Vec<(&'static str, Vec<String>, String)>,
}

/// Tables in the order in which they begin.
#[derive(Default)]
struct Writer {
    order: Vec<Path>,
    tables: HashMap<Path, Table>,
    left_out: HashSet<Path>,
    /// Comments above the header of a section that has entries.
    of_section: Vec<String>,
    left_over: Vec<String>,
}

impl Writer {
    fn take(&mut self, line: &WrittenLine, mut above: Vec<String>) {
        if line.map_part().is_some() {
            return self.map_line(line, above);
        }
        let Some(scope) = line.scope() else {
            // The header of a section.
            return self.of_section.append(&mut above);
        };
        let Some(key) = &line.key else {
            return self.begin(line, above);
        };
        if self.left_out.contains(&line.path) {
            return;
        }
        let in_file = table::find_in_file(scope, key);
        let fetched = table::find_fetched(scope, key);
        let of_source = fetched.map(|(setting, _)| setting);
        let Some(setting) = table::find(scope, key).or(in_file).or(of_source) else {
            return;
        };
        let table = self.tables.entry(line.path.clone()).or_default();
        // The last of several lines counts.
        if let Some(at) = table
            .settings
            .iter()
            .position(|(field, ..)| *field == setting.field)
        {
            let (_, mut earlier, _) = table.settings.remove(at);
            earlier.append(&mut above);
            above = earlier;
        }
        if in_file.is_some() && !line.text.starts_with('/') {
            above.push("# This path counts from the folder of this file.".into());
        }
        let text = match (in_file, fetched) {
            (_, Some((_, is_command))) => source(is_command, &line.text),
            (Some(_), None) => Some(format!("{{ file = {} }}", toml_text::text(&line.text))),
            (None, None) => value(scope, setting, line),
        };
        let name = name(scope, setting.name);
        let written = text.map_or(String::new(), |text| format!("{name} = {text}"));
        table.settings.push((setting.field, above, written));
    }

    /// A line of a sharded database's map, or its header.
    fn map_line(&mut self, line: &WrittenLine, mut above: Vec<String>) {
        if !self.tables.contains_key(&line.path) {
            self.begin(line, std::mem::take(&mut above));
        }
        if let (Some(key), Some(table)) = (&line.key, self.tables.get_mut(&line.path)) {
            let written = format!("{} = {}", toml_text::key(key), toml_text::text(&line.text));
            table.settings.push(("", above, written));
        }
    }

    /// A section or an entry begins, with the defaults.
    fn begin(&mut self, line: &WrittenLine, above: Vec<String>) {
        let mut above_all = std::mem::take(&mut self.of_section);
        above_all.extend(above);
        let earlier = self.tables.remove(&line.path);
        self.order.retain(|path| *path != line.path);
        let earlier = earlier.into_iter().flat_map(|table| {
            let of_lines = table.settings.into_iter().flat_map(|(_, above, _)| above);
            table.above.into_iter().chain(of_lines)
        });
        let mut above: Vec<String> = earlier.collect();
        above.append(&mut above_all);
        if line.is_left_out {
            let name = line.path.last().map(String::as_str).unwrap_or_default();
            above.push(format!(
                "# The entry {} could not be read, and is left out.",
                toml_text::key(name)
            ));
            self.left_out.insert(line.path.clone());
            return self.of_section.append(&mut above);
        }
        self.left_out.remove(&line.path);
        self.order.push(line.path.clone());
        let table = Table {
            above,
            settings: Vec::new(),
        };
        self.tables.insert(line.path.clone(), table);
    }

    fn text(mut self) -> String {
        let mut out = String::new();
        let is_main = |path: &Path| path.len() == 1;
        // The global settings come first, as in most files of TOML.
        self.order.sort_by_key(|path| !is_main(path));
        for path in &self.order {
            let Some(table) = self.tables.remove(path) else {
                continue;
            };
            if !out.is_empty() {
                out.push('\n');
            }
            let names = path
                .iter()
                .skip(1)
                .map(|name| format!(".{}", toml_text::key(name)));
            let section = if is_main(path) { "howdah" } else { &path[0] };
            let header = format!("[{section}{}]", names.collect::<String>());
            let settings = table.settings.into_iter();
            let settings =
                settings.flat_map(|(_, above, written)| above.into_iter().chain([written]));
            let lines = table.above.into_iter().chain([header]).chain(settings);
            for line in lines.filter(|line| !line.is_empty()) {
                out.push_str(&line);
                out.push('\n');
            }
        }
        let rest = self.of_section.iter().chain(&self.left_over);
        for (at, comment) in rest.enumerate() {
            out.push_str(if at == 0 { "\n" } else { "" });
            out.push_str(comment);
            out.push('\n');
        }
        out
    }
}

/// The name of a setting in TOML.
fn name(scope: Scope, name: &'static str) -> &'static str {
    match (scope, name) {
        (Scope::Database, "user") => "server_user",
        (Scope::Database, "password") => "server_password",
        (Scope::Database, "options") => "parameters",
        (Scope::Database, "reserve_pool") => "reserve_pool_size",
        (_, name) => name,
    }
}

/// Where a secret comes from, as a table.
fn source(is_command: bool, text: &str) -> Option<String> {
    Some(match SecretSource::of_words(is_command, text).ok()? {
        SecretSource::File(path) => format!("{{ file = {} }}", toml_text::text(&path)),
        SecretSource::Command(words) => {
            format!("{{ command = {} }}", toml_text::array(words.iter()))
        }
        named => {
            let (name, options) = named.in_words()?;
            let words = [("source", name)].into_iter().chain(options);
            let words = words.map(|(key, value)| format!("{key} = {}", toml_text::text(value)));
            format!("{{ {} }}", words.collect::<Vec<_>>().join(", "))
        }
    })
}

/// The value of a line; `None` if it means "as in the next scope", which needs no line.
fn value(scope: Scope, setting: &Setting, line: &WrittenLine) -> Option<String> {
    let text = match scope {
        Scope::Global => &line.text,
        _ => match in_entry(setting, &line.text) {
            "" if !line.text.is_empty() => return None,
            text => text,
        },
    };
    let is_hosts = setting.name == "host" && text.contains(',');
    if is_hosts && !text.split(',').any(|host| host.trim().is_empty()) {
        let hosts: Vec<_> = text.split(',').map(|host| host.trim().to_owned()).collect();
        return Some(toml_text::array(hosts.iter()));
    }
    Some(toml_text::value(setting, text))
}
