//! A program that prints a password: alone, or as JSON with `password`, `user` and `expires_at`.
//!
//! The program is run without a shell, with descriptors 0 to 2 alone, in a process group of its own, which
//! is killed after a time limit. What it prints is never logged; of its errors, the last line is.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use howdah_daemon::driver::socket::close_on_exec;
use howdah_pooler::auth::Secret;
use howdah_pooler::auth::secret::SecretBytes;
use howdah_pooler::config::FetchedValue;
use howdah_pooler::sources::{Lifetime, SourceAnswer};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::file::password;
use crate::log;
use crate::reload::now;

/// How long a program may run.
const LIMIT: Duration = Duration::from_secs(10);
/// The most that a program may print, in bytes.
const LONGEST: usize = 65_536;
/// How much of the last line of errors the log shows, in characters.
const SHOWN: usize = 200;

/// Runs a program, and reads what it prints.
///
/// # Errors
/// Why there is no password. No part of the output is in it.
pub async fn run(words: &[String]) -> Result<SourceAnswer, String> {
    let (program, arguments) = words.split_first().ok_or("there is no command")?;
    may_run(program)?;
    close_on_exec();
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if is_our_own(&name) {
            command.env_remove(name);
        }
    }
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let (mut child, running) = RunningGroup::spawn(&mut command)?;
    let group = running.as_ref().map(|running| running.0);
    let ended = tokio::time::timeout(LIMIT, output(&mut child)).await;
    if !matches!(ended, Ok(Ok(_)))
        && let Some(group) = group
    {
        // Its children, too.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        // A program with rights of its own may live on: nobody waits for that.
        tokio::spawn(async move { child.wait().await });
    }
    let limit = LIMIT.as_secs();
    let printed = ended.map_err(|_| format!("it was killed after {limit} seconds"))??;
    read(printed)
}

/// True for variables that are for Howdah alone: its settings, and its connection to the service manager.
fn is_our_own(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name == b"NOTIFY_SOCKET" || name.starts_with(b"LISTEN_") || name.starts_with(b"HOWDAH_")
}

/// The process groups of the programs that run now.
static RUNNING: Mutex<Running> = Mutex::new(Running {
    groups: Vec::new(),
    leaving: false,
});

/// The programs that run.
struct Running {
    /// Their process groups.
    groups: Vec<i32>,
    /// The process ends: no program is run any more.
    leaving: bool,
}

/// A process group of a program that runs.
struct RunningGroup(i32);

impl RunningGroup {
    /// Runs a program in a group of its own.
    fn spawn(command: &mut Command) -> Result<(Child, Option<RunningGroup>), String> {
        let mut running = running();
        if running.leaving {
            return Err("the process ends".into());
        }
        let child = command.spawn();
        let child = child.map_err(|why| format!("it can't be run: {}", log::text(&why)))?;
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        running.groups.extend(group);
        Ok((child, group.map(RunningGroup)))
    }
}

impl Drop for RunningGroup {
    fn drop(&mut self) {
        running().groups.retain(|group| *group != self.0);
    }
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all programs that run: they must not outlive the process.
pub fn kill_all() {
    let mut running = running();
    running.leaving = true;
    for group in running.groups.drain(..) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// Whether a program may be run: only root and Howdah's user may have the power to change it.
fn may_run(program: &str) -> Result<(), String> {
    let file = std::fs::metadata(program).map_err(|why| log::text(&why))?;
    writers(&file, &[geteuid().as_raw()])
        .map_or(Ok(()), |who| Err(format!("{who} may change the program")))
}

/// Who may change a file besides root and some users; `None`: nobody.
pub fn writers(file: &std::fs::Metadata, users: &[u32]) -> Option<&'static str> {
    match (file.uid(), file.mode()) {
        (owner, _) if owner != 0 && !users.contains(&owner) => {
            Some("another user than root and Howdah's own")
        }
        (_, mode) if mode & 0o002 != 0 => Some("everybody"),
        (_, mode) if mode & 0o020 != 0 && file.gid() != 0 => Some("a group"),
        _ => None,
    }
}

/// What a program prints.
async fn output(child: &mut Child) -> Result<SecretBytes, String> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (printed, errors) = tokio::join!(all(stdout), last(stderr));
    let printed = printed?;
    let status = child.wait().await.map_err(|why| log::text(&why))?;
    if status.success() {
        return Ok(printed);
    }
    let errors = match errors.is_empty() {
        true => String::new(),
        false => format!(": {errors}"),
    };
    Err(format!("{status}{errors}"))
}

/// All bytes of a stream, up to a limit.
async fn all(stream: Option<impl AsyncRead + Unpin>) -> Result<SecretBytes, String> {
    let mut bytes = SecretBytes(Vec::new());
    let Some(stream) = stream else {
        return Ok(bytes);
    };
    let read = stream
        .take(LONGEST as u64 + 1)
        .read_to_end(&mut bytes.0)
        .await;
    read.map_err(|why| log::text(&why))?;
    match bytes.len() > LONGEST {
        true => Err("it prints more than 64 KB".into()),
        false => Ok(bytes),
    }
}

