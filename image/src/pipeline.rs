//! [`Pipeline`]: decodes pictures and transforms them to one shape.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slotline::rng::rand_core::Rng;

use crate::channel::{Channel, Planes};
use crate::decode::{Limits, MAX_SIDE, OpenedImage};
use crate::draw::{Draw, Random, Seed};
use crate::error::ImageError;
use crate::exact::Resampling;
use crate::paint::Layout;
use crate::pixel::Pixel;
use crate::plan::Plan;
use crate::scratch;
use crate::transform::{Normalize, RandomResizedCrop, Resize, Transform};

/// The default maximum number of pixels of a picture, see [`Pipeline::max_pixels`]. PIL rejects
/// larger ones too.
pub(crate) const MAX_PIXELS: usize = 178_956_970;

/// A pipeline that decodes pictures of any format, transforms them, and stores them in one shape.
///
/// It is a list of [transforms](crate::transform), with torchvision's names, parameters and
/// defaults. All results have the same size, which is known when the pipeline is built. The
/// elements are `f32` from 0 for black to 1, unless [normalised](Normalize), or `u8` from 0 to 255;
/// with the cargo feature `half` also `half::f16` and `half::bf16`.
///
/// ```
/// use slotline_image::Pipeline;
/// use slotline_image::transform::{Normalize, RandomHorizontalFlip, RandomResizedCrop};
///
/// let train: Pipeline = Pipeline::builder()
///     .then(RandomResizedCrop::new(224))
///     .then(RandomHorizontalFlip::new(0.5))
///     .then(Normalize::imagenet())
///     .build()?;
/// assert_eq!(train.shape(), [3, 224, 224]);
///
/// // Optional parameters are set as fields.
/// let bytes: Pipeline<u8> = Pipeline::builder()
///     .then(RandomResizedCrop { scale: [0.5, 1.0], ..RandomResizedCrop::new([96, 128]) })
///     .build()?;
/// assert_eq!(bytes.channels_last(true).shape(), [96, 128, 3]);
///
/// // Pipelines can be configured as text.
/// let text: Pipeline = "random_resized_crop(224), hflip, normalize(imagenet)".parse()?;
/// assert_eq!(text.transforms(), train.transforms());
/// # Ok::<(), slotline_image::ImageError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pipeline<T = f32> {
    pub(crate) transforms: Vec<Transform>,
    size: [usize; 2],
    /// The coefficients of the channels, for pictures of brightness and colour differences, and for
    /// pictures of red, green and blue.
    channels: [[Channel; 3]; 2],
    /// The normalisation; `None` if the results are not to be exact.
    exact: Option<Normalize>,
    layout: Layout,
    pub(crate) reading: Reading,
    max_pixels: usize,
    /// The number of pictures that the JPEG decoder warned about, shared by all clones.
    warned: Arc<AtomicU64>,
    element: std::marker::PhantomData<fn() -> T>,
}

/// A list of transforms that becomes a [`Pipeline`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PipelineBuilder {
    pub(crate) transforms: Vec<Transform>,
    pub(crate) reading: Reading,
}

/// Options for reading files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    exif: bool,
    reduced: bool,
    strict: bool,
    check: bool,
    exact: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self { exif: false, reduced: false, strict: false, check: true, exact: false }
    }
}

impl Reading {
    /// Returns each option, with the name that it has when a pipeline is written as text.
    pub(crate) fn options(&mut self) -> [(&'static str, &mut bool); 5] {
        let Self { exif, reduced, strict, check, exact } = self;
        [("exif", exif), ("reduced", reduced), ("strict", strict), ("check", check), ("exact", exact)]
    }
}

impl PipelineBuilder {
    /// Adds a transform at the end of the list.
    pub fn then(mut self, transform: impl Into<Transform>) -> Self {
        self.transforms.push(transform.into());
        self
    }

