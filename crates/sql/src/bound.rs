//! Calls of `set_config` with parameters as arguments: `SELECT set_config($1, $2, false)`. The
//! Bind brings the values.

use howdah_wire::frame::{cstr, u16_be, u32_be};

use super::token::{Token, Tokens};
use crate::name::{is_naming, name_of};

#[derive(Clone, PartialEq, Eq, Debug)]
enum Argument<T> {
    /// The text has the value.
    Known(T),
    /// The value is this parameter, counted from 0.
    Bound(usize),
    /// The text does not tell.
    Unknown,
}

/// A call of `set_config`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    name: Argument<Box<[u8]>>,
    value: Argument<Box<[u8]>>,
    local: Argument<bool>,
}

impl Call {
    /// Reads the arguments of a call; `tokens` begins at the parenthesis.
    pub(super) fn read(mut tokens: Tokens<'_>) -> Call {
        let mut call = Call {
            name: Argument::Unknown,
            value: Argument::Unknown,
            local: Argument::Unknown,
        };
        if !tokens.sign(b'(') {
            return call;
        }
        let name = argument(&mut tokens, b',');
        let value = name.is_some().then(|| argument(&mut tokens, b','));
        let (Some(name), Some(Some(value))) = (name, value) else {
            return call;
        };
        call.name = match name {
            Argument::Known(name) => name_of(&name).map_or(Argument::Unknown, Argument::Known),
            other => other,
        };
        call.value = value;
        let mut ahead = tokens;
        let word = ahead.word(b"true") && ahead.sign(b')');
        call.local = match argument(&mut tokens, b')') {
            _ if word => Argument::Known(true),
            Some(Argument::Known(word)) if boolean(&word) == Some(true) => Argument::Known(true),
            Some(Argument::Bound(at)) => Argument::Bound(at),
            _ => Argument::Unknown,
        };
        call
    }

    /// True if the effects depend on the Bind.
    pub(super) fn is_bound(&self) -> bool {
        let names = match &self.name {
            Argument::Known(name) => is_naming(name),
            Argument::Bound(_) => return true,
            Argument::Unknown => false,
        };
        let bound = matches!(self.local, Argument::Bound(_));
        bound || names && matches!(self.value, Argument::Bound(_))
    }

    /// The setting's name, if it is certain.
    pub(super) fn name(&self, values: &Values<'_>) -> Option<Box<[u8]>> {
        match &self.name {
            Argument::Known(name) => Some(name.clone()),
            Argument::Bound(at) => values.get(*at).and_then(name_of),
            Argument::Unknown => None,
        }
    }

    /// The new value, if it is known.
    pub(super) fn value<'a>(&'a self, values: &Values<'a>) -> Option<&'a [u8]> {
        match &self.value {
            Argument::Known(value) => Some(value),
            Argument::Bound(at) => values.get(*at),
            Argument::Unknown => None,
        }
    }

    /// True if the setting certainly ends with the transaction.
    pub(super) fn is_local(&self, values: &Values<'_>) -> bool {
        match self.local {
            Argument::Known(local) => local,
            Argument::Bound(at) => values.get(at).and_then(boolean) == Some(true),
            Argument::Unknown => false,
        }
    }
}

/// `$n`, perhaps with a cast: the number of the parameter, counted from 0.
fn parameter(tokens: &mut Tokens<'_>) -> Option<usize> {
    let mut ahead = *tokens;
    if !ahead.sign(b'$') {
        return None;
    }
    let rest = ahead.rest();
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let number: usize = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    ahead.pass_word();
    cast(&mut ahead)?;
    *tokens = ahead;
    number.checked_sub(1)
}

/// Reads an argument and the sign after it: a parameter, a constant, or anything else. `None` if
/// the arguments can't be told apart.
fn argument(tokens: &mut Tokens<'_>, end: u8) -> Option<Argument<Box<[u8]>>> {
    let mut ahead = *tokens;
    let value = match parameter(&mut ahead) {
        Some(at) => Argument::Bound(at),
        None => match ahead.constant().flatten() {
            Some(value) => Argument::Known(value.into_owned().into()),
            None => Argument::Unknown,
        },
    };
    if value != Argument::Unknown && cast(&mut ahead).is_some() && ahead.sign(end) {
        *tokens = ahead;
        return Some(value);
    }
    pass_argument(tokens)?;
    Some(Argument::Unknown)
}

/// Passes over a cast that changes no value, if there is one. `None` for any other cast.
fn cast(tokens: &mut Tokens<'_>) -> Option<()> {
    const TYPES: [&[u8]; 4] = [b"text", b"varchar", b"bool", b"boolean"];
    if !tokens.sign(b':') {
        return Some(());
    }
    let known = tokens.sign(b':') && TYPES.iter().any(|name| tokens.word(name));
    known.then_some(())
}

/// Passes over an argument and the comma after it.
fn pass_argument(tokens: &mut Tokens<'_>) -> Option<()> {
    let mut depth = 0u32;
    for token in tokens.by_ref() {
        match token {
            Token::Sign(b'(' | b'[') => depth += 1,
            Token::Sign(b')' | b']') => depth = depth.checked_sub(1)?,
            Token::Sign(b',') if depth == 0 => return Some(()),
            Token::Sign(b';') => return None,
            // The inner call is read on its own, so each call is read once.
            Token::Word(word) | Token::Quoted(word) if word.eq_ignore_ascii_case(b"set_config") => {
                return None;
            }
            Token::Unicode => return None,
            _ => {}
        }
    }
    None
}

