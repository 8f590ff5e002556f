//! Pictures as samples of a dataset.

use std::path::Path;

use slotline::BoxError;
use slotline::dataset::decoding;
use slotline::sample::{Fields, Row, Sample};

use crate::boxes::{Coordinate, follow};
use crate::draw::{Draw, Seed};
use crate::error::{FileError, ImageError};
use crate::mask::{ClassId, Mask};
use crate::pipeline::{Choice, Job, Pipeline};
use crate::pixel::Pixel;

/// A picture as a sample, which is decoded into its row of the batch. The row has the element type
/// `T` and the [shape](Pipeline::shape) of the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a, T = f32> {
    bytes: &'a [u8],
    pipeline: &'a Pipeline<T>,
    choice: Choice<'a>,
    path: Option<&'a Path>,
    check: bool,
}

impl<'a, T: Pixel> Image<'a, T> {
    /// Creates a sample from `bytes`, the contents of a file, which `pipeline` decodes. The bytes
    /// are not examined yet.
    pub fn new(bytes: &'a [u8], pipeline: &'a Pipeline<T>) -> Self {
        Self { bytes, pipeline, choice: Choice::None, path: None, check: true }
    }

    /// Sets where the random numbers of the pipeline come from: the sample's own generator,
    /// [`cx.rng()`](slotline::dataset::Context::rng), or a [`Seed`] that was taken from it earlier.
    /// With either, the picture is the same for any number of workers, processes and ranks.
    pub fn random(self, seed: impl Into<Seed>) -> Self {
        Self { choice: Choice::Seed(seed.into()), ..self }
    }

    /// Sets the draw that the picture is transformed with. It must be for the picture's size.
    pub fn draw(self, draw: &'a Draw) -> Self {
        Self { choice: Choice::Draw(draw), ..self }
    }

    /// Sets the path of the file that the bytes come from. If the picture cannot be decoded, the
    /// error is a [`FileError`] with this path instead of an [`ImageError`].
    pub fn path(self, path: &'a (impl AsRef<Path> + ?Sized)) -> Self {
        Self { path: Some(path.as_ref()), ..self }
    }

    /// Sets whether the whole file is [checked](Pipeline::check), if the pipeline checks files
    /// (default: `true`). A dataset that knows that this file was checked before can save the time.
    pub fn check(self, check: bool) -> Self {
        Self { check, ..self }
    }

