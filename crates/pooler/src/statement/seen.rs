//! Which texts have come before.

/// How many texts are remembered.
const TEXTS: usize = 16 << 10;

/// Remembers texts that came lately, by hashes of 64 bits. Two texts share a place; a third one
/// replaces the older of them.
#[derive(Debug, Default)]
pub struct SeenTexts {
    /// Marks of texts, the latest first. Empty until the first text comes.
    places: Vec<[u32; 2]>,
}

impl SeenTexts {
    /// True if the text with this hash has come before, as far as remembered.
    pub fn again(&mut self, hash: u64) -> bool {
        if self.places.is_empty() {
            self.places = vec![[0; 2]; TEXTS / 2];
        }
        let mark = (hash >> 32) as u32 | 1;
        let place = &mut self.places[hash as usize % (TEXTS / 2)];
        let again = place.contains(&mark);
        if place[0] != mark {
            *place = [mark, place[0]];
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash with this mark, in this place.
    fn hash(mark: u32, place: u32) -> u64 {
        u64::from(mark) << 32 | u64::from(place)
    }

    #[test]
    fn a_text_is_seen_when_it_comes_again() {
        let mut seen = SeenTexts::default();
        assert_eq!([0; 3].map(|_| seen.again(0)), [false, true, true]);
        let texts: Vec<u64> = (0..TEXTS as u32 / 2).map(|at| hash(3, at)).collect();
        assert!(!texts.iter().any(|text| seen.again(*text)));
        assert!(texts.iter().all(|text| seen.again(*text)));
    }

    #[test]
    fn the_older_of_two_texts_makes_room() {
        let mut seen = SeenTexts::default();
        let [a, b, c] = [3, 5, 7].map(|mark| hash(mark, 9));
        assert_eq!(
            [a, b, a, c].map(|text| seen.again(text)),
            [false, false, true, false]
        );
        // Now b is gone.
        assert_eq!([a, c, b].map(|text| seen.again(text)), [true, true, false]);
        assert_eq!(seen.places.len(), TEXTS / 2);
    }
}