#[derive(Default)]
pub(super) struct Values<'a>(Vec<Option<&'a [u8]>>);

impl<'a> Values<'a> {
    pub(super) fn read(bind: &'a [u8]) -> Option<Values<'a>> {
        let (formats, rest) = u16_be(bind)?;
        let rest = rest.get(2 * usize::from(formats)..)?;
        let (count, mut rest) = u16_be(rest)?;
        let mut values = Vec::new();
        for _ in 0..count {
            let (length, after) = u32_be(rest)?;
            let length = match length {
                u32::MAX => None,
                length => Some(length as usize),
            };
            let (value, after) = after.split_at_checked(length.unwrap_or(0))?;
            values.push(length.map(|_| value));
            rest = after;
        }
        Some(Values(values))
    }

    /// A value; `None` if it is missing or NULL. (Text has the same bytes in both formats.)
    fn get(&self, at: usize) -> Option<&'a [u8]> {
        let value = (*self.0.get(at)?)?;
        // PostgreSQL reads a text no further than a zero byte.
        Some(cstr(value).map_or(value, |_| b"\0"))
    }
}

/// True for a boolean that is certainly true, in either format; otherwise `None`.
fn boolean(value: &[u8]) -> Option<bool> {
    match value {
        [1] => Some(true),
        value => {
            let is = |word: &[u8]| value.eq_ignore_ascii_case(word);
            (is(b"true") || is(b"t") || is(b"on") || is(b"yes") || is(b"1")).then_some(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::effects;
    use crate::{Kinds, Mention};

    fn told(text: &str, values: &[Option<&[u8]>]) -> (bool, Vec<String>) {
        let mut bind = vec![0, 0];
        bind.extend((values.len() as u16).to_be_bytes());
        for value in values {
            let length = value.map_or(u32::MAX, |value| value.len() as u32);
            bind.extend(length.to_be_bytes());
            bind.extend_from_slice(value.unwrap_or_default());
        }
        let found = effects(text.as_bytes()).bound(Some(&bind));
        let name = |mention: &Mention| String::from_utf8_lossy(mention.name().unwrap()).into();
        let names = found.settings.iter().map(name).collect();
        assert!(!found.kinds.any(Kinds::SETS_BOUND));
        (found.kinds.any(Kinds::DOUBT), names)
    }

    #[test]
    fn a_bind_tells_what_is_set() {
        let all = "select set_config($1, $2, $3)";
        let (name, value): (Option<&[u8]>, Option<&[u8]>) = (Some(b"App.Tenant"), Some(b"x"));
        assert_eq!(told(all, &[name, value, Some(b"true")]), (false, vec![]));
        assert_eq!(told(all, &[name, value, Some(&[1])]), (false, vec![]));
        let tenant = vec!["app.tenant".to_string()];
        for lasts in [&b"false"[..], b"f", &[0], b"0", b"?"] {
            assert_eq!(
                told(all, &[name, value, Some(lasts)]),
                (false, tenant.clone())
            );
        }
        assert_eq!(told(all, &[name, value, None]), (false, tenant.clone()));
        assert_eq!(told(all, &[None, value, None]), (true, vec![]));
        assert_eq!(told(all, &[name]), (false, tenant.clone()));
        assert_eq!(told(all, &[]), (true, vec![]));
        assert_eq!(told(all, &[Some(b"odd name"), value, None]), (true, vec![]));
        let cast = "select pg_catalog.set_config($1::text, lower(coalesce($2, 'x')), $3::boolean)";
        assert_eq!(told(cast, &[name, value, Some(b"t")]), (false, vec![]));
        let named = "select set_config('app.tenant', $1, $2)";
        assert_eq!(told(named, &[value, Some(b"on")]), (false, vec![]));
        assert_eq!(told(named, &[value, Some(b"off")]), (false, tenant.clone()));
        let lasting = "select set_config($1, $2, false)";
        assert_eq!(told(lasting, &[name, value]), (false, tenant));
        let two = "select set_config($1, $2, true), set_config($3, $4, false)";
        let values = [name, value, Some(&b"work_mem"[..]), value];
        assert_eq!(told(two, &values), (false, vec!["work_mem".to_string()]));
        assert_eq!(
            told("select set_config('seed', $1, $2)", &[value, None]),
            (false, vec![])
        );
    }

    #[test]
    fn what_no_bind_tells_may_be_anything() {
        for text in [
            "select set_config($1 || 'x', $2, $3)",
            "select set_config($1::name, $2, $3)",
            "do $$ begin perform set_config($1, $2, $3); end $$",
            "select set_config($1, set_config($2, $3, true), $4)",
        ] {
            let values: [Option<&[u8]>; 4] = [Some(b"a.b"), Some(b"true"), Some(b"f"), Some(b"f")];
            assert!(told(text, &values).0, "{text}");
        }
        let whole = effects(b"select set_config($1, $2, $3)");
        assert!(whole.kinds.any(Kinds::SETS_BOUND) && !whole.kinds.any(Kinds::DOUBT));
        assert!(whole.bound(None).kinds.any(Kinds::DOUBT));
        assert!(whole.bound(Some(b"\0")).kinds.any(Kinds::DOUBT));
    }
}
