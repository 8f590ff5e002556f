//! The computation of the kernel `fold`, on the host. It provides the expected results, and
//! replaces the kernel when the fake driver is used.

/// Returns the sum, over all words of 8 bytes, of a number that depends on the word, its position
/// and `salt`. An incomplete last word is padded with zeros.
pub(crate) fn fold(data: &[u8], salt: u64) -> u64 {
    let (words, rest) = data.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then_some(last);
    let numbered = words.iter().copied().chain(last).map(u64::from_le_bytes).zip(salt..);
    numbered.fold(0, |sum, (word, at)| sum.wrapping_add(mix(word.wrapping_add(at.wrapping_mul(0x9E37_79B9_7F4A_7C15)))))
}

/// Applies the final mixing step of the generator splitmix64.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_depends_on_every_byte_its_place_and_the_salt() {
        let data: Vec<u8> = (0..29).collect();
        let whole = fold(&data, 3);
        for at in 0..data.len() {
            let mut other = data.clone();
            other[at] ^= 0x10;
            assert_ne!(fold(&other, 3), whole, "byte {at}");
        }
        let mut swapped = data.clone();
        swapped.rotate_left(8);
        assert_ne!(fold(&swapped, 3), whole);
        assert_ne!(fold(&data, 4), whole);
        assert_eq!(fold(&[], 3), 0);
    }
}
