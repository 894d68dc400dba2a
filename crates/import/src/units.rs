//! From a value of another pooler's file to the text of a setting.

use crate::keys::Unit;
use crate::tree::Fruit;

/// The text of a setting for a value; `None` if the value has another type.
pub(crate) fn converted(unit: Unit, fruit: &Fruit) -> Option<String> {
    match unit {
        Unit::Plain => match fruit {
            Fruit::Flag(flag) => Some(u8::from(*flag).to_string()),
            Fruit::Integer(number) => Some((*number).min(i64::from(i32::MAX)).to_string()),
            other => other.text(),
        },
        Unit::Flag => Some(u8::from(fruit.flag()?).to_string()),
        Unit::Word => Some(fruit.text()?.to_ascii_lowercase()),
        Unit::Seconds => Some(decimal(fruit.number()?)),
        Unit::Millis => Some(time(fruit.number()? / 1e3)),
        Unit::MillisAsSeconds => Some(decimal((fruit.number()? / 1e3).ceil())),
        Unit::Duration => Some(time(millis(&fruit.text()?)? / 1e3)),
        Unit::DurationAsMillis => Some(decimal(millis(&fruit.text()?)?)),
        Unit::Size => Some(decimal(bytes(&fruit.text()?)?)),
    }
}

/// What is odd about a time.
pub(crate) fn doubt(settings: &[&str], text: &str) -> Option<String> {
    let number: f64 = text.parse().ok()?;
    let is_short = settings.contains(&"server_connect_timeout") && number < 0.1;
    let is_long = settings.contains(&"server_idle_timeout") && number > 86400.0;
    if number > 0.0 && is_short {
        Some(format!("{text} s is very short: were seconds meant?"))
    } else if is_long {
        Some(format!(
            "{text} s is longer than a day: was a shorter time meant?"
        ))
    } else {
        None
    }
}

/// A time in seconds. More than 30 years mean that it is switched off.
fn time(seconds: f64) -> String {
    decimal(if seconds > 1e9 { 0.0 } else { seconds })
}

/// A number without needless digits, not below 0.
pub(crate) fn decimal(number: f64) -> String {
    let text = format!("{:.6}", number.clamp(0.0, 1e15));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A time in milliseconds: a number of them, or a number with a unit.
fn millis(text: &str) -> Option<f64> {
    let (number, unit) = parted(text)?;
    let factor = match unit.as_str() {
        "us" => 1e-3,
        "" | "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        "h" => 3600e3,
        "d" => 86400e3,
        _ => return None,
    };
    Some(number * factor)
}

/// A size in bytes, perhaps with a unit.
fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = parted(text)?;
    let factor = match unit.trim_end_matches('b') {
        "" => 1.0,
        "k" => 1024.0,
        "m" => 1024.0 * 1024.0,
        "g" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some(number * factor)
}

fn parted(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((
        number.trim().replace('_', "").parse().ok()?,
        unit.to_ascii_lowercase(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_converted() {
        let text = |text: &str| Fruit::Text(text.into());
        for (unit, fruit, expected) in [
            (Unit::Millis, Fruit::Integer(1500), Some("1.5")),
            (Unit::Millis, Fruit::Integer(i64::MAX), Some("0")),
            (Unit::Millis, Fruit::Integer(-5), Some("0")),
            (Unit::MillisAsSeconds, Fruit::Integer(1500), Some("2")),
            (Unit::Duration, text("20m"), Some("1200")),
            (Unit::Duration, Fruit::Integer(250), Some("0.25")),
            (Unit::DurationAsMillis, text("60s"), Some("60000")),
            (Unit::Duration, text("5 weeks"), None),
            (Unit::Size, text("1MB"), Some("1048576")),
            (Unit::Flag, text("yes"), Some("1")),
            (Unit::Flag, Fruit::Integer(7), None),
            (Unit::Word, text("Transaction"), Some("transaction")),
            (Unit::Plain, Fruit::Integer(i64::MAX), Some("2147483647")),
            (Unit::Plain, Fruit::List(Vec::new()), None),
        ] {
            assert_eq!(
                converted(unit, &fruit).as_deref(),
                expected,
                "{unit:?} {fruit:?}"
            );
        }
    }
}
