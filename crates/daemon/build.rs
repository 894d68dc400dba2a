//! Facts about the build for `-V -v`: the commit and the compiler.
//!
//! The commit is `HOWDAH_COMMIT`, else that of the git repository if the sources are the root of one.
//! A build from a tarball says `unknown`. A debug build does not look, so that a commit does not make
//! it compile anew.
//!
//! Cargo hands what is set here to the program that it runs, and howdah refuses variables that begin with
//! `HOWDAH_` and are no settings. So these have other names.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=HOWDAH_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let named = env::var("HOWDAH_COMMIT")
        .ok()
        .filter(|name| !name.is_empty());
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = named.or_else(|| release.then(commit_of_repository).flatten());
    let commit = commit.unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=BUILT_COMMIT={commit}");
    let compiler = env::var("RUSTC")
        .ok()
        .and_then(|rustc| said(Command::new(rustc).arg("-V")));
    let compiler = compiler.unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=BUILT_COMPILER={compiler}");
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=BUILT_TARGET={target}");
}

fn commit_of_repository() -> Option<String> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").ok()?)
        .join("../..")
        .canonicalize()
        .ok()?;
    let git = |arguments: &[&str]| said(Command::new("git").arg("-C").arg(&root).args(arguments));
    let top = git(&["rev-parse", "--show-toplevel"])?;
    // A tarball may have been unpacked in a repository of something else.
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// The line that a program prints, if it runs.
fn said(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let line = String::from_utf8(output.stdout).ok()?;
    Some(line.trim().to_string()).filter(|line| !line.is_empty())
}
