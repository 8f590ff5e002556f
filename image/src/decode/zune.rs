//! Decodes JPEGs with zune-jpeg, which is pure Rust. A picture is always decoded as a whole, to
//! packed pixels.
//!
//! The decoder rejects many files that PIL reads, and accepts many damaged files silently. So it
//! gets a rewritten file with only the tables and the scans. This module checks the structure of
//! the file and chooses the colours, by libjpeg's rules.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::exif::Segments;
use super::shared::{MAX_SCANS, ends, most_scans, to_rgb};
use super::{DecodeRequest, Frame, Limits, MAX_SIDE, Memory, Orientation, Picture, data, room};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    strict: bool,
    header: Header,
}

/// The contents of a JPEG's header.
struct Header {
    height: usize,
    width: usize,
    colours: Colours,
    progressive: bool,
    /// Whether the channels are named R, G and B. The decoder then assumes that they are red, green
    /// and blue.
    named_rgb: bool,
    /// For each channel its name, and its sampling factors (across, down).
    channels: Vec<(u8, [usize; 2])>,
    /// Whether libjpeg warns about the header.
    warned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Colours {
    Grey,
    Rgb,
    YCbCr,
    /// CMYK: four inks.
    Cmyk,
    /// YCCK: three inks as brightness and differences, and black.
    Ycck,
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8], limits: Limits) -> Result<(Self, [usize; 2]), ImageError> {
        let fault = |message: &str| data(Format::Jpeg, bytes, message);
        let (mut frame, mut jfif, mut adobe) = (None, None, None);
        for (marker, data) in Segments::new(bytes) {
            match marker {
                0xc4 | 0xc8 | 0xcc => {}
                0xc0..=0xcf => frame = frame.or(Some((marker, data))),
                0xe0 if data.len() >= 14 && data.starts_with(b"JFIF\0") => jfif = Some(data[5]),
                0xee if data.len() >= 12 && data.starts_with(b"Adobe") => adobe = Some(data[11]),
                _ => {}
            }
        }
        let (marker, frame) = frame.ok_or_else(|| fault("it contains no image"))?;
        let needs_turbo = |kind| Err(ImageError::NeedsTurbo { kind });
        if !matches!(marker, 0xc0..=0xc3 | 0xc9 | 0xca) {
            return Err(fault("it is hierarchical, or without loss and with arithmetic coding"));
        }
        let (&[bits, h1, h0, w1, w0, count], channels) =
            frame.split_first_chunk().ok_or_else(|| fault("its frame header is too short"))?;
        if bits != 8 {
            return Err(fault(&format!("its colours have {bits} bits, not 8")));
        }
        let channels: Vec<_> = channels
            .chunks_exact(3)
            .map(|channel| (channel[0], [channel[1] >> 4, channel[1] & 15].map(usize::from)))
            .collect();
        if channels.len() != usize::from(count)
            || channels.iter().any(|(_, per)| per.iter().any(|it| !(1..5).contains(it)))
            || (1..channels.len()).any(|i| channels[..i].iter().any(|(name, _)| *name == channels[i].0))
        {
            return Err(fault("its frame header is invalid"));
        }
        let named_rgb = channels.iter().map(|(name, _)| *name).eq(*b"RGB");
        // These are libjpeg's rules. If three channels have other names, libjpeg warns only if
        // there is an Adobe segment.
        let (colours, unknown) = match (count, adobe) {
            (1, _) => (Colours::Grey, false),
            (3, _) if jfif.is_some() => (Colours::YCbCr, false),
            (3, Some(transform)) => (if transform == 0 { Colours::Rgb } else { Colours::YCbCr }, transform > 1),
            (3, None) => (if named_rgb { Colours::Rgb } else { Colours::YCbCr }, false),
            (4, Some(transform)) => {
                (if transform == 0 { Colours::Cmyk } else { Colours::Ycck }, !matches!(transform, 0 | 2))
            }
            (4, None) => (Colours::Cmyk, false),
            _ => return Err(fault(&format!("it has {count} channels"))),
        };
        match marker {
            0xc3 => return needs_turbo("without loss"),
            0xc9 | 0xca => return needs_turbo("with arithmetic coding"),
            _ => {}
        }
        // The decoder gets other sampling wrong: if the first channel does not have all samples, or
        // if ratios are not 1, 2 or 4.
        let ratios = [0, 1].map(|direction| channels.iter().map(move |(_, per)| per[direction]));
        let unusual = ratios.into_iter().any(|mut per| {
            let first = per.next().unwrap_or(1);
            !first.is_power_of_two() || per.any(|it| it != 1 && it != first)
        });
        // The decoder also gets pictures wrong in which the first channel has a factor of four and
        // others have more than one sample.
        let mixed = channels[0].1.contains(&4) && channels[1..].iter().any(|(_, per)| *per != [1, 1]);
        if count > 1 && (unusual || mixed) {
            return needs_turbo("with an unusual sampling of its colours");
        }
        let warned = unknown || jfif.is_some_and(|version| version != 1);
        let [height, width] = [[h1, h0], [w1, w0]].map(|side| usize::from(u16::from_be_bytes(side)));
        let progressive = marker == 0xc2;
        let header = Header { height, width, colours, progressive, named_rgb, channels, warned };
        Ok((Self { bytes, strict: limits.strict, header }, [height, width]))
    }

    pub(super) fn orientation(&self) -> Orientation {
        Orientation::of_jpeg(self.bytes)
    }

    pub(super) fn decode(self, memory: &mut Memory, _: DecodeRequest) -> Result<Picture<'_>, ImageError> {
        let fault = |message: String| data(Format::Jpeg, self.bytes, message);
        let Header { height, width, colours, named_rgb, .. } = self.header;
        if !ends(self.bytes) {
            return Err(fault("it has no end marker".to_owned()));
        }
        let plain = self.plain()?;
        let (channels, space) = match colours {
            Colours::Grey => (1, ColorSpace::Luma),
            // The decoder does not convert data whose colour space it takes to be that of its
            // output.
            Colours::Rgb if !named_rgb => (3, ColorSpace::YCbCr),
            Colours::Rgb | Colours::YCbCr => (3, ColorSpace::RGB),
            Colours::Cmyk | Colours::Ycck => (4, ColorSpace::CMYK),
        };
        // Checks that the memory can be allocated: the decoder would abort the process if there
        // were not enough for all coefficients.
        reserve(&mut Vec::new(), self.working_memory())?;
        let pixels = &mut room(&mut memory.samples, channels * width * height)?[..channels * width * height];
        let mut warned = plain.warned;
        if let Err(message) = run(&plain.bytes, space, true, pixels) {
            if self.strict {
                return Err(fault(message));
            }
            warned = true;
            run(&plain.bytes, space, false, pixels).map_err(fault)?;
        }
        if warned && self.strict {
            return Err(fault("it has an unknown version, or bytes that do not belong there".into()));
        }
        memory.warned = warned;
        if colours == Colours::YCbCr && named_rgb {
            for pixel in memory.samples[..3 * width * height].as_chunks_mut().0 {
                *pixel = of_differences(*pixel);
            }
        }
        if channels == 4 {
            for pixel in memory.samples[..4 * width * height].as_chunks_mut().0 {
                if colours == Colours::Ycck {
                    let [y, cb, cr, _] = *pixel;
                    let [r, g, b] = of_differences([y, cb, cr]);
                    [pixel[0], pixel[1], pixel[2]] = [255 - r, 255 - g, 255 - b];
                }
                to_rgb(pixel);
            }
        }
        Ok(Picture::packed(&memory.samples, channels, [Frame::same(height), Frame::same(width)]))
    }

    /// Returns a file with only what the decoder needs, and checks the structure of the original.
    fn plain(&self) -> Result<Plain, ImageError> {
        let fault = |message: &str| data(Format::Jpeg, self.bytes, message);
        let needs_turbo = |kind| Err(ImageError::NeedsTurbo { kind });
        let Header { height, width, colours, progressive, .. } = self.header;
        let most = most_scans(width * height);
        let mut bytes = Vec::new();
        reserve(&mut bytes, self.bytes.len() + 64)?;
        // This header makes the decoder use the standard tables where tables are missing, as in
        // frames of a video.
        bytes.extend(b"\xff\xd8\xff\xe0\0\x07AVI1\0");
        for (marker, data) in Segments::new(self.bytes).filter(|(marker, _)| matches!(marker, 0xc0..=0xc2 | 0xdb)) {
            push(&mut bytes, marker, data);
            // A single channel has all samples, whatever its sampling factors are.
            if marker <= 0xc2 && colours == Colours::Grey {
                let sampling = bytes.len() - 2;
                bytes[sampling] = 0x11;
            }
        }
        if progressive {
            // Adds a first scan that changes nothing: one bit of each first coefficient, which is
            // zero. Its end marker follows at once; for other scans the decoder searches for the
            // end.
            push(&mut bytes, 0xda, &[1, self.header.channels[0].0, 0, 0, 0, 0x10]);
            bytes.push(0);
        }
        let mut segments = Segments::new(self.bytes);
        let (mut warned, mut frames, mut scans, mut interval) = (self.header.warned, 0, 0, 0);
        let mut known = vec![[None; 64]; self.header.channels.len()];
        loop {
            for (marker, data) in segments.by_ref() {
                match marker {
                    0xc4 | 0xcc => {}
                    0x02..=0xbf | 0xc8 | 0xde | 0xdf | 0xf0..=0xfd => return Err(fault("it has an unknown marker")),
                    0xc0..=0xcf => frames += 1,
                    // The decoder would ignore tables that follow the first scan of a progressive
                    // file.
                    0xdb if scans > 0 && progressive => return needs_turbo("whose quantisation changes between scans"),
                    0xdd => {
                        let &[high, low] = data else { return Err(fault("its restart interval is invalid")) };
                        interval = usize::from(u16::from_be_bytes([high, low]));
                    }
                    _ => {}
                }
                if frames > 1 {
                    return Err(fault("it has two frame headers"));
                }
                // Segments after the only scan have no effect.
                if matches!(marker, 0xc4 | 0xdd) && (progressive || scans == 0) {
                    push(&mut bytes, marker, data);
                }
            }
            if !segments.rest.starts_with(&[0xff, 0xda]) {
                break;
            }
            scans += 1;
            if scans > most {
                return Err(fault(&format!("it has more than {most} scans")));
            }
            let scan = self.scan(segments.rest).ok_or_else(|| fault("the header of a scan is invalid"))?;
            if !progressive {
                if scan.channels.len() < self.header.channels.len() {
                    return needs_turbo("whose channels have scans of their own");
                }
                if scans > 1 {
                    return Err(fault("it has a second scan of all channels"));
                }
                warned |= scan.parameters != [0, 63, 0];
            } else if !scan.follows(&mut known) {
                return needs_turbo("whose scans are in an unusual order");
            }
            bytes.extend(&segments.rest[..scan.len]);
            let (len, restarts) = copy_coefficients(&segments.rest[scan.len..], &mut bytes).map_err(fault)?;
            if interval > 0 {
                let per = if let [channel] = scan.channels[..] { self.header.channels[channel].1 } else { [1, 1] };
                let expected = self.units(per).div_ceil(interval).saturating_sub(1);
                // Some programs write a restart marker at the end, too.
                if restarts != expected && restarts != expected + 1 {
                    return Err(fault(&format!("it has {restarts} restart markers, not {expected}")));
                }
            }
            // Bits that refine coefficients have no invalid codes, but the decoder stops at a
            // marker that it does not know. (At the end of a restart interval it would stop in any
            // case.)
            if progressive && interval == 0 {
                push(&mut bytes, 2, &[]);
            }
            segments.rest = &segments.rest[scan.len + len..];
        }
        if !segments.rest.starts_with(&[0xff, 0xd9]) {
            return Err(fault("it has a second start, a segment of an invalid length, or no end"));
        }
        bytes.extend([0xff, 0xd9]);
        Ok(Plain { bytes, warned: warned || segments.skipped })
    }

    /// Reads the header of the scan at the start of `bytes`, as strictly as libjpeg. Returns `None`
    /// if the header is invalid.
    fn scan(&self, bytes: &[u8]) -> Option<Scan> {
        let &[_, _, high, low, count, ref rest @ ..] = bytes else { return None };
        let len = usize::from(u16::from_be_bytes([high, low]));
        let (names, rest) = rest.split_at_checked(2 * usize::from(count))?;
        let &parameters = rest.first_chunk()?;
        let is_named = |name: u8| names.chunks(2).any(|it| it[0] == name);
        let all = self.header.channels.iter();
        let channels: Vec<_> = all.enumerate().filter(|(_, (name, _))| is_named(*name)).map(|(i, _)| i).collect();
        let blocks = channels.iter().map(|&i| self.header.channels[i].1).map(|[across, down]| across * down);
        let [start, end, bits] = parameters;
        let (before, after) = (bits >> 4, bits & 15);
        let progression = start <= end
            && end < 64
            && if start == 0 { end == 0 } else { count == 1 }
            && after < 14
            && (before == 0 || before == after + 1);
        let valid = len == 6 + names.len()
            // If the numbers differ, a channel is unknown, or named twice.
            && channels.len() == usize::from(count)
            && count > 0
            && (count == 1 || blocks.sum::<usize>() <= 10)
            && (progression || !self.header.progressive);
        valid.then_some(Scan { len: 2 + len, channels, parameters })
    }

    /// Returns how many bytes the decoder allocates, apart from a few for each column.
    fn working_memory(&self) -> usize {
        let Header { progressive, channels, .. } = &self.header;
        let per_unit: usize = channels.iter().map(|(_, per)| 64 * per[0] * per[1]).sum();
        if *progressive { 2 * per_unit * self.units([1, 1]) } else { 0 }
    }

    /// Returns the number of units (MCUs) of a scan, between which restart markers are counted.
    /// `per` is `[1, 1]` for a scan of several channels, and otherwise the sampling factors of the
    /// scan's only channel.
    fn units(&self, per: [usize; 2]) -> usize {
        let Header { height, width, channels, .. } = &self.header;
        let most = |direction: usize| channels.iter().map(|(_, per)| per[direction]).max().unwrap_or(1);
        (width * per[0]).div_ceil(8 * most(0)) * (height * per[1]).div_ceil(8 * most(1))
    }
}

