//! Search filters (RFC 4515): reads the form that people write, and writes the standard form.

/// The greatest depth of a filter.
const DEPTH: usize = 32;

/// Escapes a value, so that none of its characters has a special meaning in a filter.
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

/// A filter in the standard form: with parentheses, and without blanks between its parts. In `text`
/// the outer parentheses may be missing.
///
/// # Errors
/// The reason why the text is not a filter.
pub fn canonical(text: &str) -> Result<String, String> {
    let text = text.trim();
    let mut out = String::with_capacity(text.len() + 2);
    if !text.starts_with('(') {
        item(text, &mut out)?;
        return Ok(format!("({out})"));
    }
    let rest = filter(text, 0, &mut out)?;
    match rest.trim_start() {
        "" => Ok(out),
        rest => Err(format!("something is behind its end: {rest}")),
    }
}

/// Reads a filter in parentheses. Returns the text after the filter.
fn filter<'a>(text: &'a str, depth: usize, out: &mut String) -> Result<&'a str, String> {
    if depth == DEPTH {
        return Err(format!("it is nested deeper than {DEPTH} times"));
    }
    let open = text.trim_start();
    let inner = open.strip_prefix('(').ok_or("a ( is missing")?;
    let inner = inner.trim_start();
    out.push('(');
    let rest = match inner.chars().next() {
        Some(sign @ ('&' | '|')) => {
            out.push(sign);
            let mut rest = &inner[1..];
            while rest.trim_start().starts_with('(') {
                rest = filter(rest, depth + 1, out)?;
            }
            rest
        }
        Some('!') => {
            out.push('!');
            filter(&inner[1..], depth + 1, out)?
        }
        _ => {
            let end = inner.find(['(', ')']).unwrap_or(inner.len());
            let (text, rest) = inner.split_at(end);
            item(text, out)?;
            rest
        }
    };
    let rest = rest.trim_start().strip_prefix(')');
    out.push(')');
    rest.ok_or_else(|| "a ) is missing".into())
}

/// Reads `attribute=value` and the other comparisons.
fn item(text: &str, out: &mut String) -> Result<(), String> {
    let (left, value) = text
        .split_once('=')
        .ok_or_else(|| format!("missing = in \"{text}\""))?;
    let (attribute, sign) = match left.as_bytes().last() {
        Some(b'>' | b'<' | b'~') => left.split_at(left.len() - 1),
        Some(b':') => return extensible(&left[..left.len() - 1], value, out),
        _ => (left, ""),
    };
    out.push_str(described(attribute)?);
    out.push_str(sign);
    out.push('=');
    if sign.is_empty() && value != "*" && value.contains('*') {
        return substrings(value, out);
    }
    match value {
        "*" if sign.is_empty() => out.push('*'),
        value => out.push_str(&checked(value)?),
    }
    Ok(())
}

/// Reads an attribute's description (RFC 4512, section 2.5): a name or numbers, and options.
fn described(text: &str) -> Result<&str, String> {
    let text = text.trim();
    let letters = |part: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !part.is_empty() && part.chars().all(fine)
    };
    let mut parts = text.split(';');
    let named = parts.next().is_some_and(is_type);
    if !named || !parts.all(letters) {
        return Err(format!("\"{text}\" is no attribute"));
    }
    Ok(text)
}

/// True for a name, or for numbers with dots between them.
fn is_type(text: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let number = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits && (part.len() == 1 || !part.starts_with('0'))
    };
    match text.chars().next() {
        Some(first) if first.is_ascii_alphabetic() => text.chars().all(name),
        _ => text.split('.').all(number),
    }
}

/// Writes a value with stars. Two stars in a row are written as one.
fn substrings(value: &str, out: &mut String) -> Result<(), String> {
    let parts: Vec<String> = value.split('*').map(checked).collect::<Result<_, _>>()?;
    let middle: Vec<&str> = parts[1..parts.len() - 1]
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    if parts.iter().all(String::is_empty) {
        return Err(format!("\"{value}\" has nothing between its stars"));
    }
    out.push_str(&parts[0]);
    out.push('*');
    for part in middle {
        out.push_str(part);
        out.push('*');
    }
    out.push_str(&parts[parts.len() - 1]);
    Ok(())
}

/// Writes `[attribute][:dn][:rule]:=value`; `left` is the text before the last colon.
fn extensible(left: &str, value: &str, out: &mut String) -> Result<(), String> {
    let mut parts = left.split(':');
    let attribute = parts.next().unwrap_or("").trim();
    let (mut names, mut rule) = (false, None);
    for part in parts {
        if part.eq_ignore_ascii_case("dn") && rule.is_none() && !names {
            names = true;
        } else if rule.is_none() && is_type(part) {
            rule = Some(part);
        } else {
            return Err(format!("\"{left}\" names no rule, or two"));
        }
    }
    if attribute.is_empty() && rule.is_none() {
        return Err("neither attribute nor rule is before :=".into());
    }
    if !attribute.is_empty() {
        out.push_str(described(attribute)?);
    }
    if names {
        out.push_str(":dn");
    }
    if let Some(rule) = rule {
        out.push(':');
        out.push_str(rule);
    }
    out.push_str(":=");
    out.push_str(&checked(value)?);
    Ok(())
}

/// A value, if all of its escapes (`\2a` and the like) are complete.
fn checked(value: &str) -> Result<String, String> {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('\\') {
        let digits = after.as_bytes().get(..2);
        if !digits.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit)) {
            return Err(format!("\\ in \"{value}\" needs two hex digits"));
        }
        rest = &after[2..];
    }
    if value.contains(['*', '(', ')']) {
        Err(format!("\"{value}\" holds a bare *, ( or )"))
    } else {
        Ok(value.replace('\0', "\\00"))
    }
}
