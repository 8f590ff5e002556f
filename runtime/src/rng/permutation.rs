//! torch's `randperm`, into memory that can be reused.
//!
//! torch has two algorithms, selected by the length n. Below 2³²/20 entries it uses the *forward*
//! form: step i swaps entry i with one of the entries from i on, selected by a 32-bit word, in n -
//! 1 steps (Fisher and Yates; the modern form is R. Durstenfeld's, CACM 7(7), 1964). For longer
//! permutations it uses the *inside-out* form: step i moves the entry at a place z ≤ i to place i,
//! and puts i at place z, which is selected by 64 bits, in n steps.
//!
//! torch's samplers often draw a permutation and use only its start, or nothing, but the generator
//! must still advance by the same amount. In the forward form, step i does not change the entries
//! before i, so [`randperm_prefix`] stops once the wanted entries are final, and discards the words
//! of the remaining steps. [`skip_randperm`] discards all of them. In the inside-out form every
//! step may change any entry, so even the start requires all steps.

use std::collections::TryReserveError;
use std::fmt;

use rand_core::Rng;

use super::torch::Generator;

use crate::causes::with_causes;

/// The length from which torch uses the inside-out form.
const INSIDE_OUT: usize = (u32::MAX / 20) as usize;

/// An unsigned integer type for tables of indices: `u32`, which takes half the memory, or `u64`.
pub trait IndexWord: sealed::Sealed + Copy + fmt::Debug + Send + Sync + 'static {
    /// The size in bits.
    const BITS: u32;

    /// Returns whether every index below `n` fits in this type.
    fn fits(n: usize) -> bool;

    /// Converts from an index, keeping its lowest [`BITS`](Self::BITS) bits.
    fn from_index(index: usize) -> Self;

    /// Converts to an index.
    fn index(self) -> usize;
}