/// The rewritten file that the decoder gets, with only tables and scans.
struct Plain {
    bytes: Vec<u8>,
    warned: bool,
}

/// The header of a scan.
struct Scan {
    /// The length of the header with its marker, in bytes.
    len: usize,
    /// The indices of the scan's channels.
    channels: Vec<usize>,
    /// The first coefficient, the last coefficient, and the byte with their bit positions.
    parameters: [u8; 3],
}

/// Reserves memory.
fn reserve(memory: &mut Vec<u8>, bytes: usize) -> Result<(), ImageError> {
    memory.try_reserve_exact(bytes).map_err(|_| ImageError::Memory { bytes })
}

impl Scan {
    /// Whether this scan may follow the earlier scans of a progressive file. `known` has the lowest
    /// bit that is known so far of each coefficient of each channel. The scan's coefficients must
    /// all be unknown, or all be known down to the bit from which the scan continues. The DC
    /// coefficient must come before the others. Updates `known`.
    fn follows(&self, known: &mut [[Option<u8>; 64]]) -> bool {
        let [start, end, bits] = self.parameters;
        let before = Some(bits >> 4).filter(|&bit| bit > 0);
        self.channels.iter().all(|&channel| {
            let known = &mut known[channel];
            let follows = (start == 0 || known[0].is_some())
                && known[usize::from(start)..=usize::from(end)].iter().all(|bit| *bit == before);
            known[usize::from(start)..=usize::from(end)].fill(Some(bits & 15));
            follows
        })
    }
}

