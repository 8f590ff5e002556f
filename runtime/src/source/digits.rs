//! The handwritten digits that come with this crate.

use super::parse_idx;
use crate::array::Array;

/// Returns 1797 handwritten digits and their labels, as data for examples that needs no download.
///
/// Images are u8 `[1797, 8, 8]` with values from 0 (the background) to 16. Labels are i64 `[1797]`,
/// from 0 to 9. Each call copies the data, about 115 kB.
///
/// From "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998,
/// <https://doi.org/10.24432/C50P49>, under the Creative Commons Attribution 4.0 International license (CC BY 4.0).
///
/// ```
/// let (images, labels) = slotline::source::digits();
/// assert_eq!(images.shape(), [1797, 8, 8]);
/// assert_eq!(labels.as_slice()[..4], [0, 1, 2, 3]);
/// ```
pub fn digits() -> (Array<u8>, Array<i64>) {
    let images = bundled(include_bytes!("../../data/digits/images.idx3-ubyte"));
    let labels = bundled(include_bytes!("../../data/digits/labels.idx1-ubyte"));
    let numbers = labels.as_slice().iter().map(|&label| label.into()).collect();
    let labels = Array::new(numbers, labels.shape()).expect("the number of labels did not change");
    (images, labels)
}

/// Parses a file that is part of this crate, so only a broken build can make this panic.
fn bundled(bytes: &[u8]) -> Array<u8> {
    let array = parse_idx(bytes).expect("the bundled digits are IDX files");
    array.into_typed().expect("the bundled digits are u8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_as_documented() {
        let (images, labels) = digits();
        assert_eq!((images.shape(), labels.shape()), (&[1797, 8, 8][..], &[1797][..]));
        assert_eq!(images.as_slice().iter().max(), Some(&16));
        assert!(labels.as_slice().iter().all(|label| (0..10).contains(label)));
        // The published number of images of each digit.
        let counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180];
        for (digit, count) in counts.into_iter().enumerate() {
            assert_eq!(labels.as_slice().iter().filter(|&&label| label == digit as i64).count(), count);
        }
    }
}
