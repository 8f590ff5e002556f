//! Photographs as JPEGs in memory, and the usual pipeline that decodes, resizes and normalises them.

use std::cell::RefCell;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Result, ensure};
use fast_image_resize::images::Image;
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use slotline::dataset::{Context, Dataset};
use slotline::{BoxError, Loader};
use slotline_image::Pipeline;
use turbojpeg::{Compressor, Decompressor, PixelFormat, Subsamp};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

use super::images::sum;
use super::{Plan, Source};
use crate::peer::ours;
use crate::rounds::Contender;

/// The width and height of a resized photograph.
const SIDE: usize = 224;
const PLANE: usize = SIDE * SIDE;
/// The number of elements of a resized photograph.
pub const ELEMENTS: usize = 3 * PLANE;

const COUNT: usize = 512;
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// The decoder of the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// libjpeg-turbo.
    Turbo,
    /// zune-jpeg.
    Zune,
}

/// The photographs. The label of photograph i is i.
#[derive(Clone, Copy, Debug)]
pub struct Photos {
    files: &'static [Vec<u8>],
    decoder: Decoder,
}

impl Photos {
    /// Returns the photographs, and makes them on the first call.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be compressed.
    pub fn new(decoder: Decoder) -> Result<Self> {
        static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        if FILES.get().is_none() {
            // If another thread was faster, its photographs are the same.
            let _ = FILES.set(make()?);
        }
        Ok(Self { files: FILES.get().expect("set above"), decoder })
    }

