//! Datasets of arrays: a sample is a row of each.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;

use slotline::BoxError;
use slotline::array::AnyArray;
use slotline::dataset::{Context, Dataset, OutOfRange, Rows, TensorDataset};
use slotline::dtype::DType;
use slotline::sample::Fields;
use slotline::shape::Shape;

use crate::check;
use crate::dtype::{self, slotline_dtype};
use crate::failure::Failure;
use crate::field::{self, Declared, SLOTLINE_FIXED};
use crate::owner::{Owner, slotline_drop};
use crate::versioned::{self, Versioned};

/// An array in the caller's memory, in C order. The first dimension counts the rows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_array {
    /// `sizeof(slotline_array)`.
    pub struct_size: usize,
    /// The name of its field, in UTF-8; NULL: its place among the arrays, such as "0". No two have the same.
    pub name: *const c_char,
    /// The type of its elements.
    pub dtype: slotline_dtype,
    /// The number of its dimensions, at most 8.
    pub ndim: u32,
    /// Their lengths.
    pub shape: *const i64,
    /// Its elements, aligned to their type. They are not copied: nobody may change or free them before `drop` is called.
    pub data: *const c_void,
    /// What `drop` is called with.
    pub user: *mut c_void,
    /// Called once, when nobody needs the elements any more, on whichever thread that is; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: numbers and pointers, the first one the size.
unsafe impl Versioned for slotline_array {
    const END: usize = versioned::end!(drop);

    fn defaults() -> Self {
        Self {
            struct_size: 0,
            name: std::ptr::null(),
            dtype: 0,
            ndim: 0,
            shape: std::ptr::null(),
            data: std::ptr::null(),
            user: std::ptr::null_mut(),
            drop: None,
        }
    }
}

/// Arrays of equal length, with names.
#[derive(Debug)]
pub(crate) struct Arrays {
    rows: TensorDataset<Vec<AnyArray>>,
    fields: Fields,
}

impl Arrays {
    /// Takes the caller's arrays over.
    ///
    /// # Safety
    ///
    /// Each must be what `slotline_array` says.
    pub(crate) unsafe fn from_c(arrays: *const slotline_array, n: usize) -> Result<Self, Failure> {
        let own = |array: &slotline_array| Owner::new(array.user, array.drop);
        // All of them are ours from here on, also if one is wrong.
        // SAFETY: the caller's word.
        let owned = unsafe { versioned::list(arrays, n, "arrays", own)? };
        if owned.is_empty() {
            return Err(Failure::invalid("there are no arrays"));
        }
        let mut declared = Vec::with_capacity(n);
        let mut rows = Vec::with_capacity(n);
        for (place, read) in owned.into_iter().enumerate() {
            let taken = read.and_then(|(array, owner)| {
                // SAFETY: the caller's word.
                let (array, name) = unsafe { (take(&array, owner)?, field::name(array.name, place)?) };
                Ok((array, name))
            });
            let (array, name) = taken.map_err(|failure| failure.within("arrays", place))?;
            let shape = array.shape().get(1..).unwrap_or_default().to_vec();
            declared.push(Declared { name, dtype: array.dtype(), kind: SLOTLINE_FIXED, shape });
            rows.push(array);
        }
        let fields = field::fields(&declared)?;
        let rows = TensorDataset::new(rows).map_err(|error| Failure::invalid(error.to_string()))?;
        Ok(Self { rows, fields })
    }

    /// Arrays that were read from files.
    pub(crate) fn new(rows: TensorDataset<Vec<AnyArray>>) -> Result<Self, Failure> {
        let declared = |(place, array): (usize, &AnyArray)| Declared {
            name: place.to_string(),
            dtype: array.dtype(),
            kind: SLOTLINE_FIXED,
            shape: array.shape().get(1..).unwrap_or_default().to_vec(),
        };
        let declared: Vec<_> = rows.rows().iter().enumerate().map(declared).collect();
        Ok(Self { fields: field::fields(&declared)?, rows })
    }
}

#[cold]
fn no_data() -> Failure {
    Failure::invalid("data is NULL, and the shape has elements (a C++ array that was moved from has no data)")
}

/// One of the caller's arrays.
///
/// # Safety
///
/// As of `Arrays::from_c`.
unsafe fn take(array: &slotline_array, owner: Owner) -> Result<AnyArray, Failure> {
    // SAFETY: the caller's word.
    let dims = unsafe { check::shape(array.shape, array.ndim, "shape")? };
    let dtype = dtype::dtype(array.dtype, "dtype")?;
    let shape = Shape::new(&dims).map_err(|error| Failure::invalid(error.to_string()))?;
    let start = match NonNull::new(array.data.cast_mut().cast::<u8>()) {
        Some(start) if start.align_offset(dtype.align()) == 0 => start,
        Some(_) if shape.elements() != Some(0) => return Err(check::misaligned("data", dtype.align())),
        None if shape.elements() != Some(0) => return Err(no_data()),
        // Nothing is there to be read.
        _ => NonNull::<u64>::dangling().cast(),
    };
    // SAFETY: the caller's word, and the address is aligned.
    let array = unsafe { AnyArray::from_raw_parts(dtype, shape, start, owner) };
    let array = array.map_err(|error| Failure::invalid(error.to_string()))?;
    if dtype == DType::Bool && !dtype::valid(dtype, array.bytes()) {
        return Err(Failure::invalid("data has a bool that is neither 0 nor 1"));
    }
    Ok(array)
}

impl Dataset for Arrays {
    type Sample<'a> = <Vec<AnyArray> as Rows>::Row<'a>;

    fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let len = self.rows.len();
        if index >= len {
            return Err(OutOfRange { dataset: "arrays", index, len }.into());
        }
        self.rows.get(index, cx)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.rows.prefetch(index);
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.fields.clone())
    }
}
