//! Resizes pictures as Pillow or torch does, bit for bit: bytes of red, green and blue, in two passes
//! with weights of 22 bits.
//!
//! Each pass rounds its results to bytes. Usually, the first pass resizes each row that is needed
//! to the width of the result and separates the channels into planes, and the second pass combines
//! rows. A weight is multiplied in two parts, so that vector instructions for 16-bit numbers can be
//! used; the sums are exact.
//!
//! torch's weights for bytes are Pillow's, rounded to fewer bits: as many as let the largest weight
//! of a direction fit into 16 bits. With zeros appended, they have 22 bits, too, and the sums are
//! rounded to the same bytes.

use crate::axis_map::AxisMap;
use crate::decode::{Orientation, OtherChannels, Picture, room};
use crate::error::ImageError;
#[cfg(target_arch = "x86_64")]
use crate::lanes::has_avx2;
use crate::plan::Segment;
use crate::resample::STRIDE;

/// The number of fractional bits of a weight.
const PRECISION: u32 = 22;
/// The number of bits in the lower part of a weight.
const LOW: u32 = 11;
/// The number of bytes that are computed at once. Rows are padded to a multiple of it.
const BLOCK: usize = 16;
/// The number of rows that are resized at once.
const ROWS: usize = 4;
/// The number of pixels of a resized row that are computed at once. A plane in such a row is padded to a multiple of it.
const GROUP: usize = 4;

/// The filter that a picture is resized with, with torchvision's names. All but `Nearest` are
/// antialiased, as Pillow's are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resampling {
    /// The nearest pixel (`NEAREST` and `NEAREST_EXACT`).
    Nearest,
    /// The mean of the pixels that are covered by a pixel of the result.
    Box,
    /// A triangle, with a support of two pixels (torchvision's default).
    #[default]
    Bilinear,
    /// A Hamming window, with a support of two pixels.
    Hamming,
    /// A cubic spline, with a support of four pixels.
    Bicubic,
    /// A Lanczos window, with a support of six pixels.
    Lanczos,
}

impl Resampling {
    /// All filters, with their names in text.
    pub(crate) const ALL: [(&'static str, Self); 6] = [
        ("nearest", Self::Nearest),
        ("box", Self::Box),
        ("bilinear", Self::Bilinear),
        ("hamming", Self::Hamming),
        ("bicubic", Self::Bicubic),
        ("lanczos", Self::Lanczos),
    ];

    /// Returns the distance from the centre up to which pixels have a weight.
    pub(crate) fn support(self) -> f64 {
        match self {
            Self::Nearest | Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Returns the weight at this distance from the centre.
    fn weight(self, x: f64) -> f64 {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * std::f64::consts::PI).sin() / (x * std::f64::consts::PI) };
        match self {
            Self::Nearest | Self::Box => f64::from(x > -0.5 && x <= 0.5),
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Hamming => {
                let x = x.abs();
                if x < 1.0 { sinc(x) * (0.54 + 0.46 * (x * std::f64::consts::PI).cos()) } else { 0.0 }
            }
            Self::Bicubic => {
                const A: f64 = -0.5;
                let x = x.abs();
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Self::Lanczos => {
                if (-3.0..3.0).contains(&x) {
                    sinc(x) * sinc(x / 3.0)
                } else {
                    0.0
                }
            }
        }
    }
}

/// The library whose bits a resized picture has. They differ in the weights and in the order of the
/// two passes, each of which rounds to bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resizer {
    /// Pillow 13, which makes the vertical pass first if that is faster.
    #[default]
    Pillow,
    /// Pillow 12 and earlier versions, which always make the horizontal pass first.
    Pillow12,
    /// torch, for a tensor of bytes, with antialiasing. These are the bits of torch 2.10 and 2.15 on
    /// a CPU with AVX2 or AVX-512, for pictures with at least two rows and columns. On other CPUs,
    /// torch computes with floating-point numbers, or differently. It has the filters `Bilinear`,
    /// `Bicubic` and `Lanczos`.
    Torch,
}

/// A filter, and the library that it is computed like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) resampling: Resampling,
    pub(crate) resizer: Resizer,
}

impl From<Resampling> for Filter {
    fn from(resampling: Resampling) -> Self {
        Self { resampling, resizer: Resizer::default() }
    }
}

