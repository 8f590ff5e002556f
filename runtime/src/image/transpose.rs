//! Turning 8 × 8 numbers of 16 bits over, which compilers don't find the instructions for.

/// Rows become columns.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn transpose(rows: [[u16; 8]; 8]) -> [[u16; 8]; 8] {
    use std::arch::x86_64::{__m128i, _mm_unpackhi_epi16, _mm_unpacklo_epi16};
    use std::arch::x86_64::{_mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64};
    // SAFETY: eight vectors of 16 bytes are 64 numbers of two bytes, and any bits are a value of either.
    let [a, b, c, d, e, f, g, h]: [__m128i; 8] = unsafe { std::mem::transmute(rows) };
    // SAFETY: every x86-64 CPU has SSE2, and these only move numbers from vectors to vectors.
    unsafe {
        let pairs = |a, b| (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
        let ((ab0, ab1), (cd0, cd1), (ef0, ef1), (gh0, gh1)) = (pairs(a, b), pairs(c, d), pairs(e, f), pairs(g, h));
        let fours = |a, b| (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
        let ((ad0, ad1), (ad2, ad3)) = (fours(ab0, cd0), fours(ab1, cd1));
        let ((eh0, eh1), (eh2, eh3)) = (fours(ef0, gh0), fours(ef1, gh1));
        let eights = |a, b| [_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)];
        std::mem::transmute([eights(ad0, eh0), eights(ad1, eh1), eights(ad2, eh2), eights(ad3, eh3)])
    }
}

/// Rows become columns.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn transpose(rows: [[u16; 8]; 8]) -> [[u16; 8]; 8] {
    std::array::from_fn(|i| std::array::from_fn(|j| rows[j][i]))
}

#[cfg(test)]
mod tests {
    #[test]
    fn rows_become_columns() {
        let rows: [[u16; 8]; 8] = std::array::from_fn(|i| std::array::from_fn(|j| (i * 1_000 + j) as u16));
        let turned = super::transpose(rows);
        for (i, row) in rows.iter().enumerate() {
            for (j, &number) in row.iter().enumerate() {
                assert_eq!(turned[j][i], number);
            }
        }
    }
}
