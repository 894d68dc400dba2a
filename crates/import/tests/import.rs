//! Files of other poolers in the shapes that people use: the report and the output of each.
//!
//! `HOWDAH_EXPECT=write cargo test -p howdah-import --test import` writes what is expected anew.
#![allow(clippy::disallowed_methods)] // It reads the cases.

use std::collections::HashMap;
use std::path::Path;
use std::{env, fs};

use howdah_config::{Config, Surroundings};
use howdah_import::{ForeignFile, Imported, SECRETS, Verdict, import};

/// Where the expected part of a case begins.
const EXPECTED: &str = "-- report\n";

/// The files of a case.
fn files(given: &str) -> Vec<ForeignFile> {
    let parts = given.split("-- ").skip(1);
    let files = parts.map(|part| {
        let (path, text) = part.split_once('\n').expect("a name");
        ForeignFile {
            path: path.into(),
            text: text.into(),
        }
    });
    files.collect()
}

fn imported(given: &str) -> Imported {
    let files = files(given);
    let others: HashMap<_, _> = files
        .iter()
        .map(|file| (file.path.clone(), file.text.clone()))
        .collect();
    // PgDoorman's first file includes the other one.
    let first = if given.contains("include.files") {
        1
    } else {
        files.len()
    };
    let mut read = |path: &str| others.get(path).cloned().ok_or("no such file".to_owned());
    import(&files[..first], None, &mut read).expect("a file that can be read")
}

fn said(given: &str) -> String {
    let imported = imported(given);
    let (main, secrets) = (&imported.written.main, &imported.written.secrets);
    let exit = i32::from(imported.report.loses_what_decides());
    let report = imported.report.text();
    format!("{report}-- exit code {exit}\n-- howdah.toml\n{main}-- secrets.toml\n{secrets}")
}

