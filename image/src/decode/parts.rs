//! Decodes JPEGs with libjpeg-turbo: to planes of brightness and colour differences if most of the
//! picture is needed, or else only the crop.
//!
//! Planes have half as many samples as a typical RGB picture, and need no conversion, but
//! libjpeg-turbo decodes them only as a whole. It can decode a part of a picture to red, green and
//! blue. It then still has to read all bits before the part, but transforms only the blocks of the
//! part, and stops below it.

use super::exif::Segments;
use super::shared::{ends, to_rgb};
use super::turbo::{Colours, Region, Turbo};
use super::{DecodeRequest, Frame, Limits, Memory, Orientation, OtherChannels, Picture, data, room};
use crate::channel::Planes;
use crate::error::ImageError;
use crate::format::Format;
use crate::resample::Plane;

/// The number of pixels around a region that are decoded too. Without them, colours at its sides
/// would be interpolated as at the sides of the picture.
const MARGIN: usize = 2;

pub(super) struct Reader<'a> {
    turbo: Turbo<'a>,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8], limits: Limits) -> Result<(Self, [usize; 2]), ImageError> {
        let turbo = Turbo::open(bytes, limits.strict).map_err(|fault| data(Format::Jpeg, bytes, fault))?;
        let size = [turbo.header().height, turbo.header().width];
        Ok((Self { turbo, bytes }, size))
    }

    pub(super) fn orientation(&self) -> Orientation {
        Orientation::of_jpeg(self.bytes)
    }

    pub(super) fn decode(mut self, memory: &mut Memory, request: DecodeRequest) -> Result<Picture<'_>, ImageError> {
        let bytes = self.bytes;
        let faulty = |fault| data(Format::Jpeg, bytes, fault);
        // The file below a region is not read, so its end is checked here.
        if !ends(bytes) {
            return Err(faulty("it has no end marker".to_owned()));
        }
        let header = self.turbo.header();
        let denominator = if request.reduced && !header.lossless { reduction(request) } else { 1 };
        self.turbo.reduce(denominator).map_err(faulty)?;
        let mut region = self.region(request, denominator);
        // At full size, libjpeg (and so PIL) does not interpolate colours that have a quarter of
        // the width or height, or fewer than three samples.
        let usual = matches!(header.colours, Colours::YCbCr | Colours::Grey) && !header.lossless;
        let planar = header.per.filter(|[across, down]| {
            let interpolated = *across.max(down) <= 2 && (*across == 1 || header.width.div_ceil(*across) > 2);
            usual && (interpolated || denominator > 1) && !request.exact
        });
        if request.exact {
            // libjpeg smooths incomplete progressive pictures, but only if they are decoded as a
            // whole.
            region = region
                .filter(|region| !header.progressive && pays_packed(*region, self.turbo.reduced(), request.whole));
        }
        match planar {
            Some(per) if region.is_none_or(|region| !pays(region, self.turbo.reduced(), denominator, request)) => {
                self.planes(memory, per, denominator)
            }
            _ => {
                if request.whole && region.is_some() && !header.progressive {
                    self.skim(memory)?;
                    self.turbo.reduce(denominator).map_err(faulty)?;
                }
                self.packed(memory, region, denominator)
            }
        }
    }

    /// Reads all bits, at the smallest size, in order to find damage. (Any part of a progressive
    /// JPEG needs all bits anyway.)
    fn skim(&mut self, memory: &mut Memory) -> Result<(), ImageError> {
        let bytes = self.bytes;
        let faulty = |fault| data(Format::Jpeg, bytes, fault);
        self.turbo.reduce(8).map_err(faulty)?;
        let [width, height] = self.turbo.reduced();
        let pixels = room(&mut memory.samples, 4 * width * height)?;
        self.turbo.packed(pixels).map_err(faulty)
    }

    fn planes(mut self, memory: &mut Memory, per: [usize; 2], denominator: usize) -> Result<Picture<'_>, ImageError> {
        let header = self.turbo.header();
        let [first, others] = self.turbo.plane_sizes();
        let (area, other) = (first[0] * first[1], others[0] * others[1]);
        let grey = header.colours == Colours::Grey;
        let len = if grey { area } else { area + 2 * other };
        let planes = room(&mut memory.samples, len)?;
        self.turbo.planes(planes).map_err(|fault| data(Format::Jpeg, self.bytes, fault))?;
        memory.warned = self.turbo.warned;
        let samples = &memory.samples[..];
        let plane = |at: usize, stride| Plane { samples: &samples[at..], stride, step: 1 };
        // A plane may have samples beyond the picture's, up to whole blocks.
        let frames = |[across, down]: [usize; 2]| {
            [(header.height, down), (header.width, across)].map(|(side, per)| Frame {
                samples: side.div_ceil(denominator).div_ceil(per),
                scale: 1.0 / (denominator * per) as f64,
                skipped: 0.0,
            })
        };
        Ok(Picture {
            colours: Planes::YCbCr,
            first: plane(0, first[0]),
            others: if grey {
                OtherChannels::None
            } else {
                OtherChannels::Planes([plane(area, others[0]), plane(area + other, others[0])])
            },
            frames: [frames([1, 1]), frames(per)],
        })
    }

    fn packed(
        mut self,
        memory: &mut Memory,
        region: Option<Region>,
        denominator: usize,
    ) -> Result<Picture<'_>, ImageError> {
        let bytes = self.bytes;
        let faulty = |fault| data(Format::Jpeg, bytes, fault);
        if let Some(region) = region {
            self.turbo.crop(region).map_err(faulty)?;
        }
        let [width, height] = self.turbo.reduced();
        let Region { x, y, width, height } = region.unwrap_or(Region { x: 0, y: 0, width, height });
        let channels = match self.turbo.header().colours {
            Colours::Inks => 4,
            Colours::Grey => 1,
            Colours::YCbCr | Colours::Rgb => 3,
        };
        let pixels = room(&mut memory.samples, width * height * channels)?;
        self.turbo.packed(pixels).map_err(faulty)?;
        memory.warned = self.turbo.warned;
        if channels == 4 {
            memory.samples[..width * height * 4].as_chunks_mut().0.iter_mut().for_each(to_rgb);
        }
        let frame = |samples, skipped| Frame { samples, scale: 1.0 / denominator as f64, skipped: skipped as f64 };
        Ok(Picture::packed(&memory.samples, channels, [frame(height, y), frame(width, x)]))
    }

    /// Returns the region of the reduced picture that covers the window, or `None` if that is the
    /// whole picture.
    fn region(&self, request: DecodeRequest, denominator: usize) -> Option<Region> {
        let header = self.turbo.header();
        let (_, samples) = header.per.filter(|_| !header.lossless).zip(samples_across(self.bytes))?;
        let step = (8 * samples).div_ceil(denominator);
        let [width, height] = self.turbo.reduced();
        let [[top, bottom], [left, right]] = request
            .window
            .map(|[from, to]| [(from / denominator).saturating_sub(MARGIN), to.div_ceil(denominator) + MARGIN]);
        let (x, y) = (left / step * step, top);
        let region = Region { x, y, width: right.min(width) - x, height: bottom.min(height) - y };
        (region != Region { x: 0, y: 0, width, height }).then_some(region)
    }
}