    /// Sets whether the results are bit for bit those of torchvision's transforms of PIL images,
    /// for the same random choices (default: `false`). JPEGs are decoded at full size, and each
    /// transform rounds to bytes as Pillow does. This needs the cargo feature `turbo`.
    pub fn exact(mut self, exact: bool) -> Self {
        self.reading.exact = exact;
        self
    }

    /// Returns the transforms.
    pub fn transforms(&self) -> &[Transform] {
        &self.transforms
    }

    /// Builds the pipeline, for elements of type `T`.
    ///
    /// # Errors
    ///
    /// [`ImageError::Parameter`] names a parameter that is invalid, or a transform that does not
    /// fit the others: the result must have the same size for pictures of any size, and only
    /// [`RandomErasing`](crate::transform::RandomErasing) can follow [`Normalize`].
    /// [`exact`](Self::exact) excludes [`GaussianBlur`](crate::transform::GaussianBlur).
    pub fn build<T: Pixel>(self) -> Result<Pipeline<T>, ImageError> {
        let Self { transforms, reading } = self;
        let (mut size, mut normalize) = (None, None::<Normalize>);
        if reading.exact && (reading.reduced || cfg!(all(feature = "jpeg", not(feature = "turbo")))) {
            let message = if reading.reduced {
                "excludes reduced: a smaller picture has other pixels"
            } else {
                "needs the cargo feature `turbo` of slotline-image: the other decoder of JPEGs rounds otherwise than PIL's"
            };
            return Err(ImageError::parameter("Pipeline", "exact", message));
        }
        for transform in &transforms {
            transform.apply().check()?;
            size = transform.apply().size(size);
            let fail = |message| Err(ImageError::parameter("Pipeline", transform.name(), message));
            match transform {
                Transform::Resize(Resize { interpolation, .. })
                | Transform::RandomResizedCrop(RandomResizedCrop { interpolation, .. })
                    if !reading.exact && *interpolation != Resampling::Bilinear =>
                {
                    return fail("has another interpolation than bilinear, which needs the option exact");
                }
                _ if reading.exact && transform.apply().inexact() => {
                    return fail("has no exact results; leave out the option exact, or this transform");
                }
                Transform::Normalize(_) if T::BRIGHTEST != 1.0 => {
                    return fail("makes fractions; choose elements of a floating-point type, such as f32");
                }
                Transform::Normalize(_) if normalize.is_some() => return fail("appears twice"),
                Transform::Normalize(given) => normalize = Some(*given),
                Transform::RandomErasing(_) if normalize.is_some() => {}
                Transform::RandomErasing(erasing) => erasing.check_bytes()?,
                _ if normalize.is_some() => return fail("follows Normalize; move it in front of Normalize"),
                _ => {}
            }
        }
        let Some(size) = size else {
            let message = "have a size that differs between pictures; add resize([height, width]), center_crop, \
                           random_crop or random_resized_crop";
            return Err(ImageError::parameter("Pipeline", "results", message));
        };
        if size.iter().any(|&side| side > MAX_SIDE) {
            let message = format!("have {} × {} pixels; at most {MAX_SIDE} for a side are possible", size[0], size[1]);
            return Err(ImageError::parameter("Pipeline", "results", message));
        }
        let Normalize { mean, std } = normalize.unwrap_or(Normalize::new([0.0; 3], [1.0 / T::BRIGHTEST; 3]));
        Ok(Pipeline {
            transforms,
            size,
            channels: [Planes::YCbCr, Planes::Rgb].map(|planes| Channel::all(planes, mean, std)),
            exact: reading.exact.then_some(Normalize { mean, std }),
            layout: Layout::Chw,
            reading,
            max_pixels: MAX_PIXELS,
            warned: Arc::default(),
            element: std::marker::PhantomData,
        })
    }
}

impl Pipeline {
    /// Starts an empty list of transforms.
    pub fn builder() -> PipelineBuilder {
        PipelineBuilder::default()
    }

