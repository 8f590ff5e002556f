//! Bounding boxes in fields of records.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use slotline::dtype::{DType, Element, from_bytes};
use slotline::source::parse_npy;

use crate::{CapacityHint, Error, FieldKind};

/// What the four numbers of a box in a file are, in pixels. The names are those of torchvision's
/// `BoundingBoxFormat`, in lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoxFormat {
    /// `xyxy`: left, top, right and bottom.
    #[default]
    Xyxy,
    /// `xywh`: left, top, width and height, as in COCO.
    Xywh,
    /// `cxcywh`: the centre, width and height.
    Cxcywh,
}

impl BoxFormat {
    const NAMES: [(&'static str, Self); 3] = [("xyxy", Self::Xyxy), ("xywh", Self::Xywh), ("cxcywh", Self::Cxcywh)];

    /// Returns left, top, right and bottom.
    fn sides(self, [a, b, c, d]: [f64; 4]) -> [f64; 4] {
        match self {
            Self::Xyxy => [a, b, c, d],
            Self::Xywh => [a, b, a + c, b + d],
            Self::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        }
    }
}

impl FromStr for BoxFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, format)| *format);
        found.ok_or_else(|| Error::usage(format!("boxes in the format {text}"), "write xyxy, xywh or cxcywh"))
    }
}

impl fmt::Display for BoxFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::NAMES.iter().find(|(_, format)| format == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

/// Where the boxes of a sample are in its field.
#[derive(Clone, Debug)]
pub(super) struct Boxes {
    kind: FieldKind,
    /// The names that lead to the boxes in JSON.
    path: Vec<String>,
    pub(super) format: BoxFormat,
}

impl Boxes {
    /// Returns an error if boxes cannot be in fields of this kind.
    pub(super) fn new(field: &str, kind: &FieldKind, path: Vec<String>, format: BoxFormat) -> Result<Self, Error> {
        let are_numbers = path.is_empty() && numbers(kind.dtype(), &[]).is_some();
        let fits = match kind {
            FieldKind::Text(_) => true,
            FieldKind::Bytes(_) | FieldKind::List(..) => are_numbers,
            FieldKind::Items(_, item, _) => are_numbers && *item == [4],
            FieldKind::Tensor(_, shape) => are_numbers && shape.iter().product::<usize>().is_multiple_of(4),
            FieldKind::Number(_) => false,
        };
        if fits {
            return Ok(Self { kind: kind.clone(), path, format });
        }
        let problem = format!("the field {field} holds {kind}, not boxes");
        Err(Error::usage(problem, "name a field with lists of numbers, four for each box, a `.npy` as bytes, or JSON"))
    }

    /// Returns how many boxes a batch has room for, for each sample.
    pub(super) fn room(&self) -> CapacityHint {
        match &self.kind {
            FieldKind::List(_, room) => CapacityHint { items: room.items.div_ceil(4), ..*room },
            FieldKind::Items(_, _, room) => *room,
            FieldKind::Tensor(_, shape) => {
                CapacityHint { items: (shape.iter().product::<usize>() / 4).max(1), exceeded: false }
            }
            _ => CapacityHint { items: 16, exceeded: true },
        }
    }

    /// Returns left, top, right and bottom of each box in the bytes of a field, for a picture of
    /// this height and width.
    pub(super) fn read(&self, bytes: &[u8], [height, width]: [usize; 2]) -> Result<Vec<[f64; 4]>, String> {
        let all = match &self.kind {
            FieldKind::Text(_) => {
                let value = serde_json::from_slice(bytes).map_err(|error| format!("not valid JSON: {error}"))?;
                let mut all = Vec::new();
                collect(&value, &self.path, &mut all)?;
                all
            }
            FieldKind::Bytes(_) => {
                let array = parse_npy(bytes).map_err(|error| error.to_string())?;
                let dtype = array.dtype();
                numbers(dtype, array.bytes()).ok_or_else(|| format!("an array of {dtype}; store f32 or integers"))?
            }
            kind => numbers(kind.dtype(), bytes).unwrap_or_default(),
        };
        let (boxes, rest) = all.as_chunks();
        if !rest.is_empty() {
            return Err(format!("{} numbers, which are not four for each box", all.len()));
        }
        let sides = |(i, of_box): (usize, &[f64; 4])| {
            let found @ [left, top, right, bottom] = self.format.sides(*of_box);
            let problem = if !found.iter().all(|side| side.is_finite()) {
                "has a number that is not finite".to_owned()
            } else if right < left || bottom < top {
                "has a negative width or height; are its last two numbers the width and height, or the right and bottom \
                 side?"
                    .to_owned()
            } else if left > width as f64 || top > height as f64 || right < 0.0 || bottom < 0.0 {
                format!(
                    "is outside of its picture of {width} × {height} pixels; boxes are in pixels of the whole picture"
                )
            } else {
                return Ok(found);
            };
            Err(format!("box {i}, {} {of_box:?}, {problem}", self.format))
        };
        boxes.iter().enumerate().map(sides).collect()
    }
}

/// Adds the numbers of the boxes in a JSON value. A name of the path leads to a member of an
/// object, or of each object of a list.
fn collect(value: &Value, path: &[String], into: &mut Vec<f64>) -> Result<(), String> {
    match (value, path) {
        (Value::Object(members), [name, rest @ ..]) => {
            let member = members.get(name).ok_or_else(|| format!("its JSON has no {name}"))?;
            collect(member, rest, into)
        }
        (Value::Array(items), _) => {
            let before = into.len();
            items.iter().try_for_each(|item| collect(item, path, into))?;
            match into.len() - before {
                count if count.is_multiple_of(4) => Ok(()),
                count => Err(format!("a list of {count} numbers in its JSON, which are not four for each box")),
            }
        }
        (Value::Number(number), []) => {
            into.push(number.as_f64().unwrap_or(f64::NAN));
            Ok(())
        }
        (other, _) => {
            let expected = path.first().map_or("a list of numbers".to_owned(), |name| format!("an object with {name}"));
            let found: String = other.to_string().chars().take(40).collect();
            Err(format!("expected {expected} in its JSON, found {found}"))
        }
    }
}

/// Returns the elements of a type of numbers.
fn numbers(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    fn of<T: Element + Into<f64>>(bytes: &[u8]) -> Option<Vec<f64>> {
        Some(from_bytes::<T>(bytes)?.into_iter().map(Into::into).collect())
    }
    match dtype {
        DType::F64 => from_bytes(bytes),
        DType::F32 => of::<f32>(bytes),
        DType::I64 => Some(from_bytes::<i64>(bytes)?.into_iter().map(|number| number as f64).collect()),
        DType::I32 => of::<i32>(bytes),
        DType::I16 => of::<i16>(bytes),
        DType::U16 => of::<u16>(bytes),
        DType::U8 => of::<u8>(bytes),
        _ => None,
    }
}