/// Returns the largest denominator (1, 2, 4 or 8) by which the picture can be reduced so that the
/// crop is still at least as large as the size that it is resized to.
///
/// Other fractions (7/8 to 3/8) are not used, as libjpeg-turbo has no vector instructions for them:
/// 5/8 takes longer than the full size.
fn reduction(request: DecodeRequest) -> usize {
    let [height, width] = request.crop;
    let enough = |by: &usize| height.div_ceil(*by) >= request.size[0] && width.div_ceil(*by) >= request.size[1];
    [8, 4, 2].into_iter().find(enough).unwrap_or(1)
}

/// Whether decoding a region to RGB is faster than decoding the whole picture to planes.
///
/// The costs are in nanoseconds, measured with photographs of 500 × 375 and 2,000 × 1,500 pixels at
/// qualities of 85 to 90: 1.6 for each pixel of the file, for reading bits; 0.9 for each pixel of
/// the reduced picture, for transforming blocks. RGB costs 0.5 more for each pixel of the region,
/// for converting colours, and 0.8 more for each pixel of the result, since there are twice as many
/// samples to resize.
fn pays(region: Region, [width, height]: [usize; 2], denominator: usize, request: DecodeRequest) -> bool {
    let read = |rows: usize| 1.6 * (rows * width * denominator * denominator) as f64;
    let (all, part) = ((width * height) as f64, (region.width * region.height) as f64);
    let planes = read(height) + 0.9 * all;
    let packed = read(region.y + region.height) + 1.4 * part + 0.8 * (request.size[0] * request.size[1]) as f64;
    packed < planes
}

/// Whether decoding a region to RGB is faster than decoding all of the picture to RGB.
fn pays_packed(region: Region, [width, height]: [usize; 2], whole: bool) -> bool {
    let read = 1.6 * ((region.y + region.height) * width) as f64;
    let (all, part) = ((width * height) as f64, (region.width * region.height) as f64);
    // To check the rest of the file, all its bits are read first.
    !whole || read + 1.4 * part < 1.4 * all
}

/// Returns the largest number of samples across that a block of pixels has in any plane; a region
/// must start at a multiple of it. libjpeg-turbo's interface reports only the ratio of planes, and
/// fails if planes of the same width have two samples.
fn samples_across(bytes: &[u8]) -> Option<usize> {
    let is_frame = |marker| matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc);
    let (_, frame) = Segments::new(bytes).find(|(marker, _)| is_frame(*marker))?;
    frame.get(6..)?.chunks_exact(3).map(|plane| usize::from(plane[1] >> 4)).max()
}
