//! Carries out the plan of one picture, in memory that a thread keeps.

use std::cell::RefCell;

use crate::axis_map::AxisMap;
use crate::channel::{Channel, Planes};
use crate::decode::{DecodeRequest, Frame, Memory, OpenedImage, Orientation, OtherChannels, Picture, room};
use crate::error::ImageError;
use crate::exact::{Resampler, Source, interleaved};
use crate::number::Number;
use crate::operation::{Operation, Pixels, erase};
use crate::paint::{Canvas, Layout, Target, convert, fill};
use crate::plan::{Plan, Segment};
use crate::resample::{Plane, Rows, STRIDE};
use crate::taps::{LANES, Tables};
use crate::transform::Normalize;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The memory that a thread keeps from one picture to the next.
#[derive(Debug, Default)]
struct Scratch {
    memory: Memory,
    canvas: Canvas,
    /// The pictures between two passes, as planes of red, green and blue.
    between: [Vec<u8>; 2],
    /// A buffer of numbers for one plane, for filters.
    numbers: Vec<f32>,
    resampler: Resampler,
}

/// Returns how many bytes a thread keeps, at most, after pictures of this size were transformed by
/// this plan.
pub(crate) fn memory(plan: &Plan, [height, width]: [usize; 2], turned: bool) -> usize {
    // Four channels, or planes that are rounded up to whole blocks.
    let mut sum = (height + 32) * (width + 32) * 4 + 2 * STRIDE;
    let (mut tables, mut rows, mut resampled, mut widest) = (0, 0, 0, 0);
    let mut size = [height, width];
    for (i, segment) in plan.segments.iter().enumerate() {
        let of = |direction: usize| {
            // For another picture, the drawn crop may be larger than in this plan.
            let places = segment.places[direction];
            Tables::memory(size[direction], places.size, places.out)
        };
        // Rows and columns may be exchanged. The first plane and the other two have separate
        // tables.
        tables = tables.max(2 * (of(0) + of(1)));
        let width = if turned && i == 0 { size[0].max(size[1]) } else { size[1] };
        rows = rows.max(Rows::memory(width, 4).max(3 * Rows::memory(width + 32, 1)));
        if plan.exact {
            resampled = resampled.max(Resampler::memory(segment, size));
        }
        size = segment.places.map(|places| places.out);
        widest = widest.max(size[0] * size[1]);
        let blurred = segment.operations.iter().map(|operation| match operation {
            Operation::GaussianBlur { kernel_size: [across, down], .. } => {
                size_of::<f32>() * (size[0] * size[1] + 2 * (across + size[1]) + down)
            }
            _ => 0,
        });
        sum += blurred.max().unwrap_or(0);
    }
    sum += if plan.exact { resampled } else { tables + rows };
    let direct = plan.segments.len() == 1 && plan.segments[0].operations.is_empty() && !turned;
    if plan.exact || !direct {
        if plan.exact && turned {
            widest = widest.max(height * width);
        }
        sum += 2 * (3 * widest + STRIDE);
    }
    sum
}