    /// Creates a pipeline that resizes pictures to `height × width` pixels as `f32`, from 0 for
    /// black to 1. Pictures of other proportions are stretched.
    ///
    /// # Errors
    ///
    /// Fails if a side is 0 or above 65,535.
    pub fn new(height: usize, width: usize) -> Result<Self, ImageError> {
        Self::builder().then(Resize::new([height, width])).build()
    }

    /// Adds [`Normalize`] to the transforms.
    ///
    /// # Errors
    ///
    /// Fails if a mean is not finite, if a standard deviation is not above 0 and finite, or if the
    /// pipeline already has [`Normalize`].
    pub fn normalize(self, mean: [f32; 3], std: [f32; 3]) -> Result<Self, ImageError> {
        let Self { transforms, reading, layout, max_pixels, warned, .. } = self;
        let builder = PipelineBuilder { transforms, reading }.then(Normalize::new(mean, std));
        Ok(Self { layout, max_pixels, warned, ..builder.build()? })
    }
}

impl Pipeline<u8> {
    /// Creates a pipeline that resizes pictures to `height × width` pixels as rounded bytes, from 0
    /// for black to 255.
    ///
    /// # Errors
    ///
    /// Fails if a side is 0 or above 65,535.
    pub fn bytes(height: usize, width: usize) -> Result<Self, ImageError> {
        Pipeline::builder().then(Resize::new([height, width])).build()
    }
}

/// One picture to decode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) choice: Choice<'a>,
    /// Whether the whole file is checked. This has no effect if the pipeline does not check files.
    pub(crate) check: bool,
}

/// The source of the steps of random transforms.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// The pipeline has no random transforms.
    None,
    Draw(&'a Draw),
    Seed(Seed),
}

impl<T: Pixel> Pipeline<T> {
    /// Sets whether the channels are the last dimension: `[height, width, 3]` instead of
    /// `[3, height, width]` (default: `false`).
    pub fn channels_last(mut self, channels_last: bool) -> Self {
        self.layout = if channels_last { Layout::Hwc } else { Layout::Chw };
        self
    }

    /// Sets whether JPEGs may be decoded at a half, a quarter or an eighth of their size (default:
    /// `false`). This is done only if the crop is then still at least as large as the size that it
    /// is resized to, in both directions. It is faster, but the filter differs from PIL's and
    /// torchvision's; the [crate documentation](crate#speed-and-exactness) says how much the
    /// results differ. It has no effect without the cargo feature `turbo`, or if the results are
    /// [exact](PipelineBuilder::exact).
    pub fn reduced(mut self, reduced: bool) -> Self {
        self.reading.reduced = reduced;
        self
    }

    /// Sets the maximum number of pixels of a picture (default: 178,956,970, PIL's limit). Between
    /// two transforms a picture may have no more pixels either, except if the results themselves
    /// have more.
    ///
    /// The limit protects against small files that claim to be very large, and bounds the memory of
    /// a thread: what it keeps (see [`memory`](Self::memory)), and what a decoder needs while it
    /// works, up to 8 bytes for each pixel of a progressive JPEG.
    pub fn max_pixels(mut self, max_pixels: usize) -> Self {
        self.max_pixels = max_pixels;
        self
    }

    /// Sets whether pictures are turned upright according to their EXIF data (default: `false`, as
    /// in PIL's `open` and torchvision's `decode_image`).
    pub fn exif(mut self, exif: bool) -> Self {
        self.reading.exif = exif;
        self
    }

    /// Sets whether all warnings of the JPEG decoder are errors (default: `false`, as in PIL). Most
    /// warnings are harmless, such as those about bytes before a marker, but a part of a damaged
    /// picture may be guessed; [`warnings`](Self::warnings) counts both.
    ///
    /// Truncated JPEGs are always errors. Damage that leaves a file valid is never found. Without
    /// the cargo feature `turbo`, neither bytes that are left when all pixels are decoded nor
    /// missing bits at the end of a scan are found.
    pub fn strict(mut self, strict: bool) -> Self {
        self.reading.strict = strict;
        self
    }

