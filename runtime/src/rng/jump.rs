//! Jumps far ahead in the sequence of the Mersenne Twister mt19937.
//!
//! The recurrence is linear over the field of two elements, and its characteristic polynomial p has
//! degree 19,937. So the word that is n words ahead in the sequence is a sum (exclusive or) of some
//! of the next 19,937 words: word i is part of the sum if the polynomial t^n modulo p has the term
//! t^i. This power of t is computed by repeated squaring, which takes up to 2b steps of a few
//! microseconds each if n has b bits.
//!
//! Sources: the polynomial is that of section 3 of the paper cited in [`mt19937`](super::mt19937).
//! The method is that of H. Haramoto, M. Matsumoto, T. Nishimura, F. Panneton and P. L'Ecuyer,
//! "Efficient jump ahead for F2-linear random number generators", INFORMS Journal on Computing
//! 20(3), 2008, without its faster computation of the sums.

use super::mt19937::{BLOCK, MATRIX, SHIFT, next_word};

/// The degree of the characteristic polynomial. `SQUARE` is the number of 64-bit words that hold
/// the square of a remainder.
const DEGREE: usize = 19_937;
const SQUARE: usize = (2 * DEGREE).div_ceil(64) + 1;

/// Returns the block that begins `words` words after the first word of the block `state`. `state`
/// must not be the block made from the seed, since the lower bits of its first word are not part of
/// the recurrence.
pub(super) fn jump(state: &[u32; BLOCK], words: u64) -> [u32; BLOCK] {
    let exponents = power(words);
    let mut sequence = Vec::with_capacity(BLOCK + DEGREE);
    sequence.extend_from_slice(state);
    for i in 0..DEGREE {
        sequence.push(next_word(sequence[i], sequence[i + 1], sequence[i + SHIFT]));
    }
    let mut sum = [0; BLOCK];
    for i in (0..DEGREE).filter(|i| exponents[i / 64] >> (i % 64) & 1 != 0) {
        for (sum, word) in sum.iter_mut().zip(&sequence[i..]) {
            *sum ^= word;
        }
    }
    sum
}

/// Returns the exponents of the characteristic polynomial that are below its degree.
fn characteristic() -> Vec<usize> {
    // With u = t^624 + t^397 and v = t^623 + t^396, and the bits a0, a1, ... of `MATRIX`, from the
    // lowest one on, the polynomial is u v^31 + a0 u v^30 + ... + a30 u + a31.
    let times = |polynomial: &[bool], high: usize, low: usize, constant: bool| {
        let mut product = vec![false; polynomial.len() + high];
        for (i, _) in polynomial.iter().enumerate().filter(|(_, is_set)| **is_set) {
            product[i + high] ^= true;
            product[i + low] ^= true;
        }
        product[0] ^= constant;
        product
    };
    let mut polynomial = vec![true];
    for bit in 0..31 {
        polynomial = times(&polynomial, BLOCK - 1, SHIFT - 1, MATRIX >> bit & 1 != 0);
    }
    polynomial = times(&polynomial, BLOCK, SHIFT, MATRIX >> 31 != 0);
    (0..DEGREE).filter(|&i| polynomial[i]).collect()
}

/// Returns t^n modulo the characteristic polynomial, with one bit for each exponent.
fn power(n: u64) -> Vec<u64> {
    let characteristic = characteristic();
    let mut bits = vec![0; SQUARE];
    bits[0] = 1;
    for bit in (0..64 - n.leading_zeros()).rev() {
        // A square has each term at twice its exponent.
        for i in (0..SQUARE / 2 + 1).rev() {
            let word = bits[i];
            for (half, at) in [(word >> 32, 2 * i + 1), (word & u64::from(u32::MAX), 2 * i)] {
                if at < SQUARE {
                    bits[at] = spread(half);
                }
            }
        }
        if n >> bit & 1 != 0 {
            for i in (0..SQUARE).rev() {
                bits[i] = bits[i] << 1 | if i > 0 { bits[i - 1] >> 63 } else { 0 };
            }
        }
        reduce(&mut bits, &characteristic);
    }
    bits
}

/// Spreads the lower 32 bits of a word over its even bit positions.
fn spread(word: u64) -> u64 {
    let step = |word: u64, shift: u32, mask: u64| (word | word << shift) & mask;
    let word = step(word, 16, 0x0000_ffff_0000_ffff);
    let word = step(word, 8, 0x00ff_00ff_00ff_00ff);
    let word = step(word, 4, 0x0f0f_0f0f_0f0f_0f0f);
    let word = step(word, 2, 0x3333_3333_3333_3333);
    step(word, 1, 0x5555_5555_5555_5555)
}

/// Reduces a polynomial modulo the characteristic polynomial, 64 terms at a time. That is possible
/// because the second highest exponent of the characteristic polynomial is 227 below the highest.
fn reduce(bits: &mut [u64], characteristic: &[usize]) {
    let chunks = (64 * (bits.len() - 1) - DEGREE) / 64;
    for at in (0..=chunks).rev().map(|chunk| DEGREE + 64 * chunk) {
        let (word, shift) = (at / 64, at % 64);
        let high = if shift == 0 { 0 } else { bits[word + 1] << (64 - shift) };
        let terms = bits[word] >> shift | high;
        if terms == 0 {
            continue;
        }
        add(bits, at, terms);
        characteristic.iter().for_each(|exponent| add(bits, at - DEGREE + exponent, terms));
    }
}

/// Adds 64 terms to a polynomial, from the exponent `at` on.
fn add(bits: &mut [u64], at: usize, terms: u64) {
    let (word, shift) = (at / 64, at % 64);
    bits[word] ^= terms << shift;
    if shift > 0 {
        bits[word + 1] ^= terms >> (64 - shift);
    }
}
