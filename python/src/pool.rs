//! Memory of this process: copies, and tensors of torch for batches, whose memory is used again.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_long;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{Ordering, fence};

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::{ffi, intern};

use crate::dlpack::{DType, Torch, size};
use crate::memory::ALIGN;

/// Smaller tensors come from the allocator, which is quick for them.
const LARGE: usize = 256 << 10;
/// How many tensors are remembered.
const MAX: usize = 8;

/// A copy of some bytes.
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
    /// Copies `bytes` bytes, or raises a `MemoryError`.
    ///
    /// # Safety
    ///
    /// They must be there.
    pub(crate) unsafe fn new(from: *const u8, bytes: usize) -> PyResult<Self> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).expect("a copy fits in memory");
        // SAFETY: the size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            return Err(PyMemoryError::new_err(format!("there is no memory for a copy of {bytes} bytes")));
        };
        // SAFETY: the caller's guarantee, and the new memory is nobody else's yet.
        unsafe { start.as_ptr().copy_from_nonoverlapping(from, bytes) };
        Ok(Self { start, layout })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nobody else has it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A tensor whose memory is lent to others.
#[derive(Debug)]
struct PooledBlock {
    tensor: Py<PyAny>,
    dtype: DType,
    shape: Vec<i64>,
    bytes: usize,
    storage: Py<PyAny>,
    /// The storage's address, as torch wants it.
    address: Py<PyAny>,
    /// How many refer to the storage, and to its object, if nobody else does.
    unused: (c_long, ffi::Py_ssize_t),
}

impl PooledBlock {
    /// Returns how many refer to the storage, and to its object.
    fn uses(&self, py: Python<'_>, count: &Bound<'_, PyAny>) -> PyResult<(c_long, ffi::Py_ssize_t)> {
        // SAFETY: an object that is there.
        Ok((count.call1((&self.address,))?.extract()?, unsafe { ffi::Py_REFCNT(self.storage.bind(py).as_ptr()) }))
    }

    /// Whether the memory is as it was, and of this process only: a tensor of it may have been resized, or shared.
    fn is_whole(&self, py: Python<'_>) -> PyResult<bool> {
        let storage = self.storage.bind(py);
        Ok(storage.call_method0(intern!(py, "nbytes"))?.extract::<usize>()? == self.bytes
            && !storage.call_method0(intern!(py, "is_shared"))?.is_truthy()?)
    }

    /// Makes another tensor of the memory, which can be resized.
    fn lend<'py>(&self, py: Python<'py>, torch: &Torch) -> PyResult<Bound<'py, PyAny>> {
        torch.nowhere(py, self.dtype, &[0])?.call_method1(intern!(py, "set_"), (&self.tensor,))
    }
}

/// The large tensors of the last batches. What nobody refers to any more is used again: new memory costs its page faults.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<PooledBlock>>);

impl Pool {
    /// Returns a tensor, whose elements may be anything.
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
                // What others did with the memory is done.
                fence(Ordering::Acquire);
                let tensor = old.lend(py, torch)?;
                pooled.push(old);
                return Ok(tensor);
            }
        }
        // Sizes that are no longer asked for are dropped.
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
