//! MixUp and CutMix: each picture of a finished batch is mixed with the picture before it.

use slotline::rng::rand_core::Rng;

use crate::draw::Random;
use crate::error::ImageError;
use crate::pixel::Pixel;

/// An operation that blends each picture of a batch with another one, and their labels with the
/// same weights. See [`Mix`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixUp {
    /// The parameter of the distribution Beta(α, α) that λ is drawn from (default: 1).
    pub alpha: f64,
}

/// An operation that replaces a rectangle of each picture of a batch by the same rectangle of
/// another one, and mixes their labels in proportion to the area. See [`Mix`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CutMix {
    /// The parameter of the distribution Beta(α, α) that λ is drawn from (default: 1).
    pub alpha: f64,
}

impl Default for MixUp {
    fn default() -> Self {
        Self { alpha: 1.0 }
    }
}

impl Default for CutMix {
    fn default() -> Self {
        Self { alpha: 1.0 }
    }
}

impl MixUp {
    /// Draws λ.
    ///
    /// # Errors
    ///
    /// Fails if `alpha` is not above 0 and finite.
    pub fn draw(&self, rng: &mut impl Rng) -> Result<Mix, ImageError> {
        Ok(Mix::MixUp { lambda: beta("MixUp", self.alpha, &mut Random(&mut || rng.next_u64()))? })
    }
}

impl CutMix {
    /// Draws λ and the centre of the rectangle, for pictures of this size.
    ///
    /// # Errors
    ///
    /// Fails if `alpha` is not above 0 and finite, or if a side is 0.
    pub fn draw(&self, rng: &mut impl Rng, height: usize, width: usize) -> Result<Mix, ImageError> {
        if height == 0 || width == 0 {
            return Err(ImageError::parameter(
                "CutMix",
                "size",
                format!("is {height} × {width}; pictures have pixels"),
            ));
        }
        let mut next = || rng.next_u64();
        let random = &mut Random(&mut next);
        let lambda = beta("CutMix", self.alpha, random)?;
        let (x, y) = (random.below(width), random.below(height));
        let half = |side: usize| (0.5 * (1.0 - lambda).sqrt() * side as f64) as usize;
        let span = |at: usize, side: usize| [at.saturating_sub(half(side)), (at + half(side)).min(side)];
        Ok(Mix::CutMix { rows: span(y, height), columns: span(x, width) })
    }
}

/// The way in which the pictures of a batch and their labels are mixed. Picture `i` is mixed with
/// picture `i - 1`, and the first one with the last, as by torchvision's `MixUp` and `CutMix`. So
/// the batch should be shuffled.
///
/// The random numbers should come from a generator that is seeded for each batch with a seed, the
/// [epoch](slotline::loader::Batch::epoch) and the
/// [batch index](slotline::loader::Batch::batch_index). So they are the same for any number of
/// workers and after resuming. Each rank should have its own seed.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::from_fn;
/// use slotline::rng::SampleRng;
/// use slotline::rng::rand_core::Rng;
/// use slotline_image::{CutMix, Mix, MixUp};
///
/// # let pictures = from_fn(8, |i, _| Ok(([i as f32; 72], i as i64 % 3)));
/// let mut loader = Loader::builder(pictures).batch_size(4).shuffle(true).num_workers(2).build()?;
/// let mut labels = Vec::new();
/// for batch in loader.epoch()? {
///     let mut batch = batch?;
///     let mut rng = SampleRng::new(42, batch.epoch(), batch.batch_index() as u64);
///     // Chooses MixUp or CutMix for each batch. For some batches it could be `Mix::None`.
///     let mix = if rng.next_u32() % 2 == 0 {
///         MixUp::default().draw(&mut rng)?
///     } else {
///         CutMix { alpha: 0.5 }.draw(&mut rng, 4, 6)?
///     };
///     mix.labels(batch.tensors().1.as_slice(), [4, 6], 3, &mut labels)?; // f32 [4, 3]
///     mix.pictures(batch.field_mut::<f32>(0).expect("pictures of f32"), [4, 3, 4, 6], false)?;
///     assert_eq!(labels.len(), 4 * 3);
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// The pictures are left as they are.
    None,
    /// Pictures are blended.
    MixUp {
        /// The weight of the picture itself, from 0 to 1. The weight of the other picture is 1 -
        /// `lambda`.
        lambda: f64,
    },
    /// A rectangle is replaced.
    CutMix {
        /// The range of the rectangle's rows.
        rows: [usize; 2],
        /// The range of the rectangle's columns.
        columns: [usize; 2],
    },
}