/// Decodes a picture and runs all passes. Returns whether the decoder warned about it.
#[inline(always)]
pub(crate) fn run<T: Number>(
    opened: OpenedImage<'_>,
    orientation: Orientation,
    plan: &Plan,
    [reduced, whole]: [bool; 2],
    channels: &[[Channel; 3]; 2],
    layout: Layout,
    out: &mut [T],
) -> Result<bool, ImageError> {
    SCRATCH.with_borrow_mut(|Scratch { memory, canvas, between, numbers, .. }| {
        let [current, other] = between;
        let identity = Channel::all(Planes::Rgb, [0.0; 3], [1.0 / 255.0; 3]);
        let (first, rest) = plan.segments.split_first().expect("a plan has a segment");
        let places = stored(first.places, orientation, [opened.height, opened.width]);
        let request = DecodeRequest { reduced, whole, ..wanted(first, places) };
        let picture = opened.decode(memory, request)?;
        let of_picture = &channels[usize::from(picture.colours == Planes::Rgb)];
        if rest.is_empty() && first.operations.is_empty() && !orientation.transposed {
            let target = Target { places, channels: of_picture, layout, fill: fraction(first) };
            canvas.paint(&picture, target, out);
            erase_all(plan, layout, out);
            return Ok(memory.warned);
        }
        let bytes = Channel::all(picture.colours, [0.0; 3], [1.0 / 255.0; 3]);
        let target = Target { places, channels: &bytes, layout: Layout::Chw, fill: fraction(first) };
        paint_between(canvas, &picture, target, current)?;
        let mut size = places.map(|places| places.out);
        if orientation.transposed {
            transpose(current, size, other)?;
            std::mem::swap(current, other);
            size = [size[1], size[0]];
        }
        Pixels { planes: current, other, numbers, size }.run(&first.operations, false);
        for segment in rest {
            let target =
                Target { places: segment.places, channels: &identity, layout: Layout::Chw, fill: fraction(segment) };
            paint_between(canvas, &planes(current, size), target, other)?;
            std::mem::swap(current, other);
            size = segment.places.map(|places| places.out);
            Pixels { planes: current, other, numbers, size }.run(&segment.operations, false);
        }
        convert(current, size[0] * size[1], &channels[1], layout, out);
        erase_all(plan, layout, out);
        Ok(memory.warned)
    })
}

/// Returns the part of a picture that the first pass needs, from the maps of its stored rows and
/// columns.
fn wanted(first: &Segment, places: [AxisMap; 2]) -> DecodeRequest {
    DecodeRequest {
        window: places.map(|places| places.window(first.filter.resampling.support())),
        crop: places.map(|places| places.crop[1] - places.crop[0]),
        size: places.map(|places| places.size),
        reduced: false,
        exact: false,
        whole: false,
    }
}

/// Decodes a picture and runs all passes with Pillow's exact results. Returns whether the decoder
/// warned about the picture.
#[inline(always)]
pub(crate) fn run_exact<T: Number>(
    opened: OpenedImage<'_>,
    orientation: Orientation,
    plan: &Plan,
    whole: bool,
    normalize: Normalize,
    layout: Layout,
    out: &mut [T],
) -> Result<bool, ImageError> {
    run_planes(opened, orientation, plan, whole, |planes, warned| {
        // Divisions and differences are rounded as in torch.
        let area = plan.size().iter().product::<usize>();
        for c in 0..3 {
            let number = |byte: usize| T::of((byte as f32 / 255.0 - normalize.mean[c]) / normalize.std[c]);
            let numbers: [T; 256] = std::array::from_fn(number);
            let bytes = planes[c * area..][..area].iter().map(|&byte| numbers[usize::from(byte)]);
            match layout {
                Layout::Chw => out[c * area..][..area].iter_mut().zip(bytes).for_each(|(out, number)| *out = number),
                Layout::Hwc => {
                    out.as_chunks_mut::<3>().0.iter_mut().zip(bytes).for_each(|(out, number)| out[c] = number)
                }
            }
        }
        erase_all(plan, layout, out);
        warned
    })
}

