//! Access to NumPy arrays through the buffer protocol.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::raw::c_char;

use pyo3::prelude::*;
use pyo3::{Borrowed, ffi};

use crate::dlpack::{DType, View};

/// An exported buffer of an array, whose memory stays in place while it is exported.
pub(crate) struct Buffer {
    raw: Box<ffi::Py_buffer>,
    shape: Box<[i64]>,
    strides: Option<Box<[i64]>>,
    dtype: DType,
}

impl Buffer {
    /// Returns the buffer of an array, if torch could use the array without conversion.
    pub(crate) fn of(array: Borrowed<'_, '_, PyAny>) -> Option<Self> {
        let mut raw = Box::new(MaybeUninit::<ffi::Py_buffer>::zeroed());
        let flags = ffi::PyBUF_STRIDES | ffi::PyBUF_FORMAT;
        // SAFETY: a valid object, and memory for the result. On failure Python sets an exception.
        if unsafe { ffi::PyObject_GetBuffer(array.as_ptr(), raw.as_mut_ptr(), flags) } != 0 {
            drop(PyErr::take(array.py()));
            return None;
        }
        // SAFETY: the struct was initialised by the call, and `MaybeUninit` has the same layout.
        let raw = unsafe { Box::from_raw(Box::into_raw(raw).cast::<ffi::Py_buffer>()) };
        let mut buffer = Self { raw, shape: Box::default(), strides: None, dtype: DType::default() };
        buffer.read()?;
        Some(buffer)
    }

    fn read(&mut self) -> Option<()> {
        let raw = &*self.raw;
        let ndim = usize::try_from(raw.ndim).ok()?;
        let size = usize::try_from(raw.itemsize).ok()?;
        // SAFETY: the format is a C string, or null for bytes.
        let format = if raw.format.is_null() { c"B" } else { unsafe { CStr::from_ptr(raw.format.cast::<c_char>()) } };
        self.dtype = dtype(format.to_bytes(), size)?;
        if ndim == 0 {
            return Some(());
        }
        // SAFETY: strides were requested, so both arrays have `ndim` entries.
        let (shape, strides) =
            unsafe { (std::slice::from_raw_parts(raw.shape, ndim), std::slice::from_raw_parts(raw.strides, ndim)) };
        self.shape = shape.iter().map(|&dim| dim as i64).collect();
        let mut dense = size as isize;
        let mut is_dense = true;
        for (&dim, &stride) in shape.iter().zip(strides).rev() {
            if stride < 0 || !stride.unsigned_abs().is_multiple_of(size) {
                return None; // torch rejects these with an error of its own
            }
            is_dense &= dim <= 1 || stride == dense;
            dense *= dim.max(1);
        }
        if !is_dense {
            self.strides = Some(strides.iter().map(|&stride| (stride / size as isize) as i64).collect());
        }
        Some(())
    }

    /// # Safety
    ///
    /// The buffer must outlive the view.
    pub(crate) unsafe fn view<'a>(&self) -> View<'a> {
        let data = self.raw.buf.cast::<u8>().cast_const();
        // SAFETY: the boxes do not move, and the caller keeps them alive.
        let keep = |dims: &[i64]| unsafe { std::slice::from_raw_parts(dims.as_ptr(), dims.len()) };
        View { data, dtype: self.dtype, shape: keep(&self.shape), strides: self.strides.as_deref().map(keep) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `PyObject_GetBuffer` has initialised it, and only threads that are attached to
        // the interpreter drop a buffer.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.raw) };
    }
}

/// Returns the torch type for the elements of an array.
fn dtype(format: &[u8], size: usize) -> Option<DType> {
    let format = format.strip_prefix(b"@").or_else(|| format.strip_prefix(b"=")).unwrap_or(format);
    if let b"Zf" | b"Zd" = format {
        return Some(DType { code: 5, bits: u8::try_from(size * 8).ok()?, lanes: 1 });
    }
    let &[kind] = format else { return None };
    let code = match kind {
        b'?' => return (size == 1).then_some(DType::BOOL),
        b'b' | b'h' | b'i' | b'l' | b'q' => 0,
        // Of the two unsigned 64-bit types of NumPy, torch supports only `L`, not `Q`.
        b'B' | b'H' | b'I' | b'L' => 1,
        b'e' | b'f' | b'd' => 2,
        _ => return None,
    };
    Some(DType { code, bits: u8::try_from(size * 8).ok()?, lanes: 1 })
}
