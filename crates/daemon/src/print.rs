//! What commands print. Who reads may stop before the end (`howdah --settings | head`).

use std::io::{self, ErrorKind, Write};

/// Prints a text to standard output. If that can't be written, the command fails.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(why) = printed
        && why.kind() != ErrorKind::BrokenPipe
    {
        tell(&format!("howdah: standard output: {why}\n"));
        std::process::exit(1);
    }
}

/// Writes a text to standard error, if anybody reads there.
pub fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