/// The number of elements that are copied to a buffer at once.
const SPARE: usize = 256;

impl Mix {
    /// Returns the weight of a picture's own label, for pictures of `height × width` pixels. For
    /// CutMix, this is the fraction of the picture's area that is not replaced; parts of the
    /// rectangle that are outside of the picture do not count.
    pub fn lambda(&self, [height, width]: [usize; 2]) -> f64 {
        match *self {
            Self::None => 1.0,
            Self::MixUp { lambda } => lambda,
            Self::CutMix { rows, columns } => {
                let part = |[from, to]: [usize; 2], side: usize| to.min(side).saturating_sub(from) as f64;
                let area = (height as f64 * width as f64).max(1.0);
                1.0 - part(rows, height) * part(columns, width) / area
            }
        }
    }

    fn check(&self, [height, width]: [usize; 2]) -> Result<(), ImageError> {
        let fits = |[from, to]: [usize; 2], side| from <= to && to <= side;
        match *self {
            Self::MixUp { lambda } if !(0.0..=1.0).contains(&lambda) => {
                Err(ImageError::parameter("MixUp", "lambda", format!("is {lambda}; it must be between 0 and 1")))
            }
            Self::CutMix { rows, columns } if !fits(rows, height) || !fits(columns, width) => {
                Err(ImageError::parameter(
                    "CutMix",
                    "rows and columns",
                    format!("are {rows:?} and {columns:?}, outside of {height} × {width} pixels"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Mixes the pictures of a batch in place, without allocating. `shape` is
    /// `[batch, channels, height, width]`, or with `channels_last`
    /// `[batch, height, width, channels]`.
    ///
    /// # Errors
    ///
    /// Fails if λ or the rectangle does not fit, or if `pictures` has another number of elements
    /// than the shape.
    pub fn pictures<T: Pixel>(
        &self,
        pictures: &mut [T],
        shape: [usize; 4],
        channels_last: bool,
    ) -> Result<(), ImageError> {
        let [batch, a, b, c] = shape;
        let (outer, [height, width], inner) = if channels_last { (1, [a, b], c) } else { (a, [b, c], 1) };
        self.check([height, width])?;
        if shape.iter().try_fold(1, |all: usize, &side| all.checked_mul(side)) != Some(pictures.len()) {
            let message = format!("has {} elements, which is not the shape {shape:?}", pictures.len());
            return Err(ImageError::parameter("Mix", "pictures", message));
        }
        if shape.contains(&0) {
            return Ok(());
        }
        let len = pictures.len() / batch;
        match *self {
            Self::None => {}
            Self::MixUp { lambda } => {
                let (own, other) = (lambda as f32, (1.0 - lambda) as f32);
                roll(pictures, len, [0, len], |to, from| {
                    let blend = |to: T, from: T| T::of(from.wide() * other + to.wide() * own);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = blend(*to, *from));
                });
            }
            Self::CutMix { rows, columns } => {
                for plane in 0..outer {
                    for y in rows[0]..rows[1] {
                        let at = |x| ((plane * height + y) * width + x) * inner;
                        roll(pictures, len, columns.map(at), |to, from| to.copy_from_slice(from));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the mixed labels of a batch to `out`, as `[batch, classes]`: λ at the class of each
    /// picture, and the rest at the class of the picture before it. The memory of `out` is reused.
    /// `size` is the height and width of the pictures.
    ///
    /// # Errors
    ///
    /// Fails if λ or the rectangle does not fit, if a label is not below `classes`, or if there is
    /// no memory for `out`.
    pub fn labels(
        &self,
        labels: &[i64],
        size: [usize; 2],
        classes: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), ImageError> {
        self.check(size)?;
        let lambda = self.lambda(size);
        out.clear();
        let len = labels.len().checked_mul(classes).filter(|&len| out.try_reserve(len).is_ok());
        let Some(len) = len else {
            let message = format!("are {classes}, for which there is no memory");
            return Err(ImageError::parameter("Mix", "classes", message));
        };
        out.resize(len, 0.0);
        for (i, &label) in labels.iter().enumerate() {
            let class = usize::try_from(label).ok().filter(|&class| class < classes);
            let Some(class) = class else {
                let message = format!("has {label} at {i}; classes are 0 to {}", classes.saturating_sub(1));
                return Err(ImageError::parameter("Mix", "labels", message));
            };
            out[i * classes + class] += lambda as f32;
            out[(i + 1) % labels.len() * classes + class] += (1.0 - lambda) as f32;
        }
        Ok(())
    }
}

/// Calls `mix` for each picture, with a part of the picture and the same part of the picture before
/// it, as it was before any change.
fn roll<T: Pixel>(pictures: &mut [T], len: usize, [from, to]: [usize; 2], mix: impl Fn(&mut [T], &[T])) {
    let last = pictures.len() - len;
    let mut spare = [T::of(0.0); SPARE];
    for from in (from..to).step_by(SPARE) {
        let part = SPARE.min(to - from);
        let spare = &mut spare[..part];
        spare.copy_from_slice(&pictures[last + from..][..part]);
        for start in (1..pictures.len() / len).rev().map(|i| i * len) {
            let (before, here) = pictures.split_at_mut(start);
            mix(&mut here[from..][..part], &before[start - len + from..][..part]);
        }
        mix(&mut pictures[from..][..part], spare);
    }
}

/// Draws from the distribution Beta(α, α), as a quotient of two gamma variates. Their logarithms
/// are used, which do not underflow.
fn beta(transform: &'static str, alpha: f64, random: &mut Random<'_>) -> Result<f64, ImageError> {
    if !alpha.is_finite() || alpha <= 0.0 {
        return Err(ImageError::parameter(transform, "alpha", format!("is {alpha}; it must be above 0 and finite")));
    }
    let (a, b) = (log_gamma(alpha, random), log_gamma(alpha, random));
    Ok(1.0 / (1.0 + (b - a).exp()))
}

/// Draws the logarithm of a gamma variate by the method of G. Marsaglia and W. W. Tsang, "A simple
/// method for generating gamma variables", 2000; for α below 1 with the factor `u^(1/α)`.
fn log_gamma(alpha: f64, random: &mut Random<'_>) -> f64 {
    let mut positive = || 1.0 - random.unit();
    let boost = if alpha < 1.0 { positive().ln() / alpha } else { 0.0 };
    let d = if alpha < 1.0 { alpha + 1.0 } else { alpha } - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let normal = (-2.0 * positive().ln()).sqrt() * (std::f64::consts::TAU * positive()).cos();
        let v = (1.0 + c * normal).powi(3);
        if v > 0.0 && positive().ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
            return (d * v).ln() + boost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotline::rng::SampleRng;

    #[test]
    fn lambda_has_the_mean_and_the_variance_of_its_distribution() {
        for alpha in [0.2, 1.0, 4.0] {
            let mut rng = SampleRng::new(1, 2, 3);
            let mut random = || rng.next_u64();
            let all: Vec<f64> = (0..20_000).map(|_| beta("MixUp", alpha, &mut Random(&mut random)).unwrap()).collect();
            let mean = all.iter().sum::<f64>() / 20_000.0;
            let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
            let wanted = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.012 && (variance / wanted - 1.0).abs() < 0.05, "{alpha}: {mean} {variance}");
        }
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(MixUp { alpha }.draw(&mut SampleRng::new(0, 0, 0)).is_err());
        }
        let lambda = MixUp { alpha: 1e-9 }.draw(&mut SampleRng::new(0, 0, 0)).unwrap().lambda([1, 1]);
        assert!((0.0..=1.0).contains(&lambda));
    }
}
