//! The source of `jpegs`, `jpeg-crops`, `pngs` and `rand-augment`: pictures in memory, which are
//! decoded, transformed and normalised.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, ensure};
use slotline::BoxError;
use slotline::dataset::{Context, Dataset};
use slotline::loader::BatchOf;
use slotline::rng::SampleRng;
use slotline_image::transform::{Normalize, RandAugment, RandomHorizontalFlip, RandomResizedCrop, Resize};
use slotline_image::{Draw, Pipeline, Seed, Step};

use super::by_hand::{self, Decoder, ELEMENTS, SIDE, Steps, normalise, resized};
use super::scenes::{Scene, compressor};
use super::{Source, sum};

/// The properties of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workload {
    name: &'static str,
    /// The number of pictures.
    count: usize,
    /// The largest width and height of the pictures.
    size: [usize; 2],
    decoder: Decoder,
    transforms: Transforms,
}

/// The transforms of a picture before it is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transforms {
    /// The whole picture is resized.
    Resize,
    /// RandomResizedCrop and RandomHorizontalFlip.
    Crop,
    /// RandomResizedCrop, RandomHorizontalFlip and RandAugment.
    Augment,
}

const LARGE: [usize; 2] = [2_000, 1_500];
const JPEGS: Workload =
    Workload { name: "jpegs", count: 512, size: [500, 375], decoder: Decoder::Turbo, transforms: Transforms::Resize };
const WORKLOADS: [Workload; 4] = [
    Workload { name: "jpeg-crops-small", transforms: Transforms::Crop, ..JPEGS },
    Workload { name: "jpeg-crops-large", count: 64, size: LARGE, transforms: Transforms::Crop, ..JPEGS },
    Workload { name: "pngs", count: 128, decoder: Decoder::Png, ..JPEGS },
    Workload { name: "rand-augment", transforms: Transforms::Augment, ..JPEGS },
];

/// The pictures of a workload. The label of picture i is i.
#[derive(Clone, Debug)]
pub struct Pictures {
    workload: Workload,
    files: Arc<[Vec<u8>]>,
    /// The pipeline that draws the crops and flips of the peers, and with which their results are
    /// checked.
    drawn: Pipeline,
    /// The pipeline of slotline as a contender.
    pipeline: Pipeline,
}

impl Pictures {
    /// Returns the pictures of `jpegs`, which peers decode with `decoder`. The pictures are made
    /// only once.
    pub fn jpegs(decoder: Decoder) -> Result<Self> {
        static MADE: OnceLock<Pictures> = OnceLock::new();
        if MADE.get().is_none() {
            let _ = MADE.set(Self::make(JPEGS, None)?);
        }
        let made = MADE.get().expect("set above").clone();
        Ok(Self { workload: Workload { decoder, ..JPEGS }, ..made })
    }

    /// Makes the pictures of `jpeg-crops-small`, `jpeg-crops-large`, `pngs` or `rand-augment`. They
    /// are windows of the photographs in a folder, or else of generated scenes.
    pub fn new(name: &str, photographs: Option<&Path>) -> Result<Self> {
        let workload = WORKLOADS.into_iter().find(|workload| workload.name == name);
        Self::make(workload.with_context(|| format!("{name} has no pictures"))?, photographs)
    }

    /// Makes the pictures of a workload. Their sides are up to 4 % smaller than the largest ones,
    /// and every fourth picture is higher than wide. JPEGs have a quality of 85 to 90.
    fn make(workload: Workload, photographs: Option<&Path>) -> Result<Self> {
        let [long, short] = workload.size;
        let side = long + 100;
        let scenes = photographs.map_or_else(|| Ok(Vec::new()), read)?;
        let generated = if side > 1_000 { 4 } else { 16 };
        let sources = if scenes.is_empty() { generated } else { scenes.len() };
        let (mut rng, mut compressor) = (fastrand::Rng::with_seed(7), compressor()?);
        let mut files = vec![Vec::new(); workload.count];
        for source in 0..sources {
            let scene = match scenes.get(source) {
                Some((pixels, size)) => Scene::of(pixels, *size, side),
                None => Scene::new(source as u64, side),
            };
            // Neighbours in a batch are cut from different scenes.
            for i in (source..workload.count).step_by(sources) {
                let mut size = [long - rng.usize(..long / 25), short - rng.usize(..short / 25)];
                if i % 4 == 3 {
                    size.reverse();
                }
                let at = size.map(|length| rng.usize(..side - length));
                files[i] = match workload.decoder {
                    Decoder::Png => scene.png(at, size)?,
                    _ => scene.jpeg(at, size, rng.i32(85..=90), &mut compressor)?,
                };
            }
        }
        let drawn = match workload.transforms {
            Transforms::Augment => Transforms::Crop,
            transforms => transforms,
        };
        let (drawn, pipeline) = (pipeline(drawn)?, pipeline(workload.transforms)?);
        Ok(Self { workload, files: files.into(), drawn, pipeline })
    }

