//! Datasets of arrays: a sample is a row of each array.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;

use slotline::BoxError;
use slotline::array::AnyArray;
use slotline::dataset::{Context, Dataset, OutOfRange, Rows, TensorDataset};
use slotline::dtype::DType;
use slotline::sample::Fields;
use slotline::shape::Shape;

use crate::abi::{Failure, Owner, Versioned, check, slotline_drop, versioned};
use crate::fields::dtype::{self, slotline_dtype};
use crate::fields::field::{self, Declared, SLOTLINE_FIXED};

/// An array in the caller's memory, contiguous in C order. The first dimension is the row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_array {
    /// `sizeof(slotline_array)`.
    pub struct_size: usize,
    /// The name of the field, in UTF-8. NULL: the position among the arrays, such as "0". Names
    /// must be unique.
    pub name: *const c_char,
    /// The type of the elements.
    pub dtype: slotline_dtype,
    /// The number of dimensions, at most 8.
    pub ndim: u32,
    /// The lengths of the dimensions.
    pub shape: *const i64,
    /// The elements, aligned to their type. They are not copied, and must not be changed or freed before `drop` is called.
    pub data: *const c_void,
    /// The user pointer that is passed to `drop`.
    pub user: *mut c_void,
    /// Called once when the elements are no longer needed, on any thread; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_array {
    const END: usize = versioned::end!(drop);
}

/// A dataset of named arrays of equal length.
#[derive(Debug)]
pub(crate) struct Arrays {
    rows: TensorDataset<Vec<AnyArray>>,
    fields: Fields,
}

impl Arrays {
    /// Takes ownership of the caller's arrays.
    ///
    /// # Safety
    ///
    /// `arrays` must point to `n` structs, each valid as documented at `slotline_array`.
    pub(crate) unsafe fn from_c(arrays: *const slotline_array, n: usize) -> Result<Self, Failure> {
        let own = |array: &slotline_array| Owner::new(array.user, array.drop);
        // From here on this function owns all of them, even if one is invalid.
        // SAFETY: the caller guarantees that `arrays` points to `n` structs.
        let owned = unsafe { versioned::list(arrays, n, "arrays", own)? };
        if owned.is_empty() {
            return Err(Failure::invalid("there are no arrays"));
        }
        let mut declared = Vec::with_capacity(n);
        let mut rows = Vec::with_capacity(n);
        for (place, read) in owned.into_iter().enumerate() {
            let taken = read.and_then(|(array, owner)| {
                // SAFETY: the caller guarantees that the pointers of each array are valid.
                let (array, name) = unsafe { (take(&array, owner)?, field::name(array.name, place)?) };
                Ok((array, name))
            });
            let (array, name) = taken.map_err(|failure| failure.within("arrays", place))?;
            declared.push(of_rows(name, &array));
            rows.push(array);
        }
        let fields = field::fields(&declared)?;
        let rows = TensorDataset::new(rows).map_err(|error| Failure::invalid(error.to_string()))?;
        Ok(Self { rows, fields })
    }

    /// Creates a dataset from arrays that were read from files.
    pub(crate) fn new(rows: TensorDataset<Vec<AnyArray>>) -> Result<Self, Failure> {
        let arrays = rows.rows().iter().enumerate();
        let declared: Vec<_> = arrays.map(|(place, array)| of_rows(place.to_string(), array)).collect();
        Ok(Self { fields: field::fields(&declared)?, rows })
    }
}

/// Declares the field of an array's rows.
fn of_rows(name: String, array: &AnyArray) -> Declared {
    Declared::new(name, array.dtype(), SLOTLINE_FIXED, array.shape().get(1..).unwrap_or_default())
}

#[cold]
fn no_data() -> Failure {
    Failure::invalid("data is NULL, but the shape has elements (a moved-from C++ array has no data)")
}

/// Converts one of the caller's arrays.
///
/// # Safety
///
/// The same as for `Arrays::from_c`.
unsafe fn take(array: &slotline_array, owner: Owner) -> Result<AnyArray, Failure> {
    // SAFETY: the caller guarantees that `shape` points to `ndim` numbers.
    let dims = unsafe { check::shape(array.shape, array.ndim, "shape")? };
    let dtype = dtype::dtype(array.dtype, "dtype")?;
    let shape = Shape::new(&dims).map_err(|error| Failure::invalid(error.to_string()))?;
    let start = match NonNull::new(array.data.cast_mut().cast::<u8>()) {
        Some(start) if start.align_offset(dtype.align()) == 0 => start,
        Some(_) if shape.elements() != Some(0) => return Err(check::misaligned("data", dtype.align())),
        None if shape.elements() != Some(0) => return Err(no_data()),
        // There are no elements to read, so any aligned address will do.
        _ => NonNull::<u64>::dangling().cast(),
    };
    // SAFETY: the caller guarantees that the elements stay valid until `owner` is dropped, and the address is aligned.
    let array = unsafe { AnyArray::from_raw_parts(dtype, shape, start, owner) };
    let array = array.map_err(|error| Failure::invalid(error.to_string()))?;
    if dtype == DType::Bool && !dtype::valid(dtype, array.bytes()) {
        return Err(Failure::invalid("data contains a bool that is neither 0 nor 1"));
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
