//! The demo's dataset: a subset of the digits, in the form that the network takes.

use slotline::BoxError;
use slotline::array::Array;
use slotline::dataset::{Context, Dataset};
use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SampleRng};

/// The width and height of an image, in pixels.
const SIDE: usize = 8;
/// The number of pixels of an image.
pub(crate) const PIXELS: usize = SIDE * SIDE;
/// The value of the brightest pixel.
const WHITE: f32 = 16.0;

/// A subset of the digits, as pixels from 0 to 1 and a label.
pub(crate) struct Digits {
    images: Array<u8>,
    labels: Array<i64>,
    chosen: Vec<u32>,
    /// Whether images are shifted at random, each by its sample's own random generator.
    augmented: bool,
}

impl Dataset for Digits {
    type Sample<'a> = ([f32; PIXELS], i64);

    fn len(&self) -> usize {
        self.chosen.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let row = self.chosen[index] as usize;
        let (right, down) = if self.augmented { shift(cx.rng()) } else { (0, 0) };
        Ok((moved(self.images.row_slice(row), right, down), self.labels.as_slice()[row]))
    }
}

/// Splits the digits into four fifths for training and one fifth for tests, as torch's
/// `random_split(digits, [0.8, 0.2], generator)` does with a generator of seed 0.
pub(crate) fn split() -> Result<(Digits, Digits), BoxError> {
    let (images, labels) = slotline::source::digits();
    let mut chosen = Vec::new();
    Generator::from_seed(0).randperm_into(images.len(), &mut chosen)?;
    // Both sizes are rounded down, and the first part gets the remaining samples.
    let test = chosen.split_off(images.len() - images.len() / 5);
    let train = Digits { images: images.clone(), labels: labels.clone(), chosen, augmented: true };
    Ok((train, Digits { images, labels, chosen: test, augmented: false }))
}

/// Draws a shift: with probability 1/2 none, otherwise one pixel to the right, left, down or up.
fn shift(rng: &mut SampleRng) -> (isize, isize) {
    const STEPS: [(isize, isize); 4] = [(1, 0), (-1, 0), (0, 1), (0, -1)];
    STEPS.get(rng.next_u32() as usize % (2 * STEPS.len())).copied().unwrap_or_default()
}

/// Returns the image shifted to the right and down, as numbers from 0 to 1, filled with background.
fn moved(image: &[u8], right: isize, down: isize) -> [f32; PIXELS] {
    let mut pixels = [0.0; PIXELS];
    for (y, row) in pixels.chunks_exact_mut(SIDE).enumerate() {
        for (x, pixel) in row.iter_mut().enumerate() {
            let from = (x.wrapping_add_signed(-right), y.wrapping_add_signed(-down));
            if from.0 < SIDE && from.1 < SIDE {
                *pixel = f32::from(image[from.1 * SIDE + from.0]) / WHITE;
            }
        }
    }
    pixels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_is_in_one_part() {
        let (train, test) = split().unwrap();
        assert_eq!((train.len(), test.len()), (1438, 359));
        let mut all = [train.chosen, test.chosen].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1797));
    }

    #[test]
    fn shifted_images_are_filled_with_background() {
        let image: Vec<u8> = (0..64).map(|i| i % 16 + 1).collect();
        assert_eq!(moved(&image, 0, 0)[..2], [1.0 / 16.0, 2.0 / 16.0]);
        assert_eq!(moved(&image, 1, 0)[..2], [0.0, 1.0 / 16.0]);
        assert_eq!(moved(&image, -1, 0)[6..8], [8.0 / 16.0, 0.0]);
        assert_eq!(moved(&image, 0, 1)[8], 1.0 / 16.0);
        assert_eq!(moved(&image, 0, -1)[0], 9.0 / 16.0);
        assert_eq!(moved(&image, 0, -1)[56..], [0.0; 8]);
    }
}