    /// Writes the pictures into a folder, as files whose names sort in the same order.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let extension = if self.workload.decoder == Decoder::Png { "png" } else { "jpg" };
        for (i, file) in self.files.iter().enumerate() {
            std::fs::write(folder.join(format!("{i:03}.{extension}")), file)?;
        }
        Ok(())
    }

    /// Returns the same pictures, with a pipeline that decodes and resizes whole pictures.
    pub fn whole(&self) -> Result<Self> {
        Ok(Self { pipeline: pipeline(Transforms::Resize)?, ..self.clone() })
    }

    /// Returns the same pictures, with a pipeline that decodes JPEGs at a reduced size where that
    /// is sufficient.
    #[must_use]
    pub fn reduced(&self) -> Self {
        Self { pipeline: self.pipeline.clone().reduced(true), ..self.clone() }
    }

    fn file(&self, label: i64) -> Result<&[u8]> {
        let file = usize::try_from(label).ok().and_then(|label| self.files.get(label));
        file.map(Vec::as_slice).with_context(|| format!("invalid label {label}"))
    }

    /// Compares an image with the picture of its label, processed with these steps by a program
    /// without slotline.
    fn compare(&self, image: &[f32], label: i64, steps: Steps) -> Result<()> {
        if self.workload.transforms == Transforms::Augment {
            // The range of normalised values of bytes from 0 to 255.
            let inside = image.iter().all(|number| (-2.2..2.7).contains(number));
            ensure!(inside && image.len() == ELEMENTS, "image {label} has wrong pixels");
            return Ok(());
        }
        let mut expected = vec![0.0; ELEMENTS];
        let pixels = resized(self.workload.decoder, self.file(label)?, steps);
        normalise(&pixels, steps.flip, &mut expected);
        self.near(image, &expected, label)
    }

    fn near(&self, image: &[f32], expected: &[f32], label: i64) -> Result<()> {
        let difference: f32 = image.iter().zip(expected).map(|(a, b)| (a - b).abs()).sum();
        let difference = difference / ELEMENTS as f32;
        // Differences are about 2 levels of brightness, as colours are interpolated once or twice.
        // They are larger for large pictures, which slotline decodes at half their size. A wrong
        // crop would differ by ten times as much.
        let most = match self.workload {
            Workload { name: "jpegs", .. } => 0.02,
            Workload { size: LARGE, .. } => 0.1,
            _ => 0.04,
        };
        ensure!(difference < most, "image {label} has wrong pixels: they differ by {difference}");
        Ok(())
    }
}

/// Returns the pipeline for these transforms.
fn pipeline(transforms: Transforms) -> Result<Pipeline> {
    let crop = || Pipeline::builder().then(RandomResizedCrop::new(SIDE)).then(RandomHorizontalFlip::new(0.5));
    let builder = match transforms {
        Transforms::Resize => Pipeline::builder().then(Resize::new([SIDE, SIDE])),
        Transforms::Crop => crop(),
        Transforms::Augment => crop().then(RandAugment::default()),
    };
    Ok(builder.then(Normalize::imagenet()).build()?)
}

/// Returns the crop and the flip among the steps that a pipeline drew for a picture.
fn steps(drawn: &[Step]) -> Steps {
    let mut steps = Steps::default();
    for step in drawn {
        match *step {
            Step::Crop { top, left, height, width } => steps.crop = Some([top, left, height, width]),
            Step::Apply(flip) => steps.flip = flip,
            _ => {}
        }
    }
    steps
}

/// RGB pixels, and their height and width.
type Photograph = (Vec<u8>, [usize; 2]);

/// Reads the photographs of a folder, sorted by their names.
fn read(folder: &Path) -> Result<Vec<Photograph>> {
    let named = || format!("cannot read the photographs in {}", folder.display());
    let entries = std::fs::read_dir(folder).with_context(named)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    let photographs = paths.iter().map(|path| {
        let file = std::fs::read(path)?;
        let [height, width] = Pipeline::<u8>::bytes(1, 1)?.size_of(&file)?;
        let pipeline = Pipeline::<u8>::bytes(height, width)?.channels_last(true);
        let mut pixels = vec![0; height * width * 3];
        pipeline.decode(&file, &mut pixels).with_context(|| format!("cannot decode {}", path.display()))?;
        Ok((pixels, [height, width]))
    });
    let photographs: Vec<Photograph> = photographs.collect::<Result<_>>().with_context(named)?;
    ensure!(!photographs.is_empty(), "{} has no photographs", folder.display());
    Ok(photographs)
}

