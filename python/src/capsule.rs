//! Tensors in capsules, in which Python passes them from one library to another by `__dlpack__`.

use std::ffi::CStr;
use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyCapsule, PyDict};
use pyo3::{ffi, intern};

use crate::dlpack::{CPU, Managed, Owning, Unversioned, VERSION, View, delete};
use crate::loader::failure;

/// Puts a tensor into a capsule, which deletes it if nobody takes it out.
pub(crate) fn make<M: Owning>(py: Python<'_>, tensor: *mut M) -> PyResult<Bound<'_, PyAny>> {
    let [name, _] = M::NAMES;
    // SAFETY: a pointer, a name that is constant, and what is called when the capsule ends.
    let capsule = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(tensor.cast(), name.as_ptr(), Some(discard::<M>)))
    };
    // SAFETY: nobody else has the tensor.
    capsule.inspect_err(|_| unsafe { delete(tensor) })
}

/// Deletes a tensor that was not taken from its capsule. A library that takes it renames the capsule.
unsafe extern "C" fn discard<M: Owning>(capsule: *mut ffi::PyObject) {
    let [name, _] = M::NAMES;
    // SAFETY: a capsule of ours that is about to end.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()).cast::<M>());
        }
    }
}

/// The name of a capsule of ours that owns a tensor of somebody else.
const TAKEN: &CStr = c"slotline.taken";

/// Calls the deleter of a tensor that was taken.
unsafe extern "C" fn end<M: Owning>(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule of ours that is about to end, with the tensor that it owns, which is deleted once.
    unsafe {
        if let Some(tensor) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, TAKEN.as_ptr()).cast::<M>()) {
            tensor.as_ref().deleter().inspect(|deleter| deleter(tensor.as_ptr()));
        }
    }
}

/// Takes a tensor out of its capsule, so that no other library does. What is returned owns it.
pub(crate) fn take<'py>(capsule: &Bound<'py, PyCapsule>) -> PyResult<Bound<'py, PyAny>> {
    // Of several threads, one takes it.
    with_critical_section(capsule, || match tensor_in::<Managed>(capsule) {
        Some(_) => take_as::<Managed>(capsule),
        None => take_as::<Unversioned>(capsule),
    })
}

fn take_as<'py, M: Owning>(capsule: &Bound<'py, PyCapsule>) -> PyResult<Bound<'py, PyAny>> {
    let (py, [name, used]) = (capsule.py(), M::NAMES);
    // SAFETY: a capsule and a name; without a tensor there is an exception. Then a pointer, a name that is constant, and what
    // is called when the capsule ends.
    let owner = unsafe {
        let tensor = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
        if tensor.is_null() {
            return Err(PyErr::fetch(py));
        }
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(tensor, TAKEN.as_ptr(), Some(end::<M>)))?
    };
    // SAFETY: a capsule and a name that is constant. If the first capsule keeps the tensor, ours must not.
    unsafe {
        if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
            let error = PyErr::fetch(py);
            ffi::PyCapsule_SetDestructor(owner.as_ptr(), None);
            return Err(error);
        }
    }
    Ok(owner)
}

/// Asks an object on the CPU for its tensor, in a capsule.
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
        // From before version 1.0.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => ask(None),
        capsule => capsule,
    };
    Ok(capsule?.cast_into::<PyCapsule>()?)
}

/// Returns the tensor in a capsule, if it is of this kind.
fn tensor_in<M: Owning>(capsule: &Bound<'_, PyCapsule>) -> Option<NonNull<M>> {
    let [name, _] = M::NAMES;
    // SAFETY: a capsule and a name.
    unsafe {
        match ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) {
            0 => None,
            _ => NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()).cast()),
        }
    }
}

/// Returns what a tensor in a capsule views, or what is wrong with it.
///
/// # Safety
///
/// The capsule must be kept as long as the view.
pub(crate) unsafe fn view<'a>(capsule: &Bound<'_, PyCapsule>) -> Result<View<'a>, String> {
    let view = if let Some(tensor) = tensor_in::<Managed>(capsule) {
        // SAFETY: capsules of this name hold such a struct, at least up to its flags.
        let tensor = unsafe { tensor.as_ref() };
        if tensor.version.major != VERSION.major {
            return Err(format!("is exported as version {} of DLPack, which is not supported", tensor.version.major));
        }
        // SAFETY: the capsule's tensor is valid, and the caller keeps it.
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
