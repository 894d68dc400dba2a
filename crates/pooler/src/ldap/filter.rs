//! Search filters: the text of RFC 4515 to the bytes of RFC 4511.

use super::message::{octets, put};

/// How deep filters may nest.
const DEPTH: usize = 32;

/// The tags of a Filter's choices (RFC 4511, section 4.5.1).
mod tag {
    pub(super) const AND: u8 = 0xa0;
    pub(super) const OR: u8 = 0xa1;
    pub(super) const NOT: u8 = 0xa2;
    pub(super) const EQUAL: u8 = 0xa3;
    pub(super) const SUBSTRINGS: u8 = 0xa4;
    pub(super) const AT_LEAST: u8 = 0xa5;
    pub(super) const AT_MOST: u8 = 0xa6;
    pub(super) const PRESENT: u8 = 0x87;
    pub(super) const APPROXIMATE: u8 = 0xa8;
    pub(super) const EXTENSIBLE: u8 = 0xa9;
}

/// Escapes a value so that it means itself in a filter.
pub fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '*' | '(' | ')' | '\\' | '\0' => escaped.push_str(&format!("\\{:02x}", c as u32)),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The bytes of a filter. The parentheses around all of it may be left out.
///
/// # Errors
/// Where it is no filter.
pub fn encode(text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim();
    let mut out = Vec::new();
    if !text.starts_with('(') {
        item(text, &mut out)?;
        return Ok(out);
    }
    let rest = filter(text, 0, &mut out)?;
    match rest.trim_start() {
        "" => Ok(out),
        rest => Err(format!("something is behind its end: {rest}")),
    }
}

/// A filter in parentheses; what is behind it is given back.
fn filter<'a>(text: &'a str, depth: usize, out: &mut Vec<u8>) -> Result<&'a str, String> {
    if depth == DEPTH {
        return Err(format!("it is nested deeper than {DEPTH} times"));
    }
    let open = text.trim_start();
    let inner = open.strip_prefix('(').ok_or("a ( is missing")?;
    let inner = inner.trim_start();
    let list = |tag: u8, mut rest: &'a str, out: &mut Vec<u8>| {
        let mut parts = Vec::new();
        while rest.trim_start().starts_with('(') {
            rest = filter(rest, depth + 1, &mut parts)?;
        }
        put(out, tag, &parts);
        Ok::<_, String>(rest)
    };
    let rest = match inner.bytes().next() {
        Some(b'&') => list(tag::AND, &inner[1..], out)?,
        Some(b'|') => list(tag::OR, &inner[1..], out)?,
        Some(b'!') => {
            let mut part = Vec::new();
            let rest = filter(&inner[1..], depth + 1, &mut part)?;
            put(out, tag::NOT, &part);
            rest
        }
        _ => {
            let end = inner.find(['(', ')']).unwrap_or(inner.len());
            let (text, rest) = inner.split_at(end);
            item(text, out)?;
            rest
        }
    };
    let rest = rest.trim_start().strip_prefix(')');
    rest.ok_or_else(|| "a ) is missing".into())
}

/// `attribute=value` and its kin.
fn item(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let (left, value) = text
        .split_once('=')
        .ok_or_else(|| format!("there is no = in \"{text}\""))?;
    let (tag, attribute) = match left.as_bytes().last() {
        Some(b'>') => (tag::AT_LEAST, &left[..left.len() - 1]),
        Some(b'<') => (tag::AT_MOST, &left[..left.len() - 1]),
        Some(b'~') => (tag::APPROXIMATE, &left[..left.len() - 1]),
        Some(b':') => return extensible(&left[..left.len() - 1], value, out),
        _ => (tag::EQUAL, left),
    };
    let attribute = described(attribute)?;
    if tag == tag::EQUAL && value == "*" {
        put(out, tag::PRESENT, attribute.as_bytes());
    } else if tag == tag::EQUAL && value.contains('*') {
        substrings(attribute, value, out)?;
    } else {
        let mut body = Vec::new();
        octets(&mut body, attribute.as_bytes());
        octets(&mut body, &unescape(value)?);
        put(out, tag, &body);
    }
    Ok(())
}

/// An attribute's description: a name or numbers, and options.
fn described(text: &str) -> Result<&str, String> {
    let text = text.trim();
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ';' | '_');
    if text.is_empty() || !text.chars().all(fine) {
        return Err(format!("\"{text}\" is no attribute"));
    }
    Ok(text)
}

fn substrings(attribute: &str, value: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let parts: Vec<&str> = value.split('*').collect();
    let last = parts.len() - 1;
    let mut list = Vec::new();
    for (at, part) in parts
        .iter()
        .enumerate()
        .filter(|(_, part)| !part.is_empty())
    {
        // initial, any, final
        let tag = match at {
            0 => 0x80,
            at if at == last => 0x82,
            _ => 0x81,
        };
        put(&mut list, tag, &unescape(part)?);
    }
    if list.is_empty() {
        return Err(format!("\"{value}\" has nothing between its stars"));
    }
    let mut body = Vec::new();
    octets(&mut body, attribute.as_bytes());
    put(&mut body, 0x30, &list);
    put(out, tag::SUBSTRINGS, &body);
    Ok(())
}

/// `[attribute][:dn][:rule]:=value`; `left` is what is before the last colon.
fn extensible(left: &str, value: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let mut parts = left.split(':');
    let attribute = parts.next().unwrap_or("").trim();
    let (mut names, mut rule) = (false, None);
    for part in parts {
        if part.eq_ignore_ascii_case("dn") && rule.is_none() && !names {
            names = true;
        } else if rule.is_none() {
            rule = Some(described(part)?);
        } else {
            return Err(format!("\"{left}\" names two rules"));
        }
    }
    if attribute.is_empty() && rule.is_none() {
        return Err("neither attribute nor rule is before :=".into());
    }
    let mut body = Vec::new();
    if let Some(rule) = rule {
        put(&mut body, 0x81, rule.as_bytes());
    }
    if !attribute.is_empty() {
        put(&mut body, 0x82, described(attribute)?.as_bytes());
    }
    put(&mut body, 0x83, &unescape(value)?);
    if names {
        put(&mut body, 0x84, &[0xff]);
    }
    put(out, tag::EXTENSIBLE, &body);
    Ok(())
}

/// Takes `\2a` and the like out of a value.
fn unescape(value: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'\\' => {
                let hex = |digit: u8| char::from(digit).to_digit(16);
                let byte = match rest {
                    [high, low, ..] => hex(*high).zip(hex(*low)),
                    _ => None,
                };
                let (high, low) =
                    byte.ok_or_else(|| format!("\\ in \"{value}\" needs two hex digits"))?;
                bytes.push((high * 16 + low) as u8);
                rest = &rest[2..];
            }
            b'*' | b'(' | b')' => return Err(format!("\"{value}\" holds a bare *, ( or )")),
            byte => bytes.push(*byte),
        }
    }
    Ok(bytes)
}
