//! What a client says about where a text runs: `/* howdah.route=primary */`.

/// Where a text is to run, by the comment that the text begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteHint {
    /// `auto`: Howdah decides.
    Auto,
    /// `primary`: on the primary.
    Primary,
    /// `standby`: on a standby.
    Standby,
    /// `prefer-standby`: on a standby, if there is one.
    PreferStandby,
}

impl RouteHint {
    /// The hint with this name.
    pub fn of(name: &[u8]) -> Option<RouteHint> {
        match name {
            b"auto" => Some(RouteHint::Auto),
            b"primary" => Some(RouteHint::Primary),
            b"standby" => Some(RouteHint::Standby),
            b"prefer-standby" => Some(RouteHint::PreferStandby),
            _ => None,
        }
    }

    /// The hint of a text; `None` unless the text begins with a comment that is nothing but a hint.
    #[inline]
    pub fn read(text: &[u8]) -> Option<RouteHint> {
        match text.first() {
            Some(b'/' | b' ' | b'\t'..=b'\r') => read(text),
            _ => None,
        }
    }
}

fn read(text: &[u8]) -> Option<RouteHint> {
    let inside = text.trim_ascii_start().strip_prefix(b"/*")?;
    let inside = inside[..memchr::memmem::find(inside, b"*/")?].trim_ascii();
    let value = inside.strip_prefix(b"howdah.route")?.trim_ascii_start();
    RouteHint::of(value.strip_prefix(b"=")?.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_stand_at_the_beginning() {
        for (text, expected) in [
            (
                "/* howdah.route=primary */ select 1",
                Some(RouteHint::Primary),
            ),
            ("/*howdah.route=auto*/", Some(RouteHint::Auto)),
            (
                " \n/* howdah.route\t= prefer-standby*/begin",
                Some(RouteHint::PreferStandby),
            ),
            (
                "/* howdah.route = standby\n*/ select 1",
                Some(RouteHint::Standby),
            ),
            ("select 1 /* howdah.route=primary */", None),
            ("/**/ /* howdah.route=primary */ select 1", None),
            ("-- howdah.route=primary\nselect 1", None),
            ("(/* howdah.route=primary */ select 1)", None),
            ("/* howdah.route=other */ select 1", None),
            ("/* howdah.route=Primary */ select 1", None),
            ("/* howdah.route=primary, a=b */ select 1", None),
            ("/* howdah.routes=primary */ select 1", None),
            ("/* howdah.route primary */ select 1", None),
            ("/* howdah.route= */ select 1", None),
            ("/* /* howdah.route=primary */ */ select 1", None),
            ("/* howdah.route=primary", None),
            ("/", None),
            ("  ", None),
            ("", None),
        ] {
            assert_eq!(RouteHint::read(text.as_bytes()), expected, "{text}");
        }
    }
}
