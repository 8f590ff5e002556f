//! Bounding boxes that are transformed together with their picture.

use slotline::dtype::Element;

use crate::axis_map::PaddingMode;
use crate::draw::Draw;
use crate::error::ImageError;
use crate::geometry::Movement;
use crate::pipeline::{Choice, Pipeline};
use crate::pixel::Pixel;
use crate::plan::Plan;

/// The number type of a box's coordinates: `f32` or `f64`. Sealed.
#[allow(private_bounds)] // So that only this crate can implement this trait.
pub trait Coordinate: Element + Wide {}

/// The operations that a [`Coordinate`] needs.
pub(crate) trait Wide: Copy {
    fn wide(self) -> f64;
    fn narrow(wide: f64) -> Self;
}

macro_rules! coordinate {
    ($($type:ty)*) => {
        $(impl Coordinate for $type {}

        impl Wide for $type {
            fn wide(self) -> f64 {
                self.into()
            }

            fn narrow(wide: f64) -> Self {
                wide as Self
            }
        })*
    };
}

coordinate!(f32 f64);

impl<T: Pixel> Pipeline<T> {
    /// Transforms boxes of a picture as `draw` transforms the picture, and clips them to the
    /// result. The rules are torchvision's for `BoundingBoxes`, with `ClampBoundingBoxes` at the
    /// end.
    ///
    /// A box is `[left, top, right, bottom]` in pixels. Every box keeps its index in the list, even
    /// if no part of it is visible; [`SanitizeBoundingBoxes`] says which boxes to keep.
    ///
    /// Where `CenterCrop` pads by an odd number of pixels, boxes move with the pixels; torchvision
    /// moves them by one pixel more or less in some of these cases.
    ///
    /// # Errors
    ///
    /// Fails if the draw does not fit the pipeline, if the pipeline has `RandAugment`,
    /// `TrivialAugmentWide` or `AutoAugment`, or if it pads with anything but a colour. torchvision
    /// does not accept these for boxes either.
    ///
    /// ```
    /// use slotline_image::transform::{RandomHorizontalFlip, Resize};
    /// use slotline_image::{Draw, Pipeline, Step};
    ///
    /// let pipeline: Pipeline =
    ///     Pipeline::builder().then(Resize::new([50, 100])).then(RandomHorizontalFlip::new(0.5)).build()?;
    /// let mut boxes = [[10.0, 20.0, 30.0, 120.0]];
    /// pipeline.boxes(&Draw::new(100, 200, [Step::Fixed, Step::Apply(true)]), &mut boxes)?;
    /// assert_eq!(boxes, [[85.0, 10.0, 95.0, 50.0]]);
    /// # Ok::<(), slotline_image::ImageError>(())
    /// ```
    pub fn boxes<F: Coordinate>(&self, draw: &Draw, boxes: &mut [[F; 4]]) -> Result<(), ImageError> {
        follow(&self.followed_plan(Choice::Draw(draw), draw.size)?, boxes)
    }
}

/// Moves boxes as the plan moves pixels, and clips them to the result.
pub(crate) fn follow<F: Coordinate>(plan: &Plan, boxes: &mut [[F; 4]]) -> Result<(), ImageError> {
    for operation in &plan.geometry {
        if let Movement::Pad { padding, .. } = operation
            && *padding != PaddingMode::Constant
        {
            let message = format!("is {padding:?}; boxes can only follow PaddingMode::Constant");
            return Err(ImageError::parameter("boxes", "padding_mode", message));
        }
    }
    let [height, width] = plan.size();
    for of_box in boxes {
        let mut moved = of_box.map(F::wide);
        plan.geometry.iter().for_each(|operation| step(*operation, &mut moved));
        clip(&mut moved, [height, width]);
        *of_box = moved.map(F::narrow);
    }
    Ok(())
}

fn step(operation: Movement, [left, top, right, bottom]: &mut [f64; 4]) {
    let across = |across: &mut dyn FnMut(&mut f64), [a, b]: [&mut f64; 2]| {
        across(a);
        across(b);
    };
    match operation {
        Movement::Resize { from, to } => {
            let [down, wide] = [0, 1].map(|i| to[i] as f64 / from[i] as f64);
            across(&mut |x| *x *= wide, [left, right]);
            across(&mut |y| *y *= down, [top, bottom]);
        }
        Movement::Crop { at, to } => {
            across(&mut |x| *x = (*x - at[1] as f64).clamp(0.0, to[1] as f64), [left, right]);
            across(&mut |y| *y = (*y - at[0] as f64).clamp(0.0, to[0] as f64), [top, bottom]);
        }
        Movement::Mirror { direction: 1, len } => (*left, *right) = (len as f64 - *right, len as f64 - *left),
        Movement::Mirror { len, .. } => (*top, *bottom) = (len as f64 - *bottom, len as f64 - *top),
        Movement::Pad { from, sides, .. } => {
            let size = [0, 1].map(|i| (from[i] + sides[i][0] + sides[i][1]) as f64);
            across(&mut |x| *x = (*x + sides[1][0] as f64).clamp(0.0, size[1]), [left, right]);
            across(&mut |y| *y = (*y + sides[0][0] as f64).clamp(0.0, size[0]), [top, bottom]);
        }
    }
}

fn clip(of_box: &mut [f64; 4], [height, width]: [usize; 2]) {
    for (side, most) in of_box.iter_mut().zip([width, height, width, height]) {
        *side = side.clamp(0.0, most as f64);
    }
}

/// A rule for which boxes to keep after they were transformed and clipped, with torchvision's name
/// and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SanitizeBoundingBoxes {
    /// The smallest width and height, in pixels (default: 1). Smaller boxes are not kept.
    pub min_size: f64,
    /// The smallest area, in pixels (default: 1). Boxes of a smaller area are not kept.
    pub min_area: f64,
}

impl Default for SanitizeBoundingBoxes {
    fn default() -> Self {
        Self { min_size: 1.0, min_area: 1.0 }
    }
}

impl SanitizeBoundingBoxes {
    /// Whether to keep this box. A box with NaN is not kept.
    pub fn keeps<F: Coordinate>(&self, of_box: &[F; 4]) -> bool {
        let of_box @ [left, top, right, bottom] = of_box.map(F::wide);
        let (width, height) = (right - left, bottom - top);
        let large = width >= self.min_size && height >= self.min_size && width * height >= self.min_area;
        large && of_box.iter().all(|&side| side >= 0.0)
    }
}
