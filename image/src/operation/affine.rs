//! Operations that move pixels: shear, translation and rotation.

use super::vector::vectorized;
use super::{Pixels, exact};

/// A movement of pixels. The size of the picture does not change.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Affine {
    /// Moves each row to the left, by this factor times its distance from the top.
    ShearX(f64),
    /// Moves each column up, by this factor times its distance from the left side.
    ShearY(f64),
    /// Moves all pixels to the right, by this number of pixels.
    TranslateX(i32),
    /// Moves all pixels down, by this number of pixels.
    TranslateY(i32),
    /// Rotates counter-clockwise around the centre, by this angle in degrees.
    Rotate(f64),
}

/// The method of computing values between pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest pixel (torchvision's default for these operations).
    #[default]
    Nearest,
    /// Linear interpolation between the four pixels around.
    Bilinear,
}

impl Affine {
    pub(super) fn is_finite(self) -> bool {
        match self {
            Self::ShearX(number) | Self::ShearY(number) | Self::Rotate(number) => number.is_finite(),
            Self::TranslateX(_) | Self::TranslateY(_) => true,
        }
    }

    /// Returns where a pixel of the result comes from: `[a, b, c]` for the column and for the row,
    /// each `a x + b y + c`, relative to the centre.
    fn inverse(self, [height, width]: [usize; 2]) -> [[f64; 3]; 2] {
        let (x, y) = (width as f64 / 2.0, height as f64 / 2.0);
        match self {
            Self::ShearX(by) => [[1.0, by, by * y], [0.0, 1.0, 0.0]],
            Self::ShearY(by) => [[1.0, 0.0, 0.0], [by, 1.0, by * x]],
            Self::TranslateX(by) => [[1.0, 0.0, -f64::from(by)], [0.0, 1.0, 0.0]],
            Self::TranslateY(by) => [[1.0, 0.0, 0.0], [0.0, 1.0, -f64::from(by)]],
            Self::Rotate(degrees) => {
                let (sin, cos) = degrees.to_radians().sin_cos();
                [[cos, -sin, 0.0], [sin, cos, 0.0]]
            }
        }
    }

    /// Returns the same coefficients as [`inverse`](Self::inverse), but relative to the top left
    /// corner, and computed as torchvision or, for rotations, Pillow does, with the same rounding.
    fn inverse_exact(self, [height, width]: [usize; 2]) -> exact::Lines {
        // torchvision converts the shear to an angle in degrees, and back.
        let angle = |shear: f64| shear.atan().to_degrees().to_radians();
        match self {
            Self::ShearX(by) => [[1.0, angle(by).tan(), 0.0], [0.0, 1.0, 0.0]],
            Self::ShearY(by) => [[1.0, 0.0, 0.0], [angle(by).sin() / angle(by).cos(), 1.0, 0.0]],
            Self::TranslateX(_) | Self::TranslateY(_) => self.inverse([height, width]),
            Self::Rotate(degrees) => {
                let angle = -degrees.rem_euclid(360.0).to_radians();
                let [sin, cos] = [angle.sin(), angle.cos()].map(exact::to_15_decimals);
                let (x, y) = (width as f64 / 2.0, height as f64 / 2.0);
                [[cos, sin, cos * -x + sin * -y + x], [-sin, cos, -sin * -x + cos * -y + y]]
            }
        }
    }
}

/// Moves the pixels.
pub(super) fn run(pixels: &mut Pixels<'_>, by: Affine, interpolation: Interpolation, fill: [u8; 3]) {
    let size = pixels.size;
    let lines = by.inverse(size).map(|line| line.map(|number| number as f32));
    replace(pixels, |from, to| match interpolation {
        Interpolation::Nearest => move_nearest(from, to, size, lines, fill),
        Interpolation::Bilinear => move_bilinear(from, to, size, lines, fill),
    });
}

/// Moves the pixels, with Pillow's exact results.
pub(super) fn run_exact(pixels: &mut Pixels<'_>, by: Affine, interpolation: Interpolation, fill: [u8; 3]) {
    let (size, area) = (pixels.size, pixels.area());
    let lines = by.inverse_exact(size);
    replace(pixels, |from, to| {
        to.chunks_exact_mut(area).zip(fill).for_each(|(plane, fill)| plane.fill(fill));
        match interpolation {
            Interpolation::Nearest => exact::nearest(from, to, size, lines),
            Interpolation::Bilinear => exact::bilinear(from, to, size, lines),
        }
    });
}

/// Replaces the planes by new ones that `make` computes from them.
fn replace(pixels: &mut Pixels<'_>, make: impl FnOnce(&[u8], &mut [u8])) {
    let len = 3 * pixels.area();
    pixels.other.clear();
    pixels.other.reserve_exact(pixels.planes.len());
    pixels.other.resize(pixels.planes.len(), 0);
    make(&pixels.planes[..len], &mut pixels.other[..len]);
    std::mem::swap(pixels.planes, pixels.other);
}