/// Appends a segment.
fn push(bytes: &mut Vec<u8>, marker: u8, data: &[u8]) {
    bytes.extend([0xff, marker]);
    bytes.extend((data.len() as u16 + 2).to_be_bytes());
    bytes.extend(data);
}

/// 64 ones, which are not a valid code. They are added after all coefficients: if coefficients are
/// missing, the decoder would otherwise take a marker for an endless number of zeros. It reads less
/// than 64 bits ahead.
const ONES: [u8; 16] = [0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0];

/// Appends the coefficients of a scan to `out`. Returns their length in bytes, and the number of
/// restart markers, which must be in order.
fn copy_coefficients(bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, usize), &'static str> {
    let (mut from, mut at, mut restarts) = (0, 0, 0);
    while let Some(len) = bytes[at..].chunks(64).position(|chunk| chunk.contains(&0xff)) {
        at += 64 * len;
        at += bytes[at..].iter().position(|&byte| byte == 0xff).expect("these 64 bytes have one");
        match bytes.get(at + 1) {
            Some(0) => at += 2,
            // A fill byte.
            Some(0xff) => {
                out.extend(&bytes[from..at]);
                at += 1;
                from = at;
            }
            Some(marker @ 0xd0..=0xd7) => {
                if usize::from(marker & 7) != restarts % 8 {
                    return Err("a restart marker is lost");
                }
                restarts += 1;
                out.extend(&bytes[from..at]);
                out.extend(ONES);
                from = at;
                at += 2;
            }
            _ => break,
        }
    }
    let len = if bytes[at..].starts_with(&[0xff]) { at } else { bytes.len() };
    out.extend(&bytes[from..len]);
    out.extend(ONES);
    Ok((len, restarts))
}

