//! The owners of tensors' memory, for as long as there are aliases of it.
//!
//! torch can replace the memory of a tensor: `share_memory_` and queues of `torch.multiprocessing` move it to another place, and
//! free the old one. An array that was made of the tensor before, with `numpy` or by DLPack, is still there, and keeps the tensor's
//! storage. torch's own loader gives memory that is shared already, which stays where it is.

use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use slotline_python_shielded::shielded;

use crate::dlpack::Owner;

/// Is called when a storage is gone.
#[pyclass(module = "slotline._slotline", frozen)]
struct Keeper(Mutex<Option<Kept>>);

/// The owner, and the reference that calls the keeper, and must exist until then.
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

/// Keeps the owner of a tensor's memory as long as the tensor's storage.
pub(crate) fn keep(tensor: &Bound<'_, PyAny>, owner: Owner) -> PyResult<()> {
    let py = tensor.py();
    let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
    let keeper = Bound::new(py, Keeper(Mutex::default()))?;
    let reference = PyWeakrefReference::new_with(&storage, &keeper)?;
    keeper.get().replace(Some(Kept(owner, reference.unbind())));
    Ok(())
}
