//! The writer of TOML 1.0: keys, texts, and a setting's text as the value of its type.

use super::Setting;
use super::parameters::Parameters;
use super::value::{Kind, List, Value, read_number, read_seconds};

/// A key, in quotes if it needs them.
pub fn key(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        name.into()
    } else {
        text(name)
    }
}

/// A text in double quotes.
pub fn text(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A setting's text as it stands in an ini file, as a value of TOML.
pub fn value(setting: &Setting, written: &str) -> String {
    let typed = match setting.kind {
        Kind::Flag => read_number(written).map(|number| (number != 0).to_string()),
        // An octal number stays one: it is an access mode.
        Kind::Number if setting.name == "unix_socket_mode" => {
            read_number(written).map(|mode| format!("0o{mode:o}"))
        }
        Kind::Number => read_number(written).map(|number| number.to_string()),
        Kind::Seconds => read_seconds(written).map(|time| {
            let text = format!("{}.{:06}", time.as_secs(), time.subsec_micros());
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }),
        Kind::Share => {
            let number = written.trim().parse::<f64>().ok();
            number.map(|number| format!("{number:?}"))
        }
        Kind::Ports => {
            let ports: Option<Vec<u16>> = written
                .split(',')
                .map(|port| port.trim().parse().ok())
                .collect();
            ports.map(|ports| match &*ports {
                [port] => port.to_string(),
                ports => format!("{ports:?}"),
            })
        }
        Kind::List => List::read(written).and_then(|list| {
            // Other spellings keep their text.
            let is_plain = list.join(", ") == written && !list.is_empty();
            is_plain.then(|| array(list.iter()))
        }),
        Kind::Lines if !written.is_empty() => {
            let lines: Vec<_> = written.lines().map(String::from).collect();
            Some(array(lines.iter()))
        }
        Kind::Parameters => Parameters::read(written).map(|parameters| {
            let all = parameters
                .iter()
                .map(|(name, value)| format!("{} = {}", key(name), text(value)));
            let all = all.collect::<Vec<_>>().join(", ");
            if all.is_empty() {
                "{}".into()
            } else {
                format!("{{ {all} }}")
            }
        }),
        _ => None,
    };
    typed.unwrap_or_else(|| text(written))
}

/// Texts in an array.
pub fn array<'a>(all: impl Iterator<Item = &'a String>) -> String {
    let all: Vec<_> = all.map(|element| text(element)).collect();
    format!("[{}]", all.join(", "))
}
