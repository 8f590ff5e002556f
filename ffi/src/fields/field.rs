//! The fields that a dataset of callbacks declares.

use std::collections::HashSet;
use std::ffi::{CString, c_char, c_void};

use slotline::BoxError;
use slotline::dtype::DType;
use slotline::sample::{Field, Fields, Row, Sample};
use slotline::shape::{MAX_DIMS, Shape};

use crate::abi::{Failure, Versioned, check, versioned};
use crate::fields::dtype::{One, dtype, number, slotline_dtype};

/// The maximum number of fields of a dataset made of callbacks: the number of bits of `u64`.
pub(crate) const MAX_FIELDS: usize = u64::BITS as usize;

/// How the samples of a batch are laid out in a field.
pub type slotline_kind = u32;

/// All samples have the field's shape, and are stacked along a new first dimension.
pub const SLOTLINE_FIXED: slotline_kind = 0;
/// Samples have different numbers of elements, at most `max` of the field's shape `[max]`; the rest
/// of a sample's row is padding.
pub const SLOTLINE_PADDED_TO_MAX: slotline_kind = 1;
/// Samples have different numbers of items, which are stored contiguously, one sample after
/// another. The shape is `[room, item's shape…]`: a batch reserves memory for `room` items per
/// sample, which its samples share.
pub const SLOTLINE_PACKED: slotline_kind = 2;
/// Samples have different numbers of elements, and the row of each is as long as the longest sample of
/// the batch; the rest of the row is padding. The field's shape is `[capacity]`: a batch reserves memory
/// for `capacity` elements per sample, including the padding, which its samples share. A batch is
/// written fastest if its longest sample comes first.
pub const SLOTLINE_PADDED_TO_LONGEST: slotline_kind = 3;

/// Declares one field that every sample of a dataset has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_field {
    /// `sizeof(slotline_field)`.
    pub struct_size: usize,
    /// The name, in UTF-8. NULL: the position among the fields, such as "0". Names must be unique.
    pub name: *const c_char,
    /// The type of its elements.
    pub dtype: slotline_dtype,
    /// How samples are laid out in it.
    pub kind: slotline_kind,
    /// The number of dimensions of one sample, at most 7.
    pub ndim: u32,
    /// The lengths of the dimensions.
    pub shape: *const i64,
    /// The element that a padded field is padded with, of type `dtype`. It is copied. NULL: zero. It
    /// must be NULL for other fields.
    pub padding: *const c_void,
    /// Field padded to the longest: the length of the rows is rounded up to a multiple of this number;
    /// 0 works like 1. It must be 0 for other fields.
    pub multiple_of: usize,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_field {
    const END: usize = versioned::end!(multiple_of);
}

/// A field as declared.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) kind: slotline_kind,
    pub(crate) shape: Vec<usize>,
    /// The element that fills the rest of a padded row.
    pub(crate) padding: One,
    /// The number that the length of rows padded to the longest is a multiple of.
    pub(crate) multiple_of: usize,
}

impl Declared {
    /// Declares a field that is padded with zeros, if it is padded.
    pub(crate) fn new(
        name: impl Into<String>,
        dtype: DType,
        kind: slotline_kind,
        shape: impl Into<Vec<usize>>,
    ) -> Self {
        Self { name: name.into(), dtype, kind, shape: shape.into(), padding: One::default(), multiple_of: 0 }
    }

    /// Reads a declaration from C.
    ///
    /// # Safety
    ///
    /// The pointers of `field` must be valid as documented at `slotline_field`.
    unsafe fn read(field: &slotline_field, place: usize) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees that the pointers of `field` are valid.
        unsafe {
            let kind = field.kind;
            let shape = check::shape(field.shape, field.ndim, "shape")?;
            match (kind, shape.len()) {
                (SLOTLINE_FIXED, _)
                | (SLOTLINE_PADDED_TO_MAX | SLOTLINE_PADDED_TO_LONGEST, 1)
                | (SLOTLINE_PACKED, 1..) => {}
                (SLOTLINE_PADDED_TO_MAX, _) => {
                    return Err(Failure::invalid("the shape of a padded field must be [max]"));
                }
                (SLOTLINE_PADDED_TO_LONGEST, _) => {
                    return Err(Failure::invalid("the shape of a field padded to the longest must be [capacity]"));
                }
                (SLOTLINE_PACKED, _) => {
                    return Err(Failure::invalid("the shape of a packed field must be [room, ...]"));
                }
                _ => return Err(Failure::invalid(format!("kind is {kind}, which is not a slotline_kind"))),
            }
            let mut declared = Self::new(name(field.name, place)?, dtype(field.dtype, "dtype")?, kind, shape);
            if !field.padding.is_null() {
                if !matches!(kind, SLOTLINE_PADDED_TO_MAX | SLOTLINE_PADDED_TO_LONGEST) {
                    return Err(Failure::invalid("padding is set for a field that is not padded; set it to NULL"));
                }
                declared.padding = One::read(field.padding, declared.dtype, "padding")?;
            }
            if field.multiple_of != 0 && kind != SLOTLINE_PADDED_TO_LONGEST {
                return Err(Failure::invalid(
                    "multiple_of is set for a field that is not padded to the longest; set it to 0",
                ));
            }
            declared.multiple_of = field.multiple_of;
            Ok(declared)
        }
    }
}

