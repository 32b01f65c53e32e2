//! Numbers that look random and are the same for the same seed, so that what failed once can be seen again.
//!
//! Invariant: the seed is all there is; whoever uses one names it when something fails.

/// `SplitMix64`: a counter, and a hash of it.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound` - 1; 0 when there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = self.number() % u64::try_from(bound.max(1)).expect("a size is a u64");
        usize::try_from(number).expect("it is below a size")
    }

    /// One of `items`, which are not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// True once in `count`.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}
