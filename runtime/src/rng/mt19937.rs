//! The Mersenne Twister mt19937, computed one block at a time.
//!
//! Source: M. Matsumoto and T. Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform
//! pseudo-random number generator", ACM TOMACS 8(1), 1998; the seeding is `init_genrand` of their 2002 revision.
//!
//! A new block is computed in place. Word i depends on the old words i, i+1 and i+397. Where i+397
//! wraps around, it refers to a word that is already new. Three loops over constant ranges compute
//! the block, so no index needs a modulo or a bounds check. Each loop reads only words that were
//! written at least 227 steps earlier, or are not yet written, so the compiler can vectorize it. It
//! can also vectorize the tempering, which is done for a whole block at once.

use super::jump::jump;

/// The number of words in a block.
pub(crate) const BLOCK: usize = 624;

/// The distance from word i of the recurrence to the later word, i + 397, on which the next block's
/// word i also depends.
pub(super) const SHIFT: usize = 397;

/// The last row of the matrix of the recurrence.
pub(super) const MATRIX: u32 = 0x9908_b0df;

/// The number of words from which a jump takes less time than computing them.
const FAR: u64 = 1 << 24;

/// A generator of 32-bit words: its state, and the tempered words of the current block.
#[derive(Clone)]
pub(crate) struct Mt19937 {
    state: [u32; BLOCK],
    /// The output of the current block. Words before `next` have been drawn. Unspecified before the
    /// first block is made.
    words: [u32; BLOCK],
    /// The index of the next word to draw. `BLOCK` means that the next draw makes a new block.
    next: usize,
    /// The number of blocks made since seeding. At a billion blocks per second it wraps after
    /// centuries.
    blocks: u64,
}

impl Mt19937 {
    pub(crate) fn new(seed: u32) -> Self {
        let mut state = [0; BLOCK];
        let mut previous = seed;
        state[0] = seed;
        for (word, j) in state.iter_mut().zip(0u32..).skip(1) {
            previous = (previous ^ (previous >> 30)).wrapping_mul(1_812_433_253).wrapping_add(j);
            *word = previous;
        }
        Self { state, words: [0; BLOCK], next: BLOCK, blocks: 0 }
    }

    /// Returns the number of words drawn since seeding.
    pub(crate) fn drawn(&self) -> u64 {
        // Before the first block is made, `next` is `BLOCK`, which makes the result 0.
        self.blocks.wrapping_mul(BLOCK as u64).wrapping_add(self.next as u64).wrapping_sub(BLOCK as u64)
    }

    #[inline]
    pub(crate) fn next_u32(&mut self) -> u32 {
        if self.next >= BLOCK {
            self.refill();
        }
        let word = self.words[self.next];
        self.next += 1;
        word
    }

    /// Draws the remaining words of the current block, but at most `most`, for loops that process
    /// many words at a time. Returns at least one word unless `most` is 0.
    #[inline]
    pub(crate) fn run(&mut self, most: usize) -> &[u32] {
        if self.next >= BLOCK && most > 0 {
            self.refill();
        }
        let start = self.next;
        self.next = start + most.min(BLOCK - start);
        &self.words[start..self.next]
    }

    /// Skips `count` words. Takes about half a nanosecond per word, but at most a few milliseconds.
    pub(crate) fn discard(&mut self, mut count: u64) {
        if count >= FAR {
            if self.blocks == 0 {
                self.refill();
                self.next = 0;
            }
            let blocks = count / BLOCK as u64;
            count %= BLOCK as u64;
            self.state = jump(&self.state, blocks * BLOCK as u64);
            self.blocks = self.blocks.wrapping_add(blocks);
            self.temper();
        }
        loop {
            let left = (BLOCK - self.next) as u64;
            if count <= left {
                self.next += count as usize;
                return;
            }
            count -= left;
            self.refill();
        }
    }

    /// Makes the next block.
    fn refill(&mut self) {
        let s = &mut self.state;
        for i in 0..BLOCK - SHIFT {
            s[i] = s[i + SHIFT] ^ twist(s[i], s[i + 1]);
        }
        for i in BLOCK - SHIFT..BLOCK - 1 {
            s[i] = s[i + SHIFT - BLOCK] ^ twist(s[i], s[i + 1]);
        }
        s[BLOCK - 1] = s[SHIFT - 1] ^ twist(s[BLOCK - 1], s[0]);
        self.temper();
        self.next = 0;
        self.blocks = self.blocks.wrapping_add(1);
    }

    /// Computes the output words from the state.
    fn temper(&mut self) {
        for (word, &state) in self.words.iter_mut().zip(&self.state) {
            *word = temper(state);
        }
    }
}

