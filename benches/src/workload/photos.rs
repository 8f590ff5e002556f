//! jpegs' photographs: JPEGs in memory, which are decoded, resized and normalised.

use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Result, ensure};
use slotline::dataset::{Context, Dataset};
use slotline::{BoxError, Loader};
use slotline_image::Pipeline;

use super::by_hand::{Decoder, ELEMENTS, MEAN, SIDE, STD, Steps, normalise, resized};
use super::images::sum;
use super::scenes::{Scene, compressor};
use super::{Plan, Source};
use crate::peer::ours;
use crate::rounds::Contender;

const COUNT: usize = 512;
/// The side of a scene.
const SCENE: usize = 640;

/// The photographs. The label of photograph i is i.
#[derive(Clone, Copy, Debug)]
pub struct Photos {
    files: &'static [Vec<u8>],
    decoder: Decoder,
}

impl Photos {
    /// Returns the photographs, and makes them on the first call.
    pub fn new(decoder: Decoder) -> Result<Self> {
        static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        if FILES.get().is_none() {
            // If another thread was faster, its photographs are the same.
            let _ = FILES.set(make()?);
        }
        Ok(Self { files: FILES.get().expect("set above"), decoder })
    }

    /// Writes the photographs into a folder, as files whose names sort in the same order.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        for (i, file) in self.files.iter().enumerate() {
            std::fs::write(folder.join(format!("{i:03}.jpg")), file)?;
        }
        Ok(())
    }

    /// Returns slotline's contender, which may decode at a reduced size.
    pub fn ours(self, plan: &Plan, reduced: bool) -> Result<impl Contender + use<>> {
        let pipeline = Pipeline::new(SIDE, SIDE)?.normalize(MEAN, STD)?.reduced(reduced);
        ours::contender(
            Loader::builder(Files { files: self.files, pipeline })
                .batch_size(plan.batch_size)
                .num_workers(plan.workers)
                .build()?,
            (plan.batches(Source::len(&self)), self.total()),
            |batch| sum(batch.tensors().1.as_slice()),
            move |batch| {
                let (images, labels) = batch.tensors();
                self.compare(images.as_slice(), labels.as_slice())
            },
        )
    }

    /// Compares images with the photographs of their labels, processed by the usual pipeline.
    pub fn compare(&self, images: &[f32], labels: &[i64]) -> Result<()> {
        ensure!(images.len() == labels.len() * ELEMENTS, "{} numbers for {} labels", images.len(), labels.len());
        let mut expected = vec![0.0; ELEMENTS];
        for (image, &label) in images.chunks_exact(ELEMENTS).zip(labels) {
            ensure!((0..self.files.len() as i64).contains(&label), "invalid label {label}");
            let pixels = resized(Decoder::Turbo, &self.files[label as usize], Steps::default());
            normalise(&pixels, false, &mut expected);
            let difference: f32 = image.iter().zip(&expected).map(|(a, b)| (a - b).abs()).sum();
            ensure!(difference / (ELEMENTS as f32) < 0.02, "image {label} has wrong pixels");
        }
        Ok(())
    }
}

impl Source for Photos {
    /// The RGB bytes at the target size, and the label.
    type Item = (Vec<u8>, i64);
    type Batch = (Vec<f32>, Vec<i64>);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Self::Item {
        (resized(self.decoder, &self.files[index], Steps::default()), index as i64)
    }

    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch {
        let (mut images, mut labels) = (vec![0.0; items.len() * ELEMENTS], Vec::with_capacity(items.len()));
        for ((pixels, label), image) in items.zip(images.chunks_exact_mut(ELEMENTS)) {
            normalise(&pixels, false, image);
            labels.push(label);
        }
        (images, labels)
    }

    fn check((_, labels): &Self::Batch) -> u64 {
        sum(labels)
    }

    fn verify(&self, (images, labels): &Self::Batch) -> Result<()> {
        self.compare(images, labels)
    }

    fn total(&self) -> u64 {
        let len = self.files.len() as u64;
        len * (len - 1) / 2
    }
}

/// The photographs as slotline's dataset.
#[derive(Clone, Debug)]
pub struct Files {
    files: &'static [Vec<u8>],
    pipeline: Pipeline,
}

impl Dataset for Files {
    type Sample<'a> = (slotline_image::Image<'a>, i64);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        Ok((slotline_image::Image::new(&self.files[index], &self.pipeline), index as i64))
    }
}

/// Makes the photographs: windows of a few scenes. Their mean size is about 40 KB.
fn make() -> Result<Vec<Vec<u8>>> {
    const WINDOWS: usize = 32;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut compressor = compressor()?;
    let mut files = Vec::with_capacity(COUNT);
    for seed in 0..COUNT / WINDOWS {
        let scene = Scene::new(seed as u64, SCENE);
        for i in 0..WINDOWS {
            let (long, short) = (500 - rng.usize(..20), 375 - rng.usize(..15));
            let size = if i % 4 == 3 { [short, long] } else { [long, short] };
            let at = size.map(|side| rng.usize(..SCENE - side));
            files.push(scene.jpeg(at, size, rng.i32(85..=90), &mut compressor)?);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photographs_have_the_documented_sizes() {
        let photos = Photos::new(Decoder::Turbo).unwrap();
        assert_eq!(photos.files.len(), COUNT);
        let mean = photos.files.iter().map(Vec::len).sum::<usize>() / COUNT;
        assert!((36_000..44_000).contains(&mean), "{mean}");
        let sizes = || photos.files.iter().map(Vec::len);
        assert!(sizes().all(|size| (28_000..60_000).contains(&size)), "{:?} to {:?}", sizes().min(), sizes().max());
    }

    #[test]
    fn decoders_agree_and_photographs_differ() {
        let [turbo, zune] = [Decoder::Turbo, Decoder::Zune].map(|decoder| Photos::new(decoder).unwrap());
        let (images, labels) = zune.collate([3, 100].map(|index| zune.get(index)).into_iter());
        turbo.compare(&images, &labels).unwrap();
        assert!(turbo.compare(&images, &[100, 3]).is_err());
    }
}
