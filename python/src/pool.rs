//! Memory of this process: copies, and reusable memory for torch tensors of batches.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ffi::c_long;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{Ordering, fence};

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::{ffi, intern};

use crate::dlpack::{DType, Torch, size};
use crate::memory::ALIGN;

/// The bytes from which on a tensor comes from the pool. The allocator is fast for smaller ones.
const LARGE: usize = 256 << 10;
/// The most tensors in a pool.
const MAX: usize = 8;

/// An owned copy of some bytes.
#[derive(Debug)]
pub(crate) struct Copied {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory.
unsafe impl Send for Copied {}
// SAFETY: see above.
unsafe impl Sync for Copied {}

impl Copied {
    /// Copies `bytes` bytes, or returns a `MemoryError`.
    ///
    /// # Safety
    ///
    /// `from` must point to `bytes` readable bytes.
    pub(crate) unsafe fn new(from: *const u8, bytes: usize) -> PyResult<Self> {
        let copy = Self::allocated(bytes, alloc)?;
        // SAFETY: guaranteed by the caller, and no other code has the new memory.
        unsafe { copy.start.as_ptr().copy_from_nonoverlapping(from, bytes) };
        Ok(copy)
    }

    /// Returns memory of `bytes` bytes that `fill` has filled, which are zeros at first, or a `MemoryError`.
    pub(crate) fn filled(bytes: usize, fill: impl FnOnce(&mut [u8])) -> PyResult<Self> {
        let memory = Self::allocated(bytes, alloc_zeroed)?;
        // SAFETY: the memory has as many bytes, which are initialised, and no other code has it.
        fill(unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr(), bytes) });
        Ok(memory)
    }

    fn allocated(bytes: usize, allocate: unsafe fn(Layout) -> *mut u8) -> PyResult<Self> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).ok();
        // SAFETY: the size is not zero.
        let start = layout.and_then(|layout| NonNull::new(unsafe { allocate(layout) }));
        let (Some(start), Some(layout)) = (start, layout) else {
            return Err(PyMemoryError::new_err(format!("there is no memory for a copy of {bytes} bytes")));
        };
        Ok(Self { start, layout })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and has no other owner.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A torch tensor whose memory is lent to tensors of batches.
#[derive(Debug)]
struct PooledBlock {
    tensor: Py<PyAny>,
    dtype: DType,
    shape: Vec<i64>,
    bytes: usize,
    storage: Py<PyAny>,
    /// The storage's address, as torch's function takes it.
    address: Py<PyAny>,
    /// The reference counts of the storage and of its Python object while no other code refers to
    /// them.
    unused: (c_long, ffi::Py_ssize_t),
}

impl PooledBlock {
    /// Returns the reference counts of the storage and of its Python object.
    fn uses(&self, py: Python<'_>, count: &Bound<'_, PyAny>) -> PyResult<(c_long, ffi::Py_ssize_t)> {
        // SAFETY: the object is alive.
        Ok((count.call1((&self.address,))?.extract()?, unsafe { ffi::Py_REFCNT(self.storage.bind(py).as_ptr()) }))
    }

    /// Returns whether the memory still has its size and is not shared with other processes: a
    /// tensor of it may have been resized or shared.
    fn is_whole(&self, py: Python<'_>) -> PyResult<bool> {
        let storage = self.storage.bind(py);
        Ok(storage.call_method0(intern!(py, "nbytes"))?.extract::<usize>()? == self.bytes
            && !storage.call_method0(intern!(py, "is_shared"))?.is_truthy()?)
    }

    /// Returns a new tensor over the same memory, which can be resized.
    fn lend<'py>(&self, py: Python<'py>, torch: &Torch) -> PyResult<Bound<'py, PyAny>> {
        torch.nowhere(py, self.dtype, &[0])?.call_method1(intern!(py, "set_"), (&self.tensor,))
    }
}

/// The large tensors of the latest batches. Memory that is no longer referenced is reused, which
/// avoids page faults.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<PooledBlock>>);

impl Pool {
    /// Returns a tensor with uninitialised elements.
    pub(crate) fn take<'py>(
        &self,
        py: Python<'py>,
        torch: &Torch,
        dtype: DType,
        shape: &[i64],
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = size(shape, dtype).unwrap_or(0);
        let count = torch.storage_uses.as_ref().filter(|_| bytes >= LARGE).map(|count| count.bind(py));
        let (Some(count), Ok(mut pooled)) = (count, self.0.try_lock()) else {
            return torch.empty(py, dtype, shape);
        };
        let is_unused = |pooled: &PooledBlock| pooled.uses(py, count).is_ok_and(|uses| uses == pooled.unused);
        while let Some(k) = pooled.iter().rposition(|old| old.dtype == dtype && old.shape == shape && is_unused(old)) {
            let old = pooled.remove(k);
            if old.is_whole(py)? {
                // Acquire: other threads' accesses to the memory happen before its reuse.
                fence(Ordering::Acquire);
                let tensor = old.lend(py, torch)?;
                pooled.push(old);
                return Ok(tensor);
            }
        }
        // Drop a tensor of a size that is no longer used.
        if let Some(k) = (pooled.len() == MAX).then(|| pooled.iter().position(is_unused).unwrap_or(0)) {
            pooled.remove(k);
        }
        let tensor = torch.empty(py, dtype, shape)?;
        let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
        let address = storage.getattr(intern!(py, "_cdata"))?.unbind();
        let (tensor, storage) = (tensor.unbind(), storage.unbind());
        let mut new = PooledBlock { tensor, dtype, shape: shape.to_vec(), bytes, storage, address, unused: (0, 0) };
        new.unused = new.uses(py, count)?;
        let tensor = new.lend(py, torch)?;
        pooled.push(new);
        Ok(tensor)
    }
}