/// The weights of two adjacent samples: the higher parts of both, and the lower parts of both. A part
/// has 16 bits, and that of the first sample is in the lower ones.
type Pair = [i32; 2];

/// The samples from which each row or column of the result is computed, and their weights.
#[derive(Debug, Default)]
struct Taps {
    /// For each row or column of the result, the first sample, and the end of its pairs in `pairs`.
    /// Padding has no pairs.
    places: Vec<(u32, u32)>,
    pairs: Vec<Pair>,
    /// The range of the samples that are used.
    span: [usize; 2],
    weights: Vec<f64>,
}

impl Taps {
    /// Returns the maximum memory, in bytes, of the weights for `out` rows or columns, where `len`
    /// samples are resized to `size`.
    fn memory(len: usize, size: usize, out: usize, filter: Resampling) -> usize {
        let per = Self::most(len, size, filter);
        out * (size_of::<(u32, u32)>() + per.div_ceil(2) * size_of::<Pair>())
            + if filter == Resampling::Nearest { size } else { per } * size_of::<f64>()
    }

    /// Returns the maximum number of samples for a row or column of the result.
    fn most(len: usize, size: usize, filter: Resampling) -> usize {
        let support = filter.support() * (len as f64 / size as f64).max(1.0);
        (2 * support.ceil() as usize + 1).min(len)
    }

    /// Computes the samples and weights. The first sample in memory is pixel `skipped` of the
    /// picture.
    fn set(&mut self, map: &AxisMap, Filter { resampling: filter, resizer }: Filter, skipped: usize) {
        let Self { places, pairs, span, weights } = self;
        let [start, end] = map.crop;
        let len = end - start;
        let scale = len as f64 / map.size as f64;
        let filter_scale = scale.max(1.0);
        let support = filter.support() * filter_scale;
        places.clear();
        pairs.clear();
        weights.clear();
        let per = Self::most(len, map.size, filter);
        places.reserve_exact(map.out);
        pairs.reserve_exact(map.out * per.div_ceil(2));
        weights.reserve_exact(per);
        let [from, to] = map.used().map_or([0; 2], |[first, last]| [first, last + 1]);
        if filter == Resampling::Nearest {
            // Pillow computes the positions by repeated addition.
            let sums = std::iter::successors(Some(scale * 0.5), |at| Some(at + scale));
            weights.reserve_exact(to - from);
            weights.extend(sums.skip(from).take(to - from));
        }
        // Computes the weights for a resized pixel, and returns the first sample.
        let weigh = |place: usize, weights: &mut Vec<f64>| {
            let centre = (place as f64 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let last = ((centre + support + 0.5) as usize).min(len);
            weights.clear();
            weights.extend((first..last).map(|k| filter.weight((k as f64 - centre + 0.5) * (1.0 / filter_scale))));
            let sum = weights.iter().fold(0.0, |sum, weight| sum + weight);
            if sum != 0.0 {
                weights.iter_mut().for_each(|weight| *weight /= sum);
            }
            first
        };
        let mut precision = PRECISION;
        if resizer == Resizer::Torch {
            let largest = (0..map.size).fold(0.0, |largest, place| {
                weigh(place, weights);
                weights.iter().copied().fold(largest, f64::max)
            });
            let fits = |bits: &u32| 0.5 + largest * f64::from(1 << bits) < f64::from(1 << 15);
            precision = (1..=PRECISION).take_while(fits).last().unwrap_or(0);
        }
        let fixed = |weight: f64| {
            let weight = weight * f64::from(1 << precision);
            ((if weight < 0.0 { weight - 0.5 } else { weight + 0.5 }) as i32) << (PRECISION - precision)
        };
        *span = [usize::MAX, 0];
        for i in 0..map.out {
            let Some(place) = map.of(i) else {
                places.push((0, pairs.len() as u32));
                continue;
            };
            let mut first;
            if filter == Resampling::Nearest {
                first = (weights[place - from] as usize).min(len - 1);
                pairs.push([1 << (PRECISION - LOW), 0]);
            } else {
                first = weigh(place, weights);
                // Samples at the ends whose weight is 0 are left out.
                let used = |&weight: &f64| fixed(weight) != 0;
                let from = weights.iter().position(used).unwrap_or(0);
                let to = weights.iter().rposition(used).unwrap_or(0) + 1;
                first += from;
                pairs.extend(weights[from..to].chunks(2).map(|two| {
                    let [a, b] = [0, 1].map(|i| two.get(i).map_or(0, |&weight| fixed(weight)));
                    let lower = (1 << LOW) - 1;
                    [[a >> LOW, b >> LOW], [a & lower, b & lower]].map(|[a, b]| b << 16 | (a & 0xffff))
                }));
            }
            let first = start + first - skipped;
            let from = places.last().map_or(0, |place| place.1) as usize;
            *span = [span[0].min(first), span[1].max(first + 2 * (pairs.len() - from))];
            places.push((first as u32, pairs.len() as u32));
        }
        if span[0] > span[1] {
            *span = [0, 0];
        }
    }

    /// Returns the first sample and the weights of each row or column of the result.
    fn all(&self) -> impl Iterator<Item = (usize, &[Pair])> {
        let mut from = 0;
        self.places.iter().map(move |&(first, to)| {
            let pairs = &self.pairs[from..to as usize];
            from = to as usize;
            (first as usize, pairs)
        })
    }
}

/// A picture of bytes, with the channels of each pixel next to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The rows, followed by some bytes that vector instructions may read.
    samples: &'a [u8],
    stride: usize,
    /// The distance from one pixel to the next, in bytes.
    step: usize,
    /// The distance from red to green and from green to blue, in bytes: 0 for grey, which is all
    /// three.
    channel: usize,
    /// The row and the column of the first pixel in memory.
    skipped: [usize; 2],
}

