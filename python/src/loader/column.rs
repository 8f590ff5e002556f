//! Arrays in memory, whose rows are read in place.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMemoryView};
use slotline::BoxError;
use slotline::array::AnyArray;
use slotline::sample::Row;

use super::failure;
use super::field::{Field, Form, Kind, NumPy};
use crate::capsule;
use crate::dlpack::DType;

/// The owner of an array's memory.
#[derive(Debug)]
#[expect(dead_code, reason = "nothing is read from an owner")]
enum Owner {
    /// A Python object. If it is dropped by a thread that is not attached to the interpreter, an
    /// attached thread releases it later.
    Python(Py<PyAny>),
    File(Arc<AnyArray>),
}

/// An array whose first dimension is the row.
#[derive(Debug)]
pub(crate) struct Column {
    data: *const u8,
    rows: usize,
    /// The distance from one row to the next in bytes; may be negative.
    step: isize,
    field: Field,
    /// The last dimensions of a row, as far as they are contiguous in memory: their size in bytes.
    run: usize,
    /// The remaining dimensions before those: the length of each, and the distance between its
    /// items in bytes.
    outer: Box<[(usize, isize)]>,
    is_mapped: bool,
    _owner: Owner,
}

// SAFETY: the memory is only read, and any thread may drop its owner.
unsafe impl Send for Column {}
// SAFETY: see above.
unsafe impl Sync for Column {}

impl Column {
    /// Creates the column of an array.
    ///
    /// # Safety
    ///
    /// `owner` must keep alive the memory that `shape` and `strides` (in bytes) cover.
    unsafe fn new(
        data: *const u8,
        shape: &[usize],
        strides: Option<&[isize]>,
        kind: Kind,
        owner: Owner,
    ) -> Result<Self, String> {
        let Some((&rows, shape)) = shape.split_first() else {
            return Err("has no dimensions, but its first dimension must count the samples".to_owned());
        };
        let size = kind.size;
        let field = Field::fixed(kind, shape)?;
        let bytes = size * shape.iter().product::<usize>();
        let dense = bytes as isize;
        let (step, strides) = strides.map_or((dense, None), |strides| (strides[0], Some(&strides[1..])));
        let (mut run, mut outer) = (size, Vec::new());
        if let Some(strides) = strides.filter(|_| bytes > 0) {
            for (&dim, &stride) in shape.iter().zip(strides).rev().filter(|(dim, _)| **dim != 1) {
                if outer.is_empty() && stride == run as isize {
                    run *= dim;
                } else {
                    outer.push((dim, stride));
                }
            }
            outer.reverse();
        } else {
            run = bytes;
        }
        Ok(Self { data, rows, step, field, run, outer: outer.into(), is_mapped: false, _owner: owner })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn field(&self) -> &Field {
        &self.field
    }

    /// Returns whether the array is mapped from a file.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Returns the address of row `index`, which must exist.
    fn row(&self, index: usize) -> *const u8 {
        debug_assert!(index < self.rows);
        // The rows are in allocated memory, so the offset does not overflow.
        self.data.wrapping_offset(index as isize * self.step)
    }

    /// Prefetches a row that will be read soon.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        if index < self.rows && self.outer.is_empty() {
            // SAFETY: the row is contiguous. The slice is used only for its addresses, nothing is
            // read.
            slotline::dataset::prefetch(unsafe { std::slice::from_raw_parts(self.row(index), self.run) });
        }
    }

    /// Writes row `index`, which must exist, into the next field.
    #[inline]
    pub(crate) fn write(&self, index: usize, row: &mut Row<'_>) -> Result<(), BoxError> {
        let to = row.fill_raw()?;
        debug_assert_eq!(Form::Fixed(to.len()), self.field.form);
        // SAFETY: the field was declared with the size of a row, and the owner keeps the array
        // alive.
        unsafe { self.copy(index, to.as_ptr().cast()) };
        Ok(())
    }

    /// Copies row `index`, which must exist.
    ///
    /// The program may write to an array during the copy, as with NumPy, which then contains old
    /// and new elements. Therefore no Rust reference to the array's memory is created.
    ///
    /// # Safety
    ///
    /// `to` must have room for the bytes of a row.
    #[inline]
    pub(crate) unsafe fn copy(&self, index: usize, to: *mut u8) {
        if self.outer.is_empty() {
            // SAFETY: the row is contiguous, and the caller guarantees room for it.
            unsafe { std::ptr::copy_nonoverlapping(self.row(index), to, self.run) };
        } else {
            // SAFETY: as above, and the strides reach every contiguous run of the row.
            unsafe { gather(self.row(index), to, &self.outer, self.run) };
        }
    }
}

/// Returns whether a NumPy array is a view of a memory map.
fn is_mapped(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mmap = array.py().import("mmap")?.getattr("mmap")?;
    let mut base = array.clone();
    while let Some(next) = base.getattr_opt("base")? {
        base = next;
    }
    base.is_instance(&mmap)
}

/// Copies contiguous runs that have gaps between them, and returns the end of the copy.
///
/// # Safety
///
/// The strides must reach valid runs, and `to` must have room for all of them.
unsafe fn gather(from: *const u8, mut to: *mut u8, outer: &[(usize, isize)], run: usize) -> *mut u8 {
    // SAFETY: the caller guarantees the conditions for each of these calls.
    unsafe {
        match *outer {
            [] => items(from, to, (1, 0), run),
            // A copy of constant size compiles to an instruction instead of a call.
            [last] if run == 1 => items(from, to, last, 1),
            [last] if run == 2 => items(from, to, last, 2),
            [last] if run == 4 => items(from, to, last, 4),
            [last] if run == 8 => items(from, to, last, 8),
            [last] => items(from, to, last, run),
            [(dim, stride), ref inner @ ..] => {
                for i in 0..dim as isize {
                    to = gather(from.wrapping_offset(i * stride), to, inner, run);
                }
                to
            }
        }
    }
}

