//! Objects that share a batch's memory with other libraries.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::{ffi, types::PyTuple};
use slotline_python_shielded::shielded;

use crate::capsule;
use crate::dlpack::{CPU, DType, Owner, managed, size, unversioned};
use crate::pool::Copied;

/// DLPack's flag for a tensor that is a copy.
const COPIED: u64 = 1 << 1;

/// The bytes of one field of a batch. NumPy arrays over them keep this object alive.
#[pyclass(module = "slotline._slotline", frozen)]
pub(crate) struct Memory {
    start: *mut u8,
    len: usize,
    _owner: Owner,
}

// SAFETY: any thread may drop the owner.
unsafe impl Send for Memory {}
// SAFETY: see above; nothing here reads or writes the memory.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates an object for `len` bytes of the owner's memory from `start` on.
    pub(crate) fn new(start: *mut u8, len: usize, owner: Owner) -> Self {
        Self { start, len, _owner: owner }
    }
}

#[shielded]
#[pymethods]
impl Memory {
    /// Exports the bytes as writable: no other code reads the batch.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        // SAFETY: Python provides memory for the view; the memory has `len` bytes, and the view
        // keeps this object alive.
        let failed =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), this.start.cast(), this.len as isize, 0, flags) };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// One field of a batch, or one sample's part of it, for any library that imports DLPack tensors.
/// It keeps the batch's memory alive, and so do tensors imported from it.
#[pyclass(module = "slotline", frozen)]
pub(crate) struct Tensor {
    start: *mut u8,
    kind: DType,
    /// The NumPy name of the element type.
    name: Box<str>,
    dims: Box<[i64]>,
    owner: Owner,
}

// SAFETY: any thread may drop the owner.
unsafe impl Send for Tensor {}
// SAFETY: see above; the memory is read only where the caller asks for a copy.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// Creates a tensor over the owner's elements from `start` on.
    pub(crate) fn new(start: *mut u8, kind: DType, name: &str, dims: &[i64], owner: Owner) -> Self {
        Self { start, kind, name: name.into(), dims: dims.into(), owner }
    }
}

#[shielded]
#[pymethods]
impl Tensor {
    /// The lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.dims)
    }

    /// The NumPy name of the element type.
    #[getter]
    fn dtype(&self) -> &str {
        &self.name
    }

    fn __dlpack_device__(&self) -> (c_int, c_int) {
        (CPU, 0)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(c_int, c_int)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("stream must be None, since the tensor is on the CPU"));
        }
        if dl_device.is_some_and(|device| device != (CPU, 0)) {
            return Err(PyBufferError::new_err("the tensor is on the CPU; import it there, and copy it to the device"));
        }
        let (start, owner, flags) = match copy {
            Some(true) => {
                let bytes = size(&self.dims, self.kind).unwrap_or_default();
                // SAFETY: the tensor has `bytes` bytes.
                let memory = Arc::new(unsafe { Copied::new(self.start, bytes)? });
                (memory.start().as_ptr(), Owner::Own(memory), COPIED)
            }
            _ => (self.start, self.owner.clone(), 0),
        };
        match max_version {
            Some((1.., _)) => capsule::make(py, managed(start, self.kind, (&self.dims, None), owner, flags)?),
            _ => capsule::make(py, unversioned(start, self.kind, (&self.dims, None), owner)?),
        }
    }

    fn __repr__(&self) -> String {
        format!("slotline.Tensor(shape={:?}, dtype={})", self.dims, self.name)
    }
}
