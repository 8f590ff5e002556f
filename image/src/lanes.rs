//! Arithmetic on sixteen numbers at once, for resizing, written with intrinsics for CPUs for which
//! compilers do not vectorise the portable code.

use crate::channel::Channel;
use crate::resample::{Block, Plane, Rows};
use crate::taps::Taps;

/// A vector of sixteen numbers in units of 1/256.
pub(crate) trait Lanes: Copy {
    /// Returns a vector with the same number sixteen times.
    fn splat(number: u16) -> Self;

    /// Loads a vector from memory.
    fn load(numbers: &[u16; 16]) -> Self;

    /// Converts bytes to numbers in units of 1/256. The first vector holds the eight bytes from
    /// byte 0 and the eight from byte 16 on, the second one those from bytes 8 and 24 on.
    fn widen(bytes: &[u8; 32]) -> [Self; 2];

    /// Adds `numbers * weight / 65,536`, truncated, and saturates at 65,535.
    fn add(self, numbers: Self, weight: u16) -> Self;

    /// Transposes eight rows of sixteen numbers. Element i of the result holds columns i and i + 8.
    fn transpose(rows: [Self; 8]) -> [[[u16; 8]; 2]; 8];

    /// Computes one channel of eight pixels from three planes.
    fn channel(planes: [&[u16; 8]; 3], channel: &Channel) -> [f32; 8];

    /// Rounds numbers from 0 to 255 to bytes.
    fn bytes(numbers: [f32; 8]) -> [u8; 8];

    /// Rounds numbers to 16-bit floating-point numbers, which are returned as bits.
    #[cfg(feature = "half")]
    fn halves(numbers: [f32; 8]) -> [u16; 8];

    /// Calls [`Rows::shrink`], compiled for the CPUs of this implementation.
    fn shrink(rows: &mut Rows, plane: Plane<'_>, y: usize, down: &Taps, across: &Taps);

    /// Calls [`Rows::block`], compiled for the CPUs of this implementation.
    fn block(rows: &Rows, x: usize, across: &Taps, step: usize, channel: usize) -> Block;
}

/// The portable implementation, for any CPU.
impl Lanes for [u16; 16] {
    #[inline(always)]
    fn splat(number: u16) -> Self {
        [number; 16]
    }

    #[inline(always)]
    fn load(numbers: &[u16; 16]) -> Self {
        *numbers
    }

    #[inline(always)]
    fn widen(bytes: &[u8; 32]) -> [Self; 2] {
        let wide = |i: usize| u16::from(bytes[i]) << 8;
        [0, 8].map(|from| std::array::from_fn(|i| wide(if i < 8 { from + i } else { from + 8 + i })))
    }

    #[inline(always)]
    fn add(mut self, numbers: Self, weight: u16) -> Self {
        for (sum, number) in self.iter_mut().zip(&numbers) {
            *sum = sum.saturating_add(((u32::from(*number) * u32::from(weight)) >> 16) as u16);
        }
        self
    }

    #[inline(always)]
    fn transpose(rows: [Self; 8]) -> [[[u16; 8]; 2]; 8] {
        std::array::from_fn(|x| [x, x + 8].map(|x| rows.map(|row| row[x])))
    }

    #[inline(always)]
    fn channel([a, b, c]: [&[u16; 8]; 3], channel: &Channel) -> [f32; 8] {
        let ([fa, fb, fc], [least, most]) = (channel.factors, channel.range);
        std::array::from_fn(|i| {
            let sum = f32::from(a[i]) * fa + f32::from(b[i]) * fb + f32::from(c[i]) * fc + channel.offset;
            sum.max(least).min(most)
        })
    }

    #[inline(always)]
    fn bytes(numbers: [f32; 8]) -> [u8; 8] {
        numbers.map(|number| (number + 0.5) as u8)
    }

    #[cfg(feature = "half")]
    #[inline(always)]
    fn halves(numbers: [f32; 8]) -> [u16; 8] {
        numbers.map(|number| half::f16::from_f32(number).to_bits())
    }

    fn shrink(rows: &mut Rows, plane: Plane<'_>, y: usize, down: &Taps, across: &Taps) {
        rows.shrink::<Self>(plane, y, down, across);
    }

    fn block(rows: &Rows, x: usize, across: &Taps, step: usize, channel: usize) -> Block {
        rows.block::<Self>(x, across, step, channel)
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use self::avx2::Avx2;

/// Whether this CPU can run [`Avx2`].
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;
    use std::mem::transmute;

    use super::{Block, Channel, Lanes, Plane, Rows, Taps};

    /// The implementation for CPUs with AVX2 and F16C. Code that uses it must check first that the
    /// CPU supports these, with `has_avx2`.
    ///
    /// Each operation is implemented by a function that is itself compiled for AVX2. If the
    /// operation relied on being inlined into a caller that is compiled for AVX2, a closure between
    /// the two would prevent that, and each instruction would become a call.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256i);

    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(number: u16) -> Self {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { splat(number) }
        }

        #[inline(always)]
        fn load(numbers: &[u16; 16]) -> Self {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { load(numbers) }
        }

        #[inline(always)]
        fn widen(bytes: &[u8; 32]) -> [Self; 2] {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { widen(bytes) }
        }

        #[inline(always)]
        fn add(self, numbers: Self, weight: u16) -> Self {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { add(self, numbers, weight) }
        }

        #[inline(always)]
        fn transpose(rows: [Self; 8]) -> [[[u16; 8]; 2]; 8] {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { transpose(rows) }
        }

        #[inline(always)]
        fn channel(planes: [&[u16; 8]; 3], channel: &Channel) -> [f32; 8] {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { self::channel(planes, channel) }
        }

        #[inline(always)]
        fn bytes(numbers: [f32; 8]) -> [u8; 8] {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { bytes(numbers) }
        }

        #[cfg(feature = "half")]
        #[inline(always)]
        fn halves(numbers: [f32; 8]) -> [u16; 8] {
            // SAFETY: users of this type have checked that the CPU supports F16C.
            unsafe { halves(numbers) }
        }

        #[inline(always)]
        fn shrink(rows: &mut Rows, plane: Plane<'_>, y: usize, down: &Taps, across: &Taps) {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { shrink(rows, plane, y, down, across) }
        }

        #[inline(always)]
        fn block(rows: &Rows, x: usize, across: &Taps, step: usize, channel: usize) -> Block {
            // SAFETY: users of this type have checked that the CPU supports AVX2.
            unsafe { block(rows, x, across, step, channel) }
        }
    }

