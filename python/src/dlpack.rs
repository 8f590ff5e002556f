//! Exchange of tensors with other libraries by [DLPack](https://dmlc.github.io/dlpack/latest/) 1.3.
//!
//! torch provides a table of C functions (`Tensor.__dlpack_c_exchange_api__`), with which reading
//! or creating a tensor takes less than 0.1 µs.

use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyBufferError, PyImportError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{ffi, intern};
use slotline::Batch;
use slotline::sample::Dynamic;

use crate::channel::Block;
use crate::keep::keep;
use crate::memory::ALIGN;
use crate::pool::Copied;
use crate::strided;

/// `DLPACK_MAJOR_VERSION` and `DLPACK_MINOR_VERSION`.
pub(crate) const VERSION: Version = Version { major: 1, minor: 3 };
pub(crate) const CPU: c_int = 1;
/// The most prototypes of new tensors to cache.
const MAX_LIKES: usize = 8;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Version {
    pub(crate) major: u32,
    minor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Device {
    kind: c_int,
    id: i32,
}

/// The type of an element (`DLDataType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct DType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

impl DType {
    pub(crate) const U8: Self = Self { code: 1, bits: 8, lanes: 1 };
    pub(crate) const I64: Self = Self { code: 0, bits: 64, lanes: 1 };
    pub(crate) const F64: Self = Self { code: 2, bits: 64, lanes: 1 };
    pub(crate) const BOOL: Self = Self { code: 6, bits: 8, lanes: 1 };

    /// Returns the bytes of an element, or `None` if it is not a whole number of bytes.
    pub(crate) fn bytes(self) -> Option<usize> {
        let bits = usize::from(self.bits) * usize::from(self.lanes);
        (bits > 0 && bits.is_multiple_of(8)).then_some(bits / 8)
    }

    /// Returns whether it is an integer or a `bool`.
    fn is_integer(self) -> bool {
        matches!(self.code, 0 | 1 | 6)
    }

    /// Returns whether it is a complex number. Tensors of these may be conjugated lazily.
    fn is_complex(self) -> bool {
        self.code == 5
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

impl Tensor {
    /// Returns a view of the tensor if it is on the CPU and its elements have whole bytes.
    ///
    /// # Safety
    ///
    /// The tensor must be valid, and must outlive the view.
    pub(crate) unsafe fn view<'a>(&self) -> Option<View<'a>> {
        let ndim = usize::try_from(self.ndim).ok()?;
        if self.device.kind != CPU || self.dtype.bytes().is_none() {
            return None;
        }
        // SAFETY: both arrays have `ndim` entries, and belong to the tensor.
        let (shape, strides) = unsafe { (entries(self.shape, ndim)?, entries(self.strides, ndim)) };
        let data = self.data.cast::<u8>().wrapping_add(usize::try_from(self.byte_offset).ok()?);
        Some(View { data, dtype: self.dtype, shape, strides: strides.filter(|_| ndim > 0) })
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Managed {
    pub(crate) version: Version,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    pub(crate) flags: u64,
    pub(crate) tensor: Tensor,
}

/// A tensor of a DLPack version before 1.0 (`DLManagedTensor`).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Unversioned {
    pub(crate) tensor: Tensor,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

/// A DLPack struct that owns a tensor.
pub(crate) trait Owning {
    /// The name of a capsule with such a tensor, and its name after the tensor was taken out.
    const NAMES: [&CStr; 2];

    /// Returns the function that deletes the tensor.
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Owning for Managed {
    const NAMES: [&CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

impl Owning for Unversioned {
    const NAMES: [&CStr; 2] = [c"dltensor", c"used_dltensor"];

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

/// The table of C functions, `DLPackExchangeAPI`.
#[repr(C)]
struct Table {
    version: Version,
    previous: *mut Table,
    allocate: *const c_void,
    managed_from_object: *const c_void,
    object_from_managed: Option<unsafe extern "C" fn(*mut Managed, *mut *mut c_void) -> c_int>,
    view_of_object: Option<unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int>,
    current_stream: *const c_void,
}

/// The owner of a tensor's memory. It is only stored and dropped.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "nothing is read from an owner")]
pub(crate) enum Owner {
    /// A block of a channel.
    Block(Arc<Block>),
    /// Memory of this process from a pool.
    Own(Arc<Copied>),
    /// No owner, since the elements are not accessed.
    Nobody,
    /// A batch of a loader.
    Batch(Arc<Batch<Dynamic>>),
}

/// A tensor's dimensions, and its strides in elements unless it is contiguous.
pub(crate) type Dims<'a> = (&'a [i64], Option<&'a [i64]>);

/// The allocation behind a tensor that this module has made.
#[repr(C)]
struct Made<M> {
    /// The first field, so that a pointer to it is also a pointer to the struct.
    managed: M,
    /// The shape, followed by the strides.
    dims: Box<[i64]>,
    owner: Owner,
}

/// Deletes a tensor that this module has made. Any thread may call it, since it does not use
/// Python.
pub(crate) unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: `managed` is the first field of the box that `own` leaked, and the tensor's owner
    // calls this once.
    drop(unsafe { Box::from_raw(managed.cast::<Made<M>>()) });
}

/// Describes memory as a tensor that keeps the memory's owner.
fn own<M>(
    data: *mut u8,
    dtype: DType,
    (shape, strides): Dims<'_>,
    owner: Owner,
    managed: impl FnOnce(Tensor) -> M,
) -> PyResult<*mut M> {
    let ndim = i32::try_from(shape.len()).map_err(|_| PyBufferError::new_err("a tensor has too many dimensions"))?;
    let mut dims = vec![1; 2 * shape.len()].into_boxed_slice();
    dims[..shape.len()].copy_from_slice(shape);
    if let Some(strides) = strides {
        dims[shape.len()..].copy_from_slice(strides);
    } else {
        dims[shape.len()..].iter_mut().rev().zip(usual(shape)).for_each(|(to, stride)| *to = stride);
    }
    let (shape, strides) = (dims.as_mut_ptr(), dims[shape.len()..].as_mut_ptr());
    let device = Device { kind: CPU, id: 0 };
    let tensor = Tensor { data: data.cast(), device, ndim, dtype, shape, strides, byte_offset: 0 };
    Ok(Box::into_raw(Box::new(Made { managed: managed(tensor), dims, owner })).cast())
}

/// Makes a tensor, to be deleted by [`delete`].
pub(crate) fn managed(data: *mut u8, dtype: DType, dims: Dims<'_>, owner: Owner, flags: u64) -> PyResult<*mut Managed> {
    let deleter = Some(delete::<Managed> as _);
    own(data, dtype, dims, owner, |tensor| Managed {
        version: VERSION,
        manager: std::ptr::null_mut(),
        deleter,
        flags,
        tensor,
    })
}

/// Makes a tensor for DLPack before 1.0, to be deleted by [`delete`].
pub(crate) fn unversioned(data: *mut u8, dtype: DType, dims: Dims<'_>, owner: Owner) -> PyResult<*mut Unversioned> {
    let deleter = Some(delete::<Unversioned> as _);
    own(data, dtype, dims, owner, |tensor| Unversioned { tensor, manager: std::ptr::null_mut(), deleter })
}

/// A borrowed view of a tensor or array, whose owner must outlive it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) data: *const u8,
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [i64],
    /// The strides in elements, or `None` if the elements are contiguous.
    pub(crate) strides: Option<&'a [i64]>,
}

impl View<'_> {
    /// Returns the total bytes of its elements, or `None` on overflow.
    pub(crate) fn bytes(&self) -> Option<usize> {
        size(self.shape, self.dtype)
    }

    /// Returns whether the elements are contiguous, in the order of the dimensions.
    pub(crate) fn is_dense(&self) -> bool {
        let Some(strides) = self.strides else { return true };
        let mut expected = 1;
        for (&dim, &stride) in self.shape.iter().zip(strides).rev() {
            if dim == 0 {
                return true;
            }
            if dim != 1 && stride != expected {
                return false;
            }
            expected *= dim;
        }
        true
    }

    /// Returns whether the elements are contiguous, but in another order of the dimensions
    /// (`channels_last`).
    pub(crate) fn is_permuted(&self) -> bool {
        let Some(strides) = self.strides.filter(|_| !self.is_dense() && !self.shape.contains(&0)) else { return false };
        let mut dims: Vec<_> = strides.iter().zip(self.shape).filter(|&(_, &dim)| dim != 1).collect();
        dims.sort_unstable();
        let mut expected = 1;
        dims.iter().all(|&(&stride, &dim)| {
            let fits = stride == expected;
            expected *= dim;
            fits
        })
    }

    /// Returns the bytes from the first element to the end of the last one, or `None` on overflow.
    pub(crate) fn span(&self) -> Option<usize> {
        self.own_strides().map_or_else(|| self.bytes(), |strides| span(self.shape, strides, self.dtype))
    }

    /// Returns the strides, unless they are those of a new contiguous tensor of this shape.
    pub(crate) fn own_strides(&self) -> Option<&[i64]> {
        self.strides.filter(|strides| !usual(self.shape).eq(strides.iter().rev().copied()))
    }

    /// Copies the elements to `to`, contiguously.
    ///
    /// # Safety
    ///
    /// `to` must have room for [`bytes`](Self::bytes) bytes, and the viewed memory must exist.
    pub(crate) unsafe fn copy(&self, to: *mut u8) {
        let Some(bytes) = self.bytes().filter(|bytes| *bytes > 0) else { return };
        if self.is_dense() {
            // SAFETY: the caller guarantees that source and target have `bytes` bytes.
            unsafe { std::ptr::copy_nonoverlapping(self.data, to, bytes) };
            return;
        }
        let size = self.dtype.bytes().unwrap_or(1);
        // SAFETY: as above; the strides of a valid tensor reach only its elements.
        unsafe { strided::copy(self.data, to, self.shape, self.strides.unwrap_or_default(), size) };
    }
}

/// Returns the total bytes of a tensor's elements, or `None` on overflow.
pub(crate) fn size(shape: &[i64], dtype: DType) -> Option<usize> {
    let mut bytes = dtype.bytes()?;
    for &dim in shape {
        bytes = bytes.checked_mul(usize::try_from(dim).ok()?)?;
    }
    Some(bytes)
}

/// Returns the bytes from the start of a tensor to the end of its last element, or `None` on
/// overflow.
pub(crate) fn span(shape: &[i64], strides: &[i64], dtype: DType) -> Option<usize> {
    // Fails if the number of elements overflows, even if strides of 0 put all in one place.
    size(shape, dtype)?;
    let mut last = 0_usize;
    for (&dim, &stride) in shape.iter().zip(strides) {
        let step = usize::try_from((dim - 1).max(0)).ok()?.checked_mul(usize::try_from(stride).ok()?)?;
        last = last.checked_add(step)?;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    last.checked_add(1)?.checked_mul(dtype.bytes()?)
}

/// Returns the strides of a new contiguous tensor, last dimension first.
fn usual(shape: &[i64]) -> impl Iterator<Item = i64> {
    shape.iter().rev().scan(1_i64, |next, &dim| {
        let stride = *next;
        *next = stride.saturating_mul(dim.max(1));
        Some(stride)
    })
}

/// A prototype for `empty_like`, with its type and shape.
type Like = (DType, Box<[i64]>, Py<PyAny>);

/// The functions and classes of torch that this module uses.
pub(crate) struct Torch {
    /// torch's table of C functions, which is never freed.
    table: NonNull<Table>,
    pub(crate) tensor: Py<PyAny>,
    /// `torch.int8` and `torch.uint8`.
    bytes: [Py<PyAny>; 2],
    /// `Tensor.is_conj` and `Tensor.is_neg`, since a subclass's own methods would be code of the
    /// program.
    is_conj: Py<PyAny>,
    is_neg: Py<PyAny>,
    empty_like: Py<PyAny>,
    /// The prototypes of the latest new tensors: tensors without memory.
    likes: Mutex<VecDeque<Like>>,
    /// Returns the number of references to a storage. `None` if torch lacks the function, or if the
    /// interpreter has no global lock: another thread could then create a tensor of the storage
    /// between the counting of storage and tensor.
    pub(crate) storage_uses: Option<Py<PyAny>>,
}

// SAFETY: the table is constant.
unsafe impl Send for Torch {}
// SAFETY: see above.
unsafe impl Sync for Torch {}

impl Torch {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let torch = py.import("torch")?;
        let tensor = torch.getattr("Tensor")?;
        let capsule = tensor.getattr_opt("__dlpack_c_exchange_api__")?;
        let table = capsule.and_then(|capsule| {
            let name = c"dlpack_exchange_api";
            // SAFETY: `capsule` is a capsule, and the name is a constant.
            let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
            drop(PyErr::take(py));
            let mut table = NonNull::new(table.cast::<Table>());
            // SAFETY: the table and its earlier versions are constants of torch.
            while let Some(found) = table.map(|table| unsafe { table.as_ref() })
                && found.version.major != VERSION.major
            {
                table = NonNull::new(found.previous);
            }
            table
        });
        let Some(table) = table.filter(|table| {
            // SAFETY: as above.
            let table = unsafe { table.as_ref() };
            table.object_from_managed.is_some() && table.view_of_object.is_some()
        }) else {
            let version = torch.getattr("__version__")?;
            return Err(PyImportError::new_err(format!("slotline needs PyTorch 2.10 or later, and this is {version}")));
        };
        let bytes = [torch.getattr("int8")?.unbind(), torch.getattr("uint8")?.unbind()];
        let empty_like = torch.getattr("empty_like")?.unbind();
        let (is_conj, is_neg) = (tensor.getattr("is_conj")?.unbind(), tensor.getattr("is_neg")?.unbind());
        let is_free_threaded = py.import("sys")?.getattr("abiflags")?.extract::<String>()?.contains('t');
        let storage_uses = torch.getattr("_C")?.getattr_opt("_storage_Use_Count")?.filter(|_| !is_free_threaded);
        Ok(Self {
            table,
            tensor: tensor.unbind(),
            bytes,
            is_conj,
            is_neg,
            empty_like,
            likes: Mutex::default(),
            storage_uses: storage_uses.map(Bound::unbind),
        })
    }

    /// Returns a view of a torch tensor if it is on the CPU and its memory holds the elements
    /// unmodified.
    ///
    /// # Safety
    ///
    /// The tensor must outlive the view, and must not change its shape meanwhile.
    pub(crate) unsafe fn view<'a>(&self, tensor: &Bound<'_, PyAny>) -> Option<View<'a>> {
        let py = tensor.py();
        // SAFETY: the caller keeps the tensor alive.
        let view = unsafe { self.memory(tensor) }?;
        if view.dtype.is_complex() && self.is_conj.bind(py).call1((tensor,)).ok()?.is_truthy().ok()? {
            return None;
        }
        // DLPack reports torch's integers of less than 8 bits as bytes, so exclude them.
        if let DType { code: code @ 0..=1, bits: 8, lanes: 1 } = view.dtype
            && !tensor.getattr(intern!(py, "dtype")).ok()?.is(&self.bytes[usize::from(code)])
        {
            return None;
        }
        // DLPack does not report whether a floating-point tensor requires a gradient, or whether
        // its elements are negated lazily (`z.conj().imag`). Integers have neither, so they are not
        // asked.
        if !view.dtype.is_integer()
            && (tensor.getattr(intern!(py, "requires_grad")).ok()?.is_truthy().ok()?
                || self.is_neg.bind(py).call1((tensor,)).ok()?.is_truthy().ok()?)
        {
            return None;
        }
        Some(view)
    }

    /// Returns a view of a torch tensor's memory if it is on the CPU, without the other checks of
    /// [`view`](Self::view).
    ///
    /// # Safety
    ///
    /// The same as for [`view`](Self::view).
    unsafe fn memory<'a>(&self, tensor: &Bound<'_, PyAny>) -> Option<View<'a>> {
        // SAFETY: the table is a constant of torch.
        let read = unsafe { self.table.as_ref() }.view_of_object?;
        let mut view = std::mem::MaybeUninit::<Tensor>::uninit();
        // SAFETY: the object is a tensor, and the target is writable. On failure torch sets an
        // exception.
        if unsafe { read(tensor.as_ptr().cast(), view.as_mut_ptr()) } != 0 {
            drop(PyErr::take(tensor.py()));
            return None;
        }
        // SAFETY: torch has filled it in, and the caller keeps the tensor alive.
        let view: View<'a> = unsafe { view.assume_init().view() }?;
        // Some torch tensors without memory report elements nevertheless, such as
        // `_efficientzerotensor`.
        (!view.data.is_null() || view.shape.contains(&0)).then_some(view)
    }

    /// Returns whether a tensor's storage contains all of its elements: the program may have shrunk
    /// it.
    pub(crate) fn has_storage(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = tensor.py();
        let number = |object: &Bound<'_, PyAny>, name| object.call_method0(name)?.extract::<usize>();
        let (storage, size) = (tensor.call_method0(intern!(py, "untyped_storage"))?, number(tensor, "element_size")?);
        let (has, offset) = (number(&storage, "nbytes")?, number(tensor, "storage_offset")? * size);
        // SAFETY: the view is used only while `tensor` is borrowed.
        let span = unsafe { self.view(tensor) }.and_then(|view| view.span());
        Ok(span.is_some_and(|span| span == 0 || offset.checked_add(span).is_some_and(|end| end <= has)))
    }

    /// Creates a new tensor in torch's own memory, which can be resized.
    pub(crate) fn empty<'py>(&self, py: Python<'py>, dtype: DType, shape: &[i64]) -> PyResult<Bound<'py, PyAny>> {
        let empty_like = self.empty_like.bind(py);
        let Ok(mut likes) = self.likes.try_lock() else {
            return empty_like.call1((self.nowhere(py, dtype, shape)?,));
        };
        let like = match likes.iter().find(|(of, dims, _)| *of == dtype && **dims == *shape) {
            Some((.., like)) => like.bind(py).clone(),
            None => {
                let like = self.nowhere(py, dtype, shape)?;
                likes.truncate(MAX_LIKES - 1);
                likes.push_front((dtype, shape.into(), like.clone().unbind()));
                like
            }
        };
        drop(likes);
        empty_like.call1((like,))
    }

    /// Returns the address of a tensor's first element.
    pub(crate) fn start(&self, tensor: &Bound<'_, PyAny>) -> PyResult<*mut u8> {
        // SAFETY: the tensor is borrowed, and only its address is used.
        let view = unsafe { self.memory(tensor) };
        let view = view.ok_or_else(|| PyRuntimeError::new_err("a new tensor has no memory on the CPU"))?;
        Ok(view.data.cast_mut())
    }

    /// Creates a tensor without memory, whose elements must not be read.
    pub(crate) fn nowhere<'py>(&self, py: Python<'py>, dtype: DType, shape: &[i64]) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: torch only reads the type and the dimensions.
        unsafe { self.make(py, std::ptr::without_provenance_mut(ALIGN), dtype, (shape, None), Owner::Nobody) }
    }

    /// Creates a tensor that shares the memory of `whole` from byte `offset` on. torch checks the
    /// bounds.
    pub(crate) fn part<'py>(
        &self,
        whole: &Bound<'py, PyAny>,
        offset: usize,
        dtype: DType,
        (shape, strides): Dims<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = whole.py();
        let storage = whole.call_method0(intern!(py, "untyped_storage"))?;
        let shape = PyTuple::new(py, shape)?;
        let part = self.nowhere(py, dtype, &[0])?;
        let offset = offset / dtype.bytes().unwrap_or(1);
        match strides {
            Some(strides) => {
                part.call_method1(intern!(py, "set_"), (storage, offset, shape, PyTuple::new(py, strides)?))
            }
            None => part.call_method1(intern!(py, "set_"), (storage, offset, shape)),
        }
    }

    /// Creates a tensor over memory.
    ///
    /// # Safety
    ///
    /// The memory must have the tensor's bytes, which no other code accesses while the owner
    /// exists. The strides must not lead out of it.
    pub(crate) unsafe fn make<'py>(
        &self,
        py: Python<'py>,
        data: *mut u8,
        dtype: DType,
        dims: Dims<'_>,
        owner: Owner,
    ) -> PyResult<Bound<'py, PyAny>> {
        let kept = (!matches!(owner, Owner::Nobody)).then(|| owner.clone());
        let made = managed(data, dtype, dims, owner, 0)?;
        let mut object = std::ptr::null_mut();
        // SAFETY: the table is a constant of torch, and `new` has checked that it has this function.
        let convert = unsafe { self.table.as_ref() }.object_from_managed.expect("checked");
        // SAFETY: the tensor is complete, and its ownership passes to torch.
        if unsafe { convert(made, &raw mut object) } != 0 {
            return Err(PyErr::fetch(py));
        }
        // SAFETY: torch returns a new reference.
        let tensor = unsafe { Bound::from_owned_ptr_or_err(py, object.cast()) }?;
        if let Some(owner) = kept {
            keep(&tensor, owner)?;
        }
        Ok(tensor)
    }
}

/// # Safety
///
/// `start` must be null, or point to `len` entries.
unsafe fn entries<'a>(start: *const i64, len: usize) -> Option<&'a [i64]> {
    match (NonNull::new(start.cast_mut()), len) {
        (_, 0) => Some(&[]),
        (None, _) => None,
        // SAFETY: guaranteed by the caller.
        (Some(start), _) => Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }),
    }
}

/// Returns the error for shared memory with invalid contents.
pub(crate) fn broken(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("a worker has sent a batch that cannot be read: {what}"))
}
