//! A file whose text is a password. It may be replaced at any time, also behind a symbolic link.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use howdah_pooler::auth::Secret;
use howdah_pooler::auth::secret::SecretBytes;
use howdah_pooler::config::FetchedValue;
use howdah_pooler::sources::{Lifetime, SourceAnswer};

use crate::log;

/// The longest password or token in a file, in bytes.
pub const LONGEST: u64 = 65_536;

/// A file when it was read: device, inode, size, and the times of its last changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenFile([u64; 3], [i64; 4]);

/// Reads a file that is not as it was `before`.
///
/// # Errors
/// Why it has no password.
pub fn look(path: &str, before: Option<SeenFile>) -> Result<(SeenFile, SourceAnswer), String> {
    let now = state(path)?;
    if before == Some(now) {
        return Ok((now, SourceAnswer::Same));
    }
    let mut bytes = SecretBytes(Vec::new());
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes.0));
    read.map_err(|why| log::text(&why))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8")?;
    let secret = password(text.to_owned())?;
    if state(path)? != now {
        // Somebody is writing. The next look sees the end of that.
        return Err("it changes while it is read".into());
    }
    let value = FetchedValue::password(secret);
    Ok((now, SourceAnswer::Value(value, Lifetime::default())))
}

/// The password in a text, which may end with the end of a line.
///
/// # Errors
/// Why it is none.
pub fn password(mut text: String) -> Result<Secret, String> {
    let end = text.strip_suffix('\n').unwrap_or(&text);
    let end = end.strip_suffix('\r').unwrap_or(end).len();
    // What is cut off is no secret.
    text.truncate(end);
    let secret = Secret::classify(text);
    match secret.text() {
        "" => Err("it is empty".into()),
        text if text.len() as u64 >= LONGEST => Err("it is longer than 64 KB".into()),
        text if text.contains('\0') => Err("there is a zero byte in it".into()),
        _ => Ok(secret),
    }
}

fn state(path: &str) -> Result<SeenFile, String> {
    let file = fs::metadata(path).map_err(|why| log::text(&why))?;
    Ok(SeenFile(
        [file.dev(), file.ino(), file.size()],
        [
            file.mtime(),
            file.mtime_nsec(),
            file.ctime(),
            file.ctime_nsec(),
        ],
    ))
}
