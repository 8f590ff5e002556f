//! Generated scenes, from which pictures are cut.

use anyhow::Result;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

/// A picture with detail at all scales, which is fainter at finer scales, as in photographs.
#[derive(Debug)]
pub struct Scene {
    side: usize,
    /// The pixels as RGB bytes.
    pixels: Vec<u8>,
}

impl Scene {
    /// Makes a scene of `side × side` pixels.
    pub fn new(seed: u64, side: usize) -> Self {
        let mut levels = vec![[128.0_f32; 3]; side * side];
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut strength = 150.0;
        for step in [128, 64, 32, 16, 8, 4, 2, 1] {
            let points = side / step + 2;
            // Makes most shapes grey.
            let grid: Vec<[f32; 3]> = (0..points * points)
                .map(|_| {
                    let grey = rng.f32() - 0.5;
                    std::array::from_fn(|_| (grey + 0.4 * (rng.f32() - 0.5)) * strength)
                })
                .collect();
            for (i, level) in levels.iter_mut().enumerate() {
                let (y, x) = (i / side, i % side);
                let at = y / step * points + x / step;
                let (v, u) = ((y % step) as f32 / step as f32, (x % step) as f32 / step as f32);
                for (channel, level) in level.iter_mut().enumerate() {
                    let [a, b, c, d] = [at, at + 1, at + points, at + points + 1].map(|at| grid[at][channel]);
                    *level += (a * (1.0 - u) + b * u) * (1.0 - v) + (c * (1.0 - u) + d * u) * v;
                }
            }
            strength *= 0.672;
        }
        Self { side, pixels: levels.as_flattened().iter().map(|&level| level as u8).collect() }
    }
    /// Makes a scene of `side × side` pixels from a photograph of `height × width` pixels, which is
    /// continued by mirror images in all directions.
    pub fn of(photograph: &[u8], [height, width]: [usize; 2], side: usize) -> Self {
        let mirror = |x: usize, len: usize| if (x / len).is_multiple_of(2) { x % len } else { len - 1 - x % len };
        let mut pixels = Vec::with_capacity(side * side * 3);
        for y in 0..side {
            let row = &photograph[mirror(y, height) * width * 3..][..width * 3];
            (0..side).for_each(|x| pixels.extend_from_slice(&row[mirror(x, width) * 3..][..3]));
        }
        Self { side, pixels }
    }

    /// Compresses the window with the upper left corner at column `x` and row `y` as a JPEG.
    pub fn jpeg(
        &self,
        [x, y]: [usize; 2],
        [width, height]: [usize; 2],
        quality: i32,
        compressor: &mut Compressor,
    ) -> Result<Vec<u8>> {
        let (pixels, pitch) = (&self.pixels[(y * self.side + x) * 3..], self.side * 3);
        compressor.set_quality(quality)?;
        Ok(compressor.compress_to_vec(Image { pixels, width, pitch, height, format: PixelFormat::RGB })?)
    }

    /// Compresses the window with the upper left corner at column `x` and row `y` as a PNG.
    pub fn png(&self, [x, y]: [usize; 2], [width, height]: [usize; 2]) -> Result<Vec<u8>> {
        let rows = (y..y + height).map(|y| &self.pixels[(y * self.side + x) * 3..][..width * 3]);
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header()?.write_image_data(&rows.collect::<Vec<_>>().concat())?;
        Ok(file)
    }
}

/// Returns a compressor with colours at half the resolution, as cameras and web sites use.
pub fn compressor() -> Result<Compressor> {
    let mut compressor = Compressor::new()?;
    compressor.set_subsamp(Subsamp::Sub2x2)?;
    Ok(compressor)
}
