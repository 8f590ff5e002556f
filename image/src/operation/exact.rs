//! Operations whose results are exactly those of Pillow, as torchvision's functions for PIL images
//! use it.

use std::num::Wrapping;
use std::ops::AddAssign;

use super::vector::{byte, replace, total, vectorized};

/// Returns the brightness of a pixel.
#[inline(always)]
fn brightness(red: u8, green: u8, blue: u8) -> u8 {
    ((u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471 + 0x8000) >> 16) as u8
}

/// Blends two values: a factor of 0 gives the first, 1 the second.
#[inline(always)]
pub(super) fn blend(first: u8, second: u8, factor: f64) -> u8 {
    mixed(f32::from(first), f32::from(second), factor as f32) as u8
}

#[inline(always)]
pub(super) fn mixed(first: f32, second: f32, factor: f32) -> f32 {
    first + factor * (second - first)
}

vectorized! {
    /// Returns the mean brightness of all pixels.
    fn mean_brightness(channels: [&mut [u8]; 3]) -> u8 {
        let len = channels[0].len() as f64;
        (total(channels, brightness) as f64 / len + 0.5) as u8
    }
}

vectorized! {
    fn saturation(channels: [&mut [u8]; 3], factor: f64) {
        replace(channels, |pixel @ [red, green, blue]| {
            let grey = f32::from(brightness(red, green, blue));
            pixel.map(|value| byte(mixed(grey, f32::from(value), factor as f32).clamp(0.0, 255.0)))
        });
    }
}

vectorized! {
    fn grayscale(channels: [&mut [u8]; 3]) {
        replace(channels, |[red, green, blue]| [brightness(red, green, blue); 3]);
    }
}

vectorized! {
    /// Rotates the hue by a fraction of the colour circle, which has 255 steps.
    fn hue(channels: [&mut [u8]; 3], by: f64) {
        let by = f32::from((by * 255.0) as i32 as u8);
        replace(channels, |pixel| turned(pixel, by));
    }
}

#[inline(always)]
fn turned(pixel: [u8; 3], by: f32) -> [u8; 3] {
    let [hue, saturation, value] = to_hsv(pixel);
    let hue = hue + by;
    to_rgb([if hue < 256.0 { hue } else { hue - 256.0 }, saturation, value]).map(byte)
}

/// Converts to hue, saturation and value, which are whole numbers. Like [`to_rgb`] it has no
/// branches, so that it can be vectorised.
#[inline(always)]
fn to_hsv(pixel: [u8; 3]) -> [f32; 3] {
    let [red, green, blue] = pixel.map(f32::from);
    let most = red.max(green).max(blue);
    let range = most - red.min(green).min(blue);
    // In grey pixels, all differences are 0.
    let divisor = range.max(1.0);
    let [r, g, b] = [red, green, blue].map(|value| f64::from((most - value) / divisor));
    let sector = if red == most {
        b - g
    } else if green == most {
        2.0 + r - b
    } else {
        4.0 + g - r
    };
    let hue = f64::from(sector as f32) / 6.0 + 1.0;
    let whole = |part: f32| (f64::from(part) * 255.0).floor() as f32;
    [whole((hue - hue.floor()) as f32), whole(range / most.max(1.0)), most]
}

/// Converts from hue, saturation and value.
///
/// Pillow multiplies fractions, whereas this multiplies whole numerators. The results are the same,
/// since rounding never has to decide between numbers that are closer than the rounding errors.
#[inline(always)]
fn to_rgb([hue, saturation, value]: [f32; 3]) -> [f32; 3] {
    const STEPS: f32 = 85.0;
    const UNIT: f32 = 255.0 * STEPS;
    let sector = (hue * 2.0 / STEPS).floor();
    let rest = hue * 2.0 - sector * STEPS;
    let less = |part: f32| (value * (UNIT - saturation * part) / UNIT + 0.5).floor();
    let (p, q, t) = (less(STEPS), less(rest), less(STEPS - rest));
    let pick = |values: [f32; 6]| {
        // The last step of the circle is in the first sector.
        let mut picked = values[0];
        for (i, &other) in values.iter().enumerate().skip(1) {
            picked = if sector == i as f32 { other } else { picked };
        }
        picked
    };
    [pick([value, q, p, p, t, value]), pick([t, value, value, q, p, p]), pick([p, p, t, value, value, q])]
}