/// Copies the runs of one dimension.
///
/// # Safety
///
/// The same as for [`gather`].
#[inline(always)]
unsafe fn items(from: *const u8, to: *mut u8, (dim, stride): (usize, isize), run: usize) -> *mut u8 {
    for i in 0..dim {
        let from = from.wrapping_offset(i as isize * stride);
        // SAFETY: the caller guarantees that the run is valid, and room for it.
        unsafe { std::ptr::copy_nonoverlapping(from, to.add(i * run), run) };
    }
    // SAFETY: the pointer is within the target, or one past its end.
    unsafe { to.add(dim * run) }
}

impl Column {
    /// Takes an array in place: one of NumPy, of the buffer protocol, or of DLPack on the CPU.
    /// `name` appears in errors.
    pub(crate) fn of<'py>(array: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        let py = array.py();
        let numpy = NumPy::get(py)?;
        if array.is_instance(numpy.array.bind(py))? {
            return Self::of_numpy(array, name);
        }
        if array.hasattr("__dlpack__")? {
            return Self::of_dlpack(array, name);
        }
        let asarray = |object: Bound<'py, PyAny>| numpy.asarray.bind(py).call1((object,));
        if let Ok(view) = PyMemoryView::from(array) {
            return Self::of_numpy(&asarray(view.into_any())?, name);
        }
        if array.hasattr("__array_interface__")? {
            return Self::of_numpy(&asarray(array.clone())?, name);
        }
        let kind = array.get_type().qualname()?;
        Err(PyTypeError::new_err(format!(
            "{name} is of type {kind}; pass an array of NumPy, or an object with the buffer protocol or DLPack, such as a \
             tensor on the CPU (numpy.asarray makes an array of most objects)"
        )))
    }

    fn of_numpy(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let py = array.py();
        let invalid = |what: String| failure::invalid(py, format!("{name} {what}"));
        let kind = array.getattr("dtype")?;
        if kind.getattr("hasobject")?.is_truthy()? {
            return Err(invalid("holds Python objects; convert it to an array of numbers".to_owned()));
        }
        let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
        let part = |name| interface.as_any().get_item(name);
        let (data, _): (usize, bool) = part("data")?.extract()?;
        let (shape, strides): (Vec<usize>, Option<Vec<isize>>) =
            (part("shape")?.extract()?, part("strides")?.extract()?);
        let kind = Kind::of_numpy(&kind)?;
        let owner = Owner::Python(array.clone().unbind());
        // SAFETY: the array describes its memory, and keeps it while it is referenced: NumPy does
        // not resize an array that has other references.
        let column =
            unsafe { Self::new(std::ptr::with_exposed_provenance(data), &shape, strides.as_deref(), kind, owner) };
        Ok(Self { is_mapped: is_mapped(array)?, ..column.map_err(invalid)? })
    }

    fn of_dlpack(tensor: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let py = tensor.py();
        let invalid = |what: String| failure::invalid(py, format!("{name} {what}"));
        // torch's lazy negation, which DLPack does not report.
        if let Some(is_neg) = tensor.getattr_opt("is_neg")?
            && is_neg.call0()?.is_truthy()?
        {
            return Err(invalid("is a negated view; call resolve_neg() on it".to_owned()));
        }
        let capsule = capsule::of(tensor)?;
        // SAFETY: the capsule outlives the view here, and then the column keeps the owner.
        let view = unsafe { capsule::view(&capsule) }.map_err(invalid)?;
        let owner = capsule::take(&capsule)?;
        if let Some(storage) = tensor.getattr_opt("untyped_storage")? {
            // Like `numpy()`, this makes torch refuse to resize the storage.
            let torch = py.import("torch")?;
            let bytes =
                torch.call_method1("tensor", (PyList::empty(py),))?.call_method1("to", (torch.getattr("uint8")?,))?;
            bytes.call_method1("set_", (storage.call0()?,))?.call_method0("numpy")?;
        }
        let kind = Kind::of_dlpack(py, view.dtype).ok_or_else(|| {
            let DType { code, bits, lanes } = view.dtype;
            invalid(format!(
                "has elements of a type that is not supported (DLPack's code {code}, {bits} bits, {lanes} lanes)"
            ))
        })??;
        let shape: Option<Vec<usize>> = view.shape.iter().map(|&dim| usize::try_from(dim).ok()).collect();
        let shape = shape.ok_or_else(|| invalid("has a negative dimension".to_owned()))?;
        let size = kind.size as isize;
        let strides: Option<Vec<isize>> =
            view.strides.map(|strides| strides.iter().map(|&stride| stride as isize * size).collect());
        // SAFETY: the owner keeps the tensor's memory alive.
        unsafe { Self::new(view.data, &shape, strides.as_deref(), kind, Owner::Python(owner.unbind())) }
            .map_err(invalid)
    }

    /// Takes an array that the engine has read from a file or mapped.
    pub(crate) fn of_file(py: Python<'_>, array: AnyArray, is_mapped: bool, name: &str) -> PyResult<Self> {
        let kind = Kind::of_engine(py, array.dtype())
            .unwrap_or_else(|| Err(failure::invalid(py, format!("{name} has elements of type {}", array.dtype()))))?;
        let array = Arc::new(array);
        let owner = Owner::File(array.clone());
        // SAFETY: the array's elements are contiguous, and the column keeps it alive.
        let column = unsafe { Self::new(array.bytes().as_ptr(), array.shape(), None, kind, owner) };
        let column = column.map_err(|what| failure::invalid(py, format!("{name} {what}")))?;
        Ok(Self { is_mapped, ..column })
    }
}
