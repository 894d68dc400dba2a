//! Fuzz bodies of the readers. Each takes any bytes and panics if an invariant breaks.

/// The effects of any text are bounded. A certain command after the text is found, or the text is
/// in doubt. A long text in pieces is in doubt where the whole text may have effects.
pub fn effects(input: &[u8]) {
    use crate::{Kinds, LongText, effects};
    let whole = effects(input);
    assert!(whole.settings.len() <= 64);
    let mut long = LongText::default();
    let (front, rest) = input.split_at(input.len() / 2);
    long.read(front);
    rest.chunks(7).for_each(|piece| long.read(piece));
    assert!(long.is_doubtful() || whole.is_nothing());
    let ends: Vec<u8> = input
        .iter()
        .copied()
        .filter(|b| !b"'\"$\\/-*\0&".contains(b))
        .collect();
    let behind = [&ends, &b"\n;listen a"[..]].concat();
    let found = effects(&behind).kinds;
    assert!(found.any(Kinds::LISTENS.and(Kinds::DOUBT)));
}

/// The gist of a text has what each reader finds alone.
pub fn gist(input: &[u8]) {
    use crate::first::{Resets, first, may_matter, resets_among};
    use crate::signal::SignalText;
    use crate::{Depth, Gist, effects};
    let text = input.strip_suffix(b"\0").unwrap_or(input);
    let read = |depth| {
        let mut gist = Gist::default();
        gist.read(text, depth);
        assert_eq!(gist.depth, depth);
        gist
    };
    let all = Depth::FIRST.and(Depth::EFFECTS).and(Depth::AMONG);
    let gist = read(all.and(Depth::SIGNAL));
    let first = first(text);
    assert_eq!(gist.effects.unwrap_or_default(), effects(text));
    assert_eq!(gist.signal, SignalText::read(text));
    match &first.resets {
        Resets::Nothing if text.len() > 512 => assert_eq!(gist.among, []),
        Resets::Nothing => assert_eq!(gist.among, resets_among(text).unwrap_or_default()),
        resets => {
            let among: Vec<_> = gist.among.iter().map(|among| &among.resets).collect();
            assert_eq!(among, [resets]);
        }
    }
    assert_eq!(gist.first.as_ref(), Some(&first));
    let acting = read(Depth::ACTING);
    assert_eq!(acting.first, may_matter(text).then_some(first));
    assert!(read(Depth::NOTHING).is_plain());
}

/// A text is the same read with blanks around it, and however PostgreSQL reads backslashes. The text
/// has no effect but by calls, and is no read with a command behind it.
pub fn reads(input: &[u8]) {
    use crate::reads::{called_in, called_names, is_read};
    use crate::token::Tokens;
    use crate::{Begin, RouteHint, VolatileNames, effects, limits};
    let names = called_names(input);
    let reads = is_read(input, &VolatileNames::default());
    assert_eq!(reads, names.is_some());
    assert!(!reads || Begin::read(input).is_none());
    let Some(names) = names else { return };
    if input.is_ascii() {
        assert_eq!(called_in(Tokens::escaping(input)).as_ref(), Some(&names));
    }
    // A quoted name may look like a keyword to the reader of effects.
    assert!(!names.is_empty() || input.contains(&b'"') || effects(input).is_nothing());
    if input.len() + 50 > limits::READ {
        return;
    }
    let hinted = [b" /* howdah.route = auto */\n-- b\n(", input, b"\n;"].concat();
    assert_eq!(called_names(&hinted).as_ref(), Some(&names));
    assert_eq!(RouteHint::read(&hinted), Some(RouteHint::Auto));
    if memchr::memmem::find(input, b"/*").is_none() {
        let more = [input, b"\n;select 1"].concat();
        assert_eq!(called_names(&more), None);
    }
}

/// Finds the effects of the first command in any bytes. Blanks, or a comment before the command,
/// change nothing; and the quick first look does not miss the command.
pub fn commands(input: &[u8]) {
    use crate::first::{First, Forgets, first, may_matter};
    let found = first(input);
    if let Forgets::Name(name) = &found.forgets {
        assert!(name.len() <= input.len());
    }
    let plain = First {
        planned: found.planned,
        alters: found.alters,
        ..First::default()
    };
    if found != plain {
        assert!(may_matter(input), "the first look has missed it");
        let before = [b" /* a */\n-- b\n", input].concat();
        assert_eq!(first(&before), found);
        let behind = [input, b" "].concat();
        assert_eq!(first(&behind), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMANDS: &[&[u8]] = &[
        b"deallocate prepare \"a\"\"b\"",
        b"-- x\nDISCARD ALL;",
        b"/* /* */ */ reset all",
        b"set local timezone to default",
        b"set session time zone default;",
        b"DEALLOCATE U&\"d\\0061t\"",
        b"reset session authorization",
    ];

    #[test]
    fn seeds_and_their_prefixes() {
        for seed in COMMANDS {
            for end in 0..=seed.len() {
                commands(&seed[..end]);
                gist(&seed[..end]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
            effects(&text);
            commands(&text);
            gist(&text);
            reads(&text);
        }

        /// Seeds with significant bytes in wrong places.
        #[test]
        fn seeds_with_changes(
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::sample::select(b"\0\n;='\"\\ -/*$.,0".to_vec())),
                1..6,
            ),
        ) {
            for seed in COMMANDS {
                let mut text = seed.to_vec();
                for (at, mark) in &changes {
                    let at = at.index(text.len());
                    text.insert(at, *mark);
                }
                commands(&text);
                gist(&text);
            }
        }
    }
}
