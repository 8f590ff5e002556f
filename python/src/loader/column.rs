//! Arrays in memory, whose rows are read where they are.

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

/// What keeps an array's memory.
#[derive(Debug)]
#[expect(dead_code, reason = "nothing is read from an owner")]
enum Owner {
    /// An object that Python counts. Where no thread is attached to the interpreter, it is released later, by one that is.
    Python(Py<PyAny>),
    File(Arc<AnyArray>),
}

/// An array, whose first dimension counts the rows.
#[derive(Debug)]
pub(crate) struct Column {
    data: *const u8,
    rows: usize,
    /// The bytes from one row to the next; may be negative.
    step: isize,
    field: Field,
    /// The last dimensions of a row lie in memory without gaps: this is their size in bytes.
    run: usize,
    /// The lengths of the dimensions before these, and the bytes from one item to the next.
    outer: Box<[(usize, isize)]>,
    is_mapped: bool,
    _owner: Owner,
}

// SAFETY: the memory is only read, and its owner can be released by any thread.
unsafe impl Send for Column {}
// SAFETY: see above.
unsafe impl Sync for Column {}

impl Column {
    /// Describes an array.
    ///
    /// # Safety
    ///
    /// `owner` must keep the memory that `shape` and `strides` (in bytes) lead to.
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

    /// Whether it is mapped from a file.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Returns where row `index`, which must exist, begins.
    fn row(&self, index: usize) -> *const u8 {
        debug_assert!(index < self.rows);
        // Rows lie in memory that exists, so this does not overflow.
        self.data.wrapping_offset(index as isize * self.step)
    }

    /// Announces that a row will be read soon.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        if index < self.rows && self.outer.is_empty() {
            // SAFETY: the row lies there without gaps. Nothing is read through the slice, only its addresses are used.
            slotline::dataset::prefetch(unsafe { std::slice::from_raw_parts(self.row(index), self.run) });
        }
    }

    /// Writes row `index`, which must exist, into the next field.
    #[inline]
    pub(crate) fn write(&self, index: usize, row: &mut Row<'_>) -> Result<(), BoxError> {
        let to = row.fill_raw()?;
        debug_assert_eq!(Form::Fixed(to.len()), self.field.form);
        // SAFETY: the field was declared with the bytes of a row, and the owner keeps the array.
        unsafe { self.copy(index, to.as_ptr().cast()) };
        Ok(())
    }

    /// Copies row `index`, which must exist.
    ///
    /// The program may write to an array while it is read here, as it may with NumPy: the copy then has old and new
    /// elements. That is why there is no reference to the array's memory.
    ///
    /// # Safety
    ///
    /// There must be room for the bytes of a row.
    #[inline]
    pub(crate) unsafe fn copy(&self, index: usize, to: *mut u8) {
        if self.outer.is_empty() {
            // SAFETY: the row lies there without gaps, and the caller says that there is room.
            unsafe { std::ptr::copy_nonoverlapping(self.row(index), to, self.run) };
        } else {
            // SAFETY: as above; the strides lead to every run.
            unsafe { gather(self.row(index), to, &self.outer, self.run) };
        }
    }
}

/// Whether an array of NumPy shows a part of a memory map.
fn is_mapped(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mmap = array.py().import("mmap")?.getattr("mmap")?;
    let mut base = array.clone();
    while let Some(next) = base.getattr_opt("base")? {
        base = next;
    }
    base.is_instance(&mmap)
}

/// Copies runs with gaps between them, and returns where the next one goes.
///
/// # Safety
///
/// The strides must lead to runs that exist, and there must be room for all of them.
unsafe fn gather(from: *const u8, mut to: *mut u8, outer: &[(usize, isize)], run: usize) -> *mut u8 {
    // SAFETY: the caller upholds the contract, for each of these.
    unsafe {
        match *outer {
            [] => items(from, to, (1, 0), run),
            // A copy of constant size takes an instruction, and not a call.
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
/// As for [`gather`].
#[inline(always)]
unsafe fn items(from: *const u8, to: *mut u8, (dim, stride): (usize, isize), run: usize) -> *mut u8 {
    for i in 0..dim {
        let from = from.wrapping_offset(i as isize * stride);
        // SAFETY: the caller says that there is a run, and room for it.
        unsafe { std::ptr::copy_nonoverlapping(from, to.add(i * run), run) };
    }
    // SAFETY: this is within the room, or its end.
    unsafe { to.add(dim * run) }
}

impl Column {
    /// Reads an array in place: NumPy's, one of the buffer protocol, or one of DLPack on the CPU. `name` is for errors.
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
        // SAFETY: the array describes its memory, and keeps it for as long as it is counted: NumPy does not resize arrays
        // that somebody else counts, too.
        let column =
            unsafe { Self::new(std::ptr::with_exposed_provenance(data), &shape, strides.as_deref(), kind, owner) };
        Ok(Self { is_mapped: is_mapped(array)?, ..column.map_err(invalid)? })
    }

    fn of_dlpack(tensor: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let py = tensor.py();
        let invalid = |what: String| failure::invalid(py, format!("{name} {what}"));
        // torch's lazy negation, which DLPack does not tell.
        if let Some(is_neg) = tensor.getattr_opt("is_neg")?
            && is_neg.call0()?.is_truthy()?
        {
            return Err(invalid("is a negated view; call resolve_neg() on it".to_owned()));
        }
        let capsule = capsule::of(tensor)?;
        // SAFETY: the owner is kept in the column, and until then here.
        let view = unsafe { capsule::view(&capsule) }.map_err(invalid)?;
        let owner = capsule::take(&capsule)?;
        if let Some(storage) = tensor.getattr_opt("untyped_storage")? {
            // As `numpy()` does, this has torch refuse to resize the storage.
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
        // SAFETY: the owner has the tensor's memory.
        unsafe { Self::new(view.data, &shape, strides.as_deref(), kind, Owner::Python(owner.unbind())) }
            .map_err(invalid)
    }

    /// Takes an array that the engine has read or mapped.
    pub(crate) fn of_file(py: Python<'_>, array: AnyArray, is_mapped: bool, name: &str) -> PyResult<Self> {
        let kind = Kind::of_engine(py, array.dtype())
            .unwrap_or_else(|| Err(failure::invalid(py, format!("{name} has elements of type {}", array.dtype()))))?;
        let array = Arc::new(array);
        let owner = Owner::File(array.clone());
        // SAFETY: the array's elements lie there one after another, and it is kept in the column.
        let column = unsafe { Self::new(array.bytes().as_ptr(), array.shape(), None, kind, owner) };
        let column = column.map_err(|what| failure::invalid(py, format!("{name} {what}")))?;
        Ok(Self { is_mapped, ..column })
    }
}