/// The positions in the picture from which the pixels of the result are taken: `[a, b, c]` for the
/// column and for the row, each `a x + b y + c`, relative to the top left corner.
pub(super) type Lines = [[f64; 3]; 2];

/// Rounds a number from -1 to 1 as Python's `round(number, 15)` does.
pub(super) fn to_15_decimals(number: f64) -> f64 {
    let product = number * 1e15;
    let whole = product.round();
    let rest = product - whole + number.mul_add(1e15, -product);
    (whole + f64::from(rest > 0.5) - f64::from(rest < -0.5)) / 1e15
}

/// Sets each pixel of the result to the nearest pixel, if that is inside of the picture.
pub(super) fn nearest(from: &[u8], to: &mut [u8], size: [usize; 2], lines: Lines) {
    let [height, width] = size.map(|side| side as f64);
    let small = |[a, b, c]: [f64; 3]| {
        [[0.0, 0.0], [width, 0.0], [0.0, height], [width, height]]
            .iter()
            .all(|[x, y]| (x * a + y * b + c).abs() < 32_768.0)
    };
    if lines.into_iter().all(small) {
        // Pillow adds up numbers with 16 fractional bits.
        let fixed = |number: f64| Wrapping((number * 65_536.0 + 0.5).floor() as i32);
        let lines = lines.map(|[a, b, c]| [fixed(a), fixed(b), fixed(c + a * 0.5 + b * 0.5)]);
        if lines.map(|[right, ..]| right.0) == [1 << 16, 0] {
            copy_rows(from, to, size, lines.map(|[_, down, first]| [down, first]));
        } else {
            take(from, to, size, lines, |at| (at.0 >> 16) as usize);
        }
    } else {
        let lines = lines.map(|[a, b, c]| [a, b, c + b * 0.5 + a * 0.5]);
        take(from, to, size, lines, |at| if at < 0.0 { usize::MAX } else { at as usize });
    }
}

/// Moves each row of the picture as a whole. `lines` give the position of the first pixel: how it
/// changes from row to row, and that of the first row.
fn copy_rows(
    from: &[u8],
    to: &mut [u8],
    [height, width]: [usize; 2],
    [[down_x, mut first_x], [down_y, mut first_y]]: [[Wrapping<i32>; 2]; 2],
) {
    let area = height * width;
    for row in 0..height {
        let (x, y) = ((first_x.0 >> 16) as isize, (first_y.0 >> 16) as usize);
        let skipped = x.min(0).unsigned_abs().min(width);
        let len = width.saturating_sub(x.unsigned_abs());
        if y < height && len > 0 {
            let (start, x) = (row * width + skipped, x.max(0) as usize);
            for c in [0, area, 2 * area] {
                to[c + start..][..len].copy_from_slice(&from[c + y * width + x..][..len]);
            }
        }
        first_x += down_x;
        first_y += down_y;
    }
}

/// Sets each pixel of the result to the picture's pixel at the position that `lines` gives for it.
/// Positions are computed by addition, from the centre of the first pixel on. `index` must return a
/// number above every size for a negative position.
fn take<N: Copy + AddAssign>(
    from: &[u8],
    to: &mut [u8],
    [height, width]: [usize; 2],
    [[right_x, down_x, mut first_x], [right_y, down_y, mut first_y]]: [[N; 3]; 2],
    index: impl Fn(N) -> usize,
) {
    let area = height * width;
    let from = [0, 1, 2].map(|c| &from[c * area..][..area]);
    let (red, rest) = to.split_at_mut(area);
    let (green, blue) = rest.split_at_mut(area);
    let rows = red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
    for ((red, green), blue) in rows {
        let (mut at_x, mut at_y) = (first_x, first_y);
        for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
            let (x, y) = (index(at_x), index(at_y));
            if x < width && y < height {
                let at = y * width + x;
                [*red, *green, *blue] = [from[0][at], from[1][at], from[2][at]];
            }
            at_x += right_x;
            at_y += right_y;
        }
        first_x += down_x;
        first_y += down_y;
    }
}

