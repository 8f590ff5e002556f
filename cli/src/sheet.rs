//! `inspect --sheet`: many pictures in one image, to check what a training loop gets.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use slotline::Loader;
use slotline::dataset::Dataset;
use slotline_image::transform::Normalize;
use slotline_sources::pictures::Pictures;

/// Pixels between pictures, and around all of them.
const GAP: usize = 4;

/// The largest side of a sheet, in pixels.
const LARGEST: usize = 32_768;

/// The command-line flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Contact sheet")]
pub(crate) struct SheetOptions {
    /// Write the pictures that a training loop would see first to FILE, as a PNG: after the transforms, but not normalised
    #[arg(long, value_name = "FILE", requires = "image")]
    pub(crate) sheet: Option<PathBuf>,

    /// Number of pictures in the sheet
    #[arg(long, value_name = "N", default_value_t = 64, requires = "sheet")]
    sheet_pictures: usize,

    /// Draw the pictures of the sheet at random, instead of the first ones
    #[arg(long, requires = "sheet")]
    shuffle: bool,

    /// Seed for the order and the transforms of the sheet, as for `feed`
    #[arg(long, value_name = "N", default_value_t = 42, requires = "sheet")]
    seed: u64,

    /// Number of workers that decode the sheet's pictures; does not affect the result
    #[arg(long, value_name = "N", default_value_t = 0, requires = "sheet")]
    num_workers: usize,
}

impl SheetOptions {
    /// Writes the sheet from normalised pictures with the channels last. Returns the number of
    /// pictures.
    pub(crate) fn write(&self, path: &Path, pictures: Pictures, normalize: Normalize) -> Result<usize> {
        let ([height, width, _], field) = (pictures.pipeline().shape(), pictures.field());
        let count = self.sheet_pictures.min(pictures.len());
        if count == 0 {
            bail!("a sheet needs at least one picture: raise --sheet-pictures, or choose a SOURCE that has samples");
        }
        let mut sheet = Sheet::new(count, [height, width])?;
        let loader = Loader::builder(pictures).batch_size(sheet.columns).shuffle(self.shuffle).seed(self.seed);
        let mut loader = loader.num_workers(self.num_workers).build().context("cannot load the pictures")?;
        let mut pass = loader.epoch()?;
        let mut place = 0;
        while place < count {
            let batch = pass.next().context("the loader delivered too few pictures")?;
            let batch = batch.context("cannot load the pictures of the sheet")?;
            let column = batch.columns().get(field).context("a field without a column")?;
            let numbers = column.typed::<f32>().context("a field of pictures of f32")?;
            for picture in numbers.as_slice().chunks_exact(3 * height * width).take(count - place) {
                sheet.put(place, picture, normalize);
                place += 1;
            }
        }
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        sheet.save(file).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(count)
    }
}

/// A grid of pictures of one size.
struct Sheet {
    picture: [usize; 2],
    columns: usize,
    size: [usize; 2],
    /// Red, green and blue of each pixel.
    pixels: Vec<u8>,
}

impl Sheet {
    /// Creates an empty sheet, as square as possible.
    fn new(count: usize, [height, width]: [usize; 2]) -> Result<Self> {
        let side = |n: usize, side: usize| n * (side + GAP) + GAP;
        let square = ((count * (height + GAP)) as f64 / (width + GAP) as f64).sqrt().round() as usize;
        let columns = square.clamp(1, count);
        let size = [side(count.div_ceil(columns), height), side(columns, width)];
        if size.iter().any(|&side| side > LARGEST) {
            bail!(
                "a sheet of {count} pictures would have {} × {} pixels; a side may have {LARGEST}, so lower --sheet-pictures",
                size[0],
                size[1]
            );
        }
        Ok(Self { picture: [height, width], columns, size, pixels: vec![255; 3 * size[0] * size[1]] })
    }

    /// Copies a picture to its place, with the normalisation undone.
    fn put(&mut self, place: usize, picture: &[f32], Normalize { mean, std }: Normalize) {
        let [height, width] = self.picture;
        let (top, left) = (place / self.columns * (height + GAP) + GAP, place % self.columns * (width + GAP) + GAP);
        for (i, row) in picture.chunks_exact(3 * width).enumerate() {
            let start = 3 * ((top + i) * self.size[1] + left);
            for (i, (pixel, number)) in self.pixels[start..].iter_mut().zip(row).enumerate() {
                *pixel = ((number * std[i % 3] + mean[i % 3]) * 255.0).round() as u8;
            }
        }
    }

    fn save(&self, file: File) -> Result<()> {
        let [height, width] = self.size.map(|side| side as u32);
        let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_places_in_rows() {
        let mut sheet = Sheet::new(5, [2, 3]).unwrap();
        let [rows, columns] = [5_usize.div_ceil(sheet.columns), sheet.columns];
        assert_eq!(sheet.size, [rows * 6 + 4, columns * 7 + 4]);
        sheet.put(4, &[-1.0; 18], Normalize::new([0.5; 3], [0.25; 3]));
        let (top, left) = (4 / columns * 6 + 4, 4 % columns * 7 + 4);
        for (i, pixel) in sheet.pixels.chunks(3).enumerate() {
            let (y, x) = (i / sheet.size[1], i % sheet.size[1]);
            let inside = (top..top + 2).contains(&y) && (left..left + 3).contains(&x);
            assert_eq!(pixel[0], if inside { 64 } else { 255 }, "{y} {x}");
        }
        assert_eq!(Sheet::new(1, [9, 9]).unwrap().columns, 1);
        assert_eq!(Sheet::new(3, [1, 1000]).unwrap().columns, 1);
        assert_eq!(Sheet::new(3, [1000, 1]).unwrap().columns, 3);
        assert!(Sheet::new(100, [5_000, 5_000]).is_err());
    }
}