    /// Writes the photographs into a folder, as files whose names sort in the same order.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        for (i, file) in self.files.iter().enumerate() {
            std::fs::write(folder.join(format!("{i:03}.jpg")), file)?;
        }
        Ok(())
    }

    /// Returns slotline's contender.
    ///
    /// # Errors
    ///
    /// Returns an error if its loader fails.
    pub fn ours(self, plan: &Plan) -> Result<impl Contender + use<>> {
        let pipeline = Pipeline::new(SIDE, SIDE)?.normalize(MEAN, STD)?;
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
    ///
    /// # Errors
    ///
    /// Returns an error if one differs by more than about one level of brightness in the mean.
    pub fn compare(&self, images: &[f32], labels: &[i64]) -> Result<()> {
        ensure!(images.len() == labels.len() * ELEMENTS, "{} numbers for {} labels", images.len(), labels.len());
        let mut expected = vec![0.0; ELEMENTS];
        for (image, &label) in images.chunks_exact(ELEMENTS).zip(labels) {
            ensure!((0..self.files.len() as i64).contains(&label), "invalid label {label}");
            normalise(&resized(Decoder::Turbo, &self.files[label as usize]), &mut expected);
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
        (resized(self.decoder, &self.files[index]), index as i64)
    }

    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch {
        let (mut images, mut labels) = (vec![0.0; items.len() * ELEMENTS], Vec::with_capacity(items.len()));
        for ((pixels, label), image) in items.zip(images.chunks_exact_mut(ELEMENTS)) {
            normalise(&pixels, image);
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

/// The state that a thread keeps for the usual pipeline.
struct Tools {
    turbo: Decompressor,
    resizer: Resizer,
    pixels: Vec<u8>,
}

thread_local! {
    static TOOLS: RefCell<Tools> = RefCell::new(Tools {
        turbo: Decompressor::new().expect("libjpeg-turbo can allocate memory"),
        resizer: Resizer::new(),
        pixels: Vec::new(),
    });
}

/// Decodes a whole photograph to RGB bytes and resizes it.
fn resized(decoder: Decoder, jpeg: &[u8]) -> Vec<u8> {
    TOOLS.with_borrow_mut(|tools| {
        let header = tools.turbo.read_header(jpeg).expect("a valid JPEG");
        let (width, height) = (header.width, header.height);
        match decoder {
            Decoder::Turbo => {
                tools.pixels.resize(width * height * 3, 0);
                let pixels = &mut tools.pixels[..];
                let image = turbojpeg::Image { pixels, width, pitch: width * 3, height, format: PixelFormat::RGB };
                tools.turbo.decompress(jpeg, image).expect("a valid JPEG");
            }
            Decoder::Zune => tools.pixels = JpegDecoder::new(ZCursor::new(jpeg)).decode().expect("a valid JPEG"),
        }
        let source = Image::from_slice_u8(width as u32, height as u32, &mut tools.pixels, PixelType::U8x3);
        let mut resized = Image::new(SIDE as u32, SIDE as u32, PixelType::U8x3);
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        tools.resizer.resize(&source.expect("as many bytes"), &mut resized, &options).expect("the same type");
        resized.into_vec()
    })
}

/// Normalises interleaved RGB bytes into planar floats.
pub fn normalise(pixels: &[u8], out: &mut [f32]) {
    let factors: [f32; 3] = std::array::from_fn(|i| 1.0 / (255.0 * STD[i]));
    let offsets: [f32; 3] = std::array::from_fn(|i| -MEAN[i] / STD[i]);
    let (red, rest) = out.split_at_mut(PLANE);
    let (green, blue) = rest.split_at_mut(PLANE);
    let planes = red.iter_mut().zip(green).zip(blue);
    for (pixel, ((red, green), blue)) in pixels.as_chunks::<3>().0.iter().zip(planes) {
        *red = f32::from(pixel[0]) * factors[0] + offsets[0];
        *green = f32::from(pixel[1]) * factors[1] + offsets[1];
        *blue = f32::from(pixel[2]) * factors[2] + offsets[2];
    }
}

/// Makes the photographs: windows of a few scenes, compressed as by cameras and web sites, with a quality of 85 to 90 and
/// colours at half the resolution. Their mean size is about 40 KB.
fn make() -> Result<Vec<Vec<u8>>> {
    const WINDOWS: usize = 32;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut compressor = Compressor::new()?;
    compressor.set_subsamp(Subsamp::Sub2x2)?;
    let mut files = Vec::with_capacity(COUNT);
    for seed in 0..COUNT / WINDOWS {
        let scene = Scene::new(seed as u64);
        for i in 0..WINDOWS {
            let (long, short) = (500 - rng.usize(..20), 375 - rng.usize(..15));
            let (width, height) = if i % 4 == 3 { (short, long) } else { (long, short) };
            let (x, y) = (rng.usize(..Scene::SIDE - width), rng.usize(..Scene::SIDE - height));
            let (pixels, pitch) = (&scene.pixels[(y * Scene::SIDE + x) * 3..], Scene::SIDE * 3);
            compressor.set_quality(rng.i32(85..=90))?;
            let image = turbojpeg::Image { pixels, width, pitch, height, format: PixelFormat::RGB };
            files.push(compressor.compress_to_vec(image)?);
        }
    }
    Ok(files)
}

/// A picture with detail at all scales, fainter at finer scales, as in photographs.
struct Scene {
    pixels: Vec<u8>,
}

impl Scene {
    const SIDE: usize = 640;

    fn new(seed: u64) -> Self {
        let mut levels = vec![[128.0_f32; 3]; Self::SIDE * Self::SIDE];
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut strength = 150.0;
        for step in [128, 64, 32, 16, 8, 4, 2, 1] {
            let points = Self::SIDE / step + 2;
            // Shapes are mostly grey.
            let grid: Vec<[f32; 3]> = (0..points * points)
                .map(|_| {
                    let grey = rng.f32() - 0.5;
                    std::array::from_fn(|_| (grey + 0.4 * (rng.f32() - 0.5)) * strength)
                })
                .collect();
            for (i, level) in levels.iter_mut().enumerate() {
                let (y, x) = (i / Self::SIDE, i % Self::SIDE);
                let at = y / step * points + x / step;
                let (v, u) = ((y % step) as f32 / step as f32, (x % step) as f32 / step as f32);
                for (channel, level) in level.iter_mut().enumerate() {
                    let [a, b, c, d] = [at, at + 1, at + points, at + points + 1].map(|at| grid[at][channel]);
                    *level += (a * (1.0 - u) + b * u) * (1.0 - v) + (c * (1.0 - u) + d * u) * v;
                }
            }
            strength *= 0.672;
        }
        Self { pixels: levels.as_flattened().iter().map(|&level| level as u8).collect() }
    }
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