impl<'a> Source<'a> {
    /// Creates the source for a picture that was decoded at its full size, without planes.
    pub(crate) fn new(picture: &Picture<'a>) -> Self {
        let plane = picture.first;
        let channel = match picture.others {
            OtherChannels::None => 0,
            OtherChannels::Packed => 1,
            OtherChannels::Planes(_) => unreachable!("planes were not requested"),
        };
        let skipped = picture.frames[0].map(|frame| frame.skipped as usize);
        Self { samples: plane.samples, stride: plane.stride, step: plane.step, channel, skipped }
    }

    fn pixel(&self, y: usize, x: usize) -> [u8; 3] {
        let at = (y - self.skipped[0]) * self.stride + (x - self.skipped[1]) * self.step;
        [0, 1, 2].map(|c| self.samples[at + c * self.channel])
    }

    /// Creates an upright copy of the part of a picture that is in this window.
    pub(crate) fn upright<'o>(
        &self,
        orientation: Orientation,
        size: [usize; 2],
        mut window: [[usize; 2]; 2],
        out: &'o mut Vec<u8>,
    ) -> Result<Source<'o>, ImageError> {
        let Orientation { transposed, rows_reversed, columns_reversed } = orientation;
        let reversed = [rows_reversed, columns_reversed];
        for i in [0, 1].into_iter().filter(|&i| reversed[i]) {
            window[i] = [size[i] - window[i][1], size[i] - window[i][0]];
        }
        if transposed {
            window.swap(0, 1);
        }
        packed(window, out, |y, x| {
            let mut at = if transposed { [x, y] } else { [y, x] };
            for i in [0, 1].into_iter().filter(|&i| reversed[i]) {
                at[i] = size[i] - 1 - at[i];
            }
            self.pixel(at[0], at[1])
        })
    }
}

/// Copies three planes of this size to pixels of three bytes.
pub(crate) fn interleaved<'o>(
    planes: &[u8],
    [height, width]: [usize; 2],
    out: &'o mut Vec<u8>,
) -> Result<Source<'o>, ImageError> {
    packed([[0, height], [0, width]], out, |y, x| [0, 1, 2].map(|c| planes[(c * height + y) * width + x]))
}