/// Decodes a picture, runs all passes with Pillow's exact results, and calls `then` with the planes
/// and with whether the decoder warned about the picture.
pub(crate) fn run_planes<R>(
    opened: OpenedImage<'_>,
    orientation: Orientation,
    plan: &Plan,
    whole: bool,
    then: impl FnOnce(&[u8], bool) -> R,
) -> Result<R, ImageError> {
    SCRATCH.with_borrow_mut(|Scratch { memory, between, numbers, resampler, .. }| {
        let [current, other] = between;
        let (first, stored_size) = (&plan.segments[0], [opened.height, opened.width]);
        let places = stored(first.places, orientation, stored_size);
        let request = DecodeRequest { exact: true, whole, ..wanted(first, places) };
        let picture = opened.decode(memory, request)?;
        let decoded = Source::new(&picture);
        let mut size = [0; 2];
        for (i, segment) in plan.segments.iter().enumerate() {
            let source = if i > 0 {
                interleaved(current, size, other)?
            } else if orientation == Orientation::default() {
                decoded
            } else {
                decoded.upright(orientation, stored_size, request.window, other)?
            };
            size = segment.places.map(|places| places.out);
            grow(current, 3 * size[0] * size[1])?;
            resampler.run(source, segment, current)?;
            let identity = Channel::all(Planes::Rgb, [0.0; 3], [1.0 / 255.0; 3]);
            let target =
                Target { places: segment.places, channels: &identity, layout: Layout::Chw, fill: fraction(segment) };
            fill::<[u16; LANES], u8>(target, current);
            Pixels { planes: current, other, numbers, size }.run(&segment.operations, true);
        }
        Ok(then(&current[..3 * size[0] * size[1]], memory.warned))
    })
}

/// Carries out the erasing that comes after normalisation.
#[inline(always)]
fn erase_all<T: Number>(plan: &Plan, layout: Layout, out: &mut [T]) {
    for operation in &plan.after {
        if let Operation::Erase { top, left, height, width, value } = *operation {
            erase(out, layout, plan.size(), [top, left], [height, width], value, T::of);
        }
    }
}

/// Returns the maps of the stored rows and columns, from the maps of the upright picture.
fn stored([rows, columns]: [AxisMap; 2], orientation: Orientation, [height, width]: [usize; 2]) -> [AxisMap; 2] {
    let (mut rows, mut columns) = if orientation.transposed { (columns, rows) } else { (rows, columns) };
    if orientation.rows_reversed {
        rows = rows.reversed(height);
    }
    if orientation.columns_reversed {
        columns = columns.reversed(width);
    }
    [rows, columns]
}

fn fraction(segment: &Segment) -> [f32; 3] {
    segment.fill.map(|colour| f32::from(colour) / 255.0)
}

/// Resizes a picture to planes of bytes, for the next pass.
fn paint_between(
    canvas: &mut Canvas,
    picture: &Picture<'_>,
    target: Target<'_>,
    out: &mut Vec<u8>,
) -> Result<(), ImageError> {
    let len = 3 * target.places[0].out * target.places[1].out;
    grow(out, len)?;
    canvas.paint(picture, target, &mut out[..len]);
    Ok(())
}

/// Sets the length of a vector to `len` plus the bytes after them that vector instructions may
/// read, without spare capacity.
fn grow(bytes: &mut Vec<u8>, len: usize) -> Result<(), ImageError> {
    room(bytes, len)?;
    bytes.truncate(len + STRIDE);
    Ok(())
}

/// Creates a picture from three planes of bytes.
fn planes(samples: &[u8], [height, width]: [usize; 2]) -> Picture<'_> {
    let plane = |i: usize| Plane { samples: &samples[i * height * width..], stride: width, step: 1 };
    let frames = [Frame::same(height), Frame::same(width)];
    Picture {
        colours: Planes::Rgb,
        first: plane(0),
        others: OtherChannels::Planes([plane(1), plane(2)]),
        frames: [frames; 2],
    }
}

/// Transposes each of three planes.
fn transpose(from: &[u8], [height, width]: [usize; 2], to: &mut Vec<u8>) -> Result<(), ImageError> {
    let area = height * width;
    grow(to, 3 * area)?;
    for (from, to) in from.chunks_exact(area).zip(to.chunks_exact_mut(area)).take(3) {
        for (y, row) in from.chunks_exact(width).enumerate() {
            for (x, &value) in row.iter().enumerate() {
                to[x * height + y] = value;
            }
        }
    }
    Ok(())
}
