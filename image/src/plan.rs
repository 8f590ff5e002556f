//! Combines the drawn steps of a pipeline to a few passes over the pixels.
//!
//! Consecutive resizes, crops, flips and paddings are one pass, with an [`AxisMap`] for each
//! direction. A [`Segment`] is such a pass, followed by operations on its pixels.

use smallvec::SmallVec;

use crate::axis_map::{AxisMap, PaddingMode};
use crate::decode::MAX_SIDE;
use crate::error::ImageError;
use crate::exact::Filter;
use crate::geometry::Movement;
use crate::operation::Operation;

/// The plan for transforming one picture.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) segments: SmallVec<[Segment; 2]>,
    /// The operations that move pixels, one by one, for masks and boxes.
    pub(crate) geometry: SmallVec<[Movement; 4]>,
    /// The name of a transform that shears or rotates the picture, which masks and boxes do not
    /// support.
    pub(crate) not_followed: Option<&'static str>,
    /// Whether the steps that are added next work on normalised numbers.
    normalized: bool,
    /// The operations on normalised numbers.
    pub(crate) after: SmallVec<[Operation; 1]>,
    /// Whether the result of each pass is exactly Pillow's.
    pub(crate) exact: bool,
}

/// One pass over the pixels, and the operations after it.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// The maps of rows and of columns.
    pub(crate) places: [AxisMap; 2],
    /// The filter for resizing.
    pub(crate) filter: Filter,
    /// The colour of constant padding.
    pub(crate) fill: [u8; 3],
    /// The operations that are applied to the pixels after this pass.
    pub(crate) operations: SmallVec<[Operation; 8]>,
}

impl Segment {
    fn new(size: [usize; 2]) -> Self {
        Self { places: size.map(AxisMap::all), filter: Filter::default(), fill: [0; 3], operations: SmallVec::new() }
    }
}

impl Plan {
    /// Creates the plan of a picture of this size without any steps. Returns an error if the size
    /// is not possible.
    pub(crate) fn of(size: [usize; 2], exact: bool) -> Result<Self, ImageError> {
        if !size.iter().all(|side| (1..=MAX_SIDE).contains(side)) {
            let [height, width] = size;
            let message = format!("it is for {height} × {width} pixels; each side is between 1 and {MAX_SIDE}");
            return Err(ImageError::draw(message));
        }
        let segments = std::iter::once(Segment::new(size)).collect();
        Ok(Self {
            segments,
            geometry: SmallVec::new(),
            not_followed: None,
            normalized: false,
            after: SmallVec::new(),
            exact,
        })
    }

    /// Returns the size of the picture after all steps so far.
    pub(crate) fn size(&self) -> [usize; 2] {
        self.segments[self.segments.len() - 1].places.map(|places| places.out)
    }

    /// Checks the sizes after all passes but the last one, whose size is that of the pipeline.
    pub(crate) fn check_sizes(&self, picture: [usize; 2], max_pixels: usize) -> Result<(), ImageError> {
        let limit = max_pixels.max(self.size().iter().product());
        for segment in &self.segments[..self.segments.len() - 1] {
            let between @ [height, width] = segment.places.map(|places| places.out);
            if height.max(width) > MAX_SIDE || height * width > limit {
                return Err(ImageError::TooLargeBetween { picture, between, limit });
            }
        }
        Ok(())
    }

    fn last(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a plan has a segment")
    }

    /// Returns the maps of a pass that can still be changed. Starts another pass if necessary.
    fn places(&mut self) -> &mut [AxisMap; 2] {
        if !self.last().operations.is_empty() {
            self.push();
        }
        &mut self.last().places
    }

    /// Starts another pass.
    fn push(&mut self) {
        self.segments.push(Segment::new(self.size()));
    }

    pub(crate) fn resize(&mut self, size: [usize; 2], filter: impl Into<Filter>) {
        if size == self.size() {
            return;
        }
        self.geometry.push(Movement::Resize { from: self.size(), to: size });
        // The weights of a mirrored picture may be rounded differently.
        let exact = self.exact;
        if !self.places().iter().all(|places| places.can_resize() && !(exact && places.mirrored)) {
            self.push();
        }
        self.last().filter = filter.into();
        self.last().places.iter_mut().zip(size).for_each(|(places, size)| places.resize(size));
    }

    pub(crate) fn crop(&mut self, at: [usize; 2], size: [usize; 2]) {
        self.geometry.push(Movement::Crop { at, to: size });
        for (i, places) in self.places().iter_mut().enumerate() {
            places.cut(at[i], size[i]);
        }
    }

    pub(crate) fn mirror(&mut self, direction: usize) {
        self.geometry.push(Movement::Mirror { direction, len: self.size()[direction] });
        self.places()[direction].mirror();
    }

    /// Adds padding on all sides.
    pub(crate) fn pad(&mut self, sides: [[usize; 2]; 2], padding: PaddingMode, fill: [u8; 3]) {
        if sides == [[0; 2]; 2] {
            return;
        }
        self.geometry.push(Movement::Pad { from: self.size(), sides, padding });
        if self.places().iter().any(|places| places.bounds.is_some()) {
            self.push();
        }
        let last = self.last();
        last.fill = fill;
        for (places, [before, behind]) in last.places.iter_mut().zip(sides) {
            places.pad(before, behind, padding);
        }
    }

    /// Adds an operation on the pixels as they are after the steps so far.
    pub(crate) fn operate(&mut self, operation: Operation) {
        if self.normalized {
            self.after.push(operation);
        } else {
            self.last().operations.push(operation);
        }
    }

    /// Makes the following operations work on normalised numbers.
    pub(crate) fn normalize(&mut self) {
        self.normalized = true;
    }
}
