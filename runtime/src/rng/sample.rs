//! The per-sample generator: Philox4x32 with 10 rounds, which can compute any block of its sequence directly.
//!
//! Source: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
//! SC '11, 2011, and the known-answer tests of its library, Random123.
//!
//! Philox is a bijection on 128-bit counters, selected by a 64-bit key. Here the key is the seed,
//! and the counter consists of four 32-bit words:
//!
//! | word | 0     | 1     | 2            | 3             |
//! |------|-------|-------|--------------|---------------|
//! | is   | block | epoch | position low | position high |
//!
//! Two samples of one loader never share a block, since their epochs or positions differ, and a
//! bijection maps different counters to different blocks. No state is kept between samples, and
//! none is shared between threads.

use std::convert::Infallible;

use rand_core::{TryRng, utils};

/// The number of words in a block.
const WORDS: usize = 4;

/// The random numbers of one sample, which depend only on seed, epoch and position.
///
/// Augmentation that draws from this generator produces the same sample on any worker, at any time,
/// with any number of workers, and after resuming. Making the generator is cheap, as the first
/// block is computed at the first draw. The sequence has 2³⁴ 32-bit words and then repeats. It uses
/// no heap memory. It is not cryptographically secure.
///
/// Draw through [`rand_core::Rng`], or the `rand` crate's extensions of it.
///
/// ```
/// use slotline::rng::SampleRng;
/// use slotline::rng::rand_core::Rng;
///
/// let mut rng = SampleRng::new(42, 0, 1000);
/// let flip = rng.next_u32() & 1 == 1;
///
/// let mut again = SampleRng::new(42, 0, 1000); // on any thread, in any run
/// assert_eq!(again.next_u32() & 1 == 1, flip);
/// ```
#[derive(Clone, Debug)]
pub struct SampleRng {
    key: [u32; 2],
    /// The counter of the next block.
    counter: [u32; WORDS],
    block: [u32; WORDS],
    /// The number of words of `block` that were drawn. `WORDS` means that the next draw computes a
    /// block.
    used: usize,
}

impl SampleRng {
    /// Makes the generator of the sample at `position` (counted from 0) of pass `epoch`, for this seed.
    #[inline]
    pub fn new(seed: u64, epoch: u32, position: u64) -> Self {
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            counter: [0, epoch, position as u32, (position >> 32) as u32],
            block: [0; WORDS],
            used: WORDS,
        }
    }
}

impl TryRng for SampleRng {
    type Error = Infallible;

    #[inline]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        if self.used >= WORDS {
            self.block = philox4x32_10(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.used = 0;
        }
        let word = self.block[self.used];
        self.used += 1;
        Ok(word)
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        utils::next_u64_via_u32(self)
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        utils::fill_bytes_via_next_word(dst, || self.try_next_u32())
    }
}

/// Computes one block. The multipliers and the key increments (the golden ratio and √3 - 1, as binary fractions) are
/// those of the paper cited above.
#[inline]
fn philox4x32_10(mut counter: [u32; WORDS], mut key: [u32; 2]) -> [u32; WORDS] {
    for _ in 0..10 {
        let [high0, low0] = wide_product(0xd251_1f53, counter[0]);
        let [high1, low1] = wide_product(0xcd9e_8d57, counter[2]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

/// Returns the high and the low half of the product of `a` and `b`.
#[inline(always)]
fn wide_product(a: u32, b: u32) -> [u32; 2] {
    let product = u64::from(a) * u64::from(b);
    [(product >> 32) as u32, product as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_core::Rng;

    /// The three test vectors of Random123's `kat_vectors` for philox4x32 with 10 rounds.
    #[test]
    fn blocks_are_random123s_known_answers() {
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        for (counter, key, want) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (pi, [0xa409_3822, 0x299f_31d0], [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ] {
            assert_eq!(philox4x32_10(counter, key), want, "counter {counter:08x?}, key {key:08x?}");
        }
    }

    /// Checks the layout of the counter and the key. Another layout would change the random numbers
    /// that users get for a seed.
    #[test]
    fn coordinates_select_the_blocks_of_a_sample() {
        let mut rng = SampleRng::new(0x299f_31d0_a409_3822, 0x85a3_08d3, 0x0370_7344_1319_8a2e);
        for block in 0..3 {
            let want = philox4x32_10([block, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
            assert_eq!([(); 4].map(|()| rng.next_u32()), want);
        }
    }

    #[test]
    fn the_last_block_is_followed_by_the_first() {
        let mut rng = SampleRng::new(1, 2, 3);
        let first = rng.next_u32();
        rng.counter[0] = u32::MAX;
        rng.used = WORDS;
        let _last_block = [(); WORDS].map(|()| rng.next_u32());
        assert_eq!(rng.next_u32(), first);
    }

    proptest! {
        #[test]
        fn bytes_and_wide_words_are_little_endian(seed: u64, epoch: u32, position: u64, len in 0usize..40) {
            let words = SampleRng::new(seed, epoch, position);
            let mut bytes = vec![0; len];
            words.clone().fill_bytes(&mut bytes);
            let mut reader = words.clone();
            let want: Vec<u8> = (0..len.div_ceil(4)).flat_map(|_| reader.next_u32().to_le_bytes()).collect();
            prop_assert_eq!(&bytes[..], &want[..len]);
            let (mut wide, mut narrow) = (words.clone(), words);
            let (low, high) = (narrow.next_u32(), narrow.next_u32());
            prop_assert_eq!(wide.next_u64(), u64::from(high) << 32 | u64::from(low));
        }

        #[test]
        fn every_coordinate_changes_the_numbers(seed: u64, epoch: u32, position: u64, bit in 0u32..64) {
            let flip = 1u64 << bit;
            let first = SampleRng::new(seed, epoch, position).next_u64();
            prop_assert_ne!(first, SampleRng::new(seed ^ flip, epoch, position).next_u64());
            prop_assert_ne!(first, SampleRng::new(seed, epoch ^ (1 << (bit % 32)), position).next_u64());
            prop_assert_ne!(first, SampleRng::new(seed, epoch, position ^ flip).next_u64());
        }
    }
}
