//! Sizes of crops and results.

use std::borrow::Cow;

use crate::decode::MAX_SIDE;
use crate::error::ImageError;
use crate::text::{Literal, Value};

/// A height and a width. A single number converts to a square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The height, in pixels.
    pub height: usize,
    /// The width, in pixels.
    pub width: usize,
}

impl From<usize> for Size {
    fn from(side: usize) -> Self {
        Self { height: side, width: side }
    }
}

impl From<[usize; 2]> for Size {
    fn from([height, width]: [usize; 2]) -> Self {
        Self { height, width }
    }
}

impl Size {
    pub(super) fn check(self, transform: &'static str) -> Result<(), ImageError> {
        let Self { height, width } = self;
        let sides = 1..=MAX_SIDE;
        if sides.contains(&height) && sides.contains(&width) {
            return Ok(());
        }
        let message = format!("is {height} × {width}; each side must be between 1 and {MAX_SIDE}");
        Err(ImageError::parameter(transform, "size", message))
    }

    pub(super) fn array(self) -> [usize; 2] {
        [self.height, self.width]
    }
}

/// The size that a picture is resized to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeTo {
    /// The length of the shorter side, in pixels. The other side keeps the proportion.
    Shorter(usize),
    /// The height and the width, regardless of the proportions of the picture.
    Exact(Size),
}

impl From<usize> for ResizeTo {
    fn from(side: usize) -> Self {
        Self::Shorter(side)
    }
}

impl From<[usize; 2]> for ResizeTo {
    fn from(size: [usize; 2]) -> Self {
        Self::Exact(size.into())
    }
}

impl Value for Size {
    fn expected() -> Cow<'static, str> {
        "a whole number, or [height, width]".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        usize::read(literal).map(Self::from).or_else(|| <[usize; 2]>::read(literal).map(Self::from))
    }

    fn write(&self) -> String {
        if self.height == self.width { self.height.write() } else { self.array().write() }
    }
}

impl Value for ResizeTo {
    fn expected() -> Cow<'static, str> {
        "a whole number for the shorter side, or [height, width]".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        usize::read(literal).map(Self::from).or_else(|| <[usize; 2]>::read(literal).map(Self::from))
    }

    fn write(&self) -> String {
        match self {
            Self::Shorter(side) => side.write(),
            Self::Exact(size) => size.array().write(),
        }
    }
}
