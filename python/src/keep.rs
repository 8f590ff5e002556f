//! Keeping the owner of a tensor's memory alive as long as the memory may be referenced.
//!
//! torch can replace the memory of a tensor: `share_memory_` and the queues of
//! `torch.multiprocessing` move it and free the old one. An array that was created from the tensor
//! before, with `numpy` or DLPack, still refers to the old memory and keeps the tensor's storage.
//! (torch's own loader returns memory that is already shared, which is not moved.)

use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use slotline_python_shielded::shielded;

use crate::dlpack::Owner;

/// A callback that runs when a storage is freed.
#[pyclass(module = "slotline._slotline", frozen)]
struct Keeper(Mutex<Option<Kept>>);

/// The owner of the memory, and the weak reference to the storage, which calls the keeper when the
/// storage is freed and must exist until then.
#[expect(dead_code, reason = "it is only kept, and dropped")]
struct Kept(Owner, Py<PyWeakrefReference>);

impl Keeper {
    fn replace(&self, kept: Option<Kept>) -> Option<Kept> {
        std::mem::replace(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), kept)
    }
}

#[shielded]
#[pymethods]
impl Keeper {
    fn __call__(&self, _storage: &Bound<'_, PyAny>) {
        drop(self.replace(None));
    }
}

/// Keeps the owner of a tensor's memory alive as long as the tensor's storage.
pub(crate) fn keep(tensor: &Bound<'_, PyAny>, owner: Owner) -> PyResult<()> {
    let py = tensor.py();
    let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
    let keeper = Bound::new(py, Keeper(Mutex::default()))?;
    let reference = PyWeakrefReference::new_with(&storage, &keeper)?;
    keeper.get().replace(Some(Kept(owner, reference.unbind())));
    Ok(())
}
