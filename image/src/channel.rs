//! Computes the channels of the result from the planes of a decoded picture.

/// The meaning of the three planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planes {
    /// Brightness and two colour differences, as in most JPEGs. A grey picture has no differences.
    YCbCr,
    /// Red, green and blue.
    Rgb,
}

/// The coefficients with which one channel is computed from three planes, whose values are in units
/// of 1/256.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    pub(crate) factors: [f32; 3],
    pub(crate) offset: f32,
    /// The values of black and of full brightness in this channel, to which results are clamped.
    pub(crate) range: [f32; 2],
}

impl Channel {
    /// Returns the coefficients of the three normalised channels: `(value / 255 - mean) / std`.
    pub(crate) fn all(planes: Planes, mean: [f32; 3], std: [f32; 3]) -> [Self; 3] {
        // The conversion of JFIF: BT.601 with the full range.
        let factors: [[f64; 3]; 3] = match planes {
            Planes::YCbCr => [[1.0, 0.0, 1.402], [1.0, -0.344_136_286, -0.714_136_286], [1.0, 1.772, 0.0]],
            Planes::Rgb => [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        };
        let grey = if planes == Planes::YCbCr { 128.0 } else { 0.0 };
        std::array::from_fn(|i| {
            let (mean, std) = (f64::from(mean[i]), f64::from(std[i]));
            let scale = 1.0 / (255.0 * std);
            Self {
                factors: factors[i].map(|factor| (factor * scale / 256.0) as f32),
                offset: (-(factors[i][1] + factors[i][2]) * grey * scale - mean / std) as f32,
                // Avoids -0: CPUs differ in whether `max` of -0 and 0 returns -0.
                range: [(0.0 - mean) / std, (1.0 - mean) / std].map(|end| end as f32),
            }
        })
    }

    /// Returns the channel's value for a colour, which is given as a fraction of full brightness.
    pub(crate) fn of_colour(&self, colour: f32) -> f32 {
        let [black, brightest] = self.range;
        black + (brightest - black) * colour
    }
}