/// Interpolates between the four pixels around a position, if that is inside of the picture. Pixels
/// outside of the picture count as the nearest pixel at its side.
pub(super) fn bilinear(from: &[u8], to: &mut [u8], [height, width]: [usize; 2], lines: Lines) {
    let area = height * width;
    for place in 0..area {
        let [x, y] = [place % width, place / width].map(|at| at as f64 + 0.5);
        let [x, y] = lines.map(|[a, b, c]| a * x + b * y + c);
        if !((0.0..width as f64).contains(&x) && (0.0..height as f64).contains(&y)) {
            continue;
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (part_x, part_y) = (x - x.floor(), y - y.floor());
        // The first of the two pixels is at most one before the picture.
        let clipped = |at: f64, side: usize| [0.0, 1.0].map(|by| ((at.floor() + by) as usize).min(side - 1));
        let (columns, rows) = (clipped(x, width), clipped(y, height));
        for c in 0..3 {
            let between = |first: f64, second: f64, part: f64| first + (second - first) * part;
            let [above, below] = rows.map(|row| {
                let [left, right] = columns.map(|column| f64::from(from[c * area + row * width + column]));
                between(left, right, part_x)
            });
            to[c * area + place] = between(above, below, part_y) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts a pixel to hue and back as Pillow's source does, with branches and fractions.
    fn of_pillow([red, green, blue]: [u8; 3], by: u8) -> [u8; 3] {
        let most = red.max(green).max(blue);
        let range = f32::from(most - red.min(green).min(blue));
        if range == 0.0 {
            return [most; 3];
        }
        let [r, g, b] = [red, green, blue].map(|value| f32::from(most - value) / range);
        let sector = if red == most {
            b - g
        } else if green == most {
            (2.0 + f64::from(r) - f64::from(b)) as f32
        } else {
            (4.0 + f64::from(g) - f64::from(r)) as f32
        };
        let hue = (f64::from(sector) / 6.0 + 1.0).fract() as f32;
        let [hue, saturation] = [hue, range / f32::from(most)].map(|part| (f64::from(part) * 255.0) as u8);
        if saturation == 0 {
            return [most; 3];
        }
        let sector = f64::from(hue.wrapping_add(by)) * 6.0 / 255.0;
        let rest = f64::from((sector - sector.floor()) as f32);
        let saturation = f64::from(f32::from(saturation) / 255.0);
        let less = |part: f64| (f64::from(most) * (1.0 - part)).round() as u8;
        let (p, q, t) = (less(saturation), less(saturation * rest), less(saturation * (1.0 - rest)));
        match sector as u8 % 6 {
            0 => [most, t, p],
            1 => [q, most, p],
            2 => [p, most, t],
            3 => [p, q, most],
            4 => [t, p, most],
            _ => [most, p, q],
        }
    }

    /// Compares all colours, or a part of them in unoptimised builds.
    #[test]
    fn hue_of_every_colour_is_that_of_pillow_on_every_cpu() {
        let step = if cfg!(debug_assertions) { 89 } else { 1 };
        let colours: Vec<[u8; 3]> =
            (0..1 << 24).step_by(step).map(|i: u32| [i, i >> 8, i >> 16].map(|i| i as u8)).collect();
        for by in [0.0, 0.1, -0.5] {
            let mut planes = [0, 1, 2].map(|c| colours.iter().map(|colour| colour[c]).collect::<Vec<u8>>());
            let [red, green, blue] = &mut planes;
            hue([red, green, blue], by);
            let steps = (by * 255.0) as i32 as u8;
            for (i, &colour) in colours.iter().enumerate() {
                let expected = of_pillow(colour, steps);
                assert_eq!([0, 1, 2].map(|c| planes[c][i]), expected, "{colour:?} by {by}");
                assert_eq!(turned(colour, f32::from(steps)), expected, "{colour:?} by {by}");
            }
        }
    }
}