impl Source for Pictures {
    /// The RGB bytes at the target size, the steps, and the label.
    type Item = (Vec<u8>, Steps, i64);
    type Batch = (Vec<f32>, Vec<i64>, Vec<Steps>);
    type Data = Files;

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Self::Item {
        let file = &self.files[index];
        let steps = match self.workload.transforms {
            Transforms::Resize => Steps::default(),
            _ => {
                let [height, width] = by_hand::size(self.workload.decoder, file);
                let mut rng = SampleRng::new(fastrand::u64(..), 0, 0);
                steps(self.drawn.draw(&mut rng, height, width).expect("a crop of any picture").steps())
            }
        };
        (resized(self.workload.decoder, file, steps), steps, index as i64)
    }

    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch {
        let mut batch = (vec![0.0; items.len() * ELEMENTS], Vec::new(), Vec::new());
        for ((pixels, steps, label), image) in items.zip(batch.0.chunks_exact_mut(ELEMENTS)) {
            normalise(&pixels, steps.flip, image);
            batch.1.push(label);
            batch.2.push(steps);
        }
        batch
    }

    fn check(&self, (_, labels, _): &Self::Batch) -> u64 {
        sum(labels)
    }

    /// Compares the batch with slotline's pixels for the same steps.
    fn verify(&self, (images, labels, all_steps): &Self::Batch) -> Result<()> {
        ensure!(images.len() == labels.len() * ELEMENTS, "{} numbers for {} labels", images.len(), labels.len());
        for ((image, &label), &steps) in images.chunks_exact(ELEMENTS).zip(labels).zip(all_steps) {
            let (file, mut expected) = (self.file(label)?, vec![0.0; ELEMENTS]);
            let [height, width] = self.drawn.size_of(file)?;
            let [top, left, rows, columns] = steps.crop.unwrap_or([0, 0, height, width]);
            let drawn = match self.workload.transforms {
                Transforms::Resize => vec![Step::Fixed; 2],
                _ => vec![Step::Crop { top, left, height: rows, width: columns }, Step::Apply(steps.flip), Step::Fixed],
            };
            self.drawn.decode_with(file, &Draw::new(height, width, drawn), &mut expected)?;
            self.near(image, &expected, label)?;
        }
        Ok(())
    }

    fn dataset(&self) -> Files {
        // With the transforms of training, files are not checked to their end, as after the first
        // pass of a training.
        Files { files: self.files.clone(), pipeline: self.pipeline.clone(), check: self.workload.name == "jpegs" }
    }

    fn check_ours(&self, batch: &BatchOf<Files>) -> u64 {
        sum(batch.tensors().1.as_slice())
    }

    fn verify_ours(&self, batch: &BatchOf<Files>) -> Result<()> {
        let (images, labels, seeds) = batch.tensors();
        let samples = images.as_slice().chunks_exact(ELEMENTS).zip(labels.as_slice()).zip(seeds.as_slice());
        ensure!(samples.len() == batch.len(), "{} pictures for {} labels", samples.len(), batch.len());
        for ((image, &label), &seed) in samples {
            let [height, width] = self.pipeline.size_of(self.file(label)?)?;
            let draw = self.pipeline.draw(&mut SampleRng::new(seed as u64, 0, 0), height, width)?;
            self.compare(image, label, steps(draw.steps()))?;
        }
        Ok(())
    }
}

/// slotline's dataset of the pictures. A sample also has the seed of its random choices.
#[derive(Clone, Debug)]
pub struct Files {
    files: Arc<[Vec<u8>]>,
    pipeline: Pipeline,
    check: bool,
}

impl Dataset for Files {
    type Sample<'a> = (slotline_image::Image<'a>, i64, i64);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let seed = Seed::from(cx.rng());
        let image = slotline_image::Image::new(&self.files[index], &self.pipeline).random(seed).check(self.check);
        Ok((image, index as i64, seed.0 as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jpegs_have_the_documented_sizes_and_decoders_agree() {
        let [turbo, zune] = [Decoder::Turbo, Decoder::Zune].map(|decoder| Pictures::jpegs(decoder).unwrap());
        let sizes = || turbo.files.iter().map(Vec::len);
        let mean = sizes().sum::<usize>() / turbo.files.len();
        assert!(turbo.files.len() == 512 && (36_000..44_000).contains(&mean), "{mean}");
        assert!(sizes().all(|size| (28_000..60_000).contains(&size)), "{:?} to {:?}", sizes().min(), sizes().max());

        let (images, labels, steps) = zune.collate([3, 100].map(|index| zune.get(index)).into_iter());
        let compare = |image: usize, label| turbo.compare(&images[image * ELEMENTS..][..ELEMENTS], label, steps[image]);
        assert_eq!(labels, [3, 100]);
        compare(0, 3).unwrap();
        compare(1, 100).unwrap();
        assert!(compare(0, 100).is_err());
    }
}
