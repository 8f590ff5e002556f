//! Operations as Pillow computes them, with torchvision's functions for PIL images.

use std::num::Wrapping;
use std::ops::AddAssign;

/// Returns the brightness of a pixel.
fn brightness(red: u8, green: u8, blue: u8) -> u8 {
    ((u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471 + 0x8000) >> 16) as u8
}

/// Mixes two values: 0 is the first, 1 the second.
#[inline(always)]
pub(super) fn blend(first: u8, second: u8, factor: f64) -> u8 {
    let difference = f32::from(second) - f32::from(first);
    (f32::from(first) + factor as f32 * difference) as u8
}

/// Returns the mean brightness of all pixels.
pub(super) fn mean_brightness([red, green, blue]: [&mut [u8]; 3]) -> u8 {
    let levels = red.iter().zip(&*green).zip(&*blue).map(|((&r, &g), &b)| u64::from(brightness(r, g, b)));
    (levels.sum::<u64>() as f64 / red.len() as f64 + 0.5) as u8
}

fn replace([red, green, blue]: [&mut [u8]; 3], pixel: impl Fn([u8; 3]) -> [u8; 3]) {
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        [*red, *green, *blue] = pixel([*red, *green, *blue]);
    }
}

pub(super) fn saturation(channels: [&mut [u8]; 3], factor: f64) {
    replace(channels, |pixel @ [red, green, blue]| {
        let grey = brightness(red, green, blue);
        pixel.map(|value| blend(grey, value, factor))
    });
}

pub(super) fn grayscale(channels: [&mut [u8]; 3]) {
    replace(channels, |[red, green, blue]| [brightness(red, green, blue); 3]);
}

/// Turns the hue by a part of the circle, which has 255 steps.
pub(super) fn hue(channels: [&mut [u8]; 3], by: f64) {
    let by = (by * 255.0) as i32 as u8;
    replace(channels, |pixel| {
        let [hue, saturation, value] = to_hsv(pixel);
        to_rgb([hue.wrapping_add(by), saturation, value])
    });
}

/// Converts to hue, saturation and value.
fn to_hsv([red, green, blue]: [u8; 3]) -> [u8; 3] {
    let most = red.max(green).max(blue);
    let range = f32::from(most - red.min(green).min(blue));
    if range == 0.0 {
        return [0, 0, most];
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
    let byte = |part: f32| (f64::from(part) * 255.0) as u8;
    [byte(hue), byte(range / f32::from(most)), most]
}

/// Converts from hue, saturation and value.
fn to_rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let sector = f64::from(f32::from(hue)) * 6.0 / 255.0;
    let rest = f64::from((sector - sector.floor()) as f32);
    let saturation = f64::from(f32::from(saturation) / 255.0);
    let byte = |part: f64| (f64::from(value) * (1.0 - part)).round() as u8;
    let (p, q, t) = (byte(saturation), byte(saturation * rest), byte(saturation * (1.0 - rest)));
    match sector as u8 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}

/// Where pixels of the result come from: `[a, b, c]` for column and row `a x + b y + c`, from the left and the top.
pub(super) type Lines = [[f64; 3]; 2];

/// Rounds a number from -1 to 1 as Python's `round(number, 15)` does.
pub(super) fn to_15_decimals(number: f64) -> f64 {
    let product = number * 1e15;
    let whole = product.round();
    let rest = product - whole + number.mul_add(1e15, -product);
    (whole + f64::from(rest > 0.5) - f64::from(rest < -0.5)) / 1e15
}

/// Takes the nearest pixels that are in the picture.
pub(super) fn nearest(from: &[u8], to: &mut [u8], size: [usize; 2], lines: Lines) {
    let [height, width] = size.map(|side| side as f64);
    let small = |[a, b, c]: [f64; 3]| {
        [[0.0, 0.0], [width, 0.0], [0.0, height], [width, height]]
            .iter()
            .all(|[x, y]| (x * a + y * b + c).abs() < 32_768.0)
    };
    if lines.into_iter().all(small) {
        // Pillow adds up numbers with 16 bits behind the point.
        let fixed = |number: f64| Wrapping((number * 65_536.0 + 0.5).floor() as i32);
        let lines = lines.map(|[a, b, c]| [fixed(a), fixed(b), fixed(c + a * 0.5 + b * 0.5)]);
        take(from, to, size, lines, |at| (at.0 >> 16) as usize);
    } else {
        let lines = lines.map(|[a, b, c]| [a, b, c + b * 0.5 + a * 0.5]);
        take(from, to, size, lines, |at| if at < 0.0 { usize::MAX } else { at as usize });
    }
}

/// Takes the pixels at these places, which are added up from the middle of the first pixel. `index` is above every picture
/// for what is negative.
fn take<N: Copy + AddAssign>(
    from: &[u8],
    to: &mut [u8],
    [height, width]: [usize; 2],
    [[right_x, down_x, mut first_x], [right_y, down_y, mut first_y]]: [[N; 3]; 2],
    index: impl Fn(N) -> usize,
) {
    let area = height * width;
    for row in 0..height {
        let (mut at_x, mut at_y) = (first_x, first_y);
        for place in row * width..(row + 1) * width {
            let (x, y) = (index(at_x), index(at_y));
            if x < width && y < height {
                (0..3).for_each(|c| to[c * area + place] = from[c * area + y * width + x]);
            }
            at_x += right_x;
            at_y += right_y;
        }
        first_x += down_x;
        first_y += down_y;
    }
}

/// Interpolates between the four pixels around, where that is in the picture. Those outside of the picture are the ones at its side.
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
        // The first are at most 1 in front of the picture.
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