impl From<&Field> for Declared {
    fn from(field: &Field) -> Self {
        Self::new(field.name(), field.dtype(), kind(field), field.shape())
    }
}

/// Returns how samples are laid out in a field.
fn kind(field: &Field) -> slotline_kind {
    match (field.is_padded(), field.is_packed()) {
        (true, _) if field.is_padded_to_longest() => SLOTLINE_PADDED_TO_LONGEST,
        (true, _) => SLOTLINE_PADDED_TO_MAX,
        (_, true) => SLOTLINE_PACKED,
        _ => SLOTLINE_FIXED,
    }
}

/// Reads the fields that a dataset made of callbacks declares.
///
/// # Safety
///
/// The same as for `versioned::list`; the pointers of each field must be valid as documented at
/// `slotline_field`.
pub(crate) unsafe fn declare(fields: *const slotline_field, n: usize) -> Result<Vec<Declared>, Failure> {
    if n == 0 || n > MAX_FIELDS {
        return Err(Failure::invalid(format!("num_fields is {n}; it must be 1 to {MAX_FIELDS}")));
    }
    // SAFETY: the caller upholds the contract of `versioned::list`.
    let list = unsafe { versioned::list(fields, n, "fields", |_| ())? };
    let read = |(place, field): (usize, versioned::Element<slotline_field, ()>)| {
        // SAFETY: the caller guarantees that the pointers of each field are valid.
        let declared = field.and_then(|(field, ())| unsafe { Declared::read(&field, place) });
        declared.map_err(|failure| failure.within("fields", place))
    };
    list.into_iter().enumerate().map(read).collect()
}

/// Returns the name of a field, or its position if it has no name.
///
/// # Safety
///
/// The same as for `check::text`.
pub(crate) unsafe fn name(name: *const c_char, place: usize) -> Result<String, Failure> {
    if name.is_null() {
        return Ok(place.to_string());
    }
    // SAFETY: the caller upholds the contract of `check::text`.
    unsafe { check::text(name, "name") }.map(str::to_owned)
}

/// Converts declarations to the fields of `slotline`. Two fields must not have the same name.
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

/// Declares the field. Samples of this type are never written.
impl Sample for &Declared {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        match (self.kind, self.shape.split_first()) {
            (SLOTLINE_PADDED_TO_MAX, Some((&max, _))) => fields.padded_to_max(self.dtype, max),
            (SLOTLINE_PADDED_TO_LONGEST, Some((&capacity, _))) => fields.padded_to_longest(self.dtype, capacity),
            (SLOTLINE_PACKED, Some((&room, item))) => fields.packed(self.dtype, item, room),
            _ => fields.fixed(self.dtype, &self.shape),
        }
    }

    fn write(self, _: &mut Row<'_>) -> Result<(), BoxError> {
        Err("a declaration has nothing to write".into())
    }
}

/// The properties of a field that are the same for every batch of a loader.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) name: CString,
    pub(crate) dtype: slotline_dtype,
    pub(crate) kind: slotline_kind,
    /// The shape of its rows, if all rows have the same.
    pub(crate) rows: Option<Rows>,
}

/// The shape of a field in a batch, without the number of rows.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) ndim: u32,
    pub(crate) shape: [i64; MAX_DIMS],
    pub(crate) strides: [i64; MAX_DIMS],
    /// The size of a row in bytes.
    pub(crate) bytes: usize,
}

impl Rows {
    fn new(field: &Field) -> Option<Self> {
        let shape = Shape::new(field.shape()).and_then(|shape| shape.stacked(1)).ok()?;
        let bytes = shape.elements()? * field.dtype().size();
        let (mut lens, mut strides) = ([0; MAX_DIMS], [0; MAX_DIMS]);
        in_order(shape.dims(), &mut lens, &mut strides);
        Some(Self { ndim: shape.dims().len() as u32, shape: lens, strides, bytes })
    }
}

impl From<&Field> for About {
    fn from(field: &Field) -> Self {
        let kind = kind(field);
        // Names from C contain no NUL.
        let name = CString::new(field.name()).unwrap_or_default();
        let rows = (kind == SLOTLINE_FIXED).then(|| Rows::new(field)).flatten();
        Self { name, dtype: number(field.dtype()), kind, rows }
    }
}

/// Writes the lengths and strides of a contiguous tensor in C order.
#[inline]
pub(crate) fn in_order(dims: &[usize], lens: &mut [i64; MAX_DIMS], strides: &mut [i64; MAX_DIMS]) {
    // The product fits in an `i64`: no tensor in memory has more elements, even if dimensions of length 0 are left out
    // (`Shape::elements`).
    let mut stride = 1;
    for (place, &dim) in dims.iter().enumerate().rev() {
        (lens[place], strides[place]) = (dim as i64, stride);
        stride *= (dim as i64).max(1);
    }
}
