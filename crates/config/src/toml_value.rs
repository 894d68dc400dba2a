//! From a value of TOML to the text that the same setting has in an ini file. Types, ranges and advice
//! are those of that text.

use toml::de::{DeArray, DeTable, DeValue};

use super::Setting;
use super::parameters::options;
use super::value::Kind;

/// The units of times, in seconds, with their names in postgresql.conf.
const UNITS: [(&str, f64); 5] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
];

/// The text of a value.
///
/// # Errors
/// What to write instead.
pub(super) fn text_of(setting: &Setting, value: &DeValue<'_>) -> Result<String, String> {
    let kind = setting.kind;
    match (kind, value) {
        (Kind::Flag, DeValue::Boolean(flag)) => Ok(if *flag { "1" } else { "0" }.into()),
        (
            Kind::Flag | Kind::Number | Kind::Seconds | Kind::Share | Kind::Ports,
            DeValue::Integer(_),
        ) => integer(value).ok_or_else(|| must_be(setting, "too large")),
        (Kind::Seconds | Kind::Share, DeValue::Float(number)) => Ok(number.as_str().into()),
        (Kind::Seconds, DeValue::String(text)) => seconds(text).ok_or_else(|| {
            format!(
                "must be {}, or a text with a unit: \"10s\", with ms, s, min, h or d",
                setting.values()
            )
        }),
        (Kind::Lines, DeValue::Array(_)) => match texts(value) {
            Ok(lines) if !lines.iter().any(|line| line.contains('\n')) => Ok(lines.join("\n")),
            Ok(_) => Err("each element must be one line".into()),
            Err(other) => Err(must_be(setting, &format!("and one element is {other}"))),
        },
        (Kind::Parameters, DeValue::Table(all)) => parameters(setting, all),
        (Kind::Ports | Kind::List | Kind::Methods, DeValue::Array(all)) => words(setting, all),
        (Kind::Parameters, _) => Err(must_be(setting, &format!("not {}", article(value)))),
        (Kind::Flag | Kind::Number | Kind::Share, DeValue::String(_)) => {
            Err(must_be(setting, "without quotes"))
        }
        (_, DeValue::String(text)) => Ok(text.as_ref().into()),
        _ => Err(must_be(setting, &format!("not {}", article(value)))),
    }
}

fn must_be(setting: &Setting, what: &str) -> String {
    match setting.kind {
        Kind::Flag => format!("must be true or false, {what}"),
        Kind::Parameters => format!("must be a table: {{ NAME = \"VALUE\" }}, {what}"),
        Kind::List | Kind::Lines => format!("must be an array of texts, {what}"),
        _ => format!("must be {}, {what}", setting.values()),
    }
}

/// The value's type, for messages.
pub(super) fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// An integer in decimal digits. `None` if 64 bits can't hold it.
fn integer(value: &DeValue<'_>) -> Option<String> {
    let number = value.as_integer()?;
    let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
    Some(number.to_string())
}

/// A time, perhaps with a unit, as a number of seconds.
pub(super) fn seconds(text: &str) -> Option<String> {
    let text = text.trim();
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.trim();
    let factor = match unit {
        "" => return number.parse::<f64>().ok().map(|_| number.into()),
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    let micros = (number.parse::<f64>().ok()? * factor * 1e6).round();
    // Longer times would lose digits.
    (0.0..1e15).contains(&micros).then(|| {
        let micros = micros as u64;
        let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    })
}

/// The elements of an array, separated by commas.
fn words(setting: &Setting, all: &DeArray<'_>) -> Result<String, String> {
    let mut words = Vec::new();
    for element in all {
        let word = match element.get_ref() {
            DeValue::String(text) if setting.kind != Kind::Ports => text.to_string(),
            value @ DeValue::Integer(_) if setting.kind == Kind::Ports => {
                integer(value).ok_or_else(|| must_be(setting, "too large"))?
            }
            other => {
                return Err(must_be(
                    setting,
                    &format!("and one element is {}", article(other)),
                ));
            }
        };
        let is_parted = |c: char| c == ',' || c.is_whitespace();
        if word.is_empty() || word.contains(is_parted) {
            return Err("each element must be one word: no commas and no blanks in it".into());
        }
        words.push(word);
    }
    Ok(words.join(", "))
}

/// A table of PostgreSQL's settings, as `options` of a start-up packet.
fn parameters(setting: &Setting, all: &DeTable<'_>) -> Result<String, String> {
    let mut settings = Vec::new();
    for (name, value) in in_order(all) {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Boolean(flag) => if *flag { "on" } else { "off" }.into(),
            DeValue::Float(number) => number.as_str().into(),
            number @ DeValue::Integer(_) => {
                integer(number).ok_or_else(|| must_be(setting, "too large"))?
            }
            other => {
                let name = name.get_ref();
                return Err(format!(
                    "the value of {name} must be a text, not {}",
                    article(other)
                ));
            }
        };
        if name.get_ref().contains('=') {
            return Err(must_be(setting, "and a name has no ="));
        }
        settings.push((name.get_ref().to_string(), text));
    }
    let settings = settings.iter().map(|(name, text)| (&**name, &**text));
    Ok(options(settings))
}

/// The texts of an array, or a single text.
///
/// # Errors
/// The type of what is no text.
pub(super) fn texts<'a>(value: &'a DeValue<'_>) -> Result<Vec<&'a str>, &'static str> {
    match value {
        DeValue::String(text) => Ok(vec![text]),
        DeValue::Array(all) => {
            let texts = all.iter().map(|element| {
                let element = element.get_ref();
                element.as_str().ok_or_else(|| article(element))
            });
            texts.collect()
        }
        other => Err(article(other)),
    }
}

/// Keys and values of a table, in the order of the file.
pub(super) fn in_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(
    &'a toml::Spanned<toml::de::DeString<'i>>,
    &'a toml::Spanned<DeValue<'i>>,
)> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_by_key(|(key, _)| key.span().start);
    all
}
