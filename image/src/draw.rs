//! The random choices for one picture, separate from the code that carries them out.

use slotline::rng::SampleRng;
use slotline::rng::rand_core::Rng;
use smallvec::SmallVec;

use crate::error::ImageError;
use crate::operation::Operation;

/// The choices for one picture: a [`Step`] for each transform of the pipeline.
///
/// [`Pipeline::draw`](crate::Pipeline::draw) draws one at random. [`new`](Draw::new) takes steps
/// that the caller has chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    pub(crate) size: [usize; 2],
    pub(crate) steps: SmallVec<[Step; 6]>,
}

impl Draw {
    /// Creates a draw from chosen steps, for a picture of `height × width` pixels. The steps must
    /// fit the transforms of the pipeline that uses them;
    /// [`decode_with`](crate::Pipeline::decode_with) checks that.
    pub fn new(height: usize, width: usize, steps: impl IntoIterator<Item = Step>) -> Self {
        Self { size: [height, width], steps: steps.into_iter().collect() }
    }

    /// Returns the height and width of the picture.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Returns the step of each transform.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// The choice for one transform of a pipeline: what it does with a picture.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// What a transform that draws nothing does.
    Fixed,
    /// Whether a transform that has only a probability is applied.
    Apply(bool),
    /// The crop of `RandomCrop` (in the padded picture) or `RandomResizedCrop`, in pixels.
    Crop {
        /// The first row of the crop.
        top: usize,
        /// The first column of the crop.
        left: usize,
        /// The number of rows of the crop.
        height: usize,
        /// The number of columns of the crop.
        width: usize,
    },
    /// The operations of a transform of colours, in the order in which they are applied.
    Operations(Operations),
}

/// The operations of one [`Step`]. Up to four need no allocation.
///
/// ```
/// use slotline_image::{Operation, Operations, Step};
///
/// let step = Step::Operations(Operations::from_iter([Operation::AdjustBrightness(1.2), Operation::Grayscale]));
/// assert!(matches!(step, Step::Operations(operations) if operations.len() == 2));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operations(SmallVec<[Operation; 4]>);

impl std::ops::Deref for Operations {
    type Target = [Operation];

    fn deref(&self) -> &[Operation] {
        &self.0
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().collect())
    }
}

impl Extend<Operation> for Operations {
    fn extend<I: IntoIterator<Item = Operation>>(&mut self, operations: I) {
        self.0.extend(operations);
    }
}

impl Step {
    pub(crate) fn expect_fixed(&self, transform: &'static str) -> Result<(), ImageError> {
        if *self == Self::Fixed { Ok(()) } else { Err(self.unexpected(transform)) }
    }

    pub(crate) fn expect_apply(&self, transform: &'static str) -> Result<bool, ImageError> {
        if let Self::Apply(apply) = *self { Ok(apply) } else { Err(self.unexpected(transform)) }
    }

    /// Returns the position and the size of the crop in `step`. Returns an error unless it is a
    /// crop inside of a picture of this size.
    pub(crate) fn expect_crop(
        &self,
        transform: &'static str,
        size: [usize; 2],
    ) -> Result<([usize; 2], [usize; 2]), ImageError> {
        let Self::Crop { top, left, height, width } = *self else { return Err(self.unexpected(transform)) };
        let (at, crop) = ([top, left], [height, width]);
        for i in 0..2 {
            if crop[i] == 0 || at[i].saturating_add(crop[i]) > size[i] {
                let [rows, columns] = size;
                return Err(ImageError::draw(format!("{self:?} of {transform} exceeds {rows} × {columns} pixels")));
            }
        }
        Ok((at, crop))
    }

    pub(crate) fn expect_operations(&self, transform: &'static str) -> Result<&[Operation], ImageError> {
        if let Self::Operations(operations) = self { Ok(operations) } else { Err(self.unexpected(transform)) }
    }

    pub(crate) fn unexpected(&self, transform: &'static str) -> ImageError {
        ImageError::draw(format!("{self:?} is not a step of {transform}"))
    }
}

/// The seed of the random numbers for the pictures of one sample.
///
/// It is a number that is drawn once from the sample's own generator. So it can be drawn before
/// memory is borrowed from the [`Context`](slotline::dataset::Context), and can be given to a
/// picture, its mask and its boxes, all of which then get the same draw.
///
/// ```
/// use slotline::dataset::Context;
/// use slotline_image::Seed;
///
/// let mut cx = Context::default();
/// let seed = Seed::from(cx.rng());
/// assert_ne!(seed, Seed::from(cx.rng()), "a second one continues the sequence");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

impl<R: Rng> From<&mut R> for Seed {
    fn from(rng: &mut R) -> Self {
        Self(rng.next_u64())
    }
}

impl Seed {
    pub(crate) fn rng(self) -> SampleRng {
        SampleRng::new(self.0, 0, 0)
    }
}

/// The distributions that transforms draw from.
pub(crate) struct Random<'a>(pub(crate) &'a mut dyn FnMut() -> u64);

impl Random<'_> {
    pub(crate) fn bits(&mut self) -> u64 {
        (self.0)()
    }

    /// Draws a number from 0 to below 1, uniformly.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn uniform(&mut self, from: f64, to: f64) -> f64 {
        from + self.unit() * (to - from)
    }

    /// Draws the sides of a rectangle. Its area is a random fraction, in the range `scale`, of
    /// `area`, and its sides have a random proportion in the range `ratio`.
    pub(crate) fn sides(&mut self, area: f64, scale: [f64; 2], ratio: [f64; 2]) -> [usize; 2] {
        let area = area * self.uniform(scale[0], scale[1]);
        let ratio = self.uniform(ratio[0].ln(), ratio[1].ln()).exp();
        [area * ratio, area / ratio].map(|square| square.sqrt().round_ties_even() as usize)
    }

    /// Draws a number below `n`, which is at least 1 and small: the bias is below n / 2⁶⁴.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0()) * n as u128) >> 64) as usize
    }

    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}