/// Copies the pixels in this window.
fn packed(
    window @ [rows, columns]: [[usize; 2]; 2],
    out: &mut Vec<u8>,
    pixel: impl Fn(usize, usize) -> [u8; 3],
) -> Result<Source<'_>, ImageError> {
    let [height, width] = window.map(|[from, to]| to - from);
    let pixels = room(out, 3 * height * width)?.as_chunks_mut::<3>().0;
    for (y, row) in (rows[0]..rows[1]).zip(pixels.chunks_exact_mut(width)) {
        row.iter_mut().zip(columns[0]..).for_each(|(to, x)| *to = pixel(y, x));
    }
    let skipped = window.map(|side| side[0]);
    Ok(Source { samples: out, stride: 3 * width, step: 3, channel: 1, skipped })
}

/// The weights, and the rows between the two passes. A thread keeps them.
#[derive(Debug, Default)]
pub(crate) struct Resampler {
    taps: [Taps; 2],
    rows: Vec<u8>,
    row: Vec<u8>,
    /// For a pass that resizes nothing, the position of each column in a row of the source.
    columns: Vec<usize>,
}

impl Resampler {
    /// Returns the maximum memory, in bytes, that is kept after this pass over a picture of this
    /// size.
    pub(crate) fn memory(segment: &Segment, size: [usize; 2]) -> usize {
        let [down, across] = segment.places;
        let taps = |i: usize, map: AxisMap| Taps::memory(size[i], map.size, map.out, segment.filter.resampling);
        let pitch = pitch(across.out);
        let rows = ((size[0] + ROWS) * pitch).max(ROWS * (4 * size[1] + BLOCK));
        taps(0, down) + taps(1, across) + rows + ROWS * pitch + STRIDE + across.out * size_of::<usize>()
    }

    /// Resizes to planes. Padding with a colour is not written.
    pub(crate) fn run(&mut self, source: Source<'_>, segment: &Segment, out: &mut [u8]) -> Result<(), ImageError> {
        if segment.places.iter().all(|places| places.size == places.crop[1] - places.crop[0]) {
            self.copy(source, segment.places, out);
            return Ok(());
        }
        let Self { taps: [down, across], rows, row, .. } = self;
        let [height, width] = segment.places.map(|places| places.out);
        down.set(&segment.places[0], segment.filter, source.skipped[0]);
        across.set(&segment.places[1], segment.filter, source.skipped[1]);
        let pitch = pitch(width);
        row.reserve_exact((ROWS * pitch).saturating_sub(row.len()));
        row.resize(row.len().max(ROWS * pitch), 0);
        let row = &mut row[..ROWS * pitch];
        let mut copy = |row: &[u8], y: usize| {
            for (c, row) in row.chunks_exact(width.next_multiple_of(GROUP)).take(3).enumerate() {
                out[(c * height + y) * width..][..width].copy_from_slice(&row[..width]);
            }
        };
        let ([top, bottom], [left, right]) = (down.span, across.span);
        let mut places = down.all().enumerate().filter(|(_, (_, pairs))| !pairs.is_empty());
        if segment.filter.resizer == Resizer::Pillow && is_vertical_first(&segment.places) {
            let wide = ((right - left) * source.step).next_multiple_of(BLOCK);
            let rows = room(rows, ROWS * wide)?;
            while let Some(place) = places.next() {
                let mut group = [place; ROWS];
                group[1..].iter_mut().for_each(|next| *next = places.next().unwrap_or(place));
                for ((_, (first, pairs)), to) in group.into_iter().zip(rows.chunks_exact_mut(wide)) {
                    let from = &source.samples[first * source.stride + left * source.step..];
                    self::down(from, source.stride, pairs, to);
                }
                self::across([0, 1, 2, 3].map(|i| &rows[i * wide..]), left, source, across, row);
                group.iter().zip(row.chunks_exact(pitch)).for_each(|((y, _), row)| copy(row, *y));
            }
            return Ok(());
        }
        let rows = room(rows, (bottom - top).next_multiple_of(ROWS) * pitch)?;
        // The last of these rows may be after the end of the picture. Their results are not used, so
        // the last row is read instead.
        let last = (source.samples.len() - STRIDE) / source.stride - 1;
        for (y, out) in (top..bottom).step_by(ROWS).zip(rows.chunks_exact_mut(ROWS * pitch)) {
            let group = [y, y + 1, y + 2, y + 3].map(|y| &source.samples[y.min(last) * source.stride..]);
            self::across(group, 0, source, across, out);
        }
        for (y, (first, pairs)) in places {
            self::down(&rows[(first - top) * pitch..], pitch, pairs, &mut row[..pitch]);
            copy(row, y);
        }
        Ok(())
    }

