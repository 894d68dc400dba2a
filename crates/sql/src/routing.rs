//! What a text says about where it may run.

use crate::{Begin, RouteHint};

/// What a text says about where it may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Routing {
    /// The comment that the text begins with.
    pub hint: Option<RouteHint>,
    /// The modes of the transaction that the text begins.
    pub begin: Option<Begin>,
    /// The text is a read ([`crate::is_read`]); false if that was not asked.
    pub is_read: bool,
}

impl Routing {
    /// Reads the beginning of a text.
    pub fn read(text: &[u8]) -> Routing {
        Routing {
            hint: RouteHint::read(text),
            begin: Begin::read(text),
            is_read: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_may_stand_before_a_beginning() {
        let routing = Routing::read(b"/* howdah.route=primary */ BEGIN READ ONLY");
        assert_eq!(routing.hint, Some(RouteHint::Primary));
        assert_eq!(routing.begin.and_then(|begin| begin.read_only), Some(true));
        assert_eq!(Routing::read(b"SELECT 1"), Routing::default());
    }
}