fn cases() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let all = fs::read_dir(folder).expect("the cases");
    let mut all: Vec<_> = all
        .map(|entry| {
            let path = entry.expect("a case").path();
            let text = fs::read_to_string(&path).expect("text");
            (path.display().to_string(), text)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn each_case_gives_its_report_and_its_files() {
    let mut wrong = Vec::new();
    for (path, text) in cases() {
        let (given, expected) = text.split_once(EXPECTED).unwrap_or((&text, ""));
        let said = said(given);
        if said == expected {
            continue;
        }
        if env::var("HOWDAH_EXPECT").is_ok_and(|what| what == "write") {
            fs::write(&path, format!("{given}{EXPECTED}{said}")).expect("to write");
        } else {
            wrong.push(format!("{path}\n-----8<-----\n{said}-----8<-----"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/moving-from-others.md");
    let page = howdah_import::page();
    if env::var("HOWDAH_EXPECT").is_ok_and(|what| what == "write") {
        fs::write(&path, &page).expect("to write");
    }
    let kept = fs::read_to_string(&path).expect("the page");
    assert!(
        kept == page,
        "out of date: howdah import --keys > docs/moving-from-others.md"
    );
}

/// The output, as files.
struct Output(Imported);

impl Surroundings for Output {
    fn file(&mut self, path: &str) -> Result<String, String> {
        match path {
            SECRETS => Ok(self.0.written.secrets.clone()),
            _ => Err("no such file".into()),
        }
    }

    fn files(&mut self, _: &str) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn variable(&mut self, _: &str) -> Option<String> {
        None
    }

    fn variables(&mut self, _: &str) -> Vec<(String, String)> {
        Vec::new()
    }
}

#[test]
fn the_output_is_a_configuration() {
    for (path, text) in cases() {
        let given = text.split(EXPECTED).next().unwrap_or_default();
        let mut output = Output(imported(given));
        let main = output.0.written.main.clone();
        let reading = Config::read_among("howdah.toml", &main, &mut output);
        assert!(
            reading.mistakes.is_empty(),
            "{path}: {:?}",
            reading.mistakes
        );
    }
}

#[test]
fn no_secret_is_in_the_report_or_in_the_first_file() {
    for (path, text) in cases() {
        let given = text.split(EXPECTED).next().unwrap_or_default();
        let Imported { written, report } = imported(given);
        let shown = [written.main, report.text(), report.markdown()].concat();
        let words = given.split(|c: char| !(c.is_ascii_alphanumeric() || "_$".contains(c)));
        for word in words.filter(|word| word.ends_with("_word")) {
            assert!(!shown.contains(word), "{path}: {word}");
        }
    }
}

#[test]
fn what_decides_is_lost_and_comes_first() {
    for (path, text) in cases() {
        let given = text.split(EXPECTED).next().unwrap_or_default();
        let report = imported(given).report;
        let decides = report.findings.iter().filter(|finding| finding.decides);
        let mut count = 0;
        for finding in decides {
            assert_eq!(finding.verdict, Verdict::Lost, "{path}");
            count += 1;
        }
        let (first, findings) = report.parts().remove(0);
        if count > 0 {
            assert_eq!(
                (first.starts_with("Lost, and"), findings.len()),
                (true, count),
                "{path}"
            );
        }
    }
}

#[test]
fn files_that_cannot_be_read_say_where() {
    for (path, text, said) in [
        (
            "pgcat.toml",
            "[general]\nport = \n",
            "pgcat.toml:2:8: syntax error in TOML",
        ),
        ("a.yaml", "general:\n  - a\n b: c\n", "a.yaml:3:"),
        (
            "a.yaml",
            "a: &x [1]\nb: *x\n",
            "a.yaml:1:4: syntax error in YAML: anchors",
        ),
        ("a.yaml", &"[".repeat(100_000), "a.yaml:"),
        (
            "a.toml",
            &("a = ".to_owned() + &"[".repeat(100_000)),
            "a.toml:",
        ),
        (
            "a.conf",
            "listen {\n port 6432\n",
            "a.conf:2:2: syntax error in Odyssey's file",
        ),
        (
            "a.conf",
            "storage \"pg { }",
            "a.conf:1:9: syntax error in Odyssey's file: a text",
        ),
        (
            "a.conf",
            &format!("listen {{ {} ", "a { ".repeat(100_000)),
            "a.conf:1:",
        ),
        (
            "a.conf",
            "listen { }\ninclude \"b.conf\"",
            "a.conf:2:1: could not load file",
        ),
        (
            "a.conf",
            "database \"a\" { user \"b\" { password \"c\"d\"e\" } }",
            "a.conf:1:36: syntax error in Odyssey's file: behind",
        ),
        (
            "a.conf",
            "storage \"a\" {\npassword \"old\" \"new\"\n}",
            "a.conf:2:16: syntax error in Odyssey's file: here a key",
        ),
        (
            "a.yaml",
            "pools:\n  a: {}\npools: {}\n",
            "a.yaml:3:1: syntax error in YAML: a key",
        ),
        (
            "pgbouncer.ini",
            "[databases]\n",
            "pgbouncer.ini is an ini file",
        ),
        (
            "a.toml",
            "[howdah]\n",
            "the files do not tell whose they are",
        ),
    ] {
        let files = [ForeignFile {
            path: path.into(),
            text: text.into(),
        }];
        let error = import(&files, None, &mut |_| Err("no such file".into()));
        let error = error.expect_err(path).to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn names_cannot_write_settings_or_headings() {
    let files = [ForeignFile {
        path: "a\n[howdah]\nauth_type = \"trust\"\n#.toml".into(),
        text: "\"x\\n\\nSame:\\n\\u001b[2J\" = 1\n[pools.a.shards]\n[general]\nadmin_username = \"a, b\"".into(),
    }];
    let imported = import(&files, None, &mut |_| Err("no such file".into())).expect("a file");
    let lines = imported.written.main.lines();
    assert_eq!(lines.filter(|line| *line == "[howdah]").count(), 1);
    assert!(!imported.written.main.contains("admin_users"));
    let report = imported.report.text();
    assert!(
        !report.contains('\u{1b}') && !report.contains("\nSame:"),
        "{report}"
    );
}

#[test]
fn a_key_in_two_files_names_both() {
    let file = |path: &str| ForeignFile {
        path: path.into(),
        text: "[admin]\npassword = \"x\"\n[[databases]]\nname = \"a\"".into(),
    };
    let mut none = |_: &str| Err("no such file".into());
    let error = import(&[file("a.toml"), file("b.toml")], None, &mut none).unwrap_err();
    assert_eq!(
        error.to_string(),
        "b.toml:2:1: password stands in a.toml:2:1, too: leave one out"
    );
    let error = import(&[file("a.toml"), file("a.toml")], None, &mut none).unwrap_err();
    assert_eq!(error.to_string(), "a.toml is named twice");
}

#[test]
fn files_that_include_each_other_widely_end() {
    let text = "listen {}\n".to_owned() + &"include \"a\"\n".repeat(10);
    let files = [ForeignFile {
        path: "a.conf".into(),
        text: text.clone(),
    }];
    let mut count = 0;
    let error = import(&files, None, &mut |_| {
        count += 1;
        Ok(if count < 12 {
            text.clone()
        } else {
            "include \"b\"".repeat(20)
        })
    });
    assert!(error.is_err() && count < 2000, "{count}");
}
