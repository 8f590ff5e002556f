//! Combines the drawn steps of a pipeline to few passes over the pixels.
//!
//! Resizing, crops, flips and padding that follow each other are one pass: [`Places`] for each direction. A segment is
//! such a pass, and the operations on its pixels.

use smallvec::SmallVec;

use crate::geometry::Operation;
use crate::places::{PaddingMode, Places};

/// What is done with one picture.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) segments: SmallVec<[Segment; 2]>,
    /// The operations that move pixels, one by one, for masks and boxes.
    pub(crate) geometry: SmallVec<[Operation; 4]>,
}

/// One pass.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Rows and columns.
    pub(crate) places: [Places; 2],
    /// The colour of constant padding.
    pub(crate) fill: [u8; 3],
}

impl Plan {
    /// Starts with a picture of this size.
    pub(crate) fn new(size: [usize; 2]) -> Self {
        let first = Segment { places: size.map(Places::all), fill: [0; 3] };
        Self { segments: std::iter::once(first).collect(), geometry: SmallVec::new() }
    }

    /// The size after what was planned so far.
    pub(crate) fn size(&self) -> [usize; 2] {
        self.segments[self.segments.len() - 1].places.map(|places| places.out)
    }

    fn last(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a plan has a segment")
    }

    /// Starts another pass.
    fn push(&mut self) -> &mut Segment {
        let places = self.size().map(Places::all);
        self.segments.push(Segment { places, fill: [0; 3] });
        self.last()
    }

    pub(crate) fn resize(&mut self, size: [usize; 2]) {
        if size == self.size() {
            return;
        }
        self.geometry.push(Operation::Resize { from: self.size(), to: size });
        if !self.last().places.iter().all(Places::can_resize) {
            self.push();
        }
        let places = &mut self.last().places;
        places.iter_mut().zip(size).for_each(|(places, size)| places.resize(size));
    }

    pub(crate) fn crop(&mut self, at: [usize; 2], size: [usize; 2]) {
        self.geometry.push(Operation::Crop { at, to: size });
        for (i, places) in self.last().places.iter_mut().enumerate() {
            places.cut(at[i], size[i]);
        }
    }

    pub(crate) fn mirror(&mut self, direction: usize) {
        self.geometry.push(Operation::Mirror { direction, len: self.size()[direction] });
        self.last().places[direction].mirror();
    }

    /// Adds pixels before and behind, in both directions.
    pub(crate) fn pad(&mut self, sides: [[usize; 2]; 2], padding: PaddingMode, fill: [u8; 3]) {
        if sides == [[0; 2]; 2] {
            return;
        }
        self.geometry.push(Operation::Pad { from: self.size(), sides, padding });
        if self.last().places.iter().any(|places| places.bounds.is_some()) {
            self.push();
        }
        let last = self.last();
        last.fill = fill;
        for (places, [before, behind]) in last.places.iter_mut().zip(sides) {
            places.pad(before, behind, padding);
        }
    }
}