    #[target_feature(enable = "avx2")]
    fn shrink(rows: &mut Rows, plane: Plane<'_>, y: usize, down: &Taps, across: &Taps) {
        rows.shrink::<Avx2>(plane, y, down, across);
    }

    #[target_feature(enable = "avx2")]
    fn block(rows: &Rows, x: usize, across: &Taps, step: usize, channel: usize) -> Block {
        rows.block::<Avx2>(x, across, step, channel)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn bytes(numbers: [f32; 8]) -> [u8; 8] {
        // SAFETY: there are 32 bytes to read.
        let numbers = unsafe { _mm256_loadu_ps(numbers.as_ptr()) };
        let words = _mm256_cvttps_epi32(_mm256_add_ps(numbers, _mm256_set1_ps(0.5)));
        let words = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        _mm_cvtsi128_si64(_mm_packus_epi16(words, words)).to_le_bytes()
    }

    #[cfg(feature = "half")]
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn halves(numbers: [f32; 8]) -> [u16; 8] {
        // SAFETY: there are 32 bytes to read, and a vector of 16 bytes is eight numbers of two
        // bytes.
        unsafe { transmute(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(numbers.as_ptr()))) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn splat(number: u16) -> Avx2 {
        Avx2(_mm256_set1_epi16(number as i16))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(numbers: &[u16; 16]) -> Avx2 {
        // SAFETY: there are 32 bytes to read.
        Avx2(unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn widen(bytes: &[u8; 32]) -> [Avx2; 2] {
        // SAFETY: there are 32 bytes to read.
        let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
        let zero = _mm256_setzero_si256();
        [Avx2(_mm256_unpacklo_epi8(zero, bytes)), Avx2(_mm256_unpackhi_epi8(zero, bytes))]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(sum: Avx2, numbers: Avx2, weight: u16) -> Avx2 {
        Avx2(_mm256_adds_epu16(sum.0, _mm256_mulhi_epu16(numbers.0, splat(weight).0)))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn transpose(rows: [Avx2; 8]) -> [[[u16; 8]; 2]; 8] {
        let [Avx2(a), Avx2(b), Avx2(c), Avx2(d), Avx2(e), Avx2(f), Avx2(g), Avx2(h)] = rows;
        let (ab0, ab1) = (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
        let (cd0, cd1) = (_mm256_unpacklo_epi16(c, d), _mm256_unpackhi_epi16(c, d));
        let (ef0, ef1) = (_mm256_unpacklo_epi16(e, f), _mm256_unpackhi_epi16(e, f));
        let (gh0, gh1) = (_mm256_unpacklo_epi16(g, h), _mm256_unpackhi_epi16(g, h));
        let (ad0, ad1) = (_mm256_unpacklo_epi32(ab0, cd0), _mm256_unpackhi_epi32(ab0, cd0));
        let (ad2, ad3) = (_mm256_unpacklo_epi32(ab1, cd1), _mm256_unpackhi_epi32(ab1, cd1));
        let (eh0, eh1) = (_mm256_unpacklo_epi32(ef0, gh0), _mm256_unpackhi_epi32(ef0, gh0));
        let (eh2, eh3) = (_mm256_unpacklo_epi32(ef1, gh1), _mm256_unpackhi_epi32(ef1, gh1));
        let columns = [
            _mm256_unpacklo_epi64(ad0, eh0),
            _mm256_unpackhi_epi64(ad0, eh0),
            _mm256_unpacklo_epi64(ad1, eh1),
            _mm256_unpackhi_epi64(ad1, eh1),
            _mm256_unpacklo_epi64(ad2, eh2),
            _mm256_unpackhi_epi64(ad2, eh2),
            _mm256_unpacklo_epi64(ad3, eh3),
            _mm256_unpackhi_epi64(ad3, eh3),
        ];
        // SAFETY: eight vectors of 32 bytes are 128 numbers of two bytes.
        unsafe { transmute(columns) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn channel([a, b, c]: [&[u16; 8]; 3], channel: &Channel) -> [f32; 8] {
        let ([fa, fb, fc], [least, most]) = (channel.factors, channel.range);
        let sum = _mm256_add_ps(_mm256_add_ps(term(a, fa), term(b, fb)), term(c, fc));
        let sum = _mm256_add_ps(sum, _mm256_set1_ps(channel.offset));
        let sum = _mm256_min_ps(_mm256_max_ps(sum, _mm256_set1_ps(least)), _mm256_set1_ps(most));
        // SAFETY: a vector of 32 bytes is eight numbers of four bytes.
        unsafe { transmute(sum) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn term(numbers: &[u16; 8], factor: f32) -> __m256 {
        // SAFETY: there are 16 bytes to read.
        let numbers = _mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(numbers.as_ptr().cast()) });
        _mm256_mul_ps(_mm256_cvtepi32_ps(numbers), _mm256_set1_ps(factor))
    }
}