/// The last line of a stream, fit for the log.
async fn last(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else {
        return String::new();
    };
    let (mut end, mut block) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut block).await {
        end.extend_from_slice(&block[..count]);
        let far = end.len().saturating_sub(block.len());
        end.drain(..far);
    }
    let text = String::from_utf8_lossy(&end);
    let line = text.trim_end().lines().last().unwrap_or_default();
    let shown: String = line.chars().take(SHOWN).collect();
    shown.escape_debug().to_string()
}

/// The password in what a program has printed.
fn read(printed: SecretBytes) -> Result<SourceAnswer, String> {
    let text = std::str::from_utf8(&printed).map_err(|_| "what it prints is not UTF-8")?;
    if text.trim_start().starts_with('{') {
        return read_json(text, now());
    }
    let secret = password(text.to_owned()).map_err(|_| "it prints no password")?;
    if secret.text().contains('\n') {
        return Err("it prints several lines: write the password alone, or JSON".into());
    }
    let value = FetchedValue::password(secret);
    Ok(SourceAnswer::Value(value, Lifetime::default()))
}

/// The password in JSON. `now` is in seconds since 1970.
fn read_json(text: &str, now: i64) -> Result<SourceAnswer, String> {
    const WRONG: &str = "its JSON can't be read: write {\"password\": \"...\", \"user\": \"...\", \
         \"expires_at\": \"2030-01-31T12:00:00Z\"}, the last two if there are any";
    let all: serde_json::Value = serde_json::from_str(text).map_err(|_| WRONG)?;
    let string = |key: &str| match all.get(key) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(text)) if !text.is_empty() && !text.contains('\0') => {
            Ok(Some(text.clone()))
        }
        Some(_) => Err(WRONG),
    };
    let secret = Secret::Plain(string("password")?.ok_or(WRONG)?);
    let user = string("user")?;
    let end = match all.get("expires_at") {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(time)) => {
            let time: jiff::Timestamp = time.parse().map_err(|_| WRONG)?;
            Some(time.as_second())
        }
        Some(number) => Some(number.as_i64().ok_or(WRONG)?),
    };
    let life = match end {
        Some(end) if end <= now => return Err("the password that it prints has ended".into()),
        Some(end) => Lifetime::of_seconds((end - now) as u64),
        None => Lifetime::default(),
    };
    let value = FetchedValue::Password {
        user,
        secret,
        vanishes: false,
    };
    Ok(SourceAnswer::Value(value, life))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(printed: &str) -> Result<(Option<String>, String, Option<u64>), String> {
        let answer = match printed.starts_with('{') {
            true => read_json(printed, 1000),
            false => read(SecretBytes(printed.into())),
        };
        match answer? {
            SourceAnswer::Value(FetchedValue::Password { user, secret, .. }, life) => {
                let life = life.ends.map(|life| life / 1_000_000_000);
                Ok((user, secret.text().to_owned(), life))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn programs_get_no_variable_that_is_for_howdah_alone() {
        for own in [
            "NOTIFY_SOCKET",
            "LISTEN_FDS",
            "LISTEN_PID",
            "HOWDAH_HTTP_TOKEN",
        ] {
            assert!(is_our_own(OsStr::new(own)), "{own}");
        }
        for kept in ["PATH", "HOME", "AWS_REGION", "KRB5CCNAME", "LISTENER"] {
            assert!(!is_our_own(OsStr::new(kept)), "{kept}");
        }
    }

    #[test]
    fn what_programs_print() {
        let plain = |text: &str| Ok((None, text.to_owned(), None));
        assert_eq!(said("word\n"), plain("word"));
        assert_eq!(said(" wo rd \r\n"), plain(" wo rd "));
        assert_eq!(said("{\"password\": \"w\"}"), plain("w"));
        assert_eq!(
            said("{\"password\": \"w\", \"user\": \"u\", \"expires_at\": 1900}"),
            Ok((Some("u".into()), "w".into(), Some(900)))
        );
        assert_eq!(
            said("{\"password\": \"w\", \"expires_at\": \"1970-01-01T01:00:00+00:30\"}"),
            Ok((None, "w".into(), Some(800)))
        );
        for bad in [
            "",
            "\n",
            "a\nb\n",
            "a\0",
            "{",
            "{}",
            "{\"password\": 1}",
            "{\"password\": \"\"}",
            "{\"password\": \"w\", \"user\": \"\"}",
            "{\"password\": \"w\", \"expires_at\": \"tomorrow\"}",
            "{\"password\": \"w\", \"expires_at\": 1000}",
        ] {
            let why = said(bad).unwrap_err();
            assert!(!why.is_empty() && !why.contains("\"w\""), "{bad}: {why}");
        }
    }
}
