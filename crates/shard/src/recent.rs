//! The texts that come again and again: they need no scan.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::plan::Plan;
use crate::planner::Planned;
use crate::scan::Constants;

/// The most texts. A new one takes the place of one with the same place.
const MOST_TEXTS: usize = 1024;

/// The longest text that is remembered, in bytes.
const MOST_TEXT: usize = 32_768;

/// The most constants of a text that is remembered.
const MOST_CONSTANTS: usize = 64;

/// Texts with their plans.
#[derive(Debug)]
pub(crate) struct RecentTexts {
    hasher: RandomState,
    /// By place; empty until the first text.
    texts: Vec<Option<RecentText>>,
    bytes: usize,
    most_bytes: usize,
}

/// How a text is read: by the number of the reading, and whether backslashes escape.
pub(crate) type ReadAs = (u32, bool);

/// A text and its plan.
#[derive(Debug)]
struct RecentText {
    text: Box<[u8]>,
    read_as: ReadAs,
    plan: Arc<Plan>,
    constants: Constants,
}

impl RecentText {
    /// How much memory the text and its plan take, about.
    fn bytes(&self) -> usize {
        200 + self.text.len() + self.constants.bytes() + self.plan.bytes()
    }
}

impl RecentTexts {
    /// No text yet. All take at most so many bytes, about.
    pub(crate) fn new(most_bytes: usize) -> RecentTexts {
        RecentTexts {
            hasher: RandomState::default(),
            texts: Vec::new(),
            bytes: 0,
            most_bytes,
        }
    }

    pub(crate) fn forget(&mut self) {
        self.texts.clear();
        self.bytes = 0;
    }

    /// The plan of a text that is remembered.
    pub(crate) fn find(&self, text: &[u8], read_as: ReadAs) -> Option<Planned> {
        let found = self.texts.get(self.place(text, read_as))?.as_ref()?;
        let is_same = found.read_as == read_as && *found.text == *text;
        is_same.then(|| Planned {
            plan: found.plan.clone(),
            constants: found.constants.clone(),
        })
    }

    /// Remembers a text, unless it is long.
    pub(crate) fn keep(&mut self, text: &[u8], read_as: ReadAs, planned: &Planned) {
        if text.len() > MOST_TEXT || planned.constants.count() > MOST_CONSTANTS {
            return;
        }
        let new = RecentText {
            text: text.into(),
            read_as,
            plan: planned.plan.clone(),
            constants: planned.constants.clone(),
        };
        if self.bytes + new.bytes() > self.most_bytes {
            self.forget();
        }
        if self.texts.is_empty() {
            self.texts.resize_with(MOST_TEXTS, || None);
        }
        self.bytes += new.bytes();
        let place = self.place(text, read_as);
        if let Some(old) = self.texts[place].replace(new) {
            self.bytes -= old.bytes();
        }
    }

    fn place(&self, text: &[u8], read_as: ReadAs) -> usize {
        self.hasher.hash_one((text, read_as)) as usize % MOST_TEXTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(constants: usize) -> Planned {
        let text = format!("select {}1", "1,".repeat(constants - 1));
        let (_, constants) = crate::scan::scan(text.as_bytes(), false).expect("a shape");
        Planned {
            plan: Arc::new(Plan::default()),
            constants,
        }
    }

    fn bytes_of(texts: &RecentTexts) -> usize {
        let all = texts.texts.iter().flatten();
        all.map(RecentText::bytes).sum()
    }

    #[test]
    fn a_text_is_found_as_it_was_read() {
        let mut texts = RecentTexts::new(1 << 20);
        texts.keep(b"select 1", (7, false), &planned(1));
        let count = |read_as| {
            texts
                .find(b"select 1", read_as)
                .map(|found| found.constants.count())
        };
        assert_eq!(count((7, false)), Some(1));
        assert_eq!((count((8, false)), count((7, true))), (None, None));
        texts.keep(b"select 1", (7, false), &planned(MOST_CONSTANTS + 1));
        texts.keep(&[b' '; MOST_TEXT + 1], (7, false), &planned(1));
        assert_eq!(texts.bytes, bytes_of(&texts));
        assert_eq!(texts.texts.iter().flatten().count(), 1);
        texts.forget();
        assert!(texts.find(b"select 1", (7, false)).is_none());
    }

    #[test]
    fn any_number_of_texts_takes_bounded_memory() {
        let mut texts = RecentTexts::new(100_000);
        for number in 0..10 * MOST_TEXTS {
            texts.keep(
                format!("select {number}").as_bytes(),
                (0, false),
                &planned(1),
            );
            let all = bytes_of(&texts);
            assert!(texts.bytes == all && all <= 100_000, "{all}");
        }
    }
}