mod sealed {
    /// Restricts [`IndexWord`](super::IndexWord) to `u32` and `u64`.
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

macro_rules! index_word {
    ($word:ty) => {
        impl IndexWord for $word {
            const BITS: u32 = <$word>::BITS;

            fn fits(n: usize) -> bool {
                n == 0 || <$word>::try_from(n - 1).is_ok()
            }

            #[inline(always)]
            fn from_index(index: usize) -> Self {
                index as $word
            }

            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
index_word!(u32);
index_word!(u64);

/// The error for a permutation that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RandpermError {
    /// The highest index needs more bits than an entry has.
    #[error("randperm({n}): an index does not fit in {bits} bits; use a Vec<u64>")]
    IndexWidth {
        /// The requested length.
        n: usize,
        /// The size of an entry, in bits.
        bits: u32,
    },
    /// The memory could not be allocated.
    #[error(
        "randperm({n}): cannot allocate {bytes} bytes for the indices; free memory, or permute fewer entries: {}",
        with_causes(source)
    )]
    Memory {
        /// The requested length.
        n: usize,
        /// The size of the table in bytes; `usize::MAX` if it is larger than that.
        bytes: usize,
        /// The allocator's error.
        r#source: TryReserveError,
    },
}

/// Draws a permutation; see [`Generator::randperm_into`].
pub(super) fn randperm_into<I: IndexWord>(
    generator: &mut Generator,
    n: usize,
    out: &mut Vec<I>,
) -> Result<(), RandpermError> {
    out.clear();
    if !I::fits(n) {
        return Err(RandpermError::IndexWidth { n, bits: I::BITS });
    }
    let bytes = n.saturating_mul(size_of::<I>());
    reserve_table(out, n).map_err(|source| RandpermError::Memory { n, bytes, source })?;
    fill_table(out, 1, n);
    randperm_prefix(generator, out, n);
    Ok(())
}

/// Empties `table` and reserves memory for `len` entries. Allocates only if its capacity is
/// smaller.
pub(crate) fn reserve_table<I: IndexWord>(table: &mut Vec<I>, len: usize) -> Result<(), TryReserveError> {
    table.clear();
    table.try_reserve_exact(len)
}

/// Appends the sequence 0 .. `n` to `table` `times` times, as input for [`randperm_prefix`].
pub(crate) fn fill_table<I: IndexWord>(table: &mut Vec<I>, times: usize, n: usize) {
    for _ in 0..times {
        table.extend((0..n).map(I::from_index));
    }
}

/// Permutes `entries`, which must contain 0, 1, 2, and so on. Only the first `wanted` entries of
/// the result are valid. Draws as many words as torch does for the whole permutation, for any
/// `wanted`.
pub(crate) fn randperm_prefix<I: IndexWord>(generator: &mut Generator, entries: &mut [I], wanted: usize) {
    randperm_by_length(generator, entries, wanted, INSIDE_OUT);
}

/// Draws the words of a permutation of `n` entries without computing it.
pub(crate) fn skip_randperm(generator: &mut Generator, n: usize) {
    generator.discard(words_of_randperm(n, INSIDE_OUT));
}

/// Returns the number of 32-bit words that a permutation of `n` entries draws.
fn words_of_randperm(n: usize, inside_out: usize) -> u64 {
    if n < inside_out { (n as u64).saturating_sub(1) } else { (n as u64).saturating_mul(2) }
}

/// Permutes entries: in the inside-out form if there are at least `inside_out`, and otherwise in the
/// forward form. `inside_out` is [`INSIDE_OUT`], or a smaller number in tests.
fn randperm_by_length<I: IndexWord>(g: &mut Generator, entries: &mut [I], wanted: usize, inside_out: usize) {
    let n = entries.len();
    if n >= inside_out {
        permute_inside_out(g, entries);
    } else if let Some(last) = n.checked_sub(1) {
        let steps = wanted.min(last);
        permute_forward(g, entries, steps);
        g.discard((last - steps) as u64);
    }
}

/// Runs the first `steps` steps of the forward form. `entries` must have more than `steps` and
/// fewer than 2³² entries.
fn permute_forward<I: IndexWord>(generator: &mut Generator, entries: &mut [I], steps: usize) {
    let n = entries.len();
    debug_assert!(steps < n && n <= u32::MAX as usize);
    let mut i = 0;
    while i < steps {
        // One block of words at a time. Within a block no swap waits for the generator, so the
        // processor can have many cache misses in flight at once.
        for &word in generator.run(steps - i) {
            let z = word % (n - i) as u32;
            entries.swap(i, i + z as usize);
            i += 1;
        }
    }
}

/// Runs the inside-out form. The contents of `entries` are ignored.
fn permute_inside_out<I: IndexWord>(generator: &mut Generator, entries: &mut [I]) {
    for i in 0..entries.len() {
        let z = (generator.next_u64() % (i as u64 + 1)) as usize;
        entries[i] = entries[z];
        entries[z] = I::from_index(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the permutation by torch's two algorithms, in their simplest form.
    fn reference(g: &mut Generator, n: usize, inside_out: usize) -> Vec<u64> {
        let mut r: Vec<u64> = (0..n as u64).collect();
        if n < inside_out {
            for i in 0..n.saturating_sub(1) {
                let z = g.next_u32() as usize % (n - i);
                r.swap(i, i + z);
            }
        } else {
            for i in 0..n {
                let z = (g.next_u64() % (i as u64 + 1)) as usize;
                r[i] = r[z];
                r[z] = i as u64;
            }
        }
        r
    }

    fn check<I: IndexWord>(seed: u64, n: usize, wanted: usize, inside_out: usize) -> Result<(), TestCaseError> {
        let (mut ours, mut theirs) = (Generator::from_seed(seed), Generator::from_seed(seed));
        let mut table: Vec<I> = Vec::new();
        fill_table(&mut table, 1, n);
        randperm_by_length(&mut ours, &mut table, wanted, inside_out);
        let want = reference(&mut theirs, n, inside_out);
        let ours_as_u64: Vec<u64> = table.iter().map(|entry| entry.index() as u64).collect();
        prop_assert_eq!(&ours_as_u64[..wanted], &want[..wanted]);
        prop_assert_eq!(ours.drawn(), theirs.drawn());
        prop_assert_eq!(ours.drawn(), words_of_randperm(n, inside_out));
        let mut sorted = ours_as_u64;
        sorted.sort_unstable();
        prop_assert!(sorted.into_iter().eq(0..n as u64), "not a permutation");
        Ok(())
    }

    proptest! {
        #[test]
        fn both_forms_match_torch_in_both_widths(
            seed: u64, n in 0usize..2000, share in 0.0..=1.0f64, inside_out: bool,
        ) {
            let wanted = (n as f64 * share) as usize;
            let threshold = if inside_out { 0 } else { INSIDE_OUT };
            check::<u32>(seed, n, wanted, threshold)?;
            check::<u64>(seed, n, wanted, threshold)?;
        }
    }

    #[test]
    fn the_form_changes_at_torchs_length() {
        assert_eq!(INSIDE_OUT, 214_748_364);
        assert_eq!(words_of_randperm(INSIDE_OUT - 1, INSIDE_OUT), 214_748_362);
        assert_eq!(words_of_randperm(INSIDE_OUT, INSIDE_OUT), 429_496_728);
    }

    #[test]
    fn a_second_permutation_of_the_same_length_reuses_the_memory() {
        let mut generator = Generator::new();
        let mut table: Vec<u32> = Vec::new();
        generator.randperm_into(1000, &mut table).unwrap();
        let (start, capacity) = (table.as_ptr(), table.capacity());
        generator.randperm_into(1000, &mut table).unwrap();
        generator.randperm_into(7, &mut table).unwrap();
        assert_eq!((table.as_ptr(), table.capacity(), table.len()), (start, capacity, 7));
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn lengths_that_do_not_fit_are_errors() {
        let mut generator = Generator::new();
        assert!(u32::fits(1 << 32) && !u32::fits((1 << 32) + 1) && u64::fits(usize::MAX));
        let error = generator.randperm_into((1 << 32) + 1, &mut Vec::<u32>::new()).unwrap_err();
        assert!(matches!(error, RandpermError::IndexWidth { n: 4_294_967_297, bits: 32 }), "{error}");
        let error = generator.randperm_into(usize::MAX, &mut Vec::<u64>::new()).unwrap_err();
        assert!(matches!(error, RandpermError::Memory { bytes: usize::MAX, .. }), "{error}");
        assert_eq!(generator.drawn(), 0);
    }
}