    /// Crops, flips and pads to planes. With any filter, a pixel that is not resized has a weight
    /// of one, and its neighbours have none.
    fn copy(&mut self, source: Source<'_>, [down, across]: [AxisMap; 2], out: &mut [u8]) {
        let [rows, columns] = [down, across].map(|map| map.content());
        let [row_of, column_of] = [(down, 0), (across, 1)]
            .map(|(map, i)| move |k| map.of(k).map_or(0, |place| map.crop[0] + place - source.skipped[i]));
        self.columns.clear();
        self.columns.reserve_exact(across.out);
        self.columns.extend((columns[0]..columns[1]).map(|x| column_of(x) * source.step));
        let mut planes = out.chunks_exact_mut(down.out * across.out);
        let [red, green, blue] = [(); 3].map(|()| planes.next().expect("there are three planes"));
        for y in rows[0]..rows[1] {
            let pixels = &source.samples[row_of(y) * source.stride..];
            let row = y * across.out + columns[0]..y * across.out + columns[1];
            let to = red[row.clone()].iter_mut().zip(&mut green[row.clone()]).zip(&mut blue[row]);
            for (((red, green), blue), &x) in to.zip(&self.columns) {
                let pixel = &pixels[x..=x + 2 * source.channel];
                [*red, *green, *blue] = [pixel[0], pixel[source.channel], pixel[2 * source.channel]];
            }
        }
    }
}

/// Returns the bytes of a resized row: its planes, and padding.
fn pitch(width: usize) -> usize {
    (3 * width.next_multiple_of(GROUP)).next_multiple_of(BLOCK)
}

/// Whether rows are combined first. Pillow 13 does so if the height shrinks by more than twice as
/// many pixels as the width.
fn is_vertical_first([down, across]: &[AxisMap; 2]) -> bool {
    let lost = |map: &AxisMap| (map.crop[1] - map.crop[0]) as i64 - map.size as i64;
    lost(down) > 0 && lost(down) > 2 * lost(across)
}

/// Rounds a sum to a byte.
fn clip(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// Joins the two parts of the weights of a pair.
fn whole(pair: Pair) -> [i32; 2] {
    [0, 16].map(|shift| {
        let [high, low] = pair.map(|part| i32::from((part >> shift) as i16));
        (high << LOW) + low
    })
}

/// Resizes rows, which begin at column `left`, to planes.
fn across(rows: [&[u8]; ROWS], left: usize, source: Source<'_>, taps: &Taps, to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU supports AVX2, as checked above.
        return unsafe { avx2::across(rows, left, source, taps, to) };
    }
    across_portable(rows, left, source, taps, to);
}

fn across_portable(rows: [&[u8]; ROWS], left: usize, source: Source<'_>, taps: &Taps, to: &mut [u8]) {
    let (pitch, plane) = (to.len() / ROWS, taps.places.len().next_multiple_of(GROUP));
    for (i, (first, pairs)) in taps.all().enumerate().filter(|(_, (_, pairs))| !pairs.is_empty()) {
        for (from, to) in rows.into_iter().zip(to.chunks_exact_mut(pitch)) {
            let mut sums = [1 << (PRECISION - 1); 3];
            for (k, weight) in pairs.iter().flat_map(|pair| whole(*pair)).enumerate() {
                let pixel = &from[(first - left + k) * source.step..];
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = i32::wrapping_add(*sum, weight * i32::from(pixel[c * source.channel]));
                }
            }
            for (c, sum) in sums.into_iter().enumerate() {
                to[c * plane + i] = clip(sum);
            }
        }
    }
}

/// Computes a row of the result from rows that are `pitch` bytes apart.
fn down(rows: &[u8], pitch: usize, pairs: &[Pair], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU supports AVX2, as checked above.
        return unsafe { avx2::down(rows, pitch, pairs, to) };
    }
    down_portable(rows, pitch, pairs, to);
}

