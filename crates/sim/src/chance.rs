//! Seeded randomness.

use std::ops::RangeInclusive;

/// A small generator (SplitMix64): fast, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A random number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number in this range.
    pub fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        let (low, high) = range.into_inner();
        low + (self.number() % (high - low + 1) as u64) as usize
    }

    /// True once in `times` calls, on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.within(1..=times) == 1
    }

    /// A random length from 1 to `most`: often small, sometimes `most`.
    pub fn part(&mut self, most: usize) -> usize {
        match self.within(0..=3) {
            0 => most,
            1 => self.within(1..=most.min(8)),
            _ => self.within(1..=most),
        }
    }
}
