//! A permutation of 0 .. n whose entries are computed one by one, in constant memory and time.
//!
//! 0 .. n is written row by row into a table of a = ⌈√n⌉ rows and b = ⌈n / a⌉ columns, so that index
//! l·b + r is in row l and column r. A generalised Feistel network permutes the cells: rounds
//! alternately replace l by (l + f(r)) mod a and r by (r + f(l)) mod b, which is invertible for any
//! f. Four rounds are enough for large sides and random functions. (Sources: J. Black and P.
//! Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002. M. Luby and C. Rackoff, "How to
//! construct pseudorandom permutations from pseudorandom functions", SIAM Journal on Computing
//! 17(2), 1988.)
//!
//! b is a or a - 1, and only the last row has cells whose index is n or more, fewer than b. A
//! result of n or more is encrypted again, until the result is below n. This is still a permutation
//! of 0 .. n, and it ends, because the cycle of the larger permutation leads back to the start,
//! which is below n. Fewer than one lookup in √n takes a second step. So from n = 256 on (smaller
//! tables have more rounds, see below) the cost of a lookup does not depend on n.
//!
//! f of round i is element i·2³² + r of the SplitMix64 sequence that starts at the key. The high half
//! of its product with a maps it to the range 0 .. a. (In odd rounds, l and b take the place of r
//! and a.) No two rounds share an element, as a and b are at most 2³², so no table of round keys is
//! needed. The last step of SplitMix64 is left out, as it changes only bits that rarely affect the
//! high half. (Source: G. L. Steele, D. Lea and C. H. Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014.)
//!
//! A rotation of an odd number of cells is an even permutation. If a and b are odd and n = a·b,
//! half of all permutations would therefore be impossible, so one bit of the key decides whether
//! positions 0 and 1 are swapped first.
//!
//! Small tables get more rounds, since every two rounds reduce the remaining correlation between
//! two cells only by a factor of about the length of a side. The cipher is for shuffling and is not
//! secure.

/// A random permutation of 0 .. `len` that is computed per index, in O(1) memory and time.
///
/// It depends only on length, seed and epoch, and is the same on all machines and in all versions.
/// [`CipherSampler`](super::CipherSampler) draws it as an [`Order::Cipher`](super::Order::Cipher).
/// It is also useful on its own if any process must be able to compute any position of a shuffle.
/// It is not cryptographically secure.
///
/// ```
/// use slotline::sampler::Cipher;
///
/// let shuffle = Cipher::new(1_000_000, 42, 0);
/// assert!(shuffle.index(123_456) < 1_000_000);
/// assert_ne!(shuffle.index(123_456), Cipher::new(1_000_000, 42, 1).index(123_456));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cipher {
    len: usize,
    key: u64,
    /// The number of rows a, in 1 ..= 2³².
    rows: u64,
    /// The number of columns b, in 1 ..= `rows`.
    columns: u64,
    /// The number of pairs of rounds, in 4 ..= 16.
    pairs: u32,
}

/// The increment of SplitMix64: 2⁶⁴ over the golden ratio, made odd.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The distance between the numbers of consecutive rounds: 2³² increments.
const ROUND: u64 = GOLDEN << 32;

impl Cipher {
    /// Makes the permutation of 0 .. `len` for this seed and epoch. `len` may be 0.
    pub fn new(len: usize, seed: u64, epoch: u64) -> Self {
        let cells = (len as u64).max(1);
        let rows = (cells - 1).isqrt() + 1;
        let columns = cells.div_ceil(rows);
        let pairs = (16 / columns.ilog2().max(1)).max(4);
        // Each step is a bijection, so for one seed all epochs have different keys.
        let key = mix(mix(seed.wrapping_add(GOLDEN)).wrapping_add(epoch.wrapping_mul(GOLDEN)));
        Self { len, key, rows, columns, pairs }
    }

    /// Returns the number of indices.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no indices.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the index at `position`.
    ///
    /// # Panics
    ///
    /// If `position` is not below [`len`](Self::len).
    pub fn index(&self, position: usize) -> usize {
        assert!(position < self.len, "position {position} is out of range for a permutation of {}", self.len);
        let mut block = position as u64;
        if block < 2 && self.len > 1 {
            block ^= self.key >> 63;
        }
        let (mut row, mut column) = (block / self.columns, block % self.columns);
        loop {
            (row, column) = self.encrypt(row, column);
            let block = row * self.columns + column;
            if block < self.len as u64 {
                return block as usize;
            }
        }
    }

