//! Operations on single values, combined to a table of 256 entries for each channel.

use super::vector::multiply_add;

/// The tables of operations that were added and not applied yet.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The new value of each value of each channel; `None` while nothing changes.
    tables: Option<[[u8; 256]; 3]>,
}

/// The number of pixels of each value.
type Histogram = [u32; 256];

impl Tables {
    fn all(&mut self) -> &mut [[u8; 256]; 3] {
        self.tables.get_or_insert_with(|| [std::array::from_fn(|value| value as u8); 3])
    }

    /// Adds an operation that is the same for all channels.
    pub(super) fn then(&mut self, operation: impl Fn(u8) -> u8) {
        let changed: [u8; 256] = std::array::from_fn(|value| operation(value as u8));
        self.all().as_flattened_mut().iter_mut().for_each(|value| *value = changed[usize::from(*value)]);
    }

    /// Applies the tables, and resets them.
    pub(super) fn apply(&mut self, channels: [&mut [u8]; 3]) {
        let Some(tables) = self.tables.take() else { return };
        for (channel, table) in channels.into_iter().zip(&tables) {
            channel.iter_mut().for_each(|value| *value = table[usize::from(*value)]);
        }
    }

    pub(super) fn brightness(&mut self, factor: f64) {
        self.then(|value| (f32::from(value) * factor as f32) as u8);
    }

    /// Adds the operation that blends each value with a number, such as the mean brightness.
    pub(super) fn blend(&mut self, with: f32, factor: f64) {
        let rest = (1.0 - factor) as f32;
        self.then(|value| multiply_add::<false>(with, rest, f32::from(value) * factor as f32) as u8);
    }

    pub(super) fn posterize(&mut self, bits: u8) {
        let mask = !(0xff_u32 >> bits) as u8;
        self.then(|value| value & mask);
    }

    pub(super) fn solarize(&mut self, threshold: f64) {
        self.then(|value| if f32::from(value) >= threshold as f32 { 255 - value } else { value });
    }

    pub(super) fn invert(&mut self) {
        self.then(|value| 255 - value);
    }

    /// Returns how many pixels of each value the channels will have after the tables are applied.
    fn histograms(&self, channels: [&mut [u8]; 3]) -> [Histogram; 3] {
        let mut histograms = channels.map(|channel| histogram(channel));
        if let Some(tables) = &self.tables {
            for (histogram, table) in histograms.iter_mut().zip(tables) {
                let mut after = [0; 256];
                histogram.iter().zip(table).for_each(|(count, &value)| after[usize::from(value)] += count);
                *histogram = after;
            }
        }
        histograms
    }

    /// Adds an operation that differs between channels.
    fn then_each(&mut self, operations: [[u8; 256]; 3]) {
        for (table, operation) in self.all().iter_mut().zip(&operations) {
            table.iter_mut().for_each(|value| *value = operation[usize::from(*value)]);
        }
    }

    pub(super) fn autocontrast(&mut self, channels: [&mut [u8]; 3], exact: bool) {
        let stretched = self.histograms(channels).map(|histogram| {
            let least = histogram.iter().position(|&count| count > 0).unwrap_or(0);
            let most = histogram.iter().rposition(|&count| count > 0).unwrap_or(0);
            if least == most {
                return std::array::from_fn(|value| value as u8);
            }
            if exact {
                let scale = 255.0 / (most - least) as f64;
                let offset = -(least as f64) * scale;
                return std::array::from_fn(|value| (value as f64 * scale + offset) as u8);
            }
            let scale = (most - least) as f32 * (1.0_f64 / 255.0) as f32;
            std::array::from_fn(|value| (value.saturating_sub(least) as f32 / scale).min(255.0) as u8)
        });
        self.then_each(stretched);
    }

    pub(super) fn equalize(&mut self, channels: [&mut [u8]; 3]) {
        let equalized = self.histograms(channels).map(|histogram| {
            let all: u32 = histogram.iter().sum();
            let brightest = histogram.iter().rfind(|&&count| count > 0).copied().unwrap_or(0);
            let step = (all - brightest) / 255;
            if step == 0 {
                return std::array::from_fn(|value| value as u8);
            }
            let mut below = 0;
            histogram.map(|count| {
                let value = ((below + step / 2) / step).min(255) as u8;
                below += count;
                value
            })
        });
        self.then_each(equalized);
    }
}

/// Counts how often each value occurs. Neighbours are mostly equal, so they are counted in separate
/// tables; otherwise each count would wait for the previous one.
fn histogram(values: &[u8]) -> Histogram {
    let mut counts = [[0; 256]; 4];
    let (fours, rest) = values.as_chunks::<4>();
    for four in fours {
        counts.iter_mut().zip(four).for_each(|(counts, &value)| counts[usize::from(value)] += 1);
    }
    rest.iter().for_each(|&value| counts[0][usize::from(value)] += 1);
    std::array::from_fn(|value| counts.iter().map(|counts| counts[value]).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_tables_equal_separate_passes() {
        let plane = |factor: usize| (0..1_000).map(|i| (i * factor % 199 + 20) as u8).collect::<Vec<_>>();
        let start = [plane(1), plane(3), plane(7)];
        type Step = fn(&mut Tables, [&mut [u8]; 3]);
        let steps: [Step; 7] = [
            |tables, _| tables.brightness(0.8),
            |tables, channels| tables.autocontrast(channels, false),
            |tables, _| tables.solarize(100.0),
            |tables, channels| tables.equalize(channels),
            |tables, _| tables.posterize(5),
            |tables, _| tables.invert(),
            |tables, _| tables.blend(90.0, 1.3),
        ];
        let (mut once, mut each) = (start.clone(), start.clone());
        let mut tables = Tables::default();
        for step in steps {
            step(&mut tables, once.each_mut().map(|plane| &mut plane[..]));
            let mut single = Tables::default();
            step(&mut single, each.each_mut().map(|plane| &mut plane[..]));
            single.apply(each.each_mut().map(|plane| &mut plane[..]));
        }
        assert_eq!(once, start, "nothing changes before the tables are applied");
        tables.apply(once.each_mut().map(|plane| &mut plane[..]));
        assert_eq!(once, each);
    }

    #[test]
    fn no_bits_are_black_and_eight_are_all() {
        for (bits, result) in [(0, 0), (1, 128), (4, 0xb0), (8, 0xb7)] {
            let mut tables = Tables::default();
            tables.posterize(bits);
            assert_eq!(tables.all()[1][0xb7], result);
        }
    }
}