/// Returns the state word that comes [`BLOCK`] words after `first`. `second` is the word after
/// `first`, and `shifted` is the word [`SHIFT`] places after `first`.
pub(super) fn next_word(first: u32, second: u32, shifted: u32) -> u32 {
    shifted ^ twist(first, second)
}

/// Returns the product of the recurrence's matrix and a vector: the word that consists of the
/// highest bit of `high` and the other bits of `low`.
#[inline(always)]
fn twist(high: u32, low: u32) -> u32 {
    let mixed = (high & 0x8000_0000) | (low & 0x7fff_ffff);
    // The mask is all ones if the lowest bit is set. A branch here would be unpredictable.
    (mixed >> 1) ^ (MATRIX & (low & 1).wrapping_neg())
}

#[inline(always)]
fn temper(mut y: u32) -> u32 {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c_5680;
    y ^= (y << 15) & 0xefc6_0000;
    y ^ (y >> 18)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first `count` output (tempered) words for a seed, computed one by one as the
    /// recurrence of Matsumoto and Nishimura (1998) defines them, without blocks.
    fn reference(seed: u32, count: usize) -> Vec<u32> {
        let mut x = vec![seed];
        for j in 1..BLOCK as u32 {
            let p = x[j as usize - 1];
            x.push((p ^ (p >> 30)).wrapping_mul(1_812_433_253).wrapping_add(j));
        }
        for k in 0..count {
            let y = (x[k] & 0x8000_0000) | (x[k + 1] & 0x7fff_ffff);
            let matrix = if y % 2 == 1 { 0x9908_b0df } else { 0 };
            x.push(x[k + SHIFT] ^ (y >> 1) ^ matrix);
        }
        x[BLOCK..].iter().map(|&y| temper(y)).collect()
    }

    #[test]
    fn blocks_follow_the_recurrence_of_the_paper() {
        for seed in [0, 1, 42, 5489, u32::MAX] {
            let mut engine = Mt19937::new(seed);
            for (i, want) in reference(seed, 3 * BLOCK + 5).into_iter().enumerate() {
                assert_eq!(engine.next_u32(), want, "seed {seed}, word {i}");
            }
        }
    }

    /// The C++ standard specifies the 10000th word of a default-constructed `std::mt19937` (seed
    /// 5489).
    #[test]
    fn the_ten_thousandth_word_is_the_one_the_cpp_standard_names() {
        let mut engine = Mt19937::new(5489);
        engine.discard(9999);
        assert_eq!(engine.next_u32(), 4_123_659_995);
    }

    #[test]
    fn a_jump_is_as_many_draws() {
        let walk = |engine: &mut Mt19937, mut count: u64| {
            while count > 0 {
                count -= engine.run(usize::try_from(count).unwrap()).len() as u64;
            }
        };
        for (before, count) in [(0, FAR), (0, FAR + 1), (1, FAR + 623), (624, FAR + 624), (1000, 3 * FAR + 12_345)] {
            let (mut walking, mut jumping) = (Mt19937::new(42), Mt19937::new(42));
            walk(&mut walking, before);
            walk(&mut jumping, before);
            walk(&mut walking, count);
            jumping.discard(count);
            assert_eq!(jumping.drawn(), before + count);
            for word in 0..2000 {
                assert_eq!(jumping.next_u32(), walking.next_u32(), "word {word} after {before} and {count}");
            }
        }
        // A jump of 2⁶⁴ - 1 words, in one step and in five.
        let (mut one, mut two) = (Mt19937::new(7), Mt19937::new(7));
        one.discard(u64::MAX);
        (0..5).for_each(|_| two.discard(u64::MAX / 5));
        assert_eq!((one.drawn(), one.next_u32()), (two.drawn(), two.next_u32()));
    }

    #[test]
    fn discard_and_run_match_single_draws() {
        for count in [0, 1, 5, 623, 624, 625, 1248, 5000] {
            let (mut one, mut skipping, mut running) = (Mt19937::new(7), Mt19937::new(7), Mt19937::new(7));
            assert_eq!(one.drawn(), 0);
            one.next_u32();
            skipping.discard(1);
            running.next_u32();
            let words: Vec<u32> = (0..count).map(|_| one.next_u32()).collect();
            skipping.discard(count as u64);
            let mut ran = Vec::new();
            while ran.len() < count {
                ran.extend_from_slice(running.run(count - ran.len()));
            }
            assert_eq!(ran, words);
            for engine in [&mut skipping, &mut running] {
                assert_eq!(engine.drawn(), count as u64 + 1);
                assert_eq!(engine.next_u32(), one.clone().next_u32(), "after {count}");
            }
        }
    }
}