    /// Encrypts a cell of the table.
    #[inline]
    fn encrypt(&self, mut row: u64, mut column: u64) -> (u64, u64) {
        let mut start = self.key;
        for _ in 0..self.pairs {
            row = shift(row, number(start, column), self.rows);
            column = shift(column, number(start.wrapping_add(ROUND), row), self.columns);
            start = start.wrapping_add(ROUND.wrapping_mul(2));
        }
        (row, column)
    }
}

/// Returns `(value + f) mod side`, where f is `random` mapped to 0 .. `side`. `value` must be below
/// `side`.
#[inline]
fn shift(value: u64, random: u64, side: u64) -> u64 {
    let sum = value + below(side, random);
    // If the sum is below `side`, the difference wraps to a large number. (No branch, and fewer instructions than an
    // `if`.)
    sum.min(sum.wrapping_sub(side))
}

/// Maps `random` to 0 .. `side`.
#[inline]
fn below(side: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(side)) >> 64) as u64
}

/// Returns element `index` of the sequence that starts at `start`, without the last step of
/// SplitMix64.
#[inline]
fn number(start: u64, index: u64) -> u64 {
    almost_mix(start.wrapping_add(index.wrapping_mul(GOLDEN)))
}

/// The output function of SplitMix64, a bijection in which every output bit depends on every input bit.
pub fn mix(z: u64) -> u64 {
    let z = almost_mix(z);
    z ^ z >> 31
}

