//! The relation between the pixels of a file and the decoded samples of a plane.

/// One direction of a plane: pixel `x` of the file begins at sample `x × scale - skipped`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    /// The number of samples of the plane in this direction.
    pub(crate) samples: usize,
    pub(crate) scale: f64,
    pub(crate) skipped: f64,
}

impl Frame {
    /// Creates the frame of a plane whose samples are the pixels of the file.
    pub(crate) fn same(samples: usize) -> Self {
        Self { samples, scale: 1.0, skipped: 0.0 }
    }
}