vectorized! {
    fn move_nearest(from: &[u8], to: &mut [u8], size: [usize; 2], lines: [[f32; 3]; 2], fill: [u8; 3]) {
        move_each(to, size, lines, |x, y| nearest(from, size, x, y, fill));
    }
}

vectorized! {
    fn move_bilinear(from: &[u8], to: &mut [u8], size: [usize; 2], lines: [[f32; 3]; 2], fill: [u8; 3]) {
        move_each(to, size, lines, |x, y| bilinear(from, size, x, y, fill));
    }
}

/// Sets each pixel of the result to the pixel at the column and the row that it comes from.
#[inline(always)]
fn move_each(
    to: &mut [u8],
    [height, width]: [usize; 2],
    [columns, rows]: [[f32; 3]; 2],
    pixel: impl Fn(f32, f32) -> [u8; 3],
) {
    let area = height * width;
    let (middle_x, middle_y) = ((width as f32 - 1.0) / 2.0, (height as f32 - 1.0) / 2.0);
    let (red, rest) = to.split_at_mut(area);
    let (green, blue) = rest.split_at_mut(area);
    let planes = red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
    for (y, ((red, green), blue)) in planes.enumerate() {
        let v = y as f32 - middle_y;
        let (start_x, start_y) = (columns[1] * v + columns[2] + middle_x, rows[1] * v + rows[2] + middle_y);
        for (x, ((red, green), blue)) in red.iter_mut().zip(green).zip(blue).enumerate() {
            let u = x as f32 - middle_x;
            [*red, *green, *blue] = pixel(columns[0] * u + start_x, rows[0] * u + start_y);
        }
    }
}

#[inline(always)]
fn nearest(planes: &[u8], [height, width]: [usize; 2], x: f32, y: f32, fill: [u8; 3]) -> [u8; 3] {
    // Ties are rounded to even, as in torch.
    let (x, y) = (x.round_ties_even(), y.round_ties_even());
    if !(x >= 0.0 && y >= 0.0 && x < width as f32 && y < height as f32) {
        return fill;
    }
    // In floats from 2²³ on, the lowest bits are an integer. (`as` would check the range again.)
    let [x, y] = [x, y].map(|at| ((at + 8_388_608.0).to_bits() & 0x7f_ffff) as usize);
    let at = y * width + x;
    let area = height * width;
    [planes[at], planes[area + at], planes[2 * area + at]]
}

/// Interpolates between the four pixels around a point, where pixels outside of the picture count
/// as black. Then mixes the result with the fill colour as torchvision does: by the weight of the
/// pixels that are inside, unless the colour is black.
#[inline(always)]
fn bilinear(planes: &[u8], [height, width]: [usize; 2], x: f32, y: f32, fill: [u8; 3]) -> [u8; 3] {
    let (left, top) = (x.floor(), y.floor());
    let (right, bottom) = (x - left, y - top);
    let weights = [(1.0 - right) * (1.0 - bottom), right * (1.0 - bottom), (1.0 - right) * bottom, right * bottom];
    let (left, top) = (left as i32, top as i32);
    let area = height * width;
    let (mut sums, mut inside) = ([0.0_f32; 3], 0.0);
    for (i, weight) in weights.into_iter().enumerate() {
        let (right, below) = (i as i32 & 1, i as i32 >> 1);
        let (x, y) = (left.saturating_add(right) as u32 as usize, top.saturating_add(below) as u32 as usize);
        if x < width && y < height {
            inside += weight;
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum += f32::from(planes[c * area + y * width + x]) * weight;
            }
        }
    }
    if fill != [0; 3] {
        for (sum, fill) in sums.iter_mut().zip(fill.map(f32::from)) {
            *sum = (*sum - fill) * inside + fill;
        }
    }
    sums.map(|sum| sum.round_ties_even() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(by: Affine, interpolation: Interpolation) -> Vec<u8> {
        let mut planes: Vec<u8> = (0..3 * 12).collect();
        let (mut other, mut numbers) = (Vec::new(), Vec::new());
        let mut pixels = Pixels { planes: &mut planes, other: &mut other, numbers: &mut numbers, size: [3, 4] };
        run(&mut pixels, by, interpolation, [99; 3]);
        planes[..12].to_vec()
    }

    #[test]
    fn pixels_move_and_what_comes_from_outside_is_filled() {
        for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
            let moved = |by| moved(by, interpolation);
            assert_eq!(moved(Affine::TranslateX(1)), [99, 0, 1, 2, 99, 4, 5, 6, 99, 8, 9, 10]);
            assert_eq!(moved(Affine::TranslateY(-1)), [4, 5, 6, 7, 8, 9, 10, 11, 99, 99, 99, 99]);
            assert_eq!(moved(Affine::TranslateX(i32::MIN)), [99; 12]);
            assert_eq!(moved(Affine::Rotate(180.0)), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
        }
    }
}