fn down_portable(rows: &[u8], pitch: usize, pairs: &[Pair], to: &mut [u8]) {
    for (x, to) in to.iter_mut().enumerate() {
        let weights = pairs.iter().flat_map(|pair| whole(*pair)).enumerate().filter(|(_, weight)| *weight != 0);
        let sum = weights.fold(1 << (PRECISION - 1), |sum: i32, (k, weight)| {
            sum.wrapping_add(weight * i32::from(rows[k * pitch + x]))
        });
        *to = clip(sum);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{BLOCK, GROUP, LOW, PRECISION, Pair, ROWS, Source, Taps};

    /// Sums of 32-bit numbers, in two vectors.
    #[derive(Clone, Copy)]
    struct Sum {
        high: __m256i,
        low: __m256i,
    }

    impl Sum {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn new() -> Self {
            Self { high: _mm256_setzero_si256(), low: _mm256_setzero_si256() }
        }

        /// Adds the products of pairs of 16-bit numbers.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn add(&mut self, numbers: __m256i, [high, low]: &Pair) {
            self.high = _mm256_add_epi32(self.high, _mm256_madd_epi16(numbers, _mm256_set1_epi32(*high)));
            self.low = _mm256_add_epi32(self.low, _mm256_madd_epi16(numbers, _mm256_set1_epi32(*low)));
        }

        /// Rounds the sums to whole numbers.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn rounded(self) -> __m256i {
            let sum = _mm256_add_epi32(_mm256_slli_epi32::<{ LOW as i32 }>(self.high), self.low);
            _mm256_srai_epi32::<{ PRECISION as i32 }>(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (PRECISION - 1))))
        }
    }

    /// Resizes rows to planes, with AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) fn across(rows: [&[u8]; ROWS], left: usize, source: Source<'_>, taps: &Taps, to: &mut [u8]) {
        let Source { step, channel, .. } = source;
        // Moves the two pixels' values of a channel next to each other, as numbers of 16 bits.
        let mut order = [-1_i8; 16];
        for c in 0..3 {
            order[4 * c] = (c * channel) as i8;
            order[4 * c + 2] = (step + c * channel) as i8;
        }
        // SAFETY: there are 16 bytes to read.
        let order = _mm256_broadcastsi128_si256(unsafe { load(order.as_ptr().cast()) });
        // Moves the values of a channel of four pixels next to each other.
        let by_channel =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        let (pitch, plane) = (to.len() / ROWS, taps.places.len().next_multiple_of(GROUP));
        let len = rows[0].len().min(rows[1].len()).min(rows[2].len()).min(rows[3].len());
        let mut from = 0;
        for (i, places) in taps.places.chunks(GROUP).enumerate() {
            // For each pixel, the sums of the first two rows, and of the other two.
            let mut sums = [[_mm256_setzero_si256(); GROUP]; 2];
            for (k, &(first, end)) in places.iter().enumerate() {
                let pairs = &taps.pairs[from..end as usize];
                from = end as usize;
                if pairs.is_empty() {
                    continue;
                }
                let start = (first as usize - left) * step;
                let last = start + 2 * (pairs.len() - 1) * step;
                assert!(last + 16 <= len, "there are bytes behind the last row");
                let mut two = [Sum::new(); 2];
                for (pair, at) in pairs.iter().zip((start..).step_by(2 * step)) {
                    for (r, sum) in two.iter_mut().enumerate() {
                        // SAFETY: there are 16 bytes to read up to the last pair, as checked above.
                        let pixels = unsafe {
                            _mm256_set_m128i(load(rows[2 * r + 1].as_ptr().add(at)), load(rows[2 * r].as_ptr().add(at)))
                        };
                        sum.add(_mm256_shuffle_epi8(pixels, order), pair);
                    }
                }
                (sums[0][k], sums[1][k]) = (two[0].rounded(), two[1].rounded());
            }
            for ([a, b, c, d], rows) in sums.into_iter().zip(to.chunks_exact_mut(2 * pitch)) {
                let bytes = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
                let bytes = _mm256_shuffle_epi8(bytes, by_channel);
                let numbers = [
                    [
                        _mm256_extract_epi32::<0>(bytes),
                        _mm256_extract_epi32::<1>(bytes),
                        _mm256_extract_epi32::<2>(bytes),
                    ],
                    [
                        _mm256_extract_epi32::<4>(bytes),
                        _mm256_extract_epi32::<5>(bytes),
                        _mm256_extract_epi32::<6>(bytes),
                    ],
                ];
                for (row, numbers) in rows.chunks_exact_mut(pitch).zip(numbers) {
                    for (c, four) in numbers.into_iter().enumerate() {
                        row[c * plane + i * GROUP..][..GROUP].copy_from_slice(&four.to_le_bytes());
                    }
                }
            }
        }
    }

    /// Loads 16 bytes.
    ///
    /// # Safety
    ///
    /// They must be readable.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(bytes: *const u8) -> __m128i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm_loadu_si128(bytes.cast()) }
    }

    /// Computes a row of the result from rows that are `pitch` bytes apart, with AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) fn down(rows: &[u8], pitch: usize, pairs: &[Pair], to: &mut [u8]) {
        // If the second row of the last pair has no weight, it may not exist, so the first one is used twice.
        let is_double = pairs.last().is_some_and(|[high, low]| (high | low) as u32 >> 16 != 0);
        let count = (2 * pairs.len()).saturating_sub(usize::from(!is_double));
        assert!(count.saturating_sub(1) * pitch + to.len() <= rows.len(), "rows are whole blocks");
        for (block, to) in to.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let mut sums = [Sum::new(); 2];
            for (k, pair) in pairs.iter().enumerate() {
                let at = block * BLOCK + 2 * k * pitch;
                let next = if 2 * k + 1 < count { at + pitch } else { at };
                // SAFETY: there is a block in each of `count` rows, as checked above.
                let [a, b] = unsafe { [load(rows.as_ptr().add(at)), load(rows.as_ptr().add(next))] };
                sums[0].add(_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)), pair);
                sums[1].add(_mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b)), pair);
            }
            // The instructions that pack numbers work on the halves of a vector separately.
            let words =
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(sums[0].rounded(), sums[1].rounded()));
            let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            // SAFETY: there are 16 bytes to write.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), bytes) };
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_gets_the_same_bytes() {
        if !has_avx2() {
            return;
        }
        for (len, size) in [(1, 3), (2, 1), (61, 23), (40, 90)] {
            for filter in Resampling::ALL.map(|(_, filter)| filter) {
                let mut map = AxisMap::all(len);
                map.resize(size);
                let mut taps = Taps::default();
                taps.set(&map, filter.into(), 0);
                // Mostly 255 and 0, so that sums are out of range.
                let noise = |i: usize| if i * i % 7 < 3 { 255 } else { (i * i % 11) as u8 };
                for (step, channel) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
                    let stride = len * step;
                    let samples: Vec<u8> = (0..ROWS * stride + STRIDE).map(noise).collect();
                    let source = Source { samples: &samples, stride, step, channel, skipped: [0; 2] };
                    let rows = [0, 1, 2, 3].map(|y| &samples[y * stride..]);
                    let (mut one, mut other) = (vec![0; ROWS * pitch(size)], vec![1; ROWS * pitch(size)]);
                    across_portable(rows, 0, source, &taps, &mut one);
                    // SAFETY: the CPU supports AVX2, as checked above.
                    unsafe { avx2::across(rows, 0, source, &taps, &mut other) };
                    // The padding differs.
                    let pixels = |rows: Vec<u8>| -> Vec<Vec<u8>> {
                        let planes = rows
                            .chunks_exact(pitch(size))
                            .flat_map(|row| row.chunks_exact(size.next_multiple_of(GROUP)).take(3));
                        planes.map(|plane| plane[..size].to_vec()).collect()
                    };
                    assert_eq!(pixels(one), pixels(other), "{len} to {size}, {filter:?}, {step}");
                }
                let rows: Vec<u8> = (0..len * 2 * BLOCK).map(noise).collect();
                for (first, pairs) in taps.all() {
                    let (mut one, mut other) = ([0; 2 * BLOCK], [1; 2 * BLOCK]);
                    down_portable(&rows[first * 2 * BLOCK..], 2 * BLOCK, pairs, &mut one);
                    // SAFETY: the CPU supports AVX2, as checked above.
                    unsafe { avx2::down(&rows[first * 2 * BLOCK..], 2 * BLOCK, pairs, &mut other) };
                    assert_eq!(one, other, "{len} to {size}, {filter:?}");
                }
            }
        }
    }
}