    /// Creates a sample from `bytes`, the contents of the file of a segmentation mask for this
    /// picture. The mask gets the same draw as the picture. Call it after [`random`](Self::random)
    /// or [`draw`](Self::draw).
    ///
    /// ```
    /// use slotline::dataset::{Context, Dataset};
    /// use slotline::sample::Packed;
    /// use slotline::{BoxError, Loader, Sample};
    /// use slotline_image::transform::{RandomHorizontalFlip, RandomResizedCrop};
    /// use slotline_image::{Image, Mask, Pipeline, SanitizeBoundingBoxes, Seed};
    ///
    /// /// A picture, the class of each pixel, and what is in it: boxes and their classes.
    /// #[derive(Sample)]
    /// struct Scene<'a> {
    ///     image: Image<'a>,
    ///     mask: Mask<'a, i64>,
    ///     boxes: Packed<'a, f32>,
    ///     labels: Packed<'a, i64>,
    /// }
    ///
    /// struct Scenes {
    ///     image: Vec<u8>,
    ///     mask: Vec<u8>,
    ///     boxes: Vec<([f32; 4], i64)>,
    ///     pipeline: Pipeline,
    /// }
    ///
    /// impl Dataset for Scenes {
    ///     type Sample<'a> = Scene<'a>;
    ///
    ///     fn len(&self) -> usize {
    ///         8
    ///     }
    ///
    ///     fn get<'a>(&'a self, _: usize, cx: &'a mut Context) -> Result<Scene<'a>, BoxError> {
    ///         let seed = Seed::from(cx.rng());
    ///         let image = Image::new(&self.image, &self.pipeline).random(seed);
    ///         // Memory of the thread, which is used again for each sample.
    ///         let (boxes, labels) = cx.local::<(Vec<[f32; 4]>, Vec<i64>)>();
    ///         boxes.clear();
    ///         labels.clear();
    ///         boxes.extend(self.boxes.iter().map(|(of_box, _)| *of_box));
    ///         image.boxes(boxes)?;
    ///         // Boxes that are not visible are left out, with their labels.
    ///         let sanitize = SanitizeBoundingBoxes::default();
    ///         labels.extend(self.boxes.iter().zip(&*boxes).filter(|(_, of_box)| sanitize.keeps(of_box)).map(|(of, _)| of.1));
    ///         boxes.retain(|of_box| sanitize.keeps(of_box));
    ///         Ok(Scene {
    ///             mask: image.mask(&self.mask).fill(255),
    ///             image,
    ///             boxes: Packed::with_shape(boxes.as_flattened(), &[4], 10), // room for ten boxes per picture
    ///             labels: Packed::new(labels, 10),
    ///         })
    ///     }
    /// }
    ///
    /// # let image = include_bytes!("../tests/torchvision/picture.png").to_vec();
    /// # let mask = include_bytes!("../tests/torchvision/mask.png").to_vec();
    /// # let boxes = vec![([10.0, 20.0, 80.0, 70.0], 3), ([0.0, 0.0, 4.0, 4.0], 5)];
    /// let pipeline = Pipeline::builder()
    ///     .then(RandomResizedCrop::new(64))
    ///     .then(RandomHorizontalFlip::new(0.5))
    ///     .build()?;
    /// let mut loader = Loader::builder(Scenes { image, mask, boxes, pipeline }).batch_size(4).num_workers(2).build()?;
    /// for batch in loader.epoch()? {
    ///     let batch = batch?;
    ///     let scenes = batch.tensors();
    ///     assert_eq!(scenes.image.shape(), [4, 3, 64, 64]);
    ///     assert_eq!(scenes.mask.shape(), [4, 64, 64]);
    ///     assert_eq!(scenes.boxes.offsets(), scenes.labels.offsets());
    ///     assert!(scenes.boxes.values().as_slice().iter().all(|side| (0.0..=64.0).contains(side)));
    /// }
    /// # Ok::<(), BoxError>(())
    /// ```
    pub fn mask<M: ClassId>(&self, bytes: &'a [u8]) -> Mask<'a, M> {
        Mask::new(bytes, self.bytes, self.pipeline, self.choice)
    }

    /// Transforms boxes of this picture as the picture is transformed, like [`Pipeline::boxes`].
    /// This reads the header of the picture's file.
    ///
    /// # Errors
    ///
    /// The errors of [`Pipeline::boxes`]. Also fails if the header cannot be read. If the
    /// [path](Self::path) was set, the error is a [`FileError`].
    pub fn boxes<F: Coordinate>(&self, boxes: &mut [[F; 4]]) -> Result<(), BoxError> {
        let plan = self.pipeline.plan_for(self.bytes, self.choice);
        plan.and_then(|(_, plan)| follow(&plan, boxes)).map_err(|error| named(error, self.path))
    }
}

/// Adds the path of the file to an error, if it was set.
pub(crate) fn named(error: ImageError, path: Option<&Path>) -> BoxError {
    match path {
        Some(path) => FileError { path: path.to_owned(), error }.into(),
        None => error.into(),
    }
}

impl<T: Pixel> Sample for Image<'_, T> {
    type Schema = T;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(T::DTYPE, &self.pipeline.shape());
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let out = row.fill(&self.pipeline.shape())?;
        let job = Job { bytes: self.bytes, choice: self.choice, check: self.check };
        decoding(|| self.pipeline.run(job, out)).map_err(|error| named(error, self.path))
    }
}
