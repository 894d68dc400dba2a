//! The fuzz bodies of Howdah's own file and of URLs: they take any bytes, and panic if a promise is
//! broken.

use super::{Config, toml_file, url};

/// Any text is a configuration or has mistakes, each with a text and at a line that there is. The text
/// after a zero byte stands for every other file.
pub fn own_file(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (text, other) = text.split_once('\0').unwrap_or((&text, ""));
    let mut read_file = |_: &str| Ok(other.to_owned());
    let reading = Config::read("howdah.toml", text, &mut read_file);
    let lines = text.lines().count().max(other.lines().count());
    for mistake in &reading.mistakes {
        assert!(!mistake.text.is_empty());
        if let Some(place) = &mistake.place {
            assert!(place.line as usize <= lines + 1, "{mistake}");
        }
    }
    if reading.mistakes.is_empty() {
        for setting in reading.config.settings() {
            assert!(!setting.name.is_empty());
        }
    }
}

/// A URL has settings, or is refused with a reason. A host with its port is what it was.
pub fn urls(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for url in url::several(&text) {
        match url::parse(url) {
            Ok(pairs) => assert!(pairs.iter().all(|(key, _)| !key.is_empty())),
            Err(why) => assert!(!why.is_empty()),
        }
    }
    let (host, port) = toml_file::split_port(&text);
    assert!(text.contains(host) && text.contains(port.unwrap_or_default()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes(input: Vec<u8>) {
            own_file(&input);
            urls(&input);
        }

        #[test]
        fn near_files(input in r#"(\[(howdah|databases\.a|users\.a|databases\.a\.users\.b)\]\n|(host|port|pool_size|password|url|parameters|include) = (["a-z:/0-9@,]{0,9}|\[[a-z",]{0,9}\]|\{ file = "x" \})\n){0,9}"#) {
            own_file(input.as_bytes());
        }

        #[test]
        fn near_urls(input in r"postgres(ql)?://[a-z:@,%0-9\[\]/?=&]{0,40}") {
            urls(input.as_bytes());
        }
    }
}
