//! Images with labels, in memory.

use std::sync::{Arc, OnceLock};

use anyhow::{Result, ensure};
use slotline::array::Array;
use slotline::dataset::TensorDataset;
use slotline::loader::BatchOf;

use super::{Source, sum};

/// slotline's dataset of images and their labels.
pub type ImageSet = TensorDataset<(Array<u8>, Vec<i64>)>;

/// One of two sets of images in memory that is never freed.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    dataset: &'static Arc<ImageSet>,
    /// The size of an image in bytes.
    row: usize,
    /// A function that the loop calls after each batch.
    step: fn(),
}

impl Images {
    /// Returns 60,000 images of 28 × 28 bytes.
    pub fn small() -> Self {
        static SMALL: OnceLock<Arc<ImageSet>> = OnceLock::new();
        Self::make(&SMALL, 60_000, &[28, 28])
    }

    /// Returns 2,000 images of 3 × 224 × 224 bytes.
    pub fn large() -> Self {
        static LARGE: OnceLock<Arc<ImageSet>> = OnceLock::new();
        Self::make(&LARGE, 2_000, &[3, 224, 224])
    }

    fn make(place: &'static OnceLock<Arc<ImageSet>>, count: usize, shape: &[usize]) -> Self {
        let row = shape.iter().product();
        let dataset = place.get_or_init(|| {
            let pixels = (0..count * row).map(|i| (i * 31 % 251) as u8).collect();
            let pixels = Array::new(pixels, &[&[count], shape].concat()).expect("as many bytes as the shape has");
            Arc::new(TensorDataset::new((pixels, (0..count as i64).collect())).expect("a label for each image"))
        });
        Self { dataset, row, step: || () }
    }

    /// Returns the same images for a loop that calls `step` after each batch.
    #[must_use]
    pub fn stepping(self, step: fn()) -> Self {
        Self { step, ..self }
    }

    /// Returns the size of an image in bytes.
    pub fn row_len(&self) -> usize {
        self.row
    }

    /// Returns the bytes of an image.
    #[inline]
    pub fn row(&self, index: usize) -> &'static [u8] {
        self.dataset.rows().0.row_slice(index)
    }

    /// Returns the label of an image.
    #[inline]
    pub fn label(&self, index: usize) -> i64 {
        self.dataset.rows().1[index]
    }

    /// Compares images with those that their labels stand for.
    pub fn compare(&self, pixels: &[u8], labels: &[i64]) -> Result<()> {
        ensure!(pixels.len() == labels.len() * self.row, "{} bytes for {} labels", pixels.len(), labels.len());
        for (row, &label) in pixels.chunks_exact(self.row).zip(labels) {
            ensure!((0..self.len() as i64).contains(&label), "invalid label {label}");
            ensure!(row == self.row(label as usize), "image {label} has wrong bytes");
        }
        Ok(())
    }
}

impl Source for Images {
    type Item = (&'static [u8], i64);
    type Batch = (Vec<u8>, Vec<i64>);
    type Data = Arc<ImageSet>;

    fn len(&self) -> usize {
        self.dataset.rows().1.len()
    }

    #[inline]
    fn get(&self, index: usize) -> Self::Item {
        (self.row(index), self.label(index))
    }

    #[inline]
    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch {
        let mut pixels = Vec::with_capacity(items.len() * self.row);
        let mut labels = Vec::with_capacity(items.len());
        for (row, label) in items {
            pixels.extend_from_slice(row);
            labels.push(label);
        }
        (pixels, labels)
    }

    #[inline]
    fn check(&self, (_, labels): &Self::Batch) -> u64 {
        (self.step)();
        sum(labels)
    }

    fn verify(&self, (pixels, labels): &Self::Batch) -> Result<()> {
        self.compare(pixels, labels)
    }

    /// Returns the dataset, which several loaders share.
    fn dataset(&self) -> Arc<ImageSet> {
        Arc::clone(self.dataset)
    }

    #[inline]
    fn check_ours(&self, batch: &BatchOf<Arc<ImageSet>>) -> u64 {
        (self.step)();
        sum(batch.tensors().1.as_slice())
    }

    fn verify_ours(&self, batch: &BatchOf<Arc<ImageSet>>) -> Result<()> {
        let (pixels, labels) = batch.tensors();
        self.compare(pixels.as_slice(), labels.as_slice())
    }
}
