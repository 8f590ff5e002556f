//! What a sample of a dataset from outside has: its fields, as they were declared.

use std::collections::HashSet;
use std::ffi::{CString, c_char};

use slotline::BoxError;
use slotline::dtype::DType;
use slotline::sample::{Field, Fields, Row, Sample};

use crate::check;
use crate::dtype::{dtype, number, slotline_dtype};
use crate::failure::Failure;
use crate::sample::MOST_FIELDS;
use crate::versioned::{self, Versioned};

/// How the samples of a batch lie in a field.
pub type slotline_kind = u32;

/// All samples have the field's shape, and are stacked along a new first dimension.
pub const SLOTLINE_FIXED: slotline_kind = 0;
/// Each sample has its own number of elements, at most as many as the field's shape `[max]` says, and zeros from there on.
pub const SLOTLINE_RAGGED: slotline_kind = 1;
/// Each sample has its own number of items, which begin where the sample before ends. The shape is `[room, item's shape…]`:
/// a batch has room for `room` items for each of its samples, which they share.
pub const SLOTLINE_PACKED: slotline_kind = 2;

/// One field of every sample of a dataset.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_field {
    /// `sizeof(slotline_field)`.
    pub struct_size: usize,
    /// Its name, in UTF-8; NULL: its place among the fields, such as "0". No two fields have the same.
    pub name: *const c_char,
    /// The type of its elements.
    pub dtype: slotline_dtype,
    /// How samples lie in it.
    pub kind: slotline_kind,
    /// The number of dimensions of one sample, at most 7.
    pub ndim: u32,
    /// Their lengths.
    pub shape: *const i64,
}

// SAFETY: numbers and pointers, the first one the size.
unsafe impl Versioned for slotline_field {
    const END: usize = versioned::end!(shape);

    fn defaults() -> Self {
        Self {
            struct_size: 0,
            name: std::ptr::null(),
            dtype: 0,
            kind: SLOTLINE_FIXED,
            ndim: 0,
            shape: std::ptr::null(),
        }
    }
}

/// A field that was declared.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) kind: slotline_kind,
    pub(crate) shape: Vec<usize>,
}

impl Declared {
    /// Reads what C says.
    ///
    /// # Safety
    ///
    /// Its pointers must be what they are said to be.
    unsafe fn read(field: &slotline_field, place: usize) -> Result<Self, Failure> {
        // SAFETY: the caller's word.
        unsafe {
            let kind = field.kind;
            let shape = check::shape(field.shape, field.ndim, "shape")?;
            match (kind, shape.len()) {
                (SLOTLINE_FIXED, _) | (SLOTLINE_RAGGED, 1) | (SLOTLINE_PACKED, 1..) => {}
                (SLOTLINE_RAGGED, _) => return Err(Failure::invalid("a ragged field has the shape [max]")),
                (SLOTLINE_PACKED, _) => return Err(Failure::invalid("a packed field has the shape [room, ...]")),
                _ => return Err(Failure::invalid(format!("kind is {kind}, which is none"))),
            }
            Ok(Self { name: name(field.name, place)?, dtype: dtype(field.dtype, "dtype")?, kind, shape })
        }
    }
}

/// Reads the fields that a dataset of callbacks declares.
///
/// # Safety
///
/// As of `versioned::list`; their pointers must be what they are said to be.
pub(crate) unsafe fn declare(fields: *const slotline_field, n: usize) -> Result<Vec<Declared>, Failure> {
    if n == 0 || n > MOST_FIELDS {
        return Err(Failure::invalid(format!("num_fields is {n}; a sample has 1 to {MOST_FIELDS} fields")));
    }
    // SAFETY: the caller's word.
    let list = unsafe { versioned::list(fields, n, "fields", |_| ())? };
    let read = |(place, field): (usize, versioned::Element<slotline_field, ()>)| {
        // SAFETY: the caller's word.
        let declared = field.and_then(|(field, ())| unsafe { Declared::read(&field, place) });
        declared.map_err(|failure| failure.within("fields", place))
    };
    list.into_iter().enumerate().map(read).collect()
}

/// The name of a field, or its place.
///
/// # Safety
///
/// As of `check::text`.
pub(crate) unsafe fn name(name: *const c_char, place: usize) -> Result<String, Failure> {
    if name.is_null() {
        return Ok(place.to_string());
    }
    // SAFETY: the caller's word.
    unsafe { check::text(name, "name") }.map(str::to_owned)
}

/// Fields as the engine has them; no two may have one name.
pub(crate) fn fields(declared: &[Declared]) -> Result<Fields, Failure> {
    let mut names = HashSet::new();
    let mut fields = Fields::new();
    for field in declared {
        if !names.insert(&field.name) {
            return Err(Failure::invalid(format!("two fields have the name {:?}", field.name)));
        }
        fields.named(&field.name, &field);
    }
    Ok(fields)
}

/// It declares the field, and is no sample.
impl Sample for &Declared {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        match (self.kind, self.shape.split_first()) {
            (SLOTLINE_RAGGED, Some((&max, _))) => fields.ragged(self.dtype, max),
            (SLOTLINE_PACKED, Some((&room, item))) => fields.packed(self.dtype, item, room),
            _ => fields.fixed(self.dtype, &self.shape),
        }
    }

    fn write(self, _: &mut Row<'_>) -> Result<(), BoxError> {
        Err("a declaration has nothing to write".into())
    }
}

/// What every batch of a loader says of one of its fields.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) name: CString,
    pub(crate) dtype: slotline_dtype,
    pub(crate) kind: slotline_kind,
}

impl From<&Field> for About {
    fn from(field: &Field) -> Self {
        let kind = match (field.is_ragged(), field.is_packed()) {
            (true, _) => SLOTLINE_RAGGED,
            (_, true) => SLOTLINE_PACKED,
            _ => SLOTLINE_FIXED,
        };
        // Names from C have no NUL.
        Self { name: CString::new(field.name()).unwrap_or_default(), dtype: number(field.dtype()), kind }
    }
}
