//! The operations of a plan that move pixels, one by one: which pixel of a mask moves to which
//! position, and where a box moves to.
//!
//! For pictures, which are resized with a filter, several operations can be
//! [combined](crate::axis_map). Masks take the nearest pixel, and taking the nearest pixel twice
//! may give another pixel than taking it once, and so may mirroring before or after. So for masks,
//! each operation is carried out by itself.

use crate::axis_map::PaddingMode;

/// One operation. The first number of each pair is about rows, the second about columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Movement {
    Resize {
        from: [usize; 2],
        to: [usize; 2],
    },
    Crop {
        at: [usize; 2],
        to: [usize; 2],
    },
    Mirror {
        direction: usize,
        len: usize,
    },
    /// Adds padding before and after a picture of the size `from`.
    Pad {
        from: [usize; 2],
        sides: [[usize; 2]; 2],
        padding: PaddingMode,
    },
}

/// Returns which row (`direction` 0) or column (1) of the picture is at index `i` of the result,
/// with nearest-neighbour resizing. Returns `None` for padding.
pub(crate) fn source(operations: &[Movement], direction: usize, i: usize) -> Option<usize> {
    operations.iter().rev().try_fold(i, |i, operation| match *operation {
        Movement::Resize { from, to } => Some(nearest(i, from[direction], to[direction])),
        Movement::Crop { at, .. } => Some(at[direction] + i),
        Movement::Mirror { direction: mirrored, len } => Some(if mirrored == direction { len - 1 - i } else { i }),
        Movement::Pad { from, sides, padding } => {
            let place = i as i64 - sides[direction][0] as i64;
            padding.within(place, from[direction] as i64).map(|place| place as usize)
        }
    })
}

/// Returns the pixel of a side of `from` pixels that is nearest to pixel `i` of a side of `to`
/// pixels. The rule is that of torch's `interpolate(mode="nearest")`, which computes with 32-bit
/// numbers.
fn nearest(i: usize, from: usize, to: usize) -> usize {
    let scale = from as f32 / to as f32;
    ((i as f32 * scale) as usize).min(from - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies an operation to a list of pixels, as torchvision does.
    fn apply(list: &[Option<usize>], operation: Movement) -> Vec<Option<usize>> {
        match operation {
            Movement::Resize { to, .. } => (0..to[1]).map(|i| list[nearest(i, list.len(), to[1])]).collect(),
            Movement::Crop { at, to } => list[at[1]..at[1] + to[1]].to_vec(),
            Movement::Mirror { .. } => list.iter().rev().copied().collect(),
            Movement::Pad { sides: [_, [before, behind]], .. } => {
                [&vec![None; before][..], list, &vec![None; behind]].concat()
            }
        }
    }

    #[test]
    fn a_mask_gets_the_pixels_of_each_operation_in_turn() {
        let operations = [
            Movement::Mirror { direction: 1, len: 30 },
            Movement::Crop { at: [0, 4], to: [1, 23] },
            Movement::Resize { from: [1, 23], to: [1, 9] },
            Movement::Pad { from: [1, 9], sides: [[0; 2], [2, 3]], padding: PaddingMode::Constant },
            Movement::Mirror { direction: 1, len: 14 },
            Movement::Resize { from: [1, 14], to: [1, 37] },
            Movement::Mirror { direction: 0, len: 1 },
        ];
        for len in 0..=operations.len() - 1 {
            let start: Vec<_> = (0..30).map(Some).collect();
            let wanted = operations[..len].iter().fold(start, |list, operation| apply(&list, *operation));
            let ours: Vec<_> = (0..wanted.len()).map(|i| source(&operations[..len], 1, i)).collect();
            assert_eq!(ours, wanted, "{len} operations");
        }
    }

    #[test]
    fn the_nearest_pixel_is_within_the_picture_and_in_order() {
        for from in (1..200).chain([1000, 65_535]) {
            for to in [1, 2, 3, 7, 64, 224, 1000] {
                let all = (0..to).map(|i| nearest(i, from, to));
                assert!(all.clone().all(|place| place < from) && all.is_sorted(), "{from} to {to}");
            }
        }
    }
}