    /// Sets whether a file is read to its end even if only a part of the picture is needed
    /// (default: `true`), so that damage is found independently of the crop. A dataset can
    /// [turn this off](crate::Image::check) for a picture whose file was checked before, as
    /// `Pictures` of `slotline-sources` does.
    ///
    /// The check takes time only where the file would not be read completely anyway. For a PNG,
    /// these are the rows below the crop. For a small crop of a JPEG with `turbo` (unless it is
    /// progressive), this is a second pass over the bits, which takes up to half of the time of
    /// such a crop.
    pub fn check(mut self, check: bool) -> Self {
        self.reading.check = check;
        self
    }

    /// Returns the number of pictures that the JPEG decoder warned about and that this pipeline or
    /// a clone of it decoded and [checked](Self::check).
    pub fn warnings(&self) -> u64 {
        self.warned.load(Ordering::Relaxed)
    }

    /// Returns the shape of a decoded picture: `[3, height, width]`, or `[height, width, 3]` with
    /// [`channels_last`](Self::channels_last).
    pub fn shape(&self) -> [usize; 3] {
        let [height, width] = self.size;
        match self.layout {
            Layout::Chw => [3, height, width],
            Layout::Hwc => [height, width, 3],
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { max_pixels: self.max_pixels, strict: self.reading.strict }
    }

    /// Returns the height and width of the picture in `bytes` and its plan for a mask or boxes,
    /// without decoding it.
    pub(crate) fn plan_for(&self, bytes: &[u8], choice: Choice<'_>) -> Result<([usize; 2], Plan), ImageError> {
        let size = self.size_of(bytes)?;
        Ok((size, self.followed_plan(choice, size)?))
    }

    /// Returns the plan for a picture of this size, for a mask or boxes.
    pub(crate) fn followed_plan(&self, choice: Choice<'_>, size: [usize; 2]) -> Result<Plan, ImageError> {
        // All transforms are checked, whatever was drawn for this picture.
        self.check_followed()?;
        let plan = self.plan(choice, size)?;
        plan.not_followed.map_or(Ok(plan), |transform| Err(not_followed(transform)))
    }

    /// Checks that masks and boxes can have the transforms of their pictures.
    ///
    /// # Errors
    ///
    /// Fails if the pipeline has `RandAugment`, `TrivialAugmentWide` or `AutoAugment`, whose shears
    /// and rotations masks and boxes cannot have.
    pub fn check_followed(&self) -> Result<(), ImageError> {
        let found = self.transforms.iter().find_map(|transform| transform.apply().not_followed());
        found.map_or(Ok(()), |transform| Err(not_followed(transform)))
    }

    /// Returns the height and width of the results.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Returns how many bytes of memory a thread keeps, at most, after decoding pictures of
    /// `height × width` pixels: the decoded pixels, the pixels between two passes, and tables.
    /// Smaller pictures of the same proportions need less.
    ///
    /// The working memory of the decoders, which is freed after each picture, is not counted. It is
    /// up to 8 bytes for each pixel of a progressive JPEG, also a copy of the file without the
    /// cargo feature `turbo`, and one decompressed picture for other formats.
    ///
    /// # Errors
    ///
    /// Fails if the picture is too small for a transform, or [too large](Self::max_pixels) between
    /// two of them.
    ///
    /// ```
    /// let pipeline: slotline_image::Pipeline = "random_resized_crop(224), hflip, normalize(imagenet)".parse()?;
    /// let megabytes = pipeline.memory(3_000, 4_000)? >> 20;
    /// assert!((45..60).contains(&megabytes));
    /// # Ok::<(), slotline_image::ImageError>(())
    /// ```
    pub fn memory(&self, height: usize, width: usize) -> Result<usize, ImageError> {
        // Sizes do not depend on the random numbers.
        let plan = self.draw_with(&mut Random(&mut || 0), [height, width])?.1;
        plan.check_sizes([height, width], self.max_pixels)?;
        Ok(scratch::memory(&plan, [height, width], self.reading.exif))
    }

    /// Returns the transforms.
    pub fn transforms(&self) -> &[Transform] {
        &self.transforms
    }

    /// Whether a transform draws random numbers, so that pictures need a [draw](Self::draw) or a
    /// [seed](Seed).
    pub fn is_random(&self) -> bool {
        self.transforms.iter().any(|transform| transform.apply().is_random())
    }

    /// Reads the height and width of a picture, upright if [`exif`](Self::exif) is set, without
    /// decoding it.
    ///
    /// # Errors
    ///
    /// Fails if the header of the file cannot be read, or if the picture is too large; see
    /// [`ImageError`].
    pub fn size_of(&self, bytes: &[u8]) -> Result<[usize; 2], ImageError> {
        let mut opened = OpenedImage::new(bytes, self.limits())?;
        let transposed = self.reading.exif && opened.orientation().transposed;
        let size = [opened.height, opened.width];
        Ok(if transposed { [size[1], size[0]] } else { size })
    }

    /// Draws the random choices for a picture of `height × width` pixels. The generator is usually
    /// that of the sample, [`Context::rng`](slotline::dataset::Context::rng).
    ///
    /// # Errors
    ///
    /// Fails if the picture is too small for a transform.
    pub fn draw(&self, rng: &mut impl Rng, height: usize, width: usize) -> Result<Draw, ImageError> {
        let mut random = || rng.next_u64();
        Ok(self.draw_with(&mut Random(&mut random), [height, width])?.0)
    }

    /// Draws the steps for a picture of this size. Returns them, and the plan for carrying them
    /// out.
    fn draw_with(&self, random: &mut Random<'_>, size: [usize; 2]) -> Result<(Draw, Plan), ImageError> {
        let mut draw = Draw::new(size[0], size[1], []);
        let mut plan = Plan::of(size, self.reading.exact)?;
        for transform in &self.transforms {
            let transform = transform.apply();
            let step = transform.draw(random, plan.size())?;
            transform.plan(&step, &mut plan)?;
            draw.steps.push(step);
        }
        Ok((draw, plan))
    }

    /// Returns the plan for a picture of this size.
    pub(crate) fn plan(&self, choice: Choice<'_>, size: [usize; 2]) -> Result<Plan, ImageError> {
        match choice {
            Choice::Draw(draw) => self.plan_of(draw, size),
            Choice::Seed(seed) => {
                let mut rng = seed.rng();
                Ok(self.draw_with(&mut Random(&mut || rng.next_u64()), size)?.1)
            }
            Choice::None if self.is_random() => Err(ImageError::draw(
                "the pipeline is random, and the picture has no random numbers; give it those of the sample: \
                 `Image::new(bytes, &pipeline).random(cx.rng())`",
            )),
            Choice::None => Ok(self.draw_with(&mut Random(&mut || 0), size)?.1),
        }
    }

    /// Returns the plan for carrying out the drawn steps on a picture of this size.
    fn plan_of(&self, draw: &Draw, size: [usize; 2]) -> Result<Plan, ImageError> {
        if draw.size != size {
            let [[h, w], [height, width]] = [draw.size, size];
            return Err(ImageError::draw(format!("it is for {h} × {w} pixels, the picture has {height} × {width}")));
        }
        if draw.steps.len() != self.transforms.len() {
            let (steps, transforms) = (draw.steps.len(), self.transforms.len());
            return Err(ImageError::draw(format!("{steps} steps for {transforms} transforms")));
        }
        let mut plan = Plan::of(size, self.reading.exact)?;
        for (transform, step) in self.transforms.iter().zip(&draw.steps) {
            transform.apply().plan(step, &mut plan)?;
        }
        Ok(plan)
    }

    /// Decodes the picture in `bytes` into `out`, in C order of its [`shape`](Self::shape), with a
    /// pipeline that is not random.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a complete, undamaged picture, or if the picture is too large;
    /// see [`ImageError`]. `out` may then be partially overwritten.
    ///
    /// # Panics
    ///
    /// Panics if the length of `out` does not match the shape.
    pub fn decode(&self, bytes: &[u8], out: &mut [T]) -> Result<(), ImageError> {
        self.run(Job { bytes, choice: Choice::None, check: true }, out)
    }

    /// Decodes the picture in `bytes` into `out`, with the steps of a [`Draw`] for its size.
    ///
    /// # Errors
    ///
    /// The errors of [`decode`](Self::decode). Also fails if the draw does not fit the pipeline or
    /// the picture.
    ///
    /// # Panics
    ///
    /// Panics if the length of `out` does not match the shape.
    ///
    /// ```
    /// use slotline_image::Pipeline;
    /// use slotline_image::transform::RandomCrop;
    ///
    /// # let bytes = include_bytes!("../tests/pictures/rgb.png");
    /// let pipeline: Pipeline<u8> = Pipeline::builder().then(RandomCrop::new(16)).build()?;
    /// let [height, width] = pipeline.size_of(bytes)?;
    /// let draw = pipeline.draw(&mut slotline::rng::SampleRng::new(42, 0, 0), height, width)?;
    /// let mut pixels = vec![0; 3 * 16 * 16];
    /// pipeline.decode_with(bytes, &draw, &mut pixels)?;
    /// # Ok::<(), slotline_image::ImageError>(())
    /// ```
    pub fn decode_with(&self, bytes: &[u8], draw: &Draw, out: &mut [T]) -> Result<(), ImageError> {
        self.run(Job { bytes, choice: Choice::Draw(draw), check: true }, out)
    }

    /// Decodes the picture in `bytes` into `out`, with random numbers generated from `seed`. The
    /// result is the same as that of an [`Image`](crate::Image) with this
    /// [seed](crate::Image::random).
    ///
    /// # Errors
    ///
    /// The errors of [`decode`](Self::decode). Also fails if the picture is too small for a
    /// transform.
    ///
    /// # Panics
    ///
    /// Panics if the length of `out` does not match the shape.
    pub fn decode_seeded(&self, bytes: &[u8], seed: Seed, out: &mut [T]) -> Result<(), ImageError> {
        self.run(Job { bytes, choice: Choice::Seed(seed), check: true }, out)
    }

    pub(crate) fn run(&self, job: Job<'_>, out: &mut [T]) -> Result<(), ImageError> {
        let [height, width] = self.size;
        assert_eq!(out.len(), 3 * height * width, "a picture has shape {:?}", self.shape());
        T::run(self, job, out)
    }

    #[inline(always)]
    pub(crate) fn run_here(&self, job: Job<'_>, out: &mut [T]) -> Result<(), ImageError> {
        let mut opened = OpenedImage::new(job.bytes, self.limits())?;
        let orientation = if self.reading.exif { opened.orientation() } else { Default::default() };
        let stored = [opened.height, opened.width];
        let size = if orientation.transposed { [stored[1], stored[0]] } else { stored };
        let plan = self.plan(job.choice, size)?;
        plan.check_sizes(size, self.max_pixels)?;
        let Reading { reduced, check, .. } = self.reading;
        let check = check && job.check;
        let warned = match self.exact {
            Some(normalize) => scratch::run_exact(opened, orientation, &plan, check, normalize, self.layout, out)?,
            None => scratch::run(opened, orientation, &plan, [reduced, check], &self.channels, self.layout, out)?,
        };
        if warned && check {
            self.warned.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Creates the error of a transform that masks and boxes cannot have.
fn not_followed(transform: &'static str) -> ImageError {
    let message = "cannot follow its shears and rotations; use another transform for pictures that have them";
    ImageError::parameter(transform, "masks and boxes", message)
}
