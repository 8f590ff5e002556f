//! Operations on all channels of a pixel: brightness, saturation, hue.

use super::vector::{byte, multiply_add, replace, total, vectorized};

/// Returns the brightness of a pixel, with the weights of torchvision.
#[inline(always)]
fn brightness<const FMA: bool>(red: u8, green: u8, blue: u8) -> f32 {
    let sum = multiply_add::<FMA>(f32::from(green), 0.587, f32::from(red) * 0.2989);
    multiply_add::<FMA>(f32::from(blue), 0.114, sum)
}

vectorized! {
    /// Returns the mean of the brightness of all pixels, where the brightness of each pixel is
    /// rounded down.
    fn mean_brightness(channels: [&mut [u8]; 3]) -> f32 {
        let len = channels[0].len() as f64;
        (total(channels, |r, g, b| byte(brightness::<FMA>(r, g, b))) as f64 / len) as f32
    }
}

vectorized! {
    fn saturation(channels: [&mut [u8]; 3], factor: f64) {
        let (factor, rest) = (factor as f32, (1.0 - factor) as f32);
        replace(channels, |[red, green, blue]| {
            let grey = brightness::<FMA>(red, green, blue).floor();
            [red, green, blue].map(|value| {
                byte(multiply_add::<FMA>(grey, rest, f32::from(value) * factor).clamp(0.0, 255.0))
            })
        });
    }
}

vectorized! {
    fn grayscale(channels: [&mut [u8]; 3]) {
        replace(channels, |[red, green, blue]| [byte(brightness::<FMA>(red, green, blue)); 3]);
    }
}

vectorized! {
    /// Rotates the hue by a fraction of the colour circle.
    fn hue(channels: [&mut [u8]; 3], by: f64) {
        let by = by as f32;
        replace(channels, |pixel| {
            let [r, g, b] = pixel.map(|value| f32::from(value) * (1.0 / 255.0));
            turned(r, g, b, by).map(|value| byte(value * 255.999))
        });
    }
}

/// Converts a pixel to hue, saturation and value, rotates the hue, and converts back. It has no
/// branches, so that it can be vectorised.
#[inline(always)]
fn turned(r: f32, g: f32, b: f32, by: f32) -> [f32; 3] {
    let value = r.max(g).max(b);
    let range = value - r.min(g).min(b);
    let grey = range == 0.0;
    let saturation = range / if grey { 1.0 } else { value };
    let divisor = if grey { 1.0 } else { range };
    let [rc, gc, bc] = [r, g, b].map(|channel| (value - channel) / divisor);
    let sector = if value == r {
        bc - gc
    } else if value == g {
        rc + 2.0 - bc
    } else {
        gc + 4.0 - rc
    };
    let part = |number: f32| number - number.floor();
    let hue = part(part(sector * (1.0 / 6.0) + 1.0) + by) * 6.0;
    let sector = hue.floor();
    let rest = saturation * (hue - sector);
    let unit = |number: f32| (number * value).clamp(0.0, 1.0);
    let (falling, rising, least) = (unit(1.0 - rest), unit(rest + (1.0 - saturation)), unit(1.0 - saturation));
    // A hue that was rounded up to a full turn is in the first sector.
    let sector = if sector >= 6.0 { 0.0 } else { sector };
    let pick = |values: [f32; 6]| {
        let [a, b, c, d, e, f] = values;
        let low = if sector == 0.0 {
            a
        } else if sector == 1.0 {
            b
        } else {
            c
        };
        let high = if sector == 3.0 {
            d
        } else if sector == 4.0 {
            e
        } else {
            f
        };
        if sector < 3.0 { low } else { high }
    };
    [
        pick([value, falling, least, least, rising, value]),
        pick([rising, value, value, falling, least, least]),
        pick([least, least, rising, value, value, falling]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_circle_exchanges_channels() {
        let (mut red, mut green, mut blue) = ([200, 10, 77], [100, 10, 0], [50, 10, 255]);
        hue([&mut red, &mut green, &mut blue], 1.0 / 3.0);
        assert_eq!((red, green, blue), ([50, 10, 255], [200, 10, 77], [100, 10, 0]));
    }

    #[test]
    fn brightness_is_a_weighted_mean() {
        let (mut red, mut green, mut blue) = ([255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255]);
        assert_eq!(mean_brightness([&mut red, &mut green, &mut blue]), (76 + 149 + 29 + 254) as f32 / 4.0);
        grayscale([&mut red, &mut green, &mut blue]);
        assert_eq!((red, green, blue), ([76, 149, 29, 254], [76, 149, 29, 254], [76, 149, 29, 254]));
    }
}