/// Computes [`mix`] without its last step.
#[inline]
fn almost_mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check_permutation(n: usize, seed: u64) {
        let (cipher, mut seen) = (Cipher::new(n, seed, 0), vec![false; n]);
        for position in 0..n {
            let index = cipher.index(position);
            assert!(!std::mem::replace(&mut seen[index], true), "n = {n}: {index} comes twice");
        }
    }

    /// Returns the sum of (count - expected)² / expected over equally likely cells, in standard deviations from its
    /// mean.
    fn chi_square_score(counts: &[u32]) -> f64 {
        let expected = counts.iter().map(|&count| f64::from(count)).sum::<f64>() / counts.len() as f64;
        let sum: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        let freedom = counts.len() as f64 - 1.0;
        (sum - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn every_length_is_permuted() {
        for n in 0..2000 {
            check_permutation(n, n as u64);
        }
        for n in [4095, 4096, 4097, 16_385, 65_536, 65_537, 100_003] {
            check_permutation(n, 1);
        }
    }

    /// Returns the position of `index`, by inverting the rounds from last to first.
    fn position_of(cipher: &Cipher, index: usize) -> usize {
        let Cipher { len, key, rows, columns, pairs } = *cipher;
        let back = |value: u64, random: u64, side: u64| (value + side - below(side, random)) % side;
        let (mut row, mut column) = (index as u64 / columns, index as u64 % columns);
        loop {
            for round in (0..u64::from(pairs)).rev().map(|pair| 2 * pair) {
                let start = |round: u64| key.wrapping_add(round.wrapping_mul(ROUND));
                column = back(column, number(start(round + 1), row), columns);
                row = back(row, number(start(round), column), rows);
            }
            let block = row * columns + column;
            if block < len as u64 {
                return (if block < 2 && len > 1 { block ^ key >> 63 } else { block }) as usize;
            }
        }
    }

    #[test]
    fn the_table_has_less_than_one_extra_row() {
        let large = (1..=usize::BITS).map(|bits| usize::MAX >> (usize::BITS - bits)).flat_map(|n| [n - 1, n, n / 3]);
        for n in (1..3000).chain(large.filter(|&n| n > 0)) {
            let Cipher { rows, columns, .. } = Cipher::new(n, 0, 0);
            let more = (u128::from(rows) * u128::from(columns)).checked_sub(n as u128);
            assert!(more.is_some_and(|more| more < u128::from(columns)), "n = {n}: {rows} x {columns}");
            assert!(columns <= rows && rows <= 1 << 32, "n = {n}: {rows} x {columns}");
        }
    }

    /// Checks the first number of SplitMix64 with seed 0, which is a published value, and indices of
    /// some permutations, which must stay the same for the same seed.
    #[test]
    fn the_numbers_do_not_change() {
        assert_eq!(mix(GOLDEN), 0xe220_a839_7b1d_cdaf);
        let indices: Vec<usize> = (0..10).map(|position| Cipher::new(10, 42, 0).index(position)).collect();
        assert_eq!(indices, [9, 1, 6, 8, 7, 2, 4, 5, 3, 0]);
    }

    #[test]
    fn all_small_permutations_are_equally_likely() {
        for (n, count) in [(2_usize, 2), (3, 6), (4, 24), (5, 120), (6, 720)] {
            let mut counts = vec![0_u32; n.pow(n as u32)];
            for seed in 0..count * 200 {
                let cipher = Cipher::new(n, seed, 0);
                counts[(0..n).fold(0, |code, position| code * n + cipher.index(position))] += 1;
            }
            counts.retain(|&count| count > 0);
            assert_eq!(counts.len() as u64, count, "n = {n}");
            let score = chi_square_score(&counts);
            assert!(score.abs() < 4.0, "n = {n}: {score}");
        }
    }

    #[test]
    fn odd_and_even_permutations_are_equally_likely() {
        for n in [4_usize, 9, 12, 16, 25, 64, 81, 225, 1024] {
            let is_odd = |seed: u64| {
                let (cipher, mut seen, mut cycles) = (Cipher::new(n, seed, 0), vec![false; n], 0);
                for start in 0..n {
                    cycles += usize::from(!seen[start]);
                    let mut position = start;
                    while !std::mem::replace(&mut seen[position], true) {
                        position = cipher.index(position);
                    }
                }
                (n - cycles) % 2 == 1
            };
            let odd = (0..400).filter(|&seed| is_odd(seed)).count();
            assert!((160..=240).contains(&odd), "n = {n}: {odd} of 400 are odd");
        }
    }

    #[test]
    fn positions_and_indices_are_independent() {
        for n in [5_usize, 7, 9, 16, 17, 33, 64, 65, 100] {
            for by_epoch in [false, true] {
                let mut counts = vec![0_u32; n * n];
                for k in 0..n as u64 * 100 {
                    let cipher = if by_epoch { Cipher::new(n, 5, k) } else { Cipher::new(n, k, 5) };
                    (0..n).for_each(|position| counts[position * n + cipher.index(position)] += 1);
                }
                // Rows and columns have fixed sums, so there are (n-1)² degrees of freedom instead of n²-1: the score
                // is slightly low.
                let score = chi_square_score(&counts);
                let low = -((n * n - 1 - (n - 1) * (n - 1)) as f64) / (2.0 * (n * n - 1) as f64).sqrt();
                assert!(score < 4.0 && score > low - 4.0, "n = {n}, by epoch {by_epoch}: {score}");
            }
        }
    }

    /// Checks that from one position to the next the index changes by each of 1 .. n-1 (modulo n)
    /// equally often.
    #[test]
    fn adjacent_differences_are_uniform() {
        for n in [7_usize, 9, 16, 17, 33, 65, 100, 129, 257, 513, 1000, 1025] {
            let mut counts = vec![0_u32; n - 1];
            for seed in 0..400 {
                let cipher = Cipher::new(n, seed, 0);
                for position in 0..n - 1 {
                    let difference = (cipher.index(position + 1) + n - cipher.index(position)) % n;
                    counts[difference - 1] += 1;
                }
            }
            let score = chi_square_score(&counts);
            assert!(score.abs() < 4.5, "n = {n}: {score}");
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn huge_lengths_are_spread_over_the_whole_range() {
        let powers = [1 << 30, (1 << 30) + 1, (1 << 32) + 1, 1 << 40, (1 << 40) + 1, (1 << 63) + 1, usize::MAX];
        for n in powers.into_iter().chain([1_000_000_000, 3_500_000_000, 12_345_678_901_234_567]) {
            let (cipher, mut counts) = (Cipher::new(n, 3, 1), [0_u32; 64]);
            let positions = || (n - 10_000..n).chain(0..10_000);
            let mut indices: Vec<usize> = positions().map(|i| cipher.index(i)).collect();
            assert!(indices.iter().map(|&index| position_of(&cipher, index)).eq(positions()), "n = {n}");
            indices.iter().for_each(|&index| counts[(index as u128 * 64 / n as u128) as usize] += 1);
            assert!(chi_square_score(&counts).abs() < 4.0, "n = {n}");
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices.len(), 20_000, "n = {n}");
        }
        assert!(size_of::<Cipher>() <= 40);
    }

    #[test]
    fn a_position_beyond_the_end_panics() {
        for n in [0, 1, 5] {
            assert!(std::panic::catch_unwind(|| Cipher::new(n, 0, 0).index(n)).is_err());
        }
    }

    proptest! {
        #[test]
        fn seeds_and_epochs_change_the_permutation(seed: u64, epoch: u64, bit in 0u32..64) {
            let of = |seed, epoch| Vec::from_iter((0..50).map(|i| Cipher::new(50, seed, epoch).index(i)));
            let first = of(seed, epoch);
            prop_assert_ne!(&first, &of(seed ^ 1 << bit, epoch));
            prop_assert_ne!(&first, &of(seed, epoch ^ 1 << bit));
            prop_assert_eq!(&first, &of(seed, epoch));
        }
    }
}
