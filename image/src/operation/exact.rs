//! Operations as Pillow computes them, with torchvision's functions for PIL images.

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
