//! Standard output of the commands.

use std::io::{self, Write};

/// Prints a text. Who reads the text may stop before its end (`howdah --settings | head`).
pub fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