/// Runs the decoder. Its output has the colours of the file, or red, green and blue computed from
/// brightness and differences. Missing parts are grey unless `strict`. A panic of the decoder is
/// returned as an error.
fn run(jpeg: &[u8], space: ColorSpace, strict: bool, pixels: &mut [u8]) -> Result<(), String> {
    // Some kinds of damage leave rows unwritten without an error.
    pixels.fill(128);
    let options = DecoderOptions::default()
        .set_strict_mode(strict)
        .set_max_width(MAX_SIDE)
        .set_max_height(MAX_SIDE)
        // One more than the maximum, for the scan that `plain` adds.
        .jpeg_set_max_scans(MAX_SCANS + 1)
        .jpeg_set_out_colorspace(space);
    let decode = || JpegDecoder::new_with_options(ZCursor::new(jpeg), options).decode_into(pixels);
    let outcome = catch_unwind(AssertUnwindSafe(decode)).map_err(|_| "the decoder panicked".to_owned())?;
    outcome.map_err(|error| error.to_string().replace('\n', " "))
}

/// Converts brightness and two colour differences to red, green and blue, with libjpeg's rounding.
fn of_differences([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    let [y, cb, cr] = [i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128];
    let shifted = |sum: i32| (y + ((sum + (1 << 15)) >> 16)).clamp(0, 255) as u8;
    [shifted(91_881 * cr), shifted(-22_554 * cb - 46_802 * cr), shifted(116_130 * cb)]
}
