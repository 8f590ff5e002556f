//! DLPack tensors in capsules, the objects in which `__dlpack__` passes them from one library to
//! another.

use std::ffi::CStr;
use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyCapsule, PyDict};
use pyo3::{ffi, intern};

use crate::dlpack::{CPU, Managed, Owning, Unversioned, VERSION, View, delete};
use crate::loader::failure;

/// Puts a tensor into a capsule, which deletes the tensor if no library takes it out.
pub(crate) fn make<M: Owning>(py: Python<'_>, tensor: *mut M) -> PyResult<Bound<'_, PyAny>> {
    let [name, _] = M::NAMES;
    // SAFETY: the pointer is valid, the name is a constant, and `discard` is a destructor for this
    // kind of capsule.
    let capsule = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(tensor.cast(), name.as_ptr(), Some(discard::<M>)))
    };
    // SAFETY: no capsule was made, so the tensor has no other owner.
    capsule.inspect_err(|_| unsafe { delete(tensor) })
}

/// The capsule's destructor: deletes a tensor that was not taken out. A library that takes it out
/// renames the capsule.
unsafe extern "C" fn discard<M: Owning>(capsule: *mut ffi::PyObject) {
    let [name, _] = M::NAMES;
    // SAFETY: Python calls this with a capsule of `make` that is about to be freed.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()).cast::<M>());
        }
    }
}

/// The name of a capsule in which this module owns another library's tensor.
const TAKEN: &CStr = c"slotline.taken";

/// The destructor of a capsule of `take`: calls the tensor's deleter.
unsafe extern "C" fn end<M: Owning>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this once with a capsule of `take` that is about to be freed, and that
    // owns the tensor.
    unsafe {
        if let Some(tensor) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, TAKEN.as_ptr()).cast::<M>()) {
            tensor.as_ref().deleter().inspect(|deleter| deleter(tensor.as_ptr()));
        }
    }
}

/// Takes a tensor out of its capsule, so that no other library can. The returned object owns it.
pub(crate) fn take<'py>(capsule: &Bound<'py, PyCapsule>) -> PyResult<Bound<'py, PyAny>> {
    // Of several threads, only one can take it.
    with_critical_section(capsule, || match tensor_in::<Managed>(capsule) {
        Some(_) => take_as::<Managed>(capsule),
        None => take_as::<Unversioned>(capsule),
    })
}

fn take_as<'py, M: Owning>(capsule: &Bound<'py, PyCapsule>) -> PyResult<Bound<'py, PyAny>> {
    let (py, [name, used]) = (capsule.py(), M::NAMES);
    // SAFETY: `capsule` is a capsule; without a tensor of this name Python sets an exception. The
    // new capsule gets a valid pointer, a constant name, and a destructor for its kind.
    let owner = unsafe {
        let tensor = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
        if tensor.is_null() {
            return Err(PyErr::fetch(py));
        }
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(tensor, TAKEN.as_ptr(), Some(end::<M>)))?
    };
    // SAFETY: both are capsules, and the name is a constant. If renaming fails, the first capsule
    // still owns the tensor, so the new one must not delete it.
    unsafe {
        if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
            let error = PyErr::fetch(py);
            ffi::PyCapsule_SetDestructor(owner.as_ptr(), None);
            return Err(error);
        }
    }
    Ok(owner)
}

/// Calls `__dlpack__` of an object on the CPU, and returns the capsule.
pub(crate) fn of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = object.py();
    if let Some(device) = object.getattr_opt(intern!(py, "__dlpack_device__"))? {
        let (kind, id): (i32, i32) = device.call0()?.extract()?;
        if kind != CPU {
            return Err(failure::invalid(
                py,
                format!("a tensor is on another device (DLPack's {kind}:{id}); copy it to the CPU first"),
            ));
        }
    }
    let ask = |kwargs: Option<&Bound<'py, PyDict>>| object.call_method(intern!(py, "__dlpack__"), (), kwargs);
    let kwargs = PyDict::new(py);
    kwargs.set_item("max_version", (VERSION.major, 0))?;
    let capsule = match ask(Some(&kwargs)) {
        // A library from before DLPack 1.0 does not accept the arguments.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => ask(None),
        capsule => capsule,
    };
    Ok(capsule?.cast_into::<PyCapsule>()?)
}

/// Returns the tensor in a capsule if it is a struct of type `M`.
fn tensor_in<M: Owning>(capsule: &Bound<'_, PyCapsule>) -> Option<NonNull<M>> {
    let [name, _] = M::NAMES;
    // SAFETY: `capsule` is a capsule, and the name is a constant.
    unsafe {
        match ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) {
            0 => None,
            _ => NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()).cast()),
        }
    }
}

/// Returns the view of a tensor in a capsule, or a description of the problem.
///
/// # Safety
///
/// The capsule must outlive the view.
pub(crate) unsafe fn view<'a>(capsule: &Bound<'_, PyCapsule>) -> Result<View<'a>, String> {
    let view = if let Some(tensor) = tensor_in::<Managed>(capsule) {
        // SAFETY: a capsule with this name contains such a struct, valid at least up to its flags.
        let tensor = unsafe { tensor.as_ref() };
        if tensor.version.major != VERSION.major {
            return Err(format!("is exported as version {} of DLPack, which is not supported", tensor.version.major));
        }
        // SAFETY: the capsule's tensor is valid, and the caller keeps the capsule.
        unsafe { tensor.tensor.view() }
    } else if let Some(tensor) = tensor_in::<Unversioned>(capsule) {
        // SAFETY: as above.
        unsafe { tensor.as_ref().tensor.view() }
    } else {
        return Err("has a __dlpack__ that does not return a tensor".to_owned());
    };
    view.ok_or_else(|| {
        "is a tensor that cannot be read here: its elements must lie in whole bytes on the CPU".to_owned()
    })
}
